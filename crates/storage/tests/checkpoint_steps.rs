//! A checkpoint keeps the disk busy in small steps only, when it is written and when it is removed:
//! the disk takes one request after the other, and the syncs of commits wait behind whatever is
//! before them.

use plinth_env::Env;
use plinth_env::simulated::{CallKind, Simulation};
use plinth_storage::checkpoint::{self, Identity, Pace, Written};
use plinth_storage::{MemoryStorage, Reader, Writer};
use plinth_types::{LogPosition, MutationList, MutationType, Version};
use std::path::Path;
use std::time::Duration;

const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
const DIR: &str = "/data/checkpoint";
const MIB: u64 = 1 << 20;

/// Rows of about six megabytes.
fn store(version: Version) -> MemoryStorage {
    let mut store = MemoryStorage::new(LogPosition::without_log(0));
    let mut list = MutationList::new();
    (0..3000u32).for_each(|row| list.push(MutationType::Set, &row.to_be_bytes(), &[7; 2000]));
    let prepared = store.prepare(&mut list.iter()).wait().unwrap();
    store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
    store.publish(version);
    store
}

fn write(sim: &Simulation, env: &Env, version: Version, pace: Pace) -> Written {
    let store = store(version);
    sim.run_until(async {
        env.files().create_dir_all(DIR).await.unwrap();
        checkpoint::write(env, Path::new(DIR), IDENTITY, &store.snapshot(), pace).await.unwrap()
    })
}

/// Removing a checkpoint in one go stopped all commits for 15 to 40 ms: the file system freed all
/// of its blocks in one step, and told the disk so in one request.
#[test]
fn an_old_checkpoint_is_cut_in_steps() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    let old = write(&sim, &env, 10, Pace::default());
    write(&sim, &env, 20, Pace::default());
    let before = sim.call_count(&env, CallKind::Write);
    let removed =
        sim.run_until(async { checkpoint::remove_others(&env, Path::new(DIR), 20).await.unwrap() });
    assert_eq!(removed.bytes, old.bytes);
    // Nothing else writes meanwhile, so each of the calls cuts something off; the rest goes with
    // the name.
    let cuts = sim.call_count(&env, CallKind::Write) - before;
    assert_eq!(cuts, (old.bytes - 1) / MIB, "cuts of a file of {} bytes", old.bytes);
    assert_eq!(sim.run_until(async { env.files().list(DIR).await.unwrap() }).len(), 1);
}

/// With eight megabytes a sync, the log's syncs waited behind all of those.
#[test]
fn a_checkpoint_is_on_the_disk_step_by_step() {
    let sim = Simulation::new(2);
    let env = sim.process("node");
    let written = write(&sim, &env, 10, Pace::default());
    let (writes, syncs) =
        (sim.call_count(&env, CallKind::Write), sim.call_count(&env, CallKind::Sync));
    assert!(writes >= written.bytes / (MIB / 2), "{writes} writes of {} bytes", written.bytes);
    assert!(syncs > writes, "{syncs} syncs for {writes} writes");
    assert!(written.longest_step > Duration::ZERO);
}

#[test]
fn the_pace_is_kept() {
    let sim = Simulation::new(3);
    let env = sim.process("node");
    let rate = 10 * MIB;
    let begun = sim.now();
    let written = write(&sim, &env, 10, Pace { bytes_per_second: Some(rate), ..Pace::default() });
    // All steps but the first and the last wait for their turn.
    let least = Duration::from_secs_f64((written.bytes - MIB) as f64 / rate as f64);
    let took = sim.now() - begun;
    assert!(took >= least, "{took:?} for {} bytes", written.bytes);
}
