//! The settings of `plinth server` and `plinth dev`: one table, from which command line,
//! environment and file are read.
//!
//! Each setting has one name. It is `--NAME` on the command line, `PLINTH_NAME` in the environment,
//! and a key `NAME` in the file that `--config` names; the first of the three that says something
//! counts, before the default. All of them are held to the same kinds of value. Tests hold the
//! shipped file and the table in docs/operations.md to the one here.

mod file;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use clap::{Arg, ArgAction, ArgMatches};
use plinth::series::Retention;
use plinth_env::Env;
use plinth_types::amount::{LEAST_MEMORY, bytes_in};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The setting that names the file with the others, and so can't stand in it.
const CONFIG: &str = "config";
/// What environment variables begin with.
const PREFIX: &str = "PLINTH_";

/// One setting.
pub struct Setting {
    name: &'static str,
    kind: Kind,
    default: Fallback,
    about: &'static str,
}

/// What a value may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Address,
    /// Several of them.
    Addresses,
    Path,
    /// Several of them.
    Paths,
    Text,
    /// Several of them.
    Texts,
    /// Labels and their values.
    Labels,
    Count,
    /// A number of bytes, with a unit if one likes.
    Bytes,
    Flag,
    OneOf(&'static [&'static str]),
    /// Rules about how long points of time series are kept.
    Retention,
    /// Which events are printed, and how.
    Log,
}

/// What holds if nobody says anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fallback {
    Is(&'static str),
    /// Nothing in particular: in words.
    Otherwise(&'static str),
}

use Fallback::{Is, Otherwise};

/// All settings.
const ALL: &[Setting] = &[
    Setting::new(
        "dir",
        Kind::Path,
        Otherwise("none; `dev` makes a temporary one"),
        "The database; made if there is none",
    ),
    Setting::new(
        "store",
        Kind::Text,
        Otherwise("none: the database is in a directory"),
        "A FoundationDB cluster in place of a directory, as fdb:CLUSTER_FILE[?lib=PATH]: the server takes in time series there, with others beside it, and answers for it",
    ),
    Setting::new(
        "engine",
        Kind::OneOf(&["memory", "ssd"]),
        Is("memory"),
        "The storage engine of a new database; one that exists keeps its own",
    ),
    Setting::new(
        "memory",
        Kind::Bytes,
        Otherwise("engine ssd: 1GiB; engine memory: no bound"),
        "Memory for the data, such as 4GiB: with the engine ssd the budget of window, cache and indexes; with memory the bound at which no more rows are taken",
    ),
    Setting::new(
        "compression",
        Kind::OneOf(&["none", "lz4", "zstd"]),
        Is("lz4"),
        "How the engine ssd compresses what it writes from now on; zstd where the program was built with it. Engine memory compresses nothing",
    ),
    Setting::new(
        "encryption-key-file",
        Kind::Paths,
        Otherwise("none: nothing is encrypted"),
        "A file with a key (32 bytes, or 64 hexadecimal digits) that encrypts what is written to the directory; of several the first encrypts, and all open",
    ),
    Setting::new(
        "encryption-key-command",
        Kind::Texts,
        Otherwise("none"),
        "A command that prints such a key, run at the start; behind those of files",
    ),
    Setting::new(
        "window",
        Kind::Count,
        Is("5"),
        "For how many seconds a transaction may read and commit; what is overwritten meanwhile takes memory for as long",
    ),
    Setting::new(
        "listen",
        Kind::Addresses,
        Otherwise("where the cluster file says, else 127.0.0.1:4500 (`dev`: or another port)"),
        "Where to listen; port 0 takes a free one",
    ),
    Setting::new(
        "public-address",
        Kind::Address,
        Otherwise("the first one listened on"),
        "The address that clients are told",
    ),
    Setting::new(
        "cluster-file",
        Kind::Path,
        Otherwise("fdb.cluster in the database's directory"),
        "The file that clients find the server by; written if there is none",
    ),
    Setting::new(
        "http",
        Kind::Address,
        Otherwise("nowhere; `dev`: 127.0.0.1:8080, or another port"),
        "Where to answer HTTP: the console, /metrics for Prometheus, /status, /health",
    ),
    Setting::new(
        "http-token",
        Kind::Path,
        Otherwise(
            "http-token in the database's directory where other machines can reach HTTP, else none",
        ),
        "The file with the token that HTTP asks for; written if there is none",
    ),
    Setting::new(
        "series-resp",
        Kind::Address,
        Otherwise("nowhere; `dev`: 127.0.0.1:8282, or another port"),
        "Where to take in points of time series in Akumuli's protocol",
    ),
    Setting::new(
        "series-udp",
        Kind::Address,
        Otherwise("nowhere; `dev`: 127.0.0.1:8383, or another port"),
        "Where to take in points of time series in Akumuli's protocol as datagrams (UDP)",
    ),
    Setting::new(
        "series-opentsdb",
        Kind::Address,
        Otherwise("nowhere; `dev`: 127.0.0.1:4242, or another port"),
        "Where to take in points of time series in OpenTSDB's protocol",
    ),
    Setting::new(
        "series-graphite",
        Kind::Address,
        Otherwise("nowhere"),
        "Where to take in points of time series in Graphite's plain text",
    ),
    Setting::new(
        "series-http",
        Kind::Address,
        Otherwise("nowhere; `dev`: 127.0.0.1:8181, or another port"),
        "Where to answer queries of time series over HTTP",
    ),
    Setting::new(
        "series-token",
        Kind::Path,
        Otherwise("none: whoever can connect may ask"),
        "The file with the token that series-http asks for; written if there is none",
    ),
    Setting::new(
        "series-threads",
        Kind::Count,
        Otherwise("one for each core"),
        "Threads on which points of time series are read and parsed",
    ),
    Setting::new(
        "series-prefix",
        Kind::Text,
        Otherwise("a place of their own; on a FoundationDB the tuple (\"plinth.series\",)"),
        "What the keys of time series begin with, as a prefix of users' keys with escapes; the same for all servers that share them",
    ),
    Setting::new(
        "series-parts",
        Kind::Count,
        Otherwise("1; over a FoundationDB 8"),
        "Into how many parts time series are divided that there are none of yet: servers that share them own some each. A power of two, at most 128",
    ),
    Setting::new(
        "series-metrics",
        Kind::Flag,
        Is("true"),
        "Where series are taken in, record what /metrics shows as series too, for a week",
    ),
    Setting::new(
        "series-retention",
        Kind::Retention,
        Otherwise("points are kept for ever"),
        "For how long points are kept, by metric: the first rule that fits counts, and older points go",
    ),
    Setting::new(
        "rules",
        Kind::Paths,
        Otherwise("none"),
        "Files of recording and alerting rules, as Prometheus has them, evaluated over the time series",
    ),
    Setting::new(
        "scrape",
        Kind::Path,
        Otherwise("nobody is"),
        "Who is scraped: a file with scrape_configs, as Prometheus has them",
    ),
    Setting::new(
        "alertmanager",
        Kind::Texts,
        Otherwise("none"),
        "The Alertmanagers that are told of alerts, each as http://HOST:PORT or https://HOST:PORT",
    ),
    Setting::new(
        "alertmanager-ca",
        Kind::Path,
        Otherwise("those that the system trusts"),
        "Certificates of authorities (PEM) by which Alertmanagers behind https have to be signed",
    ),
    Setting::new(
        "rules-url",
        Kind::Text,
        Otherwise("the address of series-http"),
        "Where people find this server, for the links in alerts",
    ),
    Setting::new(
        "rules-labels",
        Kind::Labels,
        Otherwise("none"),
        "Labels that alerts get unless they have them",
    ),
    Setting::new("series-limit", Kind::Count, Is("10000000"), "Time series at most"),
    Setting::new(
        "series-metric-limit",
        Kind::Count,
        Is("5000000"),
        "Time series of one metric at most",
    ),
    Setting::new(
        "series-label-limit",
        Kind::Count,
        Otherwise("none but the series of the metric"),
        "Values of one label of a metric at most",
    ),
    Setting::new(
        "series-source-limit",
        Kind::Count,
        Otherwise("half of series-limit"),
        "New time series from one address at once, and within a day",
    ),
    Setting::new(
        "series-new-limit",
        Kind::Count,
        Is("50000"),
        "New time series a second from one address: whoever makes more is slowed down",
    ),
    Setting::new(
        "series-memory",
        Kind::Bytes,
        Otherwise("a quarter of memory; 1GiB where that isn't given"),
        "Memory for the time series that are being written to, about a kilobyte each",
    ),
    Setting::new(
        "console-write",
        Kind::Flag,
        Is("false"),
        "Let the console set and clear keys, and acknowledge changes",
    ),
    Setting::new(
        "tls-cert",
        Kind::Path,
        Otherwise("none: no TLS"),
        "The server's certificate, and those of authorities in between (PEM): then it speaks TLS only",
    ),
    Setting::new(
        "tls-key",
        Kind::Path,
        Otherwise("looked for in the file of tls-cert"),
        "Its private key (PEM, not encrypted)",
    ),
    Setting::new(
        "tls-ca",
        Kind::Path,
        Otherwise("none: clients show no certificate"),
        "The authorities that clients' certificates must be signed by (PEM)",
    ),
    Setting::new(
        "tls-verify-peers",
        Kind::Text,
        Otherwise("nothing more"),
        "What clients' certificates must say besides, in FoundationDB's words, such as S.O=Shop",
    ),
    Setting::new(
        "tls-verify-nodes",
        Kind::Text,
        Otherwise("what tls-verify-peers says"),
        "What the certificates of the cluster's other servers must say, in the same words, such as S.CN>db-",
    ),
    Setting::new(
        "without-tls",
        Kind::Flag,
        Is("false"),
        "Listen where other machines can reach it, although nothing is encrypted and anybody may connect",
    ),
    Setting::new(
        "without-client-certificates",
        Kind::Flag,
        Is("false"),
        "Listen where other machines can reach it with TLS but without tls-ca, so that anybody may connect",
    ),
    Setting::new(
        "operator",
        Kind::Texts,
        Otherwise("whom a grant makes one"),
        "An operator of this server whatever the grants say, as `cert RULE`, `address IP[/BITS]` or `user NAME`: the way back in. While there are no rights it counts for quotas alone",
    ),
    Setting::new(
        "authorization-public-key-file",
        Kind::Path,
        Otherwise("none: nobody looks at tokens"),
        "The public keys by which clients' tokens (JWT) are believed, a JWK set as FoundationDB's; read again when it changes",
    ),
    Setting::new(
        "peer-protocol",
        Kind::Count,
        Otherwise("the newest that the program speaks"),
        "The newest version of the servers' protocol that this one offers the others: less keeps the way back to an older program open",
    ),
    Setting::new(
        "client-protocol",
        Kind::Count,
        Otherwise("the newest that the program speaks"),
        "The newest version of the clients' protocol that this server offers, to try clients with an older one",
    ),
    Setting::new("connections", Kind::Count, Is("10000"), "Connections at most"),
    Setting::new(
        "snapshots",
        Kind::Count,
        Is("32"),
        "Pinned snapshots at most, of all clients together; each keeps files (engine ssd) or memory that could otherwise go",
    ),
    Setting::new(
        "commit-workers",
        Kind::Count,
        Otherwise("one for every two processors, three at most"),
        "Threads that carry commits to the disk: while one waits for it another gathers the next commits, but they take processors from reads and starts",
    ),
    Setting::new(
        "slow-ms",
        Kind::Count,
        Is("1000"),
        "From so many milliseconds between its read version and its commit on a transaction is slow: told as an event, and kept for the status",
    ),
    Setting::new(
        "log",
        Kind::Log,
        Otherwise("text; plinth dev: text,warn"),
        "What is told of the server's life on standard error, an event a line: text, json or off, and how much, such as json,debug",
    ),
];

impl Setting {
    const fn new(name: &'static str, kind: Kind, default: Fallback, about: &'static str) -> Self {
        Self { name, kind, default, about }
    }

    /// The name of its environment variable.
    fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    fn arg(&self) -> Arg {
        let default = match self.default {
            Is(value) => value,
            Otherwise(words) => words,
        };
        let (kind, variable) = (self.kind, self.variable());
        let arg = Arg::new(self.name)
            .long(self.name)
            .value_name(kind.placeholder())
            .env(self.variable())
            .hide_env_values(true)
            .value_parser(move |text: &str| match kind.check(text) {
                Ok(()) => Ok(text.to_owned()),
                Err(why) if is_said_by(&variable, text) => {
                    Err(format!("{why} ({variable} says so)"))
                }
                Err(why) => Err(why),
            })
            .help(format!("{} [default: {}]", self.about, default.replace('`', "")));
        match kind {
            Kind::Paths | Kind::Texts => arg.action(ArgAction::Append),
            Kind::Addresses => arg.action(ArgAction::Append).value_delimiter(','),
            Kind::Flag => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            _ => arg,
        }
    }
}

impl Kind {
    fn placeholder(self) -> &'static str {
        match self {
            Self::Address | Self::Addresses => "IP:PORT",
            Self::Path | Self::Paths => "PATH",
            Self::Text | Self::Texts => "TEXT",
            Self::Labels => "LABEL=VALUE,..",
            Self::Count => "COUNT",
            Self::Bytes => "BYTES",
            Self::Flag => "true|false",
            Self::OneOf(_) => "NAME",
            Self::Retention => "METRIC=TIME,..",
            Self::Log => "FORM[,LEVEL]",
        }
    }

    /// What is allowed.
    fn allowed(self) -> String {
        match self {
            Self::Address => "IP:PORT is allowed, such as \"127.0.0.1:4500\"".to_owned(),
            Self::Addresses => {
                "IP:PORT is allowed, such as \"127.0.0.1:4500\", and a list of them".to_owned()
            }
            Self::Path => "a path is allowed, in quotation marks".to_owned(),
            Self::Text => "a text is allowed, in quotation marks".to_owned(),
            Self::Paths | Self::Texts => {
                "a text is allowed, in quotation marks, and a list of them".to_owned()
            }
            Self::Labels => "labels are allowed such as \"dc=eu,cluster=a\"".to_owned(),
            Self::Count => "a whole number from 1 on is allowed".to_owned(),
            Self::Bytes => {
                "a number of bytes from 16MiB on is allowed, such as 67108864, \"512MiB\" or \"4GiB\""
                    .to_owned()
            }
            Self::Flag => "true and false are allowed".to_owned(),
            Self::OneOf(names) => format!("allowed are {}", names.join(", ")),
            Self::Retention => {
                "rules are allowed such as \"cpu.*=30d,audit=forever,*=1y\", by ms, s, m, h, d, w and y"
                    .to_owned()
            }
            Self::Log => plinth_telemetry::ALLOWED.to_owned(),
        }
    }

    /// Whether a value may be this.
    fn check(self, text: &str) -> Result<(), String> {
        let valid = match self {
            Self::Address | Self::Addresses => text.parse::<SocketAddr>().is_ok(),
            Self::Path | Self::Paths | Self::Text | Self::Texts => !text.is_empty(),
            Self::Labels => labels_in(text).is_some(),
            Self::Count => text.parse::<u32>().is_ok_and(|count| count > 0),
            Self::Bytes => bytes_in(text).is_some_and(|bytes| bytes >= LEAST_MEMORY),
            Self::Flag => matches!(text, "true" | "false"),
            Self::OneOf(names) => names.contains(&text),
            Self::Retention => !text.is_empty() && text.parse::<Retention>().is_ok(),
            Self::Log => plinth_telemetry::makes_sense(text),
        };
        if valid { Ok(()) } else { Err(self.allowed()) }
    }
}

/// Whether an environment variable says this.
fn is_said_by(variable: &str, text: &str) -> bool {
    std::env::var_os(variable).is_some_and(|said| said == text)
}

/// The name that somebody may have meant who wrote one that there isn't: two letters apart at most.
fn meant(wrong: &str) -> Option<&'static str> {
    let names = ALL.iter().map(|setting| setting.name).chain([CONFIG]);
    let near = names.map(|name| (strsim::osa_distance(name, wrong), name));
    near.filter(|(distance, name)| (1..=2).contains(distance) && name.len() > 4)
        .min()
        .map(|it| it.1)
}

/// Environment variables that nobody reads and that are nearly one of a setting, each with that
/// one. Others are let be: an orchestrator may name its own after a service.
fn misspelt(variables: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let setting_of = |variable: &str| {
        let name = variable.strip_prefix(PREFIX)?.to_ascii_lowercase().replace('_', "-");
        let is_one = name == CONFIG || ALL.iter().any(|setting| setting.name == name);
        let meant = meant(&name).filter(|_| !is_one)?;
        Some(format!("{PREFIX}{}", meant.to_ascii_uppercase().replace('-', "_")))
    };
    variables
        .filter_map(|variable| Some((setting_of(&variable)?, variable)))
        .map(|(a, b)| (b, a))
        .collect()
}

/// Labels with their values, as `dc=eu,cluster=a`.
fn labels_in(text: &str) -> Option<BTreeMap<String, String>> {
    let label = |label: &str| {
        let (name, value) = label.split_once('=')?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_name = !name.is_empty() && name.chars().all(is_plain);
        (is_name && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    text.split(',').map(label).collect()
}

/// What the command line may say.
pub fn args() -> Vec<Arg> {
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .env(format!("{PREFIX}CONFIG"))
        .hide_env_values(true)
        .help("A file with settings (TOML), by the names that they have here; the command line and the environment count before it");
    std::iter::once(config).chain(ALL.iter().map(Setting::arg)).collect()
}

/// What settings of series begin with, and which of them say where a server takes some in.
const OF_SERIES: &str = "series-";
const TAKES_SERIES: [&str; 5] =
    ["series-resp", "series-udp", "series-opentsdb", "series-graphite", "series-http"];

/// What somebody has said of each setting, if anybody has.
#[derive(Debug)]
pub struct Settings(BTreeMap<&'static str, Vec<String>>);

impl Settings {
    /// What command line, environment, file and defaults say.
    ///
    /// # Errors
    /// If the file can't be read or makes no sense: with file, line and key, and what is allowed;
    /// if an environment variable is nearly that of a setting.
    pub fn read(env: &Env, options: &ArgMatches) -> Result<Self, Failure> {
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        if let Some((wrong, meant)) = misspelt(variables).pop() {
            return Err(Failure::usage(format!(
                "{wrong}, an environment variable, is no setting: did you mean {meant}?"
            )));
        }
        let file = match options.get_one::<String>(CONFIG) {
            Some(path) => file::read(env, path)?,
            None => BTreeMap::new(),
        };
        Ok(Self::choose(options, file))
    }

    fn choose(options: &ArgMatches, mut file: BTreeMap<&'static str, Vec<String>>) -> Self {
        for Setting { name, .. } in ALL {
            if let Some(given) = options.get_many::<String>(name) {
                file.insert(name, given.cloned().collect());
            }
        }
        Self(file)
    }

    /// What somebody has said of a setting; not its default.
    pub fn said(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(String::as_str)
    }

    /// The text of a setting.
    pub fn text(&self, name: &str) -> Option<&str> {
        let default = || match ALL.iter().find(|setting| setting.name == name)?.default {
            Is(value) => Some(value),
            Otherwise(_) => None,
        };
        self.said(name).or_else(default)
    }

    /// A setting that is a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// A setting that is an address.
    pub fn address(&self, name: &str) -> Option<SocketAddr> {
        self.text(name)?.parse().ok()
    }

    /// A setting that is a list of texts; empty if there is none.
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// A setting that is labels with their values; none if there are none.
    pub fn labels(&self, name: &str) -> BTreeMap<String, String> {
        self.text(name).and_then(labels_in).unwrap_or_default()
    }

    /// A setting that is a list of addresses; empty if there is none.
    pub fn addresses(&self, name: &str) -> Vec<SocketAddr> {
        self.texts(name).iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// A setting that is a number.
    pub fn count(&self, name: &str) -> Option<usize> {
        self.text(name)?.parse().ok()
    }

    /// A setting that is a number of bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        bytes_in(self.text(name)?)
    }

    /// A setting that is rules about how long points are kept; none if there are none.
    pub fn retention(&self, name: &str) -> Retention {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// What is said of series has to be about some: somebody waited for retention where nothing was
    /// taken in.
    ///
    /// # Errors
    /// If something is, and no listener takes any in.
    pub fn check_series_are_taken(&self) -> Result<(), Failure> {
        let mut said = self.0.keys().filter(|name| name.starts_with(OF_SERIES));
        let takes_some = TAKES_SERIES.iter().any(|name| self.said(name).is_some());
        match said.next().filter(|_| !takes_some) {
            None => Ok(()),
            Some(name) => Err(Failure::usage(format!(
                "{name} is about time series: the server needs a listener that takes some in, such as --series-resp 127.0.0.1:8282"
            ))),
        }
    }

    /// Nothing may be said of settings but some, of which the others have no effect.
    ///
    /// # Errors
    /// If something is, with `why`, what it was, and which may be.
    pub fn allow_only(&self, allowed: &[&str], why: &str) -> Result<(), Failure> {
        match self.0.keys().find(|name| !allowed.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(Failure::usage(format!(
                "{why}: leave out {name}; of a server's settings {} may be given",
                allowed.join(" and ")
            ))),
        }
    }

    /// A setting that is yes or no.
    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }
}
