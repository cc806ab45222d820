//! What a client asks of a database, wherever that is: in process, behind a socket, behind
//! `libfdb_c`.
//!
//! Every answer is a [`Reply`], so that one that memory can give is there when the call returns, on
//! the caller's thread, and any other comes when it comes. An endpoint never borrows from a
//! request.

use crate::capture::ChangeCapture;
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, Located, Quorum, RangeLocks, RangeRead, RangeResult, Result, Standing,
    Version, system,
};
use std::sync::Arc;

/// A database as a client sees it.
///
/// Keys are whole (a tenant's prefix is in them), versions are those that
/// [`read_version`](Endpoint::read_version) gave, and atomic operations are normalised, so that an
/// endpoint needs to know neither tenants nor API versions.
pub trait Endpoint: Send + Sync + 'static {
    /// The clock, random numbers and timers that transactions use.
    fn env(&self) -> &Env;

    /// A version at which everything is visible that was acknowledged before this call.
    ///
    /// # Errors
    /// `database_locked` while the database is locked, unless `lock_aware`.
    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply>;

    /// The same from a node that leads, for whoever asks others itself whether it does: the version
    /// may be read at once those have agreed of whom the answer speaks, if it speaks of any.
    fn counted_read_version(
        &self,
        request: ReadVersionRequest,
    ) -> Reply<(ReadVersionReply, Option<Quorum>)> {
        proven(self.read_version(request))
    }

    /// Begins a transaction with its first read, of few keys: asks for a version, and at the same
    /// time for the values at the newest one that there is, which can be read at if it is no older.
    /// `None` where a version has to come first, as wherever that is there at once.
    fn begin_reading(
        &self,
        request: &ReadVersionRequest,
        space: KeySpace,
        keys: &KeyList,
    ) -> Option<Reply<Begun>> {
        let _ = (request, space, keys);
        None
    }

    /// The values of at most [ten](crate::FEW_KEYS) keys at the newest version that there is here,
    /// with that version. Others may have had a newer one acknowledged.
    ///
    /// # Errors
    /// `database_locked` if it is locked then, unless `lock_aware`; `unsupported_operation` where a
    /// version has to be asked for first.
    fn get_newest(&self, lock_aware: bool, space: KeySpace, keys: &KeyList) -> Reply<Newest> {
        let _ = (lock_aware, space, keys);
        let detail = "this database reads at versions that were asked for";
        Reply::ready(Err(Error::unsupported_operation().with_detail(detail)))
    }

    /// Whom the node follows that answers here; `None` where there is none of a cluster's.
    fn standing(&self) -> Option<Standing> {
        None
    }

    /// Whether [`Endpoint::get_many`] may run what others wait for on the thread that calls it, or
    /// wait itself: then it isn't called under a lock that those may want. A connection does, when
    /// it breaks.
    fn get_many_calls_back(&self) -> bool {
        true
    }

    /// The values of these keys, in the keys' order; `None` where a key doesn't exist.
    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>>;

    /// The key that `selector` describes; empty before the first key, the end of `space` after the
    /// last one.
    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes>;

    /// The rows of a range, fewer than asked for if a reply would get too big; `more` says whether
    /// rows may be left.
    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult>;

    /// Commits, or says why not. A reply that fails with `commit_unknown_result`,
    /// `connection_failed` or `broken_promise` says nothing about what became of the transaction.
    fn commit(&self, request: CommitRequest) -> Reply<CommitReply>;

    /// Completes, with a version, once the value at some version after `version` differs from
    /// `value`. Dropping the reply gives the watch up.
    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version>;

    /// About how many bytes of keys and values the range has.
    fn range_size(&self, range: KeyRange) -> Reply<i64>;

    /// About how many bytes the range takes of the room that there is for rows: keys and values,
    /// and what each row is counted as besides. Those who keep rows in this process know; others
    /// tell the keys and values.
    fn range_footprint(&self, range: KeyRange) -> Reply<i64> {
        self.range_size(range)
    }

    /// Keys that cut the range into chunks of about `chunk` bytes: its begin, keys between, its
    /// end.
    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>>;

    /// Where the key is stored, as `ip:port` each.
    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>>;

    /// What the database calls itself.
    fn describe(&self) -> Description;

    /// Which nodes the database has, and which of them leads, as far as is known without asking
    /// anybody; `None` where it is one server's, or nobody's.
    fn located(&self) -> Option<Located> {
        None
    }

    /// The same database, asked with this token; `None` where nobody looks at tokens.
    fn showing(&self, token: &[u8]) -> Option<Arc<dyn Endpoint>> {
        let _ = token;
        None
    }

    /// The newest version whose rows are in this process, where they can be read without asking
    /// anybody else.
    ///
    /// # Errors
    /// `unsupported_operation` where rows are elsewhere; `process_behind` where they have yet to
    /// come.
    fn newest_here(&self) -> Result<Version> {
        Err(Error::unsupported_operation().with_detail("the rows are in another process"))
    }

    /// The status document, as JSON.
    fn status_json(&self) -> Reply<String>;

    /// The status document as the server at an address, `ip:port`, makes it itself; of a database
    /// without servers, its own.
    ///
    /// # Errors
    /// `connection_failed` or `all_alternatives_failed` if there is no such server, or it can't be
    /// reached.
    fn status_of(&self, address: &str) -> Reply<String> {
        let _ = address;
        self.status_json()
    }

    /// Pins the newest version that can be kept, which may be some seconds behind the newest
    /// commits: it stays readable for as long as what is given lives, however much is written
    /// meanwhile.
    ///
    /// # Errors
    /// `unsupported_operation` where versions can't be kept; those of keeping it.
    fn pin_snapshot(&self) -> Reply<Pinned> {
        let detail = "this database keeps no versions that a snapshot could pin";
        Reply::ready(Err(Error::unsupported_operation().with_detail(detail)))
    }

    /// Reads a stream of changes: batches in the order of their versions, from a version on, or,
    /// after a while, how far there was nothing. Where the reader goes on is its own business.
    ///
    /// # Errors
    /// `unsupported_operation` where there are no streams; `client_invalid_operation` if there is
    /// no such stream; `version_invalid` for changes that were acknowledged, and if the stream has
    /// lost what its consumer didn't take in time; `future_version` if the version lies ahead;
    /// `wrong_shard_server` if one node is asked, and another of its cluster may have them.
    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        let _ = request;
        let detail = "this database has no streams of changes";
        Reply::ready(Err(Error::unsupported_operation().with_detail(detail)))
    }

    /// The streams of a database that has them by functions of its own, where they are no rows and
    /// [`Endpoint::read_changes`] doesn't read them.
    fn change_capture(&self) -> Option<&dyn ChangeCapture> {
        None
    }

    /// What the keys of time series begin with where nobody says otherwise.
    fn series_prefix(&self) -> &'static [u8] {
        system::SERIES_PREFIX
    }

    /// The connections of clients, as `ip:port` and the client's name each.
    ///
    /// # Errors
    /// `unsupported_operation` where there is no server.
    fn clients(&self) -> Reply<Vec<String>> {
        Reply::ready(Err(no_clients()))
    }

    /// Closes connections of clients, and says how many those were: the one from `ip:port`, those
    /// from `ip`, or `all`, but not the one that this is asked over unless it is named. Clients
    /// connect again by themselves, if they may.
    ///
    /// # Errors
    /// `unsupported_operation` where there is no server; `invalid_option_value` for what is none of
    /// these.
    fn disconnect(&self, client: &str) -> Reply<i64> {
        let _ = client;
        Reply::ready(Err(no_clients()))
    }

    /// Where the one server is that has this database, as `ip:port`; nothing where the rows say
    /// which members there are, or where there is no server.
    fn server_addresses(&self) -> Vec<String> {
        Vec::new()
    }

    /// Has the server at an address, `ip:port`, end cleanly, so that whoever looks after it starts
    /// it anew: 1 if it has been told, 0 if there is no such server, or it can't be reached.
    ///
    /// # Errors
    /// `connection_failed` if the connection was lost before it answered: it may have been told. It
    /// isn't told again.
    fn reboot(&self, address: &str) -> Reply<i64> {
        let _ = address;
        Reply::ready(Ok(0))
    }

    /// Why commits that write rows are refused at this moment, if they are: a full disk, a database
    /// that failed. `None` where that isn't known without asking somebody else.
    fn refusal(&self) -> Option<Error> {
        None
    }

    /// Why what is asked for waits at this moment, in words: servers were last tried in vain, or
    /// none of them leads. `None` while nothing waits for that, and in this process.
    fn stalled(&self) -> Option<String> {
        None
    }

    /// Whether it has ended for good, as a database in this process does when it is closed: nothing
    /// will be answered any more.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether the answer to a commit can get lost although the commit took effect, as on a socket.
    ///
    /// Only then does a client add to each transaction what it needs to find out afterwards (a key
    /// that it conflicts with itself on): where the answer can't get lost, that would be work for
    /// nothing.
    fn may_lose_answers(&self) -> bool {
        true
    }
}

/// A version that nobody has to agree to, as [`Endpoint::counted_read_version`] gives it.
pub fn proven(mut version: Reply<ReadVersionReply>) -> Reply<(ReadVersionReply, Option<Quorum>)> {
    let alone = |version: Result<ReadVersionReply>| version.map(|version| (version, None));
    if let Some(version) = version.try_take() {
        return Reply::ready(alone(version));
    }
    let (promise, reply) = promise();
    version.on_complete(move |version| promise.send(alone(version)));
    reply
}

fn no_clients() -> Error {
    Error::unsupported_operation().with_detail("only a server of Plinth's has clients' connections")
}

/// Values of keys, with the version that they are of.
pub type Newest = (ReadVersionReply, Vec<Option<Bytes>>);

/// What a transaction begins with: its version, and perhaps what it read first.
pub type Begun = (ReadVersionReply, Option<Vec<Option<Bytes>>>);

/// A version of a database that stays as it was.
#[derive(Clone)]
pub struct Pinned {
    /// The version that every read sees, whichever it asks for.
    pub version: Version,
    /// The database as it was. Commits of writes are refused, and so are watches. Keeps the version
    /// until it is dropped.
    pub endpoint: Arc<dyn Endpoint>,
}

impl Pinned {
    /// What a pinned snapshot answers to a commit.
    pub fn refused_commit() -> Reply<CommitReply> {
        Reply::ready(Err(Self::takes_no_writes()))
    }

    pub(crate) fn takes_no_writes() -> Error {
        Error::transaction_read_only().with_detail("a pinned snapshot takes no writes")
    }

    pub(crate) fn has_no_watches() -> Error {
        let detail = "in a pinned snapshot nothing changes that could be watched";
        Error::unsupported_operation().with_detail(detail)
    }

    /// What it answers to whoever reads a stream of changes.
    pub fn refused_changes() -> Reply<Changes> {
        let detail = "in a pinned snapshot nothing changes: read streams of the database itself";
        Reply::ready(Err(Error::unsupported_operation().with_detail(detail)))
    }

    /// What it answers to a watch.
    pub fn refused_watch() -> Reply<Version> {
        Reply::ready(Err(Self::has_no_watches()))
    }
}

/// How urgently a transaction wants to begin.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Priority {
    /// Held back first; may fail with `batch_transaction_throttled`.
    Batch,
    /// What transactions have.
    #[default]
    Default,
    /// Never held back: for the system itself.
    Immediate,
}

/// A request for a read version.
#[derive(Clone, Default, Debug)]
pub struct ReadVersionRequest {
    /// How urgent it is.
    pub priority: Priority,
    /// Whether it is answered while the database is locked.
    pub lock_aware: bool,
    /// Whether it may miss commits acknowledged a moment before, if that is faster.
    pub causal_risky: bool,
    /// The tags that the transaction counts towards.
    pub tags: Vec<Bytes>,
    /// Transactions besides it that are alike and begin with the same answer. Each of them counts,
    /// and is held back, as it is.
    pub others: u32,
}

/// A read version, and what every transaction wants to know at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadVersionReply {
    /// The version.
    pub version: Version,
    /// The value of `\xff/metadataVersion` at that version; `None`: the key doesn't exist.
    pub metadata_version: Option<Bytes>,
    /// The ranges that are locked at that version, if there are any and the request wasn't
    /// lock-aware: whoever reads at it leaves them alone.
    pub range_locks: Option<RangeLocks>,
}

/// What a database calls itself; read through special keys.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Description {
    /// Where the connection string was read from; empty if nowhere.
    pub cluster_file_path: String,
    /// `description:id@ip:port,...`, with the coordinators that were heard of last; empty in
    /// process.
    pub connection_string: String,
    /// The identity of the database: 16 bytes, as 32 hexadecimal digits.
    pub cluster_id: String,
}
