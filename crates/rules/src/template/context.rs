//! What functions of templates see while one is carried out, and how it ends early.

use super::value::Value;
use super::{Answers, Data, Outside};

/// Steps that a template may take.
const MAX_VISITS: usize = 1 << 20;
/// Different queries of one template.
const MAX_QUERIES: usize = 16;

/// Why there is no text.
#[derive(Debug)]
pub(super) enum Stop {
    /// What went wrong.
    Wrong(String),
    /// A query has to be answered first.
    Query(String),
}

/// What a template is about, and how much has been done for it.
pub(super) struct Context<'a> {
    pub(super) data: &'a Data,
    pub(super) outside: &'a Outside,
    pub(super) answers: &'a Answers,
    pub(super) visits: usize,
}

impl Context<'_> {
    /// The time of the evaluation, in seconds since 1970.
    pub(super) fn seconds(&self) -> f64 {
        (self.data.time / 1_000_000) as f64 / 1e3
    }

    /// Counts steps.
    pub(super) fn visit(&mut self, steps: usize) -> Result<(), Stop> {
        self.visits = self.visits.saturating_add(steps);
        match self.visits > MAX_VISITS {
            true => Err(Stop::Wrong("the template takes too long".into())),
            false => Ok(()),
        }
    }

    /// The series of a query.
    pub(super) fn query(&mut self, expression: &str) -> Result<Value, Stop> {
        match self.answers.0.get(expression) {
            Some(Ok(list)) => Ok(Value::List(list.clone())),
            Some(Err(why)) => Err(Stop::Wrong(why.clone())),
            None if self.answers.0.len() >= MAX_QUERIES => {
                Err(Stop::Wrong(format!("more than {MAX_QUERIES} different queries")))
            }
            None => Err(Stop::Query(expression.to_string())),
        }
    }
}
