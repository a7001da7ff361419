use douse_core::{Code, HostTensor, Memory};

use super::*;
use crate::sample;

fn zeros(sizes: &[usize]) -> HostTensor {
    HostTensor::zeros(DType::F32, sizes).unwrap()
}

/// The message with which inputs are refused; the tensors are `x` and `y`.
fn refusal(x: &HostTensor, y: &mut HostTensor, rest: &[Argument]) -> String {
    let arguments: Vec<Argument> = [x.view().into(), y.view_mut().into()].iter().chain(rest).copied().collect();
    match Bound::new(&sample::signature(), &arguments, None) {
        Ok(_) => panic!("accepted"),
        Err(error) => {
            assert_eq!(error.code, Code::InvalidArgument, "{error}");
            error.message
        }
    }
}

const REST: [Argument; 2] = [Argument::Float(1.5), Argument::Str("fast")];

#[test]
fn wrong_inputs_are_named_with_dimension_and_both_sizes() {
    let (x, mut y) = (zeros(&[2, 3]), zeros(&[4, 3]));
    assert_eq!(refusal(&x, &mut y, &REST[..1]), "forward takes 4 inputs (x, y, n, mode), 3 given");
    assert_eq!(refusal(&zeros(&[2, 4]), &mut y, &REST), "input 0 (x) has size 4 in dim 1, expected 3");
    assert_eq!(
        refusal(&x, &mut zeros(&[5, 3]), &REST),
        "input 1 (y) has size 5 in dim 0, expected 4 (2*s77 where s77 is 2, by dim 0 of input 0 (x))"
    );
    assert_eq!(refusal(&zeros(&[11, 3]), &mut y, &REST), "input 0 (x) has size 11 in dim 0, expected at most 10");
    assert_eq!(refusal(&zeros(&[0, 3]), &mut y, &REST), "input 0 (x) has size 0 in dim 0, expected at least 1");
    assert_eq!(
        refusal(&zeros(&[2, 3, 1]), &mut y, &REST),
        "input 0 (x) has 3 dimensions (sizes [2, 3, 1]), expected 2"
    );
    assert_eq!(refusal(&zeros(&[2]), &mut y, &REST), "input 0 (x) has 1 dimension (sizes [2]), expected 2");
    let ints = HostTensor::from_i64(&[2, 3], &[0; 6]).unwrap();
    assert_eq!(refusal(&ints, &mut y, &REST), "input 0 (x) is an int64 tensor, expected a float32 tensor");
    assert_eq!(
        refusal(&x, &mut y, &[Argument::Bool(true), Argument::Str("fast")]),
        "input 2 (n) is the bool true, expected a float"
    );
    assert_eq!(
        refusal(&x, &mut y, &[Argument::Float(1.0), Argument::Str("slow")]),
        "input 3 (mode) is the string \"slow\", expected \"fast\", as when the program was exported"
    );
}

#[test]
fn a_scaled_size_is_solved() {
    let mut plan = sample::signature();
    plan.symbols[0] = sample::symbol("s77", Some(1), Some(10), 1, 0, 2, 0);
    let (x, mut y) = (zeros(&[2, 3]), zeros(&[4, 3]));
    let bound = Bound::new(&plan, &[x.view().into(), y.view_mut().into(), REST[0], REST[1]], None).unwrap();
    assert_eq!(bound.symbols, [Some(2)]);
    let mut odd = zeros(&[5, 3]);
    let error = Bound::new(&plan, &[x.view().into(), odd.view_mut().into(), REST[0], REST[1]], None).err().unwrap();
    assert_eq!(error.message, "input 1 (y) has size 5 in dim 0, expected a multiple of 2");
}

#[test]
fn written_inputs_must_be_writable_and_alone() {
    let plan = sample::signature();
    let (x, y) = (zeros(&[1, 3]), zeros(&[2, 3]));
    let error = Bound::new(&plan, &[x.view().into(), y.view().into(), REST[0], REST[1]], None).err().unwrap();
    assert!(error.message.starts_with("input 1 (y) is written by the program"), "{error}");

    let mut memory = [0u8; 36];
    let Memory::Write(cells) = Memory::writable(&mut memory) else { panic!("not writable") };
    let view = |from: usize, sizes, strides| {
        Argument::Tensor(TensorView::new(DType::F32, sizes, strides, Memory::Write(&cells[from..])).unwrap())
    };
    let (overlapping, apart, y) = (view(20, &[1, 3], &[3, 1]), view(24, &[1, 3], &[3, 1]), view(0, &[2, 3], &[3, 1]));
    assert!(Bound::new(&plan, &[apart, y, REST[0], REST[1]], None).is_ok());
    let error = Bound::new(&plan, &[overlapping, y, REST[0], REST[1]], None).err().unwrap();
    assert!(error.message.contains("input 1 (y) and input 0 (x) overlap in memory"), "{error}");
    let expanded = view(0, &[2, 3], &[0, 1]);
    let error = Bound::new(&plan, &[apart, expanded, REST[0], REST[1]], None).err().unwrap();
    assert!(error.message.contains("elements of it share memory"), "{error}");
}

#[test]
fn other_layouts_are_copied_and_written_back() {
    let plan = sample::signature();
    let x = HostTensor::from_f32(&[1, 3], &[1.0, 2.0, 3.0]).unwrap();
    let mut y = HostTensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap().to_strides(&[1, 2]).unwrap();
    let mut bound = Bound::new(&plan, &[x.view().into(), y.view_mut().into(), REST[0], REST[1]], None).unwrap();
    assert_eq!(bound.copies, 1, "x lies as the plan reads it");
    for input in bound.inputs() {
        if let InputValue::TensorMut(bytes) = input {
            let row_major = HostTensor::from_f32(&[6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
            assert_eq!(bytes, row_major.bytes());
            bytes[4..8].copy_from_slice(&9.0f32.to_le_bytes());
        }
    }
    bound.write_back().unwrap();
    let expected = HostTensor::from_f32(&[6], &[1.0, 4.0, 9.0, 5.0, 3.0, 6.0]).unwrap();
    assert_eq!(y.bytes(), expected.bytes());
}
