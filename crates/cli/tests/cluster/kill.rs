//! `kill` in the shell: servers begin anew, one after the other.
//!
//! That never two are away at once is looked at from outside, by asking each server itself: what
//! starts them again does so one by one, and its words are in order whatever happened. A server is
//! away until it has served once in its new life.

use super::common::counting::Counting;
use super::common::{Running, scratch};
use super::{Cluster, command, lines_until};
use plinth::client::Endpoint;
use plinth::client::remote::RemoteEndpoint;
use plinth::{ClusterFile, Database, RangeOptions};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Task, block_on};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Looks all the while how many servers are away at once. What starts them again does so one by
/// one, so its words can't tell.
struct Watch {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicUsize>,
    task: Task,
}

/// A server, as it says itself: which process it is, and whether that has ever served.
#[derive(Clone, Default)]
struct Seen {
    address: String,
    process: Option<u64>,
    has_served: bool,
}

impl Watch {
    fn start(file: &Path, servers: &[&str]) -> Self {
        let env = Env::real();
        let endpoint =
            RemoteEndpoint::connect(&env, block_on(ClusterFile::read(&env, file)).unwrap());
        let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let seen = |address: &&str| Seen { address: (*address).to_owned(), ..Seen::default() };
        let mut seen: Vec<_> = servers.iter().map(seen).collect();
        let (told, found) = (stop.clone(), most.clone());
        let task = env.spawn("watch", async move {
            while seen.iter().any(|server| !server.has_served) {
                away(&endpoint, &mut seen).await;
            }
            while !told.load(Ordering::Relaxed) {
                let mut gone = away(&endpoint, &mut seen).await;
                if gone > 1 {
                    // One was seen a moment before the other.
                    gone = gone.min(away(&endpoint, &mut seen).await);
                }
                found.fetch_max(gone, Ordering::Relaxed);
                endpoint.env().sleep(Duration::from_millis(5)).await;
            }
        });
        Self { stop, most, task }
    }

    /// How many were away at once.
    fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.task.wait().unwrap();
        self.most.load(Ordering::Relaxed)
    }
}

/// How many servers are away: from the moment at which one doesn't answer until it says that it has
/// what was committed, and knows who leads.
async fn away(endpoint: &RemoteEndpoint, servers: &mut [Seen]) -> usize {
    let mut gone = 0;
    for server in servers {
        let asked = race(
            endpoint.status_of(&server.address),
            endpoint.env().sleep(Duration::from_millis(300)),
        );
        // One that takes long is what it was.
        if let First::Left(told) = asked.await {
            let status: serde_json::Value = told.unwrap_or_default().parse().unwrap_or_default();
            let own = &status["cluster"]["plinth"];
            let process = own["server"]["process_id"].as_u64();
            if process.is_none() || process != server.process {
                (server.process, server.has_served) = (process, false);
            }
            let member = &own["member"];
            server.has_served |= !member["leader"].is_null() && member["catching_up"].is_null();
        }
        gone += usize::from(!server.has_served);
    }
    gone
}

/// Servers that something starts again are told to begin anew: all of them, one after the other,
/// with a writer at work, and one by name.
pub fn by_shell(file: &Path, db: &Database, errors: &mut impl std::io::BufRead) -> u64 {
    let shell = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
        let output =
            command.args(["shell", "--exec", line, "--cluster-file"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let told = String::from_utf8(output.stdout).unwrap();
        // Where it takes long it says what it waits for.
        let is_news = |line: &&str| !line.starts_with("... waits for ");
        told.lines().filter(is_news).map(|line| format!("{line}\n")).collect::<String>()
    };
    let counting = Counting::start(file, 2);
    let listed = shell("kill");
    // Servers are clients of each other, too, under names of more words.
    let servers = listed.lines().filter_map(|line| line.strip_suffix(" server"));
    let servers: Vec<_> = servers.filter(|server| !server.contains(' ')).collect();
    assert_eq!(servers.len(), 3, "{listed}");
    let watch = Watch::start(file, &servers);
    let told = shell("kill all");
    let all: Vec<_> = servers.iter().map(|server| format!("{server} begins anew")).collect();
    assert_eq!(told.lines().collect::<Vec<_>>(), all);
    assert_eq!(watch.stop(), 1, "so many servers were away at once");
    for _ in 0..3 {
        lines_until(errors, "plinth: server");
        assert!(lines_until(errors, "plinth: server").pop().unwrap().ends_with("serves again"));
    }
    assert_eq!(shell(&format!("kill {}", servers[1])), format!("{} begins anew\n", servers[1]));
    assert!(
        lines_until(errors, "plinth: server 2 has ended")
            .pop()
            .unwrap()
            .contains("exit status: 75")
    );
    assert_eq!(lines_until(errors, "plinth: server")[0], "plinth: server 2 serves again");
    counting.await_more(5, Duration::from_millis(5));
    assert_eq!(block_on(db.endpoint().reboot("127.0.0.1:1")), Ok(0), "there is no such server");
    counting.stop()
}

/// It listens, and had itself be told, but looked whether it was only once it served.
#[test]
fn a_server_that_serves_nobody_can_be_told_to_begin_anew() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    for server in &mut cluster.servers {
        server.take().unwrap().kill();
    }
    let mut alone = command(place.path(), &cluster.file, &cluster.addresses[0], 0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let db = Database::connect(&cluster.file).unwrap();
    while block_on(db.endpoint().reboot(&cluster.addresses[0])).unwrap_or(0) == 0 {
        block_on(Env::real().sleep(Duration::from_millis(50)));
    }
    assert_eq!(alone.wait().unwrap().code(), Some(75));
}

/// One that has a database of its own is listed below the special keys too, and told in the same
/// way.
#[test]
fn one_server_alone_is_listed_and_begins_anew() {
    const WORKERS: &[u8] = b"\xff\xff/worker_interfaces/";
    let place = scratch();
    let mut server = Running::start(&place.path().join("alone"), &["--listen", "127.0.0.1:0"]);
    let db = Database::connect(server.cluster_file()).unwrap();
    let rows =
        db.transact_blocking(|tr| tr.get_range(RangeOptions::prefix(WORKERS)).wait()).unwrap().rows;
    let keys: Vec<_> = rows
        .iter()
        .map(|(key, _)| String::from_utf8_lossy(&key[WORKERS.len()..]).into_owned())
        .collect();
    let [address] = &keys[..] else { panic!("{keys:?}") };
    assert!(server.ready.contains(address), "{address}: {}", server.ready);
    assert_eq!(block_on(db.endpoint().reboot("127.0.0.1:1")), Ok(0), "that is somebody else");
    assert_eq!(block_on(db.endpoint().reboot(address)), Ok(1));
    assert_eq!(server.child.wait().unwrap().code(), Some(75));
}
