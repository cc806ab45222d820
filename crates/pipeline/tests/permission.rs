//! A directory that the process may not read or write: said with its path, and left as it is.
//!
//! Root may read and write everything, so as root the database is opened by a thread that has become nobody.

mod common;

use common::*;
use plinth_env::{Env, block_on, reply};
use plinth_pipeline::{Node, NodeConfig};
use plinth_types::{Error, Result};
use rustix::fs::{Mode, chmod};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use std::path::{Path, PathBuf};

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
        promise.send(Node::open(&env_of_nobody, &dir, NodeConfig::default()).await.map(drop));
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
