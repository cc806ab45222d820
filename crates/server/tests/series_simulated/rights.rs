//! Datagrams of whoever may send none, while others send some that are taken.

use super::{found, open};
use plinth_client::{Database, TransactionOption};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_series::SeriesStore;
use plinth_server::{SeriesConfig, Server, ServerConfig};
use plinth_types::rights::Grant;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Serves the database of a machine, in which these rights are given first.
fn start_with(env: &Env, udp: SocketAddr, grants: Vec<String>) {
    let theirs = env.clone();
    drop(env.spawn("server", async move {
        let node = open(&theirs).await;
        let database = Database::new(Arc::new(node.endpoint()));
        let given = database.transact(async |tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            for grant in &grants {
                let words: Vec<_> = grant.split(' ').map(|word| word.into()).collect();
                tr.set(Grant::parse(&words)?.key(), b"\x01");
            }
            Ok(())
        });
        given.await.unwrap_or_else(|error: plinth_types::Error| panic!("{error}"));
        let series = SeriesConfig { udp: Some(udp), ..SeriesConfig::default() };
        let listen = vec![SocketAddr::new(udp.ip(), 4500)];
        let config = ServerConfig { listen, series, ..ServerConfig::default() };
        let server =
            Server::start(Arc::new(node.endpoint()), config).await.expect("the addresses are free");
        std::future::pending::<()>().await;
        drop(server);
    }));
}

/// Each of them made the server wait as if the store had failed, so that whoever may send nothing
/// kept it from taking others' datagrams.
#[test]
fn datagrams_that_are_refused_keep_nobody_waiting() {
    let sim = Simulation::new(7);
    let mut server = sim.process("server");
    let [sender, other] = ["sender", "other"].map(|name| sim.process(name));
    let at = SocketAddr::new(sim.ip(&server), 8383);
    let grants = vec![
        "operator address 192.0.2.1".to_owned(),
        format!("writer address {} metric m*", sim.ip(&sender)),
    ];
    start_with(&server, at, grants);
    sim.run_for(Duration::from_secs(1));
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    sim.run_until(async {
        let socket = |env: &Env| env.sockets().datagrams(anywhere).expect("any port is good");
        let (mut refused, mut taken) = (socket(&other), socket(&sender));
        for time in 0..200 {
            let text = format!("+m a=2\n:{time}\n:1\n");
            refused.send(at, text.as_bytes()).await.expect("it is short");
            // Whoever may some metrics is no trouble by others, either.
            let text = format!("+x a=1\n:{time}\n:1\n+m a=1\n:{time}\n:1\n");
            taken.send(at, text.as_bytes()).await.expect("it is short");
            sender.sleep(Duration::from_millis(2)).await;
        }
    });
    sim.run_for(Duration::from_secs(3));
    sim.crash(&server);
    server = sim.restart(&server);
    sim.run_until(async {
        let node = open(&server).await;
        let store = SeriesStore::open(&Database::new(Arc::new(node.endpoint()))).await.unwrap();
        for (name, count) in [("m a=1", 200), ("m a=2", 0), ("x a=1", 0)] {
            assert_eq!(found(&store, name).await.len(), count, "{name}");
        }
    });
}
