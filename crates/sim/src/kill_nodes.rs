//! Real servers of a cluster, killed, stopped and cut off at random instants, and clients whose
//! history is judged.
//!
//! No simulation: processes, files, sockets. Clients read lists and append to them all the time,
//! and each attempt is noted with its times. Meanwhile one thing after the other happens to a
//! server, mostly the one that leads; each comes back before the next. In the end the history has
//! to be strictly serializable, and nothing that was acknowledged may be missing (`lists`).
//!
//! What clients notice is a pause: the longest time between two acknowledged transactions of one
//! client around each event.

use crate::lists::{self, Attempt, Fate, Lists};
pub use crate::servers::Event;
use crate::servers::{Servers, told};
use plinth_client::{Database, RangeOptions, Transaction};
use plinth_env::simulated::Random;
use plinth_env::{Env, Task, block_on};
use plinth_types::{Error, MutationType};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Clients that work all the time.
const CLIENTS: u64 = 8;
/// Lists that are appended to at a time, and how many transactions of a client there are before
/// others take their place.
const LISTS: u64 = 4;
const EPOCH: u64 = 60;
/// How long a cluster may take to serve again when everything is well.
const PATIENCE: Duration = Duration::from_secs(60);
/// Attempts of the longest pause that are told at most.
const MOST_TOLD: usize = 40;
/// Upper ends of the histogram's classes, in milliseconds.
const CLASSES: [u64; 9] = [50, 100, 200, 400, 700, 1000, 2000, 4000, 8000];

/// The first rounds go through these, to a server that leads and to one that follows by turns; then
/// they are drawn.
const EVENTS: [Event; 8] = [
    Event::Killed,
    Event::Killed,
    Event::Ended,
    Event::Stopped,
    Event::Stopped,
    Event::CutOff,
    Event::CutOff,
    Event::Delayed,
];

/// What many rounds came to.
#[derive(Clone, Default, Debug)]
pub struct Judged {
    /// Attempts in the history, and how many of them were acknowledged.
    pub attempts: usize,
    /// See above.
    pub acknowledged: usize,
    /// The longest pause of a client around each event.
    pub pauses: Vec<(Event, Duration)>,
    /// What clients tried in the longest of them, in words.
    pub longest: String,
}

/// A time between two acknowledged transactions of one client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Pause {
    lasts: Duration,
    from: Duration,
    client: u64,
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { attempts, acknowledged, pauses, longest } = self;
        writeln!(
            f,
            "{attempts} attempts, {acknowledged} acknowledged: strictly serializable, nothing lost"
        )?;
        let mut kinds: Vec<Event> = pauses.iter().map(|(event, _)| *event).collect();
        kinds.sort();
        kinds.dedup();
        for kind in kinds {
            let of_kind =
                pauses.iter().filter(|(event, _)| *event == kind).map(|(_, pause)| *pause);
            summary(f, &format!("{kind:?}"), of_kind.collect())?;
        }
        summary(f, "all", pauses.iter().map(|(_, pause)| *pause).collect())?;
        let mut least = 0;
        for class in CLASSES.into_iter().chain([u64::MAX]) {
            let is_in = |(_, pause): &&(Event, Duration)| {
                (least..class).contains(&(pause.as_millis() as u64))
            };
            let count = pauses.iter().filter(is_in).count();
            if count > 0 {
                let upto =
                    if class == u64::MAX { "longer".to_string() } else { format!("to {class} ms") };
                writeln!(
                    f,
                    "  {upto:>10} {count:>5} {}",
                    "#".repeat((count * 50).div_ceil(pauses.len()))
                )?;
            }
            least = class;
        }
        f.write_str(longest)
    }
}

fn summary(
    f: &mut std::fmt::Formatter<'_>,
    name: &str,
    mut pauses: Vec<Duration>,
) -> std::fmt::Result {
    pauses.sort();
    let at =
        |part: usize| pauses.get((pauses.len() * part / 100).min(pauses.len().saturating_sub(1)));
    let [half, most, greatest] =
        [at(50), at(99), pauses.last()].map(|pause| pause.map_or(0, Duration::as_millis));
    writeln!(
        f,
        "  {name:8} {:>4} pauses: half below {half} ms, 99 of 100 below {most} ms, greatest {greatest} ms",
        pauses.len()
    )
}

/// Does something to a server, and has it come back after a while.
fn befall(
    servers: &mut Servers,
    at: usize,
    event: Event,
    random: &mut Random,
) -> Result<(), String> {
    let lasts = match event {
        Event::Killed => 0..1200,
        Event::Ended => 0..1,
        Event::Stopped => 300..2500,
        Event::CutOff => 500..3000,
        Event::Delayed => 300..1500,
    };
    let by = random.below(120).max(5);
    servers.begin(at, event, by)?;
    block_on(servers.env().sleep(Duration::from_millis(random.in_range(lasts))));
    servers.end(at, event)
}

/// What clients have seen.
#[derive(Default)]
struct History {
    attempts: Vec<Attempt>,
    /// Whose each of them was, and the error that it ended with.
    whose: Vec<(u64, Option<Error>)>,
    /// When each client was told of which transaction.
    acknowledged: Vec<(u64, Duration)>,
}

fn key(list: u64) -> Vec<u8> {
    [b"list/", &list.to_be_bytes()[..]].concat()
}

fn values(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|value| u64::from_be_bytes(*value)).collect()
}

/// Reads one or two lists, and mostly appends to one or two.
async fn attempt(
    env: &Env,
    tr: &Transaction,
    random: &mut Random,
    (client, number): (u64, u64),
) -> (Attempt, Option<Error>) {
    let list = |random: &mut Random| number / EPOCH * LISTS + random.below(LISTS);
    let mut attempt = Attempt {
        began: env.now(),
        ended: Duration::ZERO,
        reads: Vec::new(),
        appends: Vec::new(),
        fate: Fate::Refused,
    };
    let mut wanted: Vec<u64> = (0..=random.below(2)).map(|_| list(random)).collect();
    wanted.dedup();
    for list in wanted {
        match tr.get(key(list)).await {
            Ok(found) => {
                attempt.reads.push((list, found.map_or_else(Vec::new, |found| values(&found))))
            }
            Err(error) => return (Attempt { ended: env.now(), ..attempt }, Some(error)),
        }
    }
    for place in 0..random.below(3) {
        let (list, value) = (list(random), client << 48 | number << 8 | place);
        tr.atomic_op(key(list), value.to_be_bytes(), MutationType::AppendIfFits);
        attempt.appends.push((list, value));
    }
    let error = tr.commit().await.err();
    let fate = match &error {
        None => Fate::Committed,
        // These alone say for certain that nothing has come of it.
        Some(error) if [Error::not_committed(), Error::transaction_too_old()].contains(error) => {
            Fate::Refused
        }
        Some(_) => Fate::Unknown,
    };
    (Attempt { ended: env.now(), fate, ..attempt }, error)
}

async fn work(
    env: Env,
    db: Database,
    client: u64,
    seed: u64,
    shared: Arc<(AtomicBool, Mutex<History>)>,
) {
    let mut random = Random::new(seed ^ client << 32);
    let mut number = 0;
    while !shared.0.load(Ordering::Relaxed) {
        let (done, error) =
            attempt(&env, &db.create_transaction(), &mut random, (client, number)).await;
        let is_done = done.fate == Fate::Committed;
        number += u64::from(is_done || !done.appends.is_empty());
        {
            let mut history = shared.1.lock().unwrap_or_else(PoisonError::into_inner);
            if is_done {
                history.acknowledged.push((client, done.ended));
            }
            history.attempts.push(done);
            history.whose.push((client, error));
        }
        env.sleep(Duration::from_millis(if is_done { 2 } else { 10 })).await;
    }
}

/// The longest pause of a client that has to do with what happened from `begin` to `end`.
fn pause(acknowledged: &[(u64, Duration)], begin: Duration, end: Duration) -> Pause {
    let of_client = |client: u64| {
        let of_it = acknowledged.iter().filter(|(by, _)| *by == client);
        let times: Vec<_> = of_it.map(|(_, at)| *at).collect();
        let concerned = times.windows(2).filter(|pair| pair[1] >= begin && pair[0] <= end);
        let pauses =
            concerned.map(|pair| Pause { lasts: pair[1] - pair[0], from: pair[0], client });
        pauses.max().unwrap_or_default()
    };
    (0..CLIENTS).map(of_client).max().unwrap_or_default()
}

/// What a client tried in a pause: how long each attempt took, and what became of it.
fn told_of(history: &History, event: Event, begin: Duration, pause: Pause) -> String {
    let ms = |time: Duration| time.as_millis();
    let mut text = format!(
        "the longest: {} ms of client {} from {} ms after it was {event:?}\n",
        ms(pause.lasts),
        pause.client,
        pause.from.as_millis() as i128 - begin.as_millis() as i128
    );
    let end = pause.from + pause.lasts;
    let is_within = |(attempt, (client, _)): &(&Attempt, &(u64, Option<Error>))| {
        *client == pause.client && attempt.began >= pause.from && attempt.began < end
    };
    let all = history.attempts.iter().zip(&history.whose);
    for (attempt, (_, error)) in all.filter(is_within).take(MOST_TOLD) {
        text += &format!(
            "  at {:>6} ms for {:>6} ms: {} reads, {} appends, {:?}{}\n",
            ms(attempt.began - pause.from),
            ms(attempt.ended - attempt.began),
            attempt.reads.len(),
            attempt.appends.len(),
            attempt.fate,
            error.as_ref().map_or_else(String::new, |error| format!(": {error}"))
        );
    }
    text
}

/// Has so many things happen to a cluster of `nodes` servers, which `program` starts, and judges
/// what clients saw. `heard` is told after each round how many there were.
///
/// # Errors
/// What was lost or can't be, or why there was nothing to judge.
pub fn rounds(
    program: &[OsString],
    nodes: usize,
    rounds: u64,
    seed: u64,
    heard: &dyn Fn(u64),
) -> Result<Judged, String> {
    let env = Env::real();
    let mut random = Random::new(seed);
    let place = block_on(env.files().temporary_dir("plinth-kill-nodes"))
        .map_err(told("make a directory"))?;
    let mut servers = Servers::form(&env, program, place.path(), nodes, true)?;
    let shared = Arc::<(AtomicBool, Mutex<History>)>::default();
    let mut clients: Vec<Task> = Vec::new();
    for client in 0..CLIENTS {
        let work = work(env.clone(), servers.database()?, client, seed, shared.clone());
        clients.push(env.spawn("client", work));
    }
    let mut happened = Vec::new();
    for round in 0..rounds {
        block_on(env.sleep(Duration::from_millis(random.in_range(400..900))));
        let first = EVENTS.get(round as usize).copied();
        let event = first.unwrap_or_else(|| EVENTS[random.index(EVENTS.len())]);
        // The second of two of a kind befalls a server that follows.
        let is_second =
            first.is_some() && round > 0 && first == EVENTS.get(round as usize - 1).copied();
        let is_leaders = if first.is_some() { !is_second } else { random.chance(0.7) };
        let at = match servers.leader() {
            Some(leader) if is_leaders => leader,
            Some(leader) => (leader + 1 + random.index(nodes - 1)) % nodes,
            None => random.index(nodes),
        };
        let begin = env.now();
        befall(&mut servers, at, event, &mut random)?;
        serves(&env, &shared)?;
        servers.check()?;
        happened.push((event, begin, env.now()));
        heard(round + 1);
    }
    shared.0.store(true, Ordering::Relaxed);
    for client in clients {
        block_on(client).map_err(|failed| format!("a client failed: {failed}"))?;
    }
    let history = std::mem::take(&mut *shared.1.lock().unwrap_or_else(PoisonError::into_inner));
    let last = last_lists(&servers.database()?)?;
    lists::judge(&history.attempts, &last)?;
    let found: Vec<_> = happened
        .into_iter()
        .map(|(event, begin, end)| (pause(&history.acknowledged, begin, end), event, begin))
        .collect();
    let longest = found.iter().max_by_key(|(pause, ..)| *pause);
    let longest = longest.map(|(pause, event, begin)| told_of(&history, *event, *begin, *pause));
    Ok(Judged {
        attempts: history.attempts.len(),
        acknowledged: history.acknowledged.len(),
        pauses: found.iter().map(|(pause, event, _)| (*event, pause.lasts)).collect(),
        longest: longest.unwrap_or_default(),
    })
}

/// Waits until every client has been told of a transaction once more.
fn serves(env: &Env, shared: &(AtomicBool, Mutex<History>)) -> Result<(), String> {
    let since = env.now();
    loop {
        let served = {
            let history = shared.1.lock().unwrap_or_else(PoisonError::into_inner);
            let newest = history.acknowledged.iter().rev().take_while(|(_, at)| *at > since);
            newest.map(|(client, _)| *client).collect::<std::collections::BTreeSet<_>>().len()
                as u64
        };
        if served == CLIENTS {
            return Ok(());
        }
        if env.now() - since > PATIENCE {
            return Err(format!(
                "only {served} of {CLIENTS} clients are served {PATIENCE:?} after all was well again"
            ));
        }
        block_on(env.sleep(Duration::from_millis(10)));
    }
}

fn last_lists(db: &Database) -> Result<Lists, String> {
    let read = db.transact_blocking(|tr| {
        let rows = block_on(tr.range(RangeOptions::from(&b"list/"[..]..&b"list0"[..])).collect())?;
        Ok(rows.iter().map(|row| (row.key.to_vec(), values(&row.value))).collect::<Vec<_>>())
    });
    let number = |key: &[u8]| key.last_chunk().map_or(0, |number| u64::from_be_bytes(*number));
    let read = read.map_err(told("read the lists in the end"))?;
    Ok(read.into_iter().map(|(key, values)| (number(&key), values)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_the_longest_one_that_has_to_do_with_an_event() {
        let ms = Duration::from_millis;
        let acknowledged = [(0, 0), (1, 5), (0, 10), (1, 300), (0, 15), (0, 900), (1, 305)]
            .map(|(by, at)| (by, ms(at)));
        let expected = Pause { lasts: ms(885), from: ms(15), client: 0 };
        assert_eq!(pause(&acknowledged, ms(12), ms(20)), expected);
        assert_eq!(pause(&acknowledged[..5], ms(3), ms(20)).lasts, ms(295));
    }
}
