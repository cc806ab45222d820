//! Functions on rows: a pipeline of steps that each keep what they need of a line.
//!
//! A step takes rows in the order of the query and gives rows: as many, fewer, or, if it weighs
//! whole lines against each other, none until the end. What it keeps grows with the lines alone, of
//! which a query has a bounded number. A cell without a value stays without one; a row without any
//! is dropped.

use super::error::{QueryError, QueryResult};
use super::expression::Expression;
use super::json::{Json, float};
use super::merge::Rows;
use crate::value::Value;
use std::collections::{BTreeMap, VecDeque};

/// Widest window of a moving average.
const MAX_WINDOW: u64 = 65_536;
/// Values in all windows together.
const MAX_IN_WINDOWS: usize = 16 << 20;
/// Rows by which an exponential average is warmed up.
const WARM_UP: u32 = 10;

/// A function as a query names it.
#[derive(Clone, Debug)]
pub(crate) enum Function {
    Rate,
    Accumulate,
    Abs,
    Scale(Vec<f64>),
    Mean,
    Exponential { decay: f64, is_error: bool },
    Moving { width: usize, is_error: bool },
    Collapse { by: Collapse, ignore_missing: bool },
    Formula(Expression),
    Top(usize),
    Frequent { portion: f64, by_weight: bool },
}

/// How the columns of a row become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collapse {
    Sum,
    Difference,
    Product,
    Quotient,
}

/// The names of all functions.
pub const FUNCTION_NAMES: [&str; 18] = [
    "abs",
    "accumulate",
    "cma",
    "cusum",
    "diff",
    "divide",
    "eval",
    "ewma",
    "ewma-error",
    "frequent-items",
    "heavy-hitters",
    "multiply",
    "rate",
    "scale",
    "sma",
    "sma-error",
    "sum",
    "top",
];

/// A function's parameters, each taken when it is understood.
struct Parameters<'a> {
    name: &'a str,
    left: Vec<(&'a str, &'a Json)>,
}

impl<'a> Parameters<'a> {
    fn take(&mut self, name: &str) -> QueryResult<&'a Json> {
        match self.left.iter().position(|(found, _)| *found == name) {
            Some(place) => Ok(self.left.swap_remove(place).1),
            None => {
                let why = format_args!("function `{}` needs it", self.name);
                Err(QueryError::field(&format!("apply.{name}"), why))
            }
        }
    }

    fn number_within(&mut self, name: &str, least: f64, most: f64) -> QueryResult<f64> {
        let field = format!("apply.{name}");
        let number = float(&field, self.take(name)?)?;
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        Err(QueryError::field(
            &field,
            format_args!("a number from {least} to {most} expected, {number} found"),
        ))
    }

    fn count_within(&mut self, name: &str, most: u64) -> QueryResult<usize> {
        let field = format!("apply.{name}");
        let count = self.take(name)?.count(&field)?;
        match count {
            1.. if count <= most => Ok(count as usize),
            _ => {
                Err(QueryError::field(&field, format_args!("1 to {most} expected, {count} found")))
            }
        }
    }
}

impl Function {
    /// The function of `{"name": "scale", "weights": [2]}`, for rows with these columns.
    pub(crate) fn parse(json: &Json, columns: &[String]) -> QueryResult<Self> {
        let fields = json.object("apply", "objects such as {\"name\": \"rate\"}")?;
        let left = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let mut with = Parameters { name: "", left };
        with.name = match with.left.iter().find(|(name, _)| *name == "name") {
            Some((_, json)) => json.text("apply.name", "the name of a function")?,
            None => {
                return Err(QueryError::field(
                    "apply.name",
                    "the name of a function expected, it is missing",
                ));
            }
        };
        with.take("name")?;
        let function = match with.name {
            "rate" => Self::Rate,
            "accumulate" | "cusum" => Self::Accumulate,
            "abs" => Self::Abs,
            "cma" => Self::Mean,
            "scale" => Self::Scale(weights(with.take("weights")?, columns)?),
            "ewma" | "ewma-error" => Self::Exponential {
                decay: with.number_within("decay", 0.0, 1.0)?,
                is_error: with.name == "ewma-error",
            },
            "sma" | "sma-error" => Self::Moving {
                width: with.count_within("window-width", MAX_WINDOW)?,
                is_error: with.name == "sma-error",
            },
            "sum" => collapse(Collapse::Sum, &mut with)?,
            "diff" => collapse(Collapse::Difference, &mut with)?,
            "multiply" => collapse(Collapse::Product, &mut with)?,
            "divide" => collapse(Collapse::Quotient, &mut with)?,
            "eval" => {
                let text = with.take("expr")?.text("apply.expr", "a formula")?;
                Self::Formula(Expression::parse(text, columns)?)
            }
            "top" => Self::Top(with.count_within("N", u64::from(u32::MAX))?),
            "frequent-items" | "heavy-hitters" => {
                with.number_within("error", 0.0, 1.0)?;
                let by_weight = with.name == "heavy-hitters";
                Self::Frequent { portion: with.number_within("portion", 0.0, 1.0)?, by_weight }
            }
            other => {
                let why =
                    format_args!("one of {} expected, `{other}` found", FUNCTION_NAMES.join(", "));
                return Err(QueryError::field("apply.name", why));
            }
        };
        match with.left.first() {
            None => Ok(function),
            Some((name, _)) => {
                let why = format_args!("function `{}` has no such parameter", with.name);
                Err(QueryError::field(&format!("apply.{name}"), why))
            }
        }
    }

    /// Whether it makes one column of several.
    pub(crate) fn makes_one(&self) -> bool {
        matches!(
            self,
            Self::Collapse { .. } | Self::Formula(_) | Self::Top(_) | Self::Frequent { .. }
        )
    }
}

fn weights(json: &Json, columns: &[String]) -> QueryResult<Vec<f64>> {
    const FIELD: &str = "apply.weights";
    let weights = json.list(FIELD, "a list of numbers")?;
    if weights.len() != columns.len() {
        let (expected, found) = (columns.len(), weights.len());
        return Err(QueryError::field(
            FIELD,
            format_args!("{expected} expected, one a column, {found} found"),
        ));
    }
    weights.iter().map(|json| float(FIELD, json)).collect()
}

fn collapse(by: Collapse, with: &mut Parameters<'_>) -> QueryResult<Function> {
    let ignore_missing = with.take("ignore_missing")?.bool("apply.ignore_missing")?;
    Ok(Function::Collapse { by, ignore_missing })
}

/// A function at work.
pub(crate) struct Step {
    function: Function,
    /// What is kept of each line's columns.
    states: BTreeMap<(u32, usize), State>,
    in_windows: usize,
    total: f64,
}

/// What is kept of one column of a line.
#[derive(Clone, Default)]
struct State {
    last: Option<(i64, f64)>,
    count: u32,
    sum: f64,
    window: VecDeque<f64>,
}

impl Step {
    pub(crate) fn new(function: Function) -> Self {
        Self { function, states: BTreeMap::new(), in_windows: 0, total: 0.0 }
    }

    /// What becomes of these rows.
    pub(crate) fn rows(&mut self, mut rows: Rows<Value>) -> QueryResult<Rows<Value>> {
        match &self.function {
            Function::Top(_) | Function::Frequent { .. } => {
                self.weigh(&rows);
                return Ok(Rows::new(1));
            }
            Function::Collapse { .. } | Function::Formula(_) => rows = self.narrow(&rows),
            _ => self.each(&mut rows)?,
        }
        rows.retain(|rows, row| rows.row(row).iter().any(Option::is_some));
        Ok(rows)
    }

    /// Cell by cell.
    fn each(&mut self, rows: &mut Rows<Value>) -> QueryResult<()> {
        let width = rows.width;
        for place in 0..rows.cells.len() {
            let (row, column) = (place / width, place % width);
            let Some(value) = rows.cells[place].map(Value::as_f64) else { continue };
            let (line, time) = (rows.lines[row], rows.times[row]);
            let new = match &self.function {
                Function::Abs => Some(value.abs()),
                Function::Scale(weights) => Some(value * weights[column]),
                Function::Moving { width, is_error } => {
                    let state = self.states.entry((line, column)).or_default();
                    let grew = state.window.len() < *width;
                    let mean = state.moving(value, *width);
                    self.in_windows += usize::from(grew);
                    mean.map(|mean| if *is_error { value - mean } else { mean })
                }
                function => {
                    self.states.entry((line, column)).or_default().next(function, time, value)
                }
            };
            rows.cells[place] = new.map(Value::Float);
            if self.in_windows > MAX_IN_WINDOWS {
                let why = format!(
                    "more than {MAX_IN_WINDOWS} values in the windows of sma; take a smaller window-width"
                );
                return Err(QueryError::TooMany(why));
            }
        }
        Ok(())
    }

    /// One column of several.
    fn narrow(&self, rows: &Rows<Value>) -> Rows<Value> {
        let one = |cells: &[Option<Value>]| match &self.function {
            Function::Collapse { by, ignore_missing } => by.of(cells, *ignore_missing),
            Function::Formula(formula) => {
                Some(formula.value(|column| cells[column].map_or(0.0, Value::as_f64)))
            }
            _ => None,
        };
        let cells = (0..rows.len()).map(|row| one(rows.row(row)).map(Value::Float)).collect();
        Rows { lines: rows.lines.clone(), times: rows.times.clone(), width: 1, cells }
    }

    /// Adds the rows to the weights of their lines.
    fn weigh(&mut self, rows: &Rows<Value>) {
        for row in 0..rows.len() {
            let time = rows.times[row];
            for value in rows.row(row).iter().flatten().map(|value| value.as_f64()) {
                if value.is_nan() {
                    continue;
                }
                let state = self.states.entry((rows.lines[row], 0)).or_default();
                let weight = match &self.function {
                    Function::Frequent { by_weight: true, .. } => value,
                    Function::Frequent { .. } => 1.0,
                    // The area under the line from point to point, in seconds.
                    _ => state.last.map_or(0.0, |(then, before)| {
                        (before + value) / 2.0 * (seconds(then, time)).abs()
                    }),
                };
                state.sum += weight;
                state.last = Some((time, value));
                self.total += weight;
            }
        }
    }

    /// What comes when no rows come any more.
    pub(crate) fn finish(&mut self) -> Option<Rows<Value>> {
        let lines = std::mem::take(&mut self.states).into_iter();
        let mut lines: Vec<_> = lines
            .map(|((line, _), state)| (line, state.last.map_or(0, |last| last.0), state.sum))
            .collect();
        match self.function {
            Function::Top(count) => {
                lines.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
                lines.truncate(count);
            }
            Function::Frequent { portion, .. } => {
                lines.retain(|(_, _, weight)| *weight > portion * self.total);
                lines.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
            }
            _ => return None,
        }
        let mut rows = Rows::new(1);
        for (line, time, weight) in lines {
            rows.lines.push(line);
            rows.times.push(time);
            rows.cells.push(Some(Value::Float(weight)));
        }
        Some(rows)
    }
}

/// Seconds from one time to another.
fn seconds(from: i64, to: i64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64 / 1e9
}

impl State {
    /// The next value of functions that look at one value after the other.
    fn next(&mut self, function: &Function, time: i64, value: f64) -> Option<f64> {
        match function {
            Function::Rate => {
                let (then, before) = self.last.replace((time, value))?;
                (then != time).then(|| (value - before) / seconds(then, time))
            }
            Function::Accumulate => {
                self.sum += value;
                Some(self.sum)
            }
            Function::Mean => {
                self.count = self.count.saturating_add(1);
                self.sum += value;
                Some(self.sum / f64::from(self.count))
            }
            Function::Exponential { decay, is_error } => {
                if self.count < WARM_UP {
                    self.count += 1;
                    self.sum += (value - self.sum) / f64::from(self.count);
                    return None;
                }
                let predicted = self.sum;
                self.sum = value * decay + predicted * (1.0 - decay);
                Some(if *is_error { value - predicted } else { predicted })
            }
            _ => Some(value),
        }
    }

    /// The mean of the last `width` values, this one among them.
    fn moving(&mut self, value: f64, width: usize) -> Option<f64> {
        if self.window.len() == width {
            self.window.pop_front();
        }
        self.window.push_back(value);
        // A sum that is kept up to date would keep what it once rounded.
        (self.window.len() == width).then(|| self.window.iter().sum::<f64>() / width as f64)
    }
}

impl Collapse {
    fn of(self, cells: &[Option<Value>], ignore_missing: bool) -> Option<f64> {
        if !ignore_missing && cells.iter().any(Option::is_none) {
            return None;
        }
        let values = cells.iter().flatten().map(|value| value.as_f64());
        values.reduce(|a, b| match self {
            Self::Sum => a + b,
            Self::Difference => a - b,
            Self::Product => a * b,
            Self::Quotient => a / b,
        })
    }
}
