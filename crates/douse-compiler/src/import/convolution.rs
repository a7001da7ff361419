//! Convolutions and their adjoints.

use douse_core::pointwise::Binary;
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{Error, Result};
use douse_ir::{Convolution, Value};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::parts::Parts;

pub const ROWS: &[Row] = &[
    ("aten.conv1d.default", |i, a| plain(i, a, 1)),
    ("aten.conv2d.default", |i, a| plain(i, a, 2)),
    ("aten.conv3d.default", |i, a| plain(i, a, 3)),
    ("aten.conv1d.padding", |i, a| named_padding(i, a, 1)),
    ("aten.conv2d.padding", |i, a| named_padding(i, a, 2)),
    ("aten.conv3d.padding", |i, a| named_padding(i, a, 3)),
    ("aten._convolution_mode.default", any_named_padding),
    ("aten.convolution.default", general),
    ("aten._convolution.default", general),
    ("aten._convolution.deprecated", general),
    ("aten.conv_transpose1d.default", |i, a| transposed(i, a, 1)),
    ("aten.conv_transpose2d.input", |i, a| transposed(i, a, 2)),
    ("aten.conv_transpose3d.input", |i, a| transposed(i, a, 3)),
    ("aten.conv_tbc.default", time_batch_channels),
];

/// A number for each spatial dimension: a list of one counts for all.
pub fn spatial<T: Clone>(a: &Args, name: &str, given: Vec<T>, count: usize) -> Result<Vec<T>> {
    match given.as_slice() {
        [one] => Ok(vec![one.clone(); count]),
        all if all.len() == count => Ok(given),
        _ => Err(a.wrong(name, &format!("a list of {count}"))),
    }
}

fn numbers(a: &Args, name: &str, default: i64, count: usize) -> Result<Vec<i64>> {
    spatial(a, name, a.ints_or(name, &[default])?, count)
}

fn padding(a: &Args, count: usize) -> Result<Vec<Expr>> {
    let given = a.opt_exprs("padding")?.unwrap_or_else(|| vec![Expr::int(0)]);
    spatial(a, "padding", given, count)
}

fn plain(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    let padding = padding(a, count)?;
    convolved(imp, a, count, padding.clone(), padding, false)
}

fn transposed(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    let padding = padding(a, count)?;
    convolved(imp, a, count, padding.clone(), padding, true)
}

/// The number of spatial dimensions follows from the weight.
fn general(imp: &mut Importer, a: &Args) -> Result<Val> {
    let count = spatial_rank(imp, a)?;
    let padding = padding(a, count)?;
    convolved(imp, a, count, padding.clone(), padding, a.bool_or("transposed", false)?)
}

fn spatial_rank(imp: &mut Importer, a: &Args) -> Result<usize> {
    let weight = a.tensor("weight")?;
    let rank = imp.shape_of(weight)?.len();
    rank.checked_sub(2).filter(|n| *n > 0).ok_or_else(|| a.wrong("weight", "of rank 3 or more"))
}

fn any_named_padding(imp: &mut Importer, a: &Args) -> Result<Val> {
    let count = spatial_rank(imp, a)?;
    named_padding(imp, a, count)
}

/// `valid`: none; `same`: as many zeros as keep the size, the odd one at the end.
fn named_padding(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    match a.str_or("padding", "valid")? {
        "valid" => {
            let none = vec![Expr::int(0); count];
            convolved(imp, a, count, none.clone(), none, false)
        }
        "same" => {
            let dilation = numbers(a, "dilation", 1, count)?;
            let weight = a.tensor("weight")?;
            let kernel = imp.shape_of(weight)?;
            let (mut low, mut high) = (Vec::new(), Vec::new());
            for (size, step) in kernel.iter().skip(2).zip(dilation) {
                let total = &(size - 1) * step;
                let half = total.floor_div(&Expr::int(2));
                high.push(&total - &half);
                low.push(half);
            }
            convolved(imp, a, count, low, high, false)
        }
        other => Err(a.unsupported(format!("padding {other}"))),
    }
}

fn convolved(
    imp: &mut Importer,
    a: &Args,
    count: usize,
    padding: Vec<Expr>,
    padding_end: Vec<Expr>,
    transposed: bool,
) -> Result<Val> {
    let conv = Convolution {
        stride: numbers(a, "stride", 1, count)?,
        padding,
        padding_end,
        dilation: numbers(a, "dilation", 1, count)?,
        groups: a.int_or("groups", 1)?,
        transposed,
        output_padding: numbers(a, "output_padding", 0, count)?,
    };
    let (input, weight) = (imp.parts(a, "input")?, imp.parts(a, "weight")?);
    let bias = if a.has("bias") { Some(imp.parts(a, "bias")?) } else { None };
    let unbatched = imp.b.rank(input.re) == count + 1;
    let input = if unbatched { input.map(|x| imp.b.unsqueeze(x, 0))? } else { input };
    check_channels(imp, a, input.re, weight.re, &conv)?;
    require_reach(imp, input.re, weight.re, &conv);
    let result = apply(imp, input, weight, bias, &conv)?;
    let result = if unbatched { result.map(|x| imp.b.squeeze(x, 0))? } else { result };
    result.val(imp)
}

/// The builder takes channels as they come, so what does not fit is found here.
fn check_channels(imp: &Importer, a: &Args, input: Value, weight: Value, conv: &Convolution) -> Result<()> {
    let (input, weight) = (imp.b.shape(input), imp.b.shape(weight));
    let (Some(own), Some(wanted)) = (input.get(1), weight.get(if conv.transposed { 0 } else { 1 })) else {
        return Err(a.wrong("input", "of the weight's rank"));
    };
    let wanted = if conv.transposed { wanted.clone() } else { wanted * conv.groups };
    match (own.as_int(), wanted.as_int()) {
        (Some(own), Some(wanted)) if own != wanted => {
            Err(Error::invalid_program(format!("{}: {own} input channels where the weight has {wanted}", a.target)))
        }
        _ => Ok(()),
    }
}

/// Makes the call fail where the kernel is longer than the padded input, or where an input of some examples and channels has no place.
fn require_reach(imp: &mut Importer, input: Value, weight: Value, conv: &Convolution) {
    let (shape, kernel) = (imp.b.shape(input).to_vec(), imp.b.shape(weight).to_vec());
    let [n, channels, places @ ..] = shape.as_slice() else { return };
    let nothing = [n, channels]
        .into_iter()
        .fold(Cond::Bool(false), |any, size| any.or(&Cond::compare(Compare::Eq, size, &Expr::int(0))));
    for (d, (size, kernel)) in places.iter().zip(kernel.get(2..).unwrap_or_default()).enumerate() {
        let some = Cond::compare(Compare::Ge, size, &Expr::int(1));
        imp.require(some.or(&nothing), "a convolution of an input without places");
        let (Some(step), Some(low), Some(high)) = (conv.dilation.get(d), conv.padding.get(d), conv.padding_end.get(d))
        else {
            continue;
        };
        if !conv.transposed {
            let (padded, reach) = (&(size + low) + high, &(&(kernel - 1) * *step) + 1);
            let fits = Cond::compare(Compare::Ge, &padded, &reach);
            imp.require(fits, format_args!("a convolution of {padded} padded places by a kernel over {reach}"));
        }
    }
}

/// A complex convolution is real ones of the parts; its bias is added after them.
fn apply(imp: &mut Importer, input: Parts, weight: Parts, bias: Option<Parts>, conv: &Convolution) -> Result<Parts> {
    if !input.is_complex() && !weight.is_complex() {
        return Ok(imp.b.convolution(input.re, weight.re, bias.map(|b| b.re), conv.clone())?.into());
    }
    let product = input.product(imp, weight, |imp, x, w| imp.b.convolution(x, w, None, conv.clone()))?;
    let Some(bias) = bias else { return Ok(product) };
    let column = bias.map(|b| {
        let mut shape = imp.b.shape(b).to_vec();
        shape.extend(vec![Expr::int(1); conv.stride.len()]);
        imp.b.reshape(b, shape)
    })?;
    product.add(imp, column, Binary::Add)
}

/// Input [time, batch, channels], weight [kernel, channels, outputs].
fn time_batch_channels(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, weight) = (imp.value(a, "self")?, imp.value(a, "weight")?);
    let bias = imp.opt_value(a, "bias")?;
    let (x, weight) = (imp.b.permute(x, &[1, 2, 0])?, imp.b.permute(weight, &[2, 1, 0])?);
    let pad = vec![a.opt_expr("pad")?.unwrap_or_else(|| Expr::int(0))];
    let conv = Convolution {
        stride: vec![1],
        padding: pad.clone(),
        padding_end: pad,
        dilation: vec![1],
        groups: 1,
        transposed: false,
        output_padding: vec![0],
    };
    let y = imp.b.convolution(x, weight, bias, conv)?;
    Ok(imp.b.permute(y, &[2, 0, 1])?.into())
}
