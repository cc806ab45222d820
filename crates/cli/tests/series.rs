//! `kill -9` of a server that takes points in: each point that a session was told is durable is there, once.
//!
//! One sender writes rows of two series and asks for an acknowledgement now and then; the server is killed while it does, at another moment each
//! time, and started again on what is left. In the end the database is opened without a server and its points are counted.

use plinth::Database;
use plinth_env::{Env, block_on};
use plinth_series::{Direction, SeriesStore};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
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
        while !said.contains("series resp ") {
            assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
        }
        // It may say more, and shall not be held up.
        drop(Env::real().spawn("output", async move { drop(out.read_to_string(&mut String::new())) }));
        Self { child, said }
    }

    /// A server on a database; where it listened before, if there is one.
    fn server(dir: &Path, is_first: bool) -> Self {
        let dir = dir.to_str().unwrap();
        let listen: &[&str] = if is_first { &["--listen", "127.0.0.1:0"] } else { &[] };
        Self::start("server", &[&["--dir", dir], listen].concat())
    }

    #[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a sender is another program")]
    fn connect(&self) -> std::net::TcpStream {
        let line = self.said.lines().find_map(|line| line.strip_prefix("series resp ")).unwrap();
        std::net::TcpStream::connect(line.split(' ').next().unwrap()).unwrap()
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
    let db = Database::open(&dir).unwrap();
    let store = block_on(SeriesStore::open(&db)).unwrap();
    let times = |name: &str| -> Vec<i64> {
        let points =
            block_on(async { store.series(name).await?.scan(.., Direction::Forward).await?.collect().await });
        let points = points.unwrap();
        assert!(points.iter().all(|point| point.value.as_f64() == point.time as f64), "another's value");
        points.iter().map(|point| point.time).collect()
    };
    for name in ["a host=x", "b host=x"] {
        let found = times(name);
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "a point is there twice");
        let lost = acknowledged.iter().filter(|time| found.binary_search(time).is_err()).count();
        assert_eq!(lost, 0, "of {} that were acknowledged", acknowledged.len());
    }
}

#[test]
fn dev_takes_points_and_says_how_to_send_one() {
    let server = Running::start("dev", &["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    assert!(server.said.contains(" opentsdb 127.0.0.1:"), "{}", server.said);
    let mut stream = server.connect();
    stream.write_all(b"+cpu.load host=a\n+20260101T000000\n+0.5\n+SYNC\n").unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    assert_eq!(reply, "+OK 1\r\n");
}

#[test]
fn the_benchmark_measures_every_form_of_points_and_queries() {
    let server = Running::start("dev", &["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let ready = server.said.lines().find_map(|line| line.strip_prefix("ready ")).unwrap();
    let cluster_file = ready.split(' ').nth(1).unwrap();
    let forms = ["series-names", "series-rows", "series-dictionary", "series-opentsdb", "series-queries"];
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
    let names: Vec<&str> = measured.iter().filter_map(|workload| workload["name"].as_str()).collect();
    assert_eq!(names, forms, "{report:#}");
    for workload in measured {
        assert!(workload["figures"][0]["value"].as_f64().unwrap() > 0.0, "{workload:#}");
    }
}
