//! A file system of a few megabytes, of its own: what `full_disk.rs` has in simulation, with the
//! real one's words and its real room.
//!
//! Takes the right to mount (root, on Linux). Without it nothing is tried, and a line says so.
#![cfg(target_os = "linux")]

mod common;

use common::*;
use plinth_client::Endpoint as _;
use plinth_env::{Env, Open, TemporaryDir, block_on, is_disk_full};
use plinth_pipeline::{Compression, EngineKind, InProcess, Node, NodeConfig, SsdSettings};
use plinth_types::{MutationType as M, Result};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How often rows of 90 kB are overwritten. With `ssd` each waits for merges to make room.
fn overwrites(engine: EngineKind) -> u64 {
    match engine {
        EngineKind::Memory => 2500,
        EngineKind::Ssd => 500,
    }
}

/// A file system in memory, gone with the value.
struct SmallDisk {
    dir: TemporaryDir,
}

impl SmallDisk {
    fn new(mebibytes: u64) -> Option<Self> {
        let dir = block_on(Env::real().files().temporary_dir("plinth-small-disk")).unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(dir.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { dir });
        }
        println!("skipped: a file system of its own takes the right to mount");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

async fn open(dir: &Path, engine: EngineKind) -> InProcess {
    let ssd = SsdSettings { compression: Compression::None, ..SsdSettings::with_memory(64 << 20) };
    let config = NodeConfig { engine, ssd, ..NodeConfig::default() };
    Node::open(&Env::real(), dir, config).await.unwrap().endpoint()
}

async fn put(db: &InProcess, number: u64) -> Result<i64> {
    set(db, &number.to_be_bytes(), &[number as u8; 90_000]).await
}

/// The disk is full to the last byte, by others.
async fn fill_by_others(disk: &SmallDisk) {
    let path = disk.dir.path().join("others");
    let file = Env::real().files().open(path, Open::Create).await.unwrap();
    assert!(file.allocate(1 << 30).await.unwrap_err().is_disk_full());
}

async fn remove_others(disk: &SmallDisk) {
    Env::real().files().remove(disk.dir.path().join("others")).await.unwrap();
}

/// Tries as long as more of the disk comes free now and then: `ssd` has to wait until what was
/// cleared has left the window, and merges take as long as they do.
async fn go_on(db: &InProcess, what: &str) {
    let env = Env::real();
    let (mut most, mut freed) = (0.0, env.now());
    loop {
        let Err(error) = put(db, 0).await else { return };
        if env.now() > freed + Duration::from_secs(60) {
            let text = db.node().metrics_text();
            let figures: Vec<_> =
                ["plinth_disk_", "plinth_log_disk", "plinth_checkpoint", "plinth_log_waits"]
                    .iter()
                    .flat_map(|name| text.lines().filter(move |line| line.starts_with(name)))
                    .filter(|line| !line.contains("_bucket"))
                    .collect();
            panic!("{what}: {error}; {figures:#?}");
        }
        let free = measured(db, "plinth_disk_free_bytes");
        if free > most {
            (most, freed) = (free, env.now());
        }
        env.sleep(Duration::from_millis(20)).await;
    }
}

fn measured(db: &InProcess, name: &str) -> f64 {
    let text = db.node().metrics_text();
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value).unwrap_or_else(|| panic!("no {name}"))
}

/// Others take all that comes free until no row is taken, and give it back; after how long a row
/// is taken then.
async fn taken_and_given_back(disk: &SmallDisk, db: &InProcess) -> Duration {
    let env = Env::real();
    loop {
        // Also what merges and checkpoints give back meanwhile.
        fill_by_others(disk).await;
        if put(db, 0).await.is_err_and(|error| is_disk_full(&error)) {
            break;
        }
    }
    remove_others(disk).await;
    let given_back = env.now();
    while put(db, 0).await.is_err() {
        env.sleep(Duration::from_millis(20)).await;
    }
    env.now() - given_back
}

/// Whether it is said some time after a start that rows are refused, although nobody has tried to
/// write one.
async fn refuses_unasked(db: &InProcess) -> bool {
    for _ in 0..100 {
        if db.refusal().is_some() {
            return true;
        }
        Env::real().sleep(Duration::from_millis(100)).await;
    }
    false
}

async fn try_everything(engine: EngineKind, mebibytes: u64) {
    let Some(disk) = SmallDisk::new(mebibytes) else { return };
    let dir = disk.dir.path().join("db");
    let db = open(&dir, engine).await;
    // More than the disk holds, over ten rows; then rows until it is full.
    for n in 0..overwrites(engine) {
        put(&db, n % 10)
            .await
            .unwrap_or_else(|error| panic!("{engine:?}, {mebibytes} MiB, commit {n}: {error}"));
    }
    let mut rows = 0;
    let refused = loop {
        match put(&db, rows).await {
            Ok(_) => rows += 1,
            Err(error) => break error,
        }
    };
    assert!(is_disk_full(&refused) && refused.code() == 1514, "{refused}");
    assert!(
        rows * 90_000 > mebibytes * (1 << 20) / 5,
        "{engine:?}: {mebibytes} MiB took {rows} rows"
    );
    db.node().close().await.unwrap();
    drop(db);
    fill_by_others(&disk).await;
    // A restart on a disk without a byte of room.
    let db = open(&dir, engine).await;
    assert!(get(&db, &(rows - 1).to_be_bytes()).await.is_some());
    assert!(refuses_unasked(&db).await, "{engine:?}, {mebibytes} MiB: after a restart");
    assert!(is_disk_full(&put(&db, 0).await.unwrap_err()));
    commit(&db, request(&[(M::ClearRange, b"", b"\xff")])).await.unwrap();
    go_on(&db, &format!("{engine:?}, {mebibytes} MiB: after a clear")).await;
    remove_others(&disk).await;
    // A second is asked for; others use this machine, too. A commit that waits for room in vain
    // does so for ten.
    let after = taken_and_given_back(&disk, &db).await;
    assert!(after < Duration::from_secs(5), "{engine:?}, {mebibytes} MiB: after {after:?}");
    for n in 0..100 {
        put(&db, n)
            .await
            .unwrap_or_else(|error| panic!("{engine:?}, {mebibytes} MiB, again {n}: {error}"));
    }
    db.node().close().await.unwrap();
    drop(db);
}

#[test]
fn the_engine_memory_lives_on_64_and_on_128_mebibytes() {
    block_on(try_everything(EngineKind::Memory, 64));
    block_on(try_everything(EngineKind::Memory, 128));
}

#[test]
fn the_engine_ssd_lives_on_64_mebibytes() {
    block_on(try_everything(EngineKind::Ssd, 64));
}
