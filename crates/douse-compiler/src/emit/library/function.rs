//! What the functions of library steps share: arguments, places in strided views, and functions that several steps share.

use std::borrow::Cow;
use std::collections::HashMap;

use douse_core::sym::{Expr, Ranges};
use douse_core::{DType, Error, Result};
use douse_program::library::View;
use douse_program::plan::{BufferKind, Plan};
use douse_program::target::{LibraryLaunch, TensorMap};

use super::part::Part;
use crate::emit::guard::Guards;
use crate::emit::index::Indexer;
use crate::emit::{Function, Modules, names};

/// A view as an argument.
#[derive(Clone)]
pub(super) struct Argument<'a> {
    pub name: Cow<'static, str>,
    pub view: &'a View,
    pub written: bool,
}

impl<'a> Argument<'a> {
    pub fn read(name: &'static str, view: &'a View) -> Argument<'a> {
        Argument { name: name.into(), view, written: false }
    }

    pub fn written(name: &'static str, view: &'a View) -> Argument<'a> {
        Argument { name: name.into(), view, written: true }
    }
}

/// A function to be written. `body` is what stands between its braces.
#[derive(Default)]
pub(super) struct Draft<'a> {
    pub name: &'static str,
    pub templates: &'static [&'static str],
    pub arguments: Vec<Argument<'a>>,
    /// Expressions of sizes that the body mentions.
    pub sizes: Vec<Expr>,
    pub body: String,
    pub grid: [Expr; 3],
    pub threads: u32,
    pub shared: u32,
    pub scratch: bool,
    /// The body calls special functions.
    pub special: bool,
    /// Blocks along y that are a cluster, which has each other's shared memory; there are no clusters of 0 or 1.
    pub cluster: i64,
    /// Blocks that should find room on a multiprocessor together, if not 0.
    pub together: i64,
    /// Tensor maps of arguments, by their places, which the body finds as `map_NAME`.
    pub maps: Vec<TensorMap>,
}

/// What functions are written for.
#[derive(Clone, Copy)]
pub(in crate::emit) struct Target<'a> {
    /// `sm_90`.
    pub arch: &'a str,
    /// Operands of float32 products and convolutions may be rounded to TF32.
    pub tf32: bool,
}

/// Writes functions into modules. Steps whose functions are equal share one.
pub(super) struct Writer<'a> {
    plan: &'a Plan,
    pub indexer: Indexer,
    shared_limit: i64,
    warpgroups: bool,
    clusters: bool,
    tf32: bool,
    guards: &'a Guards<'a>,
    modules: &'a mut Modules,
    written: HashMap<String, (u32, String)>,
    /// What the functions of the step at hand were asked for, where others stand beside it.
    pub parts: Option<Vec<Part>>,
    /// Elements of the results of all those, over the step's own.
    pub beside: f64,
}

impl<'a> Writer<'a> {
    pub fn new(
        plan: &'a Plan,
        ranges: &Ranges,
        Target { arch, tf32 }: Target,
        guards: &'a Guards<'a>,
        modules: &'a mut Modules,
    ) -> Writer<'a> {
        let indexer = Indexer { ranges: ranges.clone() };
        let (shared_limit, warpgroups) = (shared_limit(arch), matches!(arch, "sm_90a" | "soft_90a"));
        let clusters = matches!(arch, "sm_90" | "sm_90a");
        Writer {
            plan,
            indexer,
            shared_limit,
            warpgroups,
            clusters,
            tf32,
            guards,
            modules,
            written: HashMap::new(),
            parts: None,
            beside: 1.0,
        }
    }

    /// Bytes of shared memory that a block may have; so many in all, together, may the blocks of a multiprocessor.
    pub fn shared_limit(&self) -> i64 {
        self.shared_limit
    }

    /// Whether warpgroups multiply: on Hopper's `sm_90a` alone (and where softgpu has its instructions).
    pub fn warpgroups(&self) -> bool {
        self.warpgroups
    }

    /// Whether blocks can be clusters. (Later architectures have them too; there was none to try them on.)
    pub fn clusters(&self) -> bool {
        self.clusters
    }

    /// Whether tensor cores multiply float32, rounded to TF32.
    pub fn tf32(&self) -> bool {
        self.tf32
    }

    pub fn dtype(&self, view: &View) -> Result<DType> {
        let buffer = self.plan.buffers.get(view.buffer as usize);
        buffer.map(|b| b.dtype).ok_or_else(|| Error::internal(format!("buffer {} is not there", view.buffer)))
    }

    /// Whether nobody ever writes what an argument shows, so that it can be read before the work before a kernel is done.
    pub fn is_constant(&self, argument: &Argument) -> bool {
        let buffer = self.plan.buffers.get(argument.view.buffer as usize);
        !argument.written && matches!(buffer.map(|b| &b.kind), Some(BufferKind::Constant(_)))
    }

    /// The type of a view's elements.
    pub fn element(&self, view: &View) -> Result<&'static str> {
        names::element(self.dtype(view)?)
    }

    pub fn register(&self, view: &View) -> Result<&'static str> {
        names::register(self.dtype(view)?)
    }

    /// A size as an int64.
    pub fn size(&self, size: &Expr) -> String {
        let text = self.indexer.wide(size);
        // It stands beside `%` and `/`: only a name or a number goes without parentheses.
        let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if plain { text } else { format!("({text})") }
    }

    /// The place of an element: the view's offset and the coordinates (texts) by strides.
    pub fn place(&self, view: &View, coordinates: &[String]) -> String {
        let mut text = self.size(&view.offset);
        for (coordinate, stride) in coordinates.iter().zip(&view.strides) {
            match stride.as_int() {
                Some(0) => {}
                Some(1) => text.push_str(&format!(" + {coordinate}")),
                _ => text.push_str(&format!(" + {coordinate} * {}", self.size(stride))),
            }
        }
        text.strip_prefix("0 + ").map_or(text.clone(), str::to_owned)
    }

    /// Statements that split the linear count `from` (which they use up) into coordinates `NAME0...`, and their names.
    pub fn split(&self, from: &str, name: &str, sizes: &[Expr]) -> (String, Vec<String>) {
        let mut text = String::new();
        for (k, size) in sizes.iter().enumerate().rev() {
            if k == 0 {
                text.push_str(&format!("  const auto {name}0 = {from};\n"));
            } else {
                let size = self.size(size);
                text.push_str(&format!("  const auto {name}{k} = {from} % {size};\n  {from} /= {size};\n"));
            }
        }
        (text, (0..sizes.len()).map(|k| format!("{name}{k}")).collect())
    }

    /// Writes a function, or finds the one that is equal.
    pub fn add(&mut self, draft: Draft) -> Result<LibraryLaunch> {
        self.write(draft, false)
    }

    /// The same for a function that raises the error flag, which its body finds as `flag`.
    pub fn add_raising(&mut self, draft: Draft) -> Result<LibraryLaunch> {
        self.write(draft, true)
    }

    fn write(&mut self, draft: Draft, raises: bool) -> Result<LibraryLaunch> {
        let views = draft.arguments.iter().map(|a| a.view);
        let views = views.flat_map(|view| [&view.offset].into_iter().chain(&view.sizes).chain(&view.strides));
        let symbols = Writer::symbols(draft.sizes.iter().chain(views));
        let changed: Vec<_> = draft.arguments.iter().filter(|a| a.written).map(|a| a.view.buffer).collect();
        let mut pointers = Vec::with_capacity(draft.arguments.len());
        for Argument { name, view, .. } in &draft.arguments {
            let element = self.element(view)?;
            let kind = match self.plan.buffers.get(view.buffer as usize).map(|buffer| &buffer.kind) {
                _ if changed.contains(&view.buffer) => format!("{element} *"),
                // Nobody ever writes it: loads need not wait for stores. (What an earlier launch wrote must not be loaded so: where launches
                // overlap, such loads might come before the wait for that launch.)
                Some(BufferKind::Constant(_)) => format!("const {element} *__restrict__ "),
                _ => format!("const {element} *"),
            };
            pointers.push((kind, name.to_string(), view.buffer));
        }
        let map = |map: TensorMap| {
            let argument = draft.arguments.get(map.buffer as usize);
            argument
                .map(|a| (format!("map_{}", a.name), map))
                .ok_or_else(|| Error::internal("a tensor map of no argument"))
        };
        let maps = draft.maps.into_iter().map(map).collect::<Result<_>>()?;
        let part = Part {
            name: draft.name,
            templates: draft.templates,
            pointers,
            symbols,
            body: draft.body,
            grid: draft.grid,
            threads: draft.threads,
            shared: draft.shared,
            scratch: draft.scratch,
            special: draft.special,
            cluster: draft.cluster.max(1),
            together: draft.together,
            maps,
            raises,
            guarded: self.guards.needed(changed),
        };
        if let Some(parts) = &mut self.parts {
            // Written when all are there.
            parts.push(part);
            return Ok(LibraryLaunch::default());
        }
        self.launch(&[part]).ok_or_else(|| Error::internal("a launch of nothing"))
    }

    /// The module and name of a function, which is written if none is equal to it.
    pub fn function(
        &mut self,
        key: String,
        name: &str,
        special: bool,
        templates: &'static [&'static str],
        text: impl FnOnce(&str) -> String,
    ) -> (u32, String) {
        if let Some(found) = self.written.get(&key) {
            return found.clone();
        }
        // Apart from the names of kernels, which begin otherwise.
        let function = format!("library_{name}_{}", self.written.len());
        let module = self.modules.add(Function { text: text(&function), special, templates });
        self.written.insert(key, (module, function.clone()));
        (module, function)
    }
}

/// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". PTX runs on every architecture, so it gets the least.
pub(in crate::emit) fn shared_limit(arch: &str) -> i64 {
    let kilobytes =
        match arch.strip_prefix("sm_").or(arch.strip_prefix("soft_")).map(|rest| rest.trim_end_matches(['a', 'f'])) {
            Some("80" | "87") => 163,
            Some("90" | "100" | "101" | "103" | "110") => 227,
            _ => 99,
        };
    kilobytes * 1024
}

/// The last size or stride but `from_end`.
pub(super) fn nth_last(list: &[Expr], from_end: usize) -> Result<&Expr> {
    let at = list.len().checked_sub(from_end + 1);
    at.and_then(|at| list.get(at)).ok_or_else(|| Error::internal("a view of a library step has too few dimensions"))
}
