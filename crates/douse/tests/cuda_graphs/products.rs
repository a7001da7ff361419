//! Products that cuBLASLt does where it is there, and the program's own kernels where not.

use douse::{DeviceTensor, Method, Products, Session, Value};

use super::case::{Case, bits};
use super::{Bench, after};

/// A case whose products are all large enough.
fn case() -> Option<Case> {
    Case::read_for("wide_products", Products::CublasLt)
}

fn by_library(method: &Method) -> Vec<bool> {
    method.products().unwrap().products.iter().map(|product| product.by_library).collect()
}

/// The outputs of all calls in a new session.
fn answers(case: &Case, method: &mut Method) -> Vec<String> {
    *method.session() = Session::with_seed(1);
    let calls = case.calls.iter().flat_map(|call| case.run(method, &mut call.inputs.clone()).unwrap());
    calls.map(|value| bits(&value)).collect()
}

#[test]
fn cublaslt_does_products_by_calls_and_by_graphs() {
    let Some(case) = case() else { return };
    let bench = Bench::new();
    let mut plain = bench.load(&case, None);
    let report = plain.products().unwrap();
    assert_eq!(report.missing, None);
    assert_eq!(report.products.iter().filter(|product| product.epilogue).count(), 3, "{report:?}");
    assert!(by_library(&plain).len() == 4 && by_library(&plain).iter().all(|by| *by), "{report:?}");
    case.check_all(&mut plain);
    let mut graphs = bench.load(&case, Some(after(1)));
    for _ in 0..3 {
        case.check_all(&mut graphs);
        assert_eq!(answers(&case, &mut graphs), answers(&case, &mut plain));
    }
    let report = graphs.cuda_graph_report().unwrap();
    assert_eq!((report.recordings, report.off), (1, None));
    drop((plain, graphs));
    bench.close();
}

#[test]
fn products_of_tensors_that_lie_elsewhere_in_every_call() {
    let Some(case) = case() else { return };
    let bench = Bench::new();
    let mut method = bench.load(&case, Some(after(1)));
    let mut plain = bench.load(&case, None);
    // Kept, so that each lies elsewhere.
    let mut kept = Vec::new();
    for number in [0, 0, 1, 0, 1, 1] {
        let host = &case.calls[number].inputs;
        let there = |value: &Value| match value {
            Value::Tensor(tensor) => Value::Device(DeviceTensor::from_host(&bench.device, &tensor.view()).unwrap()),
            other => other.clone(),
        };
        let mut inputs: Vec<Value> = host.iter().map(there).collect();
        let found = case.run(&mut method, &mut inputs).unwrap();
        let expected = case.run(&mut plain, &mut host.clone()).unwrap();
        assert_eq!(found.iter().map(bits).collect::<Vec<_>>(), expected.iter().map(bits).collect::<Vec<_>>());
        kept.push(inputs);
    }
    let report = method.cuda_graph_report().unwrap();
    assert!(report.recordings == 1 && report.patched_nodes > 0 && report.off.is_none(), "{report:?}");
    assert!(bench.fake.calls()["cuGraphExecChildGraphNodeSetParams"] > 0);
    drop((method, plain, kept));
    bench.close();
}

#[test]
fn own_kernels_do_products_where_cublaslt_does_not_start_or_has_no_algorithm() {
    let Some(case) = case() else { return };
    for (call, status) in [
        ("cublasLtCreate", 1),
        ("cublasLtMatmulAlgoGetHeuristic", 15),
        ("cublasLtMatmul", 13),
        ("cuEventElapsedTime", 999),
    ] {
        let bench = Bench::new();
        // Often enough for every product.
        let failures: Vec<String> = (1..40).map(|at| format!("fail={call}:{at}:{status}")).collect();
        bench.fake.configure(&failures.join(" "));
        for graph in [None, Some(after(1))] {
            let mut method = bench.load(&case, graph);
            let report = method.products().unwrap();
            assert_eq!(report.missing.is_some(), call == "cublasLtCreate", "{report:?}");
            assert_eq!(report.untried.len(), if call == "cuEventElapsedTime" { 4 } else { 0 }, "{report:?}");
            assert!(by_library(&method).iter().all(|by| !by), "{call}: {report:?}");
            (0..3).for_each(|_| case.check_all(&mut method));
            assert!(method.cuda_graph_report().is_none_or(|report| report.off.is_none()));
        }
        bench.close();
    }
}

#[test]
fn a_call_of_the_library_that_fails_leaves_its_answer_to_the_own_kernels() {
    let Some(case) = case() else { return };
    for call in
        ["cublasLtMatmul", "cuStreamBeginCapture_v2", "cuGraphAddChildGraphNode", "cuGraphExecChildGraphNodeSetParams"]
    {
        for at in [1, 2, 3, 7] {
            for graph in [None, Some(after(1))] {
                let bench = Bench::new();
                let mut method = bench.load(&case, graph);
                bench.fake.configure(&format!("fail={call}:{at}:13"));
                (0..3).for_each(|_| case.check_all(&mut method));
                drop(method);
                bench.close();
            }
        }
    }
}
