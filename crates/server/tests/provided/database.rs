#[allow(dead_code, reason = "the client's own tests ask whether they are in the process")]
mod served {
    use plinth_client::Endpoint;
    use std::sync::Arc;

    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/endpoint.rs"));
}

/// A database in memory as the tests reach it: by sockets, through a server that lives as long as
/// what is given.
pub fn in_memory() -> plinth::Database {
    provided(plinth::Builder::in_memory())
}

/// The same with other settings.
pub fn provided(builder: plinth::Builder) -> plinth::Database {
    let near = builder.open().unwrap().into_database();
    plinth::Database::new(served::provided(near.endpoint().clone()))
}
