//! Attention.

use douse_core::sym::Expr;
use douse_core::{Code, Error, Result};
use douse_program::library::{Attention, View};
use douse_program::target::LibraryLaunches;

use super::attention_tiles::Form;
use super::function::{Argument, Draft, Writer, nth_last};
use super::one;
use super::tiles::uses_tensor_cores;
use crate::emit::names;

pub(super) const TEMPLATES: &[&str] = &[
    include_str!("../cuda/operand.cuh"),
    include_str!("../cuda/cluster.cuh"),
    include_str!("../cuda/product.cuh"),
    include_str!("../cuda/attention.cuh"),
];
/// Queries of a block and keys of a step, as in the template without tensor cores.
const QUERIES: i64 = 16;
const KEYS: i64 = 32;
/// Bytes of shared memory that every architecture lets a block have.
pub(super) const SHARED: i64 = 99 * 1024;

pub(super) fn emit(writer: &mut Writer, attention: &Attention) -> Result<LibraryLaunches> {
    let Attention { query, key, value, mask, out, scale, causal } = attention;
    let (register, element) = (writer.register(query)?, writer.element(query)?);
    let width = if register == "double" { 8 } else { 4 };
    let (Some(head), Some(head_value)) = (nth_last(&query.sizes, 0)?.as_int(), nth_last(&value.sizes, 0)?.as_int())
    else {
        return Err(refused("a head size that is known only at run time"));
    };
    if let (true, Some(form)) =
        (uses_tensor_cores(writer.dtype(query)?), Form::of(writer, attention, head, head_value)?)
    {
        return form.emit(writer, attention);
    }
    let shared = (QUERIES * head + KEYS * (head + 1) + KEYS * head_value) * width;
    if shared > SHARED {
        return Err(refused(&format!("heads of {head} and {head_value} elements")));
    }
    let (queries, keys) = (nth_last(&query.sizes, 1)?, nth_last(&key.sizes, 1)?);
    let (heads, key_heads, batch) = (nth_last(&query.sizes, 2)?, nth_last(&key.sizes, 2)?, nth_last(&query.sizes, 3)?);
    let blocks = queries.ceil_div(&Expr::int(QUERIES));
    let at = |view: &View, names: [&str; 4]| writer.place(view, &names.map(str::to_owned));
    let load = |name: &str, view: &View, head: &str| {
        format!("[=](int64 i, int d) {{ return load({name} + {}); }}", at(view, ["batch", head, "i", "d"]))
    };
    let scale =
        if register == "double" { names::float64(*scale) } else { format!("(float){}", names::float64(*scale)) };
    let mut score = format!("s *= {scale};");
    if let Some(mask) = mask {
        let masked = at(mask, ["batch", "head", "i", "j"]);
        score.push_str(&match writer.dtype(mask)?.is_bool() {
            true => format!(" if (!load(mask + {masked})) return Limits<{register}>::lowest();"),
            false => format!(" s += load(mask + {masked});"),
        });
    }
    if *causal {
        score.push_str(&format!(" if (j > i) return Limits<{register}>::lowest();"));
    }
    let (blocks_text, heads_text) = (writer.size(&blocks), writer.size(heads));
    let body = format!(
        "  int64 rest = blockIdx.x;\n  const int64 tile = rest % {blocks_text};\n  rest /= {blocks_text};\n  \
         const int64 head = rest % {heads_text}, batch = rest / {heads_text};\n  \
         const int64 key_head = head / ({heads_text} / {});\n  \
         attention<{element}, {head}, {head_value}>(tile * {QUERIES}, {}, {},\n    {},\n    {},\n    {},\n    \
         [=](int64 i, int64 j, {register} s) {{ {score} return s; }},\n    \
         [=](int64 i, int d, {register} x) {{ store(out + {}, x); }});\n",
        writer.size(key_heads),
        writer.size(queries),
        writer.size(keys),
        load("query", query, "head"),
        load("key", key, "key_head"),
        load("value", value, "key_head"),
        at(out, ["batch", "head", "i", "d"]),
    );
    let mut arguments =
        vec![Argument::read("query", query), Argument::read("key", key), Argument::read("value", value)];
    arguments.extend(mask.iter().map(|mask| Argument::read("mask", mask)));
    arguments.push(Argument::written("out", out));
    let grid = [&(&blocks * heads) * batch, Expr::int(1), Expr::int(1)];
    let draft = Draft {
        name: "attention",
        templates: TEMPLATES,
        arguments,
        sizes: vec![],
        body,
        grid,
        threads: 128,
        shared: shared as u32,
        scratch: false,
        ..Draft::default()
    };
    Ok(one(writer.add(draft)?))
}

fn refused(what: &str) -> Error {
    Error::new(Code::NotSupported, format!("attention with {what} cannot be lowered for a GPU"))
}
