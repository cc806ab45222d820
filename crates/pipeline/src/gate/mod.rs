//! The gate: hands out read versions at the rate that the rest of the node bears (FoundationDB's
//! ratekeeper).
//!
//! ```text
//!   every 100 ms   gauges (queue, storage) ──▶ controller ──▶ limits: default, batch, and why
//!   request ──▶ open, and no throttled tag?  ── yes ──▶ at once: one load
//!                       │ no
//!                       ▼
//!               line of its priority, or of its tag ── buckets, refilled by time ──▶ released
//! ```
//!
//! A transaction that never begins costs nothing, so what overloads the node is held back here and
//! nowhere else. Lines are bounded: beyond, a request fails at once, with the number that clients
//! wait longest after. Immediate priority passes always.
//!
//! Pure but for the lock: it is told the time, and gives back whom to answer.

mod auto;
mod bucket;
mod controller;
mod tags;

pub(crate) use controller::{Controller, Gauges, Limits, Reason, Targets};
pub(crate) use tags::{Rules, THROTTLE_BEGIN, THROTTLE_END};

use crate::batch_lock::lock;
use crate::failure::NodeError;
use auto::Auto;
use bucket::Bucket;
use plinth_client::{Priority, ReadVersionRequest};
use plinth_types::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tags::TagLine;

/// Requests that may wait in all lines together.
const WAITING_MOST: usize = 100_000;
/// A request with a throttled tag waits this long at most, then fails with `tag_throttled`.
const TAG_PATIENCE: Duration = Duration::from_secs(5);

/// A request that waits, and whatever the node needs to answer it.
pub(crate) struct Waiter<T> {
    pub request: ReadVersionRequest,
    pub since: Duration,
    pub answer: T,
}

/// What becomes of a request now.
pub(crate) enum Admitted<T> {
    /// It is to be answered at once.
    Now(T),
    /// It waits in a line.
    Later,
    /// It fails.
    Refused(T, NodeError),
}

pub(crate) struct Gate<T> {
    /// Whether nothing is limited, so that requests without tags needn't look further.
    open: AtomicBool,
    state: Mutex<State<T>>,
}

struct State<T> {
    limits: Limits,
    buckets: [Bucket; 2],
    lines: [VecDeque<Waiter<T>>; 2],
    tags: BTreeMap<Bytes, TagLine<T>>,
    waiting: usize,
    released: [u64; 2],
    auto: Auto,
    /// Nobody lets those go on any more who wait.
    is_closed: bool,
}

/// The line of a priority; none for the immediate one.
fn line_of(priority: Priority) -> Option<usize> {
    match priority {
        Priority::Batch => Some(0),
        Priority::Default => Some(1),
        Priority::Immediate => None,
    }
}

impl<T> Default for Gate<T> {
    fn default() -> Self {
        let state = State {
            limits: Limits::default(),
            buckets: [Bucket::unlimited(), Bucket::unlimited()],
            lines: [VecDeque::new(), VecDeque::new()],
            tags: BTreeMap::new(),
            waiting: 0,
            released: [0; 2],
            auto: Auto::default(),
            is_closed: false,
        };
        Self { open: AtomicBool::new(true), state: Mutex::new(state) }
    }
}

impl<T> Gate<T> {
    /// Whether a request passes without being looked at.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// A request has come. `answer` is given back with it.
    pub fn admit(&self, request: ReadVersionRequest, answer: T, now: Duration) -> Admitted<T> {
        let Some(line) = line_of(request.priority) else { return Admitted::Now(answer) };
        let mut state = lock(&self.state);
        let state = &mut *state;
        state.auto.note(&request.tags);
        let throttled =
            request.tags.iter().find(|tag| state.is_throttled(tag, request.priority)).cloned();
        let passes_tag = throttled.as_ref().is_none_or(|tag| {
            state
                .tags
                .get_mut(tag)
                .is_none_or(|line| line.waiting.is_empty() && line.bucket.take(now))
        });
        if passes_tag && state.lines[line].is_empty() && state.buckets[line].take(now) {
            state.released[line] += 1;
            return Admitted::Now(answer);
        }
        if state.is_closed {
            return Admitted::Refused(answer, NodeError::Closed(None));
        }
        if line == 0 && state.limits.batch <= 0.0 {
            return Admitted::Refused(answer, NodeError::BatchHeldBack);
        }
        if state.waiting >= WAITING_MOST {
            let detail = format!("{} transactions wait to begin", state.waiting);
            return Admitted::Refused(answer, NodeError::GateFull(detail.into()));
        }
        state.waiting += 1;
        let waiter = Waiter { request, since: now, answer };
        match throttled.and_then(|tag| state.tags.get_mut(&tag)).filter(|_| !passes_tag) {
            Some(tag) => tag.waiting.push_back(waiter),
            None => state.lines[line].push_back(waiter),
        }
        Admitted::Later
    }

    /// Whoever may pass by now, in order, and whoever has waited too long for a tag.
    pub fn release(&self, now: Duration) -> Vec<(Waiter<T>, Option<NodeError>)> {
        let mut out = Vec::new();
        let mut state = lock(&self.state);
        let state = &mut *state;
        // Who has passed its tag's line joins that of its priority.
        for tag in state.tags.values_mut() {
            while let Some(waiter) = tag.waiting.front() {
                let late = now.saturating_sub(waiter.since) >= TAG_PATIENCE;
                if !late && !tag.bucket.take(now) {
                    break;
                }
                let Some(waiter) = tag.waiting.pop_front() else { break };
                match line_of(waiter.request.priority) {
                    _ if late => {
                        state.waiting -= 1;
                        out.push((waiter, Some(NodeError::TagHeldBack)));
                    }
                    Some(line) => state.lines[line].push_back(waiter),
                    None => {}
                }
            }
        }
        // The default priority goes first.
        for line in [1, 0] {
            while !state.lines[line].is_empty() && state.buckets[line].take(now) {
                state.waiting -= 1;
                state.released[line] += 1;
                out.extend(state.lines[line].pop_front().map(|waiter| (waiter, None)));
            }
        }
        out
    }

    /// New limits hold from now on.
    pub fn limit(&self, limits: Limits, rules: &Rules, now: Duration) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let is_rate = limits.default >= 0.0 && limits.batch >= 0.0;
        assert!(is_rate, "rates at which transactions begin: {limits:?}");
        state.limits = limits;
        for (line, rate) in [(0, limits.batch), (1, limits.default)] {
            state.buckets[line].set_rate(rate, now);
        }
        let at_limit = (limits.reason != Reason::Workload).then_some(limits.default);
        let waits = |tag: &Bytes| state.tags.get(tag).is_some_and(|line| !line.waiting.is_empty());
        let rules = state.auto.look(at_limit, rules, now, waits);
        state.keep_rules(&rules, now);
        let open = !limits.is_limited() && state.tags.is_empty() && state.waiting == 0;
        self.open.store(open, Ordering::Relaxed);
    }

    /// The limits that hold.
    pub fn limits(&self) -> Limits {
        lock(&self.state).limits
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }

    /// How many wait for the node, not for a tag.
    pub fn held_back(&self) -> usize {
        lock(&self.state).lines.iter().map(VecDeque::len).sum()
    }

    /// How many tags are throttled: by hand, and because they are too busy.
    pub fn throttled_tags(&self) -> (usize, usize) {
        let state = lock(&self.state);
        let auto = state.auto.len();
        (state.tags.len() - auto.min(state.tags.len()), auto)
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self) {
        let state = lock(&self.state);
        let in_lines: usize = state.lines.iter().map(VecDeque::len).sum();
        let at_tags: usize = state.tags.values().map(|tag| tag.waiting.len()).sum();
        assert_eq!(in_lines + at_tags, state.waiting, "those who wait to begin are counted");
        assert!(state.waiting <= WAITING_MOST, "more wait to begin than may");
        assert!(!state.is_closed || state.waiting == 0, "somebody waits whom nobody lets on");
    }

    /// Everybody who waits: the node closes. Whoever comes later and would have to wait is refused.
    pub fn drain(&self) -> Vec<Waiter<T>> {
        let mut state = lock(&self.state);
        let waiting = std::mem::take(&mut state.waiting);
        state.is_closed = true;
        let mut all: Vec<Waiter<T>> = state.lines.iter_mut().flat_map(std::mem::take).collect();
        all.extend(state.tags.values_mut().flat_map(|tag| std::mem::take(&mut tag.waiting)));
        assert_eq!(all.len(), waiting, "everybody who waits to begin is told of the end");
        all
    }
}

impl<T> State<T> {
    fn is_throttled(&self, tag: &Bytes, priority: Priority) -> bool {
        self.tags.get(tag).is_some_and(|line| line.holds_for(priority))
    }

    /// Takes new rules over. Who waits for a tag without a rule joins the line of its priority.
    fn keep_rules(&mut self, rules: &Rules, now: Duration) {
        for (tag, rule) in rules.iter() {
            self.tags
                .entry(tag.clone())
                .or_insert_with(|| TagLine::new(*rule))
                .set_rule(*rule, now);
        }
        let gone: Vec<Bytes> =
            self.tags.keys().filter(|tag| !rules.contains(tag)).cloned().collect();
        for tag in gone.iter().filter_map(|tag| self.tags.remove(tag)) {
            for waiter in tag.waiting {
                self.lines[line_of(waiter.request.priority).unwrap_or(1)].push_back(waiter);
            }
        }
    }
}

#[cfg(test)]
mod tests;
