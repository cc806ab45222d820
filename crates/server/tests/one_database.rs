//! A cluster file leads to one database: servers that know nothing of each other don't share one,
//! and a client doesn't change over to another database because it answers at an address that the
//! file names.

mod common;

use common::*;
use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_client::{Database, Endpoint};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{SeriesConfig, Server, ServerConfig};
use plinth_types::Result;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A server at `listen` over a database, with the cluster file at `path`.
fn start_over(endpoint: Arc<dyn Endpoint>, listen: &[SocketAddr], path: &Path) -> Result<Server> {
    let cluster_file = Some(path.to_path_buf());
    let config = ServerConfig { listen: listen.to_vec(), cluster_file, ..ServerConfig::default() };
    block_on(Server::start(endpoint, config))
}

/// The same over a new database, in a directory named as the first address.
fn start(listen: &[SocketAddr], path: &Path) -> Result<Server> {
    start_over(new_database(&path.with_file_name(format!("db-{}", listen[0].port()))), listen, path)
}

/// Databases in memory have no identity.
fn new_database(dir: &Path) -> Arc<dyn Endpoint> {
    let env = Env::real();
    block_on(env.files().create_dir_all(dir)).unwrap();
    let node = block_on(Node::open(&env, dir, NodeConfig::default())).unwrap();
    Arc::new(node.endpoint())
}

fn unused<const N: usize>() -> [SocketAddr; N] {
    block_on(Env::real().unused_addresses(N)).unwrap().try_into().unwrap()
}

/// Three servers with one file of three addresses were all ready, each alone, and rows were spread
/// among them.
#[test]
fn a_cluster_file_that_names_other_servers_too_is_refused() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("one-database")).unwrap();
    let path = dir.path().join("fdb.cluster");
    let [first, second, third] = unused();
    let text = format!("d:i@{first},{second},{third}\n");
    block_on(env.files().replace(&path, text.as_bytes())).unwrap();
    for address in [first, second, third] {
        let error = start(&[address], &path).unwrap_err();
        let told = error.detail().unwrap_or_default().to_owned();
        assert_eq!(error.code(), 2104, "{error}");
        let other = if address == first { second } else { first };
        assert!(told.contains(&format!("{other} is not an address of this server")), "{told}");
    }
    assert_eq!(
        block_on(env.files().read(&path)).unwrap(),
        text.as_bytes(),
        "the file is as it was"
    );
    // All the addresses of one server may be named.
    let server = start(&[first, second, third], &path).unwrap();
    database(&server).transact_blocking(|tr| tr.get("k").wait()).unwrap();
}

/// A client's endpoint over one connection.
fn connect(text: &str) -> Database {
    let env = Env::real();
    let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
    let file = ClusterFile::parse(text).unwrap();
    Database::new(Arc::new(RemoteEndpoint::with_options(&env, file, &options)))
}

#[test]
fn a_client_is_told_when_another_database_answers_where_its_own_was() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("one-database")).unwrap();
    let path = dir.path().join("fdb.cluster");
    let [address] = unused();
    let text = format!("d:i@{address}\n");
    block_on(env.files().replace(&path, text.as_bytes())).unwrap();
    let server = start(&[address], &path).unwrap();
    let db = connect(&text);
    db.transact_blocking(|tr| {
        tr.set("k", "v");
        Ok(())
    })
    .unwrap();
    block_on(server.stop());
    let server = start_over(new_database(&dir.path().join("another")), &[address], &path).unwrap();
    let error = db.transact_blocking(|tr| tr.get("k").wait()).unwrap_err();
    assert_eq!(error.code(), 2104, "{error}");
    assert!(error.detail().unwrap().contains("and this client works with the database"), "{error}");
    // Who opens the database anew means the one that is there.
    assert_eq!(connect(&text).transact_blocking(|tr| tr.get("k").wait()).unwrap(), None);
    drop(server);
}

/// Who had the listener was told to end, and not waited for.
#[test]
fn an_address_is_free_once_its_server_has_stopped() {
    let dir = block_on(Env::real().files().temporary_dir("one-database")).unwrap();
    let (path, database) = (dir.path().join("file"), new_database(&dir.path().join("db")));
    let [address, http, lines, points] = unused();
    let series = SeriesConfig { http: Some(points), ..SeriesConfig::default() };
    let series = SeriesConfig { resp: Some(lines), udp: Some(lines), metrics: false, ..series };
    for round in 0..100 {
        let config = ServerConfig {
            listen: vec![address],
            http: Some(http),
            series: series.clone(),
            cluster_file: Some(path.clone()),
            ..ServerConfig::default()
        };
        let server = block_on(Server::start(database.clone(), config));
        block_on(server.unwrap_or_else(|error| panic!("round {round}: {error}")).stop());
    }
}

#[test]
fn a_client_with_several_addresses_goes_on_where_its_own_database_is() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("one-database")).unwrap();
    let [mine, other] = unused();
    let write = |address: SocketAddr, name: &str| {
        let path = dir.path().join(name);
        block_on(env.files().replace(&path, format!("d:i@{address}\n").as_bytes())).unwrap();
        path
    };
    let database = new_database(&dir.path().join("db-mine"));
    let server = start_over(database.clone(), &[mine], &write(mine, "mine")).unwrap();
    let foreign = start(&[other], &write(other, "other")).unwrap();
    let db = connect(&format!("d:i@{mine},{other}\n"));
    db.transact_blocking(|tr| {
        tr.set("k", "v");
        Ok(())
    })
    .unwrap();
    // While its own server is away, the other one answers; nothing may be read from it.
    block_on(server.stop());
    let read = env.spawn("read", async move {
        let found = db.transact(async |tr| tr.get("k").await).await.unwrap();
        assert_eq!(found.as_deref(), Some(b"v".as_slice()));
    });
    while foreign.figures().accepted == 0 {
        block_on(env.sleep(Duration::from_millis(1)));
    }
    let server = start_over(database, &[mine], &dir.path().join("mine")).unwrap();
    block_on(read).unwrap();
    drop((server, foreign));
}
