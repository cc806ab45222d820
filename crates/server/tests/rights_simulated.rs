//! What is granted and taken back holds within a second on connections that are open: for those who
//! ask, for those who wait, and for those who send.
//!
//! By a simulated clock, so that a second is one on any machine. Each seed has the change fall at
//! another moment between two looks of the server's at its rows.

use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_client::{Database, TransactionOption};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, Stream};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{SeriesConfig, Server, ServerConfig};
use plinth_types::rights::Grant;
use plinth_types::{Error, Result, codes};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

/// How long a change may take until it holds everywhere.
const HELD: Duration = Duration::from_secs(1);
const DENIED: i32 = codes::PERMISSION_DENIED;

fn code<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |error| error.code())
}

/// Writes a row as `plinth shell` does, or takes it away.
async fn change(inside: &Database, text: &str, is_granted: bool) {
    let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let key = Grant::parse(&words).expect("it says a grant").key();
    let changed = inside.transact(async |tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        match is_granted {
            true => tr.set(&key, b"\x01"),
            false => tr.clear(&key),
        }
        Ok(())
    });
    changed.await.unwrap_or_else(|error: Error| panic!("{error}"));
}

async fn set(inside: &Database, key: &str, value: &str) {
    let set = inside.transact(async |tr| {
        tr.set(key, value);
        Ok(())
    });
    set.await.unwrap_or_else(|error: Error| panic!("{error}"));
}

async fn read(db: &Database, key: &str) -> i32 {
    code(db.transact(async |tr| tr.get(key).await).await)
}

/// What a sender on lines hears of a point.
async fn sends(stream: &mut Stream, time: u64) -> String {
    let text = format!("+m a=1\n:{time}\n:1\n+SYNC\n");
    let (bytes, mut sent) = (text.as_bytes(), 0);
    let said = poll_fn(|context| {
        while sent < bytes.len() {
            sent += ready!(stream.poll_send(context, &bytes[sent..]))?;
        }
        Poll::Ready(std::io::Result::Ok(()))
    });
    said.await.expect("the connection is open");
    let (mut told, mut buffer) = (String::new(), [0; 1000]);
    while !told.contains('\n') {
        match poll_fn(|context| stream.poll_receive(context, &mut buffer)).await {
            Ok(len @ 1..) => told += &String::from_utf8_lossy(&buffer[..len]),
            _ => break,
        }
    }
    told
}

/// A server, and the database behind it.
struct Place {
    inside: Database,
    server: Server,
    lines: SocketAddr,
}

async fn serve(env: &Env, ip: std::net::IpAddr) -> Result<Place> {
    let node = Node::in_memory(env, NodeConfig::default()).await?;
    let lines = SocketAddr::new(ip, 8282);
    let series = SeriesConfig { resp: Some(lines), ..SeriesConfig::default() };
    let listen = vec![SocketAddr::new(ip, 4500)];
    let config = ServerConfig { listen, series, ..ServerConfig::default() };
    let server = Server::start(Arc::new(node.endpoint()), config).await?;
    Ok(Place { inside: Database::new(Arc::new(node.endpoint())), server, lines })
}

fn a_change_holds_within_a_second(seed: u64) {
    let sim = Simulation::new(seed);
    let (server, user) = (sim.process("server"), sim.process("user"));
    let ip = sim.ip(&server);
    let place = sim.run_until(serve(&server, ip)).expect("nothing is wrong with the place");
    let file = ClusterFile::parse(place.server.connection_string()).expect("the server wrote it");
    let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&user) };
    let db = Database::new(Arc::new(RemoteEndpoint::with_options(&user, file, &options)));
    let who = format!("address {}", sim.ip(&user));
    let [reads, writes] = [format!("reader {who} prefix shop/"), format!("writer {who} series")];
    let grants = |is_granted: bool| {
        sim.run_until(async {
            change(&place.inside, &reads, is_granted).await;
            change(&place.inside, &writes, is_granted).await;
        });
        sim.run_for(HELD);
    };
    let accepted = || place.server.figures().accepted;
    let mut sender = sim.run_until(async {
        change(&place.inside, "operator address 192.0.2.1", true).await;
        user.sockets().connect(place.lines).await.expect("the server listens")
    });
    sim.run_for(HELD + Duration::from_millis(seed * 37));
    assert_eq!(sim.run_until(read(&db, "shop/a")), DENIED, "seed {seed}");
    let connections = accepted();
    for round in 0..3 {
        grants(true);
        assert_eq!(sim.run_until(read(&db, "shop/a")), 0, "seed {seed}, round {round}");
        assert_eq!(sim.run_until(read(&db, "log/a")), DENIED, "seed {seed}, round {round}");
        if round == 0 {
            let told = sim.run_until(sends(&mut sender, round));
            assert!(told.starts_with("+OK"), "seed {seed}: {told}");
        }
        let (watch, snapshot) = sim.run_until(async {
            let watch = db.transact(async |tr| Ok(tr.watch("shop/a"))).await;
            (watch.unwrap_or_else(|error: Error| panic!("{error}")), db.pin_snapshot().await)
        });
        let snapshot = snapshot.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(code(sim.run_until(snapshot.get("shop/a"))), 0, "seed {seed}, round {round}");
        grants(false);
        // It ended by itself, not because it was asked about.
        assert!(watch.is_ready(), "seed {seed}, round {round}: the watch waits on");
        sim.run_until(set(&place.inside, "shop/a", &format!("{round}")));
        assert_eq!(code(sim.run_until(watch)), DENIED, "seed {seed}, round {round}");
        assert_eq!(sim.run_until(read(&db, "shop/a")), DENIED, "seed {seed}, round {round}");
        assert_eq!(code(sim.run_until(snapshot.get("shop/a"))), DENIED, "seed {seed}");
        if round == 0 {
            let told = sim.run_until(sends(&mut sender, 7));
            assert!(told.contains("permission_denied"), "seed {seed}: {told}");
        }
        assert_eq!(accepted(), connections, "seed {seed}: on the same connection");
    }
}

#[test]
fn what_is_granted_and_taken_back_holds_within_a_second_on_open_connections() {
    (1..=12).for_each(a_change_holds_within_a_second);
}
