//! Three servers that take in time series: points are sent to each of them, and the one that owns
//! the series is killed again and again.
//!
//! Every point that a sender was told is durable is there, whomever one asks. [`Senders`] send to
//! any servers, so those on one FoundationDB cluster (`store.rs`) are judged in the same way.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "senders are programs of their own, on sockets of the system"
)]

use super::{Cluster, scratch, unused_addresses};
use plinth::Database;
use plinth::series::{SeriesStore, Settings};
use plinth_env::{Env, Task, block_on};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KILLS: usize = 4;

/// Sends points until it is told to stop, to one server after the other; counts those that are
/// durable.
fn send(series: &str, servers: &[String], stop: &AtomicBool, durable: &AtomicU64) {
    for session in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // A server that is down, a session that breaks: the next one has its turn.
        let _ = converse(series, &servers[session % servers.len()], stop, durable);
        block_on(Env::real().sleep(Duration::from_millis(20)));
    }
}

fn converse(
    series: &str,
    server: &str,
    stop: &AtomicBool,
    durable: &AtomicU64,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let first = durable.load(Ordering::Relaxed);
    for round in 0..200_u64 {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let from = first + round * 10;
        let text: String =
            (from + 1..=from + 10).map(|n| format!("+n s={series}\r\n:{n}\r\n:{n}\r\n")).collect();
        stream.write_all((text + "+SYNC\r\n").as_bytes())?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        if answer != format!("+OK {}\r\n", (round + 1) * 10) {
            assert!(answer.is_empty() || answer.starts_with("-DB "), "{answer:?}");
            return Ok(());
        }
        durable.store(from + 10, Ordering::Relaxed);
    }
    Ok(())
}

/// What a server answers to a request over HTTP, its body.
pub fn ask(server: &str, head: &str, body: &str) -> std::io::Result<String> {
    let answer = whole_answer(server, head, body)?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// The same with its head.
pub fn whole_answer(server: &str, head: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    let len = body.len();
    write!(stream, "{head} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Waits until there is something; not for ever.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2400 {
        if let Some(found) = look() {
            return found;
        }
        block_on(Env::real().sleep(Duration::from_millis(50)));
    }
    panic!("{what}: not within two minutes");
}

/// The address of the server that owns the series.
fn owner(cluster: &Cluster, db: &Database) -> usize {
    until("a server that lives owns the series", || {
        let holder = block_on(SeriesStore::holder(db, &Settings::default())).unwrap();
        let name = holder.map(|holder| holder.name).unwrap_or_default();
        let place = cluster.addresses.iter().position(|address| *address == name);
        place.filter(|at| cluster.servers[*at].is_some())
    })
}

/// Programs that send points, each to all servers in turn.
pub struct Senders {
    stop: Arc<AtomicBool>,
    senders: Vec<(Arc<AtomicU64>, Task)>,
}

impl Senders {
    /// As many as there are servers; each begins with another one.
    pub fn start(lines: &[String]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |sender: usize| {
            let durable = Arc::new(AtomicU64::new(0));
            let mut servers = lines.to_vec();
            servers.rotate_left(sender);
            let (stop, counted) = (stop.clone(), durable.clone());
            let send = async move { send(&sender.to_string(), &servers, &stop, &counted) };
            (durable, Env::real().spawn("sender", send))
        };
        let senders = (0..lines.len()).map(start).collect();
        Self { stop, senders }
    }

    /// Waits until every sender has been told that so many more points are durable.
    pub fn await_more(&self, count: u64) {
        let durable = || self.senders.iter().map(|(durable, _)| durable.load(Ordering::Relaxed));
        let before: Vec<u64> = durable().collect();
        until("every sender is told that more is durable", || {
            durable().zip(&before).all(|(now, before)| now >= before + count).then_some(())
        });
    }

    /// Ends them, and finds all that they were told is durable, whichever server is asked.
    pub fn judge(self, questions: &[String]) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = |(durable, task): (Arc<AtomicU64>, Task)| {
            task.wait().unwrap();
            durable.load(Ordering::Relaxed)
        };
        let durable: Vec<u64> = self.senders.into_iter().map(ended).collect();
        for server in questions {
            for (sender, durable) in durable.iter().enumerate() {
                let query = format!(
                    r#"{{"select":"n","where":{{"s":"{sender}"}},"range":{{"from":0,"to":1000000000}},"output":{{"format":"csv"}}}}"#
                );
                let rows = ask(server, "POST /api/query", &query).unwrap();
                let numbers: Vec<u64> = rows
                    .lines()
                    .filter_map(|row| row.rsplit(',').next()?.trim().parse().ok())
                    .collect();
                let whole = numbers.iter().copied().take(*durable as usize).eq(1..=*durable);
                assert!(
                    whole,
                    "{server}: {durable} points of {sender} are durable, and it knows {rows:.300}"
                );
            }
            let metrics = ask(server, "GET /api/v1/labels", "").unwrap();
            assert!(metrics.contains("\"success\""), "{server}: {metrics}");
        }
    }
}

#[test]
fn points_sent_to_any_server_survive_the_owners_of_series_one_after_the_other() {
    let place = scratch();
    let (lines, questions) = (unused_addresses(3), unused_addresses(3));
    let more = lines.iter().zip(&questions).map(|(lines, questions)| {
        ["--series-resp", lines, "--series-http", questions].map(ToString::to_string).to_vec()
    });
    let mut cluster = Cluster::form_with(place.path(), more.collect());
    let senders = Senders::start(&lines);
    let db = Database::connect(&cluster.file).unwrap();
    for round in 0..KILLS {
        senders.await_more(50);
        let owner = owner(&cluster, &db);
        let server = cluster.servers[owner].take().unwrap();
        if round % 2 == 0 {
            server.kill();
        } else {
            assert_eq!(server.terminate(), Some(0));
        }
        block_on(Env::real().sleep(Duration::from_millis(300)));
        cluster.start(owner);
    }
    senders.judge(&questions);
}
