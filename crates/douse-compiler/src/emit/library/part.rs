//! Functions of library steps: each step's own, or one for the steps that stand together.

use std::collections::BTreeSet;

use douse_core::sym::{Expr, Symbol};
use douse_program::plan::BufferId;
use douse_program::target::{Launch, LibraryLaunch, LibraryLaunches, TensorMap};

use super::function::Writer;
use crate::emit::kernel::GUARD;
use crate::emit::overlap::{BEGIN, begins};

/// What one step asks of a function.
#[derive(Clone)]
pub(super) struct Part {
    pub name: &'static str,
    pub templates: &'static [&'static str],
    /// Type and name of each pointer, and its buffer.
    pub pointers: Vec<(String, String, BufferId)>,
    pub symbols: BTreeSet<u32>,
    pub body: String,
    pub grid: [Expr; 3],
    pub threads: u32,
    pub shared: u32,
    pub scratch: bool,
    pub special: bool,
    pub cluster: i64,
    pub together: i64,
    /// Name of each tensor map.
    pub maps: Vec<(String, TensorMap)>,
    /// Raises the error flag, which the body finds as `flag`.
    pub raises: bool,
    /// Does nothing where the flag is raised.
    pub guarded: bool,
}

impl Part {
    /// The parameters that are tensor maps.
    fn map_parameters(&self, prefix: &str) -> Vec<String> {
        self.maps.iter().map(|(name, _)| format!("const __grid_constant__ TensorMap {prefix}{name}")).collect()
    }

    /// The parameters that are pointers, their names after `prefix`.
    fn parameters(&self, prefix: &str) -> Vec<String> {
        self.pointers.iter().map(|(kind, name, _)| format!("{kind}{prefix}{name}")).collect()
    }

    /// The parameters that are no pointers to buffers, as types and names.
    fn others(&self) -> Vec<(&'static str, String)> {
        let mut others: Vec<_> = self.symbols.iter().map(|s| ("int64 ", format!("s{s}"))).collect();
        if self.scratch {
            others.push(("void *", "scratch".to_owned()));
        }
        if self.raises || self.guarded {
            others.push((if self.raises { "ErrorFlag *" } else { "const ErrorFlag *" }, "flag".to_owned()));
        }
        others
    }

    /// Whether one function can do both: of blocks of one size, along one dimension of the grid, with templates of one family.
    pub fn joins(&self, other: &Part) -> bool {
        let plain = |part: &Part| !part.scratch && !part.raises && !part.guarded && part.grid[2].is_int(1);
        let alike = self.templates.starts_with(other.templates) || other.templates.starts_with(self.templates);
        plain(self)
            && plain(other)
            && alike
            && (self.threads, self.cluster, self.together) == (other.threads, other.cluster, other.together)
            && self.grid[1] == other.grid[1]
    }

    /// Whether another differs in nothing but its memory.
    fn is_alike(&self, other: &Part) -> bool {
        let pointers = |part: &Part| -> Vec<_> {
            part.pointers.iter().map(|(kind, name, _)| (kind.clone(), name.clone())).collect()
        };
        let maps = |part: &Part| -> Vec<_> { part.maps.iter().map(|(name, _)| name.clone()).collect() };
        (&self.body, &self.grid, &self.symbols) == (&other.body, &other.grid, &other.symbols)
            && pointers(self) == pointers(other)
            && maps(self) == maps(other)
    }

    /// A function of the part's own, whose blocks are counted from 0.
    fn device_function(&self, number: usize) -> String {
        let sizes = self.symbols.iter().map(|s| format!("int64 s{s}"));
        let maps = self.maps.iter().map(|(name, _)| format!("const TensorMap &{name}"));
        let own = list(maps.chain(self.parameters("")).chain(sizes).chain(["uint32 block".to_owned()]));
        let begin = if begins(&self.body) { "" } else { BEGIN };
        let body = self.body.replace("blockIdx.x", "block");
        format!("DEVICE void PART_{number}({own}) {{\n{begin}{body}}}\n")
    }

    /// The body, after what it does first.
    fn statements(&self) -> String {
        // The flag is of the work before.
        if self.guarded { format!("{BEGIN}  {GUARD}\n{}", self.body) } else { self.body.clone() }
    }
}

/// A comma between each.
fn list(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().collect::<Vec<_>>().join(", ")
}

impl Writer<'_> {
    /// One launch for all parts, which [join](Part::joins). Functions that are equal are one.
    pub(super) fn launch(&mut self, parts: &[Part]) -> Option<LibraryLaunch> {
        let first = parts.first()?;
        let (mut symbols, mut templates, mut grid) = (BTreeSet::new(), first.templates, Expr::int(0));
        for part in parts {
            symbols.extend(&part.symbols);
            // Those of one family begin alike.
            if part.templates.len() > templates.len() {
                templates = part.templates;
            }
            grid = &grid + &part.grid[0];
        }
        let text = match parts {
            [part] => {
                let others = part.others().into_iter().map(|(kind, name)| format!("{kind}{name}"));
                let pointers = part.parameters("").into_iter();
                let parameters = list(part.map_parameters("").into_iter().chain(pointers).chain(others));
                format!("NAME({parameters}) {{\n{}}}\n", part.statements())
            }
            parts => self.joined(parts, &symbols),
        };
        let cluster = match first.cluster {
            1 => String::new(),
            blocks => format!("__cluster_dims__(1, {blocks}, 1) "),
        };
        let threads = first.threads;
        let bounds = if first.together == 0 { String::new() } else { format!(", {}", first.together) };
        let (mut maps, mut before) = (Vec::new(), 0);
        for part in parts {
            maps.extend(part.maps.iter().map(|(_, map)| TensorMap { buffer: before + map.buffer, ..map.clone() }));
            before += part.pointers.len() as u32;
        }
        let (head, global) = text.rsplit_once("NAME(").map_or(("", text.as_str()), |(head, rest)| (head, rest));
        let special = parts.iter().any(|part| part.special);
        let key = format!("{} {threads}{bounds} {cluster}{text}", first.name);
        let (module, function) = self.function(key, first.name, special, templates, |name| {
            let head = head.replace("PART_", &format!("{name}_"));
            let body = global.replace("PART_", &format!("{name}_"));
            format!("{head}extern \"C\" __global__ void {cluster}__launch_bounds__({threads}{bounds}) {name}({body}")
        });
        let launch = Launch {
            module,
            function,
            grid: [grid, first.grid[1].clone(), first.grid[2].clone()],
            block: [threads, 1, 1],
            shared: parts.iter().map(|part| part.shared).max().unwrap_or(0),
            symbols: symbols.into_iter().collect(),
            scratch: first.scratch,
            flag: first.raises,
            guard: first.guarded,
            random: false,
            maps,
        };
        let buffers = parts.iter().flat_map(|part| &part.pointers).map(|(_, _, buffer)| *buffer).collect();
        Some(LibraryLaunch { launch, buffers })
    }

    /// A device function for each part, and the function whose blocks each do their share of one. Parts that differ in their memory alone are one
    /// function, which is given that of the block's part.
    fn joined(&self, parts: &[Part], symbols: &BTreeSet<u32>) -> String {
        let (mut text, mut calls) = (String::new(), String::from("  uint32 block = blockIdx.x;\n"));
        let maps = (0..).zip(parts).flat_map(|(n, part): (usize, _)| part.map_parameters(&format!("p{n}_")));
        let pointers = (0..).zip(parts).flat_map(|(n, part): (usize, _)| part.parameters(&format!("p{n}_")));
        let sizes = symbols.iter().map(|s| format!("int64 s{s}"));
        let parameters = list(maps.chain(pointers).chain(sizes));
        let alike = parts.iter().skip(1).all(|part| parts.first().is_some_and(|first| first.is_alike(part)));
        for (number, part) in parts.iter().enumerate().take(if alike { 1 } else { parts.len() }) {
            text.push_str(&part.device_function(number));
            let name = |name: &str| match alike {
                // The last of all where the others are not it.
                true => (0..parts.len() - 1).rev().fold(format!("p{}_{name}", parts.len() - 1), |others, n| {
                    format!("(part == {n} ? p{n}_{name} : {others})")
                }),
                false => format!("p{number}_{name}"),
            };
            let maps = part.maps.iter().map(|(map, _)| name(map));
            let pointers = part.pointers.iter().map(|(_, pointer, _)| name(pointer));
            let sizes = part.symbols.iter().map(|s| format!("s{s}"));
            let given = list(maps.chain(pointers).chain(sizes).chain(["block".to_owned()]));
            let blocks = self.size(&part.grid[0]);
            calls.push_str(&match number + 1 == parts.len() {
                _ if alike => format!(
                    "  const uint32 part = block / (uint32){blocks};\n  block -= part * (uint32){blocks};\n  PART_0({given});\n"
                ),
                true => format!("  PART_{number}({given});\n"),
                false => format!("  if (block < {blocks}) return PART_{number}({given});\n  block -= {blocks};\n"),
            });
        }
        format!("{text}NAME({parameters}) {{\n{calls}}}\n")
    }

    /// The symbols that expressions mention.
    pub(super) fn symbols<'e>(expressions: impl IntoIterator<Item = &'e Expr>) -> BTreeSet<u32> {
        let mut symbols = BTreeSet::new();
        for expression in expressions {
            expression.visit(&mut |symbol| {
                if let Symbol::Size(n) = symbol {
                    symbols.insert(n);
                }
            });
        }
        symbols
    }

    /// The launches of steps that stand together, whose functions were asked for these parts: one for those that join the first.
    pub(super) fn join(&mut self, steps: &mut [LibraryLaunches], parts: Vec<Vec<Part>>) {
        let first = parts.first().and_then(|own| match own.as_slice() {
            [part] => Some(part),
            _ => None,
        });
        let joins = |own: &[Part]| matches!((first, own), (Some(first), [part]) if first.joins(part));
        let together: Vec<Part> = parts.iter().filter(|own| joins(own)).flatten().cloned().collect();
        for (number, (step, own)) in steps.iter_mut().zip(&parts).enumerate() {
            step.launches = match (joins(own), number) {
                (true, 0) => self.launch(&together).into_iter().collect(),
                (true, _) => vec![],
                (false, _) => own.iter().filter_map(|part| self.launch(std::slice::from_ref(part))).collect(),
            };
        }
    }
}
