//! Convolutions, as products whose second operand is the input's windows.

use douse_core::sym::Expr;
use douse_core::{DType, Error, Result};
use douse_program::library::{Convolution, View};
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer};
use super::matmul::TEMPLATES;
use super::one;

/// Output channels of a group from which tiles are worth it.
const TILED: i64 = 8;
const THREADS: i64 = 256;

pub(super) fn emit(writer: &mut Writer, convolution: &Convolution) -> Result<LibraryLaunches> {
    let Convolution { input, weight, bias, out, groups, transposed, .. } = convolution;
    let (element, register) = (writer.element(out)?, writer.register(out)?);
    let [batch, out_channels, spatial @ ..] = out.sizes.as_slice() else {
        return Err(Error::internal("a convolution of too few dimensions"));
    };
    let [_, channels, extent @ ..] = input.sizes.as_slice() else {
        return Err(Error::internal("a convolution of too few dimensions"));
    };
    let kernel = weight.sizes.get(2..).unwrap_or_default();
    let groups_size = Expr::int(*groups);
    let (group_out, group_in) = (out_channels.floor_div(&groups_size), channels.floor_div(&groups_size));
    let positions = batch * &Expr::product(spatial);
    let depth = &group_in * &Expr::product(kernel);
    // Numbers of elements that fit 32 bits keep every index in 32 bits.
    let elements =
        [&input.sizes, &out.sizes, &weight.sizes].map(|sizes| writer.indexer.ranges.max(&Expr::product(sizes)));
    let narrow = elements.iter().all(|most| most.is_some_and(|most| most < 1 << 30));
    let index = if narrow { "int" } else { "int64" };

    // The tap: channel of the group and coordinates in the kernel.
    let mut tap_sizes = vec![group_in.clone()];
    tap_sizes.extend(kernel.iter().cloned());
    let (tap, tap_at) = writer.split("tap", "t", &tap_sizes);
    let mut position_sizes = vec![batch.clone()];
    position_sizes.extend(spatial.iter().cloned());
    let (position, position_at) = writer.split("position", "p", &position_sizes);
    let flat = |text: &str| text.replace("\n  ", " ").trim().to_owned();

    let mut window = String::new();
    let mut at = vec!["p0".to_owned(), format!("(group * {} + t0)", writer.size(&group_in))];
    for (d, size) in extent.iter().enumerate() {
        let (p, t) = (nth(&position_at, d + 1)?, nth(&tap_at, d + 1)?);
        let (stride, dilation) = (number(&convolution.stride, d)?, number(&convolution.dilation, d)?);
        let padding = convolution.padding.get(d).ok_or_else(|| Error::internal("a padding is missing"))?;
        let (padding, size) = (writer.size(padding), writer.size(size));
        if *transposed {
            window.push_str(&format!(" const auto y{d} = {p} + {padding} - {t} * {dilation};"));
            window.push_str(&format!(" if (y{d} < 0 || y{d} % {stride} != 0) return {element}{{}};"));
            window.push_str(&format!(" const auto x{d} = y{d} / {stride};"));
            window.push_str(&format!(" if (x{d} >= {size}) return {element}{{}};"));
        } else {
            window.push_str(&format!(" const auto x{d} = {p} * {stride} - {padding} + {t} * {dilation};"));
            window.push_str(&format!(" if (x{d} < 0 || x{d} >= {size}) return {element}{{}};"));
        }
        at.push(format!("x{d}"));
    }
    let windows = format!(
        "  const auto window = [=](int64 row, int64 k) -> {element} {{ {index} position = ({index})row, tap = ({index})k; {} {}{window} return input[{}]; }};\n",
        flat(&position),
        flat(&tap),
        writer.place(input, &at)
    );
    let weights = weights(writer, convolution, &group_out, &group_in, &depth, index)?;
    let channel = format!("(group * {} + channel)", writer.size(&group_out));
    let mut out_at = vec![nth(&position_at, 0)?, channel.clone()];
    out_at.extend(position_at.iter().skip(1).cloned());
    let added = match bias {
        Some(bias) => format!(" x = op_add(x, load(bias + {}));", writer.place(bias, std::slice::from_ref(&channel))),
        None => String::new(),
    };
    let store = format!(
        "  const auto put = [=](int64 channel, int64 row, {register} x) {{ {index} position = ({index})row; {}{added} store(out + {}, x); }};\n",
        flat(&position),
        writer.place(out, &out_at)
    );
    let (group_out_text, positions_text, depth_text) =
        (writer.size(&group_out), writer.size(&positions), writer.size(&depth));
    let right = format!("computed<{element}>(window, {positions_text}, {depth_text})");
    let (body, grid) = if group_out.as_int().is_some_and(|channels| channels < TILED) {
        let total = &(&positions * &group_out) * &groups_size;
        let body = format!(
            "  int64 rest = blockIdx.x * {THREADS}ll + threadIdx.x;\n  if (rest >= {}) return;\n  \
             const int64 row = rest % {positions_text};\n  rest /= {positions_text};\n  \
             const int64 channel = rest % {group_out_text}, group = rest / {group_out_text};\n{windows}{weights}{store}  \
             {register} sum = 0;\n  \
             for (int64 k = 0; k < {depth_text}; ++k) sum = multiply_add(Element<{element}>::load(left.at(channel, k)), \
             Element<{element}>::load(window(row, k)), sum);\n  put(channel, row, sum);\n",
            writer.size(&total)
        );
        (body, total.ceil_div(&Expr::int(THREADS)))
    } else {
        let cores = matches!(writer.dtype(out)?, DType::F16 | DType::BF16);
        let tile = Expr::int(64);
        let (tiles_m, tiles_n) = (group_out.ceil_div(&tile), positions.ceil_div(&tile));
        let template = if cores { "mma_product<64, 64>" } else { "tile_product" };
        let body = format!(
            "  int64 tile = blockIdx.x;\n  const int64 tile_m = tile % {0};\n  tile /= {0};\n  \
             const int64 tile_n = tile % {1}, group = tile / {1};\n{windows}{weights}{store}  \
             {template}(tile_m, tile_n, {depth_text}, left, {right}, put);\n",
            writer.size(&tiles_m),
            writer.size(&tiles_n),
        );
        (body, &(&tiles_m * &tiles_n) * &groups_size)
    };
    let mut arguments = vec![
        Argument { name: "input", view: input, written: false },
        Argument { name: "weight", view: weight, written: false },
    ];
    arguments.extend(bias.iter().map(|bias| Argument { name: "bias", view: bias, written: false }));
    arguments.push(Argument { name: "out", view: out, written: true });
    let launch = writer.add(Draft {
        name: "convolution",
        templates: TEMPLATES,
        arguments,
        sizes: convolution.padding.clone(),
        body,
        grid: [grid, Expr::int(1), Expr::int(1)],
        threads: THREADS as u32,
        shared: 0,
        scratch: false,
    })?;
    Ok(one(launch))
}

/// The weights of a group as the rows (output channels) of a matrix over taps.
fn weights(
    writer: &Writer,
    convolution: &Convolution,
    group_out: &Expr,
    group_in: &Expr,
    depth: &Expr,
    index: &str,
) -> Result<String> {
    let weight = &convolution.weight;
    let element = writer.element(weight)?;
    let (rows, depth_text) = (writer.size(group_out), writer.size(depth));
    if !convolution.transposed && dense(weight) {
        let first = writer.place(weight, &[format!("group * {rows}")]);
        let stride = weight.strides.first().map_or_else(|| "0".to_owned(), |stride| writer.size(stride));
        return Ok(format!(
            "  const Strided<{element}> left{{weight + {first}, {rows}, {depth_text}, {stride}, 1}};\n"
        ));
    }
    let kernel = weight.sizes.get(2..).unwrap_or_default();
    let mut tap_sizes = vec![group_in.clone()];
    tap_sizes.extend(kernel.iter().cloned());
    let (tap, tap_at) = writer.split("tap", "t", &tap_sizes);
    let (first, second) = match convolution.transposed {
        true => (format!("(group * {} + t0)", writer.size(group_in)), "row".to_owned()),
        false => (format!("(group * {rows} + row)"), "t0".to_owned()),
    };
    let mut at = vec![first, second];
    at.extend(tap_at.into_iter().skip(1));
    Ok(format!(
        "  const auto filter = [=](int64 row, int64 k) {{ {index} tap = ({index})k; {} return weight[{}]; }};\n  \
         const auto left = computed<{element}>(filter, {rows}, {depth_text});\n",
        tap.replace("\n  ", " ").trim(),
        writer.place(weight, &at)
    ))
}

/// Whether all dimensions but the first are dense in row-major order.
fn dense(view: &View) -> bool {
    let mut expected = Expr::int(1);
    for (size, stride) in view.sizes.iter().zip(&view.strides).skip(1).rev() {
        if *stride != expected && !size.is_int(1) {
            return false;
        }
        expected = &expected * size;
    }
    true
}

fn nth(list: &[String], k: usize) -> Result<String> {
    list.get(k).cloned().ok_or_else(|| Error::internal("a convolution of too few dimensions"))
}

fn number(list: &[i64], k: usize) -> Result<i64> {
    list.get(k).copied().ok_or_else(|| Error::internal("a convolution's stride or dilation is missing"))
}
