//! The status document as a server gives it: complete, and true of the server.
//!
//! It is the node's own with addresses and clients filled in. That a rate is one is seen in
//! simulation, where a second is one; an exporter that finds no `hz`, or a dashboard on which
//! nothing ever starts, was what a document of two authors led to.

mod common;
#[path = "../../pipeline/tests/common/tools.rs"]
mod tools;

use common::*;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, Endpoint};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_proto::frame::Kind;
use plinth_proto::{ReadVersion, Request};
use plinth_server::{Limits, Server, ServerConfig};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn workload(status: &Value, path: &str) -> f64 {
    let value = status.pointer(&format!("/cluster/workload/{path}"));
    value.and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} is missing in {status}"))
}

#[test]
fn every_field_that_tools_read_is_there_and_says_where_the_server_is() {
    let server = serve(Limits::default());
    let status = tools::status(&database(&server));
    tools::assert_complete(&status);
    let address = server.addresses()[0].to_string();
    let (_, process) = status["cluster"]["processes"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(process["address"], *address);
    assert_eq!(status["client"]["coordinators"]["coordinators"][0]["address"], *address);
    assert_eq!(status["cluster"]["connection_string"], server.connection_string());
    let text = status.to_string();
    // A port of five digits may begin so.
    let mut behind = text.split("127.0.0.1:4500").skip(1);
    assert!(behind.all(|rest| rest.starts_with(|c: char| c.is_ascii_digit())), "not there: {text}");
}

#[test]
fn clients_are_those_that_have_said_who_they_are() {
    let server = serve(Limits::default());
    let of = |server: &Server| {
        let file = ClusterFile::parse(server.connection_string()).unwrap();
        let env = Env::real();
        let options = plinth_client::remote::RemoteOptions {
            connections: 1,
            ..plinth_client::remote::RemoteOptions::new(&env)
        };
        Database::new(Arc::new(RemoteEndpoint::with_options(&env, file, &options)))
    };
    let db = of(&server);
    assert_eq!(tools::status(&db)["cluster"]["clients"]["count"], 1, "whoever asks is one");
    let silent = Raw::connect(&server);
    let greeted: Vec<_> = (0..30).map(|_| Raw::greeted(&server)).collect();
    while server.figures().connections < 32 {
        block_on(Env::real().sleep(Duration::from_millis(1)));
    }
    let clients = tools::status(&db)["cluster"]["clients"].clone();
    assert_eq!(clients["count"], 31, "{clients}");
    let [version] = &clients["supported_versions"].as_array().unwrap()[..] else {
        panic!("{clients}")
    };
    assert_eq!((&version["count"], &version["max_protocol_count"]), (&31.into(), &31.into()));
    assert_eq!(version["protocol_version"], "fdb00b073000000");
    for list in ["connected_clients", "max_protocol_clients"] {
        let listed = version[list].as_array().unwrap();
        assert_eq!(listed.len(), 20, "a list is for a person: {clients}");
        for client in listed {
            assert_eq!(client["log_group"], "default");
            let address = client["address"].as_str().unwrap().parse::<SocketAddr>().unwrap();
            assert_ne!(address, server.addresses()[0]);
        }
    }
    drop((silent, greeted));
}

#[test]
fn a_request_for_many_starts_counts_as_many() {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let server = serve_endpoint(Arc::new(node.endpoint()), Limits::default());
    let counts = || {
        let text = node.metrics_text();
        let line = text.lines().find_map(|line| {
            line.strip_prefix("plinth_transactions_started_total{priority=\"batch\"} ")
                .map(str::to_owned)
        });
        let document = node.endpoint().status_json().wait().unwrap();
        let document: Value = serde_json::from_str(&document).unwrap();
        let started =
            |name: &str| workload(&document, &format!("transactions/{name}/counter")) as u64;
        let metrics: u64 = line.unwrap().parse().unwrap();
        [
            metrics,
            started("started"),
            started("started_batch_priority"),
            server.figures().transactions,
        ]
    };
    let before = counts();
    let mut raw = Raw::greeted(&server);
    // None is one, and more than there may be are as many as there may be.
    for (id, (count, more)) in [(50, 50), (1, 1), (0, 1), (u32::MAX, 1000)].into_iter().enumerate()
    {
        let last = counts();
        let request = ReadVersion { priority: 0, count, ..ReadVersion::default() };
        raw.ask(id as u32, &Request::ReadVersion(request)).unwrap();
        assert_eq!(
            raw.next().map(|(id, kind, _)| (id, kind)),
            Some((id as u32, Kind::ReadVersionReply as u8))
        );
        raw.ask(99, &Request::Ping).unwrap();
        assert_eq!(raw.next().map(|(id, ..)| id), Some(99));
        let now = counts();
        assert_eq!(
            std::array::from_fn(|at| now[at] - last[at]),
            [more; 4],
            "{count} were asked for"
        );
    }
    assert_eq!(counts()[0] - before[0], 1052);
}

/// A server over a database in memory, in simulation, and a client of it.
fn simulated(sim: &Simulation) -> (Env, Database) {
    let (machine, client) = (sim.process("server"), sim.process("client"));
    let address = SocketAddr::new(sim.ip(&machine), 4500);
    let env = machine.clone();
    drop(machine.spawn("server", async move {
        let node = Node::in_memory(&env, NodeConfig::default()).await.unwrap();
        let config =
            ServerConfig { listen: vec![address], without_tls: true, ..ServerConfig::default() };
        let server = Server::start(Arc::new(node.endpoint()), config).await.unwrap();
        std::future::pending::<()>().await;
        drop(server);
    }));
    let file = ClusterFile::new("plinth", "memory", address);
    let db = Database::new(Arc::new(RemoteEndpoint::connect(&client, file)));
    (client, db)
}

#[test]
fn rates_are_those_of_what_clients_do() {
    let sim = Simulation::new(5);
    let (client, db) = simulated(&sim);
    let (env, theirs) = (client.clone(), db.clone());
    drop(client.spawn("client", async move {
        loop {
            let read = theirs.transact(|tr| async move {
                let one = tr.get("a");
                let two = tr.get("b");
                tr.set("c", "d");
                one.await?;
                two.await.map(drop)
            });
            read.await.unwrap();
            env.sleep(Duration::from_millis(20)).await;
        }
    }));
    sim.run_for(Duration::from_secs(12));
    let text = sim.run_until(db.status_json()).unwrap();
    let status: Value = serde_json::from_str(&text).unwrap();
    tools::assert_complete(&status);
    let hz = |path: &str| workload(&status, &format!("{path}/hz"));
    let started = hz("transactions/started");
    assert!((20.0..=50.0).contains(&started), "{started} a second");
    let is_near = |path: &str, expected: f64| {
        let rate = hz(path);
        assert!((rate - expected).abs() < expected / 10.0, "{path}: {rate}, not {expected}");
    };
    is_near("transactions/started_default_priority", started);
    is_near("transactions/committed", started);
    is_near("operations/reads", 2.0 * started);
    is_near("operations/read_requests", 2.0 * started);
    is_near("keys/read", 2.0 * started);
    is_near("operations/writes", started);
}

#[test]
fn more_starts_at_once_than_one_request_takes_are_counted_each() {
    const STARTS: usize = 2500;
    let sim = Simulation::new(6);
    let (_client, db) = simulated(&sim);
    let ask = || {
        let text = sim.run_until(db.status_json()).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let started = |status: &Value| workload(status, "transactions/started/counter") as usize;
    let before = started(&ask());
    let transactions: Vec<_> = (0..STARTS).map(|_| db.create_transaction()).collect();
    let versions: Vec<_> = transactions.iter().map(|tr| tr.get_read_version()).collect();
    for version in versions {
        assert!(sim.run_until(version).unwrap() > 0);
    }
    assert_eq!(started(&ask()) - before, STARTS);
}
