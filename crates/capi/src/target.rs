//! Where a database lives, read off what a program gives as its cluster file.
//!
//! | given | is |
//! |---|---|
//! | a directory, or a name that doesn't exist and doesn't end in `.cluster` | a store in this process, in that directory |
//! | `:memory:` | a store of its own in memory |
//! | `:memory:NAME` | a store in memory that this process shares by name, while anybody has it open |
//! | a file | a FoundationDB cluster file |
//! | nothing | what `FDB_CLUSTER_FILE` says, else `fdb.cluster` here, else the system's |
//!
//! A directory is opened once in a process, however often and by whatever name it is asked for.

use crate::absent::Absent;
use plinth_client::{Description, Endpoint};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_types::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

const MEMORY: &str = ":memory:";
const SYSTEM_CLUSTER_FILE: &str = if cfg!(target_os = "macos") {
    "/usr/local/etc/foundationdb/fdb.cluster"
} else {
    "/etc/foundationdb/fdb.cluster"
};

/// The world that the library runs in: the real one.
pub(crate) fn env() -> &'static Env {
    static ENV: OnceLock<Env> = OnceLock::new();
    ENV.get_or_init(Env::real)
}

/// The stores that are open in this process, by directory or by name.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Node>>> = Mutex::new(BTreeMap::new());

/// The database that a cluster file argument names.
///
/// # Errors
/// Those of opening a directory. What is wrong with a cluster file is told by the database's operations.
pub(crate) fn open(given: Option<&str>) -> Result<Arc<dyn Endpoint>> {
    match given {
        Some(name) if !name.is_empty() => open_named(name),
        _ => match std::env::var("FDB_CLUSTER_FILE") {
            Ok(name) => open_named(&name),
            Err(_) => open_default(),
        },
    }
}

/// The database that a connection string names: the text of a cluster file, or the name of a store.
///
/// # Errors
/// `connection_string_invalid`; those of opening a directory.
pub(crate) fn open_connection_string(text: &str) -> Result<Arc<dyn Endpoint>> {
    if let Some(connection) = connection_string(text) {
        return Ok(absent("", connection, None));
    }
    if text.is_empty() || text.contains('@') {
        return Err(Error::connection_string_invalid());
    }
    open_named(text)
}

fn open_default() -> Result<Arc<dyn Endpoint>> {
    for name in ["fdb.cluster", SYSTEM_CLUSTER_FILE] {
        if block_on(env().files().exists(name)).unwrap_or(false) {
            return open_named(name);
        }
    }
    Ok(absent("", String::new(), Some(Error::no_cluster_file_found())))
}

fn open_named(name: &str) -> Result<Arc<dyn Endpoint>> {
    if let Some(shared) = name.strip_prefix(MEMORY) {
        return open_memory(shared);
    }
    let files = env().files();
    let path = Path::new(name);
    let exists = block_on(files.exists(path))?;
    let is_directory = if exists { block_on(files.list(path)).is_ok() } else { !name.ends_with(".cluster") };
    if is_directory {
        return open_directory(path);
    }
    if !exists {
        return Ok(absent(name, String::new(), Some(Error::no_cluster_file_found().with_detail(name))));
    }
    let text = match block_on(files.read(path)) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => return Ok(absent(name, String::new(), Some(error))),
    };
    match connection_string(&text) {
        Some(connection) => Ok(absent(name, connection, None)),
        None => Ok(absent(name, String::new(), Some(Error::connection_string_invalid().with_detail(name)))),
    }
}

fn open_memory(name: &str) -> Result<Arc<dyn Endpoint>> {
    let make = || block_on(Node::in_memory(env(), NodeConfig::default()));
    if name.is_empty() {
        return Ok(Arc::new(make()?.endpoint()));
    }
    shared(PathBuf::from(format!("{MEMORY}{name}")), make)
}

fn open_directory(path: &Path) -> Result<Arc<dyn Endpoint>> {
    block_on(env().files().create_dir_all(path))?;
    #[expect(clippy::disallowed_methods, reason = "the C library lives in the real world alone")]
    let path = path.canonicalize()?;
    shared(path.clone(), || block_on(Node::open(env(), &path, NodeConfig::default())))
}

/// The store of this name if it is open, else a new one.
fn shared(name: PathBuf, make: impl FnOnce() -> Result<Arc<Node>>) -> Result<Arc<dyn Endpoint>> {
    // Held while a store is made, so that two threads don't make it twice.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(node) = open.get(&name).and_then(Weak::upgrade) {
        return Ok(Arc::new(node.endpoint()));
    }
    open.retain(|_, node| node.strong_count() > 0);
    let node = make()?;
    open.insert(name, Arc::downgrade(&node));
    Ok(Arc::new(node.endpoint()))
}

fn absent(path: &str, connection: String, failure: Option<Error>) -> Arc<dyn Endpoint> {
    let description = Description {
        cluster_file_path: path.to_string(),
        connection_string: connection,
        cluster_id: String::new(),
    };
    Arc::new(Absent::new(env().clone(), description, failure))
}

/// The connection string in a cluster file, if it is one: `description:id@address,address...`, comments and blank lines
/// left out.
fn connection_string(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines.next()?;
    if lines.next().is_some() {
        return None;
    }
    let (key, addresses) = line.split_once('@')?;
    let (description, id) = key.split_once(':')?;
    let is_word = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    if !is_word(description, "_") || !is_word(id, "") {
        return None;
    }
    addresses.split(',').all(is_address).then(|| line.to_string())
}

fn is_address(address: &str) -> bool {
    let address = address.strip_suffix(":tls").unwrap_or(address);
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    !host.is_empty() && !host.contains(char::is_whitespace) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_told_from_names() {
        let ok = |text| connection_string(text).is_some();
        assert!(ok("desc:id@127.0.0.1:4500"));
        assert!(ok("# comment\n\nd_1:Ab9@[::1]:4500:tls,host.example:1\n"));
        for bad in ["", "desc@1.2.3.4:1", "d:i@", "d:i@host", "d:i@1.2.3.4:0", "d-x:i@1.2.3.4:1", "./data"] {
            assert!(!ok(bad), "{bad}");
        }
    }

    #[test]
    fn stores_are_shared_by_name_and_by_directory() {
        let id = |endpoint: &Arc<dyn Endpoint>| endpoint.describe().cluster_file_path;
        let one = open_named(":memory:one").unwrap();
        assert_eq!(OPEN.lock().unwrap().len(), 1);
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

    #[test]
    fn a_missing_cluster_file_is_told_by_operations() {
        let endpoint = open_named("/nowhere/fdb.cluster").unwrap();
        let answer = endpoint.read_version(plinth_client::ReadVersionRequest::default()).wait();
        assert_eq!(answer.map_err(|error| error.code()).err(), Some(1515));
    }
}
