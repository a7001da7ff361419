//! Matrix products.

use douse_core::Result;
use douse_core::pointwise::Binary;
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.mm.default", |i, a| product(i, a, "self", "mat2")),
    ("aten.bmm.default", |i, a| product(i, a, "self", "mat2")),
    ("aten.linear.default", linear),
];

fn product(imp: &mut Importer, a: &Args, x: &str, y: &str) -> Result<Val> {
    let (x, y) = (imp.value(a, x)?, imp.value(a, y)?);
    Ok(imp.b.matmul(x, y)?.into())
}

/// x @ weight^T + bias over the last dimension; leading dimensions are one.
fn linear(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, weight, bias) = (imp.value(a, "input")?, imp.value(a, "weight")?, imp.opt_value(a, "bias")?);
    Ok(affine(imp, x, weight, bias)?.into())
}

/// x [..., k] @ weight [n, k]^T + bias [n].
pub fn affine(imp: &mut Importer, x: Value, weight: Value, bias: Option<Value>) -> Result<Value> {
    let shape = imp.b.shape(x).to_vec();
    let one_dim = imp.b.rank(weight) == 1;
    let weight = if one_dim { imp.b.unsqueeze(weight, 0)? } else { weight };
    let rank = shape.len();
    let rows = match rank {
        1 => imp.b.unsqueeze(x, 0)?,
        2 => x,
        _ => imp.b.flatten(x, 0, rank - 2)?,
    };
    let turned = imp.b.transpose(weight, 0, 1)?;
    let product = imp.b.matmul(rows, turned)?;
    let mut to = shape[..rank.saturating_sub(1)].to_vec();
    if !one_dim {
        to.push(imp.b.shape(product)[1].clone());
    }
    let y = imp.b.reshape(product, to)?;
    match bias {
        Some(bias) => imp.b.binary(Binary::Add, y, bias),
        None => Ok(y),
    }
}
