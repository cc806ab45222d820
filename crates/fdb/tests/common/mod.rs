//! Our own `libfdb_c`, loaded as Apple's would be.

use plinth_client::Database;
use plinth_fdb::{Foundation, Target};
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
