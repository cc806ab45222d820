//! Queries of a server's time series over HTTP, as the reader of their text sees them.
//!
//! A hundred series of a metric of their own, two-decimal walks a second apart, are sent first:
//! 200,000 points each with ten seconds for each workload, fewer with fewer (and then nothing is
//! judged, since the peer's figures are for 20 million points). Each query is asked over one
//! connection that stays open, again and again, and its time is the median, from the first byte
//! sent to the last byte of the answer; what an answer has to hold is counted. A peer's figure
//! stands beside its query in words.

use super::series::{hear, send_all};
use super::{Group, Workload};
use crate::blocking_http::Connection;
use crate::figures::Target;
use crate::outcome::{Figure, Outcome};
use crate::served::series_address;
use crate::unit::Unit;
use crate::words;
use crate::{Bench, Error, Result};
use plinth_env::block_on;
use plinth_series::workload::{Random, START};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

const NAME: &str = "series-queries";
const SERIES: usize = 100;
/// Points of a series: what the peer had, and so many for each second that a workload may take, if
/// that is less.
const POINTS: usize = 200_000;
const POINTS_A_SECOND: usize = 20_000;
const SECOND: i64 = 1_000_000_000;
/// Times that a query is asked, at least and at most.
const LEAST: usize = 3;
const MOST: usize = 1001;

/// Queries over HTTP.
pub const QUERIES: Workload = Workload {
    name: NAME,
    about: "queries of a server's series over HTTP: aggregates, groups, scans, the newest points",
    group: Group::Own,
    long: true,
    run,
};

/// One query, and what is known of it.
struct Case {
    what: &'static str,
    body: String,
    /// Lines of the answer.
    lines: usize,
    /// Milliseconds that Akumuli 0.8.80 takes.
    akumuli_ms: f64,
    /// What is asked of us, in milliseconds: required and goal.
    asked_ms: (f64, f64),
}

impl Case {
    /// A query that has to be twice as fast as Akumuli, and better five times.
    fn new(what: &'static str, akumuli_ms: f64, body: String, lines: usize) -> Self {
        Self { what, body, lines, akumuli_ms, asked_ms: (akumuli_ms / 2.0, akumuli_ms / 5.0) }
    }

    fn figure(&self, seconds: f64) -> Figure {
        let (required, goal) = self.asked_ms;
        let what = format!("{} (Akumuli {} ms)", self.what, self.akumuli_ms);
        Figure::new(what, seconds, Unit::Seconds, Target::at_most(required / 1e3, goal / 1e3))
    }
}

/// The queries on `metric`, whose series have `points` points.
fn cases(metric: &str, points: usize) -> Vec<Case> {
    let end = START + points as i64 * SECOND;
    let range = format!(r#""range": {{"from": {START}, "to": {end}}}"#);
    let one = r#""where": {"host": "host_42"}"#;
    // They begin with an hour. A row has a line each for name, time and value, and one for the
    // number of several values.
    let hours = points.div_ceil(3600);
    vec![
        Case {
            asked_ms: (1.0, 0.2),
            ..Case::new(
                "aggregate of one series",
                0.62,
                format!(r#"{{"aggregate": {{"{metric}": "sum"}}, {one}}}"#),
                3,
            )
        },
        Case::new(
            "group-aggregate by hour, one series",
            2.8,
            format!(
                r#"{{"group-aggregate": {{"metric": "{metric}", "step": "1h", "func": ["mean", "min", "max"]}}, {one}, {range}}}"#
            ),
            hours * 6,
        ),
        Case::new(
            "group-aggregate by hour, 100 series",
            243.0,
            format!(
                r#"{{"group-aggregate": {{"metric": "{metric}", "step": "1h", "func": ["mean", "min", "max"]}}, {range}}}"#
            ),
            hours * 6 * SERIES,
        ),
        Case::new(
            "newest 10 points of one series",
            0.54,
            format!(
                r#"{{"select": "{metric}", {one}, "range": {{"from": {end}, "to": {START}}}, "limit": 10}}"#
            ),
            30,
        ),
        Case::new(
            "scan of one series",
            161.0,
            format!(r#"{{"select": "{metric}", {one}, {range}}}"#),
            points * 3,
        ),
        Case::new(
            "count of every series",
            12.5,
            format!(r#"{{"aggregate": {{"{metric}": "count"}}}}"#),
            3 * SERIES,
        ),
        Case::new(
            "scan of all series",
            15_841.0,
            format!(r#"{{"select": "{metric}", {range}}}"#),
            points * 3 * SERIES,
        ),
    ]
}

fn run(bench: &Bench) -> Result<Outcome> {
    let address = |protocol| series_address(&bench.database, protocol);
    let Some((resp, http)) = address("resp").zip(address("http")) else {
        let why = "it needs a server that takes in series and answers queries of them: start `plinth dev`, and name its cluster file \
                   with --cluster-file";
        return Err(Error::Skipped(why.to_owned()));
    };
    let points =
        POINTS.min((bench.settings.time.as_secs_f64() * POINTS_A_SECOND as f64) as usize).max(100);
    let metric = format!("bench.queries.{:x}", bench.env.random_u64() >> 32);
    load(bench, resp, &metric, points)?;
    let mut connection = Connection::open(http)?;
    let cases = cases(&metric, points);
    let share = bench.settings.time / cases.len() as u32;
    let mut figures = Vec::new();
    let mut notes =
        vec![format!("{} points of {SERIES} series", words::grouped((points * SERIES) as u64))];
    for case in &cases {
        let (median, times, bytes) = measure(bench, &mut connection, case, share)?;
        figures.push(case.figure(median));
        notes.push(format!("{}: median of {times}, {} of text", case.what, words::bytes(bytes)));
    }
    let headline = figures.remove(0);
    let mut outcome =
        Outcome::new(NAME, format!("{SERIES} series, one connection"), headline, None);
    outcome.figures.extend(figures);
    outcome.comparable = points == POINTS;
    outcome.notes = notes;
    Ok(outcome)
}

/// Asks a query for as long as it may be asked: the median of its times in seconds, how many there
/// are, and the answer's bytes.
fn measure(
    bench: &Bench,
    connection: &mut Connection,
    case: &Case,
    share: Duration,
) -> Result<(f64, usize, u64)> {
    let task = bench.progress.timed(case.what, share);
    let begun = bench.env.now();
    let mut times = Vec::new();
    let mut bytes = 0;
    while times.len() < LEAST || (times.len() < MOST && bench.env.now() - begun < share) {
        if bench.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let before = bench.env.now();
        let answer = connection.ask(&case.body)?;
        times.push((bench.env.now() - before).as_secs_f64());
        if answer.lines != case.lines {
            let detail = format!(
                "{}: an answer of {} lines, {} were expected: {}",
                case.what, answer.lines, case.lines, answer.beginning
            );
            return Err(plinth_types::Error::operation_failed().with_detail(detail).into());
        }
        bytes = answer.bytes;
    }
    drop(task);
    times.sort_unstable_by(f64::total_cmp);
    Ok((times[times.len() / 2], times.len(), bytes))
}

/// Sends the points, and waits until they are durable.
fn load(bench: &Bench, address: SocketAddr, metric: &str, points: usize) -> Result<()> {
    let task = bench.progress.counted("sending points", (points * SERIES) as u64, "points");
    let mut stream = block_on(bench.env.sockets().connect(address))?;
    let mut random = Random::new(bench.settings.seed);
    let mut levels = vec![5000_i64; SERIES];
    let mut text = format!("*{}\r\n", 2 * SERIES);
    for host in 0..SERIES {
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "+{metric} OS=Ubuntu_16.04 arch=x64 host=host_{host} instance-type=m4.large rack={} region=us-east-1 team=NYC\r\n:{host}\r\n",
            host % 10
        );
    }
    for step in 0..points {
        let time = START + step as i64 * SECOND;
        for (host, level) in levels.iter_mut().enumerate() {
            *level += (random.normal() * 10.0).round() as i64;
            let sign = if *level < 0 { "-" } else { "" };
            let (whole, rest) = (level.unsigned_abs() / 100, level.unsigned_abs() % 100);
            let _ = write!(text, ":{host}\r\n:{time}\r\n+{sign}{whole}.{rest:02}\r\n");
        }
        if text.len() > 1 << 18 {
            if bench.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            send_all(&mut stream, text.as_bytes())?;
            text.clear();
        }
    }
    text.push_str("+SYNC\r\n");
    send_all(&mut stream, text.as_bytes())?;
    hear(&mut stream, (points * SERIES) as u64)?;
    drop(task);
    Ok(())
}
