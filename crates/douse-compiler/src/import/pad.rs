//! Padding: constant, by reflection, by the edge, or from the other end.

use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{Result, Scalar};
use douse_ir::coordinates;

use super::args::{Args, Number, Val};
use super::data::Data;
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.pad.default", pad),
    ("aten.constant_pad_nd.default", constant_pad),
    ("aten.reflection_pad1d.default", |i, a| mirrored(i, a, Mode::Reflect)),
    ("aten.reflection_pad2d.default", |i, a| mirrored(i, a, Mode::Reflect)),
    ("aten.reflection_pad3d.default", |i, a| mirrored(i, a, Mode::Reflect)),
    ("aten.replication_pad1d.default", |i, a| mirrored(i, a, Mode::Replicate)),
    ("aten.replication_pad2d.default", |i, a| mirrored(i, a, Mode::Replicate)),
    ("aten.replication_pad3d.default", |i, a| mirrored(i, a, Mode::Replicate)),
    ("aten._pad_circular.default", |i, a| {
        let pads = amounts(a, "pad")?;
        border(i, a, Mode::Circular, pads)
    }),
    ("aten._pad_enum.default", pad_enum),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Reflect,
    Replicate,
    Circular,
}

/// (before, after) of the last dimensions, last first.
fn amounts(a: &Args, name: &str) -> Result<Vec<(Expr, Expr)>> {
    Ok(a.exprs(name)?.chunks_exact(2).map(|p| (p[0].clone(), p[1].clone())).collect())
}

fn pad(imp: &mut Importer, a: &Args) -> Result<Val> {
    match a.str_or("mode", "constant")? {
        "constant" => constant_pad(imp, a),
        "reflect" => mirrored(imp, a, Mode::Reflect),
        "replicate" => mirrored(imp, a, Mode::Replicate),
        "circular" => mirrored(imp, a, Mode::Circular),
        mode => Err(a.unsupported(format!("the mode {mode}"))),
    }
}

/// Modes by number: constant, reflect, replicate, circular.
fn pad_enum(imp: &mut Importer, a: &Args) -> Result<Val> {
    match a.int("mode")? {
        0 => constant_pad(imp, a),
        1 => mirrored(imp, a, Mode::Reflect),
        2 => mirrored(imp, a, Mode::Replicate),
        3 => mirrored(imp, a, Mode::Circular),
        mode => Err(a.unsupported(format!("the mode {mode}"))),
    }
}

/// Pads of all dimensions, first to last.
fn of_all(a: &Args, data: &Data, pads: &[(Expr, Expr)]) -> Result<Vec<(Expr, Expr)>> {
    let mut all = vec![(Expr::int(0), Expr::int(0)); data.rank()];
    if pads.len() > all.len() {
        return Err(a.wrong("pad", "at most as long as there are dimensions"));
    }
    for (slot, pad) in all.iter_mut().rev().zip(pads) {
        *slot = pad.clone();
    }
    Ok(all)
}

fn constant_pad(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let pads = of_all(a, &data, &amounts(a, "pad")?)?;
    imp.require_fits(a, "value", data.dtype)?;
    match if a.has("value") { a.number("value")? } else { Number::Scalar(Scalar::Int(0)) } {
        Number::Scalar(fill @ (Scalar::Int(_) | Scalar::Bool(_) | Scalar::Float(_))) => {
            Ok(constant(imp, &data, &pads, fill)?.val())
        }
        // A value known at run time only, or complex, is put where a padded mask is false.
        _ => {
            let value = imp.operand_data(a, "value", data.dtype)?;
            let yes = imp.b.full(douse_core::DType::Bool, data.shape.clone(), Scalar::Bool(true));
            let inside = Data::real(imp, yes);
            let inside = constant(imp, &inside, &pads, Scalar::Bool(false))?;
            let padded = constant(imp, &data, &pads, Scalar::Int(0))?;
            Ok(Data::select(imp, inside.value, &padded, &value)?.val())
        }
    }
}

/// `fill` before and after each dimension; negative numbers cut.
pub fn constant(imp: &mut Importer, data: &Data, pads: &[(Expr, Expr)], fill: Scalar) -> Result<Data> {
    let mut guard = Cond::Bool(true);
    let (mut shape, mut map) = (Vec::new(), Vec::new());
    for (d, (size, (low, high))) in data.shape.iter().zip(pads).enumerate() {
        shape.push((&(size + low) + high).simplify(imp.b.ranges()));
        let at = &Expr::loop_var(d) - low;
        if !low.is_int(0) || !high.is_int(0) {
            let zero = Expr::int(0);
            guard = guard.and(&Cond::compare(Compare::Ge, &at, &zero)).and(&Cond::compare(Compare::Lt, &at, size));
        }
        map.push(at);
    }
    data.moved(imp, &[], shape, map, guard, fill)
}

fn mirrored(imp: &mut Importer, a: &Args, mode: Mode) -> Result<Val> {
    let pads = amounts(a, if a.has("padding") { "padding" } else { "pad" })?;
    border(imp, a, mode, pads)
}

/// Every new element is a copy of one of the tensor's.
fn border(imp: &mut Importer, a: &Args, mode: Mode, pads: Vec<(Expr, Expr)>) -> Result<Val> {
    let data = imp.data(a, "self")?;
    if mode != Mode::Circular {
        // Of [batch, channels, spatial...] only the batch may be empty.
        let channels = data.rank().saturating_sub(pads.len() + 1);
        imp.require_filled(data.shape.get(channels..).unwrap_or_default(), "padding by copies");
    }
    let pads = of_all(a, &data, &pads)?;
    let (mut shape, mut map) = (Vec::new(), coordinates(data.rank()));
    for (d, (size, (low, high))) in data.shape.iter().zip(&pads).enumerate() {
        shape.push((&(size + low) + high).simplify(imp.b.ranges()));
        if low.is_int(0) && high.is_int(0) {
            continue;
        }
        let at = &Expr::loop_var(d) - low;
        map[d] = match mode {
            Mode::Replicate => at.maximum(&Expr::int(0)).minimum(&(size - 1)),
            Mode::Circular => {
                // Negative pads cut first: what is left goes round.
                let zero = Expr::int(0);
                let (cut, cut_end) = ((-low).maximum(&zero), (-high).maximum(&zero));
                let left = &(size - &cut) - &cut_end;
                require_at_most(imp, low, high, &left, "circular padding");
                &(&Expr::loop_var(d) - &low.maximum(&zero)).modulo(&left) + &cut
            }
            Mode::Reflect => {
                require_at_most(imp, low, high, &(size - 1), "reflection padding");
                // |at| on the left; on the right what is past the last element turns back.
                let last = size - 1;
                let left = at.maximum(&-&at);
                left.minimum(&(&(&last * 2) - &at))
            }
        };
    }
    Ok(data.remap(imp, shape, map)?.val())
}

/// Makes the call fail where a pad is longer than what can be copied.
fn require_at_most(imp: &mut Importer, low: &Expr, high: &Expr, most: &Expr, what: &str) {
    let cond = Cond::compare(Compare::Le, low, most).and(&Cond::compare(Compare::Le, high, most));
    imp.require(cond, format_args!("{what} of {low} and {high} is longer than {most}"));
}
