//! Attention over packed sequences.

use douse_core::sym::Expr;
use douse_core::{DType, Error, Result};
use douse_program::failure::Failure;
use douse_program::library::{VarlenAttention, View};
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer, nth_last};
use super::one;
use crate::emit::names;

const TEMPLATES: &[&str] = &[include_str!("../cuda/operand.cuh"), include_str!("../cuda/packed.cuh")];

/// Query rows of a block, a warp each.
const ROWS: i64 = 4;
const THREADS: u32 = 128;

pub(super) fn emit(writer: &mut Writer, attention: &VarlenAttention) -> Result<LibraryLaunches> {
    let VarlenAttention { query, key, value, cu_seq_q, cu_seq_k, out, scale, window } = attention;
    let dtype = writer.dtype(query)?;
    if !matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64) {
        return Err(Error::not_supported(format!("varlen_attn of {dtype} cannot be lowered for a GPU")));
    }
    if cu_seq_q.sizes != cu_seq_k.sizes {
        let what = "cu_seq_q and cu_seq_k that are not known to have equal lengths";
        return Err(Error::not_supported(format!("varlen_attn with {what} cannot be lowered for a GPU")));
    }
    let register = writer.register(query)?;
    let (tokens, heads, head_size) =
        (nth_last(&query.sizes, 2)?, nth_last(&query.sizes, 1)?, nth_last(&query.sizes, 0)?);
    let (key_tokens, key_heads, value_size) =
        (nth_last(&key.sizes, 2)?, nth_last(&key.sizes, 1)?, nth_last(&value.sizes, 0)?);
    let sequences = nth_last(&cu_seq_q.sizes, 0)? - &Expr::int(1);
    let rows = tokens * heads;
    let bound = |name: &str, view: &View| {
        format!("[=](int64 s) {{ return (int64)load({name} + {}); }}", writer.place(view, &["s".to_owned()]))
    };
    let load = |name: &str, view: &View, arguments: &str, at: [&str; 3]| {
        let place = writer.place(view, &at.map(str::to_owned));
        format!("[=]({arguments}) {{ return load({name} + {place}); }}")
    };
    let (left, right) = *window;
    let (sequences_text, key_tokens_text) = (writer.size(&sequences), writer.size(key_tokens));
    let mut body = format!(
        "  const auto query_bound = {};\n  const auto key_bound = {};\n  if (blockIdx.x == 0) {{\n    \
         const int64 longest = check_bounds<{THREADS}>(flag, {}, {sequences_text}, {}, query_bound);\n    \
         const int64 longest_keys = check_bounds<{THREADS}>(flag, {}, {sequences_text}, {key_tokens_text}, key_bound);\n",
        bound("cu_seq_q", cu_seq_q),
        bound("cu_seq_k", cu_seq_k),
        Failure::QueryBounds.code(),
        writer.size(tokens),
        Failure::KeyBounds.code(),
    );
    if right != 0 && *window != (-1, -1) {
        body.push_str(&format!(
            "    if (threadIdx.x == 0 && longest > longest_keys + 1) raise(flag, {}, 0, {left}ll, {right}ll);\n",
            Failure::Window.code()
        ));
    }
    body.push_str(&format!(
        "  }}\n  const int64 row = blockIdx.x * {ROWS}ll + threadIdx.x / 32;\n  if (row >= {}) return;\n  \
         const int64 token = row / {heads}, head = row % {heads}, key_head = head / ({heads} / {});\n  \
         const KeyRange keys = keys_of(token, {sequences_text}, {key_tokens_text}, query_bound, key_bound, {left}ll, {right}ll);\n  \
         packed_row<{register}>(keys, {}, {}, ({register}){},\n    {},\n    {},\n    {},\n    \
         [=](int64 d, {register} x) {{ store(out + {}, x); }});\n",
        writer.size(&rows),
        writer.size(key_heads),
        writer.size(head_size),
        writer.size(value_size),
        names::float64(*scale),
        load("query", query, "int64 d", ["token", "head", "d"]),
        load("key", key, "int64 j, int64 d", ["j", "key_head", "d"]),
        load("value", value, "int64 j, int64 d", ["j", "key_head", "d"]),
        writer.place(out, &["token", "head", "d"].map(str::to_owned)),
        heads = writer.size(heads),
    ));
    let launch = writer.add_raising(Draft {
        name: "packed_attention",
        templates: TEMPLATES,
        arguments: vec![
            Argument::read("query", query),
            Argument::read("key", key),
            Argument::read("value", value),
            Argument::read("cu_seq_q", cu_seq_q),
            Argument::read("cu_seq_k", cu_seq_k),
            Argument::written("out", out),
        ],
        sizes: vec![],
        body,
        // One at least, which checks the bounds.
        grid: [rows.ceil_div(&Expr::int(ROWS)).maximum(&Expr::int(1)), Expr::int(1), Expr::int(1)],
        threads: THREADS,
        shared: 0,
        scratch: false,
        ..Draft::default()
    })?;
    Ok(one(launch))
}
