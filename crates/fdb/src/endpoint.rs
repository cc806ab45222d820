//! The endpoint: each request of the client's becomes a transaction of the C library's, used once.
//!
//! Reads are snapshot reads at the version that the client names, without read-your-writes, so that
//! they give what is in the database and nothing else. Giving up a reply cancels its transaction.

use crate::commit;
use crate::native::{self, Database, Library, RangeAsk, Transaction, option};
use crate::target::Target;
use crate::watch;
use plinth_client::{
    ChangeCapture, Description, Endpoint, Priority, ReadVersionReply, ReadVersionRequest,
};
use plinth_env::Env;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_env::sync::{First, race};
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, RangeRead, RangeResult, Result, Version, system,
};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The client above counts watches; the library must not count to less.
const MAX_WATCHES: i64 = 1_000_000;
/// As much of a range as one reply carries; never more than was asked for.
const WANT_ALL: c_int = -2;

/// How often whoever watches over a cluster looks, and how long it may be silent.
const LOOK: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(5);

const CLUSTER_FILE_PATH: &[u8] = b"\xff\xff/cluster_file_path";
const CONNECTION_STRING: &[u8] = b"\xff\xff/connection_string";
const STATUS_JSON: &[u8] = b"\xff\xff/status/json";

/// A database behind FoundationDB's C library. Cheap to clone.
#[derive(Clone)]
pub struct Foundation {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    library: &'static Library,
    pub(crate) database: Arc<Database>,
    description: Description,
    /// Whether the cluster was silent when it was last looked at, by whoever watches over it.
    is_silent: AtomicBool,
}

impl Foundation {
    /// Opens the database of a target. The library is loaded, and its network started, if that
    /// hasn't happened yet.
    ///
    /// Apple's library connects in the background, so that a cluster that can't be reached is told
    /// by operations that don't come back: give transactions a timeout.
    ///
    /// # Errors
    /// `file_not_found` if there is no library; `api_version_not_supported` and
    /// `api_function_missing` if it is not a usable one; with our own library, those of opening a
    /// directory. What is wrong with a cluster file is told by operations.
    pub fn open(target: &Target) -> Result<Self> {
        let library = native::load(target.library.as_deref())?;
        let database = Database::open(library, &target.cluster_file)
            .map_err(|error| at(error, &format!("opening {target}")))?;
        let database = Arc::new(database);
        database.set_option(option::MAX_WATCHES, MAX_WATCHES)?;
        let description =
            describe(&database).map_err(|error| at(error, &format!("opening {target}")))?;
        let is_silent = AtomicBool::new(false);
        Ok(Self { inner: Arc::new(Inner { library, database, description, is_silent }) })
    }

    /// Looks every second, for as long as the database is held, whether the cluster answers:
    /// [`Endpoint::refusal`] says so then.
    pub fn watch_over(&self) {
        let env = self.env().clone();
        let (held, timer) = (Arc::downgrade(&self.inner), env.clone());
        drop(env.spawn("foundationdb watch", async move {
            while let Some(inner) = held.upgrade() {
                let request = ReadVersionRequest {
                    priority: Priority::Immediate,
                    lock_aware: true,
                    ..Default::default()
                };
                let asked = Self { inner: inner.clone() }.read_version(request);
                let is_silent =
                    !matches!(race(asked, timer.sleep(SILENCE)).await, First::Left(Ok(_)));
                inner.is_silent.store(is_silent, Ordering::Relaxed);
                drop(inner);
                timer.sleep(LOOK).await;
            }
        }));
    }

    /// What the library says of itself: release, source and protocol version.
    pub fn library_version(&self) -> String {
        self.inner.library.version()
    }

    /// The API version that was selected in the library; 0 if another part of the program had
    /// selected one before.
    pub fn library_api_version(&self) -> i32 {
        self.inner.library.api_version()
    }
}

/// The same error with where it happened, unless it says so itself.
fn at(error: Error, place: &str) -> Error {
    if error.detail().is_some() { error } else { error.with_detail(place) }
}

fn describe(database: &Database) -> Result<Description> {
    let read = |key: &[u8]| -> Result<String> {
        let value = database.create_transaction()?.get(key).reply(|ready| ready.value()).wait()?;
        Ok(String::from_utf8_lossy(&value.unwrap_or_default()).into_owned())
    };
    let connection_string = read(CONNECTION_STRING)?;
    let before_addresses = connection_string.split('@').next().unwrap_or_default();
    let cluster_id = before_addresses.split_once(':').map_or("", |(_, id)| id).to_owned();
    Ok(Description { cluster_file_path: read(CLUSTER_FILE_PATH)?, connection_string, cluster_id })
}

impl Inner {
    /// A transaction that reads at `version` what is in the database.
    fn reader(&self, version: Version, space: KeySpace) -> Result<Arc<Transaction>> {
        let tr = self.plain_reader(space)?;
        tr.set_read_version(version);
        Ok(tr)
    }

    /// The same at a version of its own.
    fn plain_reader(&self, space: KeySpace) -> Result<Arc<Transaction>> {
        let tr = self.database.create_transaction()?;
        tr.set_option(option::READ_YOUR_WRITES_DISABLE)?;
        tr.set_option(option::LOCK_AWARE)?;
        if space == KeySpace::System {
            tr.set_option(option::READ_SYSTEM_KEYS)?;
        }
        Ok(tr)
    }

    fn begin(&self, request: &ReadVersionRequest) -> Result<Arc<Transaction>> {
        let tr = self.database.create_transaction()?;
        match request.priority {
            Priority::Batch => tr.set_option(option::PRIORITY_BATCH)?,
            Priority::Default => {}
            Priority::Immediate => tr.set_option(option::PRIORITY_SYSTEM_IMMEDIATE)?,
        }
        if request.lock_aware {
            tr.set_option(option::LOCK_AWARE)?;
        }
        if request.causal_risky {
            tr.set_option(option::CAUSAL_READ_RISKY)?;
        }
        for tag in &request.tags {
            tr.set_option_bytes(option::AUTO_THROTTLE_TAG, tag)?;
        }
        Ok(tr)
    }
}

/// Runs a request that may fail before it is sent.
pub(crate) fn try_reply<T>(request: impl FnOnce() -> Result<Reply<T>>) -> Reply<T> {
    request().unwrap_or_else(|error| Reply::ready(Err(error)))
}

/// A promise whose reply, given up, cancels the transaction.
pub(crate) fn cancelling<T: Send>(tr: &Arc<Transaction>) -> (Promise<T>, Reply<T>) {
    let (mut promise, reply) = promise();
    let tr = tr.clone();
    promise.on_cancel(move || tr.cancel());
    (promise, reply)
}

impl Endpoint for Foundation {
    fn env(&self) -> &Env {
        self.inner.library.env()
    }

    /// Of all that share the answer the cluster counts one.
    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        try_reply(|| {
            let tr = self.inner.begin(&request)?;
            let (promise, reply) = cancelling(&tr);
            let version = tr.read_version().reply(|ready| ready.int64());
            // Comes with the read version; the library keeps it.
            let metadata = tr.get(system::METADATA_VERSION).reply(|ready| ready.value());
            version.on_complete(move |version| match version {
                Ok(version) => metadata.on_complete(move |metadata| {
                    promise.send(metadata.map(|metadata_version| ReadVersionReply {
                        version,
                        metadata_version,
                        range_locks: None,
                    }));
                }),
                Err(error) => promise.send(Err(error)),
            });
            Ok(reply)
        })
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        if keys.is_empty() {
            return Reply::ready(Ok(Vec::new()));
        }
        try_reply(|| {
            let tr = self.inner.reader(version, space)?;
            let (promise, reply) = cancelling(&tr);
            let gather = Arc::new(Gather::new(keys.len(), promise));
            for (at, key) in keys.iter().enumerate() {
                let gather = gather.clone();
                tr.get(key).on_ready(move |ready| gather.note(at, ready.value()));
            }
            Ok(reply)
        })
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        try_reply(|| {
            let tr = self.inner.reader(version, space)?;
            Ok(tr.get_key(selector).reply(|ready| ready.key()))
        })
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        if read.limit == 0 {
            return Reply::ready(Ok(RangeResult::default()));
        }
        try_reply(|| {
            let tr = self.inner.reader(version, space)?;
            let read = read.clone();
            if read.begin.offset == 1 && read.end.offset == 1 {
                return Ok(rows(&tr, &read));
            }
            Ok(resolved_rows(&tr, space, read))
        })
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        try_reply(|| commit::commit(&self.inner.database, &request))
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, _version: Version) -> Reply<Version> {
        try_reply(|| watch::watch(&self.inner.database, key, value))
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        try_reply(|| {
            let tr = self.inner.plain_reader(KeySpace::System)?;
            Ok(tr.range_size(&range.begin, &range.end).reply(|ready| ready.int64()))
        })
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        try_reply(|| {
            let tr = self.inner.plain_reader(KeySpace::System)?;
            Ok(tr.split_points(&range.begin, &range.end, chunk).reply(|ready| ready.keys()))
        })
    }

    fn read_changes(&self, _request: ChangesRequest) -> Reply<Changes> {
        let detail = "streams of changes of this kind are Plinth's own: FoundationDB's are captured by functions of its library";
        Reply::ready(Err(Error::unsupported_operation().with_detail(detail)))
    }

    fn series_prefix(&self) -> &'static [u8] {
        system::SERIES_LAYER_PREFIX
    }

    fn change_capture(&self) -> Option<&dyn ChangeCapture> {
        Some(self)
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        try_reply(|| {
            let tr = self.inner.plain_reader(KeySpace::System)?;
            tr.set_option(option::INCLUDE_PORT_IN_ADDRESS)?;
            Ok(tr.addresses(key).reply(|ready| ready.strings()))
        })
    }

    fn describe(&self) -> Description {
        self.inner.description.clone()
    }

    fn refusal(&self) -> Option<Error> {
        let detail =
            "the FoundationDB cluster doesn't answer: is it up, and does the cluster file name it?";
        let is_silent = self.inner.is_silent.load(Ordering::Relaxed);
        is_silent.then(|| Error::connection_failed().with_detail(detail))
    }

    fn status_json(&self) -> Reply<String> {
        try_reply(|| {
            let tr = self.inner.database.create_transaction()?;
            Ok(tr.get(STATUS_JSON).reply(|ready| {
                let document = ready.value()?.unwrap_or_default();
                Ok(String::from_utf8_lossy(&document).into_owned())
            }))
        })
    }
}

/// The values of several reads, each put in its place as it comes.
struct Gather {
    state: Mutex<GatherState>,
}

struct GatherState {
    values: Vec<Option<Bytes>>,
    left: usize,
    promise: Option<Promise<Vec<Option<Bytes>>>>,
}

impl Gather {
    fn new(count: usize, promise: Promise<Vec<Option<Bytes>>>) -> Self {
        let state = GatherState { values: vec![None; count], left: count, promise: Some(promise) };
        Self { state: Mutex::new(state) }
    }

    fn note(&self, at: usize, value: Result<Option<Bytes>>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.left -= 1;
        let answer = match value {
            Ok(value) => {
                state.values[at] = value;
                if state.left > 0 {
                    return;
                }
                Ok(std::mem::take(&mut state.values))
            }
            Err(error) => Err(error),
        };
        let promise = state.promise.take();
        drop(state);
        if let Some(promise) = promise {
            promise.send(answer);
        }
    }
}

/// The rows between two bounds, each the first key not below its selector's.
fn rows(tr: &Arc<Transaction>, read: &RangeRead) -> Reply<RangeResult> {
    let most = |count: usize| c_int::try_from(count).unwrap_or(0);
    let ask = RangeAsk {
        begin: &read.begin,
        end: &read.end,
        limit: most(read.limit),
        target_bytes: most(read.target_bytes),
        mode: WANT_ALL,
        reverse: read.reverse,
    };
    tr.get_range(&ask).reply(|ready| {
        let (rows, more) = ready.rows()?;
        Ok(RangeResult { more: more && !rows.is_empty(), rows, ..RangeResult::default() })
    })
}

/// The rows between two selectors of any kind. They are resolved first, because the library's
/// answer doesn't say whether one ran into an end of the key space.
fn resolved_rows(tr: &Arc<Transaction>, space: KeySpace, read: RangeRead) -> Reply<RangeResult> {
    let place = |selector: &KeySelector| selector.clone().normalized().key;
    if read.begin.offset >= read.end.offset && place(&read.begin) >= place(&read.end) {
        return Reply::ready(Ok(RangeResult::default()));
    }
    let (promise, reply) = cancelling(tr);
    let bound = |selector: &KeySelector| -> Reply<Bytes> {
        if selector.offset == 1 {
            return Reply::ready(Ok(place(selector)));
        }
        tr.get_key(selector).reply(|ready| ready.key())
    };
    let (begin, end) = (bound(&read.begin), bound(&read.end));
    let tr = tr.clone();
    begin.on_complete(move |begin| {
        end.on_complete(move |end| match begin.and_then(|begin| Ok((begin, end?))) {
            Ok((begin, end)) => {
                let to_begin = read.begin.offset < 1 && begin.is_empty();
                let through_end = read.end.offset > 1 && end[..] == *space.end();
                let read = RangeRead {
                    begin: KeySelector::first_greater_or_equal(begin),
                    end: KeySelector::first_greater_or_equal(end),
                    ..read
                };
                rows(&tr, &read).on_complete(move |result| {
                    promise.send(result.map(|result| RangeResult {
                        read_to_begin: to_begin,
                        read_through_end: through_end,
                        ..result
                    }));
                });
            }
            Err(error) => promise.send(Err(error)),
        });
    });
    reply
}
