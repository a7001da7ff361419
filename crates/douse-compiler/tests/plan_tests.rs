//! The plans of small graphs: which nodes share a kernel, and what has to come before what.

#![allow(clippy::unwrap_used)]

use douse_compiler::plan::plan;
use douse_ir::{Module, verified};
use douse_program::check::check;
use douse_program::plan::{Plan, Step};

fn planned(text: &str) -> Plan {
    let module: Module = text.parse().unwrap();
    verified(&module, "the test's own graph").unwrap();
    let plan = plan(&module, true, |bytes| format!("{} bytes", bytes.len())).unwrap().plan;
    check(&plan).unwrap();
    plan
}

#[test]
fn the_softmax_of_an_input_is_one_kernel() {
    let plan = planned(
        r#"method "m"
input 0 "x" float32[4, 8] strides [8, 1]
body
  %0: float32[4, 8] = input 0
  %1: float32[4] = reduce %0 by amax dims [1]
  %2: float32[4, 8] = move %1 map [i0]
  %3: float32[4, 8] = sub %0 %2
  %4: float32[4, 8] = exp %3
  %5: float32[4] = reduce %4 by sum dims [1]
  %6: float32[4, 8] = move %5 map [i0]
  %7: float32[4, 8] = div %4 %6
end
output "y" tensor %7 float32 strides [8, 1]
"#,
    );
    assert_eq!(plan.kernels.len(), 1);
}

/// The sum could join the kernel that it reads from, were it not for the number.
#[test]
fn what_mentions_a_number_read_from_data_comes_after_the_read() {
    let plan = planned(
        r#"method "m"
symbol s0 "u0" step
input 0 "x" float32[8] strides [1]
input 1 "n" int64[] strides []
message 0 "too small"
body
  %0: float32[8] = input 0
  %1: int64[] = input 1
  %2: float32[8] = exp %0
  item %1 defines s0
  require (s0 > 0) message 0
  %3: int64[8] = iota (s0)
  %4: float32[8] = cast %3
  %5: float32[8] = mul %2 %4
  %6: float32[] = reduce %5 by sum dims [0]
end
output "y" tensor %2 float32 strides [1]
output "z" tensor %6 float32 strides []
"#,
    );
    let kinds: Vec<&str> = plan
        .steps
        .iter()
        .map(|step| match step {
            Step::Kernel { .. } => "kernel",
            Step::Read { .. } => "read",
            Step::Require { .. } => "require",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["kernel", "read", "require", "kernel"]);
}

/// What is read where the condition does not hold would lie outside of the input.
#[test]
fn conditions_on_inputs_are_checked_before_anything_runs() {
    let plan = planned(
        r#"method "m"
symbol s0 "s0" min 0 size input 0 dim 0 scale 1 offset 0
input 0 "x" float32[s0] strides [1]
message 0 "too short"
body
  %0: float32[s0] = input 0
  %1: float32[s0] = exp %0
  require (s0 > 2) message 0
  %2: float32[] = move %1 map [2]
  %3: float32[] = sqrt %2
end
output "y" tensor %1 float32 strides [1]
output "z" tensor %3 float32 strides []
"#,
    );
    assert!(matches!(plan.steps.first(), Some(Step::Require { .. })));
}
