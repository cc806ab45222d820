//! A group of rules: evaluated one after the other, at times of its own, each seeing what those
//! before it wrote.
//!
//! Groups are spread over their interval by their names, so that not all of them work at once. A
//! time for which there was no chance is missed, not made up for. What a rule gave the last time
//! and doesn't any more gets the mark by which a series ends. How it went with each rule is kept
//! for whoever asks ([`crate::GroupStatus`]).

use crate::alert::{Alerts, Notice, Patience};
use crate::file::{GroupSpec, RuleKind, RuleSpec};
use crate::restore::{self, Bounds, Restore};
use crate::rule::{Evaluated, Rule, stale};
use crate::store::{Store, Written, WrittenHistogram};
use crate::template::{Outside, human};
use crate::time::SECOND;
use crate::writer::{Asking, Writer};
use plinth_env::Env;
use plinth_promql::{Labels, NAME, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How rules are evaluated, as Prometheus' flags say it. Durations are nanoseconds.
#[derive(Clone, Debug)]
pub struct Options {
    /// From one evaluation of a group that doesn't say to the next.
    pub interval: i64,
    /// How long it takes at least until an alert is told again.
    pub resend: i64,
    /// After how long a pause nothing is carried over.
    pub tolerance: i64,
    /// How long an alert has to be there after a pause before it fires, at least.
    pub grace: i64,
    /// How long a rule may take for what it asks, its templates' queries included.
    pub deadline: i64,
    /// What templates see.
    pub outside: Outside,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: 60 * SECOND,
            resend: 60 * SECOND,
            tolerance: 3600 * SECOND,
            grace: 600 * SECOND,
            deadline: 60 * SECOND,
            outside: Outside::default(),
        }
    }
}

/// What an evaluation of a group came to.
#[derive(Default, Debug)]
pub struct Outcome {
    /// Who has to be told what.
    pub notices: Vec<Notice>,
    /// Rules that were evaluated, and those of them that failed.
    pub evaluations: u64,
    /// Those of them with which something went wrong.
    pub failures: u64,
    /// Times that were missed since the evaluation before.
    pub missed: u64,
    /// Points that were given.
    pub points: u64,
}

/// A group of rules being evaluated.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) interval: i64,
    pub(crate) query_offset: i64,
    pub(crate) limit: usize,
    pub(crate) rules: Vec<Rule>,
    /// Series of rules that are no more, which have to end.
    pub(crate) ended: BTreeSet<Labels>,
    /// The time of the last evaluation, of this process or of the one before.
    pub(crate) slot: Option<i64>,
    pub(crate) restore: Restore,
    pub(crate) last: Option<Evaluated>,
    pub(crate) options: Options,
}

impl Group {
    /// The group of a file, of which nothing is known yet.
    pub fn new(file: &str, spec: GroupSpec, options: &Options) -> Self {
        let rule =
            |spec| Rule { spec, alerts: Alerts::default(), series: BTreeSet::new(), last: None };
        Self {
            file: file.to_string(),
            name: spec.name,
            interval: spec.interval.unwrap_or(options.interval).max(1),
            query_offset: spec.query_offset,
            limit: spec.limit,
            rules: spec.rules.into_iter().map(rule).collect(),
            ended: BTreeSet::new(),
            slot: None,
            restore: Restore::FromSeries { evaluations: 0 },
            last: None,
            options: options.clone(),
        }
    }

    /// What tells it from all other groups.
    pub fn key(&self) -> String {
        format!("{};{}", self.file, self.name)
    }

    fn bounds(&self) -> Bounds {
        Bounds { tolerance: self.options.tolerance, grace: self.options.grace }
    }

    /// A number that is another one if there is another alert or one has got further: what is kept
    /// of the group is not what it was. What merely is new with each evaluation doesn't count.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (place, rule) in self.rules.iter().enumerate() {
            place.hash(&mut hasher);
            rule.alerts.fingerprint(&mut hasher);
        }
        hasher.finish()
    }

    /// The last time for which it is evaluated, at `now` or before.
    pub fn slot_at(&self, now: i64) -> i64 {
        let offset = (spread(&self.key()) % self.interval as u64) as i64;
        now.saturating_sub((now.saturating_sub(offset)).rem_euclid(self.interval))
    }

    /// The time for which it is to be evaluated at `now`, if there is one: the last that wasn't.
    pub fn due(&self, now: i64) -> Option<i64> {
        let slot = self.slot_at(now);
        match self.slot {
            None => Some(slot),
            Some(last) if slot > last => Some(slot),
            // The clock was set back, and not by a little: what comes is evaluated anew.
            Some(last) if last.saturating_sub(now) > self.interval => Some(slot),
            Some(_) => None,
        }
    }

    /// When it is due next, if it isn't at `now`.
    pub fn next(&self, now: i64) -> i64 {
        let next = self.slot_at(now).saturating_add(self.interval);
        let last = self.slot.filter(|last| *last > now);
        last.map_or(next, |last| next.max(last.saturating_add(self.interval)))
    }

    /// Evaluates all rules for a time.
    pub async fn evaluate<S: Store>(&mut self, store: &S, env: &Env, slot: i64) -> Outcome {
        let begun = env.now();
        let at = wall(env);
        let mut outcome = Outcome::default();
        if let Some(last) = self.slot {
            let times = slot.saturating_sub(last) / self.interval;
            outcome.missed = u64::try_from(times.saturating_sub(1)).unwrap_or(0);
        }
        if let Some(last) = self.slot.filter(|last| slot < *last) {
            // Times to come would make nothing of what has been: a firing alert would be pending,
            // a resolved one not told. The evaluation before is taken to be one interval ago.
            let by = slot.saturating_sub(last).saturating_sub(self.interval);
            self.rules.iter_mut().for_each(|rule| rule.alerts.move_times(by));
        }
        if self.restore == Restore::Carried {
            self.restore = Restore::Done;
            if let Some(until) = self.slot {
                let bounds = self.bounds();
                restore::carry_over(&mut self.rules, (until, slot), self.interval, bounds);
            }
        }
        self.slot = Some(slot);
        for place in 0..self.rules.len() {
            let (begun, at) = (env.now(), wall(env));
            let result = self.evaluate_rule((store, env), slot, place, &mut outcome).await;
            outcome.evaluations += 1;
            outcome.failures += u64::from(result.is_err());
            let took = env.now().saturating_sub(begun);
            self.rules[place].last = Some(Evaluated { at, took, error: result.err() });
        }
        self.end_series(store, slot).await;
        match &mut self.restore {
            Restore::FromSeries { evaluations: evaluations @ 0 } => *evaluations = 1,
            Restore::FromSeries { .. } => {
                self.restore = Restore::Done;
                let bounds = self.bounds();
                restore::from_series(&mut self.rules, store, slot, bounds).await;
            }
            Restore::Carried | Restore::Done => {}
        }
        let took = env.now().saturating_sub(begun);
        self.last = Some(Evaluated { at, took, error: None });
        outcome
    }

    async fn evaluate_rule<S: Store>(
        &mut self,
        (store, env): (&S, &Env),
        slot: i64,
        place: usize,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let time = slot.saturating_sub(self.query_offset);
        let asking = Asking::new(store, env, self.options.deadline);
        let Rule { spec, alerts, .. } = &mut self.rules[place];
        let given = asking.vector(&spec.expr, time).await?;
        let (points, histograms) = match &spec.kind {
            RuleKind::Record => recorded(spec, given, self.limit, time)?,
            RuleKind::Alert { hold, keep_firing, annotations } => {
                // Before their texts are made, each of which may take a while.
                alerts.check_count(given.len(), self.limit)?;
                let writer = Writer { spec, annotations, outside: &self.options.outside };
                let given = writer.alerts(&asking, given, slot).await?;
                let patience =
                    Patience { hold: *hold, keep_firing: *keep_firing, limit: self.limit };
                alerts.take(given, slot, patience)?;
                let pace = (self.options.resend, self.interval);
                let generator = human::link(&spec.expr, 1);
                outcome.notices.extend(alerts.notices(slot, pace, &generator));
                let rule = &self.rules[place];
                let is_written = self.restore.is_written(rule, self.bounds());
                let points = if is_written { rule.alerts.points(time) } else { Vec::new() };
                (points, Vec::new())
            }
        };
        outcome.points += (points.len() + histograms.len()) as u64;
        let rule = &mut self.rules[place];
        rule.write(store, (points, histograms), time).await
    }

    /// Ends the series of rules that are no more.
    async fn end_series<S: Store>(&mut self, store: &S, slot: i64) {
        let there: BTreeSet<&Labels> = self.rules.iter().flat_map(|rule| &rule.series).collect();
        let time = slot.saturating_sub(self.query_offset);
        let ended = self.ended.iter().filter(|labels| !there.contains(labels));
        let points: Vec<Written> = ended.map(|labels| (labels.clone(), stale(time))).collect();
        // What can't be written is tried again with the next evaluation.
        if points.is_empty() || store.write(&points).await.is_ok() {
            self.ended.clear();
        }
    }
}

fn wall(env: &Env) -> i64 {
    i64::try_from(env.wall_clock().as_nanos()).unwrap_or(i64::MAX)
}

/// A number that names are spread by: FNV-1a, since it has to be the same on every server.
fn spread(name: &str) -> u64 {
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// What a rule records of what its expression gave.
fn recorded(
    spec: &RuleSpec,
    given: Vec<(Labels, Value)>,
    limit: usize,
    time: i64,
) -> Result<(Vec<Written>, Vec<WrittenHistogram>), String> {
    let mut all: BTreeMap<Labels, Value> = BTreeMap::new();
    for (labels, value) in given {
        let own = labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let set = spec.labels.iter().map(|(name, value)| (name.clone(), value.text().to_string()));
        let named = [(NAME.to_string(), spec.name.clone())];
        let labels: Labels = own.chain(named).chain(set).collect();
        if all.insert(labels, value).is_some() {
            return Err(
                "vector contains metrics with the same labelset after applying rule labels".into(),
            );
        }
    }
    if limit > 0 && all.len() > limit {
        return Err(format!("exceeded limit of {limit} with {} series", all.len()));
    }
    let (mut points, mut histograms) = (Vec::new(), Vec::new());
    for (labels, value) in all {
        match value {
            Value::Float(value) => points.push((labels, (time, value))),
            Value::Histogram(one) => histograms.push((labels, (time, one))),
        }
    }
    Ok((points, histograms))
}
