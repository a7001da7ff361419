//! Common subexpressions: what is computed twice is computed once.

use std::collections::HashMap;

use douse_core::Result;
use douse_core::sym::{Cond, Expr, Symbol};
use douse_ir::{Builder, Module, Node, Op, Value};

use super::Context;
use super::rebuild::{Action, Info, Place, Visit, rebuild};

/// Replaces nodes by earlier equal ones of the same or an enclosing block, and drops checks that were made before.
///
/// Host reads of one value give one symbol. Random words are equal only if they are the same word of the same draw.
pub(super) fn cse(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    let mut state = State { context, scopes: vec![Scope::default()] };
    rebuild(module, &mut state)
}

/// Everything of a node but the operation's fields, which are compared.
type Key = (&'static str, Vec<Value>, Vec<Info>);

#[derive(Default)]
struct Scope {
    nodes: HashMap<Key, Vec<(Op, Vec<Value>)>>,
    required: Vec<Cond>,
}

struct State<'a, 'b> {
    context: &'a mut Context<'b>,
    scopes: Vec<Scope>,
}

impl State<'_, '_> {
    fn find(&self, node: &Node, infos: &[Info]) -> Option<(&Op, &[Value])> {
        let key = key(node, infos);
        self.scopes.iter().rev().find_map(|scope| {
            let (op, results) = scope.nodes.get(&key)?.iter().find(|(op, _)| same(op, &node.op))?;
            Some((op, results.as_slice()))
        })
    }
}

fn key(node: &Node, infos: &[Info]) -> Key {
    // The shape of coordinates has the symbol that the node defines, which differs.
    let infos = if matches!(node.op, Op::Nonzero { .. }) { Vec::new() } else { infos.to_vec() };
    (node.op.name(), node.operands.clone(), infos)
}

/// Whether two operations do the same to the same operands. Of checks the first message is the one that is ever seen.
fn same(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Nonzero { .. }, Op::Nonzero { .. }) | (Op::Item { .. }, Op::Item { .. }) => true,
        (Op::Assert { .. }, Op::Assert { .. }) => true,
        (Op::Check { size, wrap, .. }, Op::Check { size: other, wrap: wraps, .. }) => size == other && wrap == wraps,
        _ => a == b,
    }
}

impl Visit for State<'_, '_> {
    fn node(&mut self, _: &mut Builder, node: &Node, place: &Place) -> Result<Action> {
        if !node.op.blocks().is_empty() || !self.context.may() {
            return Ok(Action::Keep);
        }
        if let Op::Require { cond, .. } = &node.op {
            // Sizes that became one are equal.
            let known = cond.as_bool() == Some(true) || self.scopes.iter().any(|s| s.required.contains(cond));
            if known {
                self.context.done();
                return Ok(Action::Drop);
            }
            return Ok(Action::Keep);
        }
        let Some((op, results)) = self.find(node, &place.infos) else { return Ok(Action::Keep) };
        let results = results.to_vec();
        let action = match (op, &node.op) {
            (Op::Nonzero { symbol: first }, Op::Nonzero { symbol })
            | (Op::Item { symbol: first }, Op::Item { symbol }) => {
                Action::ReplaceSymbol(results, *symbol, Expr::symbol(Symbol::Size(*first)))
            }
            _ => Action::Replace(results),
        };
        self.context.done();
        Ok(action)
    }

    fn kept(&mut self, node: &Node, infos: &[Info], results: &[Value]) {
        let key = key(node, infos);
        let Some(scope) = self.scopes.last_mut() else { return };
        if let Op::Require { cond, .. } = &node.op {
            scope.required.push(cond.clone());
        } else if node.op.blocks().is_empty() {
            scope.nodes.entry(key).or_default().push((node.op.clone(), results.to_vec()));
        }
    }

    fn enter(&mut self) {
        self.scopes.push(Scope::default());
    }

    fn leave(&mut self) {
        self.scopes.pop();
    }
}
