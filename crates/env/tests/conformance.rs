//! What every environment promises, on each of them.
//!
//! Clock, timers, tasks, random numbers, files. Code above this crate can't tell the worlds apart,
//! so neither may these tests.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plinth_env::reply::promise;
use plinth_env::simulated::{Random, Simulation};
use plinth_env::sync::{First, Signal, race};
use plinth_env::{Env, IoErrorKind, IoResult, Open, block_on};
use plinth_types::Error;

/// Runs a test in the real world and in some simulated ones.
fn everywhere<F: Future<Output = ()> + Send + 'static>(test: impl Fn(Env) -> F) {
    block_on(test(Env::real()));
    for seed in 0..20 {
        let sim = Simulation::new(seed);
        let env = sim.process("tested");
        sim.run_until(test(env));
    }
}

const SOON: Duration = Duration::from_millis(2);

#[test]
fn clocks_move_on_and_sleeping_takes_its_time() {
    everywhere(|env| async move {
        let (before, wall) = (env.now(), env.wall_clock());
        env.sleep(SOON).await;
        assert!(env.now() >= before + SOON);
        assert!(wall > Duration::from_secs(1_600_000_000));
        env.sleep_until(Duration::ZERO).await;
        env.yield_now().await;
    });
}

#[test]
fn sleeps_end_in_the_order_of_their_times() {
    everywhere(|env| async move {
        let order = Arc::new(Mutex::new(Vec::new()));
        let begin = env.now() + SOON;
        let tasks: Vec<_> = [3, 1, 2]
            .map(|at| {
                let (env2, order) = (env.clone(), order.clone());
                env.spawn("sleeper", async move {
                    env2.sleep_until(begin + 10 * at * SOON).await;
                    order.lock().unwrap().push(at);
                })
            })
            .into_iter()
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
    });
}

#[test]
fn timers_call_unless_they_are_dropped() {
    everywhere(|env| async move {
        let called = Arc::new(AtomicU32::new(0));
        let add = |number| {
            let called = called.clone();
            move || {
                called.fetch_add(number, Ordering::SeqCst);
            }
        };
        let (kept, reply) = promise();
        let timer = env.call_at(env.now() + SOON, add(1));
        drop(env.call_at(env.now() + SOON, add(10)));
        env.call_at(env.now() + SOON, add(100)).detach();
        let last = env.call_at(env.now() + 2 * SOON, move || kept.send(Ok(())));
        reply.await.unwrap();
        assert_eq!(called.load(Ordering::SeqCst), 101);
        drop((timer, last));
    });
}

#[test]
fn a_dropped_timer_drops_what_it_would_have_called_with() {
    everywhere(|env| async move {
        let (kept, reply) = promise::<()>();
        drop(env.call_at(env.now() + Duration::from_secs(3600), move || kept.send(Ok(()))));
        assert_eq!(reply.await, Err(Error::broken_promise()));
    });
}

#[test]
fn tasks_tell_how_they_ended() {
    everywhere(|env| async move {
        let fine = env.spawn("fine", async {});
        assert_eq!(fine.await, Ok(()));
        let (kept, reply) = promise();
        drop(env.spawn("detached", async move { kept.send(Ok(5)) }));
        assert_eq!(reply.await, Ok(5));
    });
}

#[test]
fn a_panic_ends_a_task_as_failed() {
    let spawn = |env: Env| async move {
        let task = env.spawn("bad", async { panic!("on purpose") });
        let failed = task.await.unwrap_err();
        assert_eq!(failed.name, "bad");
        assert!(failed.reason.contains("on purpose"), "{failed}");
        assert_eq!(Error::from(failed), Error::internal_error());
    };
    block_on(spawn(Env::real()));
    let sim = Simulation::new(0);
    sim.tolerate_panics(true);
    sim.run_until(spawn(sim.process("tested")));
}

#[test]
fn random_numbers_differ() {
    everywhere(|env| async move {
        let (mut one, mut two) = ([0; 13], [0; 13]);
        env.fill_random(&mut one);
        env.fill_random(&mut two);
        assert_ne!(one, two);
        assert_ne!(env.random_u64(), env.random_u64());
    });
}

#[test]
fn signals_remember_one_permit() {
    everywhere(|env| async move {
        let signal = Arc::new(Signal::new());
        signal.notify();
        signal.notify();
        signal.wait().await;
        assert_eq!(race(signal.wait(), env.sleep(SOON)).await, First::Right(()));
        let theirs = signal.clone();
        let env2 = env.clone();
        let task = env.spawn("notifying", async move {
            env2.sleep(SOON).await;
            theirs.notify();
        });
        signal.wait().await;
        task.await.unwrap();
        assert!(!signal.try_take());
    });
}

#[test]
fn a_queue_behind_a_signal_loses_nothing() {
    everywhere(|env| async move {
        const EACH: u32 = 300;
        let signal = Arc::new(Signal::new());
        let queue = Arc::new(Mutex::new(Vec::new()));
        for worker in 0..3 {
            let (signal, queue, env2) = (signal.clone(), queue.clone(), env.clone());
            drop(env.spawn("pushing", async move {
                for at in 0..EACH {
                    queue.lock().unwrap().push(worker * EACH + at);
                    signal.notify();
                    if at % 16 == 0 {
                        env2.yield_now().await;
                    }
                }
            }));
        }
        let mut got = Vec::new();
        while got.len() < 3 * EACH as usize {
            signal.wait().await;
            got.append(&mut queue.lock().unwrap());
        }
        got.sort_unstable();
        assert!(got.into_iter().eq(0..3 * EACH));
    });
}

#[test]
fn files_hold_what_is_written() {
    everywhere(|env| async move {
        let files = env.files();
        let dir = files.temporary_dir("plinth-env").await.unwrap();
        assert!(
            !files.is_open_to_others(dir.path()).await.unwrap(),
            "where temporary files are others look around"
        );
        let path = dir.path().join("file");
        let file = files.open(&path, Open::CreateNew).await.unwrap();
        assert_eq!(
            files.open(&path, Open::CreateNew).await.unwrap_err(),
            IoErrorKind::Failed.into()
        );
        file.write_all_at(10, b"hello").await.unwrap();
        assert_eq!(file.len().await, Ok(15));
        let mut bytes = [9; 20];
        assert_eq!(file.read_at(0, &mut bytes).await, Ok(15));
        assert_eq!(&bytes[..15], b"\0\0\0\0\0\0\0\0\0\0hello");
        assert_eq!(file.read_at(15, &mut bytes).await, Ok(0));
        assert_eq!(file.read_at(1000, &mut bytes).await, Ok(0));
        let error = file.read_exact_at(0, &mut bytes).await.unwrap_err();
        assert_eq!(error, IoErrorKind::Failed.into());
        assert!(error.to_string().contains("file"), "{error}");
        file.set_len(12).await.unwrap();
        file.set_len(14).await.unwrap();
        let mut bytes = [9; 4];
        file.read_exact_at(10, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"he\0\0");
        file.allocate(10_000).await.unwrap();
        file.allocate(5_000).await.unwrap();
        assert_eq!(file.len().await, Ok(10_000));
        file.read_exact_at(10, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"he\0\0");
        file.sync_data().await.unwrap();
        file.sync_all().await.unwrap();
        let again = files.open(&path, Open::Read).await.unwrap();
        again.read_exact_at(9_996, &mut bytes).await.unwrap();
        assert_eq!(bytes, [0; 4]);
        assert!(again.write_all_at(0, b"no").await.is_err());
        drop(files.open(&path, Open::Truncate).await.unwrap());
        assert_eq!(again.len().await, Ok(0));
    });
}

#[test]
fn names_can_be_made_changed_and_removed() {
    everywhere(|env| async move {
        let files = env.files();
        let dir = files.temporary_dir("plinth-env").await.unwrap();
        let deep = dir.path().join("a").join("b");
        files.create_dir_all(&deep).await.unwrap();
        files.create_dir_all(&deep).await.unwrap();
        for name in ["two", "one"] {
            let file = files.open(deep.join(name), Open::Create).await.unwrap();
            file.write_all_at(0, name.as_bytes()).await.unwrap();
        }
        assert_eq!(files.list(&deep).await.unwrap(), ["one", "two"]);
        let open = files.open(deep.join("two"), Open::Read).await.unwrap();
        files.rename(deep.join("one"), deep.join("two")).await.unwrap();
        assert_eq!(files.list(&deep).await.unwrap(), ["two"]);
        assert_eq!(files.read(deep.join("two")).await.unwrap(), b"one");
        let mut bytes = [0; 3];
        open.read_exact_at(0, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"two", "an open file outlives its name");
        files.sync_dir(&deep).await.unwrap();
        assert!(files.exists(deep.join("two")).await.unwrap());
        assert!(!files.exists(deep.join("one")).await.unwrap());
        assert!(!files.exists(deep.join("two").join("x")).await.unwrap());
        files.remove(deep.join("two")).await.unwrap();
        for missing in [
            files.remove(deep.join("two")).await,
            files.open(deep.join("two"), Open::Write).await.map(drop),
            files.open(dir.path().join("no").join("x"), Open::Create).await.map(drop),
            files.rename(deep.join("no"), deep.join("x")).await,
            files.list(deep.join("no")).await.map(drop),
            files.sync_dir(deep.join("no")).await,
        ] {
            assert_eq!(missing, Err(IoErrorKind::NotFound.into()));
        }
        assert!(files.room(&deep).await.unwrap().free > 0);
        files.create_dir_all(dir.path().join("a/empty")).await.unwrap();
        assert_eq!(files.remove_dir_if_empty(dir.path().join("a")).await, Ok(false));
        assert_eq!(files.remove_dir_if_empty(dir.path().join("a/empty")).await, Ok(true));
        assert_eq!(files.remove_dir_if_empty(dir.path().join("a/empty")).await, Ok(false));
        files.remove_dir_all(dir.path().join("a")).await.unwrap();
        files.remove_dir_all(dir.path().join("a")).await.unwrap();
        assert!(!files.exists(&deep).await.unwrap());
        let path = dir.path().to_path_buf();
        drop(dir);
        assert!(!files.exists(path).await.unwrap());
    });
}

#[test]
fn replacing_a_file_leaves_the_new_contents_and_nothing_beside() {
    everywhere(|env| async move {
        let dir = env.files().temporary_dir("plinth-env").await.unwrap();
        let path = dir.path().join("state");
        env.files().replace(&path, b"first").await.unwrap();
        env.files().replace(&path, b"2nd").await.unwrap();
        assert_eq!(env.files().read(&path).await.unwrap(), b"2nd");
        assert_eq!(env.files().list(dir.path()).await.unwrap(), ["state"]);
    });
}

/// Servers on one machine that had one cluster file used the same unfinished one: who came second
/// renamed what the first was still writing, or found nothing to rename.
#[test]
fn a_file_that_several_replace_at_once_is_whole_and_nothing_is_beside() {
    everywhere(|env| async move {
        let dir = env.files().temporary_dir("plinth-env").await.unwrap();
        let path = dir.path().join("shared");
        let replace = |number: u64| {
            let (theirs, path) = (env.clone(), path.clone());
            env.spawn("replace", async move {
                for _ in 0..10 {
                    let contents = vec![number as u8; 3000];
                    theirs.files().replace_shared(&path, number, &contents).await.unwrap();
                }
            })
        };
        let tasks: Vec<_> = (1..5).map(replace).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let found = env.files().read(&path).await.unwrap();
        assert!(found.len() == 3000 && found.iter().all(|byte| *byte == found[0]));
        assert_eq!(env.files().list(dir.path()).await.unwrap(), ["shared"]);
    });
}

#[test]
fn a_lock_excludes_others_until_it_is_dropped() {
    everywhere(|env| async move {
        let dir = env.files().temporary_dir("plinth-env").await.unwrap();
        for path in [dir.path().to_path_buf(), dir.path().join("LOCK")] {
            let lock = env.files().lock(&path).await.unwrap();
            let error = env.files().lock(&path).await.unwrap_err();
            assert_eq!(error, IoErrorKind::Locked.into());
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            let error = env.files().lock(&path).await.unwrap_err();
            assert_eq!(error, IoErrorKind::Locked.into(), "a refusal doesn't give the lock back");
            drop(lock);
            drop(env.files().lock(&path).await.unwrap());
        }
    });
}

#[test]
fn several_tasks_use_one_file_at_once() {
    everywhere(|env| async move {
        let dir = env.files().temporary_dir("plinth-env").await.unwrap();
        let file = env.files().open(dir.path().join("file"), Open::Create).await.unwrap();
        let tasks: Vec<_> = (0_u8..4)
            .map(|task| {
                let file = file.clone();
                env.spawn("writing", async move {
                    for at in 0..50_u64 {
                        file.write_all_at((at * 4 + u64::from(task)) * 100, &[task; 100])
                            .await
                            .unwrap();
                        if at % 10 == 0 {
                            file.sync_data().await.unwrap();
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let bytes = env.files().read(file.path()).await.unwrap();
        assert_eq!(bytes.len(), 20_000);
        assert!(
            bytes
                .chunks(100)
                .enumerate()
                .all(|(at, chunk)| chunk.iter().all(|byte| usize::from(*byte) == at % 4))
        );
    });
}

/// Random programs on a handful of files do in every world what they do on a map of vectors.
#[test]
fn random_file_programs_agree_with_a_map() {
    for seed in 0..6 {
        everywhere(move |env| async move {
            file_program(&env, seed)
                .await
                .unwrap_or_else(|error| panic!("program {seed}: {error}"));
        });
    }
}

async fn file_program(env: &Env, seed: u64) -> IoResult<()> {
    let mut random = Random::new(seed);
    let dir = env.files().temporary_dir("plinth-env").await?;
    let mut model = std::collections::BTreeMap::<String, Vec<u8>>::new();
    for _ in 0..60 {
        let name = format!("f{}", random.index(3));
        let path = dir.path().join(&name);
        let offset = random.index(9000);
        match random.index(7) {
            0 => {
                let removed = env.files().remove(&path).await;
                assert_eq!(removed.is_ok(), model.remove(&name).is_some());
            }
            1 => {
                let to = format!("f{}", random.index(3));
                let renamed = env.files().rename(&path, dir.path().join(&to)).await;
                assert_eq!(renamed.is_ok(), model.contains_key(&name));
                if let Some(contents) = model.remove(&name) {
                    model.insert(to, contents);
                }
            }
            2 => {
                let file = env.files().open(&path, Open::Create).await?;
                file.set_len(offset as u64).await?;
                file.sync_data().await?;
                model.entry(name).or_default().resize(offset, 0);
            }
            _ => {
                let mut bytes = vec![0; random.index(5000)];
                random.fill(&mut bytes);
                let file = env.files().open(&path, Open::Create).await?;
                file.write_all_at(offset as u64, &bytes).await?;
                let contents = model.entry(name).or_default();
                if !bytes.is_empty() {
                    contents.resize(contents.len().max(offset + bytes.len()), 0);
                    contents[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
        assert!(env.files().list(dir.path()).await?.iter().eq(model.keys()));
        for (name, contents) in &model {
            assert!(env.files().read(dir.path().join(name)).await? == *contents);
        }
    }
    Ok(())
}
