//! Every workload runs, with few rows and for an instant, and reports what it did: a benchmark that
//! nobody runs between releases would rot. What needs more than a client sees gets a host that does
//! it in this process; none of the figures means anything here, and none is looked at.

use plinth::EngineKind;
use plinth::backup::restore::Loader;
use plinth_bench::host::{COMMITS, Crash, Host, Server, Waits};
use plinth_bench::workloads::{self, ALL, Workload};
use plinth_bench::{Bench, Error, Outcome, Progress, Provenance, Settings, Style};
use plinth_client::Database;
use plinth_env::{Env, TemporaryDir, block_on};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A database in a directory, and what can be done around it without a second process.
struct Local(plinth::Local, Engine);

/// What was written moves on to tables as soon as that; with the usual window a small memory would
/// have the load wait for it.
const WINDOW: Duration = Duration::from_millis(200);

/// The engine of the databases made beside it.
#[derive(Clone, Copy, PartialEq)]
enum Engine {
    Memory,
    Ssd,
}

impl Host for Local {
    fn checkpoint(&self) -> plinth::Result<()> {
        self.0.checkpoint().map(drop)
    }

    fn take_longest_waits(&self) -> Waits {
        let waits = self.0.take_longest_waits();
        Waits { sync: waits.sync, work: waits.work, checkpoint_step: waits.checkpoint_step }
    }

    fn crash(
        &self,
        directory: &Path,
        rows: u64,
        transactions: u64,
        memory: Option<u64>,
    ) -> plinth::Result<Crash> {
        let local = self.builder(directory, memory).open()?;
        let database = local.database().clone();
        Bench::prepare(
            database.clone(),
            directory.into(),
            tiny(rows),
            Progress::Silent,
            Arc::default(),
        )
        .unwrap();
        if self.1 == Engine::Memory {
            local.checkpoint()?;
        }
        // One after the other they take a sync each.
        let transactions = transactions.min(500);
        for _ in 0..transactions {
            database.transact_blocking(|transaction| {
                transaction.add(COMMITS, 1_u64.to_le_bytes());
                Ok(())
            })?;
        }
        drop((local, database));
        let report = block_on(plinth::check(&Env::real(), directory))?;
        let (checkpoint_bytes, log_bytes) =
            (report.checkpoint_bytes + report.table_bytes, report.log_bytes);
        Ok(Crash { acknowledged: transactions, checkpoint_bytes, log_bytes })
    }

    fn create(&self, directory: &Path, memory: Option<u64>) -> plinth::Result<Database> {
        if memory.is_some() && self.1 == Engine::Memory {
            return Err(plinth::Error::unsupported_operation());
        }
        Ok(self.builder(directory, memory).must_be_new().open()?.into_database())
    }

    fn open(&self, directory: &Path, memory: Option<u64>) -> plinth::Result<Database> {
        Ok(self.builder(directory, memory).must_exist().open()?.into_database())
    }

    fn loader(
        &self,
        directory: &Path,
        version: plinth::Version,
    ) -> plinth::Result<Box<dyn Loader>> {
        Ok(Box::new(block_on(self.builder(directory, None).loader(version))?))
    }

    fn serve(&self, directory: &Path) -> plinth::Result<Server> {
        // What a server would have: a database of its own.
        Ok(Server { database: self.create(directory, None)?, process: Box::new(()) })
    }
}

impl Local {
    fn builder(&self, directory: &Path, memory: Option<u64>) -> plinth::Builder {
        let engine = if self.1 == Engine::Ssd { EngineKind::Ssd } else { EngineKind::Memory };
        let builder = plinth::Builder::new(directory).engine(engine).window(WINDOW);
        memory.into_iter().fold(builder, plinth::Builder::memory_bytes)
    }
}

fn database() -> Database {
    plinth::Local::in_memory().unwrap().into_database()
}

fn tiny(rows: u64) -> Settings {
    let (time, rest) = (Duration::from_millis(200), Duration::from_millis(1));
    Settings { rows, clients: Some(5), threads: Some(2), time, rest, seed: 42, memory: None }
}

fn directory() -> TemporaryDir {
    block_on(Env::real().files().temporary_dir("plinth-bench-test")).unwrap()
}

fn prepare(
    database: &Database,
    directory: &TemporaryDir,
    settings: Settings,
) -> Result<Bench, Error> {
    Bench::prepare(
        database.clone(),
        directory.path().to_owned(),
        settings,
        Progress::Silent,
        Arc::default(),
    )
}

#[test]
fn the_stream_that_is_measured_delivers_every_commit() {
    let (directory, files) = (directory(), directory());
    let local = plinth::Local::open(files.path()).unwrap();
    let bench = prepare(local.database(), &directory, tiny(500)).unwrap();
    let changes = ALL.iter().find(|workload| workload.name == "changes").unwrap();
    let outcome = bench.run_one(changes).unwrap();
    assert_eq!(outcome.to_json()["not_delivered"], 0, "{:?}", outcome.notes);
    assert!(bench.database.list_changes().wait().unwrap().is_empty(), "no stream is left");
}

/// Runs a workload. Where nothing was committed in so short a time the machine has too much to do:
/// a longer one is taken.
fn run_one(bench: &mut Bench, workload: &Workload) -> Result<Outcome, Error> {
    let is_idle = |outcome: &Outcome| {
        outcome.measurement.as_ref().is_some_and(|measured| measured.tally.transactions == 0)
    };
    loop {
        let outcome = bench.run_one(workload);
        if !outcome.as_ref().is_ok_and(is_idle) || bench.settings.time > Duration::from_secs(10) {
            return outcome;
        }
        bench.settings.time *= 4;
    }
}

/// Whether a workload may say that it can't run in this process.
fn may_be_skipped(name: &str) -> bool {
    match name {
        // Not every system says how much memory a process takes, and not every engine can do with
        // less.
        "memory" | "larger" | "budget" | "uncached" => true,
        // They need servers as processes: `cli`'s tests run them.
        "failover" | "catch-up" | "three-nodes" => true,
        // A server takes them in: `cli`'s tests run them against one.
        name => name.starts_with("series-"),
    }
}

/// What some workloads say of themselves.
fn check_details(name: &str, outcome: &Outcome) {
    let json = outcome.to_json();
    assert!(json["name"] == name);
    match name {
        "backup" => {
            let bytes = |name: &str| json["backup"][name].as_u64().unwrap();
            let (written, raw) =
                (bytes("log_keys_and_values"), bytes("log_bytes_before_compression"));
            assert!(written > 0 && (written..2 * written).contains(&raw), "{}", json["backup"]);
        }
        "dr" => assert_eq!(json["not_arrived"], 0, "{:?}", outcome.notes),
        _ => {}
    }
}

#[test]
fn every_workload_runs_and_says_what_it_did() {
    let (directory, files) = (directory(), directory());
    let local = plinth::Local::open(files.path()).unwrap();
    let mut bench = prepare(local.database(), &directory, tiny(3_000)).unwrap();
    bench.host = Some(Arc::new(Local(local, Engine::Memory)));
    assert_eq!(bench.load.as_ref().unwrap().rows, 3_000);
    for workload in ALL {
        // This one is sixty times as long as the others.
        bench.settings.time =
            Duration::from_millis(if workload.name == "sustained" { 5 } else { 100 });
        let outcome = match run_one(&mut bench, workload) {
            Err(Error::Skipped(_)) if may_be_skipped(workload.name) => continue,
            outcome => outcome.unwrap_or_else(|error| panic!("{}: {error}", workload.name)),
        };
        assert_eq!(outcome.name, workload.name);
        assert!(!outcome.comparable, "3,000 rows are not what the bounds are for");
        assert!(outcome.figures.iter().all(|figure| figure.value.is_finite()), "{outcome:?}");
        let Some(measured) = &outcome.measurement else { continue };
        assert!(measured.tally.transactions > 0 && measured.rate() > 0.0, "{outcome:?}");
        assert!(outcome.figures[0].value > 0.0 || workload.name == "checkpoint", "{outcome:?}");
        let latency = measured.tally.latency();
        assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max, "{latency:?}");
        let reads = ![
            "write1",
            "write2",
            "write3",
            "write-1000",
            "cluster-write",
            "sustained",
            "checkpoint",
            "backup",
            "changes",
            "dr",
        ]
        .contains(&workload.name)
            && workload.name != "adjacent-writes";
        assert_eq!(measured.tally.hash != 0, reads, "{}: what is read is hashed", workload.name);
        let one_client = ["write1", "write2", "checkpoint"].contains(&workload.name);
        // Some are about the number of clients, or have none.
        let own = [
            "changes",
            "dr",
            "concurrency",
            "latency",
            "read-latency",
            "commit-latency",
            "transaction-latency",
        ];
        if !own.contains(&workload.name) {
            assert_eq!(measured.clients, if one_client { 1 } else { 5 }, "{}", workload.name);
        }
        for curve in &outcome.curves {
            let points = || curve.series.iter().flat_map(|series| &series.points);
            assert!(points().count() > 2 && points().all(|point| point.1.is_finite()), "{curve:?}");
        }
        check_details(workload.name, &outcome);
    }
    assert!(bench.database.list_changes().wait().unwrap().is_empty(), "no stream is left");
    let left = block_on(bench.env.files().list(directory.path())).unwrap();
    assert!(left.is_empty(), "a calibrator left {left:?}");
}

/// These look at what an engine on a disk does, and are skipped with any other.
#[test]
fn what_is_about_data_larger_than_memory_runs_on_tables() {
    const MEMORY: u64 = 16 << 20;
    let files = directory();
    let builder = plinth::Builder::new(files.path()).engine(EngineKind::Ssd).window(WINDOW);
    let local = builder.memory_bytes(MEMORY).open().unwrap();
    let settings = Settings { memory: Some(MEMORY), ..tiny(400_000) };
    let mut bench = prepare(local.database(), &files, settings).unwrap();
    assert!(bench.engine == "ssd" && bench.dataset.bytes() > MEMORY);
    bench.host = Some(Arc::new(Local(local, Engine::Ssd)));
    for workload in workloads::select(&["larger", "budget", "uncached", "restart"]).unwrap() {
        let outcome =
            bench.run_one(workload).unwrap_or_else(|error| panic!("{}: {error}", workload.name));
        let value = |what: &str| {
            let figure = outcome.figures.iter().find(|figure| figure.what.starts_with(what));
            figure.unwrap_or_else(|| panic!("no {what} in {outcome:?}")).value
        };
        assert!(outcome.figures.iter().all(|figure| figure.value.is_finite()), "{outcome:?}");
        if workload.name == "restart" {
            assert!(value("until the first answer") > 0.0);
            let tables = outcome.to_json()["restart"]["checkpoint_bytes"].as_u64();
            assert!(tables.is_some_and(|bytes| bytes > MEMORY), "rows are in tables: {outcome:?}");
            continue;
        }
        if workload.name == "uncached" {
            assert!(outcome.figures[0].value > 0.0 && value("device reads/s") > 0.0, "{outcome:?}");
            continue;
        }
        let (writes, reads) =
            (value("bytes written to tables for each flushed"), value("device reads an uncached"));
        // What is being flushed when the time is up is counted, and not all written yet.
        assert!(writes > 0.0 && reads > 0.5, "{outcome:?}");
        if workload.name == "budget" {
            for what in
                ["uncached reads, of the disk's own rate", "device reads/s", "random pages/s"]
            {
                assert!(value(what) > 0.0, "{what}: {outcome:?}");
            }
        }
    }
}

#[test]
fn what_needs_its_host_is_skipped_without_one() {
    let directory = directory();
    let bench = prepare(&database(), &directory, tiny(300)).unwrap();
    let report = bench
        .run(
            &workloads::select(&[
                "checkpoint",
                "restart",
                "restore",
                "dr",
                "failover",
                "catch-up",
                "three-nodes",
            ])
            .unwrap(),
            Provenance::default(),
        )
        .unwrap();
    assert!(report.outcomes.is_empty() && report.skipped.len() == 7, "{:?}", report.skipped);
}

#[test]
fn a_restart_that_lost_a_commit_is_an_error_and_no_figure() {
    struct Forgetful(Local);
    impl Host for Forgetful {
        fn checkpoint(&self) -> plinth::Result<()> {
            self.0.checkpoint()
        }
        fn take_longest_waits(&self) -> Waits {
            self.0.take_longest_waits()
        }
        fn crash(
            &self,
            directory: &Path,
            rows: u64,
            transactions: u64,
            memory: Option<u64>,
        ) -> plinth::Result<Crash> {
            let crash = self.0.crash(directory, rows, transactions, memory)?;
            Ok(Crash { acknowledged: crash.acknowledged + 1, ..crash })
        }
        fn create(&self, directory: &Path, memory: Option<u64>) -> plinth::Result<Database> {
            self.0.create(directory, memory)
        }
        fn open(&self, directory: &Path, memory: Option<u64>) -> plinth::Result<Database> {
            self.0.open(directory, memory)
        }
        fn loader(
            &self,
            directory: &Path,
            version: plinth::Version,
        ) -> plinth::Result<Box<dyn Loader>> {
            self.0.loader(directory, version)
        }
        fn serve(&self, directory: &Path) -> plinth::Result<Server> {
            self.0.serve(directory)
        }
    }
    let directory = directory();
    let mut bench = prepare(&database(), &directory, tiny(300)).unwrap();
    bench.host =
        Some(Arc::new(Forgetful(Local(plinth::Local::in_memory().unwrap(), Engine::Memory))));
    let [restart] = workloads::select(&["restart"]).unwrap()[..] else { panic!("one workload") };
    let error = bench.run_one(restart).unwrap_err().to_string();
    assert!(
        error.contains("31 commits were acknowledged") && error.contains("30 are there"),
        "{error}"
    );
}

#[test]
fn a_report_has_the_table_the_set_up_and_everything_in_json() {
    let directory = directory();
    let bench = prepare(&database(), &directory, tiny(500)).unwrap();
    let provenance = Provenance {
        version: "1.2.3".to_owned(),
        commit: "abc".to_owned(),
        command: "plinth bench --rows 500".to_owned(),
        engine: "memory".to_owned(),
    };
    let report = bench.run(&workloads::select(&["write3", "read"]).unwrap(), provenance).unwrap();
    for style in [Style::Plain, Style::Markdown, Style::Colours] {
        let text = report.text(style);
        for word in [
            "write3",
            "read",
            "500 rows",
            "abc",
            "plinth bench --rows 500",
            "46.0 k",
            "FoundationDB's guide",
        ] {
            assert!(text.contains(word), "no `{word}` in\n{text}");
        }
    }
    let json = report.to_json();
    assert_eq!((&json["commit"], &json["settings"]["rows"]), (&"abc".into(), &500.into()));
    let read = &json["workloads"][1];
    assert_eq!(
        (&read["name"], &read["figures"][0]["published"]),
        (&"read".into(), &305_000.0.into())
    );
    assert!(read["figures"][0]["required_reached"].is_null(), "500 rows are not judged");
    assert!(read["measurement"]["latency"]["p99_us"].as_f64().is_some_and(|micros| micros > 0.0));
    assert!(report.json_text().ends_with("}\n"));
    let page = plinth_bench::page(&[report.clone(), report]);
    assert!(
        page.contains("write3")
            && page.contains("plinth bench --rows 500")
            && page.ends_with("</html>\n")
    );
}

#[test]
fn rows_that_are_there_are_used_again_and_other_data_is_left_alone() {
    let directory = directory();
    let loaded = database();
    assert!(prepare(&loaded, &directory, tiny(300)).unwrap().load.is_some());
    assert!(prepare(&loaded, &directory, tiny(300)).unwrap().load.is_none());
    let error = prepare(&loaded, &directory, tiny(200)).err().unwrap().to_string();
    assert!(error.contains("--rows 300"), "{error}");

    let other = database();
    let transaction = other.create_transaction();
    transaction.set("mine", "precious");
    transaction.commit().wait().unwrap();
    let error = prepare(&other, &directory, tiny(300)).err().unwrap().to_string();
    assert!(error.contains("another directory"), "{error}");
    let rows = other.transact_blocking(|transaction| {
        let all = plinth_client::RangeOptions::from(&b""[..]..&b"\xff"[..]);
        Ok(transaction.get_range(all).wait()?.rows.len())
    });
    assert_eq!(rows, Ok(1));
}

#[test]
fn a_run_with_no_rows_or_too_many_is_refused() {
    for rows in [0, plinth_bench::MAX_ROWS + 1] {
        let error = prepare(&database(), &directory(), tiny(rows)).err().unwrap().to_string();
        assert!(error.contains("number of rows"), "{error}");
    }
}

#[test]
fn a_stop_ends_a_run_early() {
    let directory = directory();
    let bench = prepare(
        &database(),
        &directory,
        Settings { time: Duration::from_secs(3_600), ..tiny(300) },
    )
    .unwrap();
    let stop = bench.stop.clone();
    let timer = bench.env.call_at(bench.env.now() + Duration::from_millis(20), move || {
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let report =
        bench.run(&workloads::select(&["read", "write1"]).unwrap(), Provenance::default()).unwrap();
    assert_eq!(report.skipped, ["read", "write1"].map(|name| (name, "interrupted".to_owned())));
    drop(timer);
}
