//! The CUDA C++ of the kernels that `docs/kernels.md` shows: `tests/emit/CASE.txt` holds the functions and launches of a golden case.
//! `BLESS=1 cargo test` writes what they are now.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write;
use std::path::Path;

use douse_compiler::emit::{Emitted, FUNCTIONS_FOLLOW, emit};
use douse_compiler::{Options, lower};
use douse_program::target::{Launch, ProductOptions};
use douse_pt2::ExportedProgram;

const SERVICE: &str = "extern \"C\" __global__ void __launch_bounds__(256) service_";

const CASES: [&str; 8] = [
    "pointwise_chain",
    "row_softmax",
    "layer_norm_residual",
    "transpose_copy",
    "embedding_add",
    "scatter_last_wins",
    "scans",
    "matmul_prologue_epilogue",
];

fn emitted(case: &str) -> Emitted {
    emitted_for(case, ProductOptions::default())
}

fn emitted_for(case: &str, products: ProductOptions) -> Emitted {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/cases/{case}.pt2"));
    let program = ExportedProgram::open(&path).unwrap();
    let lowered = lower(&program, "forward", &Options::default()).unwrap();
    emit(&lowered.plan, "sm_90", products).unwrap()
}

fn launch(launch: &Launch) -> String {
    let [x, y, z] = &launch.grid;
    let mut text = format!("launch {} grid [{x}, {y}, {z}] block {:?}", launch.function, launch.block);
    for (name, taken) in
        [("scratch", launch.scratch), ("flag", launch.flag), ("guard", launch.guard), ("random", launch.random)]
    {
        if taken {
            text.push(' ');
            text.push_str(name);
        }
    }
    text
}

fn text(emitted: &Emitted) -> String {
    let mut text = String::new();
    for module in &emitted.modules {
        let functions = module.split_once(FUNCTIONS_FOLLOW).unwrap().1.trim_start();
        // Those that every program has are not the case's.
        text.push_str(functions.split(SERVICE).next().unwrap());
    }
    let library = emitted.library.iter().flat_map(|step| &step.launches).map(|l| &l.launch);
    emitted
        .kernels
        .iter()
        .flat_map(|kernel| &kernel.launches)
        .chain(library)
        .for_each(|l| writeln!(text, "{}", launch(l)).unwrap());
    text
}

#[test]
fn kernels_become_what_is_expected() {
    let bless = std::env::var_os("BLESS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emit");
    let mut wrong = Vec::new();
    for case in CASES {
        let (path, found) = (folder.join(format!("{case}.txt")), text(&emitted(case)));
        if bless {
            std::fs::write(&path, found).unwrap();
        } else if std::fs::read_to_string(&path).unwrap_or_default() != found {
            wrong.push(format!("{case}:\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "BLESS=1 accepts:\n{}", wrong.join("\n"));
}

#[test]
fn few_rows_by_columns_are_combined_in_parts_and_rows_of_all_columns_in_order() {
    let by_parts =
        |case: &str| emitted(case).modules.iter().map(|text| text.matches("typedef Bins<").count()).sum::<usize>();
    assert_eq!(by_parts("scatter_into_few"), 6);
    assert_eq!(by_parts("rows_by_data"), 0);
    let launches = emitted("scatter_into_few").kernels.into_iter().flat_map(|kernel| kernel.launches);
    let by_blocks = launches.filter(|launch| launch.function.ends_with("_parts")).collect::<Vec<_>>();
    assert!(!by_blocks.is_empty() && by_blocks.iter().all(|launch| launch.scratch && launch.shared > 0));
}

#[test]
fn long_rows_are_read_once_for_their_variance() {
    // One launch reads the parts of a row, and another combines what they have left: no second one reads them.
    let launches = emitted("long_variances").kernels.into_iter().flat_map(|kernel| kernel.launches);
    let parts: Vec<String> = launches.map(|launch| launch.function).filter(|name| name.contains("_part_")).collect();
    assert!(parts.len() > 8 && parts.iter().all(|name| name.ends_with("_part_0")), "{parts:?}");
    // As long as a call says, or in columns, nothing is shared by blocks, and read once all the same; rows in registers are summed twice.
    let moments = |case: &str| emitted(case).modules.iter().any(|text| text.contains("typedef Moments<"));
    assert!(moments("variances_of_any_length") && !moments("layer_norm_residual"));
}

#[test]
fn float32_is_rounded_to_tf32_where_that_is_allowed_and_nowhere_else() {
    let calls = |case: &str, tf32: bool| {
        let modules = emitted_for(case, ProductOptions { tf32, ..ProductOptions::default() }).modules;
        ["  tf32_product<", "  fma_product<"].map(|name| {
            let functions = modules.iter().map(|text| text.split_once(FUNCTIONS_FOLLOW).unwrap().1);
            functions.map(|text| text.matches(name).count()).sum::<usize>()
        })
    };
    assert_eq!((calls("tf32_products", true), calls("tf32_products", false)), ([4, 0], [0, 4]));
    assert_eq!(calls("tile_products", true), [0, 0]);
}

#[test]
fn the_same_plan_gives_the_same_text() {
    assert_eq!(emitted("scans"), emitted("scans"));
}
