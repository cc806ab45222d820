//! The functions that there are, what they take and what they give.
//!
//! The parser finds a call's function here, the checker compares its arguments; the evaluator goes
//! by the name alone. A name that is here and that the evaluator doesn't know would be an error of
//! evaluation: a test calls them all.

use Type::{Matrix, Scalar, String, Vector};

/// What an expression comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// A number a step.
    Scalar,
    /// Series with a value a step.
    Vector,
    /// Series with the points of a range.
    Matrix,
    /// A text.
    String,
}

impl Type {
    /// The word for it in Prometheus' errors.
    pub fn word(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
            Self::String => "string",
        }
    }
}

/// A function's name and types.
#[derive(PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: &'static [Type],
    /// How many of these, at the end, may be left out.
    pub optional: usize,
    /// Whether the last one may come any number of times, or never.
    pub repeats: bool,
    /// What it gives.
    pub returns: Type,
}

/// What there is in place of a function that isn't here.
pub fn instead(name: &str) -> &'static str {
    match name {
        "info"
        | "histogram_quantiles"
        | "min_of"
        | "max_of"
        | "start"
        | "end"
        | "step"
        | "range" => "; it is experimental in Prometheus, and not served here",
        "holt_winters" => "; Prometheus 3 calls it double_exponential_smoothing",
        _ => "",
    }
}

const fn function(name: &'static str, takes: &'static [Type], returns: Type) -> Function {
    Function { name, takes, optional: 0, repeats: false, returns }
}

const fn of_vector(name: &'static str) -> Function {
    function(name, &[Vector], Vector)
}

const fn of_range(name: &'static str) -> Function {
    function(name, &[Matrix], Vector)
}

const fn of_time(name: &'static str) -> Function {
    Function { optional: 1, ..of_vector(name) }
}

const fn repeating(name: &'static str, takes: &'static [Type]) -> Function {
    Function { repeats: true, ..function(name, takes, Vector) }
}

/// All of them. Of those that Prometheus calls experimental there are the ones without which
/// nothing else is different.
const FUNCTIONS: &[Function] = &[
    of_vector("abs"),
    of_vector("absent"),
    of_range("absent_over_time"),
    of_vector("acos"),
    of_vector("acosh"),
    of_vector("asin"),
    of_vector("asinh"),
    of_vector("atan"),
    of_vector("atanh"),
    of_range("avg_over_time"),
    of_vector("ceil"),
    of_range("changes"),
    function("clamp", &[Vector, Scalar, Scalar], Vector),
    function("clamp_max", &[Vector, Scalar], Vector),
    function("clamp_min", &[Vector, Scalar], Vector),
    of_vector("cos"),
    of_vector("cosh"),
    of_range("count_over_time"),
    of_time("day_of_month"),
    of_time("day_of_week"),
    of_time("day_of_year"),
    of_time("days_in_month"),
    of_vector("deg"),
    of_range("delta"),
    of_range("deriv"),
    function("double_exponential_smoothing", &[Matrix, Scalar, Scalar], Vector),
    of_vector("exp"),
    of_range("first_over_time"),
    of_vector("floor"),
    of_vector("histogram_avg"),
    of_vector("histogram_count"),
    function("histogram_fraction", &[Scalar, Scalar, Vector], Vector),
    function("histogram_quantile", &[Scalar, Vector], Vector),
    of_vector("histogram_stddev"),
    of_vector("histogram_stdvar"),
    of_vector("histogram_sum"),
    of_time("hour"),
    of_range("idelta"),
    of_range("increase"),
    of_range("irate"),
    repeating("label_join", &[Vector, String, String, String]),
    function("label_replace", &[Vector, String, String, String, String], Vector),
    of_range("last_over_time"),
    of_vector("ln"),
    of_vector("log10"),
    of_vector("log2"),
    of_range("mad_over_time"),
    of_range("max_over_time"),
    of_range("min_over_time"),
    of_time("minute"),
    of_time("month"),
    function("pi", &[], Scalar),
    function("predict_linear", &[Matrix, Scalar], Vector),
    of_range("present_over_time"),
    function("quantile_over_time", &[Scalar, Matrix], Vector),
    of_vector("rad"),
    of_range("rate"),
    of_range("resets"),
    Function { optional: 1, ..function("round", &[Vector, Scalar], Vector) },
    function("scalar", &[Vector], Scalar),
    of_vector("sgn"),
    of_vector("sin"),
    of_vector("sinh"),
    of_vector("sort"),
    repeating("sort_by_label", &[Vector, String]),
    repeating("sort_by_label_desc", &[Vector, String]),
    of_vector("sort_desc"),
    of_vector("sqrt"),
    of_range("stddev_over_time"),
    of_range("stdvar_over_time"),
    of_range("sum_over_time"),
    of_vector("tan"),
    of_vector("tanh"),
    function("time", &[], Scalar),
    of_vector("timestamp"),
    of_range("ts_of_first_over_time"),
    of_range("ts_of_last_over_time"),
    of_range("ts_of_max_over_time"),
    of_range("ts_of_min_over_time"),
    function("vector", &[Scalar], Vector),
    of_time("year"),
];

/// A function by its name.
pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// The names of all functions.
pub fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|function| function.name)
}
