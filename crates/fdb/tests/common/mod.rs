//! Our own `libfdb_c`, loaded as Apple's would be, and a stub of one.
#![allow(dead_code, reason = "each test has its own use of it")]

use plinth_client::Database;
use plinth_fdb::{Foundation, Target};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The library that cargo builds beside the tests.
pub fn library() -> String {
    let test = std::env::current_exe().expect("a running test has a path");
    let name = format!("{}fdb_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    test.parent().expect("it lies in a folder").join(name).display().to_string()
}

/// The database that this cluster file argument names.
pub fn open(cluster_file: &str) -> Foundation {
    let target = Target { cluster_file: cluster_file.to_owned(), library: Some(library()) };
    Foundation::open(&target).unwrap_or_else(|error| panic!("{target}: {error}"))
}

/// An empty database in memory, through the library.
pub fn memory() -> Database {
    Database::new(Arc::new(open(":memory:")))
}

/// Builds the stub beside the tests.
pub fn stub(name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub/libfdb_c_stub.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-shared", "-fPIC", "-pthread"])
        .args(options)
        .arg("-o")
        .args([&library, &source])
        .status()
        .expect("a C compiler, which linking needs too");
    assert!(built.success());
    library
}
