//! A rule, and what is known of it between two evaluations.

use crate::alert::Alerts;
use crate::file::{RuleKind, RuleSpec};
use plinth_promql::Labels;
use std::collections::BTreeSet;
use std::time::Duration;

/// A rule, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) spec: RuleSpec,
    /// Of one that alerts.
    pub(crate) alerts: Alerts,
    /// The series that it wrote to the last time.
    pub(crate) series: BTreeSet<Labels>,
    pub(crate) last: Option<Evaluated>,
}

/// How the last evaluation of a rule went.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// When it was, in nanoseconds since 1970.
    pub at: i64,
    /// How long it took.
    pub took: Duration,
    /// What went wrong.
    pub error: Option<String>,
}

impl Rule {
    /// For how long its alerts have to be there; `None` if it gives none.
    pub(crate) fn hold(&self) -> Option<i64> {
        match &self.spec.kind {
            RuleKind::Alert { hold, .. } => Some(*hold),
            RuleKind::Record => None,
        }
    }
}
