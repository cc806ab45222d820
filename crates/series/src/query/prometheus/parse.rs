//! The part of PromQL that is understood: selectors, functions over a range, aggregations, and arithmetic.
//!
//! An expression has a bounded number of parts and a bounded depth, so that what it costs is what its series cost. Errors say at which byte.

use crate::time::duration;
use regex_lite::Regex;

/// Longest expression in bytes, most parts of it, deepest nesting.
const MAX_BYTES: usize = 16 << 10;
const MAX_PARTS: usize = 256;
const MAX_DEPTH: usize = 64;

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Number(f64),
    /// The last point of each series.
    Select(Selector),
    /// A function of the points in so many nanoseconds.
    Over(Over, Selector, i64),
    Aggregate(Aggregation, Grouping, Box<Self>),
    Binary(Operator, Box<Self>, Box<Self>),
}

/// Which series.
#[derive(Clone, Default, Debug)]
pub(super) struct Selector {
    pub(super) matchers: Vec<Matcher>,
}

/// What a label has to be.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    pub(super) label: String,
    pub(super) is_not: bool,
    pub(super) test: Test,
}

#[derive(Clone, Debug)]
pub(super) enum Test {
    Is(String),
    Fits(Regex),
}

impl Matcher {
    /// Whether a label's value is as it has to be; a label that isn't there is empty.
    pub(super) fn matches(&self, value: &str) -> bool {
        let is = match &self.test {
            Test::Is(text) => text == value,
            Test::Fits(regex) => regex.is_match(value),
        };
        is != self.is_not
    }
}

/// The label that has the metric.
pub(super) const NAME: &str = "__name__";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Rate,
    Increase,
    Irate,
    Delta,
    Avg,
    Min,
    Max,
    Sum,
    Count,
    Last,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Grouping {
    By(Vec<String>),
    Without(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
}

const OVER: [(&str, Over); 10] = [
    ("rate", Over::Rate),
    ("increase", Over::Increase),
    ("irate", Over::Irate),
    ("delta", Over::Delta),
    ("avg_over_time", Over::Avg),
    ("min_over_time", Over::Min),
    ("max_over_time", Over::Max),
    ("sum_over_time", Over::Sum),
    ("count_over_time", Over::Count),
    ("last_over_time", Over::Last),
];
const AGGREGATIONS: [(&str, Aggregation); 5] = [
    ("sum", Aggregation::Sum),
    ("avg", Aggregation::Avg),
    ("min", Aggregation::Min),
    ("max", Aggregation::Max),
    ("count", Aggregation::Count),
];
/// Operators, and how strongly they bind.
const OPERATORS: [(u8, Operator, usize); 6] = [
    (b'+', Operator::Add, 1),
    (b'-', Operator::Subtract, 1),
    (b'*', Operator::Multiply, 2),
    (b'/', Operator::Divide, 2),
    (b'%', Operator::Remainder, 2),
    (b'^', Operator::Power, 3),
];

/// The expression of a text.
pub(super) fn expression(text: &str) -> Result<Expr, String> {
    let mut parser = Parser::new(text)?;
    let expression = parser.binary(0)?;
    parser.end()?;
    Ok(expression)
}

/// A selector and how many nanoseconds back, if a text is that and nothing else, such as `up[1h]`: it asks for the points themselves.
pub(super) fn points(text: &str) -> Result<Option<(Selector, i64)>, String> {
    let mut parser = Parser::new(text)?;
    let name = parser.word();
    // What is no selector is told as what is wrong with an expression.
    let Ok(selector) = parser.selector(name) else { return Ok(None) };
    if !parser.rest().starts_with('[') {
        return Ok(None);
    }
    let range = parser.range()?;
    parser.end()?;
    Ok(Some((selector, range)))
}

/// The selector of a text.
pub(super) fn selector(text: &str) -> Result<Selector, String> {
    let mut parser = Parser::new(text)?;
    let name = parser.word();
    let selector = parser.selector(name)?;
    parser.end()?;
    Ok(selector)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    parts: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("the expression is longer than {MAX_BYTES} bytes"));
        }
        Ok(Self { text, at: 0, parts: 0, depth: 0 })
    }

    fn wrong<T>(&self, why: &str) -> Result<T, String> {
        Err(format!("{why} at byte {} of the expression", self.at))
    }

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

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.skip(token) { Ok(()) } else { self.wrong(&format!("`{token}` expected")) }
    }

    fn end(&mut self) -> Result<(), String> {
        if self.rest().is_empty() { Ok(()) } else { self.wrong("the end or an operator expected") }
    }

    /// A name; metrics may have points, as those of Akumuli do.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let starts = rest.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == ':');
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = if starts { &rest[..end] } else { "" };
        self.at += word.len();
        word
    }

    fn binary(&mut self, least: usize) -> Result<Expr, String> {
        self.depth += 1;
        self.parts += 1;
        if self.depth > MAX_DEPTH || self.parts > MAX_PARTS {
            return self.wrong("more parts, or deeper ones, than an expression may have");
        }
        let mut left = self.operand()?;
        loop {
            let next = self.rest().bytes().next();
            let Some((_, operator, binds)) = OPERATORS.iter().find(|(token, ..)| Some(*token) == next) else {
                break;
            };
            if *binds <= least {
                break;
            }
            self.at += 1;
            // A power's right side is a whole power.
            let right = self.binary(if *operator == Operator::Power { binds - 1 } else { *binds })?;
            left = Expr::Binary(*operator, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operand(&mut self) -> Result<Expr, String> {
        if self.skip("(") {
            let inner = self.binary(0)?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.skip("-") {
            let right = self.binary(2)?;
            return Ok(Expr::Binary(Operator::Multiply, Box::new(Expr::Number(-1.0)), Box::new(right)));
        }
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            return match rest[..end].parse() {
                Ok(number) => {
                    self.at += end;
                    Ok(Expr::Number(number))
                }
                Err(_) => self.wrong("a number expected"),
            };
        }
        let word = self.word();
        let aggregation = AGGREGATIONS.iter().find(|(name, _)| *name == word);
        let is_call = self.rest().starts_with('(');
        if let Some((_, aggregation)) = aggregation
            && (is_call || self.rest().starts_with("by") || self.rest().starts_with("without"))
        {
            return self.aggregate(*aggregation);
        }
        if !is_call {
            return Ok(Expr::Select(self.selector(word)?));
        }
        let Some((_, over)) = OVER.iter().find(|(name, _)| *name == word) else {
            let known: Vec<&str> = OVER.iter().map(|(name, _)| *name).collect();
            return self.wrong(&format!(
                "`{word}` is not known; {} and sum, avg, min, max, count are",
                known.join(", ")
            ));
        };
        self.expect("(")?;
        let name = self.word();
        let selector = self.selector(name)?;
        let range = self.range()?;
        self.expect(")")?;
        Ok(Expr::Over(*over, selector, range))
    }

    /// The nanoseconds between brackets.
    fn range(&mut self) -> Result<i64, String> {
        self.expect("[")?;
        let rest = self.rest();
        let end = rest.find(']').unwrap_or(rest.len());
        let Some(range) = duration(rest[..end].trim()) else {
            return self.wrong("a duration such as 5m expected");
        };
        self.at += end;
        self.expect("]")?;
        Ok(range)
    }

    fn aggregate(&mut self, aggregation: Aggregation) -> Result<Expr, String> {
        let mut grouping = self.grouping()?;
        self.expect("(")?;
        let inner = self.binary(0)?;
        self.expect(")")?;
        if grouping.is_none() {
            grouping = self.grouping()?;
        }
        let grouping = grouping.unwrap_or(Grouping::By(Vec::new()));
        Ok(Expr::Aggregate(aggregation, grouping, Box::new(inner)))
    }

    fn grouping(&mut self) -> Result<Option<Grouping>, String> {
        let is_by = self.skip("by");
        if !is_by && !self.skip("without") {
            return Ok(None);
        }
        self.expect("(")?;
        let mut labels = Vec::new();
        while !self.skip(")") {
            match self.word() {
                "" => return self.wrong("the name of a label expected"),
                label => labels.push(label.to_string()),
            }
            if !self.skip(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(Some(if is_by { Grouping::By(labels) } else { Grouping::Without(labels) }))
    }

    /// What follows a metric's name, or stands alone.
    fn selector(&mut self, name: &str) -> Result<Selector, String> {
        let mut selector = Selector::default();
        if !name.is_empty() {
            let test = Test::Is(name.to_string());
            selector.matchers.push(Matcher { label: NAME.to_string(), is_not: false, test });
        }
        if self.skip("{") {
            while !self.skip("}") {
                selector.matchers.push(self.matcher()?);
                if selector.matchers.len() > MAX_PARTS {
                    return self.wrong("too many conditions");
                }
                if !self.skip(",") {
                    self.expect("}")?;
                    break;
                }
            }
        }
        if selector.matchers.is_empty() {
            return self.wrong("a metric, a function or a number expected");
        }
        Ok(selector)
    }

    fn matcher(&mut self) -> Result<Matcher, String> {
        let label = self.word().to_string();
        if label.is_empty() {
            return self.wrong("the name of a label expected");
        }
        let (is_not, is_regex) = match () {
            () if self.skip("=~") => (false, true),
            () if self.skip("!~") => (true, true),
            () if self.skip("!=") => (true, false),
            () if self.skip("=") => (false, false),
            () => return self.wrong("one of = != =~ !~ expected"),
        };
        let text = self.string()?;
        let test = match is_regex {
            false => Test::Is(text),
            true => {
                let regex =
                    regex_lite::RegexBuilder::new(&format!("^(?:{text})$")).size_limit(1 << 20).build();
                Test::Fits(regex.or_else(|error| self.wrong(&format!("no regular expression: {error}")))?)
            }
        };
        Ok(Matcher { label, is_not, test })
    }

    fn string(&mut self) -> Result<String, String> {
        let rest = self.rest();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`')) else {
            return self.wrong("a text in quotes expected");
        };
        let (mut text, mut escaped) = (String::new(), false);
        for (place, character) in rest.char_indices().skip(1) {
            match character {
                _ if escaped => {
                    escaped = false;
                    text.push(match character {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    });
                }
                '\\' if quote != '`' => escaped = true,
                _ if character == quote => {
                    self.at += place + 1;
                    return Ok(text);
                }
                _ => text.push(character),
            }
        }
        self.wrong("a text has no end")
    }
}
