//! A place in one line of a text form, and the pieces that are read there.

use std::str::FromStr;

use douse_core::sym::{Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};

use crate::graph::Value;

/// Expressions of more bytes than this are refused: a product of sums grows faster than its text.
const EXPRESSION: usize = 2000;

pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// The line's number, from 1.
    line: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str, line: usize) -> Cursor<'a> {
        Cursor { text, at: 0, line }
    }

    pub fn error<T>(&self, message: impl std::fmt::Display) -> Result<T> {
        Err(Error::invalid_program(format!("graph text, line {}, column {}: {message}", self.line, self.at + 1)))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Whether nothing but a comment follows.
    pub fn at_end(&mut self) -> bool {
        self.skip();
        self.rest().is_empty() || self.rest().starts_with("//")
    }

    pub fn end(&mut self) -> Result<()> {
        if self.at_end() { Ok(()) } else { self.error("expected the end of the line") }
    }

    /// Takes a punctuation mark.
    pub fn take(&mut self, mark: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    pub fn want(&mut self, mark: &str) -> Result<()> {
        if self.take(mark) { Ok(()) } else { self.error(format!("expected '{mark}'")) }
    }

    fn peek(&mut self, accept: fn(char) -> bool) -> &'a str {
        self.skip();
        let rest = self.rest();
        &rest[..rest.find(|c| !accept(c)).unwrap_or(rest.len())]
    }

    /// A word of letters, digits and underscores; empty where there is none.
    pub fn word(&mut self) -> &'a str {
        let word = self.peek(|c| c.is_ascii_alphanumeric() || c == '_');
        self.at += word.len();
        word
    }

    /// Takes a whole word.
    pub fn take_word(&mut self, wanted: &str) -> bool {
        let found = self.peek(|c| c.is_ascii_alphanumeric() || c == '_') == wanted;
        if found {
            self.at += wanted.len();
        }
        found
    }

    pub fn want_word(&mut self, wanted: &str) -> Result<()> {
        if self.take_word(wanted) { Ok(()) } else { self.error(format!("expected '{wanted}'")) }
    }

    /// One of the words of a table.
    pub fn one_of<T>(&mut self, what: &str, find: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let word = self.word();
        match find(word) {
            Some(found) => Ok(found),
            None => self.error(format!("'{word}' is not {what}")),
        }
    }

    pub fn number<T: FromStr>(&mut self) -> Result<T> {
        let digits = self.peek(|c| c.is_ascii_digit() || c == '-');
        match digits.parse() {
            Ok(number) => {
                self.at += digits.len();
                Ok(number)
            }
            Err(_) => self.error("expected a number that fits"),
        }
    }

    /// The next item of a list in declaration order: its number must be the next one.
    pub fn ordinal(&mut self, next: usize) -> Result<()> {
        let number: usize = self.number()?;
        if number == next { Ok(()) } else { self.error(format!("expected number {next}")) }
    }

    pub fn is_value(&mut self) -> bool {
        self.skip();
        self.rest().starts_with('%')
    }

    pub fn value(&mut self) -> Result<Value> {
        self.want("%")?;
        Ok(Value(self.number()?))
    }

    pub fn values(&mut self) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        while self.is_value() {
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// `s3`.
    pub fn size_symbol(&mut self) -> Result<u32> {
        self.want("s")?;
        self.number()
    }

    pub fn dtype(&mut self) -> Result<DType> {
        self.one_of("a dtype", DType::from_name)
    }

    pub fn is_string(&mut self) -> bool {
        self.skip();
        self.rest().starts_with('"')
    }

    pub fn string(&mut self) -> Result<String> {
        self.want("\"")?;
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 'u')) => {
                        let digits: String = chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').collect();
                        let number = digits.strip_prefix('{').and_then(|d| u32::from_str_radix(d, 16).ok());
                        match number.and_then(char::from_u32) {
                            Some(c) => text.push(c),
                            None => return self.error("a character's number is wrong"),
                        }
                    }
                    Some((_, c)) => text.push(c),
                    None => return self.error("the string does not end"),
                },
                c => text.push(c),
            }
        }
        self.error("the string does not end")
    }

    /// What stands between brackets that match.
    fn enclosed(&mut self, open: char, close: char) -> Result<&'a str> {
        self.skip();
        let rest = self.rest();
        let mut depth = 0usize;
        for (i, c) in rest.char_indices() {
            if c == open {
                depth += 1;
            } else if depth == 0 {
                break;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    self.at += i + 1;
                    return Ok(&rest[1..i]);
                }
            }
        }
        self.error(format!("expected '{open}' and its '{close}'"))
    }

    fn parsed<T: FromStr<Err = douse_core::sym::ParseError>>(&self, text: &str) -> Result<T> {
        if text.len() > EXPRESSION {
            return self.error("the expression is too long");
        }
        text.parse().or_else(|e| self.error(format!("'{text}': {e}")))
    }

    /// `(4*i0 + 1)`.
    pub fn expr(&mut self) -> Result<Expr> {
        let text = self.enclosed('(', ')')?;
        self.parsed(text)
    }

    /// `(i0 < s0)`.
    pub fn cond(&mut self) -> Result<Cond> {
        let text = self.enclosed('(', ')')?;
        self.parsed(text)
    }

    /// `[a, b]`, items as text.
    fn list(&mut self) -> Result<Vec<&'a str>> {
        let text = self.enclosed('[', ']')?;
        let (mut items, mut depth, mut start) = (Vec::new(), 0i32, 0);
        for (i, c) in text.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0 => {
                    items.push(&text[start..i]);
                    start = i + 1;
                }
                _ => {}
            }
        }
        if !(items.is_empty() && text.trim().is_empty()) {
            items.push(&text[start..]);
        }
        Ok(items)
    }

    pub fn exprs(&mut self) -> Result<Vec<Expr>> {
        self.list()?.into_iter().map(|item| self.parsed(item)).collect()
    }

    pub fn numbers<T: FromStr>(&mut self) -> Result<Vec<T>> {
        self.list()?
            .into_iter()
            .map(|item| item.trim().parse().or_else(|_| self.error(format!("'{item}' is not a number that fits"))))
            .collect()
    }

    pub fn float(&mut self) -> Result<f64> {
        let text = self.peek(|c| c.is_ascii_alphanumeric() || "+-.:".contains(c));
        let bits = text.strip_prefix("NaN:0x").map(|hex| u64::from_str_radix(hex, 16).map(f64::from_bits).ok());
        let Some(float) = bits.unwrap_or_else(|| text.parse().ok()) else {
            return self.error(format!("'{text}' is not a number"));
        };
        self.at += text.len();
        Ok(float)
    }

    /// `true`, `3`, `3.0` or `(1.0, 2.0)`: a float has a point, an exponent or is not finite.
    pub fn scalar(&mut self) -> Result<Scalar> {
        if self.take("(") {
            let re = self.float()?;
            self.want(",")?;
            let im = self.float()?;
            self.want(")")?;
            return Ok(Scalar::Complex(re, im));
        }
        for bool in [true, false] {
            if self.take_word(if bool { "true" } else { "false" }) {
                return Ok(Scalar::Bool(bool));
            }
        }
        let text = self.peek(|c| c.is_ascii_alphanumeric() || "+-.:".contains(c));
        if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '-') {
            return Ok(Scalar::Int(self.number()?));
        }
        Ok(Scalar::Float(self.float()?))
    }

    /// Pairs of hexadecimal digits.
    pub fn hex(&mut self) -> Result<Vec<u8>> {
        let digits = self.peek(|c| c.is_ascii_hexdigit());
        self.at += digits.len();
        let bytes: Option<Vec<u8>> = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| match pair {
                [_, _] => std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok()),
                _ => None,
            })
            .collect();
        match bytes {
            Some(bytes) => Ok(bytes),
            None => self.error("half a byte"),
        }
    }
}
