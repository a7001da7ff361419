//! Where a convolution's input has the elements of its windows, as text.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_program::library::Convolution;

use super::convolution::{CHUNK, Shape, nth};
use super::function::Writer;

/// `window(row, k)`: where the element of the input (`from`) for an output position and a tap lies; null in the padding.
pub(super) fn window(writer: &Writer, convolution: &Convolution, shape: &Shape, from: &str) -> Result<String> {
    let (tap, tap_at) = shape.split_tap(writer, &convolution.weight)?;
    let (position, position_at) = shape.split_position(writer);
    let (element, index) = (writer.element(&convolution.input)?, shape.index);
    let position = format!("{index} position = ({index})row; {position}");
    let tap = format!("{index} tap = ({index})k; {tap}");
    match convolution.transposed {
        true => {
            scattered_window(writer, convolution, shape, [&position, &tap], [&position_at, &tap_at], (element, from))
        }
        false => offset_window(writer, convolution, shape, [&position, &tap], [&position_at, &tap_at], from),
    }
}

/// That of a transposed convolution. `split`: statements that give the coordinates `at` of position and tap.
fn scattered_window(
    writer: &Writer,
    convolution: &Convolution,
    shape: &Shape,
    split: [&str; 2],
    at: [&[String]; 2],
    (element, from): (&str, &str),
) -> Result<String> {
    let Convolution { input, .. } = convolution;
    let mut places = String::new();
    let mut input_at = vec!["p0".to_owned(), format!("(rest * {} + {})", writer.size(&shape.group_in), nth(at[1], 0)?)];
    for (d, size) in input.sizes.iter().skip(2).enumerate() {
        let (p, t) = (nth(at[0], d + 1)?, nth(at[1], d + 1)?);
        let (stride, dilation, padding) = steps(writer, convolution, d)?;
        places.push_str(&format!(" const auto y{d} = {p} + {padding} - {t} * {dilation};"));
        places.push_str(&format!(" if (y{d} < 0 || y{d} % {stride} != 0) return nullptr;"));
        places.push_str(&format!(" const auto x{d} = y{d} / {stride};"));
        places.push_str(&format!(" if (x{d} >= {}) return nullptr;", writer.size(size)));
        input_at.push(format!("x{d}"));
    }
    Ok(format!(
        "  const auto window = [=](int64 row, int64 k) -> const {element} * {{ {} {}{places} return {from} + ({}); }};\n",
        split[0],
        split[1],
        writer.place(input, &input_at)
    ))
}

/// Otherwise position and tap each give an offset of the place, so that what depends on one of them is not computed for each pair.
fn offset_window(
    writer: &Writer,
    convolution: &Convolution,
    shape: &Shape,
    split: [&str; 2],
    at: [&[String]; 2],
    from: &str,
) -> Result<String> {
    let Convolution { input, .. } = convolution;
    let unsigned = format!("u{}", shape.index);
    let strides: Vec<String> = input.strides.iter().map(|stride| writer.size(stride)).collect();
    let [of_batch, of_channel, of_space @ ..] = strides.as_slice() else {
        return Err(Error::internal("a convolution of too few dimensions"));
    };
    let [mut row, mut depth] = [String::new(), String::new()];
    let mut row_place = format!("{} * {of_batch}", nth(at[0], 0)?);
    let mut depth_place = format!("{} * {of_channel}", nth(at[1], 0)?);
    for (d, of_dimension) in of_space.iter().enumerate() {
        let (stride, dilation, padding) = steps(writer, convolution, d)?;
        row.push_str(&format!(" const auto x{d} = ({unsigned})({} * {stride} - {padding});", nth(at[0], d + 1)?));
        depth.push_str(&format!(" const auto x{d} = ({unsigned})({} * {dilation});", nth(at[1], d + 1)?));
        row_place.push_str(&format!(" + x{d} * {of_dimension}"));
        depth_place.push_str(&format!(" + x{d} * {of_dimension}"));
    }
    let dimensions = of_space.len();
    let offset = format!("Offset<{unsigned}, {dimensions}>");
    let coordinates = (0..dimensions).map(|d| format!("x{d}")).collect::<Vec<_>>().join(", ");
    let sizes = input.sizes.iter().skip(2).map(|size| format!("({unsigned}){}", writer.size(size)));
    let sizes = sizes.collect::<Vec<_>>().join(", ");
    let function = |name: &str, from: &str, split: &str, places: &str, place: &str| {
        format!(
            "  const auto {name} = [=](int64 {from}) -> {offset} {{ {split}{places} return {{({unsigned})({place}), {{{coordinates}}}}}; }};\n"
        )
    };
    Ok(format!(
        "{}{}  const auto window = windows(of_position, of_tap, {}, {offset}{{0, {{{sizes}}}}});\n",
        function("of_position", "row", split[0], &row, &row_place),
        function("of_tap", "k", split[1], &depth, &depth_place),
        start(writer, convolution, shape, from)
    ))
}

/// Stride, dilation and padding of a spatial dimension, as text.
fn steps(writer: &Writer, convolution: &Convolution, d: usize) -> Result<(i64, i64, String)> {
    let padding = convolution.padding.get(d).ok_or_else(|| Error::internal("a padding is missing"))?;
    Ok((number(&convolution.stride, d)?, number(&convolution.dilation, d)?, writer.size(padding)))
}

/// Where the input of a group begins.
pub(super) fn start(writer: &Writer, convolution: &Convolution, shape: &Shape, from: &str) -> String {
    let Convolution { input, .. } = convolution;
    format!(
        "{from} + ({} + rest * {} * {})",
        writer.size(&input.offset),
        writer.size(&shape.group_in),
        writer.size(input.strides.get(1).unwrap_or(&Expr::int(0)))
    )
}

/// How the windows' elements lie along the depth, in the templates' words.
pub(super) fn window_chunks(convolution: &Convolution, shape: &Shape) -> &'static str {
    let input = &convolution.input;
    let chunk = Expr::int(CHUNK);
    let whole = |n: &Expr| n.modulo(&chunk).is_int(0);
    let aligned = |fastest: usize| input.strides.iter().enumerate().all(|(d, stride)| d == fastest || whole(stride));
    let by_channels = shape.channels_last && whole(&shape.group_in) && aligned(1);
    // Of an image that is cut into patches, a kernel's rows are chunks that the edge cuts nowhere.
    let last = input.strides.len() - 1;
    let steps = (convolution.stride.last(), convolution.dilation.last(), convolution.weight.sizes.last());
    let by_patches = match steps {
        (Some(stride), Some(1), Some(width)) => {
            let padding = convolution.padding.last().is_some_and(whole);
            let edge = input.sizes.last().is_some_and(whole);
            !shape.channels_last
                && input.strides[last].is_int(1)
                && !convolution.transposed
                && stride % CHUNK == 0
                && [whole(width), padding, edge, aligned(last)].iter().all(|yes| *yes)
        }
        _ => false,
    };
    if by_channels || by_patches { "WHOLE" } else { "SCATTERED" }
}

fn number(list: &[i64], k: usize) -> Result<i64> {
    list.get(k).copied().ok_or_else(|| Error::internal("a convolution's stride or dilation is missing"))
}
