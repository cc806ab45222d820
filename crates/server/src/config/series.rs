//! Where a server takes in time series, by which rules, and with whom it shares them.
//!
//! Nowhere by default. What other machines could reach is judged where the server starts.

use crate::wanted::Wanted;
use plinth_client::Database;
use plinth_series::ingest::Protocol;
use plinth_series::{Retention, SeriesLimits};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Where a server takes in time series. Nowhere by default: then it doesn't open the database's
/// series either.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SeriesConfig {
    /// Akumuli's protocol on lines, whose port is 8282.
    pub resp: Option<SocketAddr>,
    /// The same in datagrams, whose port is 8383. They are neither encrypted nor does anybody say
    /// who he is.
    pub udp: Option<SocketAddr>,
    /// OpenTSDB's `put`, whose port is 4242.
    pub opentsdb: Option<SocketAddr>,
    /// Graphite's plain text, whose port is 2003.
    pub graphite: Option<SocketAddr>,
    /// Queries over HTTP, whose port is 8181.
    pub http: Option<SocketAddr>,
    /// The file with the token that this HTTP asks for; written, with a new token, if it doesn't
    /// exist. Without a file none is asked for.
    pub token_file: Option<PathBuf>,
    /// What the keys of series begin with, in place of what is usual in the database. Whoever
    /// shares them names the same.
    pub prefix: Option<Vec<u8>>,
    /// Into how many parts series are divided that there aren't any of yet, where several servers
    /// share them ([`ServerConfig::among`](crate::ServerConfig::among)): each server owns some. A
    /// power of two, up to 128; one if it says nothing.
    pub parts: Option<usize>,
    /// For how long points are kept, by metric.
    pub retention: Retention,
    /// On how many of the network's threads, of which each core has one, connections that send
    /// points on lines are served; on all of them if it says nothing, or more.
    pub threads: Option<usize>,
    /// Whether the server records its own measurements as series, where it takes any in.
    pub metrics: bool,
    /// How many series there may be, and how much they may take.
    pub limits: SeriesLimits,
    /// The rules that are evaluated over the series, and who is told of alerts.
    pub rules: RulesConfig,
    /// What is scraped: a file with Prometheus' `scrape_configs`. It is read again when it changes.
    pub scrape: Option<PathBuf>,
    /// How many new series a second each sender may make: an address, or all datagrams together.
    /// Whoever makes more is slowed down. 50,000 if it says nothing.
    pub new_series: Option<u32>,
}

impl SeriesConfig {
    /// One of the addresses.
    pub(crate) fn any(&self) -> Option<SocketAddr> {
        self.http.or(self.resp).or(self.opentsdb).or(self.graphite).or(self.udp)
    }

    /// Each listener on lines that is asked for, or usual.
    pub(crate) fn lines(&self, usual: &Self) -> impl Iterator<Item = (Protocol, Wanted)> {
        let resp = (Protocol::Resp, Wanted::choose(self.resp, usual.resp));
        let opentsdb = (Protocol::OpenTsdb, Wanted::choose(self.opentsdb, usual.opentsdb));
        let graphite = (Protocol::Graphite, Wanted::choose(self.graphite, usual.graphite));
        [resp, opentsdb, graphite]
            .into_iter()
            .filter_map(|(protocol, wanted)| Some((protocol, wanted?)))
    }
}

/// The rules that a server evaluates over its series. None by default.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RulesConfig {
    /// Files of rules, as Prometheus has them. They are read again when they change.
    pub files: Vec<PathBuf>,
    /// Where Alertmanagers are, such as `http://127.0.0.1:9093`: each is told of all alerts.
    /// `https` takes the feature `tls`.
    pub alertmanagers: Vec<String>,
    /// Certificates of authorities (PEM), whom those behind `https` have to be signed by; otherwise
    /// the system's.
    pub alertmanager_ca: Option<PathBuf>,
    /// Where people find this server, for links in alerts; otherwise the address of
    /// [`SeriesConfig::http`].
    pub external_url: Option<String>,
    /// Labels that alerts get unless they have them.
    pub external_labels: BTreeMap<String, String>,
}

/// Several servers that take in the series of one database: one of them at a time owns those, or
/// each some [parts](SeriesConfig::parts), by leases that others take over within seconds of its
/// death. What a server is sent for others' it posts to them; what it is asked of theirs it asks
/// them.
#[derive(Clone, Debug)]
pub struct Among {
    /// The database that they share, wherever it is led.
    pub database: Database,
    /// Which of them this server is: the same after a restart, and nobody else's.
    pub name: String,
    /// The address of this server's machine, as the others reach it, where [`SeriesConfig::http`]
    /// stands for all addresses.
    pub machine: Option<IpAddr>,
    /// What this server shows the others, and wants of them, where the doors of series have TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<plinth_tls::TlsOptions>,
}
