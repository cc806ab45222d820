//! Three servers of a cluster, each of which takes in points: one of them owns the series, by a
//! lease, and dies, is cut off, or ends.
//!
//! Senders send to any of them and are told what is durable; a reader asks any of them, and has to
//! be told of every point that a sender had been told of before he asked. Who leads the cluster and
//! who owns the series are disturbed alike. At the end each point is there once.

#[path = "../../../pipeline/tests/machines/mod.rs"]
mod machines;

use super::{SENDERS, Told, check, found, send_all, session};
use machines::Machines;
use plinth_client::Database;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, Signal};
use plinth_pipeline::NodeConfig;
use plinth_series::{Division, Holder, SeriesStore, Settings};
use plinth_server::{Among, Page, Pages, RulesConfig, SeriesConfig, Server, ServerConfig};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) const SERVERS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);
const FILE: &str = "/fdb.cluster";
pub(super) const RULES: &str = "/rules.yml";
const RESP: u16 = 8282;
const HTTP: u16 = 8181;

pub(super) struct World {
    machines: Machines,
    file: ClusterFile,
    stops: Vec<Arc<Signal>>,
    /// The rules of each server, if there are any, and who is told of alerts.
    rules: Option<(String, RulesConfig)>,
    /// Into how many parts series are divided.
    parts: usize,
    /// A server that answers no questions, if there is one.
    unheard: Option<usize>,
}

impl World {
    /// Three servers that have formed a cluster, whose series are in so many parts.
    pub(super) fn new(seed: u64, parts: usize) -> Self {
        Self::with_rules(seed, parts, |_| None)
    }

    /// The same with rules.
    pub(super) fn with_rules(
        seed: u64,
        parts: usize,
        rules: impl FnOnce(&Simulation) -> Option<(String, RulesConfig)>,
    ) -> Self {
        let mut machines = Machines::empty(seed, SERVERS, NodeConfig::default());
        machines.has_addresses = true;
        for at in 0..SERVERS {
            machines.form(at).expect("a member");
            machines.open(at).expect("a member opens");
        }
        let list: Vec<_> =
            (0..SERVERS).map(|at| address(&machines, at, 4500).to_string()).collect();
        let file =
            ClusterFile::parse(&format!("test:three@{}", list.join(","))).expect("it is one");
        let rules = rules(&machines.sim);
        let stops = (0..SERVERS).map(|_| Arc::default()).collect();
        let mut world = Self { machines, file, stops, rules, parts, unheard: None };
        (0..SERVERS).for_each(|at| world.serve(at));
        world
    }

    /// From its next start on a server answers no questions.
    pub(super) fn unhear(&mut self, at: usize) {
        self.unheard = Some(at);
    }

    pub(super) fn sim(&self) -> &Simulation {
        &self.machines.sim
    }

    /// Starts the server of a member that is open.
    fn serve(&mut self, at: usize) {
        let env = self.machines.envs[at].clone();
        let host = self.machines.host(at);
        let endpoint = Arc::new(host.endpoint());
        let host = Arc::downgrade(&host);
        let shown = move || host.upgrade().map(|host| host.metrics_text()).unwrap_or_default();
        let pages = Pages { metrics: Some(Page::new(shown)), ..Pages::default() };
        let place = |port| Some(address(&self.machines, at, port));
        let (text, rules) = self.rules.clone().unwrap_or_default();
        let (resp, parts) = (place(RESP), Some(self.parts));
        let http = place(HTTP).filter(|_| self.unheard != Some(at));
        // Rules may be about what servers measure themselves.
        let metrics = self.rules.is_some();
        let series = SeriesConfig { resp, http, parts, rules, metrics, ..SeriesConfig::default() };
        let among = Among {
            database: Database::new(Arc::new(RemoteEndpoint::connect(&env, self.file.clone()))),
            name: format!("server-{at}"),
            machine: None,
            #[cfg(feature = "tls")]
            tls: None,
        };
        let (line, listen) = (self.file.connection_string(), place(4500));
        let stop = Arc::new(Signal::new());
        self.stops[at] = stop.clone();
        drop(env.clone().spawn("server", async move {
            env.files().replace(FILE, line.as_bytes()).await.expect("the disk has no faults");
            env.files().replace(RULES, text.as_bytes()).await.expect("the disk has no faults");
            let config = ServerConfig {
                listen: listen.into_iter().collect(),
                cluster_file: Some(FILE.into()),
                series,
                among: Some(among),
                pages,
                ..ServerConfig::default()
            };
            let server = Server::start(endpoint, config).await.expect("the addresses are free");
            stop.wait().await;
            server.stop().await;
            std::future::pending::<()>().await;
        }));
    }

    /// Changes the rules of all servers, as they lie on their disks.
    pub(super) fn change_rules(&mut self, text: String) {
        if let Some((before, _)) = &mut self.rules {
            before.clone_from(&text);
        }
        for env in &self.machines.envs {
            let writing = env.files().replace(RULES, text.as_bytes());
            self.sim().run_until(writing).expect("the disk has no faults");
        }
    }

    /// The machine loses its power, and is started again.
    pub(super) fn crash(&mut self, at: usize) {
        self.machines.crash(at);
    }

    pub(super) fn restart(&mut self, at: usize) {
        self.machines.open(at).expect("a member opens");
        self.serve(at);
    }

    /// The server ends as it is asked to, and is started again.
    pub(super) fn end(&mut self, at: usize) {
        self.stops[at].notify();
        let host = self.machines.host(at);
        self.sim().run_for(Duration::from_millis(200));
        let _ = self.sim().run_until_within(Duration::from_secs(5), host.hand_over());
        drop(host);
        self.crash(at);
    }

    /// Nobody hears a machine, and it hears nobody; or all is well again.
    fn isolate(&self, at: usize, all: &[Env], isolated: bool) {
        let one = &self.machines.envs[at];
        for other in all
            .iter()
            .chain(&self.machines.envs)
            .filter(|other| other.process_id() != one.process_id())
        {
            match isolated {
                true => self.sim().partition(one, other),
                false => self.sim().heal(one, other),
            }
        }
        match isolated {
            true => self.machines.isolate(at),
            false => self.machines.heal(),
        }
    }

    pub(super) fn client(&self, env: &Env) -> Database {
        Database::new(Arc::new(RemoteEndpoint::connect(env, self.file.clone())))
    }

    /// The server that has the lease of each part, as a client sees it.
    pub(super) fn owners(&self, env: &Env) -> Vec<Option<usize>> {
        let database = self.client(env);
        let looking = async { Division::of(&database, Settings::default()).await?.holders().await };
        let holders = self.sim().run_until_within(Duration::from_secs(5), looking);
        let server = |holder: Holder| holder.name.strip_prefix("server-")?.parse().ok();
        let holders = holders.expect("somebody leads").expect("nothing is damaged");
        holders.into_iter().map(|holder| holder.and_then(server)).collect()
    }

    /// The server that has the lease, of the first part, as a client sees it.
    pub(super) fn owner(&self, env: &Env) -> Option<usize> {
        let (database, settings) = (self.client(env), Settings::default());
        let looking = SeriesStore::holder(&database, &settings);
        let holder = self.sim().run_until_within(Duration::from_secs(5), looking)?;
        holder.expect("nothing is damaged")?.name.strip_prefix("server-")?.parse().ok()
    }
}

impl World {
    /// Where servers take points on lines, and where they answer questions.
    pub(super) fn doors(&self) -> [Vec<SocketAddr>; 2] {
        [RESP, HTTP].map(|port| (0..SERVERS).map(|at| address(&self.machines, at, port)).collect())
    }
}

fn address(machines: &Machines, at: usize, port: u16) -> SocketAddr {
    SocketAddr::new(machines.sim.ip(&machines.envs[at]), port)
}

/// Sends points to any server, as long as the run lasts.
async fn send(env: Env, servers: Vec<SocketAddr>, sender: u64, told: Arc<Mutex<Told>>) {
    loop {
        let at = servers[env.random_u64() as usize % servers.len()];
        // Some sessions last for long, so that they see the owner change.
        let span = Duration::from_millis(200 + env.random_u64() % 8000);
        let _ =
            plinth_env::sync::race(session(&env, at, sender, &told, PAUSE), env.sleep(span)).await;
        env.sleep(Duration::from_millis(20)).await;
    }
}

/// How many points of a series a server knows; `None` if it says nothing, or that it can't.
async fn ask(env: &Env, at: SocketAddr, name: &str) -> Option<u64> {
    let mut stream = env.sockets().connect(at).await.ok()?;
    let (metric, tag) = name.split_once(' ')?;
    let (key, value) = tag.split_once('=')?;
    let query = format!(
        r#"{{"aggregate":{{"{metric}":"count"}},"where":{{"{key}":"{value}"}},"range":{{"from":0,"to":100000000}},"output":{{"format":"csv"}}}}"#
    );
    let len = query.len();
    let head =
        format!("POST /api/query HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
    send_all(&mut stream, (head + &query).as_bytes()).await.ok()?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let len = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.ok()?;
        if len == 0 {
            break;
        }
        answer.extend_from_slice(&buffer[..len]);
    }
    let answer = String::from_utf8(answer).ok()?;
    let (_, row) = answer.split_once("\r\n\r\n")?;
    row.trim_end().rsplit(',').next()?.parse().ok()
}

/// Asks any server for points that are known durable.
async fn read(
    env: Env,
    servers: Vec<SocketAddr>,
    all: Vec<Arc<Mutex<Told>>>,
    answered: Arc<AtomicU64>,
) {
    loop {
        let sender = env.random_u64() as usize % all.len();
        let before = all[sender].lock().unwrap().durable;
        let at = servers[env.random_u64() as usize % servers.len()];
        let name = format!("own.a s={sender}");
        let asking = ask(&env, at, &name);
        let count = plinth_env::sync::race(asking, env.sleep(Duration::from_secs(12))).await;
        if let plinth_env::sync::First::Left(Some(count)) = count {
            let now = env.now();
            assert!(
                count >= before,
                "{now:?}: {at} knows {count} of {before} points of sender {sender} that are durable"
            );
            answered.fetch_add(1, Ordering::Relaxed);
        }
        env.sleep(Duration::from_millis(env.random_u64() % 200)).await;
    }
}

/// The owner, the leader, or any is cut off, ended, or crashes, and is well again after a while.
fn disturb(world: &mut World, random: &mut Random, looker: &Env, clients: &[Env]) {
    let any = random.index(SERVERS);
    let victim = match random.below(3) {
        0 => world.owner(looker).unwrap_or(any),
        1 => world.machines.await_leader(|_| true),
        _ => any,
    };
    let span = Duration::from_millis(random.below(6000));
    match random.below(3) {
        0 => {
            world.isolate(victim, clients, true);
            world.sim().run_for(span);
            world.isolate(victim, clients, false);
        }
        1 => {
            world.end(victim);
            world.sim().run_for(span / 2);
            world.restart(victim);
        }
        _ => {
            world.crash(victim);
            world.sim().run_for(span);
            world.restart(victim);
        }
    }
}

/// How many points were acknowledged, and how many questions answered.
fn run(seed: u64, parts: usize) -> (u64, u64) {
    let mut world = World::new(seed, parts);
    let mut random = world.sim().random();
    let at = |port| (0..SERVERS).map(|at| address(&world.machines, at, port)).collect::<Vec<_>>();
    let (lines, questions) = (at(RESP), at(HTTP));
    let mut clients = Vec::new();
    let mut all = Vec::new();
    for sender in 0..SENDERS {
        let env = world.sim().process(&format!("sender-{sender}"));
        let told = Arc::new(Mutex::new(Told::default()));
        drop(env.spawn("sender", send(env.clone(), lines.clone(), sender, told.clone())));
        clients.push(env);
        all.push(told);
    }
    let answered = Arc::new(AtomicU64::new(0));
    let reader = world.sim().process("reader");
    drop(reader.spawn("reader", read(reader.clone(), questions, all.clone(), answered.clone())));
    clients.push(reader);
    let looker = world.sim().process("looker");
    world.sim().run_for(Duration::from_secs(2));
    for _ in 0..6 {
        disturb(&mut world, &mut random, &looker, &clients);
        world.sim().run_for(Duration::from_millis(random.below(5000)));
    }
    world.sim().run_for(Duration::from_secs(8));
    clients.iter().for_each(|env| world.sim().kill(env));
    let mut durable = 0;
    let database = world.client(&looker);
    world.sim().run_until(async {
        let store = SeriesStore::open(&database).await.unwrap();
        store.check_invariants().await.unwrap();
        let shared = found(&store, "shared s=all").await;
        for (sender, told) in (0..SENDERS).zip(&all) {
            let told = std::mem::take(&mut *told.lock().unwrap());
            durable += told.durable;
            let own = |name: &str| format!("{name} s={sender}");
            check(seed, "own.a", &found(&store, &own("own.a")).await, &told, |number| {
                number as f64
            });
            check(seed, "own.b", &found(&store, &own("own.b")).await, &told, |number| {
                number as f64 + 0.5
            });
            let theirs = shared.iter().filter(|(time, _)| time % SENDERS == sender);
            let theirs: Vec<_> = theirs.map(|(time, value)| (time / SENDERS, *value)).collect();
            check(seed, "shared", &theirs, &told, |number| number as f64);
        }
    });
    (durable, answered.load(Ordering::Relaxed))
}

#[test]
fn points_sent_to_any_server_are_durable_once_told_whoever_owns_leads_dies_or_is_cut_off() {
    run_all(3, 1);
}

/// Senders' own series lie in different parts, so each session goes through several owners.
#[test]
fn points_sent_to_any_server_are_durable_once_told_whoever_owns_which_part() {
    run_all(3, 4);
}

fn run_all(seeds: u64, parts: usize) {
    let (mut durable, mut answered) = (0, 0);
    for seed in 0..seeds {
        let run = run(seed, parts);
        durable += run.0;
        answered += run.1;
    }
    assert!(
        durable > 1600 * seeds && answered > 160 * seeds,
        "{durable} points and {answered} answers are too few to say anything"
    );
}

/// The lease is short enough that whoever asks waits for five seconds at most when the owner has
/// died, and not at all when it has ended.
#[test]
fn another_server_owns_the_series_soon_after_a_death_and_at_once_after_an_end() {
    for (seed, dies) in [(1, true), (2, false)] {
        let mut world = World::new(seed, 1);
        let looker = world.sim().process("looker");
        world.sim().run_for(Duration::from_secs(2));
        let owner = world.owner(&looker).expect("somebody owns the series");
        match dies {
            true => world.crash(owner),
            false => world.end(owner),
        }
        world.sim().run_for(if dies {
            Duration::from_secs(5)
        } else {
            Duration::from_millis(1500)
        });
        let next = world.owner(&looker).expect("somebody owns them again");
        assert_ne!(next, owner);
        world.restart(owner);
        world.sim().run_for(Duration::from_secs(5));
        assert_eq!(
            world.owner(&looker),
            Some(next),
            "whoever comes back takes nothing from anybody"
        );
    }
}

/// An owner that was deposed and doesn't know it yet answered a question that was passed on with an
/// error of its own, which whoever had passed it on took for the answer.
#[test]
fn an_owner_that_was_deposed_says_so_to_whoever_passes_questions_on() {
    let world = World::new(4, 1);
    let looker = world.sim().process("looker");
    world.sim().run_for(Duration::from_secs(2));
    let owner = world.owner(&looker).expect("somebody owns the series");
    let (database, at) = (world.client(&looker), address(&world.machines, owner, HTTP));
    let answers = world.sim().run_until(async {
        let holder = SeriesStore::holder(&database, &Settings::default()).await.unwrap().unwrap();
        let store = SeriesStore::open(&database).await.unwrap();
        store.series("own.a s=0").await.unwrap().append(1, 1.0).unwrap();
        store.sync().await.unwrap();
        let secret: String = holder.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut answers = Vec::new();
        for (path, body) in [("/api/query", r#"{"select":"own.a","range":{"from":0,"to":9}}"#), ("/api/v1/query", "query=own_a")] {
            let mut stream = looker.sockets().connect(at).await.unwrap();
            let kind = if path == "/api/query" { "application/json" } else { "application/x-www-form-urlencoded" };
            let head = format!(
                "POST {path} HTTP/1.0\r\nHost: localhost\r\nX-Plinth-Lease: {secret}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            send_all(&mut stream, (head + body).as_bytes()).await.unwrap();
            let mut buffer = [0; 4096];
            let len = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.unwrap();
            answers.push(String::from_utf8_lossy(&buffer[..len.min(12)]).into_owned());
        }
        answers
    });
    assert_eq!(answers, ["HTTP/1.0 421", "HTTP/1.0 421"]);
}

const OTLP: &str = r#"{"resourceMetrics": [{"scopeMetrics": [{"metrics": [
    {"name": "a", "gauge": {"dataPoints": [{"timeUnixNano": "1000000000", "asDouble": 1}]}}
]}]}]}"#;

/// Everything that whoever takes in series or answers questions is asked over HTTP.
const DOORS: [(&str, &str); 17] = [
    ("POST /api/query", r#"{"select":"own.a","range":{"from":0,"to":9}}"#),
    ("POST /api/search", r#"{"select":"own.a"}"#),
    ("POST /api/suggest", r#"{"select":"metric-names"}"#),
    ("GET /api/query?start=1&m=sum:1m-avg:own.a", ""),
    ("GET /api/v1/query?query=own_a", ""),
    ("GET /api/v1/query_range?query=own_a&start=0&end=9&step=1", ""),
    ("GET /api/v1/labels", ""),
    ("GET /api/v1/series?match[]=own_a", ""),
    ("GET /api/v1/status/tsdb", ""),
    ("GET /api/v1/targets", ""),
    ("GET /api/v1/export?match[]=own_a", ""),
    ("POST /api/v1/admin/tsdb/delete_series?match[]=own_a", ""),
    ("POST /write", "cpu,host=a load=0.5"),
    ("POST /api/put", r#"{"metric":"a","timestamp":1,"value":1,"tags":{"b":"c"}}"#),
    ("POST /api/v1/import/prometheus", "a 1\n"),
    ("POST /v1/metrics", OTLP),
    ("GET /health", ""),
];

/// A server of a cluster without a majority kept whoever asked its series' HTTP waiting without a
/// word, for as long as he had patience, and called itself well meanwhile.
#[test]
fn without_a_majority_every_question_is_answered_within_the_time_that_is_promised() {
    for (seed, owner_stays) in [(5, true), (6, false)] {
        let mut world = World::new(seed, 1);
        let looker = world.sim().process("looker");
        world.sim().run_for(Duration::from_secs(2));
        let owner = world.owner(&looker).expect("somebody owns the series");
        let left = if owner_stays { owner } else { (owner + 1) % SERVERS };
        (0..SERVERS).filter(|at| *at != left).for_each(|at| world.crash(at));
        // Also of a lease that has run out since.
        for wait in [0, 60] {
            world.sim().run_for(Duration::from_secs(wait));
            let at = address(&world.machines, left, HTTP);
            let ask = async |(head, body): (&str, &str)| {
                let mut stream = looker.sockets().connect(at).await.unwrap();
                let len = body.len();
                let kind = "Content-Type: application/json";
                let request = format!(
                    "{head} HTTP/1.0\r\nHost: localhost\r\n{kind}\r\nContent-Length: {len}\r\n\r\n{body}"
                );
                send_all(&mut stream, request.as_bytes()).await.unwrap();
                let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(len @ 1..) =
                    poll_fn(|context| stream.poll_receive(context, &mut buffer)).await
                {
                    answer.extend_from_slice(&buffer[..len]);
                }
                String::from_utf8_lossy(&answer).into_owned()
            };
            let asking = plinth_env::sync::all(DOORS.map(ask));
            let answers = world.sim().run_until_within(Duration::from_secs(12), asking);
            let answers = answers.expect("within ten seconds and a little");
            for (door, answer) in DOORS.iter().zip(answers) {
                // What is scraped is known without the database where it is scraped.
                let is_known = door.0.contains("targets") && owner_stays;
                // It says so once it has heard of no leader for as long as an election may take.
                if door.0 == "GET /health" && wait == 0 {
                    continue;
                }
                let wanted = if is_known { "HTTP/1.0 200" } else { "HTTP/1.0 503" };
                assert!(answer.starts_with(wanted), "{wait} s, left {left}, {door:?}: {answer}");
                let body = answer.split_once("\r\n\r\n").unwrap().1;
                assert!(body.len() > 20, "{door:?} says why: {answer}");
            }
        }
    }
}
