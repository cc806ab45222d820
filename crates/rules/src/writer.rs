//! What a rule asks, and the alerts that are made of the answer with their texts.
//!
//! A rule has one deadline for all of it: its expression, and the queries of the templates of each
//! of its alerts. Others on the thread go first between two alerts.

use crate::alert::{Alert, labels_of};
use crate::file::RuleSpec;
use crate::store::Store;
use crate::template::{Answers, Data, Expanded, Outside, Template};
use plinth_env::Env;
use plinth_env::sync::pause;
use plinth_promql::{Answered, Labels, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a rule asks a store, until its time is over.
pub(crate) struct Asking<'a, S> {
    store: &'a S,
    env: &'a Env,
    begun: Duration,
    deadline: Duration,
}

impl<'a, S: Store> Asking<'a, S> {
    /// Begins now, and may take so many nanoseconds.
    pub(crate) fn new(store: &'a S, env: &'a Env, deadline: i64) -> Self {
        let deadline = Duration::from_nanos(u64::try_from(deadline).unwrap_or(0));
        Self { store, env, begun: env.now(), deadline }
    }

    /// How much time is left.
    fn left(&self) -> Result<Duration, String> {
        let left = self.deadline.saturating_sub(self.env.now().saturating_sub(self.begun));
        if left.is_zero() {
            Err(format!("it takes longer than {:?}", self.deadline))
        } else {
            Ok(left)
        }
    }

    /// What an expression gives, as series.
    pub(crate) async fn vector(
        &self,
        expr: &str,
        time: i64,
    ) -> Result<Vec<(Labels, Value)>, String> {
        match self.store.instant(expr, time, self.left()?).await? {
            Answered::Vector(series) => Ok(series),
            Answered::Scalar(number) => Ok(vec![(Labels::default(), Value::Float(number))]),
            Answered::String(_) | Answered::Matrix(_) => {
                Err("rule result is not a vector or scalar".into())
            }
        }
    }
}

/// What an alert has for its value: a native histogram has none, and Prometheus takes 0 for it.
fn number(value: &Value) -> f64 {
    value.float().unwrap_or(0.0)
}

/// Makes alerts of series.
pub(crate) struct Writer<'a> {
    pub(crate) spec: &'a RuleSpec,
    pub(crate) annotations: &'a [(String, Template)],
    pub(crate) outside: &'a Outside,
}

impl Writer<'_> {
    /// The alerts of what the rule's expression gave.
    ///
    /// # Errors
    /// If two have the same labels, or they take too long.
    pub(crate) async fn alerts<S: Store>(
        &self,
        asking: &Asking<'_, S>,
        given: Vec<(Labels, Value)>,
        slot: i64,
    ) -> Result<BTreeMap<Labels, Alert>, String> {
        let mut alerts = BTreeMap::new();
        for (series, value) in given {
            pause().await;
            asking.left()?;
            let mut answers = Answers::default();
            let value = number(&value);
            let data = Data::new(&series, value, slot);
            let mut labels = Vec::new();
            for (name, template) in &self.spec.labels {
                let text = self.expanded(asking, template, &data, &mut answers, slot).await;
                labels.push((name.clone(), text));
            }
            let mut annotations = Vec::new();
            for (name, template) in self.annotations {
                let text = self.expanded(asking, template, &data, &mut answers, slot).await;
                annotations.push((name.clone(), text));
            }
            let labels = labels_of(&series, labels, &self.spec.name);
            let alert = Alert::new(labels.clone(), annotations, (slot, value));
            if alerts.insert(labels, alert).is_some() {
                return Err(
                    "vector contains metrics with the same labelset after applying alert labels"
                        .into(),
                );
            }
        }
        Ok(alerts)
    }

    /// The text of a template; if nothing comes of it, why, as Prometheus has it.
    async fn expanded<S: Store>(
        &self,
        asking: &Asking<'_, S>,
        template: &Template,
        data: &Data,
        answers: &mut Answers,
        slot: i64,
    ) -> String {
        loop {
            match template.expand(data, self.outside, answers) {
                Expanded::Text(text) => return text,
                Expanded::Asks(query) => {
                    let answer = asking.vector(&query, slot).await;
                    let numbers = |series: Vec<(Labels, Value)>| {
                        series.into_iter().map(|(labels, value)| (labels, number(&value))).collect()
                    };
                    answers.add(query, answer.map(numbers));
                }
                Expanded::Failed(why) => {
                    let name = &self.spec.name;
                    return format!(
                        "<error expanding template: error executing template __alert_{name}: {why}>"
                    );
                }
            }
        }
    }
}
