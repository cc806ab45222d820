//! A first that is a FoundationDB, as far as its change data capture goes: played by a database of
//! Plinth's, as strict as theirs is.
//!
//! A consumer that finds nothing waits; now and then it is set back to what was acknowledged; one
//! at a time may read; and a stream is no row that a transaction could take along.

use crate::world::*;
use plinth_client::{CaptureConsumer, CapturedStream, ChangeCapture, TransactionOption};
use plinth_dr::{
    Control, Leftover, Phase, Sites, StartSettings, abort, abort_second, start, switch,
};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_env::sync::{First, race};
use plinth_types::{Changes, ChangesRequest, Error, KeyRange, Result, Version, system};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The streams of a database, and who reads them.
struct Streams(Arc<State>);

struct State {
    db: plinth_client::Database,
    random: Mutex<Random>,
    /// How many reads are under way.
    reading: AtomicUsize,
    /// Whether it takes new streams.
    is_on: bool,
}

struct Consumer {
    state: Arc<State>,
    stream: u64,
    position: Arc<Mutex<Option<Version>>>,
}

fn later<T: Send + 'static>(
    env: &Env,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Reply<T> {
    let (promise, reply) = promise();
    drop(env.spawn("captured", async move { promise.send(work.await) }));
    reply
}

/// A read that is counted for as long as it is under way.
struct Reading(Arc<State>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.reading.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State {
    async fn acknowledged(&self, stream: u64) -> Result<Version> {
        let all = self.db.list_changes().await?;
        let found = all.into_iter().find(|other| other.id == stream);
        Ok(found.ok_or_else(Error::client_invalid_operation)?.acknowledged)
    }

    async fn next(self: Arc<Self>, stream: u64, position: Option<Version>) -> Result<Changes> {
        if self.reading.fetch_add(1, Ordering::Relaxed) > 0 {
            self.reading.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::client_invalid_operation());
        }
        let _reading = Reading(self.clone());
        let is_set_back = self.random.lock().unwrap().index(20) == 0;
        let mut from = match position.filter(|_| !is_set_back) {
            Some(position) => position,
            None => self.acknowledged(stream).await?,
        };
        // It gives up after a while, so that nobody who is gone is in the way for ever.
        for _ in 0..200 {
            let request = ChangesRequest { stream, from: from + 1, bytes: 1 << 16, wait: false };
            let changes = self.db.read_changes(request).await.map_err(|error| match error {
                error if error == Error::version_invalid() => Error::transaction_too_old(),
                error => error,
            })?;
            if !changes.batches.is_empty() {
                return Ok(changes);
            }
            from = from.max(changes.upto);
            self.db.endpoint().env().sleep(Duration::from_millis(10)).await;
        }
        Err(Error::broken_promise())
    }
}

impl CaptureConsumer for Consumer {
    fn next(&self) -> Reply<Changes> {
        let (state, stream, place) = (self.state.clone(), self.stream, self.position.clone());
        let env = state.db.endpoint().env().clone();
        later(&env, async move {
            let position = *place.lock().unwrap();
            let changes = state.next(stream, position).await?;
            *place.lock().unwrap() = Some(changes.upto);
            Ok(changes)
        })
    }

    fn acknowledge(&self) -> Reply<()> {
        let position = *self.position.lock().unwrap();
        let Some(position) = position else {
            return Reply::ready(Err(Error::client_invalid_operation()));
        };
        self.state.db.acknowledge_changes(self.stream, position)
    }
}

impl ChangeCapture for Streams {
    fn register(&self, name: &[u8], range: &KeyRange) -> Reply<u64> {
        if !self.0.is_on {
            return Reply::ready(Err(Error::client_invalid_operation()));
        }
        let registered = self.0.db.register_changes(name, [range.clone()], None);
        later(self.0.db.endpoint().env(), async move { Ok(registered.await?.id) })
    }

    fn remove(&self, name: &[u8]) -> Reply<()> {
        self.0.db.remove_changes(name)
    }

    fn list(&self) -> Reply<Vec<CapturedStream>> {
        let all = self.0.db.list_changes();
        later(self.0.db.endpoint().env(), async move {
            let shown = |it: plinth_client::ChangeStream| CapturedStream {
                name: it.name,
                id: it.id,
                needed: it.acknowledged + 1,
            };
            Ok(all.await?.into_iter().map(shown).collect())
        })
    }

    fn consume(&self, name: &[u8]) -> Reply<Arc<dyn CaptureConsumer>> {
        let (state, found) = (self.0.clone(), self.0.db.consume_changes(name));
        later(self.0.db.endpoint().env(), async move {
            let stream = found.await?.id();
            let consumer: Arc<dyn CaptureConsumer> =
                Arc::new(Consumer { state, stream, position: Arc::default() });
            Ok(consumer)
        })
    }
}

/// The first of a pair by its change data capture alone, with answers that get lost.
fn captured(db: &plinth::Database, seed: u64, is_on: bool) -> plinth_client::Database {
    let random = Mutex::new(Random::new(seed));
    let state = State { db: client(db), random, reading: AtomicUsize::new(0), is_on };
    lossy_with(db, seed, 9, Some(Arc::new(Streams(Arc::new(state)))))
}

/// Follows under writes and kills, and takes the first's place in the middle of them. What the
/// second is then the first was when it was locked.
fn take_over_with_kills(seed: u64, kills: usize) -> Result<usize, String> {
    with_pair(seed, async |pair| {
        let mut random = Random::new(seed);
        let Pair { machine, first, second, .. } = pair;
        let mut history = History::default();
        for _ in 0..300 {
            history.write(&client(&first), &mut random).await;
        }
        let sites = Sites::new(captured(&first, seed, true), lossy(&second, seed + 1, 9));
        start(&sites, &StartSettings::default()).await.unwrap();
        let writer = Writer::start(&machine, &client(&first), history, seed + 2);
        let mut checked = 0;
        for _ in 0..kills {
            let time = Duration::from_micros(random.index(1_500_000) as u64);
            writer.rest(&machine).await;
            let ended = run_for(&machine, &sites, time).await;
            if let Some(ended) = ended {
                return Err(format!("seed {seed}: {ended:?}"));
            }
            let of =
                async || plinth_dr::status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
            let before = of().await;
            let Some(version) = before.whole_at else { continue };
            let rows = rows_of(&sites.to).await;
            if of().await.position != before.position {
                continue;
            }
            if rows != writer.model_at(&machine, version).await {
                return Err(format!("seed {seed}: not what the first was at {version}"));
            }
            checked += 1;
        }
        run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
        loop {
            let time = Duration::from_micros(random.index(400_000) as u64);
            match race(switch(&sites, &Control::default()), machine.sleep(time)).await {
                First::Left(switched) => {
                    assert_eq!(switched, Ok(true), "seed {seed}");
                    break;
                }
                // Killed: the head may be gone already, when the answer alone is missing.
                First::Right(()) if plinth_dr::status(None, &sites.to).await.unwrap().is_none() => {
                    break;
                }
                First::Right(()) => {}
            }
        }
        let history = writer.stop().await;
        assert!(is_locked(&client(&first)).await && !is_locked(&sites.to).await, "seed {seed}");
        assert!(client(&first).list_changes().await.unwrap().is_empty(), "seed {seed}");
        if rows_of(&sites.to).await != history.at(history.newest()) {
            return Err(format!("seed {seed}: what was acknowledged is lost"));
        }
        Ok(checked)
    })
}

#[test]
fn a_captured_first_is_followed_and_its_place_taken_with_nothing_lost() {
    let checked: usize = (0..6).map(|seed| take_over_with_kills(seed, 5).unwrap()).sum();
    println!("{checked} compared");
    assert!(checked > 6);
}

#[test]
fn mistakes_with_a_captured_first_are_noticed() {
    for bug in [
        "dr: a captured first is left before it is followed",
        "dr: what is captured is acknowledged before it is applied",
    ] {
        is_noticed(bug, 100, |seed| take_over_with_kills(seed, 4));
    }
}

#[test]
fn an_end_leaves_no_stream_at_a_captured_first() {
    for seed in 0..6 {
        with_pair(seed, async |pair| {
            let Pair { machine, first, second, .. } = pair;
            let mut random = Random::new(seed);
            let mut history = History::default();
            for _ in 0..40 {
                history.write(&client(&first), &mut random).await;
            }
            let sites = Sites::new(captured(&first, seed, true), lossy(&second, seed + 1, 9));
            start(&sites, &StartSettings::default()).await.unwrap();
            let time = Duration::from_micros(random.index(2_000_000) as u64);
            assert!(run_for(&machine, &sites, time).await.is_none());
            assert_eq!(client(&first).list_changes().await.unwrap().len(), 1);
            // Half of them were changing sides.
            if seed % 3 == 2 {
                run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
                let time = Duration::from_micros(random.index(30_000) as u64);
                if let First::Left(_) =
                    race(switch(&sites, &Control::default()), machine.sleep(time)).await
                {
                    return;
                }
            }
            if seed % 3 == 1 {
                let _ = abort_second(&sites.to, Some(Leftover::Clear)).await.unwrap();
            }
            abort(&sites, "default", None).await.unwrap();
            machine.sleep(Duration::from_secs(1)).await;
            assert!(client(&first).list_changes().await.unwrap().is_empty(), "seed {seed}");
            assert!(
                !is_locked(&client(&first)).await && !is_locked(&sites.to).await,
                "seed {seed}"
            );
            // And begun anew.
            let again = StartSettings { clear: true, ..StartSettings::default() };
            start(&sites, &again).await.unwrap();
            run_until(&machine, &sites, async |status| status.whole_at >= Some(history.newest()))
                .await;
            assert!(rows_of(&sites.to).await == history.at(history.newest()), "seed {seed}");
        });
    }
}

#[test]
fn a_first_that_takes_no_streams_is_refused_and_keeps_nothing() {
    with_pair(1, async |pair| {
        let sites = Sites::new(captured(&pair.first, 1, false), client(&pair.second));
        let error = start(&sites, &StartSettings::default()).await.unwrap_err();
        assert!(error.to_string().contains("--knob_enable_native_cdc=true"), "{error}");
        assert!(!is_locked(&sites.to).await);
        let again = Sites::new(captured(&pair.first, 2, true), client(&pair.second));
        assert_eq!(start(&again, &StartSettings::default()).await, Ok(true));
        let back = Sites::new(again.to, again.from);
        let error = start(&back, &StartSettings::default()).await.unwrap_err();
        assert!(error.to_string().contains("has to be a database of Plinth's"), "{error}");
    });
}

/// A stream of FoundationDB's says nothing of what is being restored: the first is looked at.
#[test]
fn a_captured_first_that_is_being_filled_is_neither_left_nor_ended() {
    with_pair(3, async |pair| {
        let sites = Sites::new(captured(&pair.first, 3, true), client(&pair.second));
        start(&sites, &StartSettings::default()).await.unwrap();
        run_until(&pair.machine, &sites, async |status| status.whole_at.is_some()).await;
        let note = async |value: Option<&'static str>| {
            let tr = pair.sites.from.create_transaction();
            tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
            match value {
                Some(value) => tr.set(system::RESTORE_HEAD, value),
                None => tr.clear(system::RESTORE_HEAD),
            }
            tr.commit().await.unwrap();
        };
        note(Some("a restore")).await;
        for leftover in [None, Some(Leftover::Keep), Some(Leftover::Clear)] {
            let refused = abort(&sites, "default", leftover).await.unwrap_err();
            assert!(refused.to_string().contains("the first site has a part"), "{refused}");
        }
        let refused = switch(&sites, &Control::default()).await.unwrap_err();
        assert!(refused == Error::database_locked(), "{refused}");
        assert!(refused.to_string().contains("the first site has a part"), "{refused}");
        let shown = plinth_dr::status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
        assert_eq!(shown.phase, Phase::Following);
        assert!(!is_locked(&pair.sites.from).await && is_locked(&sites.to).await);
        note(None).await;
        // The stand-in's stream does tell.
        run_until(&pair.machine, &sites, async |status| status.whole_at.is_some()).await;
        assert_eq!(switch(&sites, &Control::default()).await, Ok(true));
    });
}
