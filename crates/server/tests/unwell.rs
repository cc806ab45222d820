//! From what goes wrong on a disk, or hangs there, to everybody who looks: a probe, a monitoring
//! program, the console, `status` and `top` (which show the same document), and the log.
//!
//! Why it matters: a database is trusted for what it says when it is unwell. Each cause is made on
//! the disk of a simulated machine, beneath a server that runs, and each place is asked over its
//! sockets. A full disk: `full_disk.rs` of the pipeline.

mod common;
#[path = "../../pipeline/tests/common/heard.rs"]
mod heard;

use common::peer::Peer;
use heard::heard;
use plinth_client::Database;
use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Simulation};
use plinth_pipeline::{Compression, EngineKind, Node, NodeConfig, SsdSettings};
use plinth_server::{Page, Pages, Server, ServerConfig};
use plinth_types::{KeyRange, Result};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::Level;

const ENGINES: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];
const DIR: &str = "/db";
const ROW: usize = 4000;

/// Little memory, a short window and small files, so that tables, segments of the log and
/// checkpoints are made all the time.
fn config(engine: EngineKind) -> NodeConfig {
    let ssd = SsdSettings {
        compression: Compression::None,
        flush_after: Duration::from_millis(500),
        ..SsdSettings::with_memory(2 << 20)
    };
    let mut config =
        NodeConfig { engine, ssd, checkpoint_bytes: 256 << 10, ..NodeConfig::default() };
    if engine == EngineKind::Ssd {
        config.window = 50_000;
    }
    config.log.first_segment_bytes = 64 << 10;
    config.log.max_segment_bytes = 64 << 10;
    config
}

/// The same with one file for the log: a disk that gives no file another name doesn't concern it.
fn with_one_segment(engine: EngineKind) -> NodeConfig {
    let mut config = config(engine);
    config.log.first_segment_bytes = 64 << 20;
    config.log.max_segment_bytes = 64 << 20;
    config
}

/// A server that runs on a machine whose disk can be made to fail, and somebody who looks.
struct Place {
    sim: Simulation,
    machine: Env,
    looker: Env,
    node: Arc<Node>,
}

/// What everybody who looks is told.
struct Told {
    /// What a probe gets, and its words.
    health: (u32, String),
    /// Names of the messages, and their sentences.
    messages: Vec<(String, String)>,
    is_healthy: bool,
    /// The console's lamp, and its words.
    lamp: (String, String),
    metrics: String,
}

impl Place {
    fn new(seed: u64, config: NodeConfig) -> Self {
        let sim = Simulation::new(seed);
        let (machine, looker) = (sim.process("server"), sim.process("looker"));
        let node = sim.run_until(Node::open(&machine, Path::new(DIR), config)).unwrap();
        let place = Self { sim, machine, looker, node };
        let (node, listen, http) = (place.node.clone(), place.at(4500), place.at(8080));
        drop(place.machine.spawn("server", async move {
            let shown = node.clone();
            let metrics = Some(Page::new(move || shown.metrics_text()));
            let config = ServerConfig {
                listen: vec![listen],
                http: Some(http),
                pages: Pages { metrics, ..Pages::default() },
                ..ServerConfig::default()
            };
            let server = Server::start(Arc::new(node.endpoint()), config).await.expect("it starts");
            std::future::pending::<()>().await;
            drop(server);
        }));
        place.run(1);
        place
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.sim.ip(&self.machine), port)
    }

    fn run(&self, seconds: u64) {
        self.sim.run_for(Duration::from_secs(seconds));
    }

    fn database(&self) -> Database {
        Database::new(Arc::new(self.node.endpoint()))
    }

    fn put(&self, number: usize) -> Result<()> {
        let tr = self.database().create_transaction();
        tr.set(format!("row{number:05}"), [number as u8; ROW]);
        self.sim.run_until(tr.commit())
    }

    fn get(&self, number: usize) -> Result<()> {
        let tr = self.database().create_transaction();
        let found = self.sim.run_until(tr.get(format!("row{number:05}")))?;
        assert_eq!(found.as_deref(), Some(&[number as u8; ROW][..]), "row {number}");
        Ok(())
    }

    fn faults(&self, change: impl FnOnce(&mut FaultPlan)) {
        self.sim.update_faults(&self.machine, change);
    }

    /// The disk answers nothing that changes a file of this part of the database, or all.
    fn silence(&self, part: Option<&str>) {
        let dir = part.map(|part| PathBuf::from(format!("{DIR}/gen-1/{part}")));
        self.faults(|plan| plan.silent = dir);
    }

    /// Begins to put a row; how that ends.
    fn putting(&self, number: usize) -> Arc<OnceLock<Result<()>>> {
        let tr = self.database().create_transaction();
        tr.set(format!("row{number:05}"), [number as u8; ROW]);
        let ended = Arc::new(OnceLock::new());
        let ends = ended.clone();
        drop(self.machine.spawn("client", async move {
            let _is_first = ends.set(tr.commit().await);
        }));
        ended
    }

    /// The files of a part of the database, by name.
    fn files(&self, part: &str) -> Vec<(PathBuf, u64)> {
        let within = format!("{DIR}/gen-1/{part}");
        let files = self.sim.files(&self.machine).into_iter();
        files.filter(|(path, _)| path.to_string_lossy().starts_with(&within)).collect()
    }

    fn ask(&self, path: &str) -> (u32, String) {
        let asking = async {
            let mut peer = Peer(self.looker.sockets().connect(self.at(8080)).await.unwrap());
            peer.sent(&format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")).await;
            peer.everything().await
        };
        let answer = self.sim.run_until(asking);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn document(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask(path).1).unwrap()
    }

    /// What everybody is told at this moment.
    fn told(&self) -> Told {
        // A status is a second old at most.
        self.run(2);
        let (status, overview) = (self.document("/status"), self.document("/api/overview"));
        let word = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
        let messages = status["cluster"]["messages"].as_array().unwrap().iter();
        Told {
            health: self.ask("/health"),
            messages: messages
                .map(|told| (word(told, "name"), word(told, "description")))
                .collect(),
            is_healthy: status["client"]["database_status"]["healthy"] == true,
            lamp: (word(&overview["health"], "state"), word(&overview["health"], "words")),
            metrics: self.ask("/metrics").1,
        }
    }
}

impl Told {
    fn measured(&self, name: &str) -> f64 {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        self.metrics.lines().find_map(value).unwrap_or_else(|| panic!("no {name}"))
    }

    /// The sentence of a message.
    fn message(&self, name: &str) -> &str {
        let found = self.messages.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("no {name}: {:?}", self.messages), |(_, words)| words)
    }

    fn assert_well(&self) {
        let Self { health, messages, is_healthy, lamp, .. } = self;
        assert_eq!((health.0, &*health.1, *is_healthy), (200, "serving\n", true), "{messages:?}");
        assert_eq!((&*lamp.0, messages.len()), ("serving", 0), "{messages:?}");
        assert_eq!(self.measured("plinth_available"), 1.0);
    }

    /// Something is to be looked at, and commits are taken all the same.
    fn assert_unwell(&self, name: &str) {
        assert_eq!((self.health.0, self.is_healthy), (200, false), "{:?}", self.messages);
        assert_eq!(self.lamp, ("unwell".to_owned(), self.message(name).to_owned()));
        assert_eq!(self.measured("plinth_available"), 1.0);
    }

    /// Commits are refused for this cause.
    fn assert_refusing(&self, cause: &str) {
        self.assert_taking_none(cause, "commits are refused: ");
    }

    /// The same, or they wait for it.
    fn assert_taking_none(&self, cause: &str, words: &str) {
        assert_eq!((self.health.0, self.is_healthy), (503, false), "{:?}", self.messages);
        assert!(self.health.1.starts_with(words), "{:?}", self.health);
        assert_eq!(self.measured("plinth_available"), 0.0);
        assert_eq!(self.measured(&format!("plinth_refusing{{cause=\"{cause}\"}}")), 1.0);
    }
}

/// How many lines of the log say this.
fn count(log: &[String], what: &str) -> usize {
    log.iter().filter(|line| line.contains(what)).count()
}

/// What is said of tables that can't be written, until commits are refused and after.
const OF_TABLES: [&str; 4] = [
    "what is in memory can't be moved into tables",
    "tables are written and merged again",
    "commits are refused",
    "commits are not refused any more",
];

fn assert_each_once(log: &[String], said: &[&str]) {
    for what in said {
        assert_eq!(count(log, what), 1, "{what}: {log:#?}");
    }
}

/// Flips a bit in the middle of the file, and gives its name.
fn damage(place: &Place, (path, len): &(PathBuf, u64)) -> String {
    place.sim.flip_bit(&place.machine, path, len / 2).unwrap();
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn a_damaged_table_that_a_read_met_with_is_told_everywhere() {
    let place = Place::new(1, config(EngineKind::Ssd));
    (0..200).for_each(|number| place.put(number).unwrap());
    place.run(5);
    place.told().assert_well();
    let (name, log) = heard(Level::INFO, || {
        let tables = place.files("tables/");
        let name = damage(&place, tables.iter().max_by_key(|(_, len)| *len).unwrap());
        let errors: Vec<_> = (0..200).filter_map(|number| place.get(number).err()).collect();
        assert!(!errors.is_empty(), "nobody read the block of {name}");
        for error in errors {
            assert!(error.code() == 1522 && error.to_string().contains(&name), "{error}");
        }
        let told = place.told();
        told.assert_unwell("file_damaged");
        assert!(told.message("file_damaged").contains(&name), "{:?}", told.messages);
        assert!(told.measured("plinth_damaged_blocks_total") >= 1.0);
        place.run(30);
        name
    });
    assert_eq!(count(&log, "a damaged file was met with"), 1, "{log:#?}");
    assert_eq!(count(&log, "no damage is met with at the moment"), 1, "{log:#?}");
    assert!(count(&log, &name) >= 1, "{log:#?}");
}

/// Nothing told of it but the error of whoever read the stream: a log is written and hardly ever
/// read, so its damage was known at the next start.
#[test]
fn a_damaged_log_that_a_stream_met_with_is_told_everywhere() {
    for engine in ENGINES {
        let place = Place::new(2, config(engine));
        let database = place.database();
        let all = vec![KeyRange::new("", "\u{7f}")];
        place.sim.run_until(database.register_changes("all", all, None)).unwrap();
        (0..100).for_each(|number| place.put(number).unwrap());
        place.run(1);
        place.told().assert_well();
        let ((), log) = heard(Level::INFO, || {
            let mut segments = place.files("log/segment-");
            segments.sort();
            assert!(segments.len() > 3, "{segments:?}");
            let name = damage(&place, &segments[1]);
            let mut consumer = place.sim.run_until(database.consume_changes("all")).unwrap();
            let error = (0..100).find_map(|_| place.sim.run_until(consumer.next()).err()).unwrap();
            assert!(error.code() == 1522 && error.to_string().contains(&name), "{error}");
            let told = place.told();
            told.assert_unwell("file_damaged");
            assert!(told.message("file_damaged").contains(&name), "{:?}", told.messages);
            assert!(told.measured("plinth_damaged_blocks_total") >= 1.0);
            place.run(30);
        });
        assert_eq!(count(&log, "a damaged file was met with"), 1, "{engine:?}: {log:#?}");
        assert_eq!(count(&log, "no damage is met with at the moment"), 1, "{engine:?}: {log:#?}");
    }
}

/// Puts rows until they are refused, also behind a while in which older versions go.
fn until_refused(place: &Place) {
    for number in 50..5000 {
        if place.put(number).is_err() {
            place.run(2);
            if place.put(number).is_err() {
                return;
            }
        }
    }
    panic!("20 MB went into 2 MiB of memory");
}

#[test]
fn a_flush_that_fails_is_told_everywhere_before_commits_are_refused_for_it_and_then() {
    let place = Place::new(3, with_one_segment(EngineKind::Ssd));
    (0..50).for_each(|number| place.put(number).unwrap());
    place.run(5);
    place.told().assert_well();
    let ((), log) = heard(Level::INFO, || {
        // The manifest is replaced by a new one.
        place.faults(|plan| plan.rename.fail = 1.0);
        (0..50).for_each(|number| place.put(number).unwrap());
        place.run(5);
        let told = place.told();
        told.assert_unwell("flush_failing");
        assert_eq!(told.measured("plinth_flush_failing"), 1.0);
        until_refused(&place);
        let told = place.told();
        told.assert_refusing("flush_failing");
        assert_eq!(told.lamp, ("refusing".to_owned(), told.message("commits_refused").to_owned()));
        assert!(told.measured("plinth_commits_refused_total{cause=\"flush_failing\"}") >= 1.0);
        assert!((0..50).all(|number| place.get(number).is_ok()), "reads go on");
        place.faults(|plan| plan.rename.fail = 0.0);
        place.run(30);
        place.put(0).unwrap();
        place.told().assert_well();
    });
    assert_each_once(&log, &OF_TABLES);
}

/// Another test's thread, which has no log, had met the same event first.
#[test]
#[expect(clippy::disallowed_methods, reason = "the harness' threads, which nothing simulates")]
fn an_event_that_another_thread_has_met_is_heard() {
    let event = || tracing::info!("what two threads meet");
    let ((), log) = heard(Level::INFO, || {
        std::thread::spawn(event).join().unwrap();
        event();
    });
    assert_eq!(count(&log, "what two threads meet"), 1, "{log:#?}");
}

#[test]
fn a_checkpoint_that_fails_is_told_everywhere_and_that_they_go_on() {
    let place = Place::new(4, with_one_segment(EngineKind::Memory));
    place.told().assert_well();
    let ((), log) = heard(Level::INFO, || {
        place.faults(|plan| plan.rename.fail = 1.0);
        for _ in 0..3 {
            (0..200).for_each(|number| place.put(number).unwrap());
            place.run(12);
        }
        let told = place.told();
        told.assert_unwell("checkpoint_failing");
        let failures = told.measured("plinth_checkpoint_failures_total");
        assert!(failures >= 2.0, "{failures} checkpoints failed");
        place.faults(|plan| plan.rename.fail = 0.0);
        place.run(12);
        let told = place.told();
        told.assert_well();
        assert!(told.measured("plinth_checkpoints_total") >= 1.0);
    });
    assert_eq!(count(&log, "a checkpoint could not be written"), 1, "{log:#?}");
    assert_eq!(count(&log, "checkpoints are written again"), 1, "{log:#?}");
}

#[test]
fn a_disk_that_is_low_is_told_everywhere_and_once_in_the_log() {
    for engine in ENGINES {
        let place = Place::new(5, config(engine));
        place.told().assert_well();
        let ((), log) = heard(Level::INFO, || {
            // A small disk that has room is not low.
            let left = || {
                let told = place.told();
                told.measured("plinth_disk_free_bytes") - told.measured("plinth_disk_kept_bytes")
            };
            place.faults(|plan| plan.capacity = Some(100 << 20));
            place.run(5);
            place.told().assert_well();
            let taken = f64::from(100 << 20) - left();
            assert!(taken < 25e6, "{taken} bytes are used or kept");
            // As the alert has it.
            let low = place.told().measured("plinth_disk_low_bytes");
            assert!(low > 0.0 && left() > low, "{low} of {}", left());
            place.faults(|plan| plan.capacity = Some((1.25 * taken) as u64));
            place.run(5);
            place.told().assert_unwell("low_disk_space");
            assert!(left() < taken / 3.0, "{} bytes are left to rows", left());
            (0..100).for_each(|number| place.put(number).unwrap());
            place.run(60);
            place.faults(|plan| plan.capacity = None);
            place.run(5);
            place.told().assert_well();
        });
        assert_eq!(count(&log, "the disk has little room left"), 1, "{engine:?}: {log:#?}");
        assert_eq!(count(&log, "the disk is full"), 0, "{engine:?}: {log:#?}");
    }
}

#[test]
fn a_full_disk_is_told_everywhere_while_it_is_full_and_no_longer() {
    for engine in ENGINES {
        let place = Place::new(10, config(engine));
        (0..100).for_each(|number| place.put(number).unwrap());
        place.run(5);
        let ((), log) = heard(Level::INFO, || {
            // Others take all that is free.
            let files = place.sim.files(&place.machine);
            let used = files.iter().map(|(_, len)| len.next_multiple_of(4096)).sum();
            place.faults(|plan| plan.capacity = Some(used));
            place.run(5);
            assert_eq!(place.put(0).unwrap_err().code(), 1514, "{engine:?}");
            let told = place.told();
            told.assert_refusing("disk_full");
            assert_eq!(
                told.lamp,
                ("refusing".to_owned(), told.message("commits_refused").to_owned())
            );
            assert!(told.messages.iter().any(|(name, _)| name == "low_disk_space"));
            assert!(told.measured("plinth_commits_refused_total{cause=\"disk_full\"}") >= 1.0);
            assert!((0..100).all(|number| place.get(number).is_ok()), "reads go on");
            place.faults(|plan| plan.capacity = None);
            place.run(12);
            place.put(0).unwrap();
            place.told().assert_well();
        });
        assert_each_once(&log, &["the disk is full: commits", "the disk has room again"]);
    }
}

#[test]
fn a_disk_that_doesnt_sync_is_told_everywhere_and_nothing_is_taken_any_more() {
    for engine in ENGINES {
        let place = Place::new(6, config(engine));
        let ((), log) = heard(Level::INFO, || {
            place.faults(|plan| plan.sync.fail = 1.0);
            place.put(0).unwrap_err();
            place.faults(|plan| plan.sync.fail = 0.0);
            let told = place.told();
            told.assert_refusing("failed");
            assert_eq!(told.lamp.0, "failed");
            let why = told.message("storage_failure");
            assert!(told.lamp.1.contains(why) && why.contains("sync"), "{:?}", told.messages);
        });
        assert_eq!(count(&log, "database failed"), 1, "{engine:?}: {log:#?}");
    }
}

/// A log that waited for its disk said nothing to anybody: commits hung, and `/health` said
/// `serving`.
#[test]
fn a_log_that_waits_for_its_disk_is_told_everywhere_until_the_disk_answers() {
    for engine in ENGINES {
        let place = Place::new(7, with_one_segment(engine));
        place.put(0).unwrap();
        place.run(5);
        place.told().assert_well();
        let ((), log) = heard(Level::INFO, || {
            place.silence(Some("log"));
            let waits = place.putting(1);
            place.run(1);
            place.told().assert_well();
            place.run(5);
            let told = place.told();
            told.assert_taking_none(
                "disk_silent",
                "no commit is taken while the disk does not answer: ",
            );
            let words = told.message("disk_silent");
            assert!(words.contains("log/segment-") && words.contains("not answered"), "{words}");
            assert_eq!(told.lamp, ("refusing".to_owned(), words.to_owned()));
            assert!(told.measured("plinth_disk_silent_seconds") >= 5.0);
            assert!(place.get(0).is_ok(), "reads go on");
            // Nobody knows how long: the same after a minute.
            place.run(60);
            place.told().assert_taking_none(
                "disk_silent",
                "no commit is taken while the disk does not answer: ",
            );
            assert_eq!(waits.get(), None, "nothing is acknowledged meanwhile, nothing given up");
            place.silence(None);
            place.run(1);
            assert_eq!(waits.get(), Some(&Ok(())));
            place.put(2).unwrap();
            let told = place.told();
            told.assert_well();
            assert!(told.measured("plinth_disk_silent_seconds") < 1.0);
            place.run(15);
        });
        assert_eq!(count(&log, "the disk does not answer"), 1, "{engine:?}: {log:#?}");
        assert_eq!(count(&log, "the disk answers again"), 1, "{engine:?}: {log:#?}");
        assert_eq!(count(&log, "database failed"), 0, "{engine:?}: {log:#?}");
        place.get(1).unwrap();
    }
}

/// The same where nobody commits: an idle node writes to its log all the same, and whoever comes
/// next would wait.
#[test]
fn a_log_that_waits_for_its_disk_is_told_while_nobody_commits() {
    let place = Place::new(8, with_one_segment(EngineKind::Memory));
    place.put(0).unwrap();
    place.silence(Some("log"));
    place.run(120);
    let told = place.told();
    told.assert_taking_none("disk_silent", "no commit is taken while the disk does not answer: ");
    place.silence(None);
    place.run(5);
    place.told().assert_well();
}

#[test]
fn a_flush_that_waits_for_its_disk_is_told_everywhere_until_the_disk_answers() {
    let place = Place::new(9, with_one_segment(EngineKind::Ssd));
    (0..50).for_each(|number| place.put(number).unwrap());
    place.run(5);
    place.told().assert_well();
    let ((), log) = heard(Level::INFO, || {
        place.silence(Some("tables"));
        (0..50).for_each(|number| place.put(number).unwrap());
        place.run(5);
        place.told().assert_well();
        place.run(15);
        let told = place.told();
        told.assert_unwell("flush_failing");
        let words = told.message("flush_failing");
        assert!(words.contains("/tables/") && words.contains("not answered"), "{words}");
        assert_eq!(told.measured("plinth_flush_failing"), 1.0);
        assert!(told.measured("plinth_disk_silent_seconds") >= 15.0);
        place.put(0).unwrap();
        until_refused(&place);
        let told = place.told();
        told.assert_taking_none(
            "flush_failing",
            "no commit is taken while the disk does not answer: ",
        );
        assert_eq!(told.lamp, ("refusing".to_owned(), told.message("commits_refused").to_owned()));
        assert!((0..50).all(|number| place.get(number).is_ok()), "reads go on");
        place.silence(None);
        place.run(30);
        place.put(0).unwrap();
        place.told().assert_well();
    });
    assert_each_once(&log, &OF_TABLES);
}

/// Commits that met with a full window waited for the disk, as long as that took.
#[test]
fn a_commit_that_a_hanging_flush_leaves_no_room_for_is_refused() {
    let place = Place::new(10, with_one_segment(EngineKind::Ssd));
    place.silence(Some("tables"));
    let began = place.machine.now();
    let ends = |number| {
        let putting = place.putting(number);
        while putting.get().is_none() {
            place.sim.run_for(Duration::from_millis(1));
            let took = place.machine.now().saturating_sub(began);
            assert!(took < Duration::from_secs(60), "row {number} waits for {took:?}");
        }
        putting.get().cloned().expect("it has ended")
    };
    let refused = (0..5000).find_map(|number| ends(number).err()).unwrap();
    assert_eq!(refused.code(), 1521, "{refused}");
    assert!(refused.to_string().contains("/tables/"), "{refused}");
    place.silence(None);
    place.run(30);
    place.put(0).unwrap();
    place.told().assert_well();
}

#[test]
fn a_checkpoint_that_waits_for_its_disk_is_told_everywhere_until_the_disk_answers() {
    let place = Place::new(11, with_one_segment(EngineKind::Memory));
    place.told().assert_well();
    let ((), log) = heard(Level::INFO, || {
        place.silence(Some("checkpoint"));
        for _ in 0..3 {
            (0..200).for_each(|number| place.put(number).unwrap());
        }
        place.run(20);
        let told = place.told();
        told.assert_unwell("checkpoint_failing");
        let words = told.message("checkpoint_failing");
        assert!(words.contains("/checkpoint/") && words.contains("not answered"), "{words}");
        place.put(0).unwrap();
        place.silence(None);
        place.run(12);
        let told = place.told();
        told.assert_well();
        assert!(told.measured("plinth_checkpoints_total") >= 1.0);
    });
    assert_eq!(count(&log, "the disk does not answer"), 1, "{log:#?}");
    assert_eq!(count(&log, "the disk answers again"), 1, "{log:#?}");
    assert_eq!(count(&log, "database failed"), 0, "{log:#?}");
}
