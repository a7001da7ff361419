use super::*;
use crate::{Program, sample};
use douse_core::element::elements;

fn program() -> Program {
    Program::from_parts(vec![sample::counter()], Default::default()).unwrap()
}

fn method() -> Method {
    program().load("forward", &LoadOptions::default()).unwrap()
}

fn x(values: &[f32]) -> HostTensor {
    HostTensor::from_f32(&[values.len()], values).unwrap()
}

fn first(outputs: &[Value]) -> f64 {
    elements(outputs[0].tensor().unwrap())[0].to_f64()
}

#[test]
fn state_goes_on_from_call_to_call_and_results_stay() {
    let mut method = method();
    let one = method.run(&[x(&[1.0]).view()]).unwrap();
    let two = method.run(&[x(&[1.0, 5.0]).view()]).unwrap();
    assert_eq!((first(&one), first(&two)), (2.0, 3.0));
    assert_eq!(elements(two[0].tensor().unwrap()).len(), 2);
    method.session().reset();
    assert_eq!(first(&method.run(&[x(&[1.0]).view()]).unwrap()), 2.0);
}

#[test]
fn refused_calls_leave_no_trace() {
    let mut method = method();
    method.run(&[x(&[1.0]).view()]).unwrap();
    // Refused by its sizes, before anything runs; then by the program's own check, after the count was written.
    assert_eq!(method.run(&[x(&[1.0; 9]).view()]).unwrap_err().code, Code::InvalidArgument);
    let error = method.run(&[x(&[-1.0]).view()]).unwrap_err();
    assert!(error.message.contains("x must be positive"), "{error}");
    assert_eq!(first(&method.run(&[x(&[1.0]).view()]).unwrap()), 3.0);
}

#[test]
fn sessions_are_independent_and_clones_go_on() {
    let mut method = method();
    let (mut a, mut b) = (Session::new(), Session::new());
    let tensor = x(&[0.5]);
    for expected in [1.5, 2.5] {
        assert_eq!(first(&method.run_in(&mut a, &[tensor.view()]).unwrap()), expected);
    }
    assert_eq!(first(&method.run_in(&mut b, &[tensor.view()]).unwrap()), 1.5);
    let mut c = a.clone();
    assert_eq!(first(&method.run_in(&mut c, &[tensor.view()]).unwrap()), 3.5);
    assert_eq!(first(&method.run_in(&mut a, &[tensor.view()]).unwrap()), 3.5);
    assert_eq!(first(&method.run(&[tensor.view()]).unwrap()), 1.5);
}

#[test]
fn inputs_and_outputs_that_were_set() {
    let mut method = method();
    assert_eq!(method.execute().unwrap_err().code, Code::InvalidState);
    assert!(method.set_input(1, Value::None).is_err());
    method.set_input(0, Value::Tensor(x(&[1.0, 2.0]))).unwrap();
    // The last size was never seen: the bound of 8 elements counts.
    let error = method.set_output(0, Aligned::zeros(31).unwrap()).unwrap_err();
    assert_eq!(error.message, "output 0 (y) may take 32 bytes, the buffer has 31");
    let buffer = Aligned::zeros(32).unwrap();
    let address = buffer.as_ptr();
    method.set_output(0, buffer).unwrap();
    method.execute().unwrap();
    let outputs = method.take_outputs();
    let tensor = outputs[0].tensor().unwrap();
    assert_eq!((tensor.sizes(), tensor.bytes().as_ptr()), (&[2][..], address));
    assert_eq!(first(&outputs), 2.0);
    method.execute().unwrap();
    assert_eq!(first(method.outputs()), 3.0);
}

#[test]
fn methods_run_from_many_threads() {
    fn is_send<T: Send>(_: &T) {}
    let program = program();
    is_send(&program);
    is_send(&method());
    is_send(&Session::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut method = program.load("forward", &LoadOptions::default()).unwrap();
                for call in 1..50 {
                    let outputs = method.run(&[x(&[1.0]).view()]).unwrap();
                    assert_eq!(first(&outputs), 1.0 + f64::from(call));
                }
            });
        }
    });
}

#[test]
fn unknown_methods_and_other_targets_are_refused() {
    let error = program().load("backward", &LoadOptions::default()).err().unwrap();
    assert_eq!(error.message, "no method \"backward\"; there are forward");
    let mut payload = sample::counter();
    payload.targets = vec!["sm_90".into()];
    let program = Program::from_parts(vec![payload], Default::default()).unwrap();
    let error = program.load("forward", &LoadOptions::default()).err().unwrap();
    assert!(error.code == Code::NotSupported && error.message.contains("sm_90"), "{error}");
}

#[test]
fn missing_weights_are_all_counted() {
    use douse_program::plan::{Buffer, BufferKind, Data};
    let mut payload = sample::counter();
    for key in ["one", "two"] {
        Arc::make_mut(&mut payload.plan).buffers.push(Buffer {
            dtype: douse_core::DType::F32,
            elements: sample::expr("1"),
            kind: BufferKind::Constant(Data::Named(key.into())),
        });
    }
    let program = Program::from_parts(vec![payload], Default::default()).unwrap();
    let error = program.load("forward", &LoadOptions::default()).err().unwrap();
    assert_eq!((error.code, error.message.as_str()), (Code::NotFound, "the weights one are missing (and 1 more)"));
}

#[test]
fn a_program_says_what_it_takes() {
    let meta = program().method_meta("forward").unwrap();
    let crate::ValueKind::Tensor { sizes, .. } = &meta.inputs[0].kind else { panic!("no tensor") };
    assert_eq!((sizes[0].min, sizes[0].max), (1, Some(8)));
    assert_eq!(meta.states[0].name, "count");
}
