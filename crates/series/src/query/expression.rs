//! Formulas over the columns of a row, such as `cpu.user * 2 + sqrt(cpu.sys)`.
//!
//! A formula becomes a list of steps on a stack, so neither its depth nor its length costs stack of
//! ours. All is done with floats; a comparison is 1 or 0, a missing value is 0, and what is no
//! number comes out as one that is none.

use super::error::{QueryError, QueryResult};

/// Longest formula, in bytes, and deepest nesting.
const MAX_BYTES: usize = 4096;
const MAX_DEPTH: u32 = 64;

/// A formula.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Number(f64),
    Column(usize),
    One(One),
    Two(Two),
    /// Of three values, the second or the third, as the first is not 0 or is.
    Choose,
}

type One = fn(f64) -> f64;
type Two = fn(f64, f64) -> f64;

const ONE: [(&str, One); 18] = [
    ("sin", f64::sin),
    ("cos", f64::cos),
    ("tan", f64::tan),
    ("asin", f64::asin),
    ("acos", f64::acos),
    ("atan", f64::atan),
    ("sinh", f64::sinh),
    ("cosh", f64::cosh),
    ("tanh", f64::tanh),
    ("log2", f64::log2),
    ("log10", f64::log10),
    ("log", f64::ln),
    ("ln", f64::ln),
    ("exp", f64::exp),
    ("sqrt", f64::sqrt),
    ("abs", f64::abs),
    ("rint", f64::round_ties_even),
    ("sign", |x| if x == 0.0 { 0.0 } else { x.signum() }),
];

/// Functions of one or more values.
const MANY: [(&str, Two); 3] = [("min", f64::min), ("max", f64::max), ("sum", |a, b| a + b)];

/// Operators of two values by how strongly they bind, the weakest first; those that begin as a
/// shorter one stand before it.
const BINARY: [(&str, u32, Two); 13] = [
    ("||", 1, |a, b| truth(a != 0.0 || b != 0.0)),
    ("&&", 2, |a, b| truth(a != 0.0 && b != 0.0)),
    ("==", 3, |a, b| truth(a == b)),
    ("!=", 3, |a, b| truth(a != b)),
    ("<=", 4, |a, b| truth(a <= b)),
    (">=", 4, |a, b| truth(a >= b)),
    ("<", 4, |a, b| truth(a < b)),
    (">", 4, |a, b| truth(a > b)),
    ("+", 5, |a, b| a + b),
    ("-", 5, |a, b| a - b),
    ("*", 6, |a, b| a * b),
    ("/", 6, |a, b| a / b),
    ("^", 8, f64::powf),
];
/// How strongly a sign binds: less than a power, more than a product.
const SIGN: u32 = 7;

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

impl Expression {
    /// The formula of a text, whose variables are columns.
    pub(crate) fn parse(text: &str, columns: &[String]) -> QueryResult<Self> {
        let mut parser = Parser { text, at: 0, columns, steps: Vec::new(), depth: 0 };
        if text.len() > MAX_BYTES {
            return Err(parser.wrong("it is longer than 4096 bytes"));
        }
        parser.choice()?;
        match parser.rest().is_empty() {
            true => Ok(Self { steps: parser.steps }),
            false => Err(parser.wrong("an operator expected")),
        }
    }

    /// Its value for a row.
    pub(crate) fn value(&self, column: impl Fn(usize) -> f64) -> f64 {
        let mut stack: Vec<f64> = Vec::with_capacity(8);
        for step in &self.steps {
            let value = match step {
                Step::Number(number) => *number,
                Step::Column(place) => column(*place),
                Step::One(function) => function(stack.pop().unwrap_or(f64::NAN)),
                Step::Two(function) => {
                    let second = stack.pop().unwrap_or(f64::NAN);
                    function(stack.pop().unwrap_or(f64::NAN), second)
                }
                Step::Choose => {
                    let (third, second) = (stack.pop(), stack.pop());
                    let first = stack.pop().unwrap_or(f64::NAN);
                    if first == 0.0 { third } else { second }.unwrap_or(f64::NAN)
                }
            };
            stack.push(value);
        }
        stack.pop().unwrap_or(f64::NAN)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    columns: &'a [String],
    steps: Vec<Step>,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn wrong(&self, why: &str) -> QueryError {
        QueryError::field("apply.expr", format_args!("{why} at byte {}", self.at))
    }

    /// What is left behind blanks.
    fn rest(&mut self) -> &'a str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn skip(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str) -> QueryResult<()> {
        if self.skip(token) { Ok(()) } else { Err(self.wrong(&format!("`{token}` expected"))) }
    }

    fn deeper(&mut self) -> QueryResult<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.wrong("it is nested too deeply")) } else { Ok(()) }
    }

    fn choice(&mut self) -> QueryResult<()> {
        self.deeper()?;
        self.binary(0)?;
        if self.skip("?") {
            self.choice()?;
            self.expect(":")?;
            self.choice()?;
            self.steps.push(Step::Choose);
        }
        self.depth -= 1;
        Ok(())
    }

    /// Operands and the operators between them that bind more strongly than `least`.
    fn binary(&mut self, least: u32) -> QueryResult<()> {
        self.deeper()?;
        self.operand()?;
        loop {
            let rest = self.rest();
            let found = BINARY.iter().find(|(token, ..)| rest.starts_with(token));
            let Some((token, binds, function)) = found.filter(|(_, binds, _)| *binds > least)
            else {
                break;
            };
            self.at += token.len();
            // A power's right side is a whole power, all others begin anew from the left.
            self.binary(if *token == "^" { binds - 1 } else { *binds })?;
            self.steps.push(Step::Two(*function));
        }
        self.depth -= 1;
        Ok(())
    }

    fn operand(&mut self) -> QueryResult<()> {
        let rest = self.rest();
        match rest.bytes().next() {
            Some(b'-') => {
                self.at += 1;
                self.binary(SIGN)?;
                self.steps.push(Step::One(|x| -x));
                Ok(())
            }
            Some(b'+') => {
                self.at += 1;
                self.binary(SIGN)
            }
            Some(b'!') if !self.columns.iter().any(|column| rest.starts_with(column.as_str())) => {
                self.at += 1;
                self.binary(SIGN)?;
                self.steps.push(Step::One(|x| truth(x == 0.0)));
                Ok(())
            }
            Some(b'(') => {
                self.at += 1;
                self.choice()?;
                self.expect(")")
            }
            Some(b'0'..=b'9' | b'.') => self.number(rest),
            _ => self.word(rest),
        }
    }

    fn number(&mut self, rest: &str) -> QueryResult<()> {
        let bytes = rest.as_bytes();
        let mut end = 0;
        while let Some(byte) = bytes.get(end) {
            let after_e = end > 0 && matches!(bytes[end - 1], b'e' | b'E');
            if !(byte.is_ascii_digit()
                || matches!(byte, b'.' | b'e' | b'E')
                || after_e && b"+-".contains(byte))
            {
                break;
            }
            end += 1;
        }
        let number = rest[..end].parse().map_err(|_| self.wrong("a number expected"))?;
        self.at += end;
        self.steps.push(Step::Number(number));
        Ok(())
    }

    fn word(&mut self, rest: &str) -> QueryResult<()> {
        let is_part = |c: char| c.is_alphanumeric() || "._:@$".contains(c);
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        // The longest column that fits, since names may have what are operators elsewhere.
        let columns =
            self.columns.iter().enumerate().filter(|(_, name)| rest.starts_with(name.as_str()));
        let column =
            columns.max_by_key(|(_, name)| name.len()).filter(|(_, name)| name.len() >= end);
        if let Some((place, name)) = column {
            self.at += name.len();
            self.steps.push(Step::Column(place));
            return Ok(());
        }
        let word = &rest[..end];
        if word.is_empty() {
            return Err(self.wrong("a column, a number or a function expected"));
        }
        let one = ONE.iter().find(|(name, _)| *name == word).map(|(_, function)| *function);
        let many = MANY.iter().find(|(name, _)| *name == word).map(|(_, function)| *function);
        if one.is_none() && many.is_none() && word != "avg" {
            let why = format!(
                "`{word}` is neither a function nor one of the columns {}",
                self.columns.join(", ")
            );
            return Err(self.wrong(&why));
        }
        self.at += end;
        self.expect("(")?;
        let mut count = 0;
        loop {
            self.choice()?;
            count += 1;
            if let (2.., None) = (count, one) {
                self.steps.push(Step::Two(many.unwrap_or(|a, b| a + b)));
            }
            if one.is_some() || !self.skip(",") {
                break;
            }
        }
        self.steps.extend(one.map(Step::One));
        if word == "avg" {
            self.steps.extend([Step::Number(f64::from(count)), Step::Two(|a, b| a / b)]);
        }
        self.expect(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<f64, String> {
        let columns = ["a".to_string(), "g.x".to_string(), "net-in".to_string()];
        let expression = Expression::parse(text, &columns).map_err(|error| error.to_string())?;
        Ok(expression.value(|column| [2.0, 3.0, 10.0][column]))
    }

    #[test]
    fn formulas_have_their_values() {
        for (text, expected) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("10 - 3 - 2", 5.0),
            ("2 ^ 3 ^ 2", 512.0),
            ("-a ^ 2", -4.0),
            ("2 ^ -1", 0.5),
            ("g.x * 2 + sqrt(a * 8)", 10.0),
            ("net-in - a", 8.0),
            ("a-g.x", -1.0),
            ("a < g.x && g.x <= 3 ? 1 : 0", 1.0),
            ("a == 3 || !a ? 1 : 5", 5.0),
            ("min(4, a, g.x)", 2.0),
            ("max(a)", 2.0),
            ("avg(1, 2, 6)", 3.0),
            ("sum(1, 2, 6)", 9.0),
            ("1.5e1 + .5", 15.5),
            ("sign(-3) + rint(2.5) + abs(-1)", 2.0),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
        assert_eq!(value(&("1".to_string() + &"+1".repeat(2000))), Ok(2001.0));
    }

    #[test]
    fn what_is_no_formula_is_refused() {
        let deep = "(".repeat(2000);
        let signs = "-".repeat(4000);
        let long = "1+".repeat(4000);
        for text in [
            "",
            "1 +",
            "(1",
            "1 2",
            "b",
            "sqrt",
            "sqrt()",
            "sqrt(1, 2)",
            "1.2.3",
            "a ? 1",
            "\u{e9}",
            &deep,
            &signs,
            &long,
        ] {
            assert!(value(text).is_err(), "{text}");
        }
        assert!(value("b").unwrap_err().contains("g.x"));
    }
}
