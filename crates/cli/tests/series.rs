//! `kill -9` of a server that takes points in: each point that a session was told is durable is
//! there, once.
//!
//! One sender writes rows of two series and asks for an acknowledgement now and then; the server is
//! killed while it does, at another moment each time, and started again on what is left. In the end
//! the database is opened without a server and its points are counted.

use plinth::Local;
use plinth_env::{Env, block_on};
use plinth_series::{Direction, SeriesStore};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Running {
    child: Child,
    /// What it said first.
    said: String,
}

impl Running {
    fn start(command: &str, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plinth"))
            .arg(command)
            .args(["--series-resp", "127.0.0.1:0"])
            // Two that start at once may both find a usual port free.
            .args(["--series-opentsdb", "127.0.0.1:0", "--series-http", "127.0.0.1:0"])
            .args(["--series-udp", "127.0.0.1:0", "--series-threads", "1"])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        let last = if command == "dev" { "Ctrl-C" } else { "series resp " };
        while !said.contains(last) {
            assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
        }
        // It may say more, and shall not be held up.
        drop(
            Env::real()
                .spawn("output", async move { drop(out.read_to_string(&mut String::new())) }),
        );
        Self { child, said }
    }

    /// A server on a database; where it listened before, if there is one.
    fn server(dir: &Path, is_first: bool) -> Self {
        let dir = dir.to_str().unwrap();
        let listen: &[&str] = if is_first { &["--listen", "127.0.0.1:0"] } else { &[] };
        Self::start("server", &[&["--dir", dir], listen].concat())
    }

    #[expect(clippy::disallowed_types, reason = "a sender is another program")]
    fn connect(&self) -> std::net::TcpStream {
        self.connect_to("resp")
    }

    /// A connection to one of the addresses where series are taken in.
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "a sender is another program"
    )]
    fn connect_to(&self, what: &str) -> std::net::TcpStream {
        let line = self.said.lines().find_map(|line| line.strip_prefix("series ")).unwrap();
        let mut words = line.split(' ');
        words.find(|word| *word == what).unwrap();
        std::net::TcpStream::connect(words.next().unwrap()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let place = block_on(Env::real().files().temporary_dir("plinth-series-test")).unwrap();
    let dir = place.path().join("data");
    let mut acknowledged = Vec::new();
    let mut next: i64 = 0;
    for round in 0..6 {
        let mut server = Running::server(&dir, round == 0);
        let mut stream = server.connect();
        let mut replies = BufReader::new(stream.try_clone().unwrap());
        let first = next;
        for _ in 0..3 + round {
            let rows = 700 + round * 300;
            let text: String = (next..next + rows)
                .map(|time| format!("+a|b host=x\r\n:{time}\r\n*2\r\n:{time}\r\n+{time}\r\n"))
                .collect();
            stream.write_all(text.as_bytes()).unwrap();
            stream.write_all(b"+SYNC\r\n").unwrap();
            next += rows;
            let mut reply = String::new();
            replies.read_line(&mut reply).unwrap();
            let points: i64 = reply.trim_end().strip_prefix("+OK ").unwrap().parse().unwrap();
            assert_eq!(first + points / 2, next);
        }
        acknowledged.extend(first..next);
        // And some that nobody acknowledges, while the kill is under way.
        let killer = Env::real();
        let id = server.child.id().to_string();
        let kill = killer.spawn("kill", async move {
            Env::real().sleep(Duration::from_millis(2 + 3 * round as u64)).await;
            Command::new("kill").args(["-9", &id]).status().unwrap();
        });
        while stream
            .write_all(format!("+a|b host=x\r\n:{next}\r\n*2\r\n:{next}\r\n+{next}\r\n").as_bytes())
            .is_ok()
        {
            next += 1;
        }
        kill.wait().unwrap();
        server.child.wait().unwrap();
    }
    let db = Local::open(&dir).unwrap().into_database();
    let store = block_on(SeriesStore::open(&db)).unwrap();
    let times = |name: &str| -> Vec<i64> {
        let points = block_on(async {
            store.series(name).await?.scan(.., Direction::Forward).await?.collect().await
        });
        let points = points.unwrap();
        assert!(
            points.iter().all(|point| point.value.as_f64() == point.time as f64),
            "another's value"
        );
        points.iter().map(|point| point.time).collect()
    };
    for name in ["a host=x", "b host=x"] {
        let found = times(name);
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "a point is there twice");
        let lost = acknowledged.iter().filter(|time| found.binary_search(time).is_err()).count();
        assert_eq!(lost, 0, "of {} that were acknowledged", acknowledged.len());
    }
}

/// How points are sent, and how their sender hears that they are durable.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Form {
    Rows,
    Dictionary,
    OpenTsdb,
    Influx,
}

const FORMS: [Form; 4] = [Form::Rows, Form::Dictionary, Form::OpenTsdb, Form::Influx];
/// Points of a lot.
const LOT: i64 = 200;
const SECOND: i64 = 1_000_000_000;

impl Form {
    fn listener(self) -> &'static str {
        match self {
            Self::Rows | Self::Dictionary => "resp",
            Self::OpenTsdb => "opentsdb",
            Self::Influx => "http",
        }
    }

    /// A series that this sender alone writes, and the one that all write, each at times of its
    /// own.
    fn own(self) -> String {
        format!("own.{self:?} s=x")
    }

    fn shared_time(self, number: i64) -> i64 {
        (number * FORMS.len() as i64 + self as i64) * SECOND
    }

    /// The points of these numbers, and what asks for an acknowledgement. The first lot of a
    /// connection comes with its dictionary.
    fn lot(self, numbers: std::ops::Range<i64>, is_first: bool) -> String {
        let own = self.own();
        let mut text = String::new();
        if self == Self::Dictionary && is_first {
            text += &format!("*4\n+{own}\n:1\n+shared s=x\n:2\n");
        }
        for number in numbers {
            let (at, shared) = (number * SECOND, self.shared_time(number));
            text += &match self {
                Self::Rows => {
                    format!("+{own}\n:{at}\n:{number}\n+shared s=x\n:{shared}\n:{number}\n")
                }
                Self::Dictionary => format!(":1\n:{at}\n:{number}\n:2\n:{shared}\n:{number}\n"),
                // Its times are seconds.
                Self::OpenTsdb => format!(
                    "put own.OpenTsdb {number} {number} s=x\nput shared {} {number} s=x\n",
                    shared / SECOND
                ),
                Self::Influx => format!("own,s=x Influx={number} {at}\n"),
            };
        }
        match self {
            Self::Rows | Self::Dictionary => text + "+SYNC\n",
            Self::OpenTsdb => text + "sync\n",
            Self::Influx => {
                let len = text.len();
                format!(
                    "POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n{text}"
                )
            }
        }
    }

    /// Whether an answer says that all of a connection's points so far are durable.
    fn is_acknowledged(self, answer: &str, lots: i64) -> bool {
        match self {
            Self::Rows | Self::Dictionary => answer == format!("+OK {}\r\n", 2 * LOT * lots),
            Self::OpenTsdb => answer == format!("ok {}\n", 2 * LOT * lots),
            Self::Influx => answer == "HTTP/1.1 204 No Content\r\n",
        }
    }
}

/// Sends until the server is gone: numbers that were acknowledged, and those that were sent.
#[expect(clippy::disallowed_types, reason = "a sender is another program")]
fn send(form: Form, mut stream: std::net::TcpStream, first: i64) -> (i64, i64) {
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let (mut durable, mut sent) = (first, first);
    for lots in 1.. {
        sent += LOT;
        if stream.write_all(form.lot(sent - LOT..sent, lots == 1).as_bytes()).is_err() {
            break;
        }
        let mut answer = String::new();
        if replies.read_line(&mut answer).is_err() || !form.is_acknowledged(&answer, lots) {
            assert!(!answer.ends_with('\n'), "{form:?}: {answer}");
            break;
        }
        let mut rest = String::new();
        while form == Form::Influx && !rest.ends_with("\r\n\r\n") {
            if replies.read_line(&mut rest).unwrap_or(0) == 0 {
                break;
            }
        }
        durable = sent;
    }
    (durable, sent)
}

/// Asserts that points are there once each, as they were sent, and all that the sender was told are
/// durable. Numbers of points, from which their times follow, were sent up to `next`.
fn check_points(
    form: Form,
    found: &[(i64, i64)],
    time: impl Fn(i64) -> i64,
    next: i64,
    durable: &[std::ops::Range<i64>],
) {
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "{form:?}: a point is there twice");
    for (at, number) in found {
        assert!(*at == time(*number) && (1..next).contains(number), "{form:?}: {number} at {at}");
    }
    let lost = durable.iter().cloned().flatten();
    let lost =
        lost.filter(|number| found.binary_search_by_key(&time(*number), |point| point.0).is_err());
    let acknowledged: i64 = durable.iter().map(|lot| lot.end - lot.start).sum();
    assert!(acknowledged > 0, "{form:?} was told nothing");
    assert_eq!(lost.count(), 0, "{form:?}: of {acknowledged} that were acknowledged");
}

#[test]
fn what_senders_of_every_kind_were_told_is_durable_survives_kill_9() {
    let place = block_on(Env::real().files().temporary_dir("plinth-series-kill")).unwrap();
    let dir = place.path().join("data");
    // By sender: the next number of its own, and all lots that it was told are durable.
    let mut next = [1; FORMS.len()];
    let mut durable: Vec<Vec<std::ops::Range<i64>>> = vec![Vec::new(); FORMS.len()];
    for round in 0..5 {
        let mut server = Running::server(&dir, round == 0);
        let told = Arc::new(Mutex::new(Vec::new()));
        let senders: Vec<_> = (0..)
            .zip(FORMS)
            .map(|(which, form): (usize, Form)| {
                let (stream, first, told) =
                    (server.connect_to(form.listener()), next[which], told.clone());
                Env::real().spawn("sender", async move {
                    let result = send(form, stream, first);
                    told.lock().unwrap().push((which, first, result));
                })
            })
            .collect();
        block_on(Env::real().sleep(Duration::from_millis(60 + 130 * round)));
        let id = server.child.id().to_string();
        Command::new("kill").args(["-9", &id]).status().unwrap();
        server.child.wait().unwrap();
        for sender in senders {
            sender.wait().unwrap();
        }
        for (which, first, (acknowledged, sent)) in told.lock().unwrap().drain(..) {
            durable[which].push(first..acknowledged);
            next[which] = sent;
        }
    }
    let db = Local::open(&dir).unwrap().into_database();
    let store = block_on(SeriesStore::open(&db)).unwrap();
    let points = |name: &str| -> Vec<(i64, i64)> {
        let points = block_on(async {
            store.series(name).await?.scan(.., Direction::Forward).await?.collect().await
        });
        points.unwrap().iter().map(|point| (point.time, point.value.as_f64() as i64)).collect()
    };
    let shared = points("shared s=x");
    for (which, form) in FORMS.into_iter().enumerate() {
        let own = points(&form.own());
        let is_shared = |time: i64| time / SECOND % FORMS.len() as i64 == form as i64;
        let theirs: Vec<(i64, i64)> =
            shared.iter().copied().filter(|(time, _)| is_shared(*time)).collect();
        type Time = Box<dyn Fn(i64) -> i64>;
        let mut found_at: Vec<(Vec<(i64, i64)>, Time)> =
            vec![(own, Box::new(|number| number * SECOND))];
        if form != Form::Influx {
            found_at.push((theirs, Box::new(move |number| form.shared_time(number))));
        }
        for (found, time) in found_at {
            check_points(form, &found, time, next[which], &durable[which]);
        }
    }
}

#[test]
fn dev_takes_points_and_says_how_to_send_one() {
    let server = Running::start("dev", &["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    assert!(server.said.contains(" opentsdb 127.0.0.1:"), "{}", server.said);
    let mut stream = server.connect();
    stream.write_all(b"+cpu.load host=b\n+20260101T000000\n+0.5\n+SYNC\n").unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    assert_eq!(reply, "+OK 1\r\n");
    // What is printed is to be pasted.
    if Command::new("curl").arg("--version").output().is_err() {
        println!("there is no curl on this machine: what is printed was not tried");
        return;
    }
    let commands: Vec<&str> =
        server.said.lines().map(str::trim).filter(|line| line.starts_with("curl ")).collect();
    let answers = commands.iter().map(|command| {
        let ran = Command::new("sh").args(["-c", command]).output().unwrap();
        assert!(ran.status.success(), "{command}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    });
    let answers: Vec<String> = answers.collect();
    assert!(answers.len() == 2 && answers[0].starts_with("HTTP/1.1 204"), "{answers:?}");
    assert!(answers[1].contains("cpu.load host=a,20260101T000000"), "{answers:?}");
}

#[test]
fn the_benchmark_measures_every_form_of_points_and_queries() {
    let server = Running::start("dev", &["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let ready = server.said.lines().find_map(|line| line.strip_prefix("ready ")).unwrap();
    let cluster_file = ready.split(' ').nth(1).unwrap();
    let forms =
        ["series-names", "series-rows", "series-dictionary", "series-opentsdb", "series-queries"];
    let place = block_on(Env::real().files().temporary_dir("plinth-series-bench-test")).unwrap();
    let json = place.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_plinth"))
        .args(["bench", "--rows", "1", "--seconds", "1", "--workload", &forms.join(",")])
        .args(["--cluster-file", cluster_file, "--json", json.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = block_on(Env::real().files().read(&json)).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let measured = report["workloads"].as_array().unwrap();
    let names: Vec<&str> =
        measured.iter().filter_map(|workload| workload["name"].as_str()).collect();
    assert_eq!(names, forms, "{report:#}");
    for workload in measured {
        assert!(workload["figures"][0]["value"].as_f64().unwrap() > 0.0, "{workload:#}");
    }
}
