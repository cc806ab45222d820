//! Who may do what with a database's directory, and what becomes of a database whose directory is
//! taken from it.
//!
//! A directory that the process may not read or write: said with its path, and left as it is.
//!
//! Root may read and write everything, so as root the database is opened by a thread that has
//! become nobody.

mod common;

use common::heard::heard;
use common::*;
use plinth_env::simulated::Simulation;
use plinth_env::{Env, block_on, reply};
use plinth_pipeline::{EngineKind, Node, NodeConfig};
use plinth_types::{Error, Result};
use rustix::fs::{Mode, chmod};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::Level;

const NOBODY: u32 = 65_534;

/// Opens and closes a database without the rights that root has.
async fn open_without_rights(env: &Env, dir: PathBuf) -> Result<()> {
    let (promise, answer) = reply::promise();
    let env_of_nobody = env.clone();
    drop(env.spawn("nobody", async move {
        if geteuid().is_root() {
            let nobody = Uid::from_raw(NOBODY);
            set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        let opened = Node::open(&env_of_nobody, &dir, NodeConfig::default()).await;
        promise.send(opened.map(drop).map_err(Error::from));
    }));
    answer.await
}

fn may(path: &Path, mode: u32) {
    chmod(path, Mode::from_raw_mode(mode)).unwrap();
}

#[test]
fn a_directory_without_permission_is_named_and_left_alone() {
    block_on(async {
        let env = Env::real();
        let around = env.files().temporary_dir("permission").await.unwrap();
        may(around.path(), 0o755);
        let dir = around.path().join("database");
        set(&open(&env, &dir).await.unwrap(), b"key", b"value").await.unwrap();
        let before = env.files().list(&dir).await.unwrap();
        for mode in [0o000, 0o500] {
            may(&dir, mode);
            let error = open_without_rights(&env, dir.clone()).await.unwrap_err();
            let expected = [Error::file_not_readable(), Error::file_not_writable()];
            assert!(expected.contains(&error), "{mode:o}: {error}");
            assert!(error.to_string().contains(&*dir.to_string_lossy()), "{mode:o}: {error}");
        }
        may(around.path(), 0o555);
        let missing = around.path().join("new");
        let error = open_without_rights(&env, missing.clone()).await.unwrap_err();
        assert_eq!(error, Error::file_not_writable(), "{error}");
        assert!(error.to_string().contains(&*missing.to_string_lossy()), "{error}");
        may(around.path(), 0o755);
        may(&dir, 0o755);
        assert_eq!(env.files().list(&dir).await.unwrap(), before);
        let node = open(&env, &dir).await.unwrap();
        assert_eq!(get(&node, b"key").await.as_deref(), Some(&b"value"[..]));
    });
}

fn mode(path: &Path) -> u32 {
    rustix::fs::stat(path).unwrap().st_mode & 0o777
}

async fn paths_below(env: &Env, dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(path) = left.pop() {
        if let Ok(names) = env.files().list(&path).await {
            left.extend(names.iter().map(|name| path.join(name)));
        }
        found.push(path);
    }
    found
}

/// Everybody on the machine could read the rows: directories had mode 0755, files 0644.
#[test]
fn what_a_database_writes_is_its_owners_alone() {
    block_on(async {
        let env = Env::real();
        let around = env.files().temporary_dir("modes").await.unwrap();
        for engine in [EngineKind::Memory, EngineKind::Ssd] {
            let dir = around.path().join(engine.name());
            let config = NodeConfig { engine, window: 1000, ..NodeConfig::default() };
            let node = Node::open(&env, &dir, config).await.unwrap().endpoint();
            set(&node, b"key", b"value").await.unwrap();
            env.sleep(Duration::from_millis(300)).await;
            node.node().checkpoint().await.unwrap();
            drop(node);
            let paths = paths_below(&env, &dir).await;
            assert!(paths.len() > 7, "{paths:?}");
            for path in paths {
                let found = mode(&path);
                assert!([0o600, 0o700].contains(&found), "{}: {found:o}", path.display());
            }
        }
    });
}

/// Whoever may look into it may be able to read all rows, and nobody else would say so.
#[test]
fn a_directory_that_is_open_to_others_is_told_of_when_it_is_opened() {
    let env = Env::real();
    let around = block_on(env.files().temporary_dir("open-to-others")).unwrap();
    let dir = around.path().join("database");
    block_on(set(&block_on(open(&env, &dir)).unwrap(), b"key", b"value")).unwrap();
    for (mode, is_open) in [(0o700, false), (0o750, true), (0o701, true), (0o704, true)] {
        may(&dir, mode);
        let (node, heard) = heard(Level::WARN, || block_on(open(&env, &dir)).unwrap());
        let heard = heard.join("\n");
        let is_told = heard.contains("other users may look into the database's directory")
            && heard.contains(&*dir.to_string_lossy());
        assert_eq!(is_told, is_open, "{mode:o}: {heard}");
        drop(node);
    }
}

/// 51 commits were once acknowledged that went into files which nobody could find any more, and a
/// second server had a database of its own in their place.
#[test]
fn a_directory_that_is_removed_moved_or_replaced_stops_commits_at_once() {
    block_on(async {
        let env = Env::real();
        let around = env.files().temporary_dir("place").await.unwrap();
        for way in ["removed", "moved", "replaced", "lock removed"] {
            let dir = around.path().join(way);
            let node = open(&env, &dir).await.unwrap();
            set(&node, b"key", b"value").await.unwrap();
            let aside = around.path().join("aside").join(way);
            match way {
                "removed" => env.files().remove_dir_all(&dir).await.unwrap(),
                "lock removed" => env.files().remove(dir.join("LOCK")).await.unwrap(),
                _ => {
                    env.files().create_dir_all(aside.parent().unwrap()).await.unwrap();
                    env.files().rename(&dir, &aside).await.unwrap();
                }
            }
            if way == "replaced" {
                env.files().create_dir_all(&dir).await.unwrap();
                env.files().replace(dir.join("LOCK"), b"").await.unwrap();
            }
            let error = set(&node, b"key", b"lost").await.unwrap_err();
            let expected = [Error::commit_unknown_result(), Error::io_error()];
            assert!(expected.contains(&error), "{way}: {error}");
            let cause = node.node().until_failed().await;
            assert!(cause.to_string().contains("removed, renamed or replaced"), "{way}: {cause}");
        }
    });
}

/// Nobody asked for anything: it is noticed all the same.
#[test]
fn an_idle_database_notices_that_its_directory_is_gone() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let node = open(&machine, Path::new("/db")).await.unwrap();
        machine.files().remove_dir_all("/db").await.unwrap();
        machine.sleep(Duration::from_secs(1)).await;
        let cause = node.node().failure().expect("it was noticed");
        assert!(cause.to_string().contains("/db/LOCK"), "{cause}");
    });
}

#[test]
fn the_directory_above_a_new_database_must_exist() {
    block_on(async {
        let env = Env::real();
        let around = env.files().temporary_dir("parents").await.unwrap();
        let above = around.path().join("mistyped");
        let error = open(&env, &above.join("db")).await.err().unwrap();
        assert_eq!(error, Error::file_not_found());
        assert!(error.to_string().contains(&*above.to_string_lossy()), "{error}");
        assert!(!env.files().exists(&above).await.unwrap(), "nothing was made");
    });
}

#[test]
fn who_has_a_database_open_is_told() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("holder").await.unwrap();
        let _node = open(&env, dir.path()).await.unwrap();
        let error = open(&env, dir.path()).await.err().unwrap();
        assert!(error.to_string().contains("locked by this process"), "{error}");
    });
}
