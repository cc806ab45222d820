//! C programs against our headers and library, as a user of the C API would build them.
//!
//! A machine without a C compiler says so and passes: there is nothing to be learnt there. The
//! suite `tests/bindings/c` runs the same programs against an installed library, and under
//! valgrind.

use plinth_env::{Env, block_on};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder with `libfdb_c.so`: cargo builds it beside the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    test.parent().expect("it lies in a folder").to_path_buf()
}

fn shown(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Builds the program and runs it with these arguments.
fn run(name: &str, arguments: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let env = Env::real();
    let folder = block_on(env.files().temporary_dir(name)).unwrap();
    let binary = folder.path().join(name);
    let built = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", "-g", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/c").join(format!("{name}.c")))
        .arg("-L")
        .arg(library())
        .args(["-lfdb_c", "-lpthread", "-o"])
        .arg(&binary)
        .output();
    let built = match built {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return eprintln!("there is no C compiler on this machine: {name}.c was not run");
        }
        built => built.unwrap(),
    };
    assert!(built.status.success(), "{}", shown(&built));
    let mut command = Command::new(&binary);
    let ran = command
        .args(arguments)
        .env("LD_LIBRARY_PATH", library())
        .env("DYLD_LIBRARY_PATH", library())
        .output()
        .unwrap();
    assert!(
        ran.status.success() && ran.stdout.ends_with(b"ok\n"),
        "{}: {}",
        ran.status,
        shown(&ran)
    );
}

#[test]
fn calls_before_their_precondition_give_numbers() {
    run("order", &[]);
}

#[test]
fn futures_and_callbacks_behave_in_memory() {
    run("futures", &[]);
}

#[test]
fn futures_and_callbacks_behave_in_a_directory() {
    let env = Env::real();
    let folder = block_on(env.files().temporary_dir("futures-data")).unwrap();
    let data = folder.path().join("data");
    run("futures", &[data.to_str().expect("a path of letters")]);
}

#[test]
fn network_options_take_values_of_any_length() {
    run("network", &[]);
}

#[test]
fn changes_are_consumed_and_acknowledged() {
    run("changes", &[]);
}

#[test]
fn changes_are_consumed_and_acknowledged_in_a_directory() {
    let env = Env::real();
    let folder = block_on(env.files().temporary_dir("changes-data")).unwrap();
    let data = folder.path().join("data");
    run("changes", &[data.to_str().expect("a path of letters")]);
}

#[test]
fn misuse_gives_numbers() {
    run("misuse", &[]);
}

#[test]
fn threads_share_the_library_in_memory() {
    run("threads", &[]);
}

#[test]
fn threads_share_the_library_in_a_directory() {
    let env = Env::real();
    let folder = block_on(env.files().temporary_dir("threads-data")).unwrap();
    let data = folder.path().join("data");
    run("threads", &[data.to_str().expect("a path of letters")]);
}

#[test]
fn options_take_values_of_any_length() {
    run("options", &[]);
}

/// `fdb.open('/nonexist/sub/db')` made the directories above, and read `None`.
#[test]
fn a_name_says_where_a_store_is_and_how_it_is_opened() {
    let env = Env::real();
    let folder = block_on(env.files().temporary_dir("places")).unwrap();
    run("places", &[folder.path().to_str().expect("a path of letters")]);
}

/// An interpreter that ends exits its threads where they come back to it, in a callback: the
/// process died of `exception not rethrown` then, now and then.
#[test]
fn threads_end_in_callbacks() {
    run("exits", &[]);
}

#[test]
fn network_threads_end_in_callbacks_and_hooks() {
    run("exits", &["network"]);
}
