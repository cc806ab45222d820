//! Throttling tags without anybody asking for it: when the node is at its limit and one tag is what
//! most transactions have.
//!
//! The busiest tag gets a rate below what the node bears, which falls while the node is still at
//! its limit and grows slowly while it isn't. So the others begin as they like, and the tag as fast
//! as there is room; once nobody waits for it any more it is let go.

use super::tags::{Rule, Rules};
use plinth_types::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// The share of all requests that makes a tag the one to hold back.
const BUSY: f64 = 0.4;
/// The part of what the node bears that such a tag begins with.
const PART: f64 = 0.5;
/// How its rate falls and grows, ten times a second.
const FALL: f64 = 0.8;
const GROW: f64 = 1.05;
/// Rates don't fall below.
const LEAST: f64 = 10.0;
/// For how long nobody must have waited for a tag before it is let go.
const CALM: Duration = Duration::from_secs(10);
/// Tags that are counted between two looks; those that come later are nobody's flood.
const COUNTED: usize = 1000;

struct Held {
    rate: f64,
    /// When somebody last waited for it.
    busy: Duration,
}

/// The tags that are held back, and what is needed to choose them.
#[derive(Default)]
pub(super) struct Auto {
    asked: u64,
    by_tag: BTreeMap<Bytes, u64>,
    held: BTreeMap<Bytes, Held>,
}

impl Auto {
    /// A request has come, with these tags.
    pub fn note(&mut self, tags: &[Bytes]) {
        self.asked += 1;
        for tag in tags {
            if let Some(count) = self.by_tag.get_mut(tag) {
                *count += 1;
            } else if self.by_tag.len() < COUNTED {
                self.by_tag.insert(tag.clone(), 1);
            }
        }
    }

    /// The rules for the time until the next look. `limit` is the rate that the node bears, if it
    /// is at its limit; `waits` says whether anybody waits for a tag.
    pub fn look(
        &mut self,
        limit: Option<f64>,
        manual: &Rules,
        now: Duration,
        waits: impl Fn(&Bytes) -> bool,
    ) -> Rules {
        let asked = std::mem::take(&mut self.asked) as f64;
        let by_tag = std::mem::take(&mut self.by_tag);
        for (tag, held) in &mut self.held {
            held.rate = (held.rate * if limit.is_some() { FALL } else { GROW }).max(LEAST);
            if waits(tag) {
                held.busy = now;
            }
        }
        self.held.retain(|tag, held| now < held.busy + CALM && !manual.contains(tag));
        let busiest = by_tag.into_iter().max_by_key(|(_, count)| *count);
        if let (Some(limit), Some((tag, count))) = (limit, busiest)
            && count as f64 > BUSY * asked
            && !manual.contains(&tag)
        {
            self.held.entry(tag).or_insert(Held { rate: (limit * PART).max(LEAST), busy: now });
        }
        let is_bounded = |held: &Held| held.rate >= LEAST && held.busy <= now;
        assert!(self.held.values().all(is_bounded), "a tag that is held back gets something");
        assert!(!self.held.keys().any(|tag| manual.contains(tag)), "an operator's rule counts");
        let mut rules = manual.clone();
        self.held.iter().for_each(|(tag, held)| rules.add(tag, Rule::for_all(held.rate)));
        rules
    }

    /// How many tags are held back.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}
