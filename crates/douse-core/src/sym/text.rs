//! The text form of symbolic integers, printed and parsed: `4*i0 + s1*(i1//8) - 1`.

use std::fmt;
use std::str::FromStr;

use super::{Atom, Compare, Cond, Expr, Symbol};

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Symbol::Size(n) => write!(f, "s{n}"),
            Symbol::Loop(n) => write!(f, "i{n}"),
            Symbol::Value(n) => write!(f, "v{n}"),
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(symbol) => write!(f, "{symbol}"),
            Atom::FloorDiv(ab) => write!(f, "div({}, {})", ab.0, ab.1),
            Atom::Mod(ab) => write!(f, "mod({}, {})", ab.0, ab.1),
            Atom::Min(ab) => write!(f, "min({}, {})", ab.0, ab.1),
            Atom::Max(ab) => write!(f, "max({}, {})", ab.0, ab.1),
            Atom::Select(cab) => write!(f, "select({}, {}, {})", cab.0, cab.1, cab.2),
            Atom::Scale(a, bits) => write!(f, "scale({a}, {:#x})", bits),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for term in self.terms() {
            let negative = term.coefficient < 0;
            f.write_str(match (first, negative) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            })?;
            first = false;
            let size = term.coefficient.unsigned_abs();
            if size != 1 {
                write!(f, "{size}*")?;
            }
            for (i, factor) in term.factors.iter().enumerate() {
                if i > 0 {
                    f.write_str("*")?;
                }
                write!(f, "{factor}")?;
            }
        }
        match self.constant() {
            c if first => write!(f, "{c}"),
            0 => Ok(()),
            c if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            c => write!(f, " + {c}"),
        }
    }
}

impl fmt::Display for Cond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cond::Bool(b) => write!(f, "{b}"),
            Cond::Compare(op, a, b) => write!(f, "{a} {} {b}", op.sign()),
            Cond::And(ab) => write!(f, "and({}, {})", ab.0, ab.1),
            Cond::Or(ab) => write!(f, "or({}, {})", ab.0, ab.1),
        }
    }
}

/// What is wrong with a text, and the byte where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    pub at: usize,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Nesting deeper than this is refused, so that hostile texts cannot exhaust the stack.
const DEPTH: usize = 100;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn error<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { at: self.at, message: message.into() })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn want(&mut self, token: &str) -> Result<(), ParseError> {
        if self.take(token) { Ok(()) } else { self.error(format!("expected '{token}'")) }
    }

    fn word(&mut self, accept: fn(char) -> bool) -> &'a str {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn number(&mut self) -> Result<i64, ParseError> {
        let digits = self.word(|c| c.is_ascii_digit());
        match digits.parse() {
            Ok(n) => Ok(n),
            Err(_) => self.error("expected a number"),
        }
    }

    fn sum(&mut self) -> Result<Expr, ParseError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return self.error("nested too deeply");
        }
        let mut total = if self.take("-") { -self.product()? } else { self.product()? };
        loop {
            if self.take("+") {
                total = total + self.product()?;
            } else if self.take("-") {
                total = total - self.product()?;
            } else {
                self.depth -= 1;
                return Ok(total);
            }
        }
    }

    fn product(&mut self) -> Result<Expr, ParseError> {
        let mut total = self.factor()?;
        while self.take("*") {
            total = total * self.factor()?;
        }
        Ok(total)
    }

    fn pair(&mut self) -> Result<(Expr, Expr), ParseError> {
        self.want("(")?;
        let a = self.sum()?;
        self.want(",")?;
        let b = self.sum()?;
        self.want(")")?;
        Ok((a, b))
    }

    fn factor(&mut self) -> Result<Expr, ParseError> {
        self.skip();
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Expr::int(self.number()?));
        }
        if self.take("(") {
            let inner = self.sum()?;
            self.want(")")?;
            return Ok(inner);
        }
        let name = self.word(|c| c.is_ascii_alphabetic());
        match name {
            "div" => self.pair().map(|(a, b)| a.floor_div(&b)),
            "mod" => self.pair().map(|(a, b)| a.modulo(&b)),
            "min" => self.pair().map(|(a, b)| a.minimum(&b)),
            "max" => self.pair().map(|(a, b)| a.maximum(&b)),
            "select" => {
                self.want("(")?;
                let cond = self.cond()?;
                self.want(",")?;
                let then = self.sum()?;
                self.want(",")?;
                let otherwise = self.sum()?;
                self.want(")")?;
                Ok(Expr::select(&cond, &then, &otherwise))
            }
            "scale" => {
                self.want("(")?;
                let inner = self.sum()?;
                self.want(",")?;
                self.want("0x")?;
                let digits = self.word(|c| c.is_ascii_hexdigit());
                let Ok(bits) = u64::from_str_radix(digits, 16) else {
                    return self.error("expected the bits of a float64");
                };
                self.want(")")?;
                Ok(inner.scale(f64::from_bits(bits)))
            }
            "s" | "i" | "v" => {
                let number = self.number()?;
                let Ok(n) = u32::try_from(number) else { return self.error("a symbol's number is too large") };
                Ok(Expr::symbol(match name {
                    "s" => Symbol::Size(n),
                    "i" => Symbol::Loop(n),
                    _ => Symbol::Value(n),
                }))
            }
            _ => self.error("expected a number, a symbol or a function"),
        }
    }

    fn cond(&mut self) -> Result<Cond, ParseError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return self.error("nested too deeply");
        }
        let start = self.at;
        let result = match self.word(|c| c.is_ascii_alphabetic()) {
            "true" => Cond::Bool(true),
            "false" => Cond::Bool(false),
            name @ ("and" | "or") => {
                self.want("(")?;
                let a = self.cond()?;
                self.want(",")?;
                let b = self.cond()?;
                self.want(")")?;
                if name == "and" { a.and(&b) } else { a.or(&b) }
            }
            _ => {
                self.at = start;
                let a = self.sum()?;
                use Compare::*;
                let Some(op) = [Eq, Ne, Le, Ge, Lt, Gt].into_iter().find(|op| self.take(op.sign())) else {
                    return self.error("expected a comparison");
                };
                let b = self.sum()?;
                Cond::compare(op, &a, &b)
            }
        };
        self.depth -= 1;
        Ok(result)
    }

    fn end<T>(mut self, result: T) -> Result<T, ParseError> {
        self.skip();
        if self.rest().is_empty() { Ok(result) } else { self.error("expected the end") }
    }
}

impl FromStr for Expr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Expr, ParseError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let expr = parser.sum()?;
        parser.end(expr)
    }
}

impl FromStr for Cond {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Cond, ParseError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let cond = parser.cond()?;
        parser.end(cond)
    }
}
