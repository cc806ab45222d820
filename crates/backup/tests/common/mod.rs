//! Databases in a simulated world, a model of their rows, and backups of them.
//!
//! [`Hooked`] is a target between whose calls something happens: it fails for a moment, or somebody
//! else is there just then. Its test says what, and when.
#![allow(dead_code, reason = "each test file uses a part")]

use plinth::backup::restore::{Goal, Loader, Mapping, Plan, RestoreControl, RestoreReport};
use plinth::backup::restore::{restore_into, restore_served};
use plinth::backup::target::{Doing, Object};
use plinth::backup::{Backup, Directory, Target, everything};
use plinth::{Builder, Database, EngineKind, KeySelector, Local, Result, Version};
use plinth_client::{Description, Endpoint, Pinned, ReadVersionReply, ReadVersionRequest, Reply};
use plinth_env::Env;
pub use plinth_env::simulated::Random;
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySpace,
    RangeRead, RangeResult, system,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub type Model = BTreeMap<Bytes, Bytes>;

pub async fn open(machine: &Env, dir: &str, engine: &str) -> Database {
    open_local(machine, dir, engine).await.into_database()
}

/// One that is to be closed.
pub async fn open_local(machine: &Env, dir: &str, engine: &str) -> Local {
    Builder::new(dir)
        .env(machine.clone())
        .engine(EngineKind::from_name(engine).unwrap())
        .open_async()
        .await
        .unwrap()
}

pub fn backup_target(machine: &Env) -> Arc<dyn Target> {
    Arc::new(Directory::new(machine, "/backup"))
}

pub async fn new_backup(machine: &Env, db: &Database) -> Backup {
    let id = db.endpoint().describe().cluster_id;
    Backup::open_or_create(machine, backup_target(machine), None, &id, &everything()).await.unwrap()
}

pub async fn set(db: &Database, key: &[u8], value: &[u8]) -> Version {
    let tr = db.create_transaction();
    tr.set(key, value);
    tr.commit().await.unwrap();
    tr.committed_version().unwrap()
}

/// Commits random transactions of sets, clears and additions, here and in the model.
pub async fn write_some(db: &Database, model: &mut Model, random: &mut Random, count: usize) {
    for _ in 0..count {
        let tr = db.create_transaction();
        for _ in 0..=random.index(8) {
            let key = Bytes::from(format!("key{:03}", random.index(300)));
            match random.index(8) {
                0 => {
                    let end = Bytes::from(format!("key{:03}", random.index(300)));
                    if key < end {
                        tr.clear_range(&key, &end);
                        let gone: Vec<_> =
                            model.range(key..end).map(|(key, _)| key.clone()).collect();
                        gone.iter().for_each(|key| drop(model.remove(key)));
                    }
                }
                1 | 2 => {
                    let before = model.get(&key).map_or(0, |value| number(value));
                    let sum = (before as u8).wrapping_add(3);
                    tr.add(&key, [3]);
                    // The length of the operand is that of the sum.
                    model.insert(key, Bytes::copy_from_slice(&[sum]));
                }
                _ => {
                    let value = vec![random.index(250) as u8; 1 + random.index(100)];
                    tr.set(&key, &value);
                    model.insert(key, value.into());
                }
            }
        }
        tr.commit().await.unwrap();
    }
}

fn number(value: &[u8]) -> u64 {
    u64::from(value.first().copied().unwrap_or_default())
}

pub async fn rows_of(db: &plinth_client::Database) -> Model {
    let endpoint: &Arc<dyn Endpoint> = db.endpoint();
    let (mut rows, mut reached) = (Model::new(), Bytes::new());
    loop {
        let version = endpoint.read_version(Default::default()).await.unwrap().version;
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(reached.clone()),
            end: KeySelector::first_greater_or_equal(Bytes::from_static(system::NORMAL_END)),
            limit: usize::MAX,
            target_bytes: 1 << 20,
            reverse: false,
        };
        let found = endpoint.get_range(version, KeySpace::Normal, &read).await.unwrap();
        rows.extend(
            found
                .rows
                .key_values()
                .map(|row| (Bytes::copy_from_slice(&row.key), Bytes::copy_from_slice(&row.value))),
        );
        match found.rows.last().filter(|_| found.more) {
            Some((key, _)) => reached = plinth_types::key_after(key),
            None => return rows,
        }
    }
}

pub async fn plan(backup: &Backup, goal: Goal, mapping: Mapping) -> Result<Plan> {
    Plan::make(backup, goal, mapping).await
}

pub async fn serve(
    backup: &Backup,
    plan: &Plan,
    control: &RestoreControl,
    db: &plinth_client::Database,
) -> Result<RestoreReport> {
    restore_served(backup, plan, control, db).await
}

pub async fn restore_dir(
    machine: &Env,
    backup: &Backup,
    goal: Goal,
    mapping: Mapping,
    dir: &str,
    engine: &str,
) -> Result<RestoreReport> {
    let plan = Plan::make(backup, goal, mapping).await?;
    let builder = Builder::new(Path::new(dir))
        .env(machine.clone())
        .engine(EngineKind::from_name(engine).unwrap());
    let mut loader = builder.loader(plan.version).await?;
    restore_into(backup, &plan, &RestoreControl::default(), &mut loader as &mut dyn Loader).await
}

/// What is called before each call of a target, with the call's name and the object's, and after
/// what was created, as `created`. Its error is the call's.
pub type Hook = Box<dyn Fn(&'static str, &str) -> Doing<'static, ()> + Send + Sync>;

/// A target between whose calls something happens.
pub struct Hooked {
    pub inner: Arc<dyn Target>,
    pub hook: Hook,
    /// A store that knows no condition, and doesn't say so.
    pub creates_always: bool,
}

impl Target for Hooked {
    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, ()> {
        Box::pin(async move {
            (self.hook)("put", name).await?;
            self.inner.put(name, contents).await
        })
    }

    fn create<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, bool> {
        Box::pin(async move {
            (self.hook)("create", name).await?;
            let is_created = match self.creates_always {
                true => self.inner.put(name, contents).await.map(|()| true)?,
                false => self.inner.create(name, contents).await?,
            };
            (self.hook)("created", name).await.map(|()| is_created)
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Bytes> {
        Box::pin(async move {
            (self.hook)("get", name).await?;
            self.inner.get(name).await
        })
    }

    fn get_begin<'a>(&'a self, name: &'a str, len: usize) -> Doing<'a, Bytes> {
        Box::pin(async move {
            (self.hook)("get_begin", name).await?;
            self.inner.get_begin(name, len).await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<Object>> {
        Box::pin(async move {
            (self.hook)("list", prefix).await?;
            self.inner.list(prefix).await
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> Doing<'a, ()> {
        Box::pin(async move {
            (self.hook)("delete", name).await?;
            self.inner.delete(name).await
        })
    }

    fn settle<'a>(&'a self, prefix: &'a str) -> Doing<'a, ()> {
        Box::pin(async move {
            (self.hook)("settle", prefix).await?;
            self.inner.settle(prefix).await
        })
    }

    fn url(&self) -> String {
        self.inner.url()
    }
}

/// Looks at a listing.
pub type Listed = Box<dyn Fn(&[Object]) -> bool + Send + Sync>;

/// A store whose listings come in two pages, the second one when something is so.
pub struct Paged {
    pub inner: Arc<dyn Target>,
    pub env: Env,
    /// What the whole of a listing has when the second page comes.
    pub is_time: Listed,
}

impl Target for Paged {
    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, ()> {
        self.inner.put(name, contents)
    }

    fn create<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, bool> {
        self.inner.create(name, contents)
    }

    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Bytes> {
        self.inner.get(name)
    }

    fn get_begin<'a>(&'a self, name: &'a str, len: usize) -> Doing<'a, Bytes> {
        self.inner.get_begin(name, len)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<Object>> {
        Box::pin(async move {
            let mut page = self.inner.list(prefix).await?;
            if prefix != "logs/" {
                return Ok(page);
            }
            page.truncate(page.len() / 2);
            loop {
                let all = self.inner.list(prefix).await?;
                if (self.is_time)(&all) {
                    page.extend(
                        all.into_iter()
                            .filter(|object| page.last().is_none_or(|last| last < object))
                            .collect::<Vec<_>>(),
                    );
                    return Ok(page);
                }
                self.env.sleep(std::time::Duration::from_millis(100)).await;
            }
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> Doing<'a, ()> {
        self.inner.delete(name)
    }

    fn settle<'a>(&'a self, prefix: &'a str) -> Doing<'a, ()> {
        self.inner.settle(prefix)
    }

    fn url(&self) -> String {
        self.inner.url()
    }
}

/// A database as a node gives it that lacks what a stream is to give next.
pub struct Lacking {
    pub inner: Arc<dyn Endpoint>,
    pub lacks: Arc<AtomicBool>,
}

impl Endpoint for Lacking {
    fn env(&self) -> &Env {
        self.inner.env()
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.inner.read_version(request)
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.inner.get_many(version, space, keys)
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.inner.get_key(version, space, selector)
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.inner.get_range(version, space, read)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.inner.commit(request)
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.inner.watch(key, value, version)
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.inner.range_size(range)
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.inner.split_points(range, chunk)
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.inner.addresses_for_key(key)
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.inner.status_json()
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        self.inner.pin_snapshot()
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        match self.lacks.load(Ordering::SeqCst) {
            true => Reply::ready(Err(
                Error::wrong_shard_server().with_detail("this node has later changes alone")
            )),
            false => self.inner.read_changes(request),
        }
    }
}
