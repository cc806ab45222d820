//! Cluster files: how a client finds a database, in FoundationDB's format.
//!
//! One line, `description:id@ip:port,...`; lines that begin with `#` and empty ones don't count.
//! The part before the `@` is a name that client and server hold against each other, so that a
//! client doesn't end up at another database that happens to listen at the same address.

use plinth_env::Env;
use plinth_types::{Error, Result};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Where cluster files are looked for last.
const SYSTEM_PATH: &str = if cfg!(target_os = "macos") {
    "/usr/local/etc/foundationdb/fdb.cluster"
} else {
    "/etc/foundationdb/fdb.cluster"
};
/// How a server describes its database where nobody says, and of how many characters of its
/// identity it makes a name.
const DESCRIPTION: &str = "plinth";
const NAME_LEN: usize = 8;
/// The variable that names one.
const VARIABLE: &str = "FDB_CLUSTER_FILE";

/// The content of a cluster file, and where it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterFile {
    description: String,
    id: String,
    addresses: Vec<Address>,
    path: Option<PathBuf>,
}

/// One server's address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// An IP address (without brackets), or a name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether the server speaks TLS there.
    pub tls: bool,
}

impl ClusterFile {
    /// Whether a path has nearly the name of a cluster file, such as `fdb.clustr`, `cluster.fdb`
    /// and `fdb.cluster.bak`, and no longer one of a directory that somebody wants made.
    pub fn is_nearly_one(path: &Path) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if name.ends_with(".cluster") {
            return false;
        }
        let lower = name.to_lowercase();
        let is_near = |word: &str| distance(word, "cluster") < 3;
        let mut words = lower.split('.');
        lower.contains('.')
            && (words.next_back().is_some_and(is_near)
                || (lower.split('.').any(is_near) && lower.split('.').any(|word| word == "fdb")))
    }

    /// One that names a single server, without TLS.
    ///
    /// # Panics
    /// If `description` or `id` has other characters than a cluster file allows.
    pub fn new(description: &str, id: &str, server: SocketAddr) -> Self {
        assert!(
            is_word(description, "_") && is_word(id, ""),
            "{description}:{id} is no name of a cluster"
        );
        let address = Address { host: server.ip().to_string(), port: server.port(), tls: false };
        Self {
            description: description.into(),
            id: id.into(),
            addresses: vec![address],
            path: None,
        }
    }

    /// The one that a server writes of its own accord for a database with this identity.
    pub fn of_database(cluster_id: &str, server: SocketAddr) -> Self {
        let id = cluster_id.chars().filter(char::is_ascii_alphanumeric).take(NAME_LEN);
        let id = Some(id.collect::<String>()).filter(|id| !id.is_empty());
        Self::new(DESCRIPTION, id.as_deref().unwrap_or("id"), server)
    }

    /// With what the identity of a database begins that a server has written this file for, as far
    /// as its name tells.
    pub fn written_for(&self) -> Option<&str> {
        let is_identity =
            self.id.len() == NAME_LEN && self.id.bytes().all(|digit| digit.is_ascii_hexdigit());
        (self.description == DESCRIPTION && is_identity).then_some(&*self.id)
    }

    /// What `text` says: the content of a cluster file, or a connection string.
    ///
    /// # Errors
    /// `connection_string_invalid`.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            let detail = format!("{why}; write description:id@ip:port,...");
            Err(Error::connection_string_invalid().with_detail(detail))
        };
        let mut lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return invalid("a cluster file has one line that is no comment");
        };
        let Some((key, addresses)) = line.split_once('@') else { return invalid("there is no @") };
        let Some((description, id)) = key.split_once(':') else {
            return invalid("there is no : before the @");
        };
        if !is_word(description, "_") || !is_word(id, "") {
            return invalid("description and id are made of letters and digits");
        }
        let addresses: Option<Vec<_>> = addresses.split(',').map(Address::parse).collect();
        let Some(addresses) = addresses else {
            return invalid("an address is ip:port or ip:port:tls");
        };
        if addresses.iter().any(|address| address.tls != addresses[0].tls) {
            return invalid("either all addresses are for TLS or none");
        }
        Ok(Self { description: description.into(), id: id.into(), addresses, path: None })
    }

    /// Reads a cluster file.
    ///
    /// # Errors
    /// `no_cluster_file_found`, `connection_string_invalid`, both with its path;
    /// `file_not_readable`.
    pub async fn read(env: &Env, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let place = path.display();
        let bytes = match env.files().read(path).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => {
                return Err(Error::no_cluster_file_found().with_detail(place.to_string()));
            }
            Err(_) if env.files().list(path).await.is_ok() => {
                let detail = format!(
                    "{place} is a directory; a server keeps its own as fdb.cluster in its database's"
                );
                return Err(Error::no_cluster_file_found().with_detail(detail));
            }
            Err(error) => return Err(error.into()),
        };
        let file = Self::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| {
            let why = error.detail().unwrap_or_default().to_owned();
            error.with_detail(format!("{place}: {why}"))
        })?;
        Ok(Self { path: Some(path.to_path_buf()), ..file })
    }

    /// Reads the cluster file at `path`, or, if there is none given, the one that
    /// `FDB_CLUSTER_FILE` names, or `fdb.cluster` in the current directory, or the system's.
    ///
    /// # Errors
    /// As [`ClusterFile::read`].
    pub async fn find(env: &Env, path: Option<&Path>) -> Result<Self> {
        if let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) {
            return Self::read(env, path).await;
        }
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            return Self::read(env, path).await;
        }
        for path in ["fdb.cluster", SYSTEM_PATH] {
            if env.files().exists(path).await.unwrap_or(false) {
                return Self::read(env, path).await;
            }
        }
        let detail = format!("neither {VARIABLE}, nor ./fdb.cluster, nor {SYSTEM_PATH}");
        Err(Error::no_cluster_file_found().with_detail(detail))
    }

    /// `description:id`.
    pub fn key(&self) -> String {
        format!("{}:{}", self.description, self.id)
    }

    /// The addresses as the file has them.
    pub fn address_list(&self) -> String {
        let mut list = String::new();
        for address in &self.addresses {
            let separator = if list.is_empty() { "" } else { "," };
            // Writing to a string can't fail.
            let _ = write!(list, "{separator}{address}");
        }
        list
    }

    /// The line that a cluster file has.
    pub fn connection_string(&self) -> String {
        format!("{}@{}", self.key(), self.address_list())
    }

    /// The servers.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Whether a server at this address is among them. Names are looked up; those that can't be are
    /// nobody's.
    pub async fn names(&self, env: &Env, server: SocketAddr) -> bool {
        for address in &self.addresses {
            if address.resolve(env).await.is_ok_and(|found| found.contains(&server)) {
                return true;
            }
        }
        false
    }

    /// The same with one of its servers alone.
    ///
    /// # Panics
    /// If it has fewer.
    #[must_use]
    pub fn only(&self, at: usize) -> Self {
        Self { addresses: vec![self.addresses[at].clone()], ..self.clone() }
    }

    /// The same with these addresses (`ip:port`) instead of its own; `None` if it names just these.
    pub fn naming(&self, addresses: &[String]) -> Option<Self> {
        let parsed: Option<Vec<_>> =
            addresses.iter().map(|address| Address::parse(address)).collect();
        let tls = self.is_tls();
        let mut parsed: Vec<_> =
            parsed?.into_iter().map(|address| Address { tls, ..address }).collect();
        let text = |addresses: &[Address]| {
            let mut all: Vec<_> = addresses.iter().map(Address::to_string).collect();
            all.sort();
            all
        };
        parsed.sort_by_key(Address::to_string);
        let is_other = !parsed.is_empty() && text(&parsed) != text(&self.addresses);
        is_other.then(|| Self { addresses: parsed, ..self.clone() })
    }

    /// Writes it to where it was read, in one step, unless that names another cluster by now.
    /// Others who do the same at the same time write the same.
    ///
    /// # Errors
    /// Those of reading and writing the file.
    pub async fn rewrite(&self, env: &Env) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let found = Self::read(env, path).await?;
        if found.key() != self.key() || found.addresses == self.addresses {
            return Ok(());
        }
        let line = format!("{}\n", self.connection_string());
        // Servers on one machine may share the file: none of them may rename what another one is
        // still writing.
        Ok(env.files().replace_shared(path, env.random_u64(), line.as_bytes()).await?)
    }

    /// What is wrong with the file that it was read from, which ought to say the same; `None` if it
    /// does, or it was read from none.
    pub(crate) async fn doubt(&self, env: &Env) -> Option<String> {
        let path = self.path.as_deref()?;
        let advice = "Verify that the file and its directory can be written, and that nothing else writes it";
        let place = path.display();
        let found = match Self::read(env, path).await {
            Ok(found) => found,
            Err(error) => {
                return Some(format!("The cluster file {place} can't be read: {error}. {advice}"));
            }
        };
        let sorted = |file: &Self| {
            let mut all: Vec<_> = file.addresses.iter().map(Address::to_string).collect();
            all.sort();
            (file.key(), all)
        };
        (sorted(&found) != sorted(self)).then(|| {
            format!(
                "The cluster file {place} says {}, and the cluster is {} now. {advice}",
                found.connection_string(),
                self.connection_string()
            )
        })
    }

    /// The same, whose servers speak TLS.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.addresses.iter_mut().for_each(|address| address.tls = true);
        self
    }

    /// Whether its servers speak TLS: all of them, or none.
    pub fn is_tls(&self) -> bool {
        self.addresses.iter().any(|address| address.tls)
    }

    /// Where it was read.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

impl Address {
    /// Without the word that it speaks TLS, which is nothing of where it is.
    pub fn bare(&self) -> String {
        Self { tls: false, ..self.clone() }.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        let (text, tls) = text.strip_suffix(":tls").map_or((text, false), |text| (text, true));
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').filter(|host| host.parse::<IpAddr>().is_ok())?,
            None => host,
        };
        let named =
            |host: &str| host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        if host.is_empty() || !(named(host) || host.parse::<IpAddr>().is_ok()) {
            return None;
        }
        Some(Self { host: host.to_owned(), port, tls })
    }

    /// The addresses to connect to, the likeliest first. A name is looked up each time.
    ///
    /// # Errors
    /// `lookup_failed` if there is no such host, or nobody can say now.
    pub async fn resolve(&self, env: &Env) -> Result<Vec<SocketAddr>> {
        Ok(env.sockets().resolve(&self.host, self.port).await?)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tls = if self.tls { ":tls" } else { "" };
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}{tls}", self.host, self.port),
            false => write!(f, "{}:{}{tls}", self.host, self.port),
        }
    }
}

fn is_word(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

/// How many characters have to be added, taken away or replaced.
fn distance(one: &str, two: &str) -> usize {
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (n, left) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], n + 1);
        for (m, right) in two.bytes().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[m + 1];
            row[m + 1] = replaced.min(row[m] + 1).min(diagonal + 1);
        }
    }
    row[two.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_foundationdb_accepts_is_accepted_and_written_back() {
        for text in [
            "desc:id@127.0.0.1:4500",
            "d_1:Ab9@[::1]:4500:tls,host.example:1:tls",
            "test:test@localhost:4500,10.0.0.2:4501",
        ] {
            let file = ClusterFile::parse(&format!("# comment\n\n  {text}  \n")).unwrap();
            assert_eq!(file.connection_string(), text);
        }
        let file = ClusterFile::parse("a:b@localhost:4500").unwrap();
        let env = Env::real();
        let names =
            |address: &str| plinth_env::block_on(file.names(&env, address.parse().unwrap()));
        assert!(names("127.0.0.1:4500") && !names("127.0.0.1:4501"));
    }

    #[test]
    fn names_are_looked_up_and_unknown_ones_are_told() {
        let env = Env::real();
        let resolve = |text: &str| {
            let file = ClusterFile::parse(&format!("a:b@{text}")).unwrap();
            plinth_env::block_on(file.addresses()[0].resolve(&env))
        };
        assert_eq!(resolve("[::1]:7").unwrap(), ["[::1]:7".parse().unwrap()]);
        // What the system calls itself is in its own table of names.
        assert!(resolve("LOCALHOST:7").unwrap().iter().all(|address| address.ip().is_loopback()));
        let error = resolve("no-such-host.invalid:7").unwrap_err();
        assert!(
            error.code() == 1041 && error.detail().unwrap().contains("no-such-host.invalid"),
            "{error}"
        );
    }

    #[test]
    fn everything_else_is_an_invalid_connection_string() {
        for text in [
            "",
            "# only\n",
            "desc@1.2.3.4:1",
            "d:i@",
            "d:i@host",
            "d:i@1.2.3.4:0",
            "d:i@1.2.3.4:65536",
            "d-x:i@1.2.3.4:1",
            "d:i_@1.2.3.4:1",
            "d:i@1.2.3.4:1,",
            "d:i@[host]:1",
            "d:i@a b:1",
            "d:i@1.2.3.4:1,1.2.3.5:1:tls",
            "a:b@1.2.3.4:1\nc:d@1.2.3.4:1",
        ] {
            assert_eq!(ClusterFile::parse(text).unwrap_err().code(), 2104, "{text}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_told_by_its_own_number() {
        let env = Env::real();
        let missing =
            plinth_env::block_on(ClusterFile::find(&env, Some(Path::new("/nowhere/fdb.cluster"))));
        assert_eq!(missing.unwrap_err().code(), 1515);
        let missing = plinth_env::block_on(ClusterFile::read(&env, "/")).unwrap_err();
        assert!(missing.code() == 1515 && missing.to_string().contains("directory"), "{missing}");
        let dir = plinth_env::block_on(env.files().temporary_dir("cluster-file")).unwrap();
        let path = dir.path().join("fdb.cluster");
        plinth_env::block_on(env.files().replace(&path, b"nonsense")).unwrap();
        let error = plinth_env::block_on(ClusterFile::read(&env, &path)).unwrap_err();
        assert!(error.code() == 2104 && error.detail().unwrap().contains("fdb.cluster"), "{error}");
    }

    #[test]
    fn slips_in_the_name_of_a_cluster_file_are_seen() {
        for name in [
            "fdb.clustr",
            "fdb.cluser",
            "/a/fdb.Cluster",
            "fdb.clusters",
            "fdb.clutser",
            "cluster.fdb",
            "fdb.cluster.bak",
        ] {
            assert!(ClusterFile::is_nearly_one(Path::new(name)), "{name}");
        }
        for name in ["fdb.cluster", "data", "cluster", "data.db", "/a.cluster/data", "x.custom"] {
            assert!(!ClusterFile::is_nearly_one(Path::new(name)), "{name}");
        }
    }
}
