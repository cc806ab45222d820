//! How a server is to be run: where it listens and for whom, what it shows besides, with whom it
//! shares series, and how much it takes on.
//!
//! Everything has a default that harms nobody: loopback alone, no HTTP, no series. What other
//! machines could reach has to be asked for, and whether that is allowed is judged where it starts
//! (`server.rs`), not here.

#[cfg(feature = "series")]
mod series;

use crate::page::Page;
use crate::wanted::Wanted;
use plinth_peers::Mesh;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "series")]
pub use series::{Among, RulesConfig, SeriesConfig};

/// Where a server takes in time series. This one is built without them: nowhere.
#[cfg(not(feature = "series"))]
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SeriesConfig {}

/// The port that FoundationDB's documentation uses, and so ours.
const PORT: u16 = 4500;

/// How a server is to be run.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where to listen. Port 0 takes a free one. With nothing here and in [`Usual::listen`] the
    /// server has no clients of keys.
    pub listen: Vec<SocketAddr>,
    /// Where to listen, answer HTTP and take in time series if the fields for that name no address.
    pub usual: Usual,
    /// The address that clients are told, if it isn't the first one listened on.
    pub public: Option<SocketAddr>,
    /// The file that clients find the server by. Written if it doesn't exist; if it does, it must
    /// name this server.
    pub cluster_file: Option<PathBuf>,
    /// Whether to listen where other machines can reach it although nothing is encrypted and nobody
    /// is asked who he is.
    pub without_tls: bool,
    /// The server's certificate, and the authorities that clients' certificates must be signed by:
    /// then it speaks TLS only. HTTP speaks it too, where other machines can reach it, and asks for
    /// no certificates.
    #[cfg(feature = "tls")]
    pub tls: Option<plinth_tls::TlsOptions>,
    /// Whether to listen where other machines can reach it although TLS names no authorities, so
    /// that anybody may connect.
    pub without_client_certificates: bool,
    /// Who may do what, besides what the rows of rights say.
    pub rights: RightsConfig,
    /// Where to answer HTTP: the console, `/metrics` for Prometheus, `/status`, `/health`. The rule
    /// about other machines is the same, and there must be a token for them.
    pub http: Option<SocketAddr>,
    /// How the console is to be run.
    pub console: ConsoleConfig,
    /// Where to take in time series. The rule about other machines is that of `listen`.
    pub series: SeriesConfig,
    /// With whom this server shares the series of its database, if it isn't the only one that takes
    /// some in.
    #[cfg(feature = "series")]
    pub among: Option<Among>,
    /// What is shown besides what the server knows of itself.
    pub pages: Pages,
    /// The connections of this node with the others of its cluster, if it is a member of one: they
    /// come in where clients do.
    pub peers: Option<Arc<Mesh>>,
    /// How much at most.
    pub limits: Limits,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))],
            usual: Usual::default(),
            public: None,
            cluster_file: None,
            without_tls: false,
            #[cfg(feature = "tls")]
            tls: None,
            without_client_certificates: false,
            rights: RightsConfig::default(),
            http: None,
            console: ConsoleConfig::default(),
            series: SeriesConfig::default(),
            #[cfg(feature = "series")]
            among: None,
            pages: Pages::default(),
            peers: None,
            limits: Limits::default(),
        }
    }
}

impl ServerConfig {
    /// Whether there are other servers of its database that can be asked.
    pub(crate) fn has_others(&self) -> bool {
        #[cfg(feature = "series")]
        return self.among.is_some();
        #[cfg(not(feature = "series"))]
        false
    }

    /// Where clients are listened for.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        if self.listen.is_empty() {
            return Wanted::choose(None, self.usual.listen).into_iter().collect();
        }
        self.listen.iter().copied().map(Wanted::asked).collect()
    }
}

/// What others have to show.
#[derive(Clone, Default, Debug)]
pub struct Pages {
    /// In `/metrics`, besides the server's own figures: the endpoint's.
    pub metrics: Option<Page>,
    /// In the status document below `cluster.layers`, as of backups and of a second site: an object
    /// as JSON.
    pub layers: Option<Page>,
}

/// What of rights isn't among the rows.
#[derive(Clone, Default, Debug)]
pub struct RightsConfig {
    /// Those who are operators of this server whatever the rows say: `cert RULE`, `address
    /// IP[/BITS]`.
    pub operators: Vec<String>,
    /// The keys by which tokens are believed: a JWK set, read again when it changes.
    pub token_keys: Option<PathBuf>,
    /// The file by which a server knows that there are rights when it can't read the rows. Written
    /// and removed as they come and go.
    pub mark: Option<PathBuf>,
}

/// How the console is to be run.
#[derive(Clone, Default, Debug)]
pub struct ConsoleConfig {
    /// The file that has the token. Written, with a new token and readable for nobody else, if it
    /// doesn't exist. Needed as soon as other machines can reach HTTP; on loopback `None` lets
    /// everybody on the machine look.
    pub token_file: Option<PathBuf>,
    /// Whether keys may be set and cleared.
    pub write: bool,
}

/// Addresses that give way: if one is in use, the server takes a port that the system chooses, of
/// the same address, in its place. [`Server::addresses`](crate::Server::addresses) and its like say
/// which. None by default.
#[derive(Clone, Default, Debug)]
pub struct Usual {
    /// In place of [`ServerConfig::listen`], if that is empty.
    pub listen: Option<SocketAddr>,
    /// In place of [`ServerConfig::http`].
    pub http: Option<SocketAddr>,
    /// In place of each address that [`ServerConfig::series`] doesn't name.
    pub series: SeriesConfig,
}

/// How much a server takes on.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of requests of one connection that are under way, and of the largest replies that they
    /// can have (a range: 80,000 and a row, so some 210 kB; a key's value: 100 kB); more are not
    /// read from its socket. A request whose answer is there at once isn't under way.
    pub in_flight_bytes: usize,
    /// Bytes of replies of one connection that wait for the client to take them; meanwhile no
    /// request is handled.
    pub output_bytes: usize,
    /// Bytes of incomplete requests, requests under way, watches and waiting replies of all
    /// connections together that hold more than 16 KiB. From half of it on each has one request
    /// under way; beyond it those who hold the most are cut off. And bytes of points that came and
    /// aren't saved, of all senders together: beyond it they are refused.
    pub buffered_bytes: usize,
    /// Watches of one connection.
    pub watches: usize,
    /// Pinned snapshots of all clients together. Each keeps files that could otherwise be removed.
    pub snapshots: usize,
    /// For how long at most one is kept whose client doesn't renew it.
    pub snapshot_lease: Duration,
    /// How long a client may take to say hello.
    pub greeting: Duration,
    /// How long a client may be silent, or take nothing that is sent to it. Clients ping more often
    /// than that.
    pub silence: Duration,
    /// How long a stop waits for what is under way.
    pub farewell: Duration,
    /// The newest version of clients' protocol that is offered.
    pub protocol: u16,
}

/// The versions of the clients' protocol that this program speaks.
pub const PROTOCOLS: std::ops::RangeInclusive<u16> =
    plinth_proto::hello::OLDEST..=plinth_proto::hello::NEWEST;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            in_flight_bytes: 64 << 20,
            output_bytes: 256 << 10,
            buffered_bytes: 256 << 20,
            watches: 20_000,
            snapshots: 32,
            snapshot_lease: Duration::from_secs(60),
            greeting: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            farewell: Duration::from_secs(10),
            protocol: plinth_proto::hello::NEWEST,
        }
    }
}
