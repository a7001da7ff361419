//! `einsum`: sums of products by an equation over labelled dimensions.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::parts::Parts;

pub const ROWS: &[Row] = &[("aten.einsum.default", einsum)];

/// A dimension of an operand or of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// A dimension that `...` stands for, counted from its last.
    Ellipsis(usize),
    Letter(char),
}

/// An equation over operands of known ranks.
#[derive(Debug, PartialEq, Eq)]
struct Equation {
    operands: Vec<Vec<Label>>,
    output: Vec<Label>,
}

/// The labels of a term whose `...` stands for `dots` dimensions; `None` where it has anything but letters.
fn labels(term: &str, dots: usize) -> Option<Vec<Label>> {
    let mut labels = Vec::new();
    let mut rest = term;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            labels.extend((0..dots).rev().map(Label::Ellipsis));
            rest = after;
        } else if c.is_ascii_alphabetic() {
            labels.push(Label::Letter(c));
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(labels)
}

impl Equation {
    /// `None` where the text is no equation for operands of these ranks.
    fn parse(text: &str, ranks: &[usize]) -> Option<Equation> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != ranks.len() {
            return None;
        }
        let mut operands = Vec::new();
        let mut most = 0;
        for (term, rank) in terms.iter().zip(ranks) {
            let letters = term.chars().filter(char::is_ascii_alphabetic).count();
            let dots = if term.contains("...") { rank.checked_sub(letters)? } else { 0 };
            most = most.max(dots);
            let own = labels(term, dots)?;
            if own.len() != *rank {
                return None;
            }
            operands.push(own);
        }
        let output = match right {
            Some(right) => labels(right, most)?,
            None => {
                // All dimensions of `...`, then the letters that stand once, in order.
                let all: Vec<Label> = operands.iter().flatten().copied().collect();
                let mut once: Vec<Label> = all
                    .iter()
                    .filter(|l| matches!(l, Label::Letter(_)) && all.iter().filter(|o| o == l).count() == 1)
                    .copied()
                    .collect();
                once.sort_unstable();
                (0..most).rev().map(Label::Ellipsis).chain(once).collect()
            }
        };
        let known = |l: &Label| operands.iter().any(|o| o.contains(l));
        let twice = (1..output.len()).any(|i| output[..i].contains(&output[i]));
        (output.iter().all(known) && !twice).then_some(Equation { operands, output })
    }

    /// Every label, those of the result first.
    fn all(&self) -> Vec<Label> {
        let mut all = self.output.clone();
        for label in self.operands.iter().flatten() {
            if !all.contains(label) {
                all.push(*label);
            }
        }
        all
    }
}

/// An operand with a dimension for each of `all`, of size 1 where it has none; a label that it has twice is a diagonal.
fn spread(imp: &mut Importer, x: Value, own: &[Label], all: &[Label]) -> Result<Value> {
    let sizes = imp.b.shape(x).to_vec();
    let mut shape = Vec::with_capacity(all.len());
    for label in all {
        let mut at = own.iter().zip(&sizes).filter(|(l, _)| *l == label).map(|(_, s)| s.clone());
        let size = at.next().unwrap_or(Expr::int(1));
        for other in at {
            imp.b.require_equal(&size, &other, "sizes of a repeated label");
        }
        shape.push(size);
    }
    let place = coordinates(all.len());
    let map = own.iter().map(|l| all.iter().position(|o| o == l).map_or(Expr::int(0), |i| place[i].clone()));
    let map = map.collect();
    imp.b.remap(x, shape, map)
}

/// The product of two operands of equal rank, broadcast, summed over dimensions, which stay with size 1.
fn pair(imp: &mut Importer, x: Parts, y: Parts, summed: &[usize]) -> Result<Parts> {
    let one = |imp: &Importer, v: Parts, d: usize| imp.b.shape(v.re)[d].is_int(1);
    let only_x: Vec<usize> = summed.iter().copied().filter(|d| one(imp, y, *d)).collect();
    let only_y: Vec<usize> = summed.iter().copied().filter(|d| one(imp, x, *d) && !only_x.contains(d)).collect();
    let (x, y) = (x.sum_keep(imp, &only_x)?, y.sum_keep(imp, &only_y)?);
    let summed: Vec<usize> = summed.iter().copied().filter(|d| !only_x.contains(d) && !only_y.contains(d)).collect();
    if summed.is_empty() {
        return x.mul(imp, y);
    }
    // As a batch of matrix products: [both, x, summed] by [both, summed, y].
    let rank = imp.b.rank(x.re);
    let free = |d: &usize| !summed.contains(d);
    let rows: Vec<usize> = (0..rank).filter(free).filter(|d| one(imp, y, *d)).collect();
    let columns: Vec<usize> = (0..rank).filter(free).filter(|d| one(imp, x, *d) && !rows.contains(d)).collect();
    let both: Vec<usize> = (0..rank).filter(free).filter(|d| !rows.contains(d) && !columns.contains(d)).collect();
    let sizes = |imp: &Importer, v: Parts, dims: &[usize]| {
        dims.iter().map(|d| imp.b.shape(v.re)[*d].clone()).collect::<Vec<Expr>>()
    };
    let batch = sizes(imp, x, &both);
    for (d, size) in both.iter().zip(&batch) {
        let other = imp.b.shape(y.re)[*d].clone();
        imp.b.require_equal(size, &other, "sizes of one label");
    }
    let (m, k, n) = (sizes(imp, x, &rows), sizes(imp, x, &summed), sizes(imp, y, &columns));
    let of = |sizes: &[Expr]| Expr::product(sizes);
    let mut as_batch = |v: Value, order: [&[usize]; 4], to: [Expr; 3]| {
        let v = imp.b.permute(v, &order.concat())?;
        imp.b.reshape(v, to.to_vec())
    };
    let x = x.map(|v| as_batch(v, [&both, &rows, &summed, &columns], [of(&batch), of(&m), of(&k)]))?;
    let y = y.map(|v| as_batch(v, [&both, &summed, &columns, &rows], [of(&batch), of(&k), of(&n)]))?;
    let product = x.product(imp, y, |imp, a, b| imp.b.matmul(a, b))?;
    // Back to the order of the labels.
    let order = [both.as_slice(), &rows, &columns, &summed].concat();
    let ones = vec![Expr::int(1); summed.len()];
    let split = [batch, m, n, ones].concat();
    let mut back = vec![0; rank];
    for (i, d) in order.iter().enumerate() {
        back[*d] = i;
    }
    product.map(|v| {
        let v = imp.b.reshape(v, split.clone())?;
        imp.b.permute(v, &back)
    })
}

fn einsum(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mut operands = Vec::new();
    for t in a.tensors("tensors")? {
        operands.push(imp.parts_of(t)?);
    }
    let ranks: Vec<usize> = operands.iter().map(|p| imp.b.rank(p.re)).collect();
    let text = a.str("equation")?;
    let equation = Equation::parse(text, &ranks).ok_or_else(|| a.unsupported(format!("the equation {text}")))?;
    let all = equation.all();
    let kept = equation.output.len();
    let single = operands.len() == 1;
    // The operand after which nothing has a label any more.
    let last = |label: &Label| equation.operands.iter().rposition(|o| o.contains(label)).unwrap_or(0);
    let mut result: Option<Parts> = None;
    for (i, (operand, own)) in operands.into_iter().zip(&equation.operands).enumerate() {
        let operand = operand.map(|v| spread(imp, v, own, &all))?;
        let done: Vec<usize> = (kept..all.len()).filter(|d| last(&all[*d]) == i).collect();
        result = Some(match result {
            Some(x) => pair(imp, x, operand, &done)?,
            // A sum of one operand's integers is int64, as any sum.
            None if single && !done.is_empty() && !imp.b.dtype(operand.re).is_float() => {
                let wide = operand.cast(imp, DType::I64);
                wide.sum_keep(imp, &done)?
            }
            None => operand.sum_keep(imp, &done)?,
        });
    }
    let result = result.ok_or_else(|| a.wrong("tensors", "a list of tensors"))?;
    let dims: Vec<usize> = (kept..all.len()).collect();
    result.map(|v| super::statistics::drop(imp, v, &dims))?.val(imp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &str) -> Vec<Label> {
        text.chars().map(Label::Letter).collect()
    }

    #[test]
    fn an_equation_without_output_keeps_what_stands_once() {
        let equation = Equation::parse("bA, ab", &[2, 2]).unwrap();
        assert_eq!(equation.output, letters("Aa"));
        assert_eq!(equation.all(), letters("Aab"));
    }

    #[test]
    fn an_ellipsis_stands_for_the_last_dimensions_that_all_have() {
        let equation = Equation::parse("i...,...j->...ji", &[2, 3]).unwrap();
        use Label::*;
        assert_eq!(equation.operands[0], [Letter('i'), Ellipsis(0)]);
        assert_eq!(equation.operands[1], [Ellipsis(1), Ellipsis(0), Letter('j')]);
        assert_eq!(equation.output, [Ellipsis(1), Ellipsis(0), Letter('j'), Letter('i')]);
    }

    #[test]
    fn what_is_no_equation_is_refused() {
        for (text, ranks) in
            [("ij->k", vec![2]), ("ij,jk", vec![2]), ("ij->ii", vec![2]), ("i1->i", vec![2]), ("ijk", vec![2])]
        {
            assert_eq!(Equation::parse(text, &ranks), None, "{text}");
        }
    }
}
