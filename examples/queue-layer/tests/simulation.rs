//! The queue in simulation: consumers and producers at once, on a database that crashes, on links
//! that lose answers.
//!
//! The oracle knows what it pushed and what it was handed. Nobody may be handed an item twice; what
//! was acknowledged and is not in the queue must have been taken. A transaction whose outcome
//! nobody knows may have taken its item: those are kept apart.

use plinth::Result;
use plinth_sim::{Client, Draw, Outcome, Report, Seeds, Spec, Work, Workload, Workloads};
use queue_layer::{Mistake, Queue};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

const SPEC: &str = include_str!("queue.toml");

/// What the oracle knows. Items are numbers, each pushed once.
#[derive(Default)]
struct Known {
    next: u64,
    /// Pushed and acknowledged.
    pushed: BTreeSet<u64>,
    /// Handed to somebody whose transaction committed.
    handed: BTreeSet<u64>,
    /// Taken by a transaction of which nobody knows whether it committed.
    perhaps: BTreeSet<u64>,
}

struct Jobs {
    queue: Queue,
    /// How many of a hundred steps are pushes.
    pushes: u64,
    known: Mutex<Known>,
}

impl Jobs {
    fn new(queue: Queue, draw: &mut Draw<'_>) -> Self {
        Self { queue, pushes: draw.number("pushes", 30..70), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("it is never left half changed")
    }

    async fn push(&self, client: &Client) {
        let number = {
            let mut known = self.known();
            known.next += 1;
            known.next
        };
        let item = number.to_string();
        let pushed = client.call(async |db| self.queue.push(&db, item.as_bytes()).await);
        if pushed.await.is_some() {
            self.known().pushed.insert(number);
        }
    }

    async fn take(&self, client: &Client) {
        let (choice, chosen) = (client.next_u64(), Mutex::new(None));
        let outcome = client.attempt(async |tr| -> Result<Option<u64>> {
            let item = self.queue.take(&tr, choice).await?.map(|item| number(&item));
            *chosen.lock().expect("nothing panics while it is locked") = item;
            Ok(item)
        });
        match outcome.await {
            Outcome::Committed(Some(item), _) if !self.known().handed.insert(item) => {
                client.fail(format!("item {item} was handed out twice"));
            }
            Outcome::Committed(..) | Outcome::Refused(_) => {}
            Outcome::Unknown => {
                let chosen = chosen.into_inner().expect("nothing panics while it is locked");
                self.known().perhaps.extend(chosen);
            }
        }
    }
}

fn number(item: &[u8]) -> u64 {
    std::str::from_utf8(item).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

impl Workload for Jobs {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                if client.below(100) < self.pushes {
                    self.push(&client).await;
                } else {
                    self.take(&client).await;
                }
                client.pause(5_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let read = client.insist(async |tr| self.queue.items(&tr).await).await;
            let Some((items, _)) = read else { return };
            let known = self.known();
            let mut there = BTreeSet::new();
            for item in items.iter().map(|item| number(item)) {
                if !there.insert(item) {
                    client.fail(format!("item {item} is in the queue twice"));
                }
                if known.handed.contains(&item) || item > known.next {
                    client.fail(format!("item {item} is in the queue, and should not be"));
                }
            }
            let gone = known.pushed.iter().filter(|item| !there.contains(item));
            for item in
                gone.filter(|item| !known.handed.contains(item) && !known.perhaps.contains(item))
            {
                client.fail(format!("item {item} was pushed, and nobody got it"));
            }
        })
    }
}

/// The spec over this queue.
fn spec(queue: Queue) -> Spec {
    let workloads = Workloads::default().with("queue", move |draw| Jobs::new(queue.clone(), draw));
    Spec::read_with(&workloads, "queue", SPEC).expect("the spec is right")
}

fn found(mistake: Mistake) -> Box<Report> {
    let report = Seeds::of(spec(Queue::new("jobs/").with(mistake)), 60).run();
    report.expect_err("the simulation finds the mistake")
}

#[test]
fn the_queue_hands_out_each_item_once() {
    let sum = Seeds::of(spec(Queue::new("jobs/")), 12).hold();
    assert!(
        sum.committed > 0 && sum.lives > sum.runs,
        "something went on, and some databases crashed"
    );
}

#[test]
fn the_queue_of_three_servers_hands_out_each_item_once() {
    Seeds::of(spec(Queue::new("jobs/")).on(3), 2).hold();
}

#[test]
fn a_take_without_a_conflict_is_found() {
    let report = found(Mistake::TakesWithoutConflict);
    println!("{report}");
    assert!(report.to_string().contains("twice"), "{report}");
}

#[test]
fn a_push_that_is_sent_again_is_found() {
    let report = found(Mistake::PushesAgain);
    println!("{report}");
    let again = format!("PLINTH_SIM_SEED={} cargo test queue", report.plan.seed);
    assert!(report.to_string().ends_with(&again), "{report}");
    // The same seed gives the same run.
    assert_eq!(plinth_sim::run(&report.plan).failure, report.failure);
}
