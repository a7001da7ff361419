//! The text form: what is printed parses back to the same module, and no text makes the parser panic.

#![allow(clippy::panic)]

use douse_core::DType;
use douse_core::bytes::Bytes;
use douse_core::pointwise::{Binary, Unary};
use douse_core::sym::Expr;
use douse_ir::{Builder, Constant, Module, Op, Origin, OriginId, verify};

const EVERY: &str = include_str!("every_operation.txt");

fn round_trip(module: &Module) -> Module {
    let text = module.to_string();
    let back: Module = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(back.to_string(), text);
    assert_eq!(back.graph.values, module.graph.values);
    assert_eq!(back.graph.nodes, module.graph.nodes);
    assert_eq!(back.body, module.body);
    back
}

#[test]
fn every_operation_survives_a_round_trip() {
    let module: Module = EVERY.parse().unwrap();
    let text = module.to_string();
    assert_eq!(text.lines().collect::<Vec<_>>(), EVERY.lines().collect::<Vec<_>>());
    assert_eq!(verify(&module), Ok(()));
    round_trip(&module);
    let names: std::collections::BTreeSet<&str> = module.graph.nodes.iter().map(|n| n.op.name()).collect();
    // All of `Op` but its two kinds of pointwise operations.
    let others = names.iter().filter(|n| Unary::from_name(n).is_none() && Binary::from_name(n).is_none()).count();
    assert_eq!(others, 33, "an operation is missing from the text: {names:?}");
}

#[test]
fn every_pointwise_operation_survives_a_round_trip() {
    let mut b = Builder::new(Module::default());
    for dtype in [DType::F32, DType::I32, DType::Bool] {
        let x = b.full(dtype, vec![Expr::int(2)], douse_core::Scalar::Int(1));
        for op in Unary::ALL.iter().filter(|op| op.takes().accepts(dtype)) {
            b.unary(*op, x).unwrap();
        }
        for op in Binary::ALL.iter().filter(|op| op.takes().accepts(dtype)) {
            b.binary(*op, x, x).unwrap();
        }
    }
    let module = b.finish();
    assert_eq!(verify(&module), Ok(()));
    round_trip(&module);
}

#[test]
fn a_node_names_its_place_in_the_program() {
    let mut module = Module::default();
    module.origins.push(Origin {
        node: "add_3".into(),
        target: "aten.add.Tensor".into(),
        line: Some("policy.py:12: x = x + 1".into()),
    });
    let mut b = Builder::new(module);
    b.origin = OriginId(0);
    b.full(DType::F32, vec![], douse_core::Scalar::Float(1.0));
    let text = b.finish().to_string();
    assert!(text.contains("  %0: float32[] = full 1.0  // add_3 policy.py:12: x = x + 1\n"), "{text}");
    text.parse::<Module>().unwrap();
}

#[test]
fn large_data_is_named_by_its_hash_and_not_read_back() {
    let mut module = Module::default();
    module.constants.push(Constant { name: "w".into(), bytes: Bytes::from(vec![1; 1000]) });
    let text = module.to_string();
    assert!(text.contains("constant 0 \"w\" 1000 bytes hash "), "{text}");
    let error = text.parse::<Module>().unwrap_err();
    assert_eq!(error.message, "graph text, line 2, column 16: the data is not in the text");
}

#[test]
fn faults_of_a_text_are_named_with_their_place() {
    let with = |line: &str| format!("method \"m\"\nbody\n  {line}\nend\n");
    for (text, wanted) in [
        (String::new(), "graph text: it ends where 'method' was expected"),
        ("method m".into(), "graph text, line 1, column 8: expected '\"'"),
        (with("%0: float31[] = full 1.0"), "graph text, line 3, column 14: 'float31' is not a dtype"),
        (with("%0: float32[] = frob"), "graph text, line 3, column 23: 'frob' is not an operation"),
        (with("%0: float32[] = full 1.0 2"), "graph text, line 3, column 28: expected the end of the line"),
        (with("%1048576: bool[] = full true"), "graph text, line 3, column 19: a value's number is not below 1048576"),
        (with("%0: bool[] = if %1"), "graph text, line 4, column 1: expected 'then'"),
    ] {
        assert_eq!(text.parse::<Module>().unwrap_err().message, wanted);
    }
    let deep = format!("method \"m\"\nbody\n{}", "if %0\nthen\n".repeat(100_000));
    assert!(deep.parse::<Module>().unwrap_err().message.ends_with("nested too deeply"));
}

/// Texts with bytes cut, doubled, swapped and replaced: an error or a module that prints, verifies or not, and parses again.
#[test]
fn damaged_texts_never_panic() {
    let mut state = 7u64;
    let mut next = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as usize) % n
    };
    let pool = b"%()[],:=\"\\ -0123456789sivxabedn\n";
    let mut accepted = 0;
    for _ in 0..4000 {
        let mut bytes = EVERY.as_bytes().to_vec();
        for _ in 0..=next(4) {
            let (at, other) = (next(bytes.len()), next(bytes.len()));
            match next(5) {
                0 => drop(bytes.drain(at.min(other)..(at.min(other) + next(20)).min(at.max(other)))),
                1 => bytes[at] = pool[next(pool.len())],
                2 => bytes.insert(at, pool[next(pool.len())]),
                3 => bytes.swap(at, other),
                _ => {
                    let piece = bytes[at..(at + next(40)).min(bytes.len())].to_vec();
                    bytes.splice(other..other, piece);
                }
            }
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if let Ok(module) = text.parse::<Module>() {
            accepted += 1;
            let _ = verify(&module);
            let again: Module = module.to_string().parse().unwrap();
            assert_eq!(again.to_string(), module.to_string());
        }
    }
    assert!(accepted > 100, "the damage is so great that nothing is tested: {accepted}");
}

#[test]
fn names_of_operations_are_not_those_of_pointwise_ones() {
    let module: Module = EVERY.parse().unwrap();
    for node in &module.graph.nodes {
        if !matches!(node.op, Op::Unary(_) | Op::Binary(_)) {
            let name = node.op.name();
            assert!(Unary::from_name(name).is_none() && Binary::from_name(name).is_none(), "{name}");
        }
    }
}
