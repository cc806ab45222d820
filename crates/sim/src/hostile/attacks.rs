//! The attackers: what each kind of hostile connection does, over and over.
//!
//! Each attempt begins with a connection and ends when the server closes it, when nothing moves, or
//! when it has done its worst. Nobody looks at what came of it but by counting.

use super::wire::{Over, Step, Wire, within};
use crate::servers::told;
use flate2::Compression;
use flate2::write::GzEncoder;
use plinth_client::Database;
use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_env::simulated::Random;
use plinth_env::{Env, block_on, say, tell};
use plinth_proto::frame::HEADER;
use plinth_proto::{ReadVersion, Request};
use plinth_types::{Bytes, KeyList, KeyRange, KeySelector, KeySpace, RangeRead, Version};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The program's command for the attackers' process.
pub const COMMAND: &str = "attack-a-server";

/// Values that are asked for and not taken.
const VALUES: u32 = 128;
const VALUE: usize = 90_000;
/// How long what is held is held.
const HOLD: Duration = Duration::from_secs(4);
/// Between two pieces of what comes slowly.
const TRICKLE: Duration = Duration::from_millis(200);

/// What a server listens for, in the order of [`OPTIONS`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Door {
    Keys,
    Http,
    SeriesHttp,
    Resp,
    OpenTsdb,
    Graphite,
    Udp,
}

/// The options by which it is told where.
const OPTIONS: [&str; 7] = [
    "--listen",
    "--http",
    "--series-http",
    "--series-resp",
    "--series-opentsdb",
    "--series-graphite",
    "--series-udp",
];

/// The doors that take points on lines.
const LINES: [Door; 3] = [Door::Resp, Door::OpenTsdb, Door::Graphite];

/// Where a server listens, door by door.
#[derive(Clone, Debug)]
pub(super) struct Doors([SocketAddr; OPTIONS.len()]);

impl Doors {
    /// Where nobody listens yet.
    pub(super) fn unused(env: &Env) -> Result<Self, String> {
        let found = block_on(env.unused_addresses(OPTIONS.len()));
        Self::of(found.map_err(told("find unused ports"))?)
    }

    fn of(found: Vec<SocketAddr>) -> Result<Self, String> {
        let doors = found.try_into();
        doors.map(Self).map_err(|found: Vec<_>| format!("{} doors", found.len()))
    }

    pub(super) fn at(&self, door: Door) -> SocketAddr {
        self.0[door as usize]
    }

    /// As a server's options.
    pub(super) fn options(&self) -> impl Iterator<Item = String> {
        OPTIONS.iter().zip(&self.0).flat_map(|(name, at)| [(*name).to_owned(), at.to_string()])
    }

    /// As arguments of [`attack`].
    pub(super) fn words(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(SocketAddr::to_string)
    }
}

/// What a hostile connection does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Greets by halves, and waits.
    Silent,
    /// Asks for megabytes of values, and reads nothing.
    UnreadValues,
    /// Asks for all rows, and reads nothing.
    UnreadRows,
    /// Begins a commit of ten megabytes, and sends it slowly.
    HalfCommit,
    /// Greets, and sends anything.
    Garbage,
    /// Asks what makes sense but for a bit.
    FlippedBits,
    /// Asks for documents of the status, many at a time.
    Status,
    /// Has all rows cut into pieces of a byte.
    Cuts,
    /// Watches thousands of keys.
    Watches,
    /// Pins snapshots and forgets them.
    Pins,
    /// Reads versions as fast as they come.
    Versions,
    /// Commits megabytes.
    LargeCommits,
    /// Half a request of HTTP, at the console's door and the series'.
    HalfHttp,
    /// Asks the console for everything it has.
    Console,
    /// Posts gzip that is small and becomes large.
    Bombs,
    /// Posts lines of which none is good.
    BadLines,
    /// Makes new series.
    NewSeries,
    /// Asks what is dear to answer.
    DearQueries,
    /// Half a line of points.
    HalfLine,
    /// Anything at the doors of lines.
    GarbageLines,
    /// Anything as datagrams.
    Datagrams,
}

/// Of a thousand connections so many are of a kind.
const SHARES: [(Kind, u64); 21] = [
    (Kind::Silent, 150),
    (Kind::UnreadValues, 150),
    (Kind::UnreadRows, 50),
    (Kind::HalfCommit, 80),
    (Kind::Garbage, 60),
    (Kind::FlippedBits, 50),
    (Kind::Status, 40),
    (Kind::Cuts, 30),
    (Kind::Watches, 50),
    (Kind::Pins, 20),
    (Kind::Versions, 30),
    (Kind::LargeCommits, 4),
    (Kind::HalfHttp, 96),
    (Kind::Console, 30),
    (Kind::Bombs, 20),
    (Kind::BadLines, 10),
    (Kind::NewSeries, 10),
    (Kind::DearQueries, 20),
    (Kind::HalfLine, 40),
    (Kind::GarbageLines, 40),
    (Kind::Datagrams, 20),
];

/// Of so many connections the kind of one, among these.
fn kind(among: &[(Kind, u64)], number: u64, of: u64) -> Kind {
    let all: u64 = among.iter().map(|(_, share)| share).sum();
    let mut place = number * all / of.max(1);
    for (kind, share) in among {
        if place < *share {
            return *kind;
        }
        place -= share;
    }
    Kind::Silent
}

/// The kinds of these names, all if there are none.
pub(super) fn named(names: &str) -> Result<Vec<(Kind, u64)>, String> {
    if names.is_empty() {
        return Ok(SHARES.to_vec());
    }
    let find = |name: &str| {
        let found = SHARES.into_iter().find(|(kind, _)| format!("{kind:?}") == name);
        let known = || SHARES.map(|(kind, _)| format!("{kind:?}")).join(", ");
        found.ok_or_else(|| format!("there is no attack {name:?}; there are {}", known()))
    };
    names.split(',').map(find).collect()
}

/// What all attackers share.
struct Common {
    env: Env,
    doors: Doors,
    file: ClusterFile,
    stop: AtomicBool,
    /// Attempts by the place of their kind in [`SHARES`].
    attempts: [AtomicU64; SHARES.len()],
    /// What comes as gzip: zeros, and bad lines.
    bomb: Vec<u8>,
    bad_lines: Vec<u8>,
}

fn gzip(pieces: usize, piece: &[u8]) -> Result<Vec<u8>, String> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    (0..pieces).try_for_each(|_| packed.write_all(piece)).map_err(told("pack"))?;
    packed.finish().map_err(told("pack"))
}

/// Attacks a server until the time is over: seed, connections, seconds, kinds, its doors, and what
/// its cluster file says. Says how
/// many attempts there were of each kind. The exit code.
pub fn attack(arguments: &[String]) -> u8 {
    match attackers(arguments) {
        Ok(said) => u8::from(said.iter().try_for_each(say).is_err()),
        Err(what) => {
            tell(what);
            1
        }
    }
}

fn attackers(arguments: &[String]) -> Result<Vec<String>, String> {
    let (numbers, rest) = arguments.split_at_checked(4).ok_or("too few arguments")?;
    let (file, places) = rest.split_last().ok_or("no cluster file")?;
    let number = |at: usize| numbers[at].parse::<u64>().map_err(told("no number"));
    let (seed, count, seconds) = (number(0)?, number(1)?, number(2)?);
    let kinds = named(&numbers[3])?;
    let parsed: Result<Vec<SocketAddr>, _> = places.iter().map(|place| place.parse()).collect();
    let doors = Doors::of(parsed.map_err(told("no address"))?)?;
    let env = Env::real();
    let file = ClusterFile::parse(file).map_err(told("read the cluster file"))?;
    block_on(lay_out(&env, &file))?;
    let common = Arc::new(Common {
        env: env.clone(),
        doors,
        file,
        stop: AtomicBool::new(false),
        attempts: Default::default(),
        bomb: gzip(480, &[0; 64 << 10])?,
        bad_lines: gzip(16_000, &[b'\n'; 1 << 10])?,
    });
    let mut random = Random::new(seed);
    let tasks: Vec<_> = (0..count)
        .map(|number| {
            let (kind, drawn) = (kind(&kinds, number, count), random.split());
            env.spawn_network("attacker", over_and_over(common.clone(), kind, drawn))
        })
        .collect();
    block_on(env.sleep(Duration::from_secs(seconds)));
    common.stop.store(true, Ordering::Relaxed);
    // Whoever waits for something is not waited for: the process ends.
    drop(tasks);
    let line = |(kind, attempts): (Kind, &AtomicU64)| {
        let attempts = attempts.load(Ordering::Relaxed);
        (attempts > 0).then(|| format!("{kind:?}: {attempts} attempts"))
    };
    let kinds = SHARES.iter().map(|(kind, _)| *kind);
    Ok(kinds.zip(&common.attempts).filter_map(line).collect())
}

fn key(number: u32) -> [u8; 8] {
    [b"unread", &(number as u16).to_be_bytes()[..]].concat().try_into().unwrap_or_default()
}

/// The rows that are asked for.
async fn lay_out(env: &Env, file: &ClusterFile) -> Result<(), String> {
    let db = database(env, file);
    for from in (0..VALUES).step_by(32) {
        let written = db.transact(async |tr| {
            (from..from + 32).for_each(|number| tr.set(key(number), [b'v'; VALUE]));
            Ok(())
        });
        written.await.map_err(told("write what is to be read"))?;
    }
    Ok(())
}

/// A client of its own, by one connection.
pub(super) fn database(env: &Env, file: &ClusterFile) -> Database {
    let options = RemoteOptions { connections: 1, ..RemoteOptions::new(env) };
    Database::new(Arc::new(RemoteEndpoint::with_options(env, file.clone(), &options)))
}

async fn over_and_over(common: Arc<Common>, kind: Kind, mut random: Random) {
    let place = SHARES.iter().position(|(one, _)| *one == kind).unwrap_or_default();
    while !common.stop.load(Ordering::Relaxed) {
        let _ = once(&common, kind, &mut random).await;
        common.attempts[place].fetch_add(1, Ordering::Relaxed);
        // Who is refused at once comes again soon, as a fork bomb would not.
        common.env.sleep(Duration::from_millis(random.in_range(5..50))).await;
    }
}

async fn once(common: &Common, kind: Kind, random: &mut Random) -> Step<()> {
    let (env, doors) = (&common.env, &common.doors);
    match kind {
        Kind::Silent => {
            let mut wire = Wire::connect(env, doors.at(Door::Keys)).await?;
            wire.send(b"plin").await?;
            wire.drain().await
        }
        Kind::UnreadValues | Kind::UnreadRows => unread(common, kind).await,
        Kind::HalfCommit => half_commit(env, doors.at(Door::Keys)).await,
        Kind::Garbage | Kind::FlippedBits => strange(env, doors.at(Door::Keys), kind, random).await,
        Kind::Status | Kind::Cuts | Kind::Versions => {
            many_at_a_time(env, doors.at(Door::Keys), kind).await
        }
        Kind::Watches => watches(common, random).await,
        Kind::Pins => pins(env, doors.at(Door::Keys)).await,
        Kind::LargeCommits => large_commit(common, random).await,
        Kind::HalfHttp => {
            let to =
                if random.chance(0.5) { doors.at(Door::Http) } else { doors.at(Door::SeriesHttp) };
            let mut wire = Wire::connect(env, to).await?;
            wire.send(b"GET /health HTTP/1.1\r\nHost: ").await?;
            wire.drain().await
        }
        Kind::Console => console(env, doors.at(Door::Http), random).await,
        Kind::Bombs => post(common, "/write", &common.bomb).await,
        Kind::BadLines => post(common, "/write", &common.bad_lines).await,
        Kind::NewSeries => new_series(env, doors.at(Door::OpenTsdb), random).await,
        Kind::DearQueries => dear_query(env, doors.at(Door::SeriesHttp), random).await,
        Kind::HalfLine => {
            let to = doors.at(LINES[random.index(LINES.len())]);
            let mut wire = Wire::connect(env, to).await?;
            wire.send(b"put half.a.line 15").await?;
            wire.drain().await
        }
        Kind::GarbageLines => {
            let to = doors.at(LINES[random.index(LINES.len())]);
            let mut wire = Wire::connect(env, to).await?;
            wire.send(&anything(random, 4000)).await?;
            wire.drain().await
        }
        Kind::Datagrams => datagrams(env, doors.at(Door::Udp), random).await,
    }
}

fn anything(random: &mut Random, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; random.in_range(1..most) as usize];
    random.fill(&mut bytes);
    bytes
}

fn everything() -> KeyRange {
    KeyRange { begin: Bytes::new(), end: Bytes::from_static(b"\xff") }
}

fn all_values(version: Version) -> Request {
    let mut keys = KeyList::new();
    for number in 0..VALUES {
        keys.push(&key(number));
    }
    Request::GetMany { version, space: KeySpace::Normal, keys }
}

fn all_rows(version: Version) -> Request {
    let KeyRange { begin, end } = everything();
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(begin),
        end: KeySelector::first_greater_or_equal(end),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    Request::GetRange { version, space: KeySpace::Normal, read }
}

/// A version that can be read at.
async fn version(common: &Common) -> Step<Version> {
    let (env, db) = (&common.env, database(&common.env, &common.file));
    let asked = async { db.create_transaction().get_read_version().await };
    within(env, HOLD, asked).await?.map_err(|_| Over)
}

async fn unread(common: &Common, kind: Kind) -> Step<()> {
    let (env, keys) = (&common.env, common.doors.at(Door::Keys));
    let at = version(common).await?;
    let mut wire = Wire::greeted(env, keys).await?;
    let request = if kind == Kind::UnreadValues { all_values(at) } else { all_rows(at) };
    let mut out = Vec::new();
    (0..16).for_each(|id| request.encode(&mut out, id));
    wire.send(&out).await?;
    wire.hold(HOLD).await;
    Ok(())
}

async fn half_commit(env: &Env, keys: SocketAddr) -> Step<()> {
    let mut wire = Wire::greeted(env, keys).await?;
    // A header as it should be, of a body that never comes to its end.
    let mut head = vec![0; HEADER];
    head[4..8].copy_from_slice(&10_000_000_u32.to_le_bytes());
    head[12] = 6;
    wire.send(&head).await?;
    for _ in 0..100 {
        wire.send(&[0; 64 << 10]).await?;
        wire.hold(TRICKLE).await;
    }
    Ok(())
}

async fn strange(env: &Env, keys: SocketAddr, kind: Kind, random: &mut Random) -> Step<()> {
    let mut wire = Wire::greeted(env, keys).await?;
    let bytes = match kind {
        Kind::Garbage => anything(random, 100_000),
        _ => {
            let mut out = Vec::new();
            all_values(1).encode(&mut out, 1);
            all_rows(1).encode(&mut out, 2);
            let at = random.index(out.len());
            out[at] ^= 1 << random.below(8);
            out
        }
    };
    wire.send(&bytes).await?;
    wire.drain().await
}

/// Requests that are cheap to make, sixteen at a time, and their answers are read.
async fn many_at_a_time(env: &Env, keys: SocketAddr, kind: Kind) -> Step<()> {
    let mut wire = Wire::greeted(env, keys).await?;
    let request = match kind {
        Kind::Status => Request::Status,
        Kind::Cuts => Request::SplitPoints { range: everything(), chunk: 1 },
        _ => Request::ReadVersion(ReadVersion { count: 1, ..ReadVersion::default() }),
    };
    let mut out = Vec::new();
    (0..16).for_each(|id| request.encode(&mut out, id));
    for _ in 0..100 {
        wire.send(&out).await?;
        wire.receive().await?;
    }
    Ok(())
}

async fn watches(common: &Common, random: &mut Random) -> Step<()> {
    let at = version(common).await?;
    let mut wire = Wire::greeted(&common.env, common.doors.at(Door::Keys)).await?;
    let mut out = Vec::new();
    for id in 0..5000 {
        let key = Bytes::copy_from_slice(&random.next_u64().to_be_bytes());
        Request::Watch { key, value: None, version: at }.encode(&mut out, id);
    }
    wire.send(&out).await?;
    wire.hold(HOLD).await;
    Ok(())
}

async fn pins(env: &Env, keys: SocketAddr) -> Step<()> {
    let mut wire = Wire::greeted(env, keys).await?;
    let mut out = Vec::new();
    (0..64).for_each(|id| Request::Pin { lease_ms: 60_000 }.encode(&mut out, id));
    wire.send(&out).await?;
    wire.receive().await?;
    wire.hold(HOLD).await;
    Ok(())
}

async fn large_commit(common: &Common, random: &mut Random) -> Step<()> {
    let (env, db) = (&common.env, database(&common.env, &common.file));
    let place = random.below(4);
    let written = db.transact(async |tr| {
        for number in 0..60_u64 {
            tr.set([b"large", &(place << 8 | number).to_be_bytes()[..]].concat(), [b'l'; VALUE]);
        }
        Ok(())
    });
    within(env, HOLD, written).await?.map_err(|_| Over)
}

async fn console(env: &Env, http: SocketAddr, random: &mut Random) -> Step<()> {
    let mut wire = Wire::connect(env, http).await?;
    for _ in 0..20 {
        let path = ["/status", "/metrics", "/health", "/", "/nowhere"][random.index(5)];
        let head = format!("GET {path} HTTP/1.1\r\nHost: {http}\r\n\r\n");
        wire.send(head.repeat(8).as_bytes()).await?;
        wire.receive().await?;
    }
    Ok(())
}

async fn post(common: &Common, path: &str, body: &[u8]) -> Step<()> {
    let to = common.doors.at(Door::SeriesHttp);
    let mut wire = Wire::connect(&common.env, to).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    wire.send(head.as_bytes()).await?;
    wire.send(body).await?;
    wire.receive().await.map(drop)
}

async fn new_series(env: &Env, opentsdb: SocketAddr, random: &mut Random) -> Step<()> {
    let mut wire = Wire::connect(env, opentsdb).await?;
    let mut lines = String::new();
    for _ in 0..1000 {
        lines.push_str(&format!("put hostile.metric 1500000000 1 host={}\n", random.next_u64()));
    }
    wire.send(lines.as_bytes()).await?;
    wire.hold(TRICKLE).await;
    Ok(())
}

async fn dear_query(env: &Env, to: SocketAddr, random: &mut Random) -> Step<()> {
    let mut wire = Wire::connect(env, to).await?;
    let query = [
        "sum(rate(hostile.metric%5B100y%5D))",
        "%7B__name__=~%22(.*)*(.*)*(.*)*%22%7D",
        "count(count_over_time(%7B__name__!=%22%22%7D%5B1y:1s%5D))",
    ][random.index(3)];
    let path = format!("/api/v1/query_range?query={query}&start=0&end=1900000000&step=200000");
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).await?;
    wire.receive().await.map(drop)
}

async fn datagrams(env: &Env, udp: SocketAddr, random: &mut Random) -> Step<()> {
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut socket = env.sockets().datagrams(here).map_err(|_| Over)?;
    for _ in 0..100 {
        socket.send(udp, &anything(random, 1400)).await.map_err(|_| Over)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_share_of_any_number_of_connections() {
        assert_eq!(SHARES.iter().map(|(_, share)| share).sum::<u64>(), 1000);
        for (place, (one, share)) in SHARES.iter().enumerate() {
            let count = (0..1000).filter(|number| kind(&SHARES, *number, 1000) == *one).count();
            assert_eq!(count as u64, *share, "{one:?}");
            let is_among_few = (0..250).any(|number| kind(&SHARES, number, 250) == *one);
            assert!(is_among_few, "{one:?}, at {place}");
        }
    }

    #[test]
    fn kinds_are_chosen_by_name() {
        let some = named("Pins,Bombs").unwrap();
        assert_eq!(some, [(Kind::Pins, 20), (Kind::Bombs, 20)]);
        assert_eq!(
            [0, 4, 5, 9].map(|number| kind(&some, number, 10) == Kind::Pins),
            [true, true, false, false]
        );
        assert!(named("Pin").unwrap_err().contains("Pins"));
    }
}
