//! Backup: a continuous backup of a database that is written all the while, restored to drawn
//! points, has the rows of each point.
//!
//! ```text
//!   clients write ─▶ database ─▶ agent ─▶ /backup       on the machine that may die; of a cluster, on one beside the nodes, which may, too
//!   client 0 notes the rows at versions as it sees them ─▶ witnesses; restores and compares meanwhile, has what is old go, and
//!            has the backup stand still, so that it falls behind; restores into the cluster itself, under other names
//!   in the end: the backup is ended, restored to witnesses' versions, compared row for row; what is old goes; again
//! ```
//! The agent dies with its machine and begins again with the next life. A witness is what one
//! transaction read at its version: that reads are right is what the other workloads are about. A
//! restore goes into a database in memory, through what restores of directories go through. One
//! into the cluster is begun while nodes die, is cut short, and goes on: it locks the database, and
//! whoever may read it then finds nothing under the other names, or all of it.
//!
//! Always: what was committed before a backup was told to end is in it; it reaches from its first
//! snapshot to its end without a gap; what expiring promised to keep can be restored.

use super::{Work, Workload};
use crate::client::{Client, Outcome};
use crate::draw::Draw;
use crate::history::Rows;
use crate::stage::{Life, lock};
use plinth_backup::agent::{self, State, TagStatus, Wish};
use plinth_backup::restore::{
    self, Goal, Loader, Mapping, Plan, RestoreControl, restore_into, restore_served,
};
use plinth_backup::target::Doing;
use plinth_backup::{Agent, Directory, Piece, expire};
use plinth_client::{Database, RangeOptions, StreamingMode, Transaction};
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_pipeline::{Node, NodeConfig};
use plinth_types::{Bytes, Error, KeyRange, Result, Version};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PREFIX: &str = "backup/";
/// What is put before keys that are restored beside those that are there.
const BESIDE: &str = "restored/";
const DIR: &str = "/backup";
const TAG: &str = "default";
/// Witnesses that are kept.
const WITNESSES: usize = 200;
/// Points that are restored and compared at a time.
const POINTS: usize = 4;
/// How long the backup may take to get where it is waited for, with nothing going wrong any more:
/// an agent that died is missed for ten seconds, its lease for fifteen, and a pause behind errors
/// is half a minute at most.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Default)]
struct Ledger {
    witnesses: BTreeMap<Version, Rows>,
    agents: Vec<Agent>,
    /// From here on what could be restored must stay so.
    kept: Version,
    /// What is restored beside the rows, or was, or may have been.
    beside: Option<(Version, Rows)>,
    /// The backup has been ended.
    is_over: bool,
}

pub struct Backup {
    keys: u64,
    interval: u64,
    pause: u64,
    ledger: Mutex<Ledger>,
}

impl Backup {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        Self {
            keys: draw.number("keys", 5..60),
            interval: draw.number("snapshot_seconds", 3..40),
            pause: draw.number("pause_micros", 20_000..200_000),
            ledger: Mutex::default(),
        }
    }

    fn key(&self, client: &Client) -> Vec<u8> {
        format!("{PREFIX}{:03}", client.below(self.keys)).into_bytes()
    }

    async fn write(&self, client: &Client) {
        let written = client.attempt(async |tr: Transaction| {
            for _ in 0..1 + client.below(4) {
                super::changes::mutate(client, &tr, self.key(client), self.key(client));
            }
            Ok(())
        });
        written.await;
    }

    /// Notes the rows at a version.
    async fn witness(&self, client: &Client) {
        let Some((version, mut rows)) = client.look(rows_now).await else { return };
        let beside = taken_out(&mut rows);
        let mut ledger = lock(&self.ledger);
        let expected = ledger.beside.as_ref().map(|(_, rows)| rows);
        if !beside.is_empty() && Some(&beside) != expected {
            client.fail(format!(
                "nobody has locked the database at version {version}, where {beside:?} was restored of {expected:?}"
            ));
        }
        ledger.witnesses.insert(version, rows);
        if ledger.witnesses.len() > WITNESSES {
            let drawn = client.index(WITNESSES);
            let gone = ledger.witnesses.keys().nth(drawn).copied();
            gone.map(|version| ledger.witnesses.remove(&version));
        }
    }

    fn begin_agent(&self, life: &Life) {
        let agent = Agent::start(&life.machine, &life.database);
        lock(&self.ledger).agents.push(agent);
    }

    /// Ends the agents that were begun, as far as their machines live.
    async fn end_agents(&self, client: &Client) {
        let agents = std::mem::take(&mut lock(&self.ledger).agents);
        for agent in agents {
            race(agent.stop(), client.stage().env().sleep(Duration::from_secs(5))).await;
        }
    }

    /// Has an agent at work as long as a life lasts, and now and then another one in its place, or
    /// beside it.
    async fn mind(&self, client: &Client) {
        let minding = client.in_life(|life| async move {
            self.begin_agent(&life);
            while !client.is_stopping() {
                self.witness(client).await;
                client.pause(500_000).await;
                match client.below(100) {
                    0 => self.stand_still(client, &life).await,
                    1 | 2 => self.look(client, &life, false).await,
                    3 => self.look(client, &life, true).await,
                    4..7 if client.stage().is_cluster() => self.restore_beside(client, &life).await,
                    _ => {}
                }
                if client.chance(0.01) {
                    client.stage().probe("backup agent exchanged");
                    if client.chance(0.5) {
                        self.end_agents(client).await;
                    }
                    self.begin_agent(&life);
                }
            }
        });
        if minding.await.is_none() {
            client.stage().probe("backup agent died with its machine");
        }
        self.end_agents(client).await;
    }

    /// The backup stands still for a while, and has to catch up then.
    async fn stand_still(&self, client: &Client, life: &Life) {
        if agent::change(&life.database, TAG, State::Paused).await.is_ok() {
            client.stage().probe("backup stands still");
            client.pause(15_000_000).await;
        }
        // If that comes to nothing it stands still until the end.
        let _ = agent::change(&life.database, TAG, State::Running).await;
    }

    /// Restores what there is by now to a witness's version, or has what is old go. That may fail
    /// under faults; what is restored is right.
    async fn look(&self, client: &Client, life: &Life, expires: bool) {
        let target = Arc::new(Directory::new(&life.machine, DIR));
        // It may not have been begun yet, or in part.
        let Ok(backup) = plinth_backup::Backup::open(&life.machine, target, None).await else {
            return;
        };
        let looked = async {
            let Some((from, to)) = backup.contents().await?.restorable().first().copied() else {
                return Ok(());
            };
            let Some((version, expected)) = self.some_witness(client, (from, to)) else {
                return Ok(());
            };
            if expires && lock(&self.ledger).beside.is_none() {
                // If it gets to its end or not.
                lock(&self.ledger).kept = version;
                expire(&backup, Goal::Version(version)).await?;
                client.stage().probe("backup expired while it runs");
            }
            let found = restored(client.stage().env(), &backup, version).await?;
            client.stage().probe("backup restored while it runs");
            if found != expected {
                client.fail(differ(version, &found, &expected));
            }
            Ok(())
        };
        if let Some(error) = looked.await.err().filter(is_of_the_backup) {
            client.fail(format!("the backup can't be read while it runs: {error}"));
        }
    }

    /// One of the witnesses between two versions.
    fn some_witness(
        &self,
        client: &Client,
        (from, to): (Version, Version),
    ) -> Option<(Version, Rows)> {
        let ledger = lock(&self.ledger);
        let known: Vec<_> = ledger.witnesses.range(from..=to).collect();
        let drawn = known.get(client.index(known.len().max(1)))?;
        Some((*drawn.0, drawn.1.clone()))
    }

    /// Restores into the cluster itself, under other names: goes on with what was cut short, or
    /// gives it up, or begins.
    async fn restore_beside(&self, client: &Client, life: &Life) {
        let done = async {
            let target = Arc::new(Directory::new(&life.machine, DIR));
            let backup = plinth_backup::Backup::open(&life.machine, target, None).await?;
            let is_unfinished = restore::status(&life.database).await?.is_some();
            if is_unfinished && client.chance(0.2) {
                return self.give_up_beside(client, life).await;
            }
            if !is_unfinished && !self.begin_beside(client, &backup).await? {
                return Ok(());
            }
            let wanted = lock(&self.ledger).beside.clone();
            let Some((version, expected)) = wanted else { return Ok(()) };
            let plan = Plan::make(&backup, Goal::Version(version), beside()).await?;
            let longest = [100_000, 3_000_000, 60_000_000][client.index(3)];
            let time = Duration::from_micros(client.below(longest));
            let control = RestoreControl::default();
            let restoring = restore_served(&backup, &plan, &control, &life.database);
            match race(restoring, client.stage().env().sleep(time)).await {
                First::Left(Ok(_)) => {
                    self.compare_beside(client, is_unfinished, version, &expected).await
                }
                // What was cut short has come to its end since it was looked for: its last commit
                // was still on its way.
                First::Left(Err(error))
                    if is_unfinished
                        && error == Error::restore_destination_not_empty()
                        && restore::status(&life.database).await?.is_none() =>
                {
                    self.compare_beside(client, is_unfinished, version, &expected).await;
                }
                // What the restore began with has been removed: another snapshot would be taken
                // now.
                First::Left(Err(error)) if error == Error::client_invalid_operation() => {
                    return self.give_up_beside(client, life).await;
                }
                First::Left(Err(error)) => return Err(error),
                First::Right(()) => client.stage().probe("restore into a cluster cut short"),
            }
            Ok(())
        };
        let wrong = |error: &Error| {
            is_of_the_backup(error) || *error == Error::restore_destination_not_empty()
        };
        let error: Option<Error> = done.await.err();
        if let Some(error) = error.filter(wrong) {
            client.fail(format!("nothing can be restored into the cluster: {error}"));
        }
    }

    /// Draws what is to be restored beside the rows, and makes room for it; whether there is
    /// something.
    async fn begin_beside(&self, client: &Client, backup: &plinth_backup::Backup) -> Result<bool> {
        let Some(reach) = backup.contents().await?.restorable().first().copied() else {
            return Ok(false);
        };
        let Some(witness) = self.some_witness(client, reach) else { return Ok(false) };
        // It has read what it clears: one that is late conflicts with a restore.
        let cleared = client.attempt(async |tr: Transaction| {
            tr.range(RangeOptions::prefix(BESIDE).limit(1)).collect().await?;
            tr.clear_range(BESIDE, plinth_types::strinc(BESIDE.as_bytes()).unwrap_or_default());
            Ok(())
        });
        let is_cleared = matches!(cleared.await, Outcome::Committed(..));
        if is_cleared {
            lock(&self.ledger).beside = Some(witness);
        }
        Ok(is_cleared)
    }

    async fn give_up_beside(&self, client: &Client, life: &Life) -> Result<()> {
        restore::abort(&life.database).await?;
        client.stage().probe("restore into a cluster given up");
        lock(&self.ledger).beside = None;
        Ok(())
    }

    async fn compare_beside(
        &self,
        client: &Client,
        went_on: bool,
        version: Version,
        expected: &Rows,
    ) {
        client.stage().probe(match went_on {
            true => "restored into a cluster, which went on",
            false => "restored into a cluster",
        });
        let Some((_, mut rows)) = client.look(rows_now).await else { return };
        let found = taken_out(&mut rows);
        if found != *expected {
            client.fail(differ(version, &found, expected));
        }
    }

    /// A restore that was cut short is finished, or given up.
    async fn finish_beside(&self, client: &Client, life: &Life) {
        let env = client.stage().env().clone();
        let begun = env.now();
        while !client.stage().is_over() && restore::status(&life.database).await != Ok(None) {
            if env.now() - begun > PATIENCE {
                client.fail(format!(
                    "a restore into the cluster is not finished within {PATIENCE:?}"
                ));
            }
            self.restore_beside(client, life).await;
            client.pause(100_000).await;
        }
    }

    async fn status(&self, database: &Database) -> Option<TagStatus> {
        agent::tags(database).await.ok()?.into_iter().find(|tag| tag.tag == TAG)
    }

    /// Waits until the backup is so; whether it came to be.
    async fn until(
        &self,
        client: &Client,
        database: &Database,
        what: &str,
        is_so: impl Fn(&TagStatus) -> bool,
    ) -> bool {
        let (env, mut last) = (client.stage().env().clone(), None);
        let begun = env.now();
        while env.now() - begun < PATIENCE && !client.stage().is_over() {
            if let Some(status) = self.status(database).await {
                if is_so(&status) {
                    return true;
                }
                last = Some(status);
            }
            env.sleep(Duration::from_millis(500)).await;
        }
        client.fail(format!("the backup is not {what} within {PATIENCE:?}: {last:?}"));
        false
    }

    /// The version of a commit that is certain.
    async fn committed(&self, client: &Client) -> Option<Version> {
        let key = self.key(client);
        let committed = client.insist(async |tr: Transaction| {
            tr.set(&key, client.next_u64().to_le_bytes());
            Ok(())
        });
        committed.await.map(|(_, version)| version)
    }

    /// Has the backup catch up, and ends it.
    async fn finish(&self, client: &Client, life: &Life) {
        let database = &life.database;
        let Some(version) = self.committed(client).await else { return };
        while let Err(error) = agent::change(database, TAG, State::Running).await {
            if client.stage().is_over() {
                return client.explain(error);
            }
            client.pause(100_000).await;
        }
        let caught_up = |tag: &TagStatus| tag.is_restorable && tag.saved >= Some(version);
        if !self.until(client, database, "caught up", caught_up).await {
            return;
        }
        for _ in 0..10 {
            self.write(client).await;
            self.witness(client).await;
            client.pause(100_000).await;
        }
        let Some(last) = self.committed(client).await else { return };
        self.witness(client).await;
        while let Err(error) = agent::change(database, TAG, State::Discontinuing).await {
            if client.stage().is_over() {
                return client.explain(error);
            }
            client.pause(100_000).await;
        }
        // It is written on until the agent sees that: so there is something that it has read and
        // not put.
        for _ in 0..25 {
            self.write(client).await;
            client.pause(60_000).await;
        }
        if !self.until(client, database, "ended", |tag| tag.ended.is_some()).await {
            return;
        }
        lock(&self.ledger).is_over = true;
        if let Some(status) = self.status(database).await
            && (status.ended.as_deref(), status.broken) != (Some("completed"), 0)
        {
            client.fail(format!("the backup ended otherwise: {status:?}"));
        }
        if let Err(error) = self.judge(client, life, last).await {
            client.fail(format!("the backup can't be read: {error}"));
        }
    }

    /// Restores and compares; then, of half of the backups, what is old goes, and again.
    async fn judge(&self, client: &Client, life: &Life, last: Version) -> Result<()> {
        let machine = life.machine.clone();
        let target = Arc::new(Directory::new(&machine, DIR));
        let backup = plinth_backup::Backup::open(&machine, target, None).await?;
        let reach = backup.contents().await?.restorable();
        let [(from, to)] = reach[..] else {
            client.fail(format!("the backup reaches {reach:?}, and nothing was let go of"));
            return Ok(());
        };
        let kept = lock(&self.ledger).kept;
        if kept > 0 && from > kept {
            client.fail(format!("expired up to {kept}, the backup can be restored from {from} on"));
        }
        if to < last {
            client.fail(format!(
                "version {last} was committed before the backup was ended, which ends at {to}"
            ));
        }
        self.compare(client, &backup, (from, to)).await?;
        let middle = from + client.below((to - from) as u64 + 1) as Version;
        if client.chance(0.5) {
            lock(&self.ledger).kept = middle;
            expire(&backup, Goal::Version(middle)).await?;
            client.stage().probe("backup expired");
            let left = backup.contents().await?.restorable();
            if !matches!(left[..], [(first, end)] if first <= middle && end == to) {
                let expected = format!("{middle} or before to {to}");
                client.fail(format!(
                    "what is left after expiring reaches {left:?}, expected {expected}"
                ));
            }
            self.compare(client, &backup, (middle, to)).await?;
        }
        Ok(())
    }

    /// Restores to the versions of some witnesses, the first and the last ones among them.
    async fn compare(
        &self,
        client: &Client,
        backup: &plinth_backup::Backup,
        (from, to): (Version, Version),
    ) -> Result<()> {
        let witnesses: Vec<_> = {
            let ledger = lock(&self.ledger);
            ledger
                .witnesses
                .range(from..=to)
                .map(|(version, rows)| (*version, rows.clone()))
                .collect()
        };
        let Some(end) = witnesses.len().checked_sub(1) else { return Ok(()) };
        let drawn = (0..POINTS).map(|_| client.index(witnesses.len()));
        for at in [0, end].into_iter().chain(drawn) {
            let (version, expected) = &witnesses[at];
            let found = restored(client.stage().env(), backup, *version).await?;
            client.stage().probe("backup restored to a drawn version");
            if found != *expected {
                client.fail(differ(*version, &found, expected));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The rows of the backup's workload, under other names.
fn beside() -> Mapping {
    let end = plinth_types::strinc(PREFIX.as_bytes()).unwrap_or_default();
    let ranges = vec![KeyRange::new(PREFIX, end)];
    Mapping {
        ranges,
        remove_prefix: Bytes::new(),
        add_prefix: Bytes::from_static(BESIDE.as_bytes()),
    }
}

/// Takes out of what was read what is restored, by its own names.
fn taken_out(rows: &mut Rows) -> Rows {
    let restored = rows.split_off(BESIDE.as_bytes());
    restored.into_iter().map(|(key, value)| (key.slice(BESIDE.len()..), value)).collect()
}

/// Whether an error is of what a backup has, and not of who was asked for it.
fn is_of_the_backup(error: &Error) -> bool {
    [Error::file_corrupt(), Error::restore_missing_data(), Error::restore_invalid_version()]
        .contains(error)
}

fn differ(version: Version, found: &Rows, expected: &Rows) -> String {
    format!("restored to version {version}, the rows are {found:?}, they were {expected:?}")
}

/// The rows as a new transaction sees them, with those that are restored beside them, and its
/// version.
async fn rows_now(tr: Transaction) -> Result<(Version, Rows)> {
    let version = tr.get_read_version().await?;
    let mut all = Rows::new();
    for prefix in [PREFIX, BESIDE] {
        let rows =
            tr.range(RangeOptions::prefix(prefix).mode(StreamingMode::WantAll)).collect().await?;
        all.extend(rows.into_iter().map(|row| (row.key, row.value)));
    }
    Ok((version, all))
}

/// What a restore to a version makes.
async fn restored(env: &Env, backup: &plinth_backup::Backup, version: Version) -> Result<Rows> {
    let plan = Plan::make(backup, Goal::Version(version), Mapping::default()).await?;
    let node = Node::in_memory(env, NodeConfig::default()).await?;
    let database = Database::new(Arc::new(node.endpoint()));
    let mut loader = InMemory { database: database.clone() };
    restore_into(backup, &plan, &RestoreControl::default(), &mut loader).await?;
    let mut found = database.transact(rows_now).await?.1;
    taken_out(&mut found);
    node.close().await?;
    Ok(found)
}

/// Puts what is restored into a database in memory.
struct InMemory {
    database: Database,
}

impl Loader for InMemory {
    fn take(&mut self, piece: Piece) -> Doing<'_, ()> {
        Box::pin(async move {
            let put = |tr: Transaction| {
                piece.rows.iter().for_each(|(key, value)| tr.set(key, value));
                async { Ok(()) }
            };
            self.database.transact(put).await
        })
    }

    fn open(&mut self) -> Doing<'_, Database> {
        Box::pin(async { Ok(self.database.clone()) })
    }

    fn put_in_place(&mut self) -> Doing<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

impl Workload for Backup {
    fn set_up(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let wish =
                Wish { snapshot_interval: Duration::from_secs(self.interval), ..Wish::new(DIR) };
            client
                .in_some_life(|life| {
                    let wish = wish.clone();
                    async move {
                        match agent::start(&life.database, TAG, &wish).await {
                            // An attempt whose fate was unknown has begun it.
                            Err(error) if error == Error::backup_duplicate() => Ok(()),
                            begun => begun,
                        }
                    }
                })
                .await;
        })
    }

    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                if client.id > 0 {
                    self.write(&client).await;
                    client.pause(self.pause).await;
                } else {
                    self.mind(&client).await;
                }
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let is_over = lock(&self.ledger).is_over;
            let checked = client.in_life(|life| {
                let (this, client) = (&self, &client);
                async move {
                    if is_over {
                        if let Err(error) = this.judge(client, &life, 0).await {
                            client.fail(format!("the backup can't be read: {error}"));
                        }
                        return;
                    }
                    this.begin_agent(&life);
                    this.finish_beside(client, &life).await;
                    this.finish(client, &life).await;
                    this.end_agents(client).await;
                }
            });
            checked.await;
        })
    }

    fn locks_database(&self) -> bool {
        true
    }
}
