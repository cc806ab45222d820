/// A database in memory as the tests reach it: in the process. Where the same tests run against a
/// server, another file of this name puts sockets between.
pub fn in_memory() -> plinth::Database {
    provided(plinth::Builder::in_memory())
}

/// The same with other settings.
pub fn provided(builder: plinth::Builder) -> plinth::Database {
    builder.open().unwrap().into_database()
}
