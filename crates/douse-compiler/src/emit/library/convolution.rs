//! Convolutions, as products of the filters and the input's windows.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_program::library::{Convolution, View};
use douse_program::target::LibraryLaunches;

use super::few_channels;
use super::few_positions;
use super::function::{Argument, Draft, Writer};
use super::one;
use super::product::{self, Mapped, Product, Side, TEMPLATES};
use super::put::{Epilogue, Put};
use super::window::{start, window, window_chunks};

/// Output channels of a group from which tiles are worth it.
const TILED: i64 = 8;
const THREADS: i64 = 256;
/// Elements of a chunk that templates fetch at once, at most.
pub(super) const CHUNK: i64 = 8;

/// Where the input and the weight lie, in the text of a function.
pub(super) struct Source<'a> {
    pub input: &'static str,
    pub weight: &'static str,
    pub arguments: Vec<Argument<'a>>,
    /// Statements that declare the two, where they are no arguments.
    pub declared: String,
    /// Bytes at the start of the scratch memory that they take.
    pub scratch: Expr,
}

pub(super) fn emit(
    writer: &mut Writer,
    convolution: &Convolution,
    epilogue: Option<&Epilogue>,
) -> Result<LibraryLaunches> {
    if few_channels::are_worth_copying(writer, convolution)? {
        return few_channels::emit(writer, convolution, epilogue);
    }
    if few_positions::are_few(writer, convolution)? {
        return few_positions::emit(writer, convolution, epilogue);
    }
    let Convolution { input, weight, .. } = convolution;
    let arguments = vec![Argument::read("input", input), Argument::read("weight", weight)];
    let source = Source { input: "input", weight: "weight", arguments, declared: String::new(), scratch: Expr::int(0) };
    emit_from(writer, convolution, epilogue, source)
}

/// From where the two lie.
pub(super) fn emit_from(
    writer: &mut Writer,
    convolution: &Convolution,
    epilogue: Option<&Epilogue>,
    source: Source,
) -> Result<LibraryLaunches> {
    let Convolution { input, weight, out, groups, .. } = convolution;
    let shape = Shape::of(writer, convolution)?;
    let (positions, depth) = (shape.positions(), shape.depth(weight));
    let groups = Expr::int(*groups);
    // Results are neighbours along the columns: they should be neighbours in memory.
    let out_last = out.strides.get(1).is_some_and(|stride| stride.is_int(1));
    let window = window(writer, convolution, &shape, source.input)?;
    let put = put(writer, convolution, &shape, out_last, epilogue)?;
    if shape.group_out.as_int().is_some_and(|channels| channels < TILED) {
        return direct(writer, convolution, &shape, source, &window, &put);
    }
    let (windows_name, filters_name) = if out_last { ("left", "right") } else { ("right", "left") };
    let element = writer.element(input)?;
    let start = start(writer, convolution, &shape, source.input);
    let chunks = window_chunks(convolution, &shape);
    let adjacent = !shape.channels_last && input.strides.last().is_some_and(|stride| stride.is_int(1));
    let adjacent_rows = adjacent && chunks == "SCATTERED";
    let windows = format!(
        "  const auto {windows_name} = gathered<{element}, {}, {adjacent_rows}>(window, {start}, {}, {});\n",
        chunks,
        writer.size(&positions),
        writer.size(&depth)
    );
    let filters = filters(writer, convolution, &shape, &depth, filters_name, &source)?;
    let mapped = if out_last && source.scratch.is_int(0) {
        pointwise(writer, convolution, &shape, &positions, &depth)
    } else {
        None
    };
    let (rows, columns) =
        if out_last { (positions, shape.group_out.clone()) } else { (shape.group_out.clone(), positions) };
    let product = Product {
        name: "convolution",
        dtype: writer.dtype(out)?,
        arguments: source.arguments,
        scratch: source.scratch,
        sizes: [&convolution.padding, &input.sizes, &input.strides].into_iter().flatten().cloned().collect(),
        batch: groups,
        rows,
        columns,
        depth,
        deep: chunks == "WHOLE" && !filters.contains("SCATTERED"),
        coordinates: String::new(),
        operands: source.declared + &window + &windows + &filters,
        mapped,
        put,
    };
    product::emit(writer, product)
}

/// The operands of a convolution by one point of the image each, which is a product of matrices: where the image's points follow each other.
fn pointwise(
    writer: &Writer,
    convolution: &Convolution,
    shape: &Shape,
    positions: &Expr,
    depth: &Expr,
) -> Option<Mapped> {
    let Convolution { input, weight, stride, padding, .. } = convolution;
    let one = |sizes: &[Expr]| sizes.iter().all(|size| size.is_int(1));
    let plain = !convolution.transposed && convolution.groups == 1 && one(weight.sizes.get(2..)?);
    if !plain
        || stride.iter().any(|step| *step != 1)
        || !padding.iter().all(|size| size.is_int(0))
        || !shape.channels_last
        || !dense(convolution, shape)
    {
        return None;
    }
    // Batch and spatial dimensions, the last of them first.
    let dims = input.sizes.iter().zip(&input.strides).enumerate().filter(|(d, _)| *d != 1).map(|(_, dim)| dim).rev();
    let mut apart: Option<(Expr, Expr)> = None;
    for (size, stride) in dims.filter(|(size, _)| !size.is_int(1)) {
        let (first, expected) = apart.get_or_insert_with(|| (stride.clone(), stride.clone()));
        if stride != expected {
            return None;
        }
        apart = Some((first.clone(), &*expected * size));
    }
    let (row_stride, _) = apart?;
    let unit = Expr::int(1);
    let image = Side { rows: positions, depth, row_stride: &row_stride, depth_stride: &unit };
    let filters = Side { rows: &shape.group_out, depth, row_stride: weight.strides.first()?, depth_stride: &unit };
    Mapped::of(writer, (&image, input, (0, "input")), (&filters, weight, (1, "weight")), &[], &[])
}

/// What the parts of the text have in common. In them, `rest` is the group.
pub(super) struct Shape<'a> {
    pub batch: &'a Expr,
    pub spatial: &'a [Expr],
    pub group_out: Expr,
    pub group_in: Expr,
    /// The input's channels are neighbours: then they run fastest along the depth.
    pub channels_last: bool,
    /// The type of places.
    pub index: &'static str,
}

/// Where the places of all elements, none of which lies before the first, fit 32 bits, every index does.
pub(super) fn index_type(writer: &Writer, convolution: &Convolution) -> &'static str {
    let reach = |view: &View| {
        let dims = view.sizes.iter().zip(&view.strides);
        dims.fold(Expr::product(&view.sizes), |reach, (size, stride)| &reach + &(size * stride))
    };
    let all = [&convolution.input, &convolution.out, &convolution.weight];
    let ranges = &writer.indexer.ranges;
    let narrow = all.iter().all(|view| {
        view.strides.iter().all(|stride| ranges.non_negative(stride))
            && ranges.max(&reach(view)).is_some_and(|most| most < 1 << 30)
    });
    if narrow { "int32" } else { "int64" }
}

impl<'a> Shape<'a> {
    pub fn of(writer: &Writer, convolution: &'a Convolution) -> Result<Shape<'a>> {
        let Convolution { input, out, groups, .. } = convolution;
        let [batch, out_channels, spatial @ ..] = out.sizes.as_slice() else {
            return Err(Error::internal("a convolution of too few dimensions"));
        };
        let channels = input.sizes.get(1).ok_or_else(|| Error::internal("a convolution of too few dimensions"))?;
        let groups = Expr::int(*groups);
        Ok(Shape {
            batch,
            spatial,
            group_out: out_channels.floor_div(&groups),
            group_in: channels.floor_div(&groups),
            channels_last: input.strides.get(1).is_some_and(|stride| stride.is_int(1)),
            index: index_type(writer, convolution),
        })
    }

    /// Places of the output.
    pub fn positions(&self) -> Expr {
        self.batch * &Expr::product(self.spatial)
    }

    /// Taps of a window.
    pub fn depth(&self, weight: &View) -> Expr {
        &self.group_in * &Expr::product(weight.sizes.get(2..).unwrap_or_default())
    }

    /// Statements that split a tap, a count along the depth, and its coordinates: channel of the group, then place in the kernel.
    pub fn split_tap(&self, writer: &Writer, weight: &View) -> Result<(String, Vec<String>)> {
        let mut sizes: Vec<Expr> = weight.sizes.get(2..).unwrap_or_default().to_vec();
        let channel = if self.channels_last { sizes.len() } else { 0 };
        sizes.insert(channel, self.group_in.clone());
        let (text, mut at) = writer.split("tap", "t", &sizes);
        let channel = at.remove(channel);
        at.insert(0, channel);
        Ok((flat(&text), at))
    }

    pub fn split_position(&self, writer: &Writer) -> (String, Vec<String>) {
        let mut sizes = vec![self.batch.clone()];
        sizes.extend(self.spatial.iter().cloned());
        let (text, at) = writer.split("position", "p", &sizes);
        (flat(&text), at)
    }
}

fn flat(text: &str) -> String {
    text.replace("\n  ", " ").trim().to_owned()
}

/// The declaration of the loader of the filters: its rows are the group's output channels, its depth the taps.
pub(super) fn filters(
    writer: &Writer,
    convolution: &Convolution,
    shape: &Shape,
    depth: &Expr,
    name: &str,
    source: &Source,
) -> Result<String> {
    let (weight, from) = (&convolution.weight, source.weight);
    let rows = writer.size(&shape.group_out);
    if dense(convolution, shape) {
        let row_stride = row_stride(convolution).cloned().unwrap_or_else(|| Expr::int(0));
        let side = Side { rows: &shape.group_out, depth, row_stride: &row_stride, depth_stride: &Expr::int(1) };
        let start =
            format!("{from} + ({} + rest * {rows} * {})", writer.size(&weight.offset), writer.size(&row_stride));
        return side.loader(writer, weight, name, &start);
    }
    let (tap, mut at) = shape.split_tap(writer, weight)?;
    let channel = nth(&at, 0)?;
    let (first, second) = match convolution.transposed {
        true => (format!("(rest * {} + {channel})", writer.size(&shape.group_in)), "row".to_owned()),
        false => (format!("(rest * {rows} + row)"), channel),
    };
    at.splice(0..1, [first, second]);
    let (element, index) = (writer.element(weight)?, shape.index);
    Ok(format!(
        "  const auto filter = [=](int64 row, int64 k) -> const {element} * {{ {index} tap = ({index})k; {tap} return {from} + ({}); }};\n  \
         const auto {name} = gathered<{element}, SCATTERED, false>(filter, {from}, {rows}, {});\n",
        writer.place(weight, &at),
        writer.size(depth)
    ))
}

/// How far the filters of output channels lie apart.
pub(super) fn row_stride(convolution: &Convolution) -> Option<&Expr> {
    convolution.weight.strides.get(usize::from(convolution.transposed))
}

/// Whether an output channel's filter lies as its taps are counted. (Those of a transposed convolution in groups are never taken for it.)
pub(super) fn dense(convolution: &Convolution, shape: &Shape) -> bool {
    let Convolution { weight, groups, transposed, .. } = convolution;
    if *transposed && *groups != 1 {
        return false;
    }
    let rows = usize::from(*transposed);
    let all = weight.sizes.iter().zip(&weight.strides).enumerate();
    let mut dims: Vec<(&Expr, &Expr)> = all.filter(|(d, _)| *d != rows).map(|(_, dim)| dim).collect();
    if shape.channels_last && !dims.is_empty() {
        dims.rotate_left(1);
    }
    let mut expected = Expr::int(1);
    for (size, stride) in dims.into_iter().rev() {
        if *stride != expected && !size.is_int(1) {
            return false;
        }
        expected = &expected * size;
    }
    true
}

/// Where results go: rows are positions where the output's channels are neighbours (`out_last`), else channels.
pub(super) fn put<'a>(
    writer: &Writer,
    convolution: &'a Convolution,
    shape: &Shape,
    out_last: bool,
    epilogue: Option<&'a Epilogue>,
) -> Result<Put<'a>> {
    let Convolution { bias, out, .. } = convolution;
    let (position, position_at) = shape.split_position(writer);
    let (position_from, channel) = if out_last { ("row", "column") } else { ("column", "row") };
    let channel = format!("(rest * {} + {channel})", writer.size(&shape.group_out));
    let mut at = vec![nth(&position_at, 0)?, channel.clone()];
    at.extend(position_at.iter().skip(1).cloned());
    let index = shape.index;
    Ok(Put {
        setup: format!("{index} position = ({index}){position_from}; {position}"),
        at,
        along: out_last.then_some(1),
        columns: if out_last { shape.group_out.clone() } else { shape.batch * &Expr::product(shape.spatial) },
        out,
        bias: bias.as_ref().map(|bias| {
            let value = format!("load(bias + {})", writer.place(bias, std::slice::from_ref(&channel)));
            (value, Argument::read("bias", bias))
        }),
        epilogue,
    })
}

/// A thread an output element: for depthwise convolutions, and groups of few channels.
fn direct<'a>(
    writer: &mut Writer,
    convolution: &'a Convolution,
    shape: &Shape,
    source: Source<'a>,
    window: &str,
    put: &Put<'a>,
) -> Result<LibraryLaunches> {
    let out = &convolution.out;
    let (element, register) = (writer.element(out)?, writer.register(out)?);
    let (positions, depth) = (shape.positions(), shape.depth(&convolution.weight));
    let channels = &shape.group_out * &Expr::int(convolution.groups);
    let total = &positions * &channels;
    let filters = filters(writer, convolution, shape, &depth, "left", &source)?;
    let (out_last, declared) = (put.along.is_some(), put.declare(writer, "row", "", 1)?);
    let (group_out, positions, channels) =
        (writer.size(&shape.group_out), writer.size(&positions), writer.size(&channels));
    // Threads that are neighbours take elements that are.
    let decode = match out_last {
        true => format!("const int64 all = rest % {channels}, position = rest / {channels};"),
        false => format!("const int64 position = rest % {positions}, all = rest / {positions};"),
    };
    let (row, column) = if out_last { ("position", "channel") } else { ("channel", "position") };
    let body = format!(
        "  int64 rest = blockIdx.x * {THREADS}ll + threadIdx.x;\n  if (rest >= {}) return;\n  {decode}\n  \
         const int64 channel = all % {group_out};\n  rest = all / {group_out};\n{window}{filters}{declared}  \
         Run<{register}, 1> run = {{{{({register})0}}}};\n  \
         for (int64 k = 0; k < {}; ++k) {{\n    const {element} *p = window(position, k);\n    \
         if (p) run.x[0] = multiply_add(Element<{element}>::load(left.at(channel, k)), load(p), run.x[0]);\n  }}\n  \
         put({row}, {column}, run, 1);\n",
        writer.size(&total),
        writer.size(&depth),
    );
    let mut arguments = source.arguments;
    arguments.extend(put.arguments());
    let launch = writer.add(Draft {
        name: "convolution",
        templates: TEMPLATES,
        arguments,
        sizes: [convolution.padding.clone(), put.sizes()].concat(),
        body,
        grid: [total.ceil_div(&Expr::int(THREADS)), Expr::int(1), Expr::int(1)],
        threads: THREADS as u32,
        shared: 0,
        scratch: false,
        special: put.special(),
        ..Draft::default()
    })?;
    Ok(one(launch))
}

pub(super) fn nth(list: &[String], k: usize) -> Result<String> {
    list.get(k).cloned().ok_or_else(|| Error::internal("a convolution of too few dimensions"))
}
