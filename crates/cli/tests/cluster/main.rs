//! Three servers as processes, formed by one cluster file: the leader is killed again and again,
//! and nothing that was acknowledged is missing.
//!
//! The clients count, as those of one server do (`common/counting.rs`): a count that was lost, or
//! took effect twice, shows.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod kill;
mod majority;
mod places;
mod protocol;
mod series;
mod store;

use common::counting::{Counting, count, judge};
use common::{Running, scratch};
use plinth::client::Endpoint;
use plinth::client::remote::RemoteEndpoint;
use plinth::cluster::Spoken;
use plinth::{ClusterFile, Database, TransactionOption};
use plinth_env::{Env, block_on};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const KILLS: usize = 20;
const CLIENTS: usize = 16;

struct Cluster {
    place: PathBuf,
    file: PathBuf,
    addresses: Vec<String>,
    servers: Vec<Option<Running>>,
    /// What else each of them is told.
    more: Vec<Vec<String>>,
}

fn command(place: &Path, file: &Path, address: &str, at: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.arg("server").arg("--dir").arg(place.join(format!("node-{at}")));
    command.args(["--listen", address, "--log", "text,error"]).arg("--cluster-file").arg(file);
    command
}

/// Addresses where nobody listens now.
fn unused_addresses(count: usize) -> Vec<String> {
    let unused = block_on(Env::real().unused_addresses(count)).unwrap();
    unused.iter().map(ToString::to_string).collect()
}

impl Cluster {
    /// Three servers that form a cluster.
    fn form(place: &Path) -> Self {
        Self::form_with(place, vec![Vec::new(); 3])
    }

    /// Three servers that are told more form a cluster.
    fn form_with(place: &Path, more: Vec<Vec<String>>) -> Self {
        let addresses = unused_addresses(3);
        Self::form_all(place, &addresses.clone(), addresses, more)
    }

    /// Three servers, with other names in the cluster file for where they listen.
    fn form_at(place: &Path, named: &[String], addresses: Vec<String>) -> Self {
        Self::form_all(place, named, addresses, vec![Vec::new(); 3])
    }

    fn form_all(
        place: &Path,
        named: &[String],
        addresses: Vec<String>,
        more: Vec<Vec<String>>,
    ) -> Self {
        let file = place.join("fdb.cluster");
        let line = format!("test:three@{}\n", named.join(","));
        block_on(Env::real().files().replace(&file, line.as_bytes())).unwrap();
        let mut children: Vec<_> = addresses
            .iter()
            .enumerate()
            .map(|(at, address)| {
                let mut command = command(place, &file, address, at);
                command
                    .args(&more[at])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let servers = children.drain(..).map(|child| Some(Running::ready(child))).collect();
        Self { place: place.to_path_buf(), file, addresses, servers, more }
    }

    fn start(&mut self, at: usize) {
        let mut command = command(&self.place, &self.file, &self.addresses[at], at);
        command.args(self.more.get(at).into_iter().flatten());
        self.servers[at] = Some(Running::of(&mut command));
    }

    /// Starts servers of which none is ready without the others.
    fn start_together(&mut self, these: &[usize]) {
        let begin = |at: &usize| {
            let mut command = command(&self.place, &self.file, &self.addresses[*at], *at);
            command.args(self.more.get(*at).into_iter().flatten());
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        };
        let begun: Vec<_> = these.iter().map(begin).collect();
        for (at, child) in these.iter().zip(begun) {
            self.servers[*at] = Some(Running::ready(child));
        }
    }

    /// The disk of a server that was killed is lost.
    fn wipe(&mut self, at: usize) {
        self.servers[at].take().unwrap().kill();
        let dir = self.place.join(format!("node-{at}"));
        block_on(Env::real().files().remove_dir_all(&dir)).unwrap();
    }

    /// A server that the cluster file doesn't name.
    fn add(&mut self) -> usize {
        let at = self.servers.len();
        self.addresses.extend(unused_addresses(1));
        self.servers.push(None);
        self.start(at);
        at
    }

    /// The place of the server that leads, as the servers say.
    fn leader(&self) -> usize {
        let env = Env::real();
        let file = block_on(ClusterFile::read(&env, &self.file)).unwrap();
        let endpoint = RemoteEndpoint::connect(&env, file);
        loop {
            let located = block_on(endpoint.locate()).unwrap();
            let place = located
                .leader_address()
                .and_then(|leader| self.addresses.iter().position(|a| a == leader));
            if let Some(at) = place.filter(|at| self.servers[*at].is_some()) {
                return at;
            }
            block_on(endpoint.env().sleep(Duration::from_millis(20)));
        }
    }
}

#[test]
fn the_leader_is_killed_again_and_again_and_nothing_acknowledged_is_lost() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    let env = Env::real();
    let counting = Counting::start(&cluster.file, CLIENTS);
    for round in 0..KILLS {
        counting.await_more(20, Duration::from_millis(3 * round as u64 + 1));
        let leader = cluster.leader();
        cluster.servers[leader].take().unwrap().kill();
        // Sometimes it is back before anybody has noticed, sometimes others lead meanwhile.
        block_on(env.sleep(Duration::from_millis(70 * (round as u64 % 8))));
        cluster.start(leader);
    }
    let acknowledged = counting.stop();
    let db = Database::connect(&cluster.file).unwrap();
    judge(&db, acknowledged);
    // One after the other ends cleanly, and the last but one takes nothing with it.
    for at in 0..3 {
        let server = cluster.servers[at].take().unwrap();
        assert_eq!(server.terminate(), Some(0));
        cluster.start(at);
        judge(&db, acknowledged);
    }
}

/// Three servers of an older program get a newer one, one after the other, and clients notice
/// nothing. Then the cluster's protocol rises, and the older one is refused in words.
#[test]
fn a_rolling_upgrade_costs_no_client_anything_and_ends_with_a_newer_protocol() {
    let place = scratch();
    let older = ["--peer-protocol", "1", "--client-protocol", "3"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::form_with(place.path(), vec![older.clone(); 3]);
    let db = Database::connect(&cluster.file).unwrap();
    let protocol =
        |status: &serde_json::Value| status["cluster"]["plinth"]["member"]["protocol"].clone();
    let counting = Counting::start(&cluster.file, 4);
    for at in 0..3 {
        counting.await_more(20, Duration::from_millis(5));
        assert_eq!(
            protocol(&status_until(&db, |status| protocol(status) != serde_json::Value::Null)),
            1
        );
        assert_eq!(cluster.servers[at].take().unwrap().terminate(), Some(0));
        cluster.more[at].clear();
        cluster.start(at);
    }
    status_until(&db, |status| protocol(status) == Spoken::THIS.newest);
    counting.await_more(20, Duration::from_millis(5));
    assert_eq!(cluster.servers[0].take().unwrap().terminate(), Some(0));
    let output = command(place.path(), &cluster.file, &cluster.addresses[0], 0)
        .args(&older)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && error.contains("start it with a newer Plinth"),
        "{error}"
    );
    cluster.start(0);
    judge(&db, counting.stop());
}

/// The status document, once it says what is wanted.
fn status_until(db: &Database, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    for _ in 0..6000 {
        let status: serde_json::Value = block_on(db.status_json()).unwrap().parse().unwrap();
        if wanted(&status) {
            return status;
        }
        block_on(Env::real().sleep(Duration::from_millis(20)));
    }
    panic!("{}", block_on(db.status_json()).unwrap());
}

/// A client's own copy of the cluster file, which goes, and comes back with other servers in it:
/// the client goes on, and says so.
fn cluster_file_that_is_wrong_is_told(dir: &Path, file: &Path) {
    let (env, copy) = (Env::real(), dir.join("fdb.cluster"));
    let line = block_on(env.files().read(file)).unwrap();
    let write = |line: &[u8]| {
        block_on(env.files().create_dir_all(dir)).unwrap();
        block_on(env.files().replace(&copy, line)).unwrap();
    };
    write(&line);
    let db = Database::connect(&copy).unwrap();
    let told = |is_right: bool| {
        let status = status_until(&db, |status| {
            status.pointer("/client/cluster_file/up_to_date") == Some(&is_right.into())
        });
        assert_eq!(status["client"]["cluster_file"]["path"], copy.display().to_string());
        status["client"]["messages"][0].clone()
    };
    assert_eq!(told(true), serde_json::Value::Null);
    block_on(env.files().remove_dir_all(dir)).unwrap();
    let message = told(false);
    assert_eq!(message["name"], "incorrect_cluster_file_contents");
    assert!(message["description"].as_str().unwrap().contains("can't be read"), "{message}");
    write(b"test:three@127.0.0.1:1\n");
    let message = told(false);
    assert!(
        message["description"].as_str().unwrap().contains("says test:three@127.0.0.1:1,"),
        "{message}"
    );
    write(&line);
    assert_eq!(told(true), serde_json::Value::Null);
}

#[test]
fn the_status_says_who_is_there_and_how_many_may_fail() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    let db = Database::connect(&cluster.file).unwrap();
    count(&db, "row/1").unwrap();
    let may_fail = |status: &serde_json::Value| {
        status
            .pointer("/cluster/fault_tolerance/max_zone_failures_without_losing_data")
            .unwrap()
            .as_u64()
            .unwrap()
    };
    let reachable = |status: &serde_json::Value| {
        let all = status.pointer("/client/coordinators/coordinators").unwrap().as_array().unwrap();
        assert_eq!(all.len(), 3);
        all.iter().filter(|one| one["reachable"] == true).count()
    };
    let status = status_until(&db, |status| reachable(status) == 3);
    assert_eq!(may_fail(&status), 1);
    assert_eq!(status["cluster"]["processes"].as_object().unwrap().len(), 3, "{status}");
    assert_eq!(status["cluster"]["plinth"]["peers"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["client"]["coordinators"]["quorum_reachable"], true);
    let leader = cluster.leader();
    cluster.servers[leader].take().unwrap().kill();
    count(&db, "row/2").unwrap();
    let status = status_until(&db, |status| reachable(status) == 2);
    assert_eq!(may_fail(&status), 0);
    cluster_file_that_is_wrong_is_told(&place.path().join("copy"), &cluster.file);
    let key = &b"\xff\xff/connection_string"[..];
    let found = db.transact_blocking(|tr| tr.get(key).wait()).unwrap().unwrap();
    assert_eq!(found, format!("test:three@{}", cluster.addresses.join(",")));
}

/// Who votes and who follows, by address, as the status says.
fn members(status: &serde_json::Value) -> (Vec<String>, Vec<String>) {
    let member = &status["cluster"]["plinth"]["member"];
    let those = |name: &str| {
        let nodes = member[name].as_array().into_iter().flatten();
        let mut those: Vec<_> =
            nodes.map(|node| node["address"].as_str().unwrap().to_owned()).collect();
        those.sort();
        those
    };
    (those("voters"), those("learners"))
}

/// The status names who is excluded, and whoever has which role.
fn exclusion_is_told(db: &Database, excluded: &str, voters: usize) {
    // Each of these was the same whoever was excluded, and whoever led.
    status_until(db, |status| {
        let listed = &status["cluster"]["configuration"]["excluded_servers"];
        let processes = status["cluster"]["processes"].as_object().unwrap().values();
        let mut those: Vec<_> =
            processes.filter(|one| one["excluded"] == true).map(|one| &one["address"]).collect();
        those.dedup();
        let has_role = |process: &serde_json::Value, wanted: &str| {
            let roles = process["roles"].as_array().unwrap();
            roles.iter().any(|role| role["role"] == wanted)
        };
        let processes = || status["cluster"]["processes"].as_object().unwrap().values();
        let masters = processes().filter(|one| has_role(one, "master")).count();
        let coordinators = processes().filter(|one| has_role(one, "coordinator")).count();
        *listed == serde_json::json!([{ "address": excluded }])
            && those == [&serde_json::Value::from(excluded)]
            && (masters, coordinators) == (1, voters)
            && status["cluster"]["machines"].as_object().unwrap().len() == 4
    });
}

/// Whoever leads loses its vote to the one that follows, by special keys, and gets it back.
fn leader_goes_and_comes_back(
    cluster: &mut Cluster,
    db: &Database,
    all: &[String],
    follows: &[String],
) {
    let (env, all, follows) = (Env::real(), all.to_vec(), follows.to_vec());
    // Whoever leads is excluded: another one leads, the fourth votes, and the cluster file names
    // it.
    let leader = cluster.leader();
    let excluded = cluster.addresses[leader].clone();
    let manage = |key: &str, value: &str| {
        db.transact_blocking(|tr| {
            tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
            tr.set([b"\xff\xff/", key.as_bytes()].concat(), value);
            Ok(())
        })
    };
    manage(&format!("management/excluded/{excluded}"), "").unwrap();
    let mut now: Vec<_> = all.iter().filter(|address| **address != excluded).cloned().collect();
    now.push(follows[0].clone());
    now.sort();
    status_until(db, |status| members(status) == (now.clone(), vec![excluded.clone()]));
    exclusion_is_told(db, &excluded, now.len());
    for _ in 0..500 {
        let file = block_on(ClusterFile::read(&env, &cluster.file)).unwrap();
        if file.address_list() == now.join(",") {
            break;
        }
        block_on(env.sleep(Duration::from_millis(20)));
    }
    let file = block_on(ClusterFile::read(&env, &cluster.file)).unwrap();
    assert_eq!(file.address_list(), now.join(","));
    for (key, value) in [
        ("configuration/coordinators/processes", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"),
        ("configuration/coordinators/processes", &*format!("{},{},{}", now[0], now[1], now[0])),
        ("management/excluded/127.0.0.1", ""),
        ("management/failed/127.0.0.1:1", ""),
    ] {
        assert_eq!(manage(key, value).unwrap_err().code(), 2117, "{key} {value}");
    }
    // It is included again, and those who voted first are named.
    db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
        tr.clear([b"\xff\xff/management/excluded/", excluded.as_bytes()].concat());
        Ok(())
    })
    .unwrap();
    manage("configuration/coordinators/processes", &all.join(",")).unwrap();
    status_until(db, |status| members(status) == (all.clone(), follows.clone()));
    // Who is named keeps its vote. The shell waited for that to end, without a word.
    let mut shell = Command::new(env!("CARGO_BIN_EXE_plinth"));
    let line = format!("exclude {excluded}; include {excluded}");
    shell.arg("shell").arg("--cluster-file").arg(&cluster.file).args(["--exec", &line]);
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains(&format!("Noted. {excluded} keeps its vote")), "{told}");
    status_until(db, |status| members(status) == (all.clone(), follows.clone()));
    one_votes_and_then_all_again(db, &all, &follows);
}

/// One that is named votes alone. `coordinators auto` then kept it so: it went by how many had been
/// named, and not by how many the redundancy mode takes.
fn one_votes_and_then_all_again(db: &Database, all: &[String], follows: &[String]) {
    let name = |named: Option<&String>| {
        db.transact_blocking(|tr| {
            tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
            let key = b"\xff\xff/configuration/coordinators/processes";
            match named {
                Some(address) => tr.set(key, address),
                None => tr.clear(key),
            }
            Ok(())
        })
        .unwrap();
    };
    name(Some(&all[0]));
    status_until(db, |status| members(status).0 == all[..1]);
    name(None);
    status_until(db, |status| members(status) == (all.to_vec(), follows.to_vec()));
}

/// Writers count all the while: a disk is lost and replaced, a server is added, another one is lost
/// for good, and the rest goes on.
#[test]
fn members_come_and_go_under_load_and_nothing_acknowledged_is_lost() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    let db = Database::connect(&cluster.file).unwrap();
    let counting = Counting::start(&cluster.file, 4);
    let mut all = cluster.addresses.clone();
    all.sort();
    // A disk is lost: the server comes back as another node, and votes when it has everything.
    let lost = (cluster.leader() + 1) % 3;
    let number = |status: &serde_json::Value, address: &str| {
        let voters = status["cluster"]["plinth"]["member"]["voters"].as_array().unwrap().clone();
        voters
            .iter()
            .find(|voter| voter["address"] == address)
            .map(|voter| voter["node"].as_u64().unwrap())
    };
    let status = status_until(&db, |status| members(status).0 == all);
    let before = number(&status, &cluster.addresses[lost]).unwrap();
    cluster.wipe(lost);
    cluster.start(lost);
    let address = cluster.addresses[lost].clone();
    status_until(&db, |status| {
        let now = number(status, &address);
        members(status) == (all.clone(), vec![]) && now.is_some_and(|now| now > before.max(3))
    });
    // A fourth one follows.
    let fourth = cluster.add();
    let follows = vec![cluster.addresses[fourth].clone()];
    status_until(&db, |status| members(status) == (all.clone(), follows.clone()));
    leader_goes_and_comes_back(&mut cluster, &db, &all, &follows);
    // It goes on without any one of the voters.
    let leader = cluster.leader();
    cluster.servers[leader].take().unwrap().kill();
    counting.await_more(20, Duration::from_millis(5));
    judge(&db, counting.stop());
}

/// What is wrong is told by the program itself, and nothing is made.
#[test]
fn a_cluster_file_that_makes_no_sense_is_an_error() {
    let place = scratch();
    let [one, two] = unused_addresses(2).try_into().unwrap();
    for (named, told) in [
        (format!("{one},{two},{one}"), "twice"),
        ("10.0.0.1:1,10.0.0.2:1,10.0.0.3:1".to_owned(), "in so many words"),
    ] {
        let file = place.path().join("wrong.cluster");
        block_on(Env::real().files().replace(&file, format!("a:b@{named}\n").as_bytes())).unwrap();
        let output = command(place.path(), &file, &one, 0).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(told), "{named}: {error}");
        assert!(!block_on(Env::real().files().exists(place.path().join("node-0"))).unwrap());
    }
}

/// Servers that speak TLS, of which one has a client's certificate: it is no node, until its
/// certificate is a node's.
#[test]
fn with_tls_a_node_must_show_a_nodes_certificate() {
    let place = scratch();
    let certificates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/certificates"));
    let addresses = unused_addresses(3);
    let file = place.path().join("tls.cluster");
    let line = format!("test:tls@{}:tls\n", addresses.join(":tls,"));
    block_on(Env::real().files().replace(&file, line.as_bytes())).unwrap();
    let start = |at: usize, name: &str| {
        let mut command = command(place.path(), &file, &addresses[at], at);
        command.arg("--tls-cert").arg(certificates.join(format!("{name}.crt")));
        command.arg("--tls-key").arg(certificates.join(format!("{name}.key")));
        command
            .arg("--tls-ca")
            .arg(certificates.join("ca.crt"))
            .args(["--tls-verify-nodes", "S.CN=db-1"]);
        let errors = if at == 0 { Stdio::piped() } else { Stdio::null() };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap()
    };
    let mut children: Vec<_> =
        [(0, "server"), (1, "server"), (2, "client")].map(|(at, name)| start(at, name)).into();
    let mut errors = std::io::BufReader::new(children[0].stderr.take().unwrap());
    let refused = loop {
        let line = lines_until(&mut errors, "plinth: ").pop().unwrap();
        if line.contains("is not wanted") {
            break line;
        }
    };
    assert!(refused.contains(&addresses[2]) && refused.contains("S.CN=db-1"), "{refused}");
    let mut stranger = children.pop().unwrap();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    children.push(start(2, "server"));
    let reading = Env::real().spawn("errors", async move {
        let _ = std::io::Read::read_to_end(&mut errors, &mut Vec::new());
    });
    let servers: Vec<_> = children.into_iter().map(Running::ready).collect();
    drop(servers);
    reading.wait().unwrap();
}

/// The others were said to refuse connections, and nothing of what the one that is there waits for.
#[test]
fn a_cluster_that_is_yet_to_be_formed_says_whom_it_waits_for() {
    let place = scratch();
    let addresses = unused_addresses(3);
    let file = place.path().join("fdb.cluster");
    let line = format!("test:three@{}\n", addresses.join(","));
    block_on(Env::real().files().replace(&file, line.as_bytes())).unwrap();
    let mut first = command(place.path(), &file, &addresses[0], 0);
    first.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // It ends with the test, however that ends.
    let mut first = Running { child: first.spawn().unwrap(), ready: String::new() };
    let mut errors = std::io::BufReader::new(first.child.stderr.take().unwrap());
    let told = lines_until(&mut errors, "plinth: waits for ").pop().unwrap();
    let waits = told.trim_start_matches("plinth: ");
    assert!(waits.contains(&addresses[1]) && waits.contains(&addresses[2]), "{waits}");
    let mut status = Command::new(env!("CARGO_BIN_EXE_plinth"));
    let shown = status.arg("status").arg(&file).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(1), "{told}");
    let why = format!("the cluster is yet to be formed; it {waits}");
    assert!(told.contains("NOT AVAILABLE") && told.contains(&why), "{why}: {told}");
}

/// A directory with rows of its own is not taken into a cluster, where they would be lost.
#[test]
fn a_database_of_its_own_is_left_alone() {
    let place = scratch();
    let dir = place.path().join("node-0");
    assert_eq!(Running::start(&dir, &["--listen", "127.0.0.1:0"]).terminate(), Some(0));
    let addresses = unused_addresses(3);
    let file = place.path().join("three.cluster");
    block_on(
        Env::real().files().replace(&file, format!("a:b@{}\n", addresses.join(",")).as_bytes()),
    )
    .unwrap();
    let output = command(place.path(), &file, &addresses[0], 0).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("empty directories"), "{error}");
    // It listens where its own cluster file says.
    assert_eq!(Running::start(&dir, &[]).terminate(), Some(0));
}

/// The lines of a process's output up to one that begins with this.
fn lines_until(output: &mut impl std::io::BufRead, end: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended behind {lines:?}");
        lines.push(line.trim_end().to_owned());
        if line.starts_with(end) {
            return lines;
        }
    }
}

#[test]
fn a_cluster_to_try_things_with_survives_a_kill_and_ends_as_a_whole() {
    let place = scratch();
    let dir = place.path().join("dev");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
        command.args(["dev", "--nodes", "3", "--respawn", "--dir"]).arg(&dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut child = start();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let told = lines_until(&mut output, "Ctrl-C");
    let process = |line: &String| {
        line.split_whitespace().skip_while(|word| *word != "process").nth(1).unwrap().to_owned()
    };
    let leader = told.iter().find(|line| line.ends_with("leads")).map(process).unwrap();
    let db = Database::connect(dir.join("fdb.cluster")).unwrap();
    count(&db, "row/1").unwrap();
    assert!(Command::new("kill").args(["-9", &leader]).status().unwrap().success());
    count(&db, "row/2").unwrap();
    let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
    let again = loop {
        let line = lines_until(&mut errors, "plinth: server").pop().unwrap();
        if line.ends_with("serves again") {
            break line;
        }
    };
    assert!(again.starts_with("plinth: server "), "{again}");
    judge(&db, 2);
    let counted = 2 + kill::by_shell(&dir.join("fdb.cluster"), &db, &mut errors);
    judge(&db, counted);
    let end = |mut child: std::process::Child| {
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    };
    end(child);
    let running = Command::new("kill")
        .args(["-0", &process(&told[1])])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!running.success(), "a server has outlived the one who started it");
    // It goes on where it was.
    let mut child = start();
    lines_until(&mut std::io::BufReader::new(child.stdout.take().unwrap()), "Ctrl-C");
    judge(&db, counted);
    end(child);
}
