//! The transformer's encoder layer that PyTorch runs as one operator when it only infers.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_pt2::MemoryFormat;

use super::args::{Args, Val};
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[("aten._transformer_encoder_layer_fwd.default", encoder_layer)];

/// An operator's result, as a tensor of the program.
fn op(imp: &mut Importer, target: &str, values: Vec<(&str, Val)>) -> Result<Val> {
    let values = values.into_iter().map(|(name, val)| (name.to_string(), val)).collect();
    let result = imp.call(&Args { target: target.to_string(), values })?;
    imp.named(result)
}

fn ints(all: &[Expr]) -> Val {
    Val::List(all.iter().cloned().map(Val::Int).collect())
}

/// An argument of the layer, by its name.
fn given(a: &Args, name: &str) -> Result<Val> {
    a.get(name).cloned().ok_or_else(|| a.wrong(name, "given"))
}

fn linear(imp: &mut Importer, a: &Args, x: Val, weight: &str, bias: &str) -> Result<Val> {
    let values = vec![("input", x), ("weight", given(a, weight)?), ("bias", given(a, bias)?)];
    op(imp, "aten.linear.default", values)
}

fn normalised(imp: &mut Importer, a: &Args, x: Val, which: u8) -> Result<Val> {
    let (weight, bias) = (format!("norm_weight_{which}"), format!("norm_bias_{which}"));
    let values = vec![
        ("input", x),
        ("normalized_shape", ints(&[a.expr("embed_dim")?])),
        ("weight", given(a, &weight)?),
        ("bias", given(a, &bias)?),
        ("eps", given(a, "eps")?),
    ];
    op(imp, "aten.layer_norm.default", values)
}

/// What attention may look at: the opposite of the mask, over [batch, heads, queries, keys]. A mask is over queries and keys (0), over batch
/// and keys (1), or over all four (2); what is not 0 is hidden, in floats too.
fn visible(imp: &mut Importer, a: &Args, batch: &Expr, length: &Expr) -> Result<Val> {
    let Some(mask) = a.opt_tensor("mask")? else { return Ok(Val::None) };
    let one = Expr::int(1);
    let shape = match a.int_or("mask_type", 2)? {
        0 => vec![one.clone(), one, length.clone(), length.clone()],
        1 => vec![batch.clone(), one.clone(), one, length.clone()],
        _ => imp.shape_of(mask)?,
    };
    let seen = op(imp, "aten.logical_not.default", vec![("self", Val::Tensor(mask))])?;
    op(imp, "aten.view.default", vec![("self", seen), ("size", ints(&shape))])
}

fn attention(imp: &mut Importer, a: &Args, x: Val, [batch, length, width]: &[Expr; 3]) -> Result<Val> {
    let heads = a.expr("num_heads")?;
    let size = width.floor_div(&heads);
    let all = linear(imp, a, x, "qkv_weight", "qkv_bias")?;
    let split = ints(&[batch.clone(), length.clone(), Expr::int(3), heads, size]);
    let split = op(imp, "aten.view.default", vec![("self", all), ("size", split)])?;
    let order = ints(&[2, 0, 3, 1, 4].map(Expr::int));
    let split = op(imp, "aten.permute.default", vec![("self", split), ("dims", order)])?;
    let part = |imp: &mut Importer, i: i64| {
        let values = vec![("self", split.clone()), ("dim", Val::Int(Expr::int(0))), ("index", Val::Int(Expr::int(i)))];
        op(imp, "aten.select.int", values)
    };
    let (query, key, value) = (part(imp, 0)?, part(imp, 1)?, part(imp, 2)?);
    let mask = visible(imp, a, batch, length)?;
    let values = vec![("query", query), ("key", key), ("value", value), ("attn_mask", mask)];
    let mixed = op(imp, "aten.scaled_dot_product_attention.default", values)?;
    let (one, two) = (Val::Int(Expr::int(1)), Val::Int(Expr::int(2)));
    let mixed = op(imp, "aten.transpose.int", vec![("self", mixed), ("dim0", one), ("dim1", two)])?;
    let format = Val::MemoryFormat(MemoryFormat::Contiguous);
    let mixed = op(imp, "aten.clone.default", vec![("self", mixed), ("memory_format", format)])?;
    let size = ints(&[batch.clone(), length.clone(), width.clone()]);
    let mixed = op(imp, "aten.view.default", vec![("self", mixed), ("size", size)])?;
    linear(imp, a, mixed, "proj_weight", "proj_bias")
}

fn feed_forward(imp: &mut Importer, a: &Args, x: Val) -> Result<Val> {
    let hidden = linear(imp, a, x, "ffn_weight_1", "ffn_bias_1")?;
    let activation = if a.bool_or("use_gelu", false)? { "aten.gelu.default" } else { "aten.relu.default" };
    let hidden = op(imp, activation, vec![("self", hidden)])?;
    linear(imp, a, hidden, "ffn_weight_2", "ffn_bias_2")
}

/// Attention and two products with what is between them, each added to what goes in; norms before (`norm_first`) or after.
fn encoder_layer(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("src")?;
    let shape: [Expr; 3] = imp.shape_of(t)?.try_into().map_err(|_| a.wrong("src", "of rank 3"))?;
    let before = a.bool_or("norm_first", false)?;
    let mut x = Val::Tensor(t);
    for which in [1, 2] {
        let inner = if before { normalised(imp, a, x.clone(), which)? } else { x.clone() };
        let inner = if which == 1 { attention(imp, a, inner, &shape)? } else { feed_forward(imp, a, inner)? };
        x = op(imp, "aten.add.Tensor", vec![("self", x), ("other", inner)])?;
        if !before {
            x = normalised(imp, a, x, which)?;
        }
    }
    match x {
        Val::Tensor(_) => Ok(x),
        _ => Err(Error::internal("a layer that gives no tensor")),
    }
}
