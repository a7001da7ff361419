//! Local rewrites, each a function headed by the equation that it applies.

mod control;
mod movement;
mod neighbours;
mod pointwise;
mod reduction;

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_ir::{Builder, Module, Node, Op, Value};

use super::Context;
use super::rebuild::{Action, Info, Place, Visit, rebuild};

/// What a rule makes of a node: values for its results, or nothing where it does not apply.
type Rewrite = Result<Option<Vec<Value>>>;

/// A node has operands of the new module; with it come its results' dtypes and shapes. A rule builds nodes only if it applies.
type Rule = fn(&mut Builder, &Node, &[Info]) -> Rewrite;

const CONCAT: &[Rule] = &[neighbours::concat];

/// The rules for an operation, tried in this order: the first that applies is taken.
fn rules(op: &Op) -> &'static [Rule] {
    match op {
        Op::Unary(_) => pointwise::UNARY,
        Op::Binary(_) => pointwise::BINARY,
        Op::Select => pointwise::SELECT,
        Op::Cast => pointwise::CAST,
        Op::Check { .. } => movement::CHECK,
        Op::Move { .. } => movement::MOVE,
        Op::Scatter { .. } => movement::SCATTER,
        Op::Concat { .. } => CONCAT,
        Op::Reduce { .. } => reduction::REDUCE,
        Op::ArgReduce { .. } => reduction::ARG_REDUCE,
        Op::Scan { .. } => reduction::SCAN,
        _ => &[],
    }
}

/// Applies the rules to every node, from the first to the last, so that a node sees its operands simplified.
pub(super) fn simplify(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    rebuild(module, &mut State { context })
}

struct State<'a, 'b> {
    context: &'a mut Context<'b>,
}

impl Visit for State<'_, '_> {
    fn node(&mut self, builder: &mut Builder, node: &Node, place: &Place) -> Result<Action> {
        if !self.context.may() {
            return Ok(Action::Keep);
        }
        if let Some(action) = control::decide(builder, node, place) {
            self.context.done();
            return Ok(action);
        }
        for rule in rules(&node.op) {
            let Some(values) = rule(builder, node, &place.infos)? else { continue };
            // A rewrite may find a size in another form, which the readers of the value were not built for.
            let same = values
                .iter()
                .zip(&place.infos)
                .all(|(v, (dtype, shape))| builder.dtype(*v) == *dtype && builder.shape(*v) == shape.as_slice());
            if same {
                self.context.done();
                return Ok(Action::Replace(values));
            }
        }
        Ok(Action::Keep)
    }
}

/// The one operand of a value's node, where the node is of that operation.
fn operand_of(builder: &Builder, value: Value, is: impl Fn(&Op) -> bool) -> Option<Value> {
    let node = builder.definition(value)?;
    match node.operands.as_slice() {
        [x] if is(&node.op) => Some(*x),
        _ => None,
    }
}

/// What an int64 value is at its coordinates.
fn as_expr(builder: &Builder, value: Value) -> Option<Expr> {
    match &builder.definition(value)?.op {
        Op::Iota(expr) => Some(expr.clone()),
        Op::Full(c) if builder.dtype(value) == DType::I64 => Some(Expr::int(c.to_i64())),
        _ => None,
    }
}
