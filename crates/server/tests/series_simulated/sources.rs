//! Whoever makes series without number has a bound of his own: others have room for theirs, and
//! what he has goes on.

use super::{line, open, send_all};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_series::SeriesLimits;
use plinth_server::{SeriesConfig, Server, ServerConfig};
use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Series that there may be, and how many of them by one source.
const ALL: u64 = 60;
const OF_SOURCE: u64 = 24;

/// Sends a point of each of these series, on a connection of its own; gives what was refused.
async fn send(env: &Env, at: SocketAddr, name: &str, numbers: Range<u64>) -> Vec<String> {
    let mut text = String::new();
    let time = env.wall_clock().as_nanos();
    numbers.for_each(|number| write!(text, "+{name} n={number}\n:{time}\n:1\n").unwrap());
    let mut stream = env.sockets().connect(at).await.unwrap();
    send_all(&mut stream, (text + "+SYNC\n").as_bytes()).await.unwrap();
    let mut refused = Vec::new();
    loop {
        match line(&mut stream).await.unwrap() {
            told if told.starts_with("+OK") => return refused,
            told => refused.push(told),
        }
    }
}

#[test]
fn a_source_that_makes_series_without_number_is_refused_and_others_are_not() {
    let sim = Simulation::new(3);
    let server = sim.process("server");
    let [greedy, other] = ["greedy", "other"].map(|name| sim.process(name));
    let at = SocketAddr::new(sim.ip(&server), 8282);
    let theirs = server.clone();
    drop(server.spawn("server", async move {
        let node = open(&theirs).await;
        let of_source = Some(OF_SOURCE);
        let limits = SeriesLimits { series: ALL, of_source, ..SeriesLimits::default() };
        let series = SeriesConfig { resp: Some(at), limits, ..SeriesConfig::default() };
        let listen = vec![SocketAddr::new(at.ip(), 4500)];
        let config = ServerConfig { listen, series, ..ServerConfig::default() };
        let server =
            Server::start(Arc::new(node.endpoint()), config).await.expect("the addresses are free");
        std::future::pending::<()>().await;
        drop(server);
    }));
    sim.run_for(Duration::from_secs(1));
    sim.run_until(async {
        let refused = send(&greedy, at, "greedy", 0..100).await;
        let whose = format!("-DB too many: {} has made the {OF_SOURCE} series", sim.ip(&greedy));
        assert_eq!(refused.len() as u64, 100 - OF_SOURCE, "{refused:?}");
        assert!(refused.iter().all(|told| told.starts_with(&whose)), "{refused:?}");
        // On a new connection no more, either; those that there are go on.
        assert_eq!(send(&greedy, at, "greedy", 0..30).await.len() as u64, 30 - OF_SOURCE);
        assert_eq!(send(&greedy, at, "greedy", 0..OF_SOURCE).await, [""; 0]);
        // Others make theirs meanwhile, up to what there is room for.
        assert_eq!(send(&other, at, "other", 0..20).await, [""; 0]);
        assert_eq!(send(&other, at, "other", 0..OF_SOURCE).await, [""; 0]);
        assert_eq!(send(&other, at, "other", 0..OF_SOURCE + 1).await.len(), 1);
        // A day's come back within a day.
        greedy.sleep(Duration::from_secs(2 * 3600)).await;
        assert_eq!(send(&greedy, at, "later", 0..5).await.len(), 3);
    });
}
