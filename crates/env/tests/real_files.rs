//! What only the real world can show: locks between two processes, and what the system says when a
//! device is full. The second process is this test binary again.

use std::process::{Command, Stdio};

use plinth_env::{Env, IoErrorKind, Open, block_on};

const CHILD: &str = "PLINTH_ENV_LOCK";

#[test]
fn a_lock_excludes_other_processes_until_its_holder_is_killed() {
    let env = Env::real();
    if let Some(path) = std::env::var_os(CHILD) {
        let lock = block_on(env.files().lock(path)).unwrap();
        println!("locked");
        // Waits to be killed, with the lock.
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        return drop(lock);
    }
    let dir = block_on(env.files().temporary_dir("plinth-env")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_lock_excludes_other_processes_until_its_holder_is_killed",
            "--nocapture",
        ])
        .env(CHILD, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().contains("locked")));
    let error = block_on(env.files().lock(dir.path())).unwrap_err();
    assert_eq!(error, IoErrorKind::Locked.into());
    if cfg!(target_os = "linux") {
        let holder = format!("is locked by process {} (", child.id());
        assert!(error.to_string().contains(&holder), "{error}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(block_on(env.files().lock(dir.path())).unwrap());
}

#[test]
fn a_lock_is_one_whatever_name_is_used() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("plinth-env")).unwrap();
    let roundabout = dir.path().join("..").join(dir.path().file_name().unwrap());
    let lock = block_on(env.files().lock(dir.path())).unwrap();
    assert_eq!(block_on(env.files().lock(roundabout)).unwrap_err(), IoErrorKind::Locked.into());
    drop(lock);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_told_from_other_errors() {
    let env = Env::real();
    let full = block_on(env.files().open("/dev/full", Open::Write)).unwrap();
    let error = block_on(full.write_all_at(0, b"x")).unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    assert!(error.to_string().contains("/dev/full"), "{error}");
}

#[test]
fn a_write_to_a_file_opened_for_reading_says_which() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("plinth-env")).unwrap();
    let path = dir.path().join("file");
    block_on(env.files().replace(&path, b"x")).unwrap();
    let file = block_on(env.files().open(&path, Open::Read)).unwrap();
    let error = block_on(file.write_all_at(0, b"y")).unwrap_err();
    assert!(error.detail().unwrap().contains("file"), "{error}");
}
