//! Streams of changes against a model: folded over the rows as they were at the registration, what
//! a stream delivers is the database at every version that it names.
//!
//! Why it matters: whoever keeps a second store in step has nothing but the stream. A mutation that
//! is missing, doubled, out of order or of a key outside of the ranges is found by nobody until it
//! hurts.

mod common;

use common::world::World;
use plinth_client::{
    ChangeConsumer, ChangeStream, Database, RangeOptions, StreamingMode, TransactionOption,
};
use plinth_env::simulated::{CallKind, Random, Simulation, Unsynced};
use plinth_pipeline::{EngineKind, Node, NodeConfig};
use plinth_types::{Changes, Error, KeyRange, MutationType, Result, Version, atomic};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The smallest segment that a log can have.
const SEGMENT: u64 = 8 << 10;

/// Segments and checkpoints are small, so that the log is let go of all the time.
fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig { engine, checkpoint_bytes: 32 << 10, ..NodeConfig::default() };
    config.log.first_segment_bytes = SEGMENT;
    config.log.max_segment_bytes = 2 * SEGMENT;
    config.log.spare_bytes = 0;
    config.ssd.memory = 8 << 20;
    config
}

fn database(world: &World) -> Database {
    Database::new(world.endpoint().clone())
}

fn ranges() -> Vec<KeyRange> {
    ["b,d", "f,g", "m,mm"]
        .map(|range| range.split_once(',').expect("a range"))
        .map(|(begin, end)| KeyRange::new(begin, end))
        .to_vec()
}

fn register(world: &World, name: &str, bound: Option<u64>) -> Result<ChangeStream> {
    world.run(database(world).register_changes(name, ranges(), bound))
}

fn consumer(world: &World, name: &str) -> ChangeConsumer {
    world.run(database(world).consume_changes(name)).expect("a consumer")
}

fn next(world: &World, consumer: &mut ChangeConsumer) -> Result<Changes> {
    world.run(consumer.next())
}

/// The rows of the stream's ranges at a version, unless that is as old as the last restart.
fn rows_at(world: &World, version: Version) -> Option<Rows> {
    let tr = database(world).create_transaction();
    tr.set_read_version(version);
    let mut rows = Rows::new();
    for range in ranges() {
        let options = RangeOptions::from(range.begin..range.end).mode(StreamingMode::WantAll);
        let found = match world.run(tr.range(options).collect()) {
            Err(error) if error == Error::transaction_too_old() => return None,
            found => found.expect("a read"),
        };
        rows.extend(found.into_iter().map(|row| (row.key.to_vec(), row.value.to_vec())));
    }
    Some(rows)
}

/// Folds what a stream has delivered into rows; after each version `look` sees them.
fn fold(rows: &mut Rows, changes: &Changes, mut look: impl FnMut(Version, &Rows)) {
    for batch in &changes.batches {
        assert!(!batch.mutations.is_empty());
        for mutation in &batch.mutations {
            let (key, operand) = (mutation.param1, mutation.param2);
            assert!(!mutation.kind.is_versionstamped(), "versionstamps are filled in");
            if mutation.kind == MutationType::ClearRange {
                let is_inside =
                    |range: &KeyRange| range.begin[..] <= *key && *operand <= range.end[..];
                assert!(
                    key < operand && ranges().iter().any(is_inside),
                    "clears are cut: {mutation:?}"
                );
                rows.retain(|row, _| !(key <= &row[..] && &row[..] < operand));
                continue;
            }
            assert!(ranges().iter().any(|range| range.contains(key)), "{mutation:?}");
            match atomic::apply(mutation.kind, rows.get(key).map(Vec::as_slice), operand) {
                Some(value) => drop(rows.insert(key.to_vec(), value.into_owned())),
                None => drop(rows.remove(key)),
            }
        }
        look(batch.version, rows);
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    let first = b"abcdefghmmn"[random.below(11) as usize];
    vec![first, b"amz"[random.below(3) as usize], random.below(4) as u8]
}

/// Writes something of everything.
fn write(world: &World, random: &mut Random) {
    let tr = database(world).create_transaction();
    for _ in 0..1 + random.below(6) {
        let (key, other) = (key(random), key(random));
        let value = vec![random.below(256) as u8; 1 + random.below(60) as usize];
        match random.below(12) {
            0..4 => tr.set(&key, &value),
            4 => tr.clear(&key),
            5 => tr.clear_range(key.clone().min(other.clone()), key.max(other)),
            6 => tr.atomic_op(&key, &value, MutationType::Add),
            7 => tr.atomic_op(&key, &value, MutationType::AppendIfFits),
            8 => tr.atomic_op(&key, &value, MutationType::CompareAndClear),
            9 => tr.atomic_op(&key, &value, MutationType::ByteMax),
            10 => {
                let stamped = [&key[..], &[0; 10], &(key.len() as u32).to_le_bytes()].concat();
                tr.atomic_op(stamped, &value, MutationType::SetVersionstampedKey);
            }
            _ => {
                let stamped = [&[0; 10][..], &value, &[0; 4]].concat();
                tr.atomic_op(&key, stamped, MutationType::SetVersionstampedValue);
            }
        }
    }
    world.run(tr.commit()).expect("a commit");
}

/// Reads everything up to now, in pieces, and compares the rows at each version.
fn catch_up(
    world: &World,
    random: &mut Random,
    consumer: &mut ChangeConsumer,
    rows: &mut Rows,
) -> u64 {
    let version =
        world.run(database(world).create_transaction().get_read_version()).expect("a version");
    let mut batches = 0;
    while consumer.position() < version {
        let before = consumer.position();
        let changes = next(world, consumer).expect("changes");
        assert_eq!(consumer.position(), changes.upto.max(before));
        let mut last = before;
        fold(rows, &changes, |version, rows| {
            assert!(version > last && version <= changes.upto, "versions rise");
            last = version;
            batches += 1;
            if random.below(3) == 0
                && let Some(found) = rows_at(world, version)
            {
                assert_eq!(*rows, found, "at version {version}");
            }
        });
        if changes.batches.is_empty() && changes.upto < version {
            // An idle database moves its version when somebody asks.
            assert!(changes.upto >= before);
        }
    }
    assert_eq!(*rows, rows_at(world, version).expect("a version of this moment"));
    batches
}

#[test]
fn a_fold_of_the_stream_is_the_database_at_every_version() {
    for (seed, engine) in (0..6).zip([EngineKind::Memory, EngineKind::Ssd].into_iter().cycle()) {
        let mut world = World::new(seed, config(engine));
        let mut random = world.sim.random();
        (0..20).for_each(|_| write(&world, &mut random));
        let stream = register(&world, "all", None).expect("a stream");
        let mut rows = rows_at(&world, stream.registered).expect("rows");
        assert_eq!((stream.ranges.clone(), stream.acknowledged), (ranges(), stream.registered));
        let mut reader = consumer(&world, "all").with_bytes(1 + random.below(2000) as usize);
        assert_eq!((reader.id(), reader.position()), (stream.id, stream.registered));
        // What would be there again after a crash.
        let mut acknowledged = (reader.position(), rows.clone());
        let mut batches = 0;
        for _ in 0..25 {
            (0..random.below(30)).for_each(|_| write(&world, &mut random));
            if random.below(4) > 0 {
                batches += catch_up(&world, &mut random, &mut reader, &mut rows);
                if random.below(2) == 0 {
                    world.run(reader.acknowledge()).expect("an acknowledgement");
                    acknowledged = (reader.position(), rows.clone());
                }
            }
            match random.below(12) {
                0 => world.crash(Unsynced::Seeded, config(engine)),
                1 => world.restart(config(engine)),
                _ => continue,
            }
            // Either it goes on from what it acknowledged, or from what it keeps itself.
            let position = match random.below(2) {
                0 => {
                    let anew = consumer(&world, "all");
                    assert_eq!(anew.position(), acknowledged.0, "an acknowledgement is durable");
                    rows.clone_from(&acknowledged.1);
                    anew.position()
                }
                _ => reader.position(),
            };
            reader = database(&world).resume_changes(stream.id, position);
        }
        batches += catch_up(&world, &mut random, &mut reader, &mut rows);
        assert!(batches > 50, "{batches}");
        world.node().check_invariants();
    }
}

#[test]
fn streams_are_listed_found_by_name_and_removed() {
    let world = World::new(1, config(EngineKind::Memory));
    let first = register(&world, "first", Some(1 << 20)).expect("a stream");
    let second = world.run(database(&world).register_changes(
        "second",
        [KeyRange::new("", &b"\xff\0"[..])],
        None,
    ));
    let wrong = second.expect_err("beyond the normal keys");
    assert_eq!(wrong, Error::key_outside_legal_range());
    let everything = KeyRange::new("", &b"\xff"[..]);
    let second = world
        .run(database(&world).register_changes("second", [everything], None))
        .expect("a stream");
    assert!(second.id > first.id && second.registered > first.registered);
    let list = world.run(database(&world).list_changes()).expect("a list");
    assert_eq!(list, [first.clone(), second.clone()]);
    assert_eq!((first.bound_bytes, second.bound_bytes), (Some(1 << 20), None));
    // The same again is the same stream; other ranges are none of it.
    assert_eq!(register(&world, "first", None), Ok(first.clone()));
    let other =
        world.run(database(&world).register_changes("first", [KeyRange::new("x", "z")], None));
    assert_eq!(other, Err(Error::client_invalid_operation()));
    for (name, ranges) in [("", ranges()), ("none", vec![])] {
        let refused = world.run(database(&world).register_changes(name, ranges, None));
        assert_eq!(refused, Err(Error::client_invalid_operation()), "{name}");
    }
    let empty =
        world.run(database(&world).register_changes("none", [KeyRange::new("b", "a")], None));
    assert_eq!(empty, Err(Error::inverted_range()));
    // Another one under the same name is another one: who reads the first is told.
    let mut old = consumer(&world, "first");
    let waits = world.machine.spawn("waits", async move {
        let error = loop {
            match old.next().await {
                Ok(changes) => assert!(changes.batches.is_empty()),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::client_invalid_operation());
        let gone = old.acknowledge().await.expect_err("there is no such stream");
        assert!(gone.to_string().contains("no stream with the id 1"), "{gone}");
    });
    world.run(database(&world).remove_changes("first")).expect("it is there");
    assert_eq!(
        world.run(database(&world).remove_changes("first")),
        Err(Error::client_invalid_operation())
    );
    world.run(waits).expect("it is told");
    let anew = register(&world, "first", None).expect("a stream");
    assert!(anew.id > second.id);
    assert_eq!(
        world.run(database(&world).consume_changes("nobody")).err(),
        Some(Error::client_invalid_operation())
    );
}

#[test]
fn what_was_not_delivered_or_not_committed_can_not_be_acknowledged() {
    let world = World::new(2, config(EngineKind::Memory));
    let stream = register(&world, "all", None).expect("a stream");
    let mut random = world.sim.random();
    write(&world, &mut random);
    let mut reader = consumer(&world, "all");
    next(&world, &mut reader).expect("changes");
    let beyond = world.run(reader.acknowledge_upto(reader.position() + 1));
    assert_eq!(beyond, Err(Error::client_invalid_operation()));
    let committed =
        world.run(database(&world).create_transaction().get_read_version()).expect("a version");
    let beyond = world.run(database(&world).acknowledge_changes(stream.id, committed + 10_000_000));
    assert_eq!(beyond, Err(Error::client_invalid_operation()));
    world.run(reader.acknowledge()).expect("an acknowledgement");
    world.run(database(&world).acknowledge_changes(stream.id, 0)).expect("going back does nothing");
    let list = world.run(database(&world).list_changes()).expect("a list");
    assert_eq!(list[0].acknowledged, reader.position());
    let mut again = database(&world).resume_changes(stream.id, stream.registered);
    let error = next(&world, &mut again).expect_err("it was acknowledged");
    assert_eq!(error, Error::version_invalid());
    assert!(error.to_string().contains("have been acknowledged"), "{error}");
}

#[test]
fn a_consumer_that_stays_away_loses_its_stream_and_is_told_so() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let mut world = World::new(3, config(engine));
        let mut random = world.sim.random();
        let bound = 256 << 10;
        let lazy = register(&world, "lazy", Some(bound)).expect("a stream");
        register(&world, "brisk", Some(bound)).expect("a stream");
        let (mut brisk, mut rows) = (consumer(&world, "brisk"), Rows::new());
        let mut disk = 0;
        for n in 0..60 {
            (0..20).for_each(|_| write(&world, &mut random));
            let tr = database(&world).create_transaction();
            tr.set(format!("z{}", n % 2), vec![0; 40_000]);
            world.run(tr.commit()).expect("a commit");
            catch_up(&world, &mut random, &mut brisk, &mut rows);
            world.run(brisk.acknowledge()).expect("it is within its bound");
            world.sim.run_for(Duration::from_secs(1));
            disk = disk.max(log_bytes(&world));
        }
        assert!(disk < 12 * bound, "a stream fills no disk: {disk} bytes");
        // Those who run the database see it before its consumer comes.
        let text = world.node().metrics_text();
        let figure = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            found.trim().parse::<f64>().expect("a number")
        };
        let of =
            |name: &str, stream| figure(&format!("plinth_changes_{name}{{stream=\"{stream}\"}}"));
        assert_eq!(
            (of("lost", "lazy"), of("lost", "brisk"), figure("plinth_changes_streams ")),
            (1.0, 0.0, 2.0)
        );
        assert!(of("unacknowledged_seconds", "lazy") > 50.0, "{text}");
        assert!(
            of("unacknowledged_seconds", "brisk") < 5.0
                && of("held_bytes", "brisk") <= bound as f64,
            "{text}"
        );
        for _ in 0..2 {
            let mut reader = consumer(&world, "lazy");
            let error = next(&world, &mut reader).expect_err("it was away for too long");
            assert_eq!(error, Error::version_invalid());
            assert!(error.to_string().contains("stream lazy has lost changes"), "{error}");
            world.restart(config(engine));
        }
        // Registered anew it is whole again.
        world.run(database(&world).remove_changes("lazy")).expect("it is there");
        let anew = register(&world, "lazy", Some(bound)).expect("a stream");
        assert!(anew.id > lazy.id);
        let (mut reader, mut rows) =
            (consumer(&world, "lazy"), rows_at(&world, anew.registered).expect("rows"));
        (0..10).for_each(|_| write(&world, &mut random));
        catch_up(&world, &mut random, &mut reader, &mut rows);
    }
}

fn log_bytes(world: &World) -> u64 {
    let status = world.run(world.endpoint().status_json()).expect("a status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status["cluster"]["plinth"]["log"]["disk_bytes"].as_u64().expect("a number")
}

#[test]
fn a_consumer_makes_progress_over_entries_that_are_not_its_own() {
    let world = World::new(4, config(EngineKind::Memory));
    register(&world, "all", None).expect("a stream");
    let mut reader = consumer(&world, "all");
    let began = reader.position();
    for n in 0..50 {
        let tr = database(&world).create_transaction();
        tr.set(format!("other{n}"), "value");
        world.run(tr.commit()).expect("a commit");
    }
    let changes = next(&world, &mut reader).expect("an answer");
    assert!(changes.batches.is_empty() && changes.upto > began, "{changes:?}");
    assert_eq!(changes.upto, changes.newest);
    // A reader that waits is woken by what is its own, at once.
    let database = database(&world);
    let mut waits = database.resume_changes(reader.id(), reader.position());
    let told = world.machine.spawn("waits", async move {
        let changes = loop {
            let changes = waits.next().await.expect("changes");
            if !changes.batches.is_empty() {
                break changes;
            }
        };
        assert_eq!(changes.batches.len(), 1);
        let mutation = changes.batches[0].mutations.iter().next().expect("a mutation").to_owned();
        assert_eq!((&mutation.param1[..], &mutation.param2[..]), (&b"bkey"[..], &b"1"[..]));
    });
    world.sim.run_for(Duration::from_millis(1500));
    let tr = database.create_transaction();
    tr.set("bkey", "1");
    world.run(tr.commit()).expect("a commit");
    assert!(world.sim.run_until_within(Duration::from_millis(100), told).is_some(), "it is woken");
}

#[test]
fn rows_that_register_nothing_do_no_harm() {
    let mut world = World::new(5, config(EngineKind::Memory));
    let stream = register(&world, "all", None).expect("a stream");
    let tr = database(&world).create_transaction();
    tr.set_option(TransactionOption::AccessSystemKeys).expect("an option");
    let key = |text: &str| [&b"\xff/changes/"[..], text.as_bytes()].concat();
    tr.set(key("stream/nonsense"), "x");
    tr.set(key("stream/short"), [1; 30]);
    tr.set(key("acknowledged/12345"), "y");
    tr.set(key("acknowledged/"), "");
    tr.atomic_op(key("last"), [1, 0, 0, 0, 0, 0, 0, 0], MutationType::Add);
    world.run(tr.commit()).expect("a commit");
    assert_eq!(world.run(database(&world).list_changes()).map(|list| list.len()), Ok(1));
    world.restart(config(EngineKind::Memory));
    let mut random = world.sim.random();
    let (mut reader, mut rows) = (consumer(&world, "all"), Rows::new());
    (0..10).for_each(|_| write(&world, &mut random));
    catch_up(&world, &mut random, &mut reader, &mut rows);
    let other =
        world.run(database(&world).register_changes("other", ranges(), None)).expect("a stream");
    assert!(other.id > stream.id + 1);
    // And all rows of the system's gone at once is all streams gone.
    let tr = database(&world).create_transaction();
    tr.set_option(TransactionOption::AccessSystemKeys).expect("an option");
    tr.clear_range(key(""), key("~"));
    world.run(tr.commit()).expect("a commit");
    assert_eq!(next(&world, &mut reader), Err(Error::client_invalid_operation()));
}

fn set(world: &World, key: &str, value: &[u8]) -> Result<()> {
    let tr = database(world).create_transaction();
    tr.set(key, value);
    world.run(tr.commit())
}

/// Whoever gets no batches acknowledges none, and would hold back the whole log.
#[test]
fn a_feed_over_ranges_that_nobody_writes_keeps_its_stream() {
    let world = World::new(6, config(EngineKind::Memory));
    register(&world, "all", Some(256 << 10)).expect("a stream");
    let mut feed = database(&world).changes("all");
    let told = world.machine.spawn("feed", async move {
        let mut keys = Vec::new();
        while keys.last().is_none_or(|last| last != b"bend") {
            let batch = feed.next().await.expect("it goes on").expect("it is in step");
            assert_eq!(feed.position(), Some(batch.version), "it was delivered alone");
            feed.acknowledge(batch.version).await.expect("an acknowledgement");
            keys.extend(batch.mutations.iter().map(|mutation| mutation.param1.to_vec()));
        }
        assert_eq!(keys, [b"bbegin".to_vec(), b"bend".to_vec()]);
    });
    set(&world, "bbegin", b"1").expect("a commit");
    for n in 0..50 {
        set(&world, &format!("z{}", n % 2), &[0; 40_000]).expect("a commit");
        world.sim.run_for(Duration::from_secs(1));
    }
    set(&world, "bend", b"1").expect("a commit");
    world.run(told).expect("it has everything");
}

/// What was acknowledged last lies in the segment that has just become full, whatever the bound is.
#[test]
fn a_consumer_that_is_in_step_keeps_its_stream_however_small_the_bound() {
    let mut config = config(EngineKind::Memory);
    config.log.first_segment_bytes = 2 * SEGMENT;
    let world = World::new(7, config);
    register(&world, "all", Some(SEGMENT)).expect("a stream");
    let mut reader = consumer(&world, "all");
    let told = world.machine.spawn("reader", async move {
        let mut batches = 0;
        while batches < 100 {
            let changes = reader.next().await.expect("it is in step");
            batches += changes.batches.len();
            reader.acknowledge().await.expect("an acknowledgement");
        }
    });
    for n in 0..100_u8 {
        set(&world, "bkey", &[n; 1024]).expect("a commit");
        world.sim.run_for(Duration::from_millis(10));
    }
    world.run(told).expect("it has everything");
}

fn limit_disk(world: &World, bytes: Option<u64>) {
    world.sim.update_faults(&world.machine, |plan| plan.capacity = bytes);
}

fn used_bytes(world: &World) -> u64 {
    world.sim.files(&world.machine).iter().map(|(_, len)| len.next_multiple_of(4096)).sum()
}

/// What the stream without a bound of its own may hold back.
fn usual_bound(world: &World) -> u64 {
    let status = world.run(world.endpoint().status_json()).expect("a status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status["cluster"]["plinth"]["changes"][0]["bound_bytes"].as_u64().expect("a number")
}

/// The log that a stream holds back is itself a part of what isn't free at the next start.
#[test]
fn a_stream_has_the_bound_of_the_moment_of_its_registration_for_ever() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let mut world = World::new(8, config(engine));
        limit_disk(&world, Some(16 << 30));
        world.restart(config(engine));
        // What was free when it was opened is no measure any more.
        limit_disk(&world, Some(2 << 30));
        world.sim.run_for(Duration::from_secs(2));
        set(&world, "z", b"1").expect("a commit");
        register(&world, "all", None).expect("a stream");
        let bound = usual_bound(&world);
        assert!((256 << 20..=512 << 20).contains(&bound), "a quarter of 2 GiB: {bound}");
        for disk in [64 << 20, 64 << 30] {
            set(&world, "b", b"1").expect("a commit");
            limit_disk(&world, Some(disk));
            world.restart(config(engine));
            assert_eq!(usual_bound(&world), bound, "of {disk} bytes");
        }
        let (mut reader, mut rows) = (consumer(&world, "all"), Rows::new());
        catch_up(&world, &mut Random::new(1), &mut reader, &mut rows);
        assert_eq!(rows.len(), 1);
    }
}

/// Nothing is gained by it.
#[test]
fn a_full_disk_takes_no_stream_that_holds_back_no_whole_segment() {
    let mut config = config(EngineKind::Memory);
    (config.log.first_segment_bytes, config.log.max_segment_bytes) = (4 << 20, 4 << 20);
    config.checkpoint_bytes = 64 << 20;
    let world = World::new(9, config);
    register(&world, "all", None).expect("a stream");
    let mut reader = consumer(&world, "all");
    for n in 0..10 {
        set(&world, &format!("z{}", n % 2), &[0; 90_000]).expect("a commit");
    }
    next(&world, &mut reader).expect("an answer");
    world.run(reader.acknowledge()).expect("an acknowledgement");
    set(&world, "bkey", b"1").expect("a commit");
    limit_disk(&world, Some(used_bytes(&world) + (1 << 20)));
    world.sim.run_for(Duration::from_secs(1));
    // Room is asked for, and made as well as it can be: with a checkpoint, beyond which no log is
    // needed.
    let refused = set(&world, "z", &[0; 90_000]).expect_err("the disk is full");
    assert_eq!(refused, Error::file_not_writable());
    world.sim.run_for(Duration::from_secs(5));
    limit_disk(&world, None);
    world.sim.run_for(Duration::from_secs(5));
    let changes = next(&world, &mut reader).expect("it was a commit behind");
    assert_eq!(changes.batches.len(), 1);
}

#[test]
fn a_consumer_of_a_database_that_is_closed_is_told_so() {
    let sim = Simulation::new(10);
    let env = sim.process("node");
    let node = sim.run_until(Node::in_memory(&env, NodeConfig::default())).expect("a database");
    let database = Database::new(Arc::new(node.endpoint()));
    sim.run_until(database.register_changes("all", ranges(), None)).expect("a stream");
    let mut waits = sim.run_until(database.consume_changes("all")).expect("a consumer");
    let mut feed = database.changes("all");
    let told = env.spawn("waits", async move {
        let mut ended = waits.next().await;
        while ended.is_ok() {
            ended = waits.next().await;
        }
        assert_eq!(ended, Err(Error::shutdown_in_progress()));
        assert_eq!(waits.next().await, Err(Error::shutdown_in_progress()));
        assert_eq!(feed.next().await.and_then(Result::err), Some(Error::shutdown_in_progress()));
    });
    sim.run_for(Duration::from_millis(1500));
    sim.run_until(node.close()).expect("it closes");
    sim.run_until_within(Duration::from_secs(60), told).expect("it ends").expect("it is told");
}

/// The log's file would be read from its beginning for one of them, commit by commit.
#[test]
fn a_second_reader_of_a_stream_costs_no_reading_of_files() {
    let mut config = config(EngineKind::Memory);
    (config.log.first_segment_bytes, config.log.max_segment_bytes) = (8 << 20, 8 << 20);
    config.checkpoint_bytes = 64 << 20;
    let world = World::new(11, config);
    register(&world, "all", None).expect("a stream");
    for n in 0..40 {
        set(&world, &format!("z{}", n % 2), &[0; 90_000]).expect("a commit");
    }
    let told: Vec<_> = (0..2)
        .map(|_| {
            let mut reader = consumer(&world, "all");
            world.machine.spawn("reader", async move {
                let mut batches = 0;
                while batches < 200 {
                    batches += reader.next().await.expect("changes").batches.len();
                }
            })
        })
        .collect();
    world.sim.run_for(Duration::from_secs(2));
    let before = world.sim.call_count(&world.machine, CallKind::Read);
    for n in 0..200_u8 {
        set(&world, "bkey", &[n]).expect("a commit");
        world.sim.run_for(Duration::from_millis(10));
    }
    told.into_iter().for_each(|told| world.run(told).expect("it has everything"));
    let reads = world.sim.call_count(&world.machine, CallKind::Read) - before;
    assert!(reads < 200, "{reads} reads of files for 200 commits");
}
