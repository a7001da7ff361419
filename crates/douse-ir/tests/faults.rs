//! The verifier: each fault is found, with its place, and all of them at once.

#![allow(clippy::panic)]

use douse_ir::{Module, verify};

const HEAD: &str = "method \"m\"
symbol s0 \"s0\" min 0 size input 0 dim 0 scale 1 offset 0
symbol s1 \"u0\" step
input 0 \"x\" float32[s0, 4] strides [4, 1]
state 0 \"k\" float32[2] zeros 8
constant 0 \"c\" zeros 4
message 0 \"no\"
body
  %0: float32[s0, 4] = input 0
  %1: bool[] = full true
";

fn faults(body: &str, tail: &str) -> Vec<String> {
    let text = format!("{HEAD}{body}\nend\n{tail}");
    let module: Module = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    match verify(&module) {
        Ok(()) => Vec::new(),
        Err(faults) => faults.iter().map(|f| f.to_string()).collect(),
    }
}

#[test]
fn each_fault_has_its_sentence() {
    for (body, wanted) in [
        ("%2: float32[s0, 4] = neg %3", "%2: %3 does not exist"),
        ("%2: float32[s0, 4] = neg %3\n%3: float32[s0, 4] = neg %0", "%2: %3 is used before it is defined"),
        ("%1: float32[s0, 4] = neg %0", "%1: %1 is defined twice"),
        ("%2: float32[s0] = neg %0", "%2: %2 is float32[s0], its rule gives float32[s0, 4]"),
        ("%2: float16[s0, 4] = neg %0", "%2: %2 is float16[s0, 4], its rule gives float32[s0, 4]"),
        ("%2: bool[] = neg %1", "%2: neg of bool"),
        ("%2: bool[] = logical_not %1 %1", "%2: 2 operands"),
        ("%2: complex64[] = full 1.0", "%2: %2 is complex64"),
        ("%2: int64[] = full 1.0", "%2: 1.0 in int64"),
        ("%2: float32[4] = move %0 map [0]", "%2: a map of 1 expressions for rank 2"),
        ("%2: float32[4] = move %0 map [0, i1]", "%2: the map i1 mentions i1, which does not exist there"),
        ("%2: float32[4] = move %0 map [v0, i0]", "%2: the map v0 mentions v0, which does not exist there"),
        ("%2: float32[4] = move %0 map [s1, i0]", "%2: the map s1 mentions s1, which is not known there"),
        ("%2: float32[4] = move %0 map [s9, i0]", "%2: the map s9 mentions s9, which is not known there"),
        (
            "%2: float32[4] = move %0 map [0, i0] guard (i1 > 0) fill 0.0",
            "%2: the guard i1 > 0 mentions i1, which does not exist there",
        ),
        ("%2: float32[4] = move %0 %1 map [v0, i0]", "%2: index %1 is bool[], not int64[4]"),
        ("%2: float32[s1] = full 1.0", "%2: the shape s1 mentions s1, which is not known there"),
        ("%2: float32[i0] = full 1.0", "%2: the shape [i0] mentions more than sizes"),
        ("%2: float32[2] = reduce %0 by sum dims [1, 0]", "%2: dimensions [1, 0] of rank 2"),
        ("%2: float32[4] = matmul %0 %0", "%2: %2 is float32[4], its rule gives float32[s0, 4]"),
        ("%2: float32[2] = input 0", "%2: %2 is float32[2], its rule gives float32[s0, 4]"),
        ("%2: float32[2] = input 7", "%2: there is no input 7"),
        ("%2: float32[2] = constant 0", "%2: constant 0 has 4 bytes, which is not float32[2]"),
        ("%2: int64[] = random draw 0 word 0", "%2: word 0 of draw 0 of 0"),
        ("assert %1 message 3", "node 2: message 3 of 1"),
        ("item %1 defines s0", "node 2: symbol s0 is defined twice"),
        ("item %1 defines s7", "node 2: symbol s7 does not exist"),
        ("require (s1 > 0) message 0", "node 2: the condition s1 > 0 mentions s1, which is not known there"),
        (
            "%2: float32[2] = if %1\nthen\n%3: float32[2] = full 0.0\nyield %3\nelse\nyield %3",
            "%2: %3 is used outside the block that defines it",
        ),
        (
            "%2: float32[2] = if %1\nthen\nyield %0\nelse\n%3: float32[2] = full 0.0\nyield %3",
            "%2: the first branch gives other values than the node",
        ),
        (
            "%2: bool[] = while %1\ntest\nyield %1\nbody %3: bool[]\nyield %3",
            "%2: the test takes other values than the loop carries",
        ),
    ] {
        let found = faults(body, "");
        assert!(found.iter().any(|f| f == wanted), "{body}\nwanted {wanted}\nfound {found:#?}");
    }
}

#[test]
fn outputs_and_writes_fit_their_declarations() {
    for (tail, wanted) in [
        ("output \"y\" tensor %9 float32 strides [1]", "%9 does not exist"),
        ("output \"y\" tensor %0 float16 strides [4, 1]", "output y of float16, rank 2, is float32[s0, 4]"),
        ("output \"y\" tensor %0 complex64 strides [4, 1]", "output y of complex64, rank 3, is float32[s0, 4]"),
        ("output \"y\" number %0", "output y, a number, has shape [s0, 4]"),
        ("output \"y\" int (s1)", "an output s1 mentions s1, which is not known there"),
        ("write state 3 %0", "a write to State(3), which does not exist"),
        ("write state 0 %0", "a write of float32[s0, 4] to State(0), float32[2]"),
    ] {
        assert_eq!(faults("", tail), [wanted]);
    }
    assert_eq!(faults("", "output \"y\" tensor %0 float32 strides [1, s0]\nwrite input 0 %0"), [""; 0]);
}

#[test]
fn all_faults_are_reported_in_the_order_of_the_graph() {
    let found = faults("%2: bool[] = neg %1\n%3: float32[s0] = neg %0\nassert %1 message 3", "write state 1 %1");
    assert_eq!(
        found,
        [
            "%2: neg of bool",
            "%3: %3 is float32[s0], its rule gives float32[s0, 4]",
            "node 4: message 3 of 1",
            "a write to State(1), which does not exist",
        ]
    );
}
