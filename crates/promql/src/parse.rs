//! From text to an expression, by descent.
//!
//! The text has a bounded length, parentheses and the tree a bounded depth: neither reading nor
//! evaluating what a stranger sends runs out of stack. Errors say where, as Prometheus does:
//! `1:5: parse error: ...`.

use crate::ast::*;
use crate::fault::ParseError;
use crate::functions;
use crate::labels::NAME;
use crate::lexer::{Lexer, Token};
use crate::matcher::{MatchOp, Matcher};

/// Longest expression in bytes.
const MAX_BYTES: usize = 256 << 10;
/// How deep parentheses, calls and signs may be nested.
const MAX_NESTING: usize = 64;
/// How many levels the tree may have, which a long sum has as well.
const MAX_DEPTH: usize = 150;

/// The expression of a text, whose types fit.
pub fn parse(text: &str) -> Result<Node, ParseError> {
    let mut parser = Parser::new(text)?;
    if parser.token == Token::End {
        return parser.wrong("no expression found in input");
    }
    let node = parser.binary(0)?;
    if parser.token != Token::End {
        return parser.unexpected("");
    }
    crate::check::check(text, &node)?;
    Ok(node)
}

/// The conditions of a text that is a selector and nothing else, as `match[]` has them.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, ParseError> {
    match parse(text)?.expr {
        Expr::Vector(Selector { matchers, shift, .. }) if shift == Shift::default() => Ok(matchers),
        _ => Err(ParseError::new(text, 0, "a selector of series expected")),
    }
}

pub(crate) struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    token: Token,
    begin: usize,
    end: usize,
    /// Where the last token ended that was taken.
    taken: usize,
    nesting: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, ParseError> {
        if text.len() > MAX_BYTES {
            let why = format!("the expression is longer than {MAX_BYTES} bytes");
            return Err(ParseError::new(text, 0, &why));
        }
        let mut parser = Self {
            text,
            lexer: Lexer::new(text),
            token: Token::End,
            begin: 0,
            end: 0,
            taken: 0,
            nesting: 0,
        };
        parser.advance()?;
        Ok(parser)
    }

    fn wrong<T>(&self, why: &str) -> Result<T, ParseError> {
        Err(ParseError::new(self.text, self.begin, why))
    }

    fn unexpected<T>(&self, expected: &str) -> Result<T, ParseError> {
        let found = match &self.token {
            Token::End => "end of input".to_string(),
            Token::Word(word) => format!("identifier {word:?}"),
            Token::Number(_) => format!("number {:?}", &self.text[self.begin..self.end]),
            Token::Duration(_) => format!("duration {:?}", &self.text[self.begin..self.end]),
            Token::String(text) => format!("string {text:?}"),
            Token::Sign(sign) => format!("{sign:?}"),
        };
        let expected =
            if expected.is_empty() { String::new() } else { format!(", expected {expected}") };
        self.wrong(&format!("unexpected {found}{expected}"))
    }

    fn advance(&mut self) -> Result<Token, ParseError> {
        self.taken = self.end;
        let (token, begin, end) = self.lexer.next()?;
        (self.begin, self.end) = (begin, end);
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn is(&self, sign: &str) -> bool {
        matches!(&self.token, Token::Sign(found) if *found == sign)
    }

    fn skip(&mut self, sign: &str) -> Result<bool, ParseError> {
        let found = self.is(sign);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, sign: &str) -> Result<(), ParseError> {
        if self.skip(sign)? { Ok(()) } else { self.unexpected(&format!("{sign:?}")) }
    }

    /// The word that comes next, in small letters: keywords may have any.
    fn keyword(&self) -> Option<String> {
        match &self.token {
            Token::Word(word) => Some(word.to_ascii_lowercase()),
            _ => None,
        }
    }

    fn skip_keyword(&mut self, keyword: &str) -> Result<bool, ParseError> {
        let found = self.keyword().as_deref() == Some(keyword);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn node(&self, expr: Expr, begin: usize, below: usize) -> Result<Node, ParseError> {
        if below >= MAX_DEPTH {
            let why = format!("the expression has more than {MAX_DEPTH} levels");
            return Err(ParseError::new(self.text, begin, &why));
        }
        Ok(Node { expr, span: begin..self.taken, depth: below + 1, in_parens: false })
    }

    fn operator(&self) -> Option<(BinaryOp, usize)> {
        let text = match &self.token {
            Token::Sign(sign) => (*sign).to_string(),
            _ => self.keyword()?,
        };
        OPERATORS.iter().find(|(found, ..)| *found == text).map(|(_, op, binds)| (*op, *binds))
    }

    fn binary(&mut self, least: usize) -> Result<Node, ParseError> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return self.wrong(&format!("the expression is nested more than {MAX_NESTING} times"));
        }
        let begin = self.begin;
        let mut left = self.unary()?;
        while let Some((op, binds)) = self.operator() {
            if binds <= least {
                break;
            }
            self.advance()?;
            let (bool, matching) = self.modifiers(op)?;
            // A power's right side is a whole power.
            let right = self.binary(if op == BinaryOp::Pow { binds - 1 } else { binds })?;
            let below = left.depth.max(right.depth);
            let binary =
                Binary { op, left: Box::new(left), right: Box::new(right), bool, matching };
            left = self.node(Expr::Binary(binary), begin, below)?;
        }
        self.nesting -= 1;
        Ok(left)
    }

    /// What may stand between an operator and its right side.
    fn modifiers(&mut self, op: BinaryOp) -> Result<(bool, Matching), ParseError> {
        let bool = self.skip_keyword("bool")?;
        let cardinality = if op.is_set() { Cardinality::ManyToMany } else { Cardinality::OneToOne };
        let mut matching =
            Matching { cardinality, labels: Vec::new(), on: false, include: Vec::new() };
        matching.on = self.skip_keyword("on")?;
        if !matching.on && !self.skip_keyword("ignoring")? {
            return Ok((bool, matching));
        }
        matching.labels = self.labels()?;
        for (keyword, side) in
            [("group_left", Cardinality::ManyToOne), ("group_right", Cardinality::OneToMany)]
        {
            if self.skip_keyword(keyword)? {
                matching.cardinality = side;
                if self.is("(") {
                    matching.include = self.labels()?;
                }
                break;
            }
        }
        if matches!(self.keyword().as_deref(), Some("fill" | "fill_left" | "fill_right")) {
            return self.wrong("binop fill modifiers are experimental and not enabled");
        }
        Ok((bool, matching))
    }

    /// Names of labels in parentheses.
    fn labels(&mut self) -> Result<Vec<String>, ParseError> {
        self.expect("(")?;
        let mut labels = Vec::new();
        while !self.skip(")")? {
            match self.advance()? {
                Token::Word(label) | Token::String(label) if !label.is_empty() => {
                    labels.push(label)
                }
                _ => return self.wrong("unexpected token in grouping opts, expected label"),
            }
            if !self.skip(",")? {
                self.expect(")")?;
                break;
            }
        }
        Ok(labels)
    }

    fn unary(&mut self) -> Result<Node, ParseError> {
        let begin = self.begin;
        let is_negative = self.is("-");
        if !is_negative && !self.is("+") {
            return self.postfix();
        }
        self.advance()?;
        // It binds as a product does: less than a power.
        let inner = self.binary(5)?;
        let below = inner.depth;
        // `-1` is a number.
        let expr = match inner.expr {
            Expr::Number(number) if !inner.in_parens => {
                Expr::Number(if is_negative { -number } else { number })
            }
            _ if is_negative => Expr::Negative(Box::new(inner)),
            _ => Expr::Positive(Box::new(inner)),
        };
        self.node(expr, begin, below)
    }

    fn postfix(&mut self) -> Result<Node, ParseError> {
        let begin = self.begin;
        let mut node = self.primary()?;
        loop {
            if self.is("[") {
                node = self.range(node, begin)?;
            } else if self.skip_keyword("offset")? {
                let offset = self.signed_duration()?;
                let Some(shift) = shift_of(&mut node) else {
                    return Err(ParseError::new(
                        self.text,
                        begin,
                        &format!("offset {MUST_FOLLOW}"),
                    ));
                };
                if shift.offset.replace(offset).is_some() {
                    return Err(ParseError::new(
                        self.text,
                        begin,
                        "offset may not be set multiple times",
                    ));
                }
            } else if self.skip("@")? {
                let at = self.time()?;
                let Some(shift) = shift_of(&mut node) else {
                    return Err(ParseError::new(self.text, begin, &format!("@ {MUST_FOLLOW}")));
                };
                if shift.at.replace(at).is_some() {
                    let why = "@ <timestamp> may not be set multiple times";
                    return Err(ParseError::new(self.text, begin, why));
                }
            } else {
                return Ok(node);
            }
            node.span.end = self.taken;
        }
    }

    /// A range in brackets, or a subquery's range and step.
    fn range(&mut self, inner: Node, begin: usize) -> Result<Node, ParseError> {
        self.expect("[")?;
        let range = self.positive_duration()?;
        let below = inner.depth;
        if self.skip(":")? {
            let step = if self.is("]") { None } else { Some(self.positive_duration()?) };
            self.expect("]")?;
            let inner = Box::new(inner);
            let subquery = Subquery { inner, range, step, shift: Shift::default() };
            return self.node(Expr::Subquery(subquery), begin, below);
        }
        self.expect("]")?;
        let why = match inner.expr {
            Expr::Vector(selector) if !inner.in_parens => match selector.shift {
                Shift { offset: None, at: None } => {
                    return self.node(Expr::Matrix(selector, range), begin, below);
                }
                Shift { offset: Some(_), .. } => "no offset modifiers allowed before range",
                Shift { .. } => "no @ modifiers allowed before range",
            },
            _ => "ranges only allowed for vector selectors",
        };
        Err(ParseError::new(self.text, begin, why))
    }

    fn positive_duration(&mut self) -> Result<i64, ParseError> {
        let begin = self.begin;
        match self.duration()? {
            0 => Err(ParseError::new(self.text, begin, "duration must be greater than 0")),
            duration => Ok(duration),
        }
    }

    fn duration(&mut self) -> Result<i64, ParseError> {
        match self.token {
            Token::Duration(duration) => {
                self.advance()?;
                Ok(duration)
            }
            Token::Number(seconds) => {
                let Some(duration) = nanoseconds(seconds) else {
                    return self.wrong("duration out of range");
                };
                self.advance()?;
                Ok(duration)
            }
            _ => self.unexpected("number or duration"),
        }
    }

    fn signed_duration(&mut self) -> Result<i64, ParseError> {
        if self.skip("-")? {
            return Ok(-self.duration()?);
        }
        self.skip("+")?;
        self.duration()
    }

    /// What stands behind `@`.
    fn time(&mut self) -> Result<At, ParseError> {
        for (keyword, at) in [("start", At::Start), ("end", At::End)] {
            if self.skip_keyword(keyword)? {
                self.expect("(")?;
                self.expect(")")?;
                return Ok(at);
            }
        }
        let is_negative = self.skip("-")?;
        if !is_negative {
            self.skip("+")?;
        }
        let seconds = match (&self.token, self.keyword().as_deref()) {
            (Token::Number(seconds), _) => *seconds,
            (Token::Duration(duration), _) => *duration as f64 / 1e9,
            (_, Some("inf" | "nan")) => f64::INFINITY,
            _ => return self.unexpected("timestamp"),
        };
        let seconds = if is_negative { -seconds } else { seconds };
        let Some(time) = nanoseconds(seconds) else {
            return self.wrong(&format!("timestamp out of bounds for @ modifier: {seconds:.6}"));
        };
        self.advance()?;
        Ok(At::Time(time))
    }

    fn primary(&mut self) -> Result<Node, ParseError> {
        let begin = self.begin;
        match &self.token {
            Token::Sign("(") => {
                self.advance()?;
                let mut inner = self.binary(0)?;
                self.expect(")")?;
                inner.in_parens = true;
                inner.span = begin..self.taken;
                Ok(inner)
            }
            Token::Sign("{") => self.selector(None, begin),
            Token::Number(number) => {
                let number = *number;
                self.advance()?;
                self.node(Expr::Number(number), begin, 0)
            }
            Token::Duration(duration) => {
                let seconds = *duration as f64 / 1e9;
                self.advance()?;
                self.node(Expr::Number(seconds), begin, 0)
            }
            Token::String(text) => {
                let text = text.clone();
                self.advance()?;
                self.node(Expr::String(text), begin, 0)
            }
            Token::Word(_) => self.named(begin),
            Token::Sign(_) | Token::End => self.unexpected(""),
        }
    }

    /// What begins with a word: a number, an aggregation, a function, a metric.
    fn named(&mut self, begin: usize) -> Result<Node, ParseError> {
        let Token::Word(word) = self.advance()? else { return self.unexpected("a name") };
        let lower = word.to_ascii_lowercase();
        let constant = match lower.as_str() {
            "inf" => Some(f64::INFINITY),
            "nan" => Some(f64::NAN),
            _ => None,
        };
        if let Some(number) = constant
            && !self.is("{")
        {
            return self.node(Expr::Number(number), begin, 0);
        }
        let is_grouping = matches!(self.keyword().as_deref(), Some("by" | "without"));
        if let Some((_, op)) = AGGREGATIONS.iter().find(|(name, _)| *name == lower)
            && (self.is("(") || is_grouping)
        {
            return self.aggregate(*op, begin);
        }
        if !self.is("(") {
            return self.selector(Some(word), begin);
        }
        let Some(function) = functions::find(&word) else {
            let why = format!("unknown function with name {word:?}{}", functions::instead(&word));
            return Err(ParseError::new(self.text, begin, &why));
        };
        let arguments = self.arguments()?;
        let below = arguments.iter().map(|argument| argument.depth).max().unwrap_or(0);
        self.node(Expr::Call(function, arguments), begin, below)
    }

    fn arguments(&mut self) -> Result<Vec<Node>, ParseError> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        if self.skip(")")? {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.binary(0)?);
            if self.skip(")")? {
                return Ok(arguments);
            }
            if !self.skip(",")? {
                return self.unexpected("\",\" or \")\"");
            }
            if self.is(")") {
                return self.wrong("trailing commas not allowed in function call args");
            }
        }
    }

    fn aggregate(&mut self, op: Aggregation, begin: usize) -> Result<Node, ParseError> {
        let mut grouping = self.grouping()?;
        let mut arguments = self.arguments()?;
        if grouping.is_none() {
            grouping = self.grouping()?;
        }
        let wanted = if op.has_param() { 2 } else { 1 };
        if arguments.is_empty() {
            let why = "no arguments for aggregate expression provided";
            return Err(ParseError::new(self.text, begin, why));
        }
        if arguments.len() != wanted {
            let why = format!(
                "wrong number of arguments for aggregate expression provided, expected {wanted}, got {}",
                arguments.len()
            );
            return Err(ParseError::new(self.text, begin, &why));
        }
        let below = arguments.iter().map(|argument| argument.depth).max().unwrap_or(0);
        let inner = Box::new(arguments.remove(wanted - 1));
        let param = arguments.pop().map(Box::new);
        let (without, grouping) = grouping.unwrap_or_default();
        self.node(Expr::Aggregate(Aggregate { op, param, inner, grouping, without }), begin, below)
    }

    fn grouping(&mut self) -> Result<Option<(bool, Vec<String>)>, ParseError> {
        let without = match self.keyword().as_deref() {
            Some("by") => false,
            Some("without") => true,
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some((without, self.labels()?)))
    }

    /// Conditions in braces behind a metric's name, or either of them alone.
    fn selector(&mut self, name: Option<String>, begin: usize) -> Result<Node, ParseError> {
        let mut matchers = Vec::new();
        let mut name = name;
        if self.skip("{")? {
            while !self.skip("}")? {
                if let Some(quoted) = self.matcher(&mut matchers)? {
                    if let Some(name) = &name {
                        let why =
                            format!("metric name must not be set twice: {name:?} or {quoted:?}");
                        return Err(ParseError::new(self.text, begin, &why));
                    }
                    name = Some(quoted);
                }
                if !self.skip(",")? && !self.is("}") {
                    return self.unexpected("\",\" or \"}\"");
                }
            }
        }
        if let Some(name) = &name {
            if let Some(other) = matchers.iter().find(|matcher| matcher.label == NAME) {
                let why =
                    format!("metric name must not be set twice: {name:?} or {:?}", other.value);
                return Err(ParseError::new(self.text, begin, &why));
            }
            matchers.push(self.condition(NAME, MatchOp::Equal, name, begin)?);
        }
        self.node(Expr::Vector(Selector { name, matchers, shift: Shift::default() }), begin, 0)
    }

    /// One condition; a text in quotes alone is the metric's name, and is given back.
    fn matcher(&mut self, matchers: &mut Vec<Matcher>) -> Result<Option<String>, ParseError> {
        let begin = self.begin;
        let is_quoted = matches!(self.token, Token::String(_));
        let label = match self.advance()? {
            Token::Word(label) | Token::String(label) => label,
            _ => {
                return Err(ParseError::new(
                    self.text,
                    begin,
                    "identifier or \"}\" expected in label matching",
                ));
            }
        };
        let op = match self.token {
            Token::Sign("=") => MatchOp::Equal,
            Token::Sign("!=") => MatchOp::NotEqual,
            Token::Sign("=~") => MatchOp::Matches,
            Token::Sign("!~") => MatchOp::MatchesNot,
            Token::Sign("," | "}") if is_quoted => return Ok(Some(label)),
            _ => return self.unexpected("label matching operator"),
        };
        self.advance()?;
        let Token::String(value) = &self.token else { return self.unexpected("string") };
        let value = value.clone();
        matchers.push(self.condition(&label, op, &value, self.begin)?);
        self.advance()?;
        Ok(None)
    }

    fn condition(
        &self,
        label: &str,
        op: MatchOp,
        value: &str,
        at: usize,
    ) -> Result<Matcher, ParseError> {
        Matcher::new(label, op, value).map_err(|why| {
            ParseError::new(
                self.text,
                at,
                &format!("invalid regular expression {}: {why}", shown(value)),
            )
        })
    }
}

/// The beginning of a text, in quotes.
fn shown(text: &str) -> String {
    const SHOWN: usize = 80;
    let rest = if text.chars().count() > SHOWN { "..." } else { "" };
    format!("{:?}{rest}", text.chars().take(SHOWN).collect::<String>())
}

const MUST_FOLLOW: &str = "modifier must be preceded by an instant vector selector or range vector selector or a subquery";

/// What `offset` and `@` change.
fn shift_of(node: &mut Node) -> Option<&mut Shift> {
    if node.in_parens {
        return None;
    }
    match &mut node.expr {
        Expr::Vector(selector) | Expr::Matrix(selector, _) => Some(&mut selector.shift),
        Expr::Subquery(subquery) => Some(&mut subquery.shift),
        _ => None,
    }
}

/// Nanoseconds of seconds, to the millisecond, as times and durations in numbers are taken; `None`
/// beyond what a clock reaches.
pub fn nanoseconds(seconds: f64) -> Option<i64> {
    let milliseconds = (seconds * 1000.0).round();
    (milliseconds.abs() < 9.2e12).then(|| milliseconds as i64 * 1_000_000)
}

const AGGREGATIONS: [(&str, Aggregation); 14] = [
    ("sum", Aggregation::Sum),
    ("avg", Aggregation::Avg),
    ("min", Aggregation::Min),
    ("max", Aggregation::Max),
    ("count", Aggregation::Count),
    ("group", Aggregation::Group),
    ("stddev", Aggregation::Stddev),
    ("stdvar", Aggregation::Stdvar),
    ("topk", Aggregation::Topk),
    ("bottomk", Aggregation::Bottomk),
    ("quantile", Aggregation::Quantile),
    ("count_values", Aggregation::CountValues),
    ("limitk", Aggregation::Limitk),
    ("limit_ratio", Aggregation::LimitRatio),
];

impl Aggregation {
    /// Its name.
    pub fn name(self) -> &'static str {
        AGGREGATIONS.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }

    /// Whether it takes something before the series.
    pub fn has_param(self) -> bool {
        use Aggregation::*;
        matches!(self, Topk | Bottomk | Quantile | CountValues | Limitk | LimitRatio)
    }
}
