//! Symbols of the exported program: from its expression trees to ours.

use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{Error, Result};
use douse_pt2::{SymInt, SymTree, Symbolic};
use indexmap::IndexMap;

/// The program's names of symbols.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    pub names: IndexMap<String, u32>,
}

impl Symbols {
    pub fn get(&self, name: &str) -> Option<Expr> {
        self.names.get(name).map(|id| Expr::symbol(Symbol::Size(*id)))
    }

    /// Takes note that a size that the program calls by a name of its own (`u0`) is this symbol.
    pub fn learn(&mut self, theirs: &SymInt, own: &Expr) {
        if let (Symbolic::Expr { tree: SymTree::Symbol(name), .. }, Some(Symbol::Size(id))) = (theirs, own.as_symbol())
        {
            self.names.entry(name.clone()).or_insert(id);
        }
    }

    pub fn size(&self, size: &SymInt) -> Result<Expr> {
        match size {
            Symbolic::Value(value) => Ok(Expr::int(*value)),
            Symbolic::Expr { tree, .. } => self.expr(tree),
        }
    }

    /// The expression of a tree, all of whose symbols are known.
    pub fn expr(&self, tree: &SymTree) -> Result<Expr> {
        let unknown = || Error::not_supported(format!("the size expression {tree}"));
        match tree {
            SymTree::Int(value) => Ok(Expr::int(*value)),
            SymTree::Symbol(name) => self.get(name).ok_or_else(unknown),
            SymTree::Call(name, args) => {
                let all = || args.iter().map(|a| self.expr(a)).collect::<Result<Vec<_>>>();
                let fold =
                    |f: fn(&Expr, &Expr) -> Expr| all()?.into_iter().reduce(|a, b| f(&a, &b)).ok_or_else(unknown);
                let two = || match all()?.as_slice() {
                    [a, b] => Ok((a.clone(), b.clone())),
                    _ => Err(unknown()),
                };
                match name.as_str() {
                    "Add" => fold(|a, b| a + b),
                    "Mul" => {
                        // x * 1/n stands for an exact division.
                        let mut product = Expr::int(1);
                        let mut divisor = 1;
                        for arg in args {
                            match arg {
                                SymTree::Rational(n, d) if *d > 0 => {
                                    product = &product * *n;
                                    divisor *= d;
                                }
                                other => product = &product * &self.expr(other)?,
                            }
                        }
                        Ok(product.floor_div(&Expr::int(divisor)))
                    }
                    "Max" => fold(Expr::maximum),
                    "Min" => fold(Expr::minimum),
                    "FloorDiv" | "CleanDiv" | "IntTrueDiv" => two().map(|(a, b)| a.floor_div(&b)),
                    "CeilDiv" => two().map(|(a, b)| a.ceil_div(&b)),
                    "Mod" | "PythonMod" => two().map(|(a, b)| a.modulo(&b)),
                    "Pow" | "PowByNatural" => {
                        let (base, exponent) = two()?;
                        let n = exponent.as_int().filter(|n| (0..=16).contains(n)).ok_or_else(unknown)?;
                        Ok((0..n).fold(Expr::int(1), |product, _| &product * &base))
                    }
                    "Piecewise" => {
                        let mut cases = Vec::new();
                        for arg in args {
                            match arg {
                                SymTree::Call(pair, inner) if pair == "ExprCondPair" && inner.len() == 2 => {
                                    cases.push((self.expr(&inner[0])?, self.cond(&inner[1])?));
                                }
                                _ => return Err(unknown()),
                            }
                        }
                        let (last, _) = cases.pop().ok_or_else(unknown)?;
                        Ok(cases.iter().rev().fold(last, |rest, (value, cond)| Expr::select(cond, value, &rest)))
                    }
                    "CeilToInt" => match args.as_slice() {
                        [SymTree::Call(inner, pair)] if inner == "IntTrueDiv" && pair.len() == 2 => {
                            Ok(self.expr(&pair[0])?.ceil_div(&self.expr(&pair[1])?))
                        }
                        [arg] => self.expr(arg),
                        _ => Err(unknown()),
                    },
                    "Identity" | "ToFloat" | "TruncToInt" | "FloorToInt" if args.len() == 1 => self.expr(&args[0]),
                    _ => Err(unknown()),
                }
            }
            _ => Err(unknown()),
        }
    }

    pub fn cond(&self, tree: &SymTree) -> Result<Cond> {
        let unknown = || Error::not_supported(format!("the condition {tree}"));
        match tree {
            SymTree::Bool(b) => Ok(Cond::Bool(*b)),
            SymTree::Call(name, args) => {
                let compare = |op| match args.as_slice() {
                    [a, b] => Ok(Cond::compare(op, &self.expr(a)?, &self.expr(b)?)),
                    _ => Err(unknown()),
                };
                match name.as_str() {
                    "Equality" | "Eq" => compare(Compare::Eq),
                    "Unequality" | "Ne" => compare(Compare::Ne),
                    "GreaterThan" | "Ge" => compare(Compare::Ge),
                    "StrictGreaterThan" | "Gt" => compare(Compare::Gt),
                    "LessThan" | "Le" => compare(Compare::Le),
                    "StrictLessThan" | "Lt" => compare(Compare::Lt),
                    "Not" if args.len() == 1 => self.cond(&args[0]).map(|c| c.not()),
                    "And" => args.iter().try_fold(Cond::Bool(true), |all, a| Ok(all.and(&self.cond(a)?))),
                    "Or" => args.iter().try_fold(Cond::Bool(false), |any, a| Ok(any.or(&self.cond(a)?))),
                    _ => Err(unknown()),
                }
            }
            _ => Err(unknown()),
        }
    }
}
