//! Scaled dot product attention, dense and over packed sequences.

use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.scaled_dot_product_attention.default", attention),
    ("aten._scaled_dot_product_flash_attention_for_cpu.default", with_other_results::<2>),
    ("aten._scaled_dot_product_efficient_attention.default", with_other_results::<4>),
    ("aten._scaled_dot_product_flash_attention.default", with_other_results::<9>),
    ("torch_attn._varlen_attn.default", varlen),
];

/// The output, and what a training step would use, which is refused where it is used.
fn with_other_results<const N: usize>(imp: &mut Importer, a: &Args) -> Result<Val> {
    let output = attention(imp, a)?;
    let others = std::iter::repeat_n(Val::Other, N - 1);
    Ok(Val::List(std::iter::once(output).chain(others).collect()))
}

fn attention(imp: &mut Importer, a: &Args) -> Result<Val> {
    if a.float_or("dropout_p", 0.0)? != 0.0 {
        return Err(a.unsupported("dropout in attention"));
    }
    let names = ["query", "key", "value"];
    let [mut query, mut key, mut value] = [imp.value(a, names[0])?, imp.value(a, names[1])?, imp.value(a, names[2])?];
    let ranks = [query, key, value].map(|v| imp.b.rank(v));
    let rank = ranks[0];
    if rank < 2 || ranks.iter().any(|r| *r != rank) {
        return Err(a.unsupported("attention of tensors of other ranks than one of 2 or more"));
    }
    let dtype = imp.b.dtype(query);
    let scale = scale(imp, a, query)?;
    let mask = match a.has("attn_mask") {
        true => imp.opt_value(a, "attn_mask")?,
        false => imp.opt_value(a, "attn_bias")?,
    };
    let causal = a.bool_or("is_causal", false)?;
    if causal && mask.is_some() {
        return Err(a.unsupported("a mask beside is_causal"));
    }
    // A mask in a wider dtype than the query's is added as it is.
    if mask.is_some_and(|m| !imp.b.dtype(m).is_bool() && imp.b.dtype(m) != dtype) {
        let wide = mask.map_or(dtype, |m| imp.b.dtype(m));
        [query, key, value] = [query, key, value].map(|v| imp.b.cast(v, wide));
    }
    let shape = imp.b.shape(query).to_vec();
    let grouped = a.bool_or("enable_gqa", false)?;
    let batch = batch_shape(imp, &[query, key, value], grouped)?;
    let [query4, key4, value4] = [
        four_dims(imp, query, &batch, false)?,
        four_dims(imp, key, &batch, grouped)?,
        four_dims(imp, value, &batch, grouped)?,
    ];
    if imp.b.shape(key4)[1] != imp.b.shape(value4)[1] {
        return Err(a.unsupported("another number of heads of keys than of values"));
    }
    let mask = mask.map(|m| four_dim_mask(imp, m, &batch)).transpose()?;
    let output = imp.b.attention(query4, key4, value4, mask, scale, causal)?;
    let mut to = batch;
    to.push(shape[rank - 2].clone());
    to.push(imp.b.shape(value)[rank - 1].clone());
    let output = imp.b.reshape(output, to)?;
    Ok(imp.b.cast(output, dtype).into())
}

fn scale(imp: &Importer, a: &Args, query: Value) -> Result<f64> {
    if let Some(scale) = a.opt_float("scale")? {
        return Ok(scale);
    }
    let size = imp.b.shape(query).last().and_then(Expr::as_int);
    let size = size.ok_or_else(|| a.unsupported("a head size known only at run time"))?;
    Ok(1.0 / (size as f64).sqrt())
}

/// The common leading sizes. Grouped heads, the last of them, are the query's.
fn batch_shape(imp: &mut Importer, values: &[Value; 3], grouped: bool) -> Result<Vec<Expr>> {
    let rank = imp.b.rank(values[0]);
    let mut batch = imp.b.shape(values[0])[..rank - 2].to_vec();
    for value in &values[1..] {
        let mut own = imp.b.shape(*value)[..rank - 2].to_vec();
        if let (true, Some(last), Some(heads)) = (grouped, own.last_mut(), batch.last()) {
            *last = heads.clone();
        }
        batch = imp.b.broadcast_shapes(&batch, &own)?;
    }
    Ok(batch)
}

/// [batch, heads, length, head size]: the last leading dimension is the heads, those before are one. Grouped heads stay as many.
fn four_dims(imp: &mut Importer, x: Value, batch: &[Expr], grouped: bool) -> Result<Value> {
    let own = imp.b.shape(x).to_vec();
    let rank = own.len();
    let mut wide = batch.to_vec();
    if let (true, Some(last)) = (grouped, wide.last_mut()) {
        *last = own[rank - 3].clone();
    }
    let heads = wide.last().cloned().unwrap_or_else(|| Expr::int(1));
    let outer = Expr::product(&wide[..wide.len().saturating_sub(1)]);
    wide.extend_from_slice(&own[rank - 2..]);
    let x = imp.b.expand(x, wide)?;
    imp.b.reshape(x, vec![outer, heads, own[rank - 2].clone(), own[rank - 1].clone()])
}

/// [batch, heads, queries, keys], with sizes of 1 where the mask repeats.
fn four_dim_mask(imp: &mut Importer, mask: Value, batch: &[Expr]) -> Result<Value> {
    let mut own = imp.b.shape(mask).to_vec();
    let rank = batch.len() + 2;
    if own.len() > rank {
        return Err(Error::invalid_program("an attention mask has more dimensions than the query"));
    }
    own.splice(0..0, vec![Expr::int(1); rank - own.len()]);
    let mask = imp.b.reshape(mask, own.clone())?;
    let outer = batch.len().saturating_sub(1);
    let heads = own[outer..rank - 2].first().cloned().unwrap_or_else(|| Expr::int(1));
    let tail = [heads, own[rank - 2].clone(), own[rank - 1].clone()];
    let repeated = own[..outer].iter().all(|s| s.is_int(1));
    let mut wide = if repeated { vec![Expr::int(1); outer] } else { batch[..outer].to_vec() };
    let mut to = vec![Expr::product(&wide)];
    wide.extend_from_slice(&own[outer..]);
    to.extend(tail);
    let mask = imp.b.expand(mask, wide)?;
    imp.b.reshape(mask, to)
}

/// Attention over packed sequences. The log-sum-exp is for training and refused where it is used; the random state is zeros, as there
/// is no dropout.
fn varlen(imp: &mut Importer, a: &Args) -> Result<Val> {
    for name in ["seqused_k", "block_table"] {
        if a.has(name) {
            return Err(a.unsupported(name));
        }
    }
    let (query, key, value) = (imp.value(a, "query")?, imp.value(a, "key")?, imp.value(a, "value")?);
    let (cu_seq_q, cu_seq_k) = (imp.value(a, "cu_seq_q")?, imp.value(a, "cu_seq_k")?);
    let scale = scale(imp, a, query)?;
    let window = window(imp, a)?;
    let output = imp.b.varlen_attention([query, key, value], [cu_seq_q, cu_seq_k], scale, window)?;
    let random_state = imp.b.full(DType::U64, vec![Expr::int(2)], Scalar::Int(0));
    Ok(Val::List(vec![output.into(), Val::Other, random_state.into()]))
}

/// (keys before, keys after) the query's own that are seen, -1 for all. Kernels disagree on what a query longer than the keys by more
/// than one sees through a window that ends elsewhere than at its own key, so such a call is refused.
fn window(imp: &mut Importer, a: &Args) -> Result<(i64, i64)> {
    let (left, mut right) = match a.ints_or("window_size", &[-1, -1])?.as_slice() {
        [left, right] => ((*left).max(-1), (*right).max(-1)),
        _ => return Err(a.wrong("window_size", "a list of two")),
    };
    if a.bool_or("is_causal", false)? {
        right = 0;
    }
    if (left, right) != (-1, -1) && right != 0 {
        let (queries, keys) = (a.expr("max_q")?, a.expr("max_k")?);
        let fits = Cond::compare(Compare::Le, &queries, &(&keys + 1)).simplify(imp.b.ranges());
        let what = format!("the window ({left}, {right}) for queries longer than the keys by more than one");
        match fits.as_bool() {
            Some(true) => {}
            Some(false) => return Err(a.unsupported(what)),
            None => {
                let text = format!("{what} is not supported ({})", imp.place);
                imp.b.require(fits, text);
            }
        }
    }
    Ok((left, right))
}
