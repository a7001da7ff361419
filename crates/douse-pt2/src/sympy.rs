//! Parses SymPy's expressions: the `srepr` form, `Add(Symbol('s0', integer=True), Integer(1))`, and the printed form
//! of older files, `s0 + 1`.

use crate::symbolic::SymTree;

/// Nesting of calls and parentheses; PyTorch's own expressions stay below a tenth of this.
const MAX_DEPTH: usize = 256;
/// Infix operators of one expression, each of which may nest the tree one deeper.
const MAX_OPERATORS: usize = 1024;

/// Parses an expression.
///
/// # Errors
/// A message with the expression and the place, in bytes from its start.
pub(crate) fn parse(text: &str) -> Result<SymTree, String> {
    let mut parser = Parser { text, at: 0, depth: 0, operators: 0 };
    let parsed = parser.expression(0).and_then(|tree| {
        parser.space();
        if parser.at == text.len() { Ok(tree) } else { Err("something else follows".to_owned()) }
    });
    parsed.map_err(|message| {
        let shown: String = text.chars().take(200).collect();
        format!("cannot read the symbolic expression `{shown}`, at {}: {message}", parser.at)
    })
}

/// An infix operator: its text, how tightly it binds, and the function it stands for.
struct Infix {
    text: &'static str,
    power: u8,
    function: &'static str,
}

const fn infix(text: &'static str, power: u8, function: &'static str) -> Infix {
    Infix { text, power, function }
}

/// Longer texts before their prefixes.
const INFIX: [Infix; 15] = [
    infix("**", 9, "Pow"),
    infix("//", 7, "FloorDiv"),
    infix("*", 7, "Mul"),
    infix("/", 7, "/"),
    infix("%", 7, "Mod"),
    infix("+", 6, "Add"),
    infix("-", 6, "-"),
    infix("<=", 4, "LessThan"),
    infix(">=", 4, "GreaterThan"),
    infix("==", 4, "Equality"),
    infix("!=", 4, "Unequality"),
    infix("<", 4, "StrictLessThan"),
    infix(">", 4, "StrictGreaterThan"),
    infix("&", 3, "And"),
    infix("|", 2, "Or"),
];
/// The operator that stands for a function, and how tightly it binds.
pub(crate) fn infix_of(function: &str) -> Option<(&'static str, u8)> {
    INFIX.iter().find(|row| row.function == function).map(|row| (row.text, row.power))
}

/// How tightly a minus sign in front binds: `-a**b` is `-(a**b)`, `-a*b` is `(-a)*b`.
const MINUS_POWER: u8 = 8;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    operators: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Takes `token` if it is next.
    fn take(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("`{token}` is missing")) }
    }

    /// Takes what is next as long as `keep` holds.
    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn expression(&mut self, power: u8) -> Result<SymTree, String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let mut left = self.prefix()?;
        loop {
            self.space();
            let rest = self.rest();
            let Some(operator) = INFIX.iter().find(|row| rest.starts_with(row.text) && row.power > power) else {
                break;
            };
            // `>` is found where `>=` binds too loosely, never the other way: both have the same power.
            self.operators += 1;
            if self.operators > MAX_OPERATORS {
                return Err(format!("more than {MAX_OPERATORS} operators"));
            }
            self.at += operator.text.len();
            // Powers group to the right, everything else to the left.
            let right = self.expression(if operator.text == "**" { operator.power - 1 } else { operator.power })?;
            left = combine(operator.function, left, right);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn prefix(&mut self) -> Result<SymTree, String> {
        if self.take("-") {
            return Ok(match self.expression(MINUS_POWER)? {
                SymTree::Int(value) => SymTree::Int(value.checked_neg().ok_or("the number is too large")?),
                SymTree::Float(value) => SymTree::Float(-value),
                SymTree::Infinity => SymTree::NegativeInfinity,
                other => call("Mul", vec![SymTree::Int(-1), other]),
            });
        }
        if self.take("~") {
            return Ok(call("Not", vec![self.expression(MINUS_POWER)?]));
        }
        if self.take("(") {
            let inner = self.expression(0)?;
            self.expect(")")?;
            return Ok(inner);
        }
        self.space();
        match self.rest().chars().next() {
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() || c == '_' => self.name(),
            Some(c) => Err(format!("`{c}` is not expected here")),
            None => Err("it ends too soon".to_owned()),
        }
    }

    fn number(&mut self) -> Result<SymTree, String> {
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit());
        if self.rest().starts_with('.') {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest().starts_with(['e', 'E']) {
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            self.take_while(|c| c.is_ascii_digit());
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().map(SymTree::Int).map_err(|_| format!("{text} does not fit 64 bits"));
        }
        text.parse().map(SymTree::Float).map_err(|_| format!("{text} is not a number"))
    }

    fn name(&mut self) -> Result<SymTree, String> {
        let name = self.take_while(|c| c.is_alphanumeric() || c == '_' || c == '.');
        // A module in front of a function says nothing.
        let name = name.rsplit('.').next().unwrap_or(name);
        if self.take("(") {
            return match name {
                "Symbol" | "Dummy" => self.symbol(),
                "Integer" => self.arguments().and_then(integer).map(SymTree::Int),
                "Rational" => self.arguments().and_then(rational),
                "Float" => self.float(),
                _ => Ok(call(name, self.arguments()?)),
            };
        }
        Ok(match name {
            "true" | "True" => SymTree::Bool(true),
            "false" | "False" => SymTree::Bool(false),
            "oo" | "int_oo" => SymTree::Infinity,
            _ => SymTree::Symbol(name.to_owned()),
        })
    }

    /// The rest of a call, after its opening parenthesis. Keyword arguments are assumptions and are skipped.
    fn arguments(&mut self) -> Result<Vec<SymTree>, String> {
        let mut arguments = Vec::new();
        while !self.take(")") {
            if self.keyword() {
                self.expression(0)?;
            } else {
                arguments.push(self.expression(0)?);
            }
            self.comma()?;
        }
        Ok(arguments)
    }

    /// `'s0', positive=True, integer=True)`.
    fn symbol(&mut self) -> Result<SymTree, String> {
        let name = self.string()?.to_owned();
        self.comma()?;
        if !self.arguments()?.is_empty() {
            return Err("a symbol has one name".to_owned());
        }
        Ok(SymTree::Symbol(name))
    }

    /// `'0.5', precision=53)`.
    fn float(&mut self) -> Result<SymTree, String> {
        self.space();
        if !self.rest().starts_with(['\'', '"']) {
            return match self.arguments()?.as_slice() {
                [SymTree::Float(value)] => Ok(SymTree::Float(*value)),
                [SymTree::Int(value)] => Ok(SymTree::Float(*value as f64)),
                _ => Err("a float has one value".to_owned()),
            };
        }
        let text = self.string()?;
        let value = text.parse().map_err(|_| format!("{text} is not a number"))?;
        self.comma()?;
        self.arguments()?;
        Ok(SymTree::Float(value))
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.take("'") {
            '\''
        } else if self.take("\"") {
            '"'
        } else {
            return Err("a string is missing".to_owned());
        };
        let text = self.take_while(|c| c != quote && c != '\\');
        self.expect(if quote == '"' { "\"" } else { "'" })?;
        Ok(text)
    }

    /// Takes `name=` if it is next, but not `name==`.
    fn keyword(&mut self) -> bool {
        self.space();
        let start = self.at;
        let name = self.take_while(|c| c.is_alphanumeric() || c == '_');
        self.space();
        if !name.is_empty() && self.rest().starts_with('=') && !self.rest().starts_with("==") {
            self.at += 1;
            return true;
        }
        self.at = start;
        false
    }

    /// A comma, or the closing parenthesis, which stays.
    fn comma(&mut self) -> Result<(), String> {
        self.space();
        if self.rest().starts_with(')') { Ok(()) } else { self.expect(",") }
    }
}

fn call(name: &str, args: Vec<SymTree>) -> SymTree {
    SymTree::Call(name.to_owned(), args)
}

fn combine(function: &str, left: SymTree, right: SymTree) -> SymTree {
    match function {
        "-" => call("Add", vec![left, call("Mul", vec![SymTree::Int(-1), right])]),
        "/" => call("Mul", vec![left, call("Pow", vec![right, SymTree::Int(-1)])]),
        _ => call(function, vec![left, right]),
    }
}

fn integer(arguments: Vec<SymTree>) -> Result<i64, String> {
    match arguments.as_slice() {
        [SymTree::Int(value)] => Ok(*value),
        _ => Err("an integer has one value".to_owned()),
    }
}

fn rational(arguments: Vec<SymTree>) -> Result<SymTree, String> {
    match arguments.as_slice() {
        [SymTree::Int(numerator), SymTree::Int(denominator)] if *denominator != 0 => {
            Ok(SymTree::Rational(*numerator, *denominator))
        }
        _ => Err("a rational has two integers, the second not zero".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, as_: &str) {
        assert_eq!(parse(text).map(|tree| tree.to_string()), Ok(as_.to_owned()), "{text}");
    }

    #[test]
    fn srepr() {
        reads("Symbol('s95', positive=True, integer=True)", "s95");
        reads("Add(Mul(Integer(2), Symbol('s77', integer=True, positive=True)), Integer(-1))", "Add(Mul(2, s77), -1)");
        reads(
            "Piecewise(ExprCondPair(Integer(1), Equality(Symbol('u1', integer=True), Integer(1))), \
             ExprCondPair(Integer(0), true))",
            "Piecewise(ExprCondPair(1, Equality(u1, 1)), ExprCondPair(0, true))",
        );
        reads("Mul(Float('0.5', precision=53), Rational(1, 3))", "Mul(0.5, 1/3)");
        reads("Max(-int_oo, oo)", "Max(-oo, oo)");
        assert_eq!(parse("Integer(-9223372036854775807)"), Ok(SymTree::Int(-i64::MAX)));
    }

    #[test]
    fn printed_form_binds_as_python_does() {
        reads("s0 + 2*s1", "Add(s0, Mul(2, s1))");
        reads("s0 - s1 - 1", "Add(Add(s0, Mul(-1, s1)), Mul(-1, 1))");
        reads("-s0**2**3", "Mul(-1, Pow(s0, Pow(2, 3)))");
        reads("(s0//2)*Max(1, s1) >= 4", "GreaterThan(Mul(FloorDiv(s0, 2), Max(1, s1)), 4)");
        reads("s0 / 2", "Mul(s0, Pow(2, -1))");
        reads("s0 < 3 | ~true", "Or(StrictLessThan(s0, 3), Not(true))");
    }

    #[test]
    fn formulas_read_as_python_writes_them() {
        for text in [
            "2 * s0 + 1",
            "(s0 + s1) // 2",
            "s0 // (s1 // 2)",
            "Max(1, s0 + 1) % 4",
            "s0 ** 2 >= 4",
            "s0 + (-1) * s1",
            "s0",
        ] {
            assert_eq!(parse(text).unwrap().formula(), text);
        }
        assert_eq!(
            parse("Add(Mul(Rational(1, 2), Symbol('s0')), Integer(-1))").unwrap().formula(),
            "(1/2) * s0 + (-1)"
        );
    }

    #[test]
    fn refuses_what_is_no_expression() {
        for text in [
            "",
            "Add(",
            "Add(1",
            "1 2",
            "Symbol()",
            "Symbol('a', 'b')",
            "Rational(1, 0)",
            "'x'",
            "1 +",
            "é)",
            "Integer(99999999999999999999)",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("cannot read the symbolic expression"), "{text}: {error}");
        }
        assert!(parse(&"(".repeat(100_000)).unwrap_err().contains("nested deeper"));
        assert!(parse(&"-".repeat(100_000)).unwrap_err().contains("nested deeper"));
        assert!(parse(&"1+".repeat(100_000)).unwrap_err().contains("more than 1024 operators"));
    }

    #[test]
    fn symbols_in_order() {
        let tree = parse("Add(s1, Mul(s0, s1))").unwrap();
        assert_eq!(tree.symbols(), ["s1", "s0", "s1"]);
    }
}
