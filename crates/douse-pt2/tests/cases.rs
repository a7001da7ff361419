//! Programs that PyTorch saved.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::case;
use douse_core::DType;
use douse_pt2::{Argument, ConstantValue, ExampleInput, ExportedProgram, InputSpec, OutputSpec, Range, Sym};

fn open(name: &str) -> ExportedProgram {
    ExportedProgram::open(&case(name)).unwrap()
}

fn outputs(program: &ExportedProgram) -> Vec<&str> {
    let mut labels = Vec::new();
    for spec in program.user_outputs() {
        if let OutputSpec::User { label, .. } = spec {
            labels.push(label.as_str());
        }
    }
    labels
}

#[test]
fn older_archive_with_tied_weights() {
    let program = open("tied");
    assert_eq!(program.schema_version, (8, 2));
    let [embedding, output, mix] = ["emb.weight", "out.weight", "mix"].map(|name| &program.tensors[name]);
    assert_eq!(embedding.storage().id, output.storage().id);
    assert_ne!(embedding.storage().id, mix.storage().id);
    assert_eq!((mix.dtype(), mix.sizes()), (DType::BF16, &[4, 4][..]));
    let buffer = InputSpec::Buffer { arg: "b_mix".into(), fqn: "mix".into(), persistent: true };
    assert_eq!(program.input_specs[2], buffer);
    assert_eq!(
        program.input_specs[3],
        InputSpec::User { label: "tokens".into(), arg: Argument::Tensor("tokens".into()) }
    );
    let Some([ExampleInput::Tensor(tokens)]) = program.example_inputs.as_deref() else { panic!("no example") };
    assert_eq!((tokens.dtype(), tokens.sizes()), (DType::I64, &[2, 3][..]));
}

#[test]
fn subgraphs_and_symbolic_sizes() {
    let program = open("cond_on_size");
    assert_eq!(program.ranges["s77"], Range { min: Some(2), max: Some(8) });
    assert_eq!(program.graph.tensor_values["x"].sizes[0].to_string(), "s77");
    let cond = program.graph.nodes.iter().find(|node| node.target == "torch.ops.higher_order.cond").unwrap();
    assert_eq!(cond.inputs[0].arg, Argument::SymBool(Sym::Name("gt".into())));
    let Argument::Graph(name, graph) = &cond.inputs[1].arg else { panic!("no subgraph") };
    assert_eq!((name.as_str(), graph.outputs.as_slice()), ("true_graph_0", &[Argument::Tensor("cumsum".into())][..]));
    assert_eq!(program.graph.sym_bool_values["gt"].to_string(), "StrictGreaterThan(s77, 4)");
}

#[test]
fn numbers_read_from_data() {
    let program = open("item_mixed");
    assert_eq!(program.graph.sym_float_values["item_1"].to_string(), "zuf0");
    assert_eq!(
        program.graph.sym_int_values["sym_ite"].to_string(),
        "Piecewise(ExprCondPair(1, Equality(u1, 1)), ExprCondPair(0, true))"
    );
    assert_eq!(program.ranges["u1"], Range { min: Some(0), max: Some(1) });
    assert_eq!(program.ranges["u0"], Range::default());
}

#[test]
fn constant_inputs() {
    let program = open("refuse_other_constants");
    let values: Vec<_> = program
        .user_inputs()
        .filter_map(|spec| match spec {
            InputSpec::Constant { label, value, .. } => Some((label.as_str(), value.clone())),
            _ => None,
        })
        .collect();
    let expected = [
        ("n", ConstantValue::Int(2)),
        ("scale", ConstantValue::Float(1.5)),
        ("double", ConstantValue::Bool(true)),
        ("how", ConstantValue::Str("sum".into())),
        ("bias", ConstantValue::None),
    ];
    assert_eq!(values, expected);
    assert_eq!(outputs(&program), ["output"]);
    assert_eq!(program.example_inputs.unwrap().len(), 6);
}

#[test]
fn nested_outputs() {
    let program = open("nested_outputs");
    assert_eq!(outputs(&program), ["b[0]", "b[1][0]", "b[1][1]", "a.view", "a.same", "a.none", "c[0]", "c[1]"]);
    let unbind = program.graph.nodes.iter().find(|node| node.target == "torch.ops.aten.unbind.int").unwrap();
    assert_eq!(unbind.outputs, [Argument::Tensors(vec!["getitem".into(), "getitem_1".into()])]);
}
