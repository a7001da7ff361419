//! Convolutions of images with few channels on tensor cores: templates fetch chunks of eight neighbours, which such an image has nowhere. So it is
//! copied first, with the filters, each pixel's channels filled up to eight with zeros: what the copy costs, a pass over the image, is far less
//! than fetching each window's elements one by one.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_program::library::{Convolution, View};
use douse_program::target::LibraryLaunches;

use super::convolution::{self, Source, index_type};
use super::function::{Argument, Draft, Writer};
use super::product::TEMPLATES;
use super::put::Epilogue;
use super::tiles::uses_tensor_cores;

/// Channels of a pixel of the copy.
const CHANNELS: i64 = 8;
const THREADS: i64 = 256;
/// With fewer channels, most of what would be multiplied is zeros.
const LEAST: i64 = 3;
/// Bytes from whose multiples on the filters lie.
const ALIGNMENT: i64 = 256;

/// Whether a convolution is better off so.
pub(super) fn are_worth_copying(writer: &Writer, convolution: &Convolution) -> Result<bool> {
    let Convolution { input, weight, out, stride, groups, transposed, .. } = convolution;
    let number = |view: &View, d: usize| view.sizes.get(d).and_then(Expr::as_int);
    let few = number(input, 1).is_some_and(|channels| (LEAST..CHANNELS).contains(&channels));
    let tiled = number(out, 1).is_some_and(|channels| channels >= CHANNELS);
    // Each pixel of the copy is read several times.
    let taps = Expr::product(weight.sizes.get(2..).unwrap_or_default());
    let overlap = taps.as_int().is_some_and(|taps| stride.iter().product::<i64>() < taps);
    let plain = *groups == 1 && !transposed && writer.parts.is_none();
    Ok(few && tiled && overlap && plain && uses_tensor_cores(writer.dtype(input)?))
}

/// The copy of a view whose channels are filled up: dense, the channels last.
fn filled(view: &View) -> Result<View> {
    let mut sizes = view.sizes.clone();
    let channels = sizes.get_mut(1).ok_or_else(|| Error::internal("a convolution of too few dimensions"))?;
    *channels = Expr::int(CHANNELS);
    let mut strides = vec![Expr::int(1); sizes.len()];
    let mut apart = Expr::int(CHANNELS);
    for d in (0..sizes.len()).rev().filter(|d| *d != 1) {
        strides[d] = apart.clone();
        apart = &apart * &sizes[d];
    }
    Ok(View { buffer: view.buffer, offset: Expr::int(0), sizes, strides })
}

/// Pixels of a view: everything but its channels.
fn pixels(view: &View) -> Expr {
    let sizes = view.sizes.iter().enumerate().filter(|(d, _)| *d != 1);
    Expr::product(&sizes.map(|(_, size)| size.clone()).collect::<Vec<_>>())
}

pub(super) fn emit(
    writer: &mut Writer,
    convolution: &Convolution,
    epilogue: Option<&Epilogue>,
) -> Result<LibraryLaunches> {
    let Convolution { input, weight, .. } = convolution;
    let copied = Convolution { input: filled(input)?, weight: filled(weight)?, ..convolution.clone() };
    let element = writer.element(input)?;
    let pixel = CHANNELS * writer.dtype(input)?.size() as i64;
    let image = &(&pixels(input) * pixel).ceil_div(&Expr::int(ALIGNMENT)) * ALIGNMENT;
    let filters = &(&pixels(weight) * pixel).ceil_div(&Expr::int(ALIGNMENT)) * ALIGNMENT;
    let declared = |constant: &str| {
        format!(
            "  {constant}{element} *image = static_cast<{constant}{element} *>(scratch);\n  \
             {constant}{element} *filters = reinterpret_cast<{constant}{element} *>(static_cast<{constant}char *>(scratch) + {});\n",
            writer.size(&image)
        )
    };
    let index = index_type(writer, &copied);
    let copy = |view: &View, name: &str, to: &str| -> String {
        let sizes: Vec<Expr> = view.sizes.iter().enumerate().filter(|(d, _)| *d != 1).map(|(_, s)| s.clone()).collect();
        let (split, mut at) = writer.split("rest", "p", &sizes);
        at.insert(1, "c".to_owned());
        let channels = writer.size(view.sizes.get(1).unwrap_or(&Expr::int(0)));
        format!(
            "    {index} rest = ({index})pixel;\n  {split}    Vector<{element}, {CHANNELS}> all;\n#pragma unroll\n    \
             for (int c = 0; c < {CHANNELS}; ++c) all.element[c] = c < {channels} ? {name}[{}] : {element}{{}};\n    \
             store_aligned({to} + pixel * {CHANNELS}, all);\n",
            writer.place(view, &at)
        )
    };
    let body = format!(
        "{}  int64 pixel = blockIdx.x * {THREADS}ll + threadIdx.x;\n  const int64 own = {}, others = {};\n  \
         if (pixel < own) {{\n{}    return;\n  }}\n  pixel -= own;\n  if (pixel < others) {{\n{}  }}\n",
        declared(""),
        writer.size(&pixels(input)),
        writer.size(&pixels(weight)),
        copy(input, "input", "image"),
        copy(weight, "weight", "filters"),
    );
    let threads = &pixels(input) + &pixels(weight);
    let declared = declared("const ");
    let draft = Draft {
        name: "fill_channels",
        templates: TEMPLATES,
        arguments: vec![Argument::read("input", input), Argument::read("weight", weight)],
        body,
        grid: [threads.ceil_div(&Expr::int(THREADS)), Expr::int(1), Expr::int(1)],
        threads: THREADS as u32,
        scratch: true,
        ..Draft::default()
    };
    let copy = writer.add(draft)?;
    let source = Source { input: "image", weight: "filters", arguments: vec![], declared, scratch: &image + &filters };
    let mut launches = convolution::emit_from(writer, &copied, epilogue, source)?;
    launches.launches.insert(0, copy);
    Ok(launches)
}
