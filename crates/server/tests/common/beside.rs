//! A good client of keys, with a clock: how long it waits beside an attack, as a multiple of how
//! long it waits alone.
//!
//! It reads what it wrote last and commits the next row, one after the other, on a connection of
//! its own, and heeds no error. A busy machine makes it slow as well, so nothing is said of times
//! but how they compare with others of the same run. What was found once made such a client wait
//! for a hundred to a thousand times as long, or for good.
//!
//! Whoever measures has the machine for himself, as far as this program's tests are concerned.

use super::Database;
use plinth_env::{Env, Task, block_on};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many times as long as alone it may wait, by the 99th percentile.
const TIMES: u32 = 30;
/// What it waits for alone, at least: others on the machine may well make a thread wait for so long
/// until it has a turn.
const FLOOR: Duration = Duration::from_millis(2);
/// Transactions by which it is judged alone, after some that find out where the server is.
const ALONE: usize = 400;
const BEFORE: usize = 100;
/// Whoever waits for longer waits for good.
const PATIENCE: Duration = Duration::from_secs(120);

static TURN: Mutex<()> = Mutex::new(());

/// A client at work.
pub struct Good {
    env: Env,
    db: Database,
    shared: Arc<Shared>,
    client: Option<Task>,
    /// Its wait alone.
    alone: Duration,
    _turn: MutexGuard<'static, ()>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// How long each transaction took, since somebody began to look.
    delays: Vec<Duration>,
    /// How many have been acknowledged, from the first one on.
    acknowledged: u32,
    /// What went wrong.
    failure: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn row(number: u32) -> Vec<u8> {
    [b"good/", &number.to_be_bytes()[..]].concat()
}

/// One transaction: reads what the last one wrote, and writes the next.
fn once(db: &Database, number: u32) -> Result<(), String> {
    let tr = db.create_transaction();
    if let Some(last) = number.checked_sub(1) {
        let read = tr.get(row(last)).wait().map_err(|error| format!("a read: {error}"))?;
        if read.as_deref() != Some(&last.to_be_bytes()[..]) {
            return Err(format!("row {last} was acknowledged, and is {read:?}"));
        }
    }
    tr.set(row(number), number.to_be_bytes());
    tr.commit().wait().map_err(|error| format!("commit {number}: {error}"))
}

fn percentile_99(delays: &[Duration]) -> Duration {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default()
}

impl Good {
    /// Starts one and has it show how long it waits while nobody attacks. It goes on.
    pub fn alone(db: Database) -> Self {
        let turn = lock(&TURN);
        let (env, shared) = (Env::real(), Arc::<Shared>::default());
        let (clock, theirs, own) = (env.clone(), shared.clone(), db.clone());
        let client = env.spawn("good", async move {
            for number in 0.. {
                if theirs.stop.load(Ordering::Relaxed) {
                    return;
                }
                let began = clock.now();
                let done = once(&own, number);
                let mut seen = lock(&theirs.seen);
                seen.delays.push(clock.now() - began);
                match done {
                    Ok(()) => seen.acknowledged += 1,
                    Err(why) => {
                        seen.failure = Some(why);
                        return;
                    }
                }
            }
        });
        let alone = Duration::ZERO;
        let mut good = Self { env, db, shared, client: Some(client), alone, _turn: turn };
        good.goes_on(BEFORE);
        lock(&good.shared.seen).delays.clear();
        good.goes_on(ALONE);
        good.alone = percentile_99(&lock(&good.shared.seen).delays);
        good
    }

    /// Waits until it has done so many more transactions.
    #[track_caller]
    pub fn goes_on(&self, more: usize) {
        let (begin, already) = (self.env.now(), self.done());
        while self.done() < already + more {
            if let Some(failure) = &lock(&self.shared.seen).failure {
                panic!("a good client failed: {failure}");
            }
            let done = self.done() - already;
            assert!(
                self.env.now() - begin < PATIENCE,
                "a good client has done {done} of {more} transactions in {PATIENCE:?}; alone it took {:?} for each at most",
                self.alone
            );
            block_on(self.env.sleep(Duration::from_millis(2)));
        }
    }

    fn done(&self) -> usize {
        lock(&self.shared.seen).acknowledged as usize
    }

    /// Attacks, and judges how long the client waited meanwhile. What goes on by itself once it is
    /// begun has it [go on](Self::goes_on) beside that.
    #[track_caller]
    pub fn beside<T>(&self, what: &str, attack: impl FnOnce(&Self) -> T) -> T {
        lock(&self.shared.seen).delays.clear();
        let done = attack(self);
        // What was under way when the attack ended has waited as well.
        self.goes_on(1);
        let delays = std::mem::take(&mut lock(&self.shared.seen).delays);
        let (waited, most) = (percentile_99(&delays), self.alone.max(FLOOR) * TIMES);
        let told = format!(
            "beside {what} a good client waited for {waited:?} (99th percentile of {}), alone for {:?}",
            delays.len(),
            self.alone
        );
        println!("{told}");
        assert!(waited <= most, "{told}: at most {TIMES} times {:?}", self.alone.max(FLOOR));
        done
    }

    /// Ends it. All that was acknowledged is there.
    #[track_caller]
    pub fn end(mut self) {
        self.goes_on(1);
        self.shared.stop.store(true, Ordering::Relaxed);
        self.client.take().expect("it runs until now").wait().unwrap();
        let acknowledged = lock(&self.shared.seen).acknowledged;
        let rows = self
            .db
            .transact_blocking(|tr| tr.range(&b"good/"[..]..&b"good0"[..]).collect_blocking())
            .unwrap();
        let expected = (0..acknowledged).map(row);
        assert!(
            rows.iter().map(|row| row.key.to_vec()).eq(expected),
            "{acknowledged} rows were acknowledged, {} are there",
            rows.len()
        );
    }
}

impl Drop for Good {
    /// A test that fails leaves no client behind that goes on writing.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}
