//! A whole server in simulation: it is told the bytes by one client, and must answer another one as
//! ever.
//!
//! The world is made anew for each input, so that a run depends on nothing else. What is in the
//! database is little: a few keys, so that reads find something.

use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, TransactionOption};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, Stream};
use plinth_pipeline::{Node, NodeConfig};
use plinth_proto::Hello;
use plinth_server::{ConsoleConfig, Server, ServerConfig};
use plinth_types::Result;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::ready;
use std::time::Duration;

/// How long a client with its bytes is listened to.
const PATIENCE: Duration = Duration::from_secs(100);

/// A server, its address for clients, and that for HTTP.
struct Place {
    server: Server,
    clients: SocketAddr,
    http: SocketAddr,
}

async fn serve(env: &Env, ip: std::net::IpAddr) -> Result<Place> {
    let node = Node::in_memory(env, NodeConfig::default()).await?;
    let (clients, http) = (SocketAddr::new(ip, 4500), SocketAddr::new(ip, 8080));
    let config = ServerConfig {
        listen: vec![clients],
        http: Some(http),
        console: ConsoleConfig { token_file: None, write: true },
        ..ServerConfig::default()
    };
    let server = Server::start(Arc::new(node.endpoint()), config).await?;
    Ok(Place { server, clients, http })
}

/// Sends all of it, says that it was all, and takes what comes until the other side ends.
async fn exchange(mut stream: Stream, bytes: &[u8]) -> Vec<u8> {
    let mut sent = 0;
    // Whoever was refused may find the connection closed.
    let _ = poll_fn(|context| {
        while sent < bytes.len() {
            sent += ready!(stream.poll_send(context, &bytes[sent..]))?;
        }
        stream.poll_finish(context)
    })
    .await;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(more @ 1..) = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await {
        received.extend_from_slice(&buffer[..more]);
    }
    received
}

/// A client like any other writes and reads.
async fn assert_serves(env: &Env, place: &Place) {
    let file = ClusterFile::parse(place.server.connection_string()).expect("the server wrote it");
    let db = Database::new(Arc::new(RemoteEndpoint::connect(env, file)));
    // The stranger may have locked the database: it is one that anybody may write to.
    let write = db.transact(|tr| async move {
        tr.set_option(TransactionOption::LockAware)?;
        tr.set("still", "here");
        Ok(())
    });
    write.await.expect("the server still takes commits");
    let value = db.transact(|tr| async move {
        tr.set_option(TransactionOption::LockAware)?;
        tr.get("still").await
    });
    let value = value.await;
    assert_eq!(value.expect("the server still reads").as_deref(), Some(&b"here"[..]));
}

/// Runs the server, gives it the bytes at one of its addresses, and looks whether it still serves;
/// gives its answer.
fn told(bytes: &[u8], to_http: bool) -> Vec<u8> {
    let simulation = Simulation::new(1);
    let (server, stranger, other) =
        (simulation.process("server"), simulation.process("stranger"), simulation.process("other"));
    let ip = simulation.ip(&server);
    let place = simulation.run_until(serve(&server, ip)).expect("nothing is wrong with the place");
    let address = if to_http { place.http } else { place.clients };
    let answer = simulation.run_until_within(PATIENCE, async {
        let stream = stranger.sockets().connect(address).await.expect("the server listens");
        exchange(stream, bytes).await
    });
    // Who says nothing more is closed in the end: within the patience that the server has.
    let answer = answer.expect("the server has neither answered nor closed");
    simulation.run_until(assert_serves(&other, &place));
    answer
}

/// A client that has greeted and then says these bytes.
pub(crate) fn connection(bytes: &[u8]) {
    let mut stream = Vec::new();
    Hello::new("", "fuzz").encode(&mut stream);
    stream.extend_from_slice(bytes);
    assert!(!told(&stream, false).is_empty(), "the server has not even greeted");
}

/// What a browser, or somebody else, says to the console.
pub(crate) fn http(bytes: &[u8]) {
    let answer = told(bytes, true);
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1."),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
}
