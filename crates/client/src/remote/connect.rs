//! Databases that are found by a cluster file.

use super::{ClusterFile, RemoteEndpoint, RemoteOptions};
use crate::database::Database;
use plinth_env::{Env, block_on};
use plinth_types::Result;
use std::path::Path;
use std::sync::Arc;

impl Database {
    /// The database that a server serves, found by its cluster file: `plinth server` writes one.
    /// Everything works as with a database in a directory of one's own. The server needs not be
    /// there yet: operations wait for it, and a transaction's timeout ends them.
    ///
    /// ```no_run
    /// let db = plinth_client::Database::connect("./shop/fdb.cluster")?;
    /// # Ok::<(), plinth_client::Error>(())
    /// ```
    ///
    /// An empty path stands for the file that `FDB_CLUSTER_FILE` names, or `fdb.cluster` in the
    /// current directory, or the system's.
    ///
    /// If the file's addresses end in `:tls`, and this is built with the feature `tls`,
    /// certificates come from FoundationDB's environment variables: `FDB_TLS_CERTIFICATE_FILE`,
    /// `FDB_TLS_KEY_FILE`, `FDB_TLS_CA_FILE`, `FDB_TLS_VERIFY_PEERS`. To say them in the program,
    /// see [`Database::connect_with`].
    ///
    /// # Errors
    /// `no_cluster_file_found`; `connection_string_invalid` if the file is none;
    /// `file_not_readable`.
    pub fn connect(cluster_file: impl AsRef<Path>) -> Result<Self> {
        let env = Env::real();
        let file = block_on(ClusterFile::find(&env, Some(cluster_file.as_ref())))?;
        Ok(Self::connect_to(&env, file))
    }

    /// The database that a server serves, found by what a cluster file says. See
    /// [`Database::connect`].
    pub fn connect_to(env: &Env, cluster_file: ClusterFile) -> Self {
        Self::new(Arc::new(RemoteEndpoint::connect(env, cluster_file)))
    }

    /// The same, with a say in how: how many connections are made, and with which certificates
    /// (feature `tls`).
    ///
    /// ```no_run
    /// # #[cfg(feature = "tls")]
    /// # fn connect() -> plinth_client::Result<plinth_client::Database> {
    /// use plinth_client::Database;
    /// use plinth_client::remote::{ClusterFile, RemoteOptions, Source, TlsOptions};
    /// use plinth_env::{Env, block_on};
    ///
    /// let env = Env::real();
    /// let file = block_on(ClusterFile::read(&env, "./shop/fdb.cluster"))?;
    /// let tls = TlsOptions {
    ///     certificate: Some(Source::File("till.crt".into())),
    ///     key: Some(Source::File("till.key".into())),
    ///     authorities: Some(Source::File("ca.crt".into())),
    ///     ..TlsOptions::default()
    /// };
    /// let db = Database::connect_with(&env, file, &RemoteOptions { tls, ..RemoteOptions::new(&env) });
    /// # Ok(db)
    /// # }
    /// ```
    pub fn connect_with(env: &Env, cluster_file: ClusterFile, options: &RemoteOptions) -> Self {
        Self::new(Arc::new(RemoteEndpoint::with_options(env, cluster_file, options)))
    }
}
