//! Tables of each format that there has been are read, checked, salvaged and merged with those of
//! today; those of formats to come are refused by name.
//!
//! The files in `fixtures/ssd-format-<n>` were written by [`fill`] when that format was the newest:
//! the first with LZ4, the second without compression, so that it has padding.

#[path = "support/rows.rs"]
mod rows;
#[path = "support/salvage.rs"]
mod salvage;

use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, Open};
use plinth_storage::checkpoint::{Identity, Keys};
use plinth_storage::ssd::{Compression, SEALED_TABLE_FORMAT, TABLE_FORMAT, verify_ssd};
use plinth_storage::{Reader, SsdSettings, SsdStorage, StorageError, Writer};
use plinth_types::{LogPosition, MutationList, MutationType, Version};
use rows::{Rows, rows_of};
use salvage::salvage;
use std::path::Path;

const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
const DIR: &str = "/data/ssd";
const TABLE: &str = "table-0000000000000001.data";

/// Format, manifest, table.
const FORMATS: [(u32, &[u8], &[u8]); 2] = [
    (
        1,
        include_bytes!("fixtures/ssd-format-1/MANIFEST"),
        include_bytes!("fixtures/ssd-format-1/table-0000000000000001.data"),
    ),
    (
        2,
        include_bytes!("fixtures/ssd-format-2/MANIFEST"),
        include_bytes!("fixtures/ssd-format-2/table-0000000000000001.data"),
    ),
];

fn settings() -> SsdSettings {
    SsdSettings { block_bytes: 512, background: false, ..SsdSettings::with_memory(4 << 20) }
}

/// Values that LZ4 makes smaller, and others.
fn changes() -> (MutationList, Rows) {
    let (mut list, mut rows) = (MutationList::new(), Rows::new());
    list.push(MutationType::ClearRange, b"a", b"b");
    let mut state: u32 = 1;
    for n in 0..100_u32 {
        let key = format!("key{n:04}").into_bytes();
        let value: Vec<u8> = (0..60)
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if n < 50 { b"capital and column "[at % 19] } else { (state >> 24) as u8 }
            })
            .collect();
        list.push(MutationType::Set, &key, &value);
        rows.insert(key, value);
    }
    list.push(MutationType::ClearRange, b"key0070", b"key0070\0");
    rows.remove(&b"key0070"[..]);
    (list, rows)
}

/// An engine with one table: rows, a removed key, a cleared range.
async fn fill(env: &Env) {
    let settings = || SsdSettings { compression: Compression::None, ..settings() };
    env.files().create_dir_all(DIR).await.unwrap();
    SsdStorage::create(env, Path::new(DIR), IDENTITY).await.unwrap();
    let mut store = SsdStorage::open(env, Path::new(DIR), IDENTITY, settings()).await.unwrap();
    apply(&mut store, 1, &changes().0).await;
    store.close().await;
}

async fn apply(store: &mut SsdStorage, version: Version, list: &MutationList) {
    let prepared = store.prepare(&mut list.iter()).await.unwrap();
    store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
    store.publish(version);
    store.forget_before(version, 0);
    store.flush_now().await.unwrap();
}

async fn write(env: &Env, name: &str, bytes: &[u8]) {
    let file = env.files().open(Path::new(DIR).join(name), Open::Truncate).await.unwrap();
    file.write_all_at(0, bytes).await.unwrap();
    file.sync_all().await.unwrap();
}

async fn read(env: &Env, name: &str) -> Vec<u8> {
    env.files().read(Path::new(DIR).join(name)).await.unwrap()
}

fn format_of(table: &[u8]) -> u32 {
    u32::from_le_bytes(table[8..12].try_into().unwrap())
}

#[test]
fn tables_of_each_format_are_read_and_merged_with_those_of_today() {
    for (format, manifest, table) in FORMATS {
        let sim = Simulation::new(u64::from(format));
        let env = sim.process("node");
        sim.run_until(async {
            env.files().create_dir_all(DIR).await.unwrap();
            write(&env, "MANIFEST", manifest).await;
            write(&env, TABLE, table).await;
            assert_eq!(format_of(table), format);
            let (_, mut rows) = changes();
            let report =
                verify_ssd(&env, Path::new(DIR), Some(IDENTITY), &Keys::none()).await.unwrap();
            assert!(report.problems.is_empty() && report.rows == 99, "{report:?}");
            assert!(salvage(&env, DIR, &Keys::none()).await == (rows.clone(), 0));
            let mut store =
                SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings()).await.unwrap();
            assert!(rows_of(&*store).await.unwrap() == rows);
            for version in 2..8 {
                let mut list = MutationList::new();
                let key = format!("key{:04}", version * 10).into_bytes();
                list.push(MutationType::Set, &key, b"new");
                rows.insert(key, b"new".to_vec());
                apply(&mut store, version, &list).await;
            }
            while store.compact().await.unwrap() {}
            assert!(rows_of(&*store).await.unwrap() == rows);
            store.close().await;
            drop(store);
            let store = SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings()).await.unwrap();
            assert!(rows_of(&*store).await.unwrap() == rows);
            let names = env.files().list(DIR).await.unwrap();
            let [_, merged] = &names[..] else { panic!("a manifest and a table: {names:?}") };
            assert_eq!(format_of(&read(&env, merged).await), TABLE_FORMAT);
        });
    }
    assert_eq!(FORMATS[FORMATS.len() - 1].0, TABLE_FORMAT, "each format has its fixture");
}

/// Whether each bit that the newest format has added is covered: padding is.
#[test]
fn a_flipped_bit_in_any_format_is_found() {
    for (format, manifest, table) in FORMATS {
        for seed in 0..200 {
            let sim = Simulation::new(seed);
            let env = sim.process("node");
            let mut random = Random::new(seed);
            sim.run_until(async {
                env.files().create_dir_all(DIR).await.unwrap();
                write(&env, "MANIFEST", manifest).await;
                let mut harmed = table.to_vec();
                let bit = random.index(8 * harmed.len());
                harmed[bit / 8] ^= 1 << (bit % 8);
                write(&env, TABLE, &harmed).await;
                let report =
                    verify_ssd(&env, Path::new(DIR), Some(IDENTITY), &Keys::none()).await.unwrap();
                let named = report.problems.iter().any(|problem| problem.file.ends_with(TABLE));
                assert!(named, "format {format}, seed {seed}: bit {bit}");
                let (rows, _) = salvage(&env, DIR, &Keys::none()).await;
                let (_, whole) = changes();
                let right =
                    rows.iter().filter(|(key, value)| whole.get(*key) == Some(*value)).count();
                assert!(right > 60, "format {format}, seed {seed}: {right} rows salvaged");
            });
        }
    }
}

#[test]
fn a_format_to_come_is_refused_and_named() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    sim.run_until(async {
        fill(&env).await;
        let mut table = read(&env, TABLE).await;
        table[8..12].copy_from_slice(&(SEALED_TABLE_FORMAT + 1).to_le_bytes());
        let checksum = crc32c::crc32c(&table[..124]);
        table[124..128].copy_from_slice(&checksum.to_le_bytes());
        write(&env, TABLE, &table).await;
        let opened = SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings()).await;
        let error = opened.err().unwrap();
        assert_eq!(error, StorageError::NewerFormat("".into()));
        let detail = error.summary();
        let says = format!("has table format {}", SEALED_TABLE_FORMAT + 1);
        assert!(detail.contains(TABLE) && detail.contains(&says), "{detail}");
    });
}

/// So that a new format's fixture can be made: what is written today reads like the fixture.
#[test]
fn what_is_written_today_has_the_newest_format() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    sim.run_until(async {
        fill(&env).await;
        let (table, newest) = (read(&env, TABLE).await, FORMATS[FORMATS.len() - 1].2);
        assert_eq!((format_of(&table), table.len()), (TABLE_FORMAT, newest.len()));
        assert!(salvage(&env, DIR, &Keys::none()).await == (changes().1, 0));
    });
}
