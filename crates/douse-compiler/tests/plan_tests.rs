//! The plans of small graphs: which nodes share a kernel, and what has to come before what.

#![allow(clippy::unwrap_used)]

use douse_compiler::emit::emit;
use douse_compiler::plan::plan;
use douse_ir::{Module, verified};
use douse_program::check::check;
use douse_program::plan::{Plan, Step};
use douse_program::target::ProductOptions;

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

/// The steps, a word each; those that stand together in parentheses.
fn words(steps: &[Step]) -> String {
    let word = |step: &Step| match step {
        Step::Kernel { .. } => "kernel".to_owned(),
        Step::Library(_) => "library".to_owned(),
        Step::Fused { .. } => "fused".to_owned(),
        Step::Together(steps) => format!("({})", words(steps)),
        _ => "other".to_owned(),
    };
    steps.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The chain of a product's result ends where a reduction reads it; what is added is there before the product.
#[test]
fn what_is_computed_from_a_product_point_by_point_is_its_epilogue() {
    let plan = planned(
        r#"method "m"
input 0 "x" bfloat16[6, 4] strides [4, 1]
input 1 "w" bfloat16[4, 5] strides [5, 1]
input 2 "b" float32[5] strides [1]
input 3 "r" bfloat16[2, 3, 5] strides [15, 5, 1]
body
  %0: bfloat16[6, 4] = input 0
  %1: bfloat16[4, 5] = input 1
  %2: float32[5] = input 2
  %3: bfloat16[2, 3, 5] = input 3
  %4: float32[6, 5] = matmul %0 %1
  %5: float32[6, 5] = move %2 map [i1]
  %6: float32[6, 5] = add %4 %5
  %7: bfloat16[6, 5] = cast %6
  %8: bfloat16[2, 3, 5] = move %7 map [i1 + 3*i0, i2]
  %9: bfloat16[2, 3, 5] = add %8 %3
  %10: bfloat16[2, 3] = reduce %9 by amax dims [2]
end
output "y" tensor %10 bfloat16 strides [3, 1]
"#,
    );
    assert_eq!(words(&plan.steps), "fused kernel");
    let Step::Fused { kernel, .. } = &plan.steps[0] else { unreachable!() };
    let text = plan.kernels[*kernel as usize].to_string();
    // In the dimensions of the product, not of what is computed from it.
    assert!(text.contains("outer [6, 5]") && text.contains("a2[5*i0 + i1]"), "{text}");
    assert_eq!(plan.kernels[1].comment, ["apart from a kernel: one of them is a product's epilogue"]);
}

/// The next product reads the rows of the value before the reshape where they are.
#[test]
fn a_product_looks_through_the_reshape_of_an_epilogue() {
    let plan = planned(
        r#"method "m"
input 0 "x" bfloat16[6, 4] strides [4, 1]
input 1 "w" bfloat16[4, 5] strides [5, 1]
input 2 "v" bfloat16[5, 4] strides [4, 1]
body
  %0: bfloat16[6, 4] = input 0
  %1: bfloat16[4, 5] = input 1
  %2: bfloat16[5, 4] = input 2
  %3: float32[6, 5] = matmul %0 %1
  %4: float32[2, 3, 5] = move %3 map [i1 + 3*i0, i2]
  %5: float32[2, 3, 5] = exp %4
  %6: bfloat16[2, 3, 5] = cast %5
  %7: bfloat16[6, 5] = move %6 map [div(i0, 3), mod(i0, 3), i1]
  %8: float32[6, 4] = matmul %7 %2
end
output "y" tensor %8 float32 strides [4, 1]
"#,
    );
    assert_eq!(words(&plan.steps), "fused library");
}

/// A product of rows in another order: they are stored in that order, instead of copied.
#[test]
fn a_value_lies_as_the_product_that_reads_it_numbers_its_rows() {
    let plan = planned(
        r#"method "m"
input 0 "x" float32[2, 3, 4] strides [12, 4, 1]
input 1 "w" float32[4, 4] strides [4, 1]
body
  %0: float32[2, 3, 4] = input 0
  %1: float32[4, 4] = input 1
  %2: float32[2, 3, 4] = exp %0
  %3: float32[6, 4] = move %2 map [mod(i0, 2), div(i0, 2), i1]
  %4: float32[6, 4] = matmul %3 %1
end
output "y" tensor %4 float32 strides [4, 1]
"#,
    );
    assert_eq!(words(&plan.steps), "kernel library");
    let text = plan.kernels[0].to_string();
    assert!(text.contains("a1[4*i0 + 8*i1 + i2]") || text.contains("a1[4*i0 + i2 + 8*i1]"), "{text}");
}

/// What several kernels read in float32 is stored in the type that it was rounded to.
#[test]
fn a_wider_form_of_a_value_is_not_stored() {
    let plan = planned(
        r#"method "m"
input 0 "x" bfloat16[4, 8] strides [8, 1]
body
  %0: bfloat16[4, 8] = input 0
  %1: bfloat16[4, 8] = exp %0
  %2: float32[4, 8] = cast %1
  %3: float32[8] = reduce %2 by sum dims [0]
  %4: float32[4] = reduce %2 by sum dims [1]
end
output "y" tensor %3 float32 strides [1]
output "z" tensor %4 float32 strides [1]
"#,
    );
    let wide = plan.buffers.iter().filter(|b| b.elements.is_int(32) && b.dtype == douse_core::DType::F32);
    assert_eq!(wide.count(), 0);
}

/// Rows in another order: together, a thread would take a column, and not its neighbours.
#[test]
fn many_points_in_two_orders_are_two_kernels() {
    let flipped = |rows: usize| {
        planned(&format!(
            r#"method "m"
input 0 "x" float32[{rows}, 128] strides [128, 1]
body
  %0: float32[{rows}, 128] = input 0
  %1: float32[{rows}, 128] = exp %0
  %2: float32[{rows}, 128] = move %1 map [{last} - i0, i1]
end
output "y" tensor %1 float32 strides [128, 1]
output "z" tensor %2 float32 strides [128, 1]
"#,
            last = rows - 1
        ))
    };
    assert_eq!(flipped(8).kernels.len(), 1);
    let kernels = flipped(1024).kernels;
    assert_eq!(kernels.len(), 2);
    assert!(kernels[1].comment.iter().any(|line| line.contains("its loops are others")), "{:?}", kernels[1].comment);
}

#[test]
fn a_product_that_something_else_reads_has_no_epilogue() {
    let plan = planned(
        r#"method "m"
input 0 "x" float32[6, 4] strides [4, 1]
input 1 "w" float32[4, 6] strides [6, 1]
body
  %0: float32[6, 4] = input 0
  %1: float32[4, 6] = input 1
  %2: float32[6, 6] = matmul %0 %1
  %3: float32[6, 6] = exp %2
  %4: float32[6, 6] = move %2 map [i1, i0]
  %5: float32[6, 6] = mul %3 %4
end
output "y" tensor %5 float32 strides [6, 1]
"#,
    );
    assert_eq!(words(&plan.steps), "library kernel");
}

/// A product of fewer points than what is computed with it has no epilogue: the points beyond it would never be computed.
#[test]
fn a_product_that_only_part_of_a_kernel_reads_has_no_epilogue() {
    let plan = planned(
        r#"method "m"
input 0 "x" float32[3, 4] strides [4, 1]
input 1 "w" float32[4, 4] strides [4, 1]
body
  %0: float32[3, 4] = input 0
  %1: float32[4, 4] = input 1
  %2: float32[1, 4] = move %0 map [i0, i1]
  %3: float32[1, 4] = matmul %2 %1
  %4: float32[3, 4] = move %3 map [i0, i1] guard (i0 < 1)
  %5: float32[3, 4] = exp %0
  %6: float32[3, 4] = add %4 %5
end
output "y" tensor %6 float32 strides [4, 1]
"#,
    );
    assert_eq!(words(&plan.steps), "library kernel");
}

/// Each new element of the state would be seen by the rest of the product.
#[test]
fn an_epilogue_writes_nothing_that_its_product_reads() {
    let plan = planned(
        r#"method "m"
input 0 "x" float32[4, 4] strides [4, 1]
input 1 "w" float32[4, 4] strides [4, 1]
body
  %0: float32[4, 4] = input 0
  %1: float32[4, 4] = input 1
  %2: float32[4, 4] = matmul %0 %1
  %3: float32[4, 4] = exp %2
end
write input 0 %3
"#,
    );
    // The kernel writes a buffer of its own, which is copied when the product is done.
    assert_eq!(words(&plan.steps), "fused other");
}

#[test]
fn products_of_one_matrix_stand_together_unless_one_needs_another() {
    let text = |left: &str| {
        format!(
            r#"method "m"
input 0 "x" float32[4, 4] strides [4, 1]
input 1 "v" float32[4, 4] strides [4, 1]
input 2 "w" float32[4, 4] strides [4, 1]
body
  %0: float32[4, 4] = input 0
  %1: float32[4, 4] = input 1
  %2: float32[4, 4] = input 2
  %3: float32[4, 4] = matmul %0 %1
  %4: float32[4, 4] = exp %3
  %5: float32[4, 4] = matmul {left} %2
end
output "y" tensor %4 float32 strides [4, 1]
output "z" tensor %5 float32 strides [4, 1]
"#
        )
    };
    assert_eq!(words(&planned(&text("%0")).steps), "(fused library)");
    assert_eq!(words(&planned(&text("%4")).steps), "fused library");
}

/// What the second chain needs of the steps between goes before the pair; a product that needs the first stays behind it.
#[test]
fn equal_products_of_two_chains_stand_together() {
    let text = |second: &str| {
        let inputs = (0..4).map(|n| format!("input {n} \"x{n}\" float32[4, 4] strides [4, 1]\n")).collect::<String>();
        let nodes = (0..4).map(|n| format!("  %{n}: float32[4, 4] = input {n}\n")).collect::<String>();
        format!(
            r#"method "m"
{inputs}body
{nodes}  %4: float32[4, 4] = matmul %0 %2
  %5: float32[4] = reduce %4 by sum dims [1]
  %6: float32[4, 4] = move %5 map [i0]
  %7: float32[4, 4] = matmul %6 %3
  %8: float32[4, 4] = matmul {second} %2
  %9: float32[4] = reduce %8 by sum dims [1]
  %10: float32[4, 4] = move %9 map [i0]
  %11: float32[4, 4] = matmul %10 %3
end
output "y" tensor %7 float32 strides [4, 1]
output "z" tensor %11 float32 strides [4, 1]
"#
        )
    };
    assert_eq!(words(&planned(&text("%1")).steps), "(library library) kernel kernel (library library)");
    assert_eq!(words(&planned(&text("%7")).steps), "library kernel library library kernel library");
}

/// They run in one function, whose blocks are at one of them at a time.
#[test]
fn products_that_stand_together_share_their_shared_memory() {
    let (mut nodes, mut inputs, mut outputs) = (String::new(), String::new(), String::new());
    for n in 1..5 {
        inputs += &format!("input {n} \"w{n}\" float64[64, 6{n}] strides [6{n}, 1]\n");
        nodes += &format!("  %{n}: float64[64, 6{n}] = input {n}\n");
        outputs += &format!("output \"y{n}\" tensor %{} float64 strides [6{n}, 1]\n", n + 4);
    }
    for n in 1..5 {
        nodes += &format!("  %{}: float64[100, 6{n}] = matmul %0 %{n}\n", n + 4);
    }
    let text = format!(
        "method \"m\"\ninput 0 \"x\" float64[100, 64] strides [64, 1]\n{inputs}body\n  \
         %0: float64[100, 64] = input 0\n{nodes}end\n{outputs}"
    );
    let plan = planned(&text);
    assert_eq!(words(&plan.steps), "(library library library library)");
    let emitted = emit(&plan, "sm_90", ProductOptions::default()).unwrap();
    let launches: Vec<_> = emitted.library.iter().flat_map(|step| &step.launches).collect();
    // Two stages of 16 x 64 elements of each side; rows end in four more.
    assert_eq!(launches.iter().map(|l| l.launch.shared).collect::<Vec<_>>(), [4 * 16 * 68 * 8]);
    let product = emitted.modules[0].split_once("void tile_product(").unwrap().1;
    let product = product.split_once("\n}").unwrap().0;
    assert!(product.contains("DYNAMIC_SHARED") && !product.contains("__shared__"), "{product}");
}
