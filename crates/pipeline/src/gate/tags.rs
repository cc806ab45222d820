//! Throttled tags: the rules that operators write, and the lines of those who wait.
//!
//! Rules are rows of the database, in FoundationDB's form, so that its tools write them and a
//! restart keeps them:
//!
//! ```text
//!   \xff\x02/throttledTags/tag/ | type | priority | length | tag        type 0: by hand; the rule is for this priority and below
//!   protocol version (8) | a second (f64) | until, in seconds since 1970 (f64) | first duration (f64) | reason (1)
//! ```

use super::Waiter;
use super::bucket::Bucket;
use plinth_client::Priority;
use plinth_types::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Where rules begin.
pub(crate) const THROTTLE_BEGIN: &[u8] = b"\xff\x02/throttledTags/tag/";
/// Where they end.
pub(crate) const THROTTLE_END: &[u8] = b"\xff\x02/throttledTags/tag0";

/// How many transactions with a tag may begin in a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rule {
    /// By priority: batch, default. Infinite where the rule doesn't hold.
    rates: [f64; 2],
}

/// The rules that hold, by tag.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Rules(BTreeMap<Bytes, Rule>);

impl Rule {
    /// The same rate for batch and default priority.
    pub fn for_all(rate: f64) -> Self {
        Self { rates: [rate; 2] }
    }
}

impl Rules {
    /// Adds a rule for a tag that has none.
    pub fn add(&mut self, tag: &Bytes, rule: Rule) {
        self.0.entry(tag.clone()).or_insert(rule);
    }

    /// Reads rules off their rows. Rows that make no sense, and rules that are over, are left out.
    pub fn read<'a>(
        rows: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        wall_clock: Duration,
    ) -> Self {
        let mut rules = Self::default();
        for (key, value) in rows {
            let Some((tag, priority)) = read_key(key) else { continue };
            let Some((rate, until)) = read_value(value) else { continue };
            if until <= wall_clock.as_secs_f64() {
                continue;
            }
            let rule = rules.0.entry(tag).or_insert(Rule { rates: [f64::INFINITY; 2] });
            for held in &mut rule.rates[..=usize::from(priority.min(1))] {
                *held = held.min(rate);
            }
        }
        rules
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Rule)> {
        self.0.iter()
    }

    pub fn contains(&self, tag: &Bytes) -> bool {
        self.0.contains_key(tag)
    }
}

fn read_key(key: &[u8]) -> Option<(Bytes, u8)> {
    let rest = key.strip_prefix(THROTTLE_BEGIN)?;
    let [_type, priority, length, tag @ ..] = rest else { return None };
    // More than one tag in a rule has never been in use.
    (tag.len() == usize::from(*length) && !tag.is_empty())
        .then(|| (Bytes::copy_from_slice(tag), *priority))
}

fn read_value(value: &[u8]) -> Option<(f64, f64)> {
    let number = |at: usize| value.get(at..at + 8)?.try_into().ok().map(f64::from_le_bytes);
    let (rate, until) = (number(8)?, number(16)?);
    (rate >= 0.0 && !until.is_nan()).then_some((rate, until))
}

/// Those who wait because of one tag.
pub(super) struct TagLine<T> {
    rule: Rule,
    pub bucket: Bucket,
    pub waiting: VecDeque<Waiter<T>>,
}

impl<T> TagLine<T> {
    pub fn new(rule: Rule) -> Self {
        Self { rule, bucket: Bucket::unlimited(), waiting: VecDeque::new() }
    }

    /// Whether transactions of this priority are held back.
    pub fn holds_for(&self, priority: Priority) -> bool {
        match priority {
            Priority::Batch => self.rule.rates[0].is_finite(),
            Priority::Default => self.rule.rates[1].is_finite(),
            Priority::Immediate => false,
        }
    }

    pub fn set_rule(&mut self, rule: Rule, now: Duration) {
        self.rule = rule;
        // One bucket for both: what is stricter holds for batch transactions as well.
        self.bucket.set_rate(rule.rates[0].min(rule.rates[1]), now);
    }
}

/// A rule as a row, as FoundationDB's tools write it.
#[cfg(test)]
pub(super) fn row(tag: &[u8], priority: u8, rate: f64, until: f64) -> (Vec<u8>, Vec<u8>) {
    let key = [THROTTLE_BEGIN, &[0, priority, tag.len() as u8], tag].concat();
    let mut value = 0x0fdb_00b0_7300_0000_u64.to_le_bytes().to_vec();
    [rate, until, 60.0].iter().for_each(|number| value.extend(number.to_le_bytes()));
    value.push(0);
    (key, value)
}
