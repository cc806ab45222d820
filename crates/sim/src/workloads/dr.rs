//! A second site: a database follows the first one, which is written all the while; whenever it is
//! looked at it is what the first was, and when the two change places nothing that was acknowledged
//! is lost.
//!
//! ```text
//!   clients ─▶ whichever of the two isn't locked           count what was acknowledged to them, and change shared rows
//!   first   = the run's database, one node or a cluster
//!   second  = a node at /second                            on the machine that may die; of a cluster, on one beside the nodes
//!   client 0 ─▶ agents, exchanged and killed; pauses, changes of sides; compares the two, row by row
//!   in the end: caught up, sides changed once more or not, counted, then made free in one of two ways, compared
//! ```
//! The second says at which version of the first it is whole. The first is read at just that
//! version, which is possible for some seconds, so nothing but the first itself says what is right:
//! that its reads are is what the other workloads are about.
//!
//! Always: at most one of the two takes writes; in the end both are free, so that the run's own
//! last commits find the first unlocked.

use super::{Work, Workload};
use crate::client::{Client, Outcome};
use crate::draw::Draw;
use crate::faults::is_excused;
use crate::history::Rows;
use crate::stage::{Life, lock};
use plinth_client::{Database, RangeOptions, StreamingMode, Transaction, TransactionOption};
use plinth_dr::{
    Agent, Control, Ending, Freed, Phase, Sites, StartSettings, Status, abort, abort_second,
    set_paused, start, status, switch,
};
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_pipeline::{EngineKind, Node, NodeConfig};
use plinth_types::{Error, Result, Version, system::NORMAL_END};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DIR: &str = "/second";
const ROWS: &str = "dr/row/";
const COUNTS: &str = "dr/count/";
const MARK: &[u8] = b"dr/mark";
/// How long the second may take to get where it is waited for, with nothing going wrong any more:
/// an agent that died is missed for ten seconds.
const PATIENCE: Duration = Duration::from_secs(300);

/// Which of the two databases: the run's own, or the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Own,
    Other,
}

/// The second database, in one life.
#[derive(Clone)]
struct Other {
    life: u64,
    node: Arc<Node>,
}

/// An agent at work.
struct Running {
    control: Control,
    is_killed: Arc<AtomicBool>,
    ended: Arc<Mutex<Option<Result<Ending>>>>,
}

/// What was acknowledged to a client, and what may have been done besides.
#[derive(Clone, Copy, Default)]
struct Count {
    acknowledged: u64,
    unknown: u64,
}

#[derive(Default)]
struct Ledger {
    other: Option<Other>,
    agents: Vec<Running>,
    counts: BTreeMap<usize, Count>,
    /// What both had when they were made free.
    freed: Option<[Rows; 2]>,
}

pub struct Dr {
    keys: u64,
    pause: u64,
    engine: EngineKind,
    ledger: Mutex<Ledger>,
}

impl Dr {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let engines = [EngineKind::Memory, EngineKind::Ssd];
        Self {
            keys: draw.number("keys", 5..400),
            pause: draw.number("pause_micros", 5_000..100_000),
            engine: engines[draw.number("engine", 0..2) as usize],
            ledger: Mutex::default(),
        }
    }

    fn key(&self, client: &Client) -> Vec<u8> {
        format!("{ROWS}{:03}", client.below(self.keys)).into_bytes()
    }

    /// A database of a life; the other one isn't there before it was opened.
    fn database(&self, life: &Life, side: Side) -> Option<Database> {
        match side {
            Side::Own => Some(life.database.clone()),
            Side::Other => {
                let other =
                    lock(&self.ledger).other.clone().filter(|other| other.life == life.number)?;
                Some(Database::new(Arc::new(other.node.endpoint())))
            }
        }
    }

    /// Counts, and changes some rows, on the side that takes writes as far as the client knows.
    async fn write(&self, client: &Client, side: &mut Side) {
        let counter = format!("{COUNTS}{}", client.id);
        let here = *side;
        let database = |life: &Life| self.database(life, here);
        let written = client.attempt_on(&database, async |tr: Transaction| {
            tr.add(&counter, 1_u64.to_le_bytes());
            for _ in 0..client.below(4) {
                super::changes::mutate(client, &tr, self.key(client), self.key(client));
            }
            Ok(())
        });
        let outcome = written.await;
        let mut ledger = lock(&self.ledger);
        let count = ledger.counts.entry(client.id).or_default();
        match outcome {
            Outcome::Committed((), _) => count.acknowledged += 1,
            Outcome::Unknown => count.unknown += 1,
            Outcome::Refused(error) if error == Error::database_locked() => {
                *side = if here == Side::Own { Side::Other } else { Side::Own };
            }
            Outcome::Refused(_) => {}
        }
    }

    /// Both databases, the second opened if it isn't. One that has failed stays so until its
    /// process ends, with the life.
    async fn sites(&self, client: &Client, life: &Life) -> Option<Sites> {
        let known = lock(&self.ledger).other.clone().filter(|other| other.life == life.number);
        let node = match known {
            Some(other) if other.node.failure().is_none() => other.node,
            Some(_) => {
                client.stage().probe("second site failed until the next life");
                client.pause(1_000_000).await;
                return None;
            }
            None => self.open(client, life).await?,
        };
        lock(&self.ledger).other = Some(Other { life: life.number, node: node.clone() });
        Some(Sites::new(life.database.clone(), Database::new(Arc::new(node.endpoint()))))
    }

    async fn open(&self, client: &Client, life: &Life) -> Option<Arc<Node>> {
        while !client.stage().is_over() {
            let config = NodeConfig { engine: self.engine, ..NodeConfig::default() };
            match Node::open(&life.machine, Path::new(DIR), config).await {
                Ok(node) => return Some(node),
                Err(error) if is_excused(&Error::from(&error)) => client.pause(100_000).await,
                Err(error) => client.fail(format!("the second database does not open: {error}")),
            }
        }
        None
    }

    /// Has the second follow the first, if neither follows the other yet.
    async fn begin(&self, client: &Client, sites: &Sites) {
        while !client.stage().is_over() {
            let begun = match status(Some(&sites.from), &sites.to).await {
                Ok(Some(_)) => return,
                Ok(None) => {
                    start(sites, &StartSettings { clear: true, ..StartSettings::default() }).await
                }
                Err(error) => Err(error),
            };
            if begun.is_err() {
                client.pause(100_000).await;
            }
        }
    }

    fn begin_agent(&self, life: &Life, sites: &Sites) {
        let (control, is_killed, ended) = (Control::default(), Arc::default(), Arc::default());
        let running = Running { control, is_killed, ended };
        let agent = Agent::new(sites.clone(), running.control.clone());
        let (killed, ended, env) =
            (running.is_killed.clone(), running.ended.clone(), life.machine.clone());
        drop(life.machine.spawn("dr-agent", async move {
            if let First::Left(result) = race(agent.run(), until(&env, &killed)).await {
                *lock(&ended) = Some(result);
            }
        }));
        lock(&self.ledger).agents.push(running);
    }

    /// No agent may have come to an end by itself: what an agent doesn't bear is a stream that is
    /// lost, or databases that make no pair.
    fn look_at_agents(&self, client: &Client) {
        for agent in &lock(&self.ledger).agents {
            if let Some(ended) = &*lock(&agent.ended)
                && *ended != Ok(Ending::Stopped)
            {
                client.fail(format!("an agent of the second site has ended: {ended:?}"));
            }
        }
    }

    /// Ends the agents that were begun, as they should end or at once, as far as their machines
    /// live.
    async fn end_agents(&self, client: &Client) {
        let agents = std::mem::take(&mut lock(&self.ledger).agents);
        for agent in agents {
            if client.chance(0.5) {
                agent.control.stop.store(true, Ordering::Relaxed);
                client.pause(3_000_000).await;
            }
            agent.is_killed.store(true, Ordering::Relaxed);
        }
    }

    /// Has an agent at work as long as a life lasts, and does to the pair what operators do.
    async fn mind(&self, client: &Client) {
        let minding = client.in_life(|life| async move {
            let Some(sites) = self.sites(client, &life).await else { return };
            self.begin(client, &sites).await;
            self.begin_agent(&life, &sites);
            while !client.is_stopping() {
                client.pause(500_000).await;
                self.look_at_agents(client);
                match client.below(60) {
                    0 | 1 => self.change_sides(client, &sites).await,
                    2 => self.stand_still(client, &sites).await,
                    3 => {
                        client.stage().probe("second site: agent exchanged");
                        if client.chance(0.5) {
                            self.end_agents(client).await;
                        }
                        self.begin_agent(&life, &sites);
                    }
                    _ => _ = self.compare(client, &sites).await,
                }
                let has_failed = |other: &Other| other.node.failure().is_some();
                if lock(&self.ledger).other.as_ref().is_some_and(has_failed) {
                    break;
                }
            }
        });
        if minding.await.is_none() {
            client.stage().probe("second site: agent died with its machine");
        }
        self.end_agents(client).await;
    }

    async fn stand_still(&self, client: &Client, sites: &Sites) {
        if set_paused(&turned(sites).await, true).await.is_ok() {
            client.stage().probe("second site stands still");
            client.pause(8_000_000).await;
        }
        // If that comes to nothing it stands still until the end.
        let _ = set_paused(&turned(sites).await, false).await;
    }

    /// Changes sides, or begins to: whoever does it may be killed.
    async fn change_sides(&self, client: &Client, sites: &Sites) {
        let (sites, control) = (turned(sites).await, Control::default());
        let longest = [20_000, 300_000, 60_000_000][client.index(3)];
        let time = Duration::from_micros(client.below(longest));
        match race(switch(&sites, &control), client.stage().env().sleep(time)).await {
            First::Left(Ok(_)) => client.stage().probe("second site: sides changed under faults"),
            First::Left(Err(error)) if error == Error::version_invalid() => {
                client.fail(format!("sides can't be changed: {error}"));
            }
            // One of them gives no answer, or isn't whole yet.
            First::Left(Err(_)) => {}
            First::Right(()) => client.stage().probe("second site: change of sides cut short"),
        }
    }

    /// Compares the second with the first at the version that it says; whether that could be done.
    async fn compare(&self, client: &Client, sites: &Sites) -> bool {
        let look = || async { status(Some(&sites.from), &sites.to).await.ok().flatten() };
        let Some(before) = look().await else { return false };
        let Some(version) = before.whole_at.filter(|_| before.is_first_reached) else {
            return false;
        };
        let (first, second) = ordered(sites, before.is_reversed);
        let Ok((_, found)) = rows_of(second, None).await else { return false };
        // The version may have been left behind by now, or the first be out of reach.
        let Ok((_, expected)) = rows_of(first, Some(version)).await else { return false };
        let Some(after) = look().await else { return false };
        let is_same = |after: &Status| (&after.id, after.position) == (&before.id, before.position);
        if !is_same(&after) {
            return false;
        }
        client.stage().probe("second site compared");
        if found != expected {
            client.fail(differ(version, &found, &expected));
        }
        true
    }

    /// A commit that is certain, on the side that takes writes, and its version.
    async fn mark(&self, client: &Client) -> Option<Version> {
        let mut side = Side::Own;
        while !client.stage().is_over() {
            let here = side;
            let database = |life: &Life| self.database(life, here);
            let marked = client.attempt_on(&database, async |tr: Transaction| {
                tr.set(MARK, client.next_u64().to_le_bytes());
                Ok(())
            });
            match marked.await {
                Outcome::Committed((), version) => return Some(version),
                _ => side = if here == Side::Own { Side::Other } else { Side::Own },
            }
            client.pause(20_000).await;
        }
        None
    }

    /// Waits until the second has everything, and compares. Gives whether the two have changed
    /// places, if it came to that.
    async fn catch_up(&self, client: &Client, sites: &Sites) -> Option<bool> {
        let version = self.mark(client).await?;
        let (env, mut last) = (client.stage().env().clone(), None);
        let begun = env.now();
        while env.now() - begun < PATIENCE && !client.stage().is_over() {
            self.look_at_agents(client);
            match status(Some(&sites.from), &sites.to).await {
                Ok(Some(found)) if found.phase == Phase::Paused => {
                    let _ = set_paused(&turned(sites).await, false).await;
                }
                Ok(Some(found))
                    if found.phase == Phase::Following && found.whole_at >= Some(version) =>
                {
                    if self.compare(client, sites).await {
                        return Some(found.is_reversed);
                    }
                }
                found => last = Some(found),
            }
            env.sleep(Duration::from_millis(300)).await;
        }
        client.fail(format!("the second site has not everything within {PATIENCE:?}: {last:?}"));
        None
    }

    /// With nothing going wrong any more: caught up, sides changed or not, counted, and made free.
    async fn finish(&self, client: &Client, life: &Life) -> Option<()> {
        let Some(sites) = self.sites(client, life).await else {
            client.fail("the second database has failed, and nothing went wrong");
            return None;
        };
        self.begin(client, &sites).await;
        self.begin_agent(life, &sites);
        let mut is_reversed = self.catch_up(client, &sites).await?;
        if client.chance(0.5) {
            let turned = turned(&sites).await;
            if let Err(error) = switch(&turned, &Control::default()).await {
                client.fail(format!("sides can't be changed: {error}"));
            }
            client.stage().probe("second site: sides changed in the end");
            let mut side = if is_reversed { Side::Own } else { Side::Other };
            for _ in 0..10 {
                self.write(client, &mut side).await;
            }
            is_reversed = self.catch_up(client, &sites).await?;
        }
        let (first, second) = ordered(&sites, is_reversed);
        let rows = self.count(client, first).await?;
        let freed = match client.chance(0.5) {
            true => abort(&sites, plinth_dr::DEFAULT_TAG, None).await,
            false => {
                client.stage().probe("second site made free alone");
                abort_second(second, None).await
            }
        };
        self.end_agents(client).await;
        match freed {
            Ok(Freed::Whole(_)) => self.judge_freed(client, &sites, &rows).await,
            other => client.fail(format!("the second site isn't made free: {other:?}")),
        }
        Some(())
    }

    /// Everything that was acknowledged is there once, and what may have been besides at most so
    /// often. Gives all rows.
    async fn count(&self, client: &Client, first: &Database) -> Option<Rows> {
        let rows = loop {
            match rows_of(first, None).await {
                Ok((_, rows)) => break rows,
                Err(_) if client.stage().is_over() => return None,
                Err(_) => client.pause(50_000).await,
            }
        };
        for (id, count) in &lock(&self.ledger).counts {
            let value = rows.get(format!("{COUNTS}{id}").as_bytes());
            let found = value.and_then(|value| super::number(value)).unwrap_or_default();
            if !(count.acknowledged..=count.acknowledged + count.unknown).contains(&found) {
                client.fail(format!(
                    "client {id} has counted {found} times, {} were acknowledged, {} may have been",
                    count.acknowledged, count.unknown
                ));
            }
        }
        Some(rows)
    }

    /// Nobody has written since: both have the same, neither is locked, and nothing is kept for the
    /// other.
    async fn judge_freed(&self, client: &Client, sites: &Sites, rows: &Rows) {
        // Where the second was made free alone the first doesn't know that yet.
        let _ = abort(sites, plinth_dr::DEFAULT_TAG, None).await;
        let mut freed = Vec::new();
        for database in [&sites.from, &sites.to] {
            let found = database.transact(|tr| async move { all_rows(&tr).await }).await;
            let streams = database.list_changes().await;
            if found.as_ref() != Ok(rows) {
                client.fail(format!("made free it has {found:?}, not {rows:?}"));
            }
            if streams.as_ref().map(Vec::len) != Ok(0) {
                client.fail(format!("made free it keeps {streams:?}"));
            }
            freed.extend(found.ok());
        }
        lock(&self.ledger).freed = freed.try_into().ok();
    }
}

/// Ends when it is so.
async fn until(env: &Env, is_so: &AtomicBool) {
    while !is_so.load(Ordering::Relaxed) {
        env.sleep(Duration::from_millis(50)).await;
    }
}

/// The two in the order in which the second of them follows, as far as that can be seen.
async fn turned(sites: &Sites) -> Sites {
    match status(Some(&sites.from), &sites.to).await {
        Ok(Some(found)) if found.is_reversed => Sites::new(sites.to.clone(), sites.from.clone()),
        _ => sites.clone(),
    }
}

/// The first and the second.
fn ordered(sites: &Sites, is_reversed: bool) -> (&Database, &Database) {
    if is_reversed { (&sites.to, &sites.from) } else { (&sites.from, &sites.to) }
}

fn differ(version: Version, found: &Rows, expected: &Rows) -> String {
    let other = |one: &Rows, two: &Rows| -> Vec<_> {
        one.iter()
            .filter(|(key, value)| two.get(*key) != Some(value))
            .map(|row| format!("{row:?}"))
            .collect()
    };
    format!(
        "at version {version} of the first the second has {:?}, the first had {:?}; {} rows are the same",
        other(found, expected),
        other(expected, found),
        found.iter().filter(|(key, value)| expected.get(*key) == Some(value)).count()
    )
}

async fn all_rows(tr: &Transaction) -> Result<Rows> {
    let options = RangeOptions::from(&b""[..]..NORMAL_END).mode(StreamingMode::WantAll);
    let rows = tr.range(options).collect().await?;
    Ok(rows.into_iter().map(|row| (row.key, row.value)).collect())
}

/// All rows of users, locked or not, at a version or as they are, and the version.
async fn rows_of(database: &Database, version: Option<Version>) -> Result<(Version, Rows)> {
    let tr = database.create_transaction();
    tr.set_option(TransactionOption::LockAware)?;
    if let Some(version) = version {
        tr.set_read_version(version);
    }
    let version = tr.get_read_version().await?;
    Ok((version, all_rows(&tr).await?))
}

impl Workload for Dr {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            let mut side = Side::Own;
            while !client.is_stopping() {
                if client.id > 0 {
                    self.write(&client, &mut side).await;
                    client.pause(self.pause).await;
                } else {
                    self.mind(&client).await;
                }
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let checked = client.in_life(|life| {
                let (this, client) = (&self, &client);
                async move {
                    let Some(freed) = lock(&this.ledger).freed.clone() else {
                        this.finish(client, &life).await;
                        return;
                    };
                    let Some(sites) = this.sites(client, &life).await else { return };
                    for (database, rows) in [&sites.from, &sites.to].into_iter().zip(&freed) {
                        if let Some(found) =
                            this.count(client, database).await.filter(|found| found != rows)
                        {
                            client.fail(format!("opened again it has {found:?}, not {rows:?}"));
                        }
                    }
                }
            });
            checked.await;
        })
    }

    fn needs_long_window(&self) -> bool {
        true
    }

    fn owns_database(&self) -> bool {
        true
    }

    fn locks_database(&self) -> bool {
        true
    }
}
