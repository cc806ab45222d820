//! The engine on a simulated disk that is slow or full: how many reads wait for it at once, and
//! what is said of it.

use super::*;
use plinth_env::simulated::{CallKind, FaultPlan, Simulation};
use std::path::Path;

const DIR: &str = "/tables";
const SECOND: Duration = Duration::from_secs(1);

/// An engine with this many rows in tables.
struct OnDisk {
    simulation: Simulation,
    env: Env,
    store: SsdStorage,
}

impl OnDisk {
    fn new(seed: u64, settings: SsdSettings) -> Self {
        let simulation = Simulation::new(seed);
        let env = simulation.process("storage");
        let store = simulation.run_until(async {
            env.files().create_dir_all(DIR).await.unwrap();
            SsdStorage::create(&env, Path::new(DIR), IDENTITY).await.unwrap();
            SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings).await.unwrap()
        });
        Self { simulation, env, store }
    }

    fn set_rows(&mut self, version: Version, rows: usize) {
        apply(&mut self.store, version, |list| {
            (0..rows).for_each(|n| list.push(MutationType::Set, &key(n), &version.to_le_bytes()));
        });
        self.store.forget_before(version, 0);
    }
}

#[test]
fn as_many_reads_wait_for_the_disk_as_there_are_threads_for_it() {
    const READS: usize = 200;
    let mut disk = OnDisk::new(6, tiny());
    disk.set_rows(1, 4_000);
    disk.simulation.run_until(disk.store.flush_now()).unwrap();
    disk.store.engine.making.cache.set_capacity(0);
    let mut plan = FaultPlan::default();
    (plan.read.latency_min, plan.read.latency_max) = (SECOND, SECOND);
    disk.simulation.set_faults(&disk.env, plan);

    let calls = || disk.simulation.call_count(&disk.env, CallKind::Read) as usize;
    let before = calls();
    let mut replies: Vec<_> = (0..READS)
        .map(|n| {
            let mut keys = KeyList::new();
            keys.push(&key(n * 19));
            disk.store.get_many(1, KeySpace::Normal, &keys)
        })
        .collect();
    disk.simulation.run_for(SECOND / 2);
    let mut begun = 0;
    while begun < READS {
        // In the middle of each second: those that have begun, but for those that have ended, are
        // at the disk.
        let ended = replies.iter().filter(|reply| reply.is_ready()).count();
        assert_eq!(ended, begun, "a read takes one call, of a second");
        begun = calls() - before;
        assert_eq!(begun - ended, (READS - ended).min(load::READERS));
        disk.simulation.run_for(SECOND);
    }
    assert_eq!(load::READERS, 32);
    for reply in replies.drain(..) {
        assert_eq!(reply.wait().unwrap(), [Some(Bytes::copy_from_slice(&1_i64.to_le_bytes()))]);
    }
}

/// A merge that had nothing to do cleared what was known of flushes, so that a full disk was told
/// for a second of two.
#[test]
fn a_full_disk_is_told_as_long_as_nothing_can_be_flushed() {
    let settings = SsdSettings { background: true, flush_after: Duration::ZERO, ..tiny() };
    let mut disk = OnDisk::new(11, settings);
    let page = |len: u64| len.next_multiple_of(4096);
    let used = disk.simulation.files(&disk.env).iter().map(|(_, len)| page(*len)).sum();
    disk.simulation.update_faults(&disk.env, |plan| plan.capacity = Some(used));
    disk.set_rows(1, 100);
    disk.simulation.run_for(SECOND);
    for _ in 0..100 {
        let trouble = disk.store.trouble();
        assert!(trouble.is_some_and(|error| error.is_disk_full()), "{:?}", disk.store.trouble());
        disk.simulation.run_for(SECOND / 10);
    }
    disk.simulation.update_faults(&disk.env, |plan| plan.capacity = None);
    disk.simulation.run_for(10 * SECOND);
    assert_eq!((disk.store.trouble(), disk.store.durable().version), (None, 1));
}
