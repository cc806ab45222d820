//! What the directories are filled with: every kind of mutation, tenants, series, some of it in
//! files of the engine, some behind it in the log.
//!
//! What is random comes from one seed, so each directory has the same.

use plinth::series::{SeriesLayer, SeriesStore, Settings, Value};
use plinth::{
    Builder, Database, EngineKind, Env, Key, Local, MutationType, Result, Transaction,
    TransactionOption, block_on, tuple,
};
use std::path::Path;
use std::time::Duration;

/// The series that there are.
pub const SERIES: [&str; 3] = ["load host=a", "load host=b", "moves valve=3"];
/// Behind all points.
pub const NEXT_POINT: i64 = 1 << 61;

/// A fixed sequence of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// A new database, open.
pub fn create(dir: &Path, engine: &str, keys: &[Key]) -> Local {
    // Tables get what has left the window.
    Builder::new(dir)
        .engine(EngineKind::from_name(engine).unwrap())
        .window(Duration::from_millis(200))
        .must_be_new()
        .encryption(keys)
        .open()
        .unwrap()
}

/// A new database with all of it, open.
pub fn fill(dir: &Path, engine: &str, keys: &[Key]) -> Local {
    let local = create(dir, engine, keys);
    let db = local.database();
    let mut numbers = Numbers(7);
    for round in 0..3 {
        write(db, &mut numbers, round).unwrap();
        block_on(write_points(db, round)).unwrap();
        if round < 2 {
            into_files(&local);
        }
    }
    // Left in the inbox: their owner has not seen them.
    let layer = SeriesLayer::new(db);
    db.transact_blocking(|tr| {
        layer.append(tr, SERIES[2], 77, 7).wait().expect("the name is one");
        Ok(())
    })
    .unwrap();
    local
}

/// Waits until all that was committed is in files of the engine.
pub fn into_files(local: &Local) {
    let db = local.database();
    let newest = commit(db, |tr| tr.set(tuple::pack(&("mark",)), "")).unwrap();
    // Versions go on with commits, and with them the window.
    while local.checkpoint().unwrap() < newest {
        commit(db, |tr| tr.add(tuple::pack(&("waited",)), 1_u64.to_le_bytes())).unwrap();
        block_on(Env::real().sleep(Duration::from_millis(20)));
    }
}

pub fn commit(db: &Database, body: impl Fn(&Transaction)) -> Result<i64> {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
    body(&tr);
    tr.commit().wait()?;
    Ok(tr.committed_version().unwrap())
}

fn key(number: u64) -> Vec<u8> {
    tuple::pack(&("row", number))
}

fn write(db: &Database, numbers: &mut Numbers, round: u64) -> Result<()> {
    for _ in 0..4 {
        let writes: Vec<_> = (0..12).map(|_| (numbers.next() % 80, numbers.next())).collect();
        commit(db, |tr| {
            for (number, random) in &writes {
                let length = [0, 1, 9, 40, 100, 300][(*random % 6) as usize];
                let value: Vec<u8> =
                    (0..length).map(|at| ((random >> (at % 8)) ^ at) as u8).collect();
                tr.set(key(*number), value);
            }
        })?;
    }
    let (from, to) = (numbers.next() % 70, 1 + numbers.next() % 8);
    commit(db, |tr| tr.clear_range(key(from), key(from + to)))?;
    commit(db, |tr| tr.clear(key(from + to + 1)))?;
    atomics(db, round)?;
    let name = format!("tenant-{round}");
    let of_tenant = [b"\xff\xff/management/tenant/map/", name.as_bytes()].concat();
    commit(db, |tr| tr.set(&of_tenant, ""))?;
    db.open_tenant(&name).wait()?.transact_blocking(|tr| {
        tr.set("inside", &name);
        Ok(())
    })
}

/// Each atomic operation, on a key of its own, on what the rounds before left there.
fn atomics(db: &Database, round: u64) -> Result<()> {
    use MutationType::*;
    let operand = (0x0102_0304_0506_0708_u64.rotate_left(round as u32 * 8)).to_le_bytes();
    let plain =
        [Add, BitAnd, BitOr, BitXor, AppendIfFits, Max, Min, ByteMin, ByteMax, MinV2, BitAndV2];
    commit(db, |tr| {
        for operation in plain {
            tr.atomic_op(tuple::pack(&("atomic", operation as i64)), operand, operation);
        }
    })?;
    commit(db, |tr| {
        tr.set(tuple::pack(&("atomic", "compared")), if round == 1 { "same" } else { "other" })
    })?;
    commit(db, |tr| tr.atomic_op(tuple::pack(&("atomic", "compared")), "same", CompareAndClear))?;
    commit(db, |tr| {
        let stamped = tuple::Versionstamp::incomplete(round as u16);
        let stamped = tuple::pack_with_versionstamp(&("stamped", &stamped)).expect("one stamp");
        tr.atomic_op(stamped, "by key", SetVersionstampedKey);
        let value = [&[0; 10][..], b"behind", &0_u32.to_le_bytes()].concat();
        tr.atomic_op(tuple::pack(&("stamped value", round)), value, SetVersionstampedValue);
    })?;
    Ok(())
}

async fn write_points(db: &Database, round: u64) -> std::result::Result<(), plinth::series::Error> {
    // Small leaves, so that some are full.
    let settings = Settings { leaf_points: 8, ..Settings::default() };
    let store = SeriesStore::open_with(db, settings).await?;
    let base = 1_767_268_800_000_000_000 + round as i64 * 1_000_000_000_000;
    for (at, name) in SERIES.iter().enumerate().take(2) {
        let series = store.series(name).await?;
        for number in 0..40_i64 {
            let value = match (at, number % 40) {
                (0, 39) => Value::Float(f64::NAN),
                (0, 38) => Value::Float(-0.0),
                (0, _) => Value::Float(number as f64 / 4.0),
                _ => Value::Integer(i64::MAX - number * number),
            };
            series.append(base + number * 1_000_000_000, value)?;
        }
        // Late ones, and one that is replaced.
        series.append(base + 10_500_000_000, 0.125)?;
        series.append(base + 10_000_000_000, 4.5)?;
    }
    store.sync().await
}
