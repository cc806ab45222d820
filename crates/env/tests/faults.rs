//! Faults of a simulated disk.
//!
//! They come as often as they are asked for, in every kind of call, and leave what the
//! documentation says they leave.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plinth_env::simulated::{CallKind, FaultPlan, Simulation};
use plinth_env::{Env, File, IoErrorKind, IoResult, Open};

fn with_file(sim: &Simulation) -> (Env, File) {
    let env = sim.process("node");
    let file = sim.run_until(env.files().open("/file", Open::Create)).unwrap();
    sim.run_until(file.write_all_at(0, &[1; 4096])).unwrap();
    (env, file)
}

/// One call of each kind, by a name for messages.
async fn calls(env: &Env, file: &File) -> Vec<(&'static str, IoResult<()>)> {
    let files = env.files();
    vec![
        ("read", file.read_at(0, &mut [0; 8]).await.map(drop)),
        ("write", file.write_all_at(0, &[2; 8]).await),
        ("set length", file.set_len(4096).await),
        ("allocate", file.allocate(5000).await),
        ("sync data", file.sync_data().await),
        ("sync all", file.sync_all().await),
        ("sync directory", files.sync_dir("/").await),
        ("open", files.open("/file", Open::Read).await.map(drop)),
        ("list", files.list("/").await.map(drop)),
        ("exists", files.exists("/file").await.map(drop)),
        ("free space", files.room("/").await.map(drop)),
        ("lock", files.lock("/LOCK").await.map(drop)),
        ("rename", files.rename("/file", "/file").await),
        ("create directory", files.create_dir_all("/dir").await),
        ("remove directory", files.remove_dir_all("/dir").await),
    ]
}

#[test]
fn every_call_can_fail_and_names_itself_and_the_path() {
    let sim = Simulation::new(1);
    let (env, file) = with_file(&sim);
    for (name, result) in sim.run_until(calls(&env, &file)) {
        assert_eq!(result, Ok(()), "{name}");
    }
    sim.set_faults(&env, FaultPlan::failing(1.0, 0.0));
    for (name, result) in sim.run_until(calls(&env, &file)) {
        let error = result.expect_err(name);
        assert_eq!(error, IoErrorKind::Failed.into(), "{name}");
        let detail = error.detail().unwrap();
        assert!(detail.contains('/') && detail.contains("simulated fault"), "{name}: {detail}");
    }
    sim.set_faults(&env, FaultPlan::default());
    assert_eq!(sim.run_until(file.sync_data()), Ok(()));
}

#[test]
fn every_call_can_stall() {
    let took = |plan: FaultPlan| {
        let sim = Simulation::new(1);
        let (env, file) = with_file(&sim);
        sim.set_faults(&env, plan);
        let began = sim.now();
        drop(sim.run_until(calls(&env, &file)));
        sim.now() - began
    };
    assert!(took(FaultPlan::default()) < Duration::from_millis(100));
    assert!(took(FaultPlan::failing(0.0, 1.0)) > Duration::from_secs(15));
}

#[test]
fn faults_come_about_as_often_as_asked_for() {
    let sim = Simulation::new(1);
    let (env, file) = with_file(&sim);
    sim.update_faults(&env, |plan| plan.sync.fail = 0.1);
    let failed = sim.run_until(async {
        let mut failed = 0;
        for _ in 0..1000 {
            assert!(file.write_all_at(0, b"x").await.is_ok());
            failed += u32::from(file.sync_data().await.is_err());
        }
        failed
    });
    assert!((60..150).contains(&failed), "{failed}");
    assert_eq!(sim.call_count(&env, CallKind::Sync), 1000);
    assert_eq!(sim.call_count(&env, CallKind::Write), 1001);
}

#[test]
fn a_failed_write_has_written_a_part_and_a_failed_renaming_may_have_happened() {
    let (mut written, mut renamed) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..100 {
        let sim = Simulation::new(seed);
        let (env, file) = with_file(&sim);
        sim.set_faults(&env, FaultPlan::failing(1.0, 0.0));
        sim.run_until(async {
            file.write_all_at(0, &[2; 4096]).await.unwrap_err();
            env.files().rename("/file", "/other").await.unwrap_err();
        });
        sim.set_faults(&env, FaultPlan::default());
        let path =
            if sim.run_until(env.files().exists("/other")).unwrap() { "/other" } else { "/file" };
        renamed.insert(path);
        let bytes = sim.run_until(env.files().read(path)).unwrap();
        let new = bytes.iter().take_while(|byte| **byte == 2).count();
        assert!(bytes[new..].iter().all(|byte| *byte == 1), "seed {seed}: not a prefix");
        written.insert(new);
    }
    assert!(written.len() > 50);
    assert_eq!(renamed.len(), 2);
}

#[test]
fn flipped_bits_stay_flipped() {
    let sim = Simulation::new(1);
    let (env, file) = with_file(&sim);
    sim.run_until(file.sync_data()).unwrap();
    sim.run_until(env.files().sync_dir("/")).unwrap();
    sim.flip_bit(&env, "/file", 100).unwrap();
    let read = |env: &Env| sim.run_until(env.files().read("/file")).unwrap();
    let bytes = read(&env);
    assert_eq!((bytes[100] ^ 1).count_ones(), 1);
    assert!(bytes.iter().enumerate().all(|(at, byte)| at == 100 || *byte == 1));
    sim.crash(&env);
    let env = sim.restart(&env);
    assert_eq!(read(&env), bytes);
    assert_eq!(sim.flip_bit(&env, "/file", 4096), Err(IoErrorKind::NotFound.into()));
    assert_eq!(sim.flip_bit(&env, "/none", 0), Err(IoErrorKind::NotFound.into()));
    let (path, at) = sim.flip_random_bit(&env).unwrap();
    assert_eq!(path.to_str(), Some("/file"));
    assert_ne!(read(&env)[at as usize], bytes[at as usize]);
    sim.update_faults(&env, |plan| plan.flip_on_read = 1.0);
    let before = read(&env);
    assert_ne!(read(&env), before);
}

#[test]
fn a_bit_flipped_before_a_sync_is_what_the_sync_makes_durable() {
    let sim = Simulation::new(1);
    let (env, file) = with_file(&sim);
    sim.run_until(env.files().sync_dir("/")).unwrap();
    sim.flip_bit(&env, "/file", 7).unwrap();
    sim.run_until(file.sync_data()).unwrap();
    sim.crash(&env);
    let bytes = sim.run_until(sim.restart(&env).files().read("/file")).unwrap();
    assert_ne!(bytes[7], 1);
}

#[test]
fn a_call_that_is_dropped_half_way_has_happened_or_not() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let sim = Simulation::new(seed);
        let (env, file) = with_file(&sim);
        sim.update_faults(&env, |plan| plan.write.stall = 1.0);
        assert!(
            sim.run_until_within(Duration::from_micros(1), file.write_all_at(0, &[2; 4096]))
                .is_none()
        );
        let bytes = sim.run_until(env.files().read("/file")).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "seed {seed}");
        seen.insert(bytes[0]);
    }
    assert_eq!(seen, BTreeSet::from([1, 2]));
}

#[test]
fn a_wall_clock_jumps_and_the_other_clock_goes_on() {
    let sim = Simulation::new(1);
    let (env, other) = (sim.process("one"), sim.process("two"));
    let (before, now) = (env.wall_clock(), env.now());
    sim.move_wall_clock(&env, 3600);
    assert_eq!(env.wall_clock(), before + Duration::from_secs(3600));
    sim.move_wall_clock(&env, -3600);
    assert_eq!(env.wall_clock(), before - Duration::from_secs(3600));
    assert_eq!((env.now(), other.wall_clock()), (now, before), "nothing else has moved");
}

#[test]
fn a_stopped_process_takes_no_step_and_goes_on_with_all_that_came_meanwhile() {
    let sim = Simulation::new(3);
    let env = sim.process("stopped");
    let ticks = Arc::new(AtomicU64::new(0));
    let (theirs, counted) = (env.clone(), ticks.clone());
    drop(env.spawn("ticks", async move {
        loop {
            theirs.sleep(Duration::from_millis(10)).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let counted = ticks.clone();
    env.call_at(Duration::from_millis(150), move || _ = counted.fetch_add(1000, Ordering::Relaxed))
        .detach();
    sim.run_for(Duration::from_millis(105));
    assert_eq!(ticks.load(Ordering::Relaxed), 10);
    sim.pause(&env);
    sim.run_for(Duration::from_secs(5));
    assert_eq!(ticks.load(Ordering::Relaxed), 10, "it takes no step");
    sim.resume(&env);
    sim.run_for(Duration::from_millis(1));
    assert_eq!(ticks.load(Ordering::Relaxed), 1011, "what was due is done at once");
    sim.pause(&env);
    sim.kill(&env);
    let env = sim.process("stopped");
    assert!(
        sim.run_until_within(Duration::from_secs(1), env.spawn("next life", async {})).is_some()
    );
}

#[test]
fn a_clock_that_drifts_is_fast_or_slow_for_its_process_alone() {
    let sim = Simulation::new(4);
    let (env, other) = (sim.process("fast"), sim.process("right"));
    sim.run_for(Duration::from_secs(10));
    sim.drift(&env, 500_000);
    sim.run_for(Duration::from_secs(10));
    assert_eq!((env.now(), other.now()), (Duration::from_secs(25), Duration::from_secs(20)));
    let theirs = env.clone();
    sim.run_until(async move { theirs.sleep(Duration::from_secs(3)).await });
    assert_eq!(sim.now().as_millis(), 22_000);
    sim.drift(&env, -500_000);
    sim.run_for(Duration::from_secs(2));
    assert_eq!(env.now().as_millis(), 29_000);
}
