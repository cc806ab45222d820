//! Points into a server's time series over TCP: the performance article's input in each form that a
//! sender may choose.
//!
//! Ten metrics of each host, with seven tags, a second apart, round robin over a hundred hosts;
//! half of the values are walks with all their digits, half are integers. One connection sends for
//! as long as a workload takes, then asks for an acknowledgement, and only with that the clock
//! stops. What counts is the processor time that it took the server, by its own account. Each run
//! has series of its own.

use super::{Group, Workload};
use crate::figures;
use crate::outcome::{Figure, Outcome};
use crate::served::{Spent, series_address};
use crate::unit::Unit;
use crate::{Bench, Error, Result};
use plinth_env::{Env, Stream, block_on};
use plinth_series::time;
use plinth_series::workload::{Random, SEED_METRICS, START};
use std::future::poll_fn;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::task::{Poll, ready};

/// Hosts, each with ten series.
const HOSTS: usize = 100;
const SECOND: i64 = 1_000_000_000;

const fn workload(
    name: &'static str,
    about: &'static str,
    run: fn(&Bench) -> Result<Outcome>,
) -> Workload {
    Workload { name, about, group: Group::Own, long: true, run }
}

/// Messages of one point with the series' full name.
pub const NAMES: Workload = workload(
    "series-names",
    "points into a server's series over TCP, each with its full name",
    |bench| run(bench, "series-names", Form::Names, figures::SERIES_NAMES),
);
/// Rows of ten metrics.
pub const ROWS: Workload = workload("series-rows", "the same in rows of ten metrics", |bench| {
    run(bench, "series-rows", Form::Rows, figures::SERIES_ROWS)
});
/// Messages of one point with a number for the series.
pub const DICTIONARY: Workload =
    workload("series-dictionary", "the same with numbers from a dictionary for names", |bench| {
        run(bench, "series-dictionary", Form::Dictionary, figures::SERIES_DICTIONARY)
    });
/// OpenTSDB's lines.
pub const OPENTSDB: Workload =
    workload("series-opentsdb", "the same in OpenTSDB's protocol", |bench| {
        run(bench, "series-opentsdb", Form::OpenTsdb, figures::SERIES_OPENTSDB)
    });

/// How points are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Names,
    Rows,
    Dictionary,
    OpenTsdb,
}

/// What is sent: step after step of all hosts' metrics.
struct Input {
    form: Form,
    random: Random,
    tags: Vec<String>,
    levels: Vec<f64>,
    step: i64,
}

impl Input {
    fn new(form: Form, seed: u64, run: u64) -> Self {
        let tags = |host: usize| {
            format!(
                "OS=Ubuntu_16.04 arch=x64 host=host_{host} instance-type=m4.large rack={} region=us-east-1 team={run:x}",
                host % 10
            )
        };
        Self {
            form,
            random: Random::new(seed),
            tags: (0..HOSTS).map(tags).collect(),
            levels: vec![10.0; HOSTS * SEED_METRICS.len()],
            step: 0,
        }
    }

    /// What comes before the first step.
    fn begin(&self) -> String {
        if self.form != Form::Dictionary {
            return String::new();
        }
        let names = self
            .tags
            .iter()
            .flat_map(|tags| SEED_METRICS.map(|(metric, _)| format!("+{metric} {tags}")));
        let lines: String =
            names.enumerate().map(|(number, name)| format!("{name}\r\n:{number}\r\n")).collect();
        format!("*{}\r\n{lines}", 2 * self.levels.len())
    }

    /// The next step's points.
    fn step(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let time = START + self.step * SECOND;
        self.step += 1;
        let mut iso = Vec::new();
        time::write_iso(time, &mut iso);
        let iso = String::from_utf8_lossy(&iso[..15]);
        let row = SEED_METRICS.map(|(metric, _)| metric).join("|");
        for (host, tags) in self.tags.iter().enumerate() {
            if self.form == Form::Rows {
                write!(out, "+{row} {tags}\r\n+{iso}\r\n*{}\r\n", SEED_METRICS.len())?;
            }
            for (place, (metric, as_integer)) in SEED_METRICS.iter().enumerate() {
                let number = host * SEED_METRICS.len() + place;
                let level = &mut self.levels[number];
                *level += self.random.normal() * 0.01;
                match self.form {
                    Form::Names => write!(out, "+{metric} {tags}\r\n+{iso}\r\n")?,
                    Form::Rows => {}
                    Form::Dictionary => write!(out, ":{number}\r\n:{time}\r\n")?,
                    Form::OpenTsdb => write!(out, "put {metric} {} ", time / SECOND)?,
                }
                match (self.form, as_integer) {
                    (Form::OpenTsdb, true) => writeln!(out, "{} {tags}", *level as i64)?,
                    (Form::OpenTsdb, false) => writeln!(out, "{level} {tags}")?,
                    (_, true) => write!(out, ":{}\r\n", *level as i64)?,
                    (_, false) => write!(out, "+{level}\r\n")?,
                }
            }
        }
        Ok(())
    }

    /// The request for an acknowledgement.
    fn sync(&self) -> &'static str {
        if self.form == Form::OpenTsdb { "sync\n" } else { "+SYNC\r\n" }
    }
}

fn run(bench: &Bench, name: &'static str, form: Form, target: figures::Target) -> Result<Outcome> {
    let protocol = if form == Form::OpenTsdb { "opentsdb" } else { "resp" };
    let Some((before, address)) =
        Spent::now(&bench.database).zip(series_address(&bench.database, protocol))
    else {
        let why = "it needs a server that takes in series: start `plinth dev`, and name its cluster file with --cluster-file";
        return Err(Error::Skipped(why.to_owned()));
    };
    let env = &bench.env;
    let begin = env.now();
    let sent =
        send(bench, env, address, Input::new(form, bench.settings.seed, env.random_u64() >> 32))?;
    let elapsed = (env.now() - begin).as_secs_f64();
    let cpu =
        Spent::now(&bench.database).map_or(f64::INFINITY, |now| now.cpu_seconds_since(before));
    let unit = Unit::PerSecond("points");
    let headline =
        Figure::new("points/s of server CPU", sent.points as f64 / cpu.max(1e-9), unit, target);
    let title = format!("{} series, one connection", HOSTS * SEED_METRICS.len());
    let mut outcome = Outcome::new(name, title, headline, None);
    let none = figures::Target::NONE;
    outcome.figures.push(Figure::new("points/s", sent.points as f64 / elapsed, unit, none));
    outcome.figures.push(Figure::new(
        "bytes a point, sent",
        sent.bytes as f64 / sent.points as f64,
        Unit::Count,
        none,
    ));
    Ok(outcome)
}

struct Sent {
    points: u64,
    bytes: u64,
}

/// Sends until the time is over, and waits until all of it is durable.
fn send(bench: &Bench, env: &Env, address: SocketAddr, mut input: Input) -> Result<Sent> {
    let mut stream = block_on(env.sockets().connect(address))?;
    let mut bytes = input.begin().into_bytes();
    let mut sent = Sent { points: 0, bytes: 0 };
    let end = env.now() + bench.settings.time;
    while env.now() < end {
        if bench.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        input.step(&mut bytes).map_err(lost)?;
        sent.points += input.levels.len() as u64;
        sent.bytes += bytes.len() as u64;
        send_all(&mut stream, &bytes)?;
        bytes.clear();
    }
    send_all(&mut stream, input.sync().as_bytes())?;
    hear(&mut stream, sent.points)?;
    Ok(sent)
}

/// Hears whether all of so many points are durable.
pub(super) fn hear(stream: &mut Stream, points: u64) -> Result<()> {
    let mut reply = Vec::new();
    while !reply.ends_with(b"\n") {
        let mut buffer = [0; 4096];
        let len =
            block_on(poll_fn(|context| stream.poll_receive(context, &mut buffer))).map_err(lost)?;
        if len == 0 {
            break;
        }
        reply.extend_from_slice(&buffer[..len]);
    }
    let reply = String::from_utf8_lossy(&reply).trim_end().to_ascii_lowercase();
    if reply.trim_start_matches('+') == format!("ok {points}") {
        return Ok(());
    }
    let detail = format!("{points} points were sent, and the server said: {reply}");
    Err(plinth_types::Error::operation_failed().with_detail(detail).into())
}

pub(super) fn lost(error: std::io::Error) -> Error {
    plinth_types::Error::connection_failed().with_detail(error.to_string()).into()
}

pub(super) fn send_all(stream: &mut Stream, bytes: &[u8]) -> Result<()> {
    let mut sent = 0;
    let all: std::io::Result<()> = block_on(poll_fn(|context| {
        while sent < bytes.len() {
            sent += ready!(stream.poll_send(context, &bytes[sent..]))?;
        }
        Poll::Ready(Ok(()))
    }));
    all.map_err(lost)
}
