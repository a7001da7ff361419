//! Reductions of segments of rows.

use douse_core::pointwise::Combine;
use douse_core::sym::Expr;
use douse_core::{DType, Error, Result};
use douse_program::failure::Failure;
use douse_program::library::View;
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer};
use super::one;
use crate::emit::names;

const TEMPLATES: &[&str] = &[include_str!("../cuda/segment.cuh")];
const THREADS: i64 = 256;
/// Elements of a row from which neighbouring threads take neighbouring elements; with fewer a warp shares the rows of an element.
const WIDE: i64 = 16;

/// What is done with the rows of a segment, as in [`Library::SegmentReduce`](douse_program::library::Library::SegmentReduce).
pub(super) struct Reduction {
    pub op: Combine,
    pub initial: Option<f64>,
    pub mean: bool,
}

pub(super) fn emit(
    writer: &mut Writer,
    src: &View,
    offsets: &View,
    out: &View,
    reduction: &Reduction,
) -> Result<LibraryLaunches> {
    let Reduction { op, initial, mean } = *reduction;
    let dtype = writer.dtype(src)?;
    let supported = matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
        && matches!(op, Combine::Sum | Combine::Prod | Combine::Min | Combine::Max);
    if !supported {
        return Err(Error::not_supported(format!("segment_reduce of {dtype} with {op} cannot be lowered for a GPU")));
    }
    let register = writer.register(src)?;
    let Some(axis) = offsets.sizes.len().checked_sub(1).filter(|axis| *axis < src.sizes.len()) else {
        return Err(Error::internal("a segment reduction of too few dimensions"));
    };
    let (rows, segments) = (&src.sizes[axis], &offsets.sizes[axis] - &Expr::int(1));
    let wide = Expr::product(&src.sizes[axis + 1..]).as_int().is_none_or(|inner| inner >= WIDE);
    let (lanes, per_block) = if wide { ("ThreadLanes", THREADS) } else { ("WarpLanes", THREADS / 32) };
    let elements = Expr::product(&out.sizes);
    let total = Expr::product(&offsets.sizes[..axis]);
    let checked = &total * &segments;
    let lead_of = |at: &[String]| at.iter().take(axis).cloned().collect::<Vec<_>>();
    let offset = |at: &[String], by: &str| {
        let mut place = lead_of(at);
        place.push(format!("(at{axis}{by})"));
        format!("(int64)load(offsets + {})", writer.place(offsets, &place))
    };
    // All of the segments, for the check; then one element of the result.
    let mut segment_sizes = offsets.sizes[..axis].to_vec();
    segment_sizes.push(segments);
    let (split_segment, at_segment) = writer.split("s", "at", &segment_sizes);
    let split_segment = split_segment.replace("\n  ", " ").trim().to_owned();
    let (split, at) = writer.split("rest", "at", &out.sizes);
    let mut row = at.clone();
    if let Some(row) = row.get_mut(axis) {
        *row = "i".to_owned();
    }
    let class = names::combine(op, dtype, false)?;
    let body = format!(
        "  if (blockIdx.x == 0)\n    check_segments<{THREADS}, {}>(flag, {}, {rows},\n      \
         [=](int64 s) {{ {split_segment} return {}; }},\n      [=](int64 s) {{ {split_segment} return {}; }});\n  \
         int64 rest = blockIdx.x * {per_block}ll + threadIdx.x / {};\n  if (rest >= {}) return;\n{split}  \
         const {register} x = segment<{class}, {lanes}, {mean}, {}>({}, {}, {rows}, ({register}){},\n    \
         [=](int64 i) {{ return load(src + {}); }});\n  if ({lanes}::lane() == 0) store(out + {}, x);\n",
        Failure::SegmentOffsets.code(),
        writer.size(&checked),
        offset(&at_segment, ""),
        offset(&at_segment, " + 1"),
        THREADS / per_block,
        writer.size(&elements),
        initial.is_some(),
        offset(&at, ""),
        offset(&at, " + 1"),
        names::float64(initial.unwrap_or(0.0)),
        writer.place(src, &row),
        writer.place(out, &at),
        rows = writer.size(rows),
    );
    let launch = writer.add_raising(Draft {
        name: "segment_reduce",
        templates: TEMPLATES,
        arguments: vec![Argument::read("src", src), Argument::read("offsets", offsets), Argument::written("out", out)],
        sizes: vec![],
        body,
        // One at least, which checks the offsets.
        grid: [elements.ceil_div(&Expr::int(per_block)).maximum(&Expr::int(1)), Expr::int(1), Expr::int(1)],
        threads: THREADS as u32,
        shared: 0,
        scratch: false,
        ..Draft::default()
    })?;
    Ok(one(launch))
}
