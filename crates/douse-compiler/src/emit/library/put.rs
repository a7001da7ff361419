//! Where the results of products go: to memory, or into the product's epilogue.

use douse_core::sym::{Expr, Symbol};
use douse_core::{Error, Result};
use douse_program::kernel::{Access, Effect, Kernel, Op};
use douse_program::library::View;
use douse_program::plan::{BufferId, Plan};
use douse_program::target::LibraryStep;

use super::function::{Argument, Writer};
use crate::emit::body::{Acting, Body, Needs, Text};
use crate::emit::names;
use crate::emit::vector::{Vectors, is_aligned};

/// Where results go, as text.
#[derive(Clone)]
pub(super) struct Put<'a> {
    /// Statements that the others need, of `rest`, `row` and `column`.
    pub setup: String,
    /// The coordinates of a result.
    pub at: Vec<String>,
    /// The dimension that `column` counts along, if there is one.
    pub along: Option<usize>,
    /// How far `column` counts. Along the dimension there may be several such rows, a group's each.
    pub columns: Expr,
    pub out: &'a View,
    /// What is added to the result, and where it comes from.
    pub bias: Option<(String, Argument<'a>)>,
    pub epilogue: Option<&'a Epilogue<'a>>,
}

impl<'a> Put<'a> {
    /// What the text mentions of memory.
    pub fn arguments(&self) -> Vec<Argument<'a>> {
        let mut arguments: Vec<Argument> = self.bias.iter().map(|(_, argument)| argument.clone()).collect();
        match self.epilogue {
            Some(epilogue) => arguments.extend(epilogue.arguments()),
            None => arguments.push(Argument { name: "out".into(), view: self.out, written: true }),
        }
        arguments
    }

    /// Sizes that the text mentions.
    pub fn sizes(&self) -> Vec<Expr> {
        self.epilogue.map_or(vec![], Epilogue::sizes)
    }

    /// Whether the text calls special functions.
    pub fn special(&self) -> bool {
        self.epilogue.is_some_and(|epilogue| epilogue.needs.special)
    }

    /// The declaration of `put`, where a row is called `row`, after `head`. It takes `run` results at once.
    pub fn declare(&self, writer: &Writer, row: &str, head: &str, run: i64) -> Result<String> {
        let setup = format!("{head}{}", self.setup);
        let function = |name: &str, value: &str| {
            format!("  const auto {name} = [=](int64 {row}, int64 column) {{ {setup} return {value}; }};\n")
        };
        let mut text = match self.epilogue {
            Some(epilogue) => epilogue.declare(self, row, &setup, run)?,
            None => {
                let stride = self.along.and_then(|d| self.out.strides.get(d)).map(|stride| writer.size(stride));
                format!(
                    "{}  const auto finish = stored<{}>(place, {});\n",
                    function("place", &format!("out + ({})", writer.place(self.out, &self.at))),
                    stride.is_some(),
                    stride.as_deref().unwrap_or("0")
                )
            }
        };
        match &self.bias {
            Some((bias, _)) => {
                text.push_str(&function("bias_at", bias));
                text.push_str("  const auto put = biased(bias_at, finish);\n");
            }
            None => text.push_str("  const auto &put = finish;\n"),
        }
        Ok(text)
    }
}

/// A kernel over a product's results, which are in registers.
pub(super) struct Epilogue<'a> {
    kernel: &'a Kernel,
    /// The parameter that is the result.
    result: u32,
    /// For each other parameter, its whole buffer.
    buffers: Vec<(u32, View)>,
    indexer: crate::emit::index::Indexer,
    needs: Needs,
}

impl<'a> Epilogue<'a> {
    /// The epilogue of a step whose result is `out`.
    pub fn of(plan: &'a Plan, writer: &Writer, step: LibraryStep<'a>, out: BufferId) -> Result<Option<Epilogue<'a>>> {
        let Some((number, args)) = step.epilogue else { return Ok(None) };
        let kernel = plan.kernels.get(number as usize).ok_or_else(|| Error::internal("an epilogue is not there"))?;
        let result = args.iter().position(|arg| *arg == out);
        let result = result.ok_or_else(|| Error::internal("an epilogue that does not read the product's result"))?;
        let whole = |buffer: BufferId| View { buffer, offset: Expr::int(0), sizes: vec![], strides: vec![] };
        let others = (0u32..).zip(args).filter(|(param, _)| *param as usize != result);
        let buffers = others.map(|(param, buffer)| (param, whole(*buffer))).collect();
        let indexer = crate::emit::index::Indexer { ranges: writer.indexer.ranges.with_loops(&kernel.outer) };
        let mut epilogue = Epilogue { kernel, result: result as u32, buffers, indexer, needs: Needs::default() };
        // Once for what it needs.
        epilogue.needs = epilogue.inside(&Vectors::none())?.1;
        Ok(Some(epilogue))
    }

    fn arguments(&self) -> impl Iterator<Item = Argument<'_>> {
        self.buffers.iter().map(|(param, view)| {
            let access = self.kernel.params.get(*param as usize).map(|p| p.access);
            Argument { name: format!("a{param}").into(), view, written: access != Some(Access::Read) }
        })
    }

    fn sizes(&self) -> Vec<Expr> {
        self.kernel.symbols().into_iter().map(|n| Expr::symbol(Symbol::Size(n))).collect()
    }

    /// The kernel's instructions and effects at one point.
    fn inside(&self, vectors: &Vectors) -> Result<(String, Needs)> {
        let (mut needs, mut out) = (Needs::default(), Text::default());
        let [stage] = self.kernel.stages.as_slice() else {
            return Err(Error::internal("an epilogue of several stages"));
        };
        let mut body = Body {
            kernel: self.kernel,
            stage,
            indexer: self.indexer.clone(),
            needs: &mut needs,
            out: &mut out,
            faults: false,
            moments: &[],
        };
        body.instructions(vectors)?;
        body.effects(vectors, Acting::All)?;
        Ok((out.text, needs))
    }

    /// The declaration of `finish`, which takes a run of results of a row. `setup`: statements that the coordinates need.
    fn declare(&self, put: &Put, row: &str, setup: &str, run: i64) -> Result<String> {
        let [stage] = self.kernel.stages.as_slice() else {
            return Err(Error::internal("an epilogue of several stages"));
        };
        let vectors = Vectors::of_run(stage, put.along, self.result);
        // Runs begin at multiples of their length: where that divides the row, none is cut off.
        let whole = put.along.is_some() && put.columns.modulo(&Expr::int(run)).is_int(0);
        let aligned = |index: &Expr| whole && put.along.is_some_and(|along| is_aligned(index, along, run));
        let declared = |number: usize, name: &str, text: &str| {
            let width = self.indexer.loop_width(number).name();
            format!("const {width} {name} = ({width})({text});\n")
        };
        let mut out = Text::default();
        let dtype = self.kernel.params.get(self.result as usize).map(|p| p.dtype);
        let dtype = dtype.ok_or_else(|| Error::internal("a parameter is not there"))?;
        let (element, register) = (names::element(dtype)?, names::register(dtype)?);
        // Its type is written out: NVRTC 13.0 takes generic lambdas for functions of the host.
        out.line(format!(
            "const auto finish = [=](int64 {row}, int64 first_column, const Run<{register}, {run}> &run, int {}) {{",
            if whole { "" } else { "count" }
        ));
        if whole {
            out.line(format!("const int count = {run};"));
        }
        out.line(format!("const auto result = rounded_run<{element}>(run);"));
        let loops = put.at.iter().enumerate();
        let [mut before, mut within] = [String::new(), String::new()];
        match put.along {
            Some(along) => {
                before.push_str(&format!("const int64 column = first_column;\n{setup}\n"));
                for (number, at) in loops {
                    match number == along {
                        true => {
                            before.push_str(&declared(number, "first", at));
                            within.push_str(&declared(number, &format!("i{number}"), "first + k"));
                        }
                        false => before.push_str(&declared(number, &format!("i{number}"), at)),
                    }
                }
                // The index at the first point: shadowed by each point's own below.
                before.push_str(&declared(along, &format!("i{along}"), "first"));
            }
            None => {
                within.push_str(&format!("const int64 column = first_column + k;\n{setup}\n"));
                loops.for_each(|(number, at)| within.push_str(&declared(number, &format!("i{number}"), at)));
            }
        }
        before.lines().for_each(|line| out.line(line));
        let mut after = Vec::new();
        for number in vectors.loads() {
            let Some(Op::Load { param, index, .. }) = stage.body.get(*number).map(|i| &i.op) else { continue };
            out.line(match *param == self.result {
                true => format!("const auto &v{number} = result;"),
                false => {
                    let place = format!("a{param} + ({})", self.indexer.write(index));
                    match aligned(index) {
                        true => format!("const auto v{number} = load_aligned<{run}>({place});"),
                        false => format!("const auto v{number} = load_vector<{run}>({place}, count);"),
                    }
                }
            });
        }
        for number in vectors.stores() {
            let Some(Effect::Store { param, index, value, .. }) = stage.effects.get(*number) else { continue };
            let (mut needs, mut none) = (Needs::default(), Text::default());
            let indexer = self.indexer.clone();
            let body = Body {
                kernel: self.kernel,
                stage,
                indexer,
                needs: &mut needs,
                out: &mut none,
                faults: false,
                moments: &[],
            };
            let (dtype, rounding) = (body.param(*param)?, body.rounding(*param, *value)?.name());
            out.line(format!("{} w{number}[{run}] = {{}};", names::register(dtype)?));
            let packed = format!("pack<{rounding}, {}>(w{number})", names::element(dtype)?);
            let place = format!("a{param} + ({})", self.indexer.write(index));
            after.push(match aligned(index) {
                true => format!("store_aligned({place}, {packed});"),
                false => format!("store_vector({place}, {packed}, count);"),
            });
        }
        out.line("#pragma unroll");
        out.line(format!("for (int k = 0; k < {run}; ++k) {{"));
        out.line("if (k < count) {");
        within.lines().for_each(|line| out.line(line));
        self.inside(&vectors)?.0.lines().for_each(|line| out.line(line));
        out.line("}");
        out.line("}");
        after.into_iter().for_each(|line| out.line(line));
        out.line("};");
        Ok(out.text)
    }
}
