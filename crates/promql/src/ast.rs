//! What an expression is made of.
//!
//! Each node knows where it stands in the text, what it comes to, and how deep the tree below it
//! is: evaluation calls itself for each level, so the parser bounds them.

pub use crate::functions::Type;

use crate::functions::Function;
use crate::matcher::Matcher;
use std::ops::Range;

/// An expression.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub expr: Expr,
    /// The bytes of the text that it was read from.
    pub span: Range<usize>,
    /// Levels of nodes, this one among them.
    pub depth: usize,
    /// Whether it stands in parentheses.
    pub in_parens: bool,
}

/// The kinds of expressions.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A number.
    Number(f64),
    /// A text, which functions take.
    String(String),
    /// The value of each series.
    Vector(Selector),
    /// The points of each series in so many nanoseconds.
    Matrix(Selector, i64),
    /// The values of an expression at the steps of a range.
    Subquery(Subquery),
    /// A function's value.
    Call(&'static Function, Vec<Node>),
    /// One series of many, or some of many.
    Aggregate(Aggregate),
    /// Two values and what stands between.
    Binary(Binary),
    /// `-` before a value.
    Negative(Box<Node>),
    /// `+` before a value.
    Positive(Box<Node>),
}

/// When a selector looks, instead of at the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// At a time in nanoseconds.
    Time(i64),
    /// At the first step of the query.
    Start,
    /// At the last one.
    End,
}

/// By how much and to when a selector's or subquery's time is changed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Shift {
    /// Nanoseconds back.
    pub offset: Option<i64>,
    /// The time that counts instead of the step's.
    pub at: Option<At>,
}

/// Which series.
#[derive(Clone, Debug)]
pub struct Selector {
    /// The metric, if it stands before the braces.
    pub name: Option<String>,
    /// All conditions, that on the metric among them.
    pub matchers: Vec<Matcher>,
    /// Another time than the step's.
    pub shift: Shift,
}

/// The values of an expression at the steps of a range.
#[derive(Clone, Debug)]
pub struct Subquery {
    /// What is evaluated.
    pub inner: Box<Node>,
    /// Nanoseconds that it covers.
    pub range: i64,
    /// Nanoseconds from step to step; otherwise what the query's options say.
    pub step: Option<i64>,
    /// Another time than the step's.
    pub shift: Shift,
}

/// How series become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "they are Prometheus' names")]
pub enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    Quantile,
    CountValues,
    Limitk,
    LimitRatio,
}

impl Aggregation {
    /// Whether it gives some of the series, and not one of many.
    pub fn picks(self) -> bool {
        matches!(self, Self::Topk | Self::Bottomk | Self::Limitk | Self::LimitRatio)
    }
}

/// An aggregation with all that belongs to it.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Which.
    pub op: Aggregation,
    /// What `topk` and others want before the series.
    pub param: Option<Box<Node>>,
    /// The series.
    pub inner: Box<Node>,
    /// Labels of a group, or those that groups don't have.
    pub grouping: Vec<String>,
    /// Whether the labels are those that groups don't have.
    pub without: bool,
}

/// What stands between two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "they are the operators' names")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Eql,
    Neq,
    Gtr,
    Lss,
    Gte,
    Lte,
    TrimAbove,
    TrimBelow,
    And,
    Or,
    Unless,
}

/// Each operator with how it is written and how strongly it binds.
pub(crate) const OPERATORS: [(&str, BinaryOp, usize); 18] = [
    ("or", BinaryOp::Or, 1),
    ("and", BinaryOp::And, 2),
    ("unless", BinaryOp::Unless, 2),
    ("==", BinaryOp::Eql, 3),
    ("!=", BinaryOp::Neq, 3),
    (">=", BinaryOp::Gte, 3),
    ("<=", BinaryOp::Lte, 3),
    ("</", BinaryOp::TrimAbove, 3),
    (">/", BinaryOp::TrimBelow, 3),
    (">", BinaryOp::Gtr, 3),
    ("<", BinaryOp::Lss, 3),
    ("+", BinaryOp::Add, 4),
    ("-", BinaryOp::Sub, 4),
    ("*", BinaryOp::Mul, 5),
    ("/", BinaryOp::Div, 5),
    ("%", BinaryOp::Mod, 5),
    ("atan2", BinaryOp::Atan2, 5),
    ("^", BinaryOp::Pow, 6),
];

impl BinaryOp {
    /// How it is written.
    pub fn text(self) -> &'static str {
        OPERATORS.iter().find(|(_, op, _)| *op == self).map_or("", |(text, ..)| text)
    }

    /// Whether it compares.
    pub fn is_comparison(self) -> bool {
        matches!(self, Self::Eql | Self::Neq | Self::Gtr | Self::Lss | Self::Gte | Self::Lte)
    }

    /// Whether it takes a part of a histogram away.
    pub fn is_trim(self) -> bool {
        matches!(self, Self::TrimAbove | Self::TrimBelow)
    }

    /// Whether what comes of it is no longer of the metric.
    pub fn drops_metric(self) -> bool {
        !self.is_comparison() && !self.is_set() && !self.is_trim()
    }

    /// Whether it works on sets of series and not on values.
    pub fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }
}

/// Which side has many series where the other has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "they say it")]
pub enum Cardinality {
    OneToOne,
    ManyToOne,
    OneToMany,
    ManyToMany,
}

/// Which series meet.
#[derive(Clone, Debug)]
pub struct Matching {
    /// How many of each side.
    pub cardinality: Cardinality,
    /// The labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// Whether these count, or all others.
    pub on: bool,
    /// Labels of the side with one that the result has as well.
    pub include: Vec<String>,
}

/// Two values and what stands between.
#[derive(Clone, Debug)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// Before it.
    pub left: Box<Node>,
    /// Behind it.
    pub right: Box<Node>,
    /// Whether a comparison gives 0 or 1.
    pub bool: bool,
    /// Which series meet; they may have been given by nothing.
    pub matching: Matching,
}

impl Node {
    /// The conditions of each selector in it.
    pub fn selectors(&self) -> Vec<&[Matcher]> {
        let (mut found, mut left) = (Vec::new(), vec![self]);
        while let Some(node) = left.pop() {
            match &node.expr {
                Expr::Number(_) | Expr::String(_) => {}
                Expr::Vector(selector) | Expr::Matrix(selector, _) => {
                    found.push(&selector.matchers[..]);
                }
                Expr::Subquery(subquery) => left.push(&subquery.inner),
                Expr::Call(_, arguments) => left.extend(arguments),
                Expr::Aggregate(aggregate) => {
                    left.push(&aggregate.inner);
                    left.extend(aggregate.param.as_deref());
                }
                Expr::Binary(binary) => left.extend([&*binary.left, &*binary.right]),
                Expr::Negative(inner) | Expr::Positive(inner) => left.push(inner),
            }
        }
        found
    }

    /// What it comes to.
    pub fn value_type(&self) -> Type {
        match &self.expr {
            Expr::Number(_) => Type::Scalar,
            Expr::String(_) => Type::String,
            Expr::Vector(_) | Expr::Aggregate(_) => Type::Vector,
            Expr::Matrix(..) | Expr::Subquery(_) => Type::Matrix,
            Expr::Call(function, _) => function.returns,
            Expr::Negative(inner) | Expr::Positive(inner) => inner.value_type(),
            Expr::Binary(binary) => match (binary.left.value_type(), binary.right.value_type()) {
                (Type::Scalar, Type::Scalar) => Type::Scalar,
                _ => Type::Vector,
            },
        }
    }
}
