//! Guards: what the exported program takes for granted of its inputs' sizes and integers, among it the user's `torch._check`.
//!
//! The file has them as Python: `(L['x'].size()[0] % 2) == 0`. Those that only say that a size is not 0 or 1, as PyTorch assumes of every size
//! that it does not specialise, are no part of the program's meaning: such calls are answered. Nor are those of strides.

use douse_core::sym::{Atom, Compare, Cond, Expr, Ranges, Symbol};
use douse_ir::{InputDecl, InputKind};
use douse_program::plan::{SymbolInfo, SymbolSource};

use super::importer::Importer;

/// Requires the guards, once the inputs are known.
pub fn require(imp: &mut Importer, guards: &[String]) {
    for text in guards {
        let module = &imp.b.module;
        let Some((cond, undefined)) = parse(text, &module.inputs, &module.symbols, imp.b.ranges()) else {
            tracing::debug!(guard = %text, "a guard that is not checked");
            continue;
        };
        if let Some(cond) = told(&cond).filter(|cond| cond.as_bool().is_none()) {
            imp.b.require(cond.or(&undefined), format!("the program was exported for {text}"));
        }
    }
}

/// What a guard says beyond that some size is not 0 or 1.
fn told(cond: &Cond) -> Option<Cond> {
    match cond {
        Cond::And(ab) => match (told(&ab.0), told(&ab.1)) {
            (Some(a), Some(b)) => Some(a.and(&b)),
            (a, b) => a.or(b),
        },
        _ => telling(cond).then(|| cond.clone()),
    }
}

fn telling(cond: &Cond) -> bool {
    match cond {
        Cond::Bool(_) => true,
        Cond::And(ab) | Cond::Or(ab) => telling(&ab.0) && telling(&ab.1),
        Cond::Compare(op, a, b) => {
            let (op, a, b) = match (op, a.as_int()) {
                (Compare::Lt, Some(_)) => (Compare::Gt, b, a),
                (Compare::Le, Some(_)) => (Compare::Ge, b, a),
                (_, Some(_)) => (*op, b, a),
                _ => (*op, a, b),
            };
            let mentions = |wanted: fn(&Atom) -> bool| a.terms().iter().flat_map(|t| &t.factors).any(wanted);
            match (op, b.as_int()) {
                (Compare::Eq, Some(0)) => mentions(|atom| matches!(atom, Atom::Mod(_))),
                (Compare::Eq | Compare::Ne, Some(n)) => !(0..=1).contains(&n),
                (Compare::Gt, Some(n)) => !(0..=1).contains(&n),
                (Compare::Ge, Some(n)) => !(1..=2).contains(&n),
                // Of sizes that broadcast, or are kept from being 0.
                (Compare::Ne, None) => false,
                (Compare::Eq, None) => !mentions(|atom| matches!(atom, Atom::Max(_))),
                _ => true,
            }
        }
    }
}

/// A guard over the inputs' symbols, and when it says nothing, since a size that it divides by is 0; `None` where it is about something else.
fn parse(text: &str, inputs: &[InputDecl], symbols: &[SymbolInfo], ranges: &Ranges) -> Option<(Cond, Cond)> {
    let mut parser = Parser { rest: text, depth: 0, undefined: Cond::Bool(false), inputs, symbols, ranges };
    let Term::Cond(cond) = parser.or()? else { return None };
    parser.rest.trim().is_empty().then_some((cond, parser.undefined))
}

/// Deeper nesting is not read.
const DEPTH: usize = 64;

enum Term {
    Int(Expr),
    Cond(Cond),
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    /// When a divisor is 0.
    undefined: Cond,
    inputs: &'a [InputDecl],
    symbols: &'a [SymbolInfo],
    ranges: &'a Ranges,
}

impl<'a> Parser<'a> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self, accept: fn(char) -> bool) -> &'a str {
        let rest = self.rest.trim_start();
        let (word, rest) = rest.split_at(rest.find(|c| !accept(c)).unwrap_or(rest.len()));
        self.rest = rest;
        word
    }

    fn number(&mut self) -> Option<i64> {
        self.word(|c| c.is_ascii_digit()).parse().ok()
    }

    fn or(&mut self) -> Option<Term> {
        let mut term = self.and()?;
        while self.take("or ") {
            term = Term::Cond(cond(term)?.or(&cond(self.and()?)?));
        }
        Some(term)
    }

    fn and(&mut self) -> Option<Term> {
        let mut term = self.comparison()?;
        while self.take("and ") {
            term = Term::Cond(cond(term)?.and(&cond(self.comparison()?)?));
        }
        Some(term)
    }

    fn comparison(&mut self) -> Option<Term> {
        if self.take("not ") {
            return Some(Term::Cond(cond(self.comparison()?)?.not()));
        }
        const SIGNS: [(&str, Compare); 6] = [
            ("==", Compare::Eq),
            ("!=", Compare::Ne),
            ("<=", Compare::Le),
            (">=", Compare::Ge),
            ("<", Compare::Lt),
            (">", Compare::Gt),
        ];
        let left = self.sum()?;
        let Some((_, op)) = SIGNS.iter().find(|(sign, _)| self.take(sign)) else { return Some(left) };
        let right = int(self.sum()?)?;
        Some(Term::Cond(Cond::compare(*op, &int(left)?, &right)))
    }

    fn sum(&mut self) -> Option<Term> {
        let mut term = self.product()?;
        loop {
            let minus = match (self.take("+"), self.take("-")) {
                (false, false) => return Some(term),
                (_, minus) => minus,
            };
            let (a, b) = (int(term)?, int(self.product()?)?);
            term = Term::Int(if minus { a - b } else { a + b });
        }
    }

    fn product(&mut self) -> Option<Term> {
        let mut term = self.factor()?;
        loop {
            // Powers are `**`, and no guard.
            let op = ["**", "//", "*", "%"].into_iter().find(|op| self.take(op));
            let Some(op) = op else { return Some(term) };
            let (a, b) = (int(term)?, int(self.factor()?)?);
            term = Term::Int(match op {
                "*" => a * b,
                "//" => a.floor_div(&self.divisor(b)?),
                "%" => a.modulo(&self.divisor(b)?),
                _ => return None,
            });
        }
    }

    /// A divisor; one that may be 0 counts as 1 then, so that it can be evaluated.
    fn divisor(&mut self, by: Expr) -> Option<Expr> {
        if let Some(n) = by.as_int() {
            return (n > 0).then_some(by);
        }
        if !self.ranges.non_negative(&by) {
            return None;
        }
        self.undefined = self.undefined.or(&Cond::compare(Compare::Eq, &by, &Expr::int(0)));
        Some(by.maximum(&Expr::int(1)))
    }

    /// The arguments of a function, after its parenthesis.
    fn arguments<const N: usize>(&mut self) -> Option<[Expr; N]> {
        let mut all = std::array::from_fn(|_| Expr::int(0));
        for (i, argument) in all.iter_mut().enumerate() {
            if i > 0 && !self.take(",") {
                return None;
            }
            *argument = int(self.sum()?)?;
        }
        self.take(")").then_some(all)
    }

    fn factor(&mut self) -> Option<Term> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let term = if self.take("-") {
            Term::Int(-int(self.factor()?)?)
        } else if self.take("(") {
            let inner = self.or()?;
            self.take(")").then_some(inner)?
        } else if self.take("L[") {
            Term::Int(self.source()?)
        } else if self.take("torch.sym_max(") {
            let [a, b] = self.arguments()?;
            Term::Int(a.maximum(&b))
        } else if self.take("torch.sym_min(") {
            let [a, b] = self.arguments()?;
            Term::Int(a.minimum(&b))
        } else if self.take("abs(") {
            let [a] = self.arguments()?;
            Term::Int(a.maximum(&-&a))
        } else {
            Term::Int(Expr::int(self.number()?))
        };
        self.depth -= 1;
        Some(term)
    }

    fn key(&mut self) -> Option<&'a str> {
        self.take("'").then_some(())?;
        let key = self.word(|c| c != '\'');
        (self.take("'") && self.take("]")).then_some(key)
    }

    /// `x'].size()[1]` and `n']`, after `L['`; on the way to a leaf there may be steps: `states'][0]['key']`.
    fn source(&mut self) -> Option<Expr> {
        let name = self.key()?;
        // As inputs are labelled, and as the leaves of `*args` are.
        let (mut label, mut flat) = (name.to_owned(), name.to_owned());
        while self.take("[") {
            if self.rest.starts_with('\'') {
                let key = self.key()?;
                label += &format!(".{key}");
                flat += &format!("_{key}");
            } else {
                let i = self.number()?;
                self.take("]").then_some(())?;
                label += &format!("[{i}]");
                flat += &format!("_{i}");
            }
        }
        let input = self.inputs.iter().position(|i| i.name == label || i.name == flat)?;
        let decl = self.inputs.get(input)?;
        if !self.take(".size()[") {
            let own = |s: &SymbolInfo| matches!(s.source, SymbolSource::Int { input: i } if i as usize == input);
            let number = self.symbols.iter().position(own)?;
            return matches!(decl.kind, InputKind::Int).then(|| Expr::symbol(Symbol::Size(number as u32)));
        }
        let dim = usize::try_from(self.number()?).ok()?;
        self.take("]").then_some(())?;
        match &decl.kind {
            InputKind::Tensor { sizes, .. } => sizes.get(dim).cloned(),
            _ => None,
        }
    }
}

fn int(term: Term) -> Option<Expr> {
    match term {
        Term::Int(expr) => Some(expr),
        Term::Cond(_) => None,
    }
}

fn cond(term: Term) -> Option<Cond> {
    match term {
        Term::Cond(cond) => Some(cond),
        Term::Int(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use douse_core::DType;

    /// Inputs `x` [s0, s1], `tensors_0` [s2], `d.w` [s0, 4] and `n`, which is s3.
    fn read(text: &str) -> Option<String> {
        let s = |i| Expr::symbol(Symbol::Size(i));
        let tensor = |name: &str, sizes: Vec<Expr>| InputDecl {
            name: name.into(),
            kind: InputKind::Tensor { dtype: DType::F32, strides: sizes.clone(), sizes },
        };
        let inputs = [
            tensor("x", vec![s(0), s(1)]),
            tensor("tensors_0", vec![s(2)]),
            tensor("d.w", vec![s(0), Expr::int(4)]),
            InputDecl { name: "n".into(), kind: InputKind::Int },
        ];
        let size = |input, dim| SymbolSource::Size { input, dim, scale: 1, offset: 0 };
        let symbols = [size(0, 0), size(0, 1), size(1, 0), SymbolSource::Int { input: 3 }].map(|source| SymbolInfo {
            name: String::new(),
            min: None,
            max: None,
            source,
            bound: None,
        });
        let mut ranges = Ranges::new();
        (0..3).for_each(|i| ranges.set(Symbol::Size(i), Some(0), None));
        let (cond, undefined) = parse(text, &inputs, &symbols, &ranges)?;
        told(&cond).map(|cond| cond.or(&undefined).to_string())
    }

    #[test]
    fn guards_become_conditions() {
        for (text, expected) in [
            ("(L['x'].size()[0] % 2) == 0", "mod(s0, 2) == 0"),
            ("L['tensors'][0].size()[0] != 7", "s2 != 7"),
            ("L['x'].size()[1] + L['x'].size()[0] < 20", "s0 + s1 < 20"),
            ("L['x'].size()[1] >= 2*L['d']['w'].size()[0]", "s1 >= 2*s0"),
            ("((L['n']*L['x'].size()[0]) // 4) > 3", "div(s0*s3, 4) > 3"),
            ("L['x'].size()[1]*L['n'] == L['x'].size()[0]", "s1*s3 == s0"),
            ("0 <= 6 + ((-1)*L['n'])", "0 <= -s3 + 6"),
            ("L['n'] <= 5 or not L['n'] < 9", "or(s3 <= 5, s3 >= 9)"),
            ("(L['x'].size()[0] % L['x'].size()[1]) == 0", "or(mod(s0, max(1, s1)) == 0, s1 == 0)"),
            ("torch.sym_max(L['x'].size()[1], L['n']) < 100", "max(s1, s3) < 100"),
            ("abs(L['x'].size()[1] + ((-1)*L['n'])) < 5", "max(-s1 + s3, s1 - s3) < 5"),
            ("L['x'].size()[1] > 1 and L['x'].size()[1] > 2", "s1 > 2"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_not_0_or_1_are_no_guards_nor_is_what_cannot_be_said() {
        for text in [
            "L['x'].size()[0] != 1",
            "(L['x'].size()[0] // 2) == 1",
            "25*(L['x'].size()[0] // 5) >= 2",
            "1 < (-3) + (L['x'].size()[0] // 4)",
            "L['x'].size()[0] == L['x'].size()[1] or L['x'].size()[0] == 1",
            // A divisor that may be negative.
            "(L['x'].size()[0] % L['n']) < 9",
            "(L['x'].size()[0] % L['x'].size()[1]) != 0",
            "(L['x'].size()[0] / L['x'].size()[1]) == 2.0",
            "L['x'].stride()[0] == 4",
            "L['x'].size()[0] != L['x'].size()[1]",
            "torch.sym_max(1, L['x'].size()[0]) != 1",
            "torch.sym_max(1, L['x'].size()[0] // 5) == (L['x'].size()[0] // 5)",
            "16 <= 4*L['x']._base.size()[0]",
            "L['y'].size()[0] < 9",
            "L['x'].size()[2] < 9",
            "L['x'].size()[0] ** 2 < 9",
            "L['x'].size()[0] < 9 and",
            "(((",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&"(".repeat(100_000)), None);
    }
}
