//! Where the server is, as clients are told: settled with the cluster file before anything is
//! accepted.
//!
//! An existing file has to name this server; and no other one, unless it is a member of a cluster,
//! which the file names or not. Single servers know nothing of each other: behind one file that
//! names several, each would take a part of the rows, and a client would find now these, now those.

use crate::config::ServerConfig;
use plinth_client::Endpoint;
use plinth_client::remote::ClusterFile;
use plinth_env::Env;
use plinth_types::{Error, Located, LocatedMember, Result};
use std::net::SocketAddr;
use std::path::Path;

/// The node that a server is whose database has no other.
const ALONE: u64 = 1;

/// Where the server is, as clients are told.
pub(crate) struct Place {
    /// `description:id` of the cluster file.
    pub(crate) cluster: String,
    /// `description:id@ip:port`.
    pub(crate) connection_string: String,
    /// `ip:port` each.
    pub(crate) addresses: Vec<String>,
    /// The identity of the database.
    pub(crate) cluster_id: String,
}

impl Place {
    /// Where the nodes of a database are that has one alone.
    pub(crate) fn located(&self) -> Located {
        let member =
            |address: &String| LocatedMember { node: ALONE, address: address.clone(), votes: true };
        let members = self.addresses.iter().map(member).collect();
        Located { term: 0, node: ALONE, leader: Some(ALONE), members }
    }

    /// That of a server that listens for no clients: they find the database where it finds it.
    fn nowhere(endpoint: &dyn Endpoint) -> Self {
        let described = endpoint.describe();
        Self {
            cluster: String::new(),
            connection_string: described.connection_string,
            addresses: Vec::new(),
            cluster_id: described.cluster_id,
        }
    }

    /// What clients are told, from the cluster file if there is one; else a new one is written. The
    /// server listens at `addresses`.
    ///
    /// # Errors
    /// `connection_string_invalid` if the file doesn't fit this server; `invalid_local_address` if
    /// there is no address that clients could be told; those of reading and writing the file.
    pub(crate) async fn settle(
        env: &Env,
        endpoint: &dyn Endpoint,
        config: &ServerConfig,
        addresses: &[SocketAddr],
        tls: bool,
    ) -> Result<Self> {
        if addresses.is_empty() {
            return Ok(Self::nowhere(endpoint));
        }
        let first = config.public.or(addresses.first().copied());
        let Some(public) = first.filter(|address| !address.ip().is_unspecified()) else {
            let detail = "clients must be told an address: a public one is needed beside one that stands for all";
            return Err(Error::invalid_local_address().with_detail(detail));
        };
        let cluster_id = endpoint.describe().cluster_id;
        let path = config.cluster_file.as_deref();
        let file = match path {
            Some(path) if env.files().exists(path).await? => {
                let file = ClusterFile::read(env, path).await?;
                let is_member = endpoint.located().is_some();
                check(env, &file, path, public, addresses, tls, is_member).await?;
                file
            }
            _ => {
                let file = ClusterFile::of_database(&cluster_id, public);
                let file = if tls { file.with_tls() } else { file };
                if let Some(path) = path {
                    let line = format!("{}\n", file.connection_string());
                    env.files().replace(path, line.as_bytes()).await?;
                }
                file
            }
        };
        Ok(Self {
            cluster: file.key(),
            connection_string: file.connection_string(),
            addresses: vec![if tls { format!("{public}:tls") } else { public.to_string() }],
            cluster_id,
        })
    }
}

/// Whether an existing cluster file names this server, nobody else, and speaks of TLS as the server
/// does.
async fn check(
    env: &Env,
    file: &ClusterFile,
    path: &Path,
    public: SocketAddr,
    addresses: &[SocketAddr],
    tls: bool,
    is_member: bool,
) -> Result<()> {
    let named = format!("{} exists and names {}", path.display(), file.address_list());
    let refuse =
        |why: String| Err(Error::connection_string_invalid().with_detail(format!("{named}{why}")));
    // A member of a cluster may have come later than the file.
    if !is_member && !file.names(env, public).await {
        return refuse(format!(", not {public}; listen there, or name another cluster file"));
    }
    // The other nodes of a cluster are named by the same file.
    for address in file.addresses().iter().filter(|_| !is_member) {
        let found = address.resolve(env).await.unwrap_or_default();
        if !found.iter().any(|found| *found == public || addresses.contains(found)) {
            return refuse(format!(
                ", but {address} is not an address of this server; this version serves a database from one server, \
                 so a cluster file of its own has to name it alone"
            ));
        }
    }
    if file.is_tls() != tls {
        let why =
            if tls { "the server speaks TLS: end its address in :tls" } else { "there is no TLS" };
        return refuse(format!(", and {why}, or remove the file to have it written anew"));
    }
    Ok(())
}
