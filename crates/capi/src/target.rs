//! Where a database lives, read off what a program gives as its cluster file.
//!
//! | given | is |
//! |---|---|
//! | a directory, or a name that doesn't exist and doesn't end in `.cluster` | a store in this process, in that directory |
//! | the same, with `?engine=ssd` and the like behind it | that, opened as `store_options.rs` says |
//! | `:memory:` | a store of its own in memory |
//! | `:memory:NAME` | a store in memory that this process shares by name, while anybody has it open |
//! | a file | a cluster file: a server, reached when it is first needed |
//! | nothing | what `FDB_CLUSTER_FILE` says, else `fdb.cluster` here, else the system's |
//!
//! A directory is opened once in a process, however often and by whatever name it is asked for.

use crate::absent::Absent;
use crate::store_options;
use crate::world::env;
use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_client::{Description, Endpoint};
use plinth_env::block_on;
use plinth_pipeline::{Node, NodeConfig};
use plinth_types::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

const MEMORY: &str = ":memory:";
/// How long to wait for a directory that this process is about to let go of: this often, with this
/// pause.
const CLOSING_TRIES: u32 = 1000;
const CLOSING_PAUSE: Duration = Duration::from_millis(2);
const SYSTEM_CLUSTER_FILE: &str = if cfg!(target_os = "macos") {
    "/usr/local/etc/foundationdb/fdb.cluster"
} else {
    "/etc/foundationdb/fdb.cluster"
};

/// The stores that are open in this process, by directory or by name.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Node>>> = Mutex::new(BTreeMap::new());

/// The database that a cluster file argument names.
///
/// # Errors
/// Those of opening a directory. What is wrong with a cluster file is told by the database's
/// operations.
pub(crate) fn open(given: Option<&str>) -> Result<Arc<dyn Endpoint>> {
    match given {
        Some(name) if !name.is_empty() => open_named(name),
        _ => match std::env::var("FDB_CLUSTER_FILE") {
            Ok(name) if !name.is_empty() => open_named(&name),
            _ => open_default(),
        },
    }
}

/// The database that a connection string names: the text of a cluster file, or the name of a store.
///
/// # Errors
/// `connection_string_invalid`; those of opening a directory.
pub(crate) fn open_connection_string(text: &str) -> Result<Arc<dyn Endpoint>> {
    match ClusterFile::parse(text) {
        Ok(file) => Ok(remote(file)),
        Err(error) if text.is_empty() || text.contains('@') => Err(error),
        Err(_) => open_named(text),
    }
}

fn open_default() -> Result<Arc<dyn Endpoint>> {
    for name in ["fdb.cluster", SYSTEM_CLUSTER_FILE] {
        if block_on(env().files().exists(name)).unwrap_or(false) {
            return open_named(name);
        }
    }
    Ok(absent("", Error::no_cluster_file_found()))
}

fn open_named(name: &str) -> Result<Arc<dyn Endpoint>> {
    if let Some(shared) = name.strip_prefix(MEMORY) {
        return open_memory(shared);
    }
    let files = env().files();
    let path = Path::new(name);
    let exists = block_on(files.exists(path))?;
    let is_directory =
        if exists { block_on(files.list(path)).is_ok() } else { !name.ends_with(".cluster") };
    if is_directory {
        let (name, config) =
            if exists { (name, NodeConfig::default()) } else { store_options::split(name)? };
        return open_directory(Path::new(name), config);
    }
    Ok(match block_on(ClusterFile::read(env(), path)) {
        Ok(file) => remote(file),
        Err(error) => absent(name, error),
    })
}

fn remote(file: ClusterFile) -> Arc<dyn Endpoint> {
    if crate::network_options::is_tls_only() && !file.is_tls() {
        let why = Error::connection_failed()
            .with_detail("the server has no TLS, and TLS_disable_plaintext_connection is set");
        let name = file.path().map(|path| path.display().to_string()).unwrap_or_default();
        return absent(&name, why);
    }
    let options = RemoteOptions { tls: crate::network_options::tls(), ..RemoteOptions::new(env()) };
    Arc::new(RemoteEndpoint::with_options(env(), file, &options))
}

fn open_memory(name: &str) -> Result<Arc<dyn Endpoint>> {
    let make = || Ok(block_on(Node::in_memory(env(), NodeConfig::default()))?);
    if name.is_empty() {
        return Ok(Arc::new(make()?.endpoint()));
    }
    shared(PathBuf::from(format!("{MEMORY}{name}")), make)
}

/// # Errors
/// `file_not_found` if the directory above it doesn't exist, or it has nearly the name of a cluster
/// file: more likely than not somebody mistyped a name, and an empty database would be no answer.
/// Those of a node.
fn open_directory(path: &Path, config: NodeConfig) -> Result<Arc<dyn Endpoint>> {
    let exists = block_on(env().files().exists(path))?;
    if !exists && ClusterFile::is_nearly_one(path) {
        let detail = format!(
            "there is no {}: is a cluster file meant? Their names end in .cluster; a directory of this name has to be \
             made before",
            path.display()
        );
        return Err(Error::file_not_found().with_detail(detail));
    }
    let path = canonical(path, exists)?;
    shared(path.clone(), || Ok(block_on(Node::open(env(), &path, config.clone()))?))
}

/// The one name of a directory that exists, or may be made where it would be.
#[expect(clippy::disallowed_methods, reason = "the C library lives in the real world alone")]
fn canonical(path: &Path, exists: bool) -> Result<PathBuf> {
    let (false, Some(name)) = (exists, path.file_name()) else { return Ok(path.canonicalize()?) };
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let above = parent.canonicalize().map_err(|error| {
        let detail = format!("{}: the directory above it: {error}", path.display());
        Error::from(error).with_detail(detail)
    })?;
    Ok(above.join(name))
}

/// The store of this name if it is open, else a new one.
fn shared(name: PathBuf, make: impl Fn() -> Result<Arc<Node>>) -> Result<Arc<dyn Endpoint>> {
    // Held while a store is made, so that two threads don't make it twice.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(node) = open.get(&name).and_then(Weak::upgrade) {
        return Ok(Arc::new(node.endpoint()));
    }
    // The last handle on it may be going this very moment, on another thread, and its lock with it.
    let tries = if open.contains_key(&name) { CLOSING_TRIES } else { 1 };
    let node = when_free(tries, make)?;
    // A directory stays known: whoever asks for it next may have to wait for its lock.
    open.retain(|name, node| node.strong_count() > 0 || !is_memory(name));
    open.insert(name, Arc::downgrade(&node));
    Ok(Arc::new(node.endpoint()))
}

fn is_memory(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(MEMORY))
}

/// Tries again while the directory is locked.
fn when_free(tries: u32, make: impl Fn() -> Result<Arc<Node>>) -> Result<Arc<Node>> {
    for _ in 1..tries {
        match make() {
            Err(error) if error == Error::lock_file_failure() => {
                block_on(env().sleep(CLOSING_PAUSE))
            }
            made => return made,
        }
    }
    make()
}

/// What tells of an error at each operation, as FoundationDB does where a cluster file is wrong.
fn absent(path: &str, failure: Error) -> Arc<dyn Endpoint> {
    let description = Description { cluster_file_path: path.to_string(), ..Description::default() };
    Arc::new(Absent::new(env().clone(), description, failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_told_from_names() {
        let told = |text| {
            open_connection_string(text).map(|endpoint| endpoint.describe().connection_string)
        };
        let server = "desc:id@127.0.0.1:4500";
        assert_eq!(told(server).map_err(|error| error.code()), Ok(server.to_string()));
        for bad in ["", "desc@1.2.3.4:1", "d:i@", "d:i@host"] {
            assert_eq!(told(bad).map_err(|error| error.code()), Err(2104), "{bad}");
        }
        assert!(told(":memory:").is_ok());
    }

    #[test]
    fn stores_are_shared_by_name_and_by_directory() {
        let id = |endpoint: &Arc<dyn Endpoint>| endpoint.describe().cluster_file_path;
        let one = open_named(":memory:one").unwrap();
        assert!(OPEN.lock().unwrap().contains_key(Path::new(":memory:one")));
        let again = open_named(":memory:one").unwrap();
        assert_eq!(id(&one), id(&again));
        drop((one, again));
        let dir = block_on(env().files().temporary_dir("capi-target")).unwrap();
        let path = dir.path().join("data");
        let first = open_named(path.to_str().unwrap()).unwrap();
        let second = open_named(path.join("../data").to_str().unwrap()).unwrap();
        assert_eq!(id(&first), id(&second));
        drop((first, second));
        let third = open_named(path.to_str().unwrap()).unwrap();
        drop(third);
    }

    /// A thread that opened a directory while another let go of it was told that the directory was
    /// locked.
    #[test]
    fn closing_and_reopening_may_race() {
        let dir = block_on(env().files().temporary_dir("capi-race")).unwrap();
        let path = dir.path().join("data");
        let name = path.to_str().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let endpoint = open_named(name).expect("it opens");
                        let version =
                            endpoint.read_version(plinth_client::ReadVersionRequest::default());
                        assert!(version.wait().is_ok());
                    }
                });
            }
        });
    }

    #[test]
    fn a_missing_cluster_file_is_told_by_operations() {
        let endpoint = open_named("/nowhere/fdb.cluster").unwrap();
        let answer = endpoint.read_version(plinth_client::ReadVersionRequest::default()).wait();
        assert_eq!(answer.map_err(|error| error.code()).err(), Some(1515));
    }
}
