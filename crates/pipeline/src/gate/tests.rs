//! The gate against models: open loops that ask for more than a node bears, tags, lines that are
//! full.
//!
//! Time is a number that the tests count up, a millisecond at a step, so that every run is the same
//! and minutes of load take seconds.

use super::controller::{Controller, Gauges, Limits, Reason, Targets};
use super::tags::{Rules, row};
use super::{Admitted, Gate, WAITING_MOST};
use crate::failure::NodeError;
use plinth_client::{Priority, ReadVersionRequest};
use plinth_types::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn request(priority: Priority, tags: &[&'static str]) -> ReadVersionRequest {
    let tags = tags.iter().map(|tag| Bytes::from(*tag)).collect();
    ReadVersionRequest { priority, tags, ..ReadVersionRequest::default() }
}

/// A node that commits so many transactions a second, and clients that begin so many, whatever
/// happens.
struct Model {
    gate: Gate<Priority>,
    controller: Controller,
    capacity: u64,
    queued: u64,
    done: [u64; 2],
    started: u64,
    most_queued: u64,
    refused: u64,
}

const BYTES: u64 = 1000;
const TARGET: u64 = 10_000_000;
const WINDOW: Duration = Duration::from_secs(5);

impl Model {
    fn new(capacity: u64) -> Self {
        let targets = Targets { queue_bytes: TARGET, window_bytes: 1 << 40, window: WINDOW };
        let (gate, controller) = (Gate::default(), Controller::new(targets));
        Self {
            gate,
            controller,
            capacity,
            queued: 0,
            done: [0; 2],
            started: 0,
            most_queued: 0,
            refused: 0,
        }
    }

    fn begin(&mut self, priority: Priority) {
        self.started += 1;
        self.queued += 1;
        self.done[usize::from(priority == Priority::Default)] += 1;
    }

    /// Runs for a while with this many arrivals a millisecond of each priority.
    fn run(&mut self, from: u64, until: u64, batch: u64, default: u64) {
        for ms in from..until {
            let now = ms as u32 * MS;
            for (priority, count) in [(Priority::Batch, batch), (Priority::Default, default)] {
                for _ in 0..count {
                    match self.gate.admit(request(priority, &[]), priority, now) {
                        Admitted::Now(priority) => self.begin(priority),
                        Admitted::Later => {}
                        Admitted::Refused(..) => self.refused += 1,
                    }
                }
            }
            for (waiter, error) in self.gate.release(now) {
                assert!(error.is_none());
                self.begin(waiter.answer);
            }
            self.queued = self.queued.saturating_sub(self.capacity);
            self.most_queued = self.most_queued.max(self.queued);
            if ms % 100 == 0 {
                let (queue_bytes, waiting) = (self.queued * BYTES, self.gate.held_back() as u64);
                let gauges =
                    Gauges { queue_bytes, started: self.started, waiting, ..Gauges::default() };
                self.gate.limit(self.controller.look(gauges, now), &Rules::default(), now);
            }
        }
    }
}

#[test]
fn an_idle_node_holds_nobody_back() {
    let mut model = Model::new(100);
    model.run(0, 5000, 20, 60);
    assert_eq!((model.done, model.refused), ([100_000, 300_000], 0));
    assert!(model.gate.is_open());
    assert_eq!(model.gate.limits().reason, Reason::Workload);
}

#[test]
fn an_overloaded_node_stays_busy_and_its_queue_bounded() {
    let mut model = Model::new(50);
    model.run(0, 12_000, 0, 200);
    let busy = model.done[1] as f64 / (12_000.0 * 50.0);
    println!(
        "done {busy:.2} of capacity, queue at most {} of {TARGET} bytes",
        model.most_queued * BYTES
    );
    assert!((0.85..1.2).contains(&busy), "{busy}");
    // It overshoots once, before the first looks.
    assert!(model.most_queued * BYTES < 4 * TARGET, "{}", model.most_queued * BYTES);
    assert_eq!(model.gate.limits().reason, Reason::LogQueue);
    assert!(model.queued * BYTES < 2 * TARGET, "{}", model.queued * BYTES);
    assert!(model.gate.waiting() <= WAITING_MOST && model.refused > 0);
    // And comes back.
    model.run(12_000, 24_000, 0, 1);
    assert!(model.gate.is_open(), "{:?} {}", model.gate.limits(), model.gate.waiting());
}

/// A disk pauses for six tenths of a second, its queue full all the while; then it is as fast as
/// before.
#[test]
fn a_pause_costs_no_more_than_itself() {
    let mut model = Model::new(50);
    model.run(0, 6000, 0, 200);
    model.capacity = 0;
    model.run(6000, 6600, 0, 200);
    let paused = model.gate.limits();
    assert!(paused.default < 5000.0 && paused.reason == Reason::LogQueue, "{paused:?}");
    model.capacity = 50;
    let before = model.done[1] - model.queued;
    model.run(6600, 8600, 0, 200);
    let busy = (model.done[1] - model.queued - before) as f64 / (2000.0 * 50.0);
    println!("{busy:.2} of the capacity was used in the two seconds behind a pause");
    assert!(busy > 0.8, "{busy}");
    assert!(model.queued * BYTES < 2 * TARGET, "{}", model.queued * BYTES);
}

/// The memory for older versions is what a tenth of a second of commits fills, and each version
/// stays for five.
#[test]
fn a_window_that_bursts_fill_takes_what_it_bears_all_the_time() {
    let targets = Targets { queue_bytes: 64 * TARGET, window_bytes: TARGET, window: WINDOW };
    let (gate, mut controller) = (Gate::default(), Controller::new(targets));
    let (bears, bound) = (TARGET / BYTES / WINDOW.as_secs(), TARGET * 5 / 4);
    let (mut started, mut queued, mut held, mut written) = (0, 0, 0, 0);
    let mut leaves: VecDeque<u64> = std::iter::repeat_n(0, WINDOW.as_millis() as usize).collect();
    let (mut seconds, mut most) = (Vec::new(), 0);
    for ms in 0..60_000 {
        let now = ms * MS;
        let let_in = |admitted| matches!(admitted, Admitted::Now(()));
        let at_once = (0..100)
            .filter(|_| let_in(gate.admit(request(Priority::Default, &[]), (), now)))
            .count();
        let begun = (at_once + gate.release(now).len()) as u64;
        (started, queued) = (started + begun, queued + begun);
        let window = held * BYTES;
        let done = queued.min(100).min(bound.saturating_sub(window) / BYTES);
        queued -= done;
        written += done * BYTES;
        leaves.push_back(done);
        held = held + done - leaves.pop_front().unwrap();
        most = most.max(window);
        match ms % 1000 {
            0 => seconds.push(done),
            _ => *seconds.last_mut().unwrap() += done,
        }
        if ms % 100 == 0 {
            let (waiting, fullness) = (gate.held_back() as u64, window as f64 / bound as f64);
            let gauges = Gauges {
                queue_bytes: queued * BYTES,
                window_bytes: window,
                fullness,
                started,
                written,
                waiting,
                ..Gauges::default()
            };
            gate.limit(controller.look(gauges, now), &Rules::default(), now);
        }
    }
    let later = &seconds[30..];
    let mean = later.iter().sum::<u64>() as f64 / later.len() as f64 / bears as f64;
    let slowest = *later.iter().min().unwrap() as f64 / bears as f64;
    println!(
        "{mean:.2} of what the window bears, {slowest:.2} in the slowest second, {most} bytes of {bound}: {seconds:?}"
    );
    assert!(mean > 0.7, "{mean}");
    assert!(slowest > 0.5, "{slowest}");
}

#[test]
fn batch_transactions_give_way_first() {
    let mut model = Model::new(100);
    model.run(0, 10_000, 100, 90);
    let shares = model.done.map(|done| done as f64 / 10_000.0);
    println!("batch {:.1} and default {:.1} of 100 and 90 a millisecond", shares[0], shares[1]);
    assert!(shares[1] > 80.0, "{shares:?}");
    assert!(shares[0] < 40.0, "{shares:?}");
}

#[test]
fn a_throttled_tag_begins_at_its_rate_and_others_are_not_held_back() {
    let gate: Gate<()> = Gate::default();
    let (key, value) = row(b"slow", 1, 50.0, 1e9);
    let rules = Rules::read([(&key[..], &value[..])].into_iter(), Duration::from_secs(1000));
    gate.limit(Limits::default(), &rules, Duration::ZERO);
    assert!(!gate.is_open() && gate.throttled_tags() == (1, 0));
    let (mut slow, mut late) = (0, 0);
    for ms in 0..10_000_u32 {
        let now = ms * MS;
        assert!(matches!(
            gate.admit(request(Priority::Default, &["fast"]), (), now),
            Admitted::Now(())
        ));
        let immediate = gate.admit(request(Priority::Immediate, &["slow"]), (), now);
        assert!(matches!(immediate, Admitted::Now(())));
        if ms % 10 == 0 {
            slow += usize::from(matches!(
                gate.admit(request(Priority::Default, &["slow"]), (), now),
                Admitted::Now(())
            ));
        }
        for (_, error) in gate.release(now) {
            match error {
                None => slow += 1,
                Some(error) => {
                    assert_eq!(error, NodeError::TagHeldBack);
                    late += 1;
                }
            }
        }
    }
    assert!((480..=510).contains(&slow), "{slow}");
    assert!(late > 0, "those who waited five seconds are told");
    // The rule is over: whoever waits goes on.
    gate.limit(Limits::default(), &Rules::default(), 10_000 * MS);
    let waiting = gate.waiting();
    assert_eq!(gate.release(10_001 * MS).len(), waiting);
    gate.limit(Limits::default(), &Rules::default(), 10_002 * MS);
    assert!(gate.is_open());
}

#[test]
fn rules_that_make_no_sense_or_are_over_are_left_out() {
    let good = row(b"tag", 0, 5.0, 2000.0);
    let over = row(b"over", 1, 5.0, 900.0);
    let mut short = row(b"short", 1, 5.0, 2000.0);
    short.1.truncate(20);
    let negative = row(b"negative", 1, -1.0, 2000.0);
    let mut cut = row(b"cut", 1, 5.0, 2000.0);
    cut.0.pop();
    let rows = [good, over, short, negative, cut];
    let rules = Rules::read(
        rows.iter().map(|(key, value)| (&key[..], &value[..])),
        Duration::from_secs(1000),
    );
    let tags: Vec<_> = rules.iter().map(|(tag, _)| tag.clone()).collect();
    assert_eq!(tags, ["tag"]);
    // For batch transactions alone.
    let gate: Gate<()> = Gate::default();
    gate.limit(Limits::default(), &rules, Duration::ZERO);
    assert!(matches!(gate.admit(request(Priority::Default, &["tag"]), (), MS), Admitted::Now(())));
    assert!(matches!(gate.admit(request(Priority::Batch, &["tag"]), (), MS), Admitted::Later));
    assert_eq!(gate.drain().len(), 1);
}

/// What a controller says of a node that has begun a thousand transactions a second until now.
fn judged(gauges: Gauges) -> Limits {
    let targets = Targets { queue_bytes: TARGET, window_bytes: TARGET, window: WINDOW };
    let mut controller = Controller::new(targets);
    for second in 1..20 {
        let (started, written) = (1000 * second, TARGET / 5 * second);
        controller
            .look(Gauges { started, written, ..Gauges::default() }, second as u32 * 1000 * MS);
    }
    let (started, written) = (20_000, TARGET / 5 * 20);
    controller.look(Gauges { started, written, waiting: 1, ..gauges }, 20_000 * MS)
}

#[test]
fn storage_that_lags_holds_back_before_commits_have_to_wait_and_is_named() {
    let window = |share: f64| {
        judged(Gauges { window_bytes: (share * TARGET as f64) as u64, ..Gauges::default() })
    };
    assert_eq!((window(0.2).batch, window(0.2).reason), (f64::INFINITY, Reason::Workload));
    assert!(
        window(0.4).batch.is_finite() && window(0.4).default.is_infinite(),
        "batch gives way first"
    );
    assert_eq!((window(0.4).batch_reason, window(0.4).reason), (Reason::Window, Reason::Workload));
    assert!(
        window(1.2).default < 1000.0 && window(1.2).reason == Reason::Window,
        "{:?}",
        window(1.2)
    );
    let backlog = |backlog| judged(Gauges { backlog, ..Gauges::default() });
    assert_eq!(backlog(0.3).batch, f64::INFINITY, "a few tables are always there");
    assert!(
        backlog(0.5).batch.is_finite() && backlog(0.5).default.is_infinite(),
        "{:?}",
        backlog(0.5)
    );
    assert!(
        backlog(0.95).default < 1000.0 && backlog(0.95).reason == Reason::Backlog,
        "{:?}",
        backlog(0.95)
    );
}

#[test]
fn readers_are_not_held_back_for_what_is_in_the_window() {
    let mut controller =
        Controller::new(Targets { queue_bytes: TARGET, window_bytes: TARGET, window: WINDOW });
    let mut limits = Limits::default();
    for look in 1..=40 {
        // Writers fill it in the first second; then there are readers alone.
        let written = TARGET / 8 * look.min(10);
        let gauges = Gauges {
            started: 100 * look,
            written,
            window_bytes: written,
            waiting: 1,
            ..Gauges::default()
        };
        limits = controller.look(gauges, look as u32 * 100 * MS);
        assert!(look != 10 || limits.default < 1000.0, "{limits:?}");
    }
    assert!(limits.default > 5000.0, "{limits:?}");
}

#[test]
fn rows_that_near_their_bound_hold_back_but_nobody_below_a_rate_to_live_by() {
    let rows = |rows| judged(Gauges { rows, ..Gauges::default() });
    assert!(rows(0.84).batch.is_infinite() && rows(0.84).default.is_infinite(), "{:?}", rows(0.84));
    assert!(
        rows(0.9).batch.is_finite() && rows(0.9).default.is_infinite(),
        "batch gives way first"
    );
    assert_eq!((rows(0.9).batch_reason, rows(0.9).reason), (Reason::Room, Reason::Workload));
    for full in [0.99, 1.0, 1.5] {
        let limits = rows(full);
        assert!(limits.default.is_finite() && limits.default >= 1000.0, "{full}: {limits:?}");
        assert_eq!((limits.batch_reason, limits.reason), (Reason::Room, Reason::Room));
    }
    // At the bound it is what those are told who can't write, whatever else lags.
    let both = Gauges { rows: 1.0, queue_bytes: 3 * TARGET, ..Gauges::default() };
    assert_eq!(judged(both).reason, Reason::Room);
    assert_eq!(judged(Gauges { rows: 0.96, ..both }).reason, Reason::LogQueue);
}

#[test]
fn what_came_first_is_the_cause() {
    // Commits wait for room in the window, so the queue before the log is full too.
    let queue_bytes = 3 * TARGET;
    assert_eq!(judged(Gauges { queue_bytes, ..Gauges::default() }).reason, Reason::LogQueue);
    assert_eq!(
        judged(Gauges { queue_bytes, fullness: 1.0, ..Gauges::default() }).reason,
        Reason::Window
    );
    // Nothing is flushed because too much waits to be merged, so the window is full too.
    let all = Gauges {
        queue_bytes,
        window_bytes: 2 * TARGET,
        fullness: 1.1,
        backlog: 1.0,
        ..Gauges::default()
    };
    assert_eq!(judged(all).reason, Reason::Backlog);
    let log = Gauges { queue_bytes, fullness: 0.7, ..Gauges::default() };
    assert_eq!(judged(log).reason, Reason::LogQueue, "there is room: it is the log that is slow");
}

/// One tag floods a node with several times what it bears; another one, and those without a tag,
/// ask for little.
#[test]
fn a_tag_that_floods_the_node_is_held_back_by_itself_and_the_others_are_not() {
    let mut model = Model::new(50);
    let (mut begun, mut asked, mut auto) = ([0_u64; 3], [0_u64; 3], 0);
    let kinds: [(&[&str], u64); 3] = [(&["flood"], 150), (&["modest"], 10), (&[], 10)];
    let mut waiting = std::collections::BTreeMap::new();
    for ms in 0..8_000_u32 {
        let now = ms * MS;
        for (kind, (tags, count)) in kinds.iter().enumerate() {
            for _ in 0..*count {
                asked[kind] += 1;
                if let Admitted::Now(_) =
                    model.gate.admit(request(Priority::Default, tags), Priority::Default, now)
                {
                    begun[kind] += 1;
                    model.begin(Priority::Default);
                }
            }
        }
        for (waiter, error) in model.gate.release(now) {
            let kind = kinds.iter().position(|(tags, _)| tags.len() == waiter.request.tags.len());
            let kind = if waiter.request.tags.first().is_some_and(|tag| tag == "modest") {
                Some(1)
            } else {
                kind
            };
            *waiting.entry(kind).or_insert(0_u64) += 1;
            if let (None, Some(kind)) = (error, kind) {
                begun[kind] += 1;
                model.begin(Priority::Default);
            }
        }
        model.queued = model.queued.saturating_sub(model.capacity);
        if ms % 100 == 0 {
            let (queue_bytes, waiting) = (model.queued * BYTES, model.gate.held_back() as u64);
            let gauges =
                Gauges { queue_bytes, started: model.started, waiting, ..Gauges::default() };
            model.gate.limit(model.controller.look(gauges, now), &Rules::default(), now);
            auto = auto.max(model.gate.throttled_tags().1);
        }
    }
    let share = |kind: usize| begun[kind] as f64 / asked[kind] as f64;
    println!(
        "begun: flood {:.2}, modest {:.2}, without a tag {:.2} of what was asked",
        share(0),
        share(1),
        share(2)
    );
    assert_eq!(auto, 1, "one tag is held back");
    assert!(share(1) > 0.9 && share(2) > 0.9, "{begun:?} of {asked:?}");
    let busy = begun.iter().sum::<u64>() as f64 / (8_000.0 * 50.0);
    assert!((0.6..1.2).contains(&busy), "{busy} of the capacity is used");
}
