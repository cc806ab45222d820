//! Rules over the series of a server in simulation: what they give is there to be asked for, an
//! Alertmanager is told of alerts, also if it was away, and all of it goes on behind a crash, with
//! another server, and whatever becomes of the clock.

use super::cluster::{RULES, World};
use super::{open, send_all};
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Stream};
use plinth_server::{RulesConfig, SeriesConfig, Server, ServerConfig};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TEXT: &str = r#"
groups:
- name: load
  interval: 5s
  rules:
  - {record: 'load:sum', expr: sum(load)}
  - {alert: High, expr: 'load > 1', for: 10s, labels: {severity: page}, annotations: {v: '{{ $value }}'}}
"#;
const ALERTMANAGER: u16 = 9093;

/// The same with another group.
fn more() -> String {
    const GROUP: &str = r#"
- name: more
  interval: 5s
  rules:
  - {alert: Higher, expr: 'load > 2', for: 10s}
"#;
    [TEXT, GROUP].concat()
}

/// What an Alertmanager heard.
#[derive(Default)]
struct Heard {
    /// Alert by alert, and whether it was resolved when that was heard.
    alerts: Mutex<Vec<(Json, bool)>>,
    /// Whether it refuses to hear anything.
    is_away: AtomicBool,
}

impl Heard {
    fn take(&self, env: &Env, body: &str) {
        let now = iso(env);
        let alerts: Vec<Json> = serde_json::from_str(body).expect("it is a list");
        let alerts = alerts.into_iter().map(|alert| {
            let is_resolved = alert["endsAt"].as_str().expect("it is a time") <= now.as_str();
            (alert, is_resolved)
        });
        self.alerts.lock().unwrap().extend(alerts);
    }

    /// The names of alerts and whether they were resolved, each change once.
    fn changes(&self) -> Vec<(String, bool)> {
        let mut changes: Vec<(String, bool)> = Vec::new();
        for (alert, is_resolved) in &*self.alerts.lock().unwrap() {
            let name = alert["labels"]["alertname"].as_str().unwrap().to_string();
            changes.push((name, *is_resolved));
        }
        changes.dedup();
        changes
    }

    fn count(&self) -> usize {
        self.alerts.lock().unwrap().len()
    }
}

/// The time as it stands in alerts, to the second.
fn iso(env: &Env) -> String {
    let mut text = Vec::new();
    plinth_series::time::write_iso(env.wall_clock().as_nanos() as i64, &mut text);
    let text = String::from_utf8(text).unwrap();
    let (date, clock) = text.split_once('T').unwrap();
    let (year, month, day) = (&date[..4], &date[4..6], &date[6..8]);
    format!("{year}-{month}-{day}T{}:{}:{}Z", &clock[..2], &clock[2..4], &clock[4..6])
}

async fn receive(stream: &mut Stream) -> Option<Vec<u8>> {
    let mut buffer = [0; 4096];
    let len = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.ok()?;
    (len > 0).then(|| buffer[..len].to_vec())
}

/// A request with its body, whose length it says.
async fn request(stream: &mut Stream) -> Option<(String, String)> {
    let mut text = String::new();
    loop {
        text += &String::from_utf8(receive(stream).await?).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let mut lengths = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
        let length: usize = lengths.next_back()?.parse().ok()?;
        if body.len() >= length {
            return Some((head.to_string(), body.to_string()));
        }
    }
}

/// Listens as an Alertmanager does.
fn alertmanager(env: &Env, at: SocketAddr, heard: &Arc<Heard>) {
    let (theirs, heard) = (env.clone(), heard.clone());
    drop(env.spawn("alertmanager", async move {
        let listener = theirs.sockets().listen(at).await.expect("the address is free");
        loop {
            let mut stream = listener.accept().await.expect("it listens");
            let Some((head, body)) = request(&mut stream).await else { continue };
            assert!(head.starts_with("POST /api/v2/alerts HTTP/1.1"), "{head}");
            let is_away = heard.is_away.load(Ordering::Relaxed);
            let status = if is_away { "503 Service Unavailable" } else { "200 OK" };
            if !is_away {
                heard.take(&theirs, &body);
            }
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            let _ = send_all(&mut stream, answer.as_bytes()).await;
        }
    }));
}

/// Sends the load of a host every second, to whichever server takes it.
fn load(env: &Env, doors: Vec<SocketAddr>, value: Arc<Mutex<f64>>) {
    let theirs = env.clone();
    drop(env.spawn("load", async move {
        for turn in 0.. {
            theirs.sleep(Duration::from_secs(1)).await;
            let now = theirs.wall_clock().as_nanos();
            let text = format!("+load host=a\n:{now}\n+{}\n+SYNC\n", value.lock().unwrap());
            let sending = async {
                let mut stream = theirs.sockets().connect(doors[turn % doors.len()]).await.ok()?;
                send_all(&mut stream, text.as_bytes()).await.ok()?;
                super::line(&mut stream).await.ok()
            };
            race(sending, theirs.sleep(Duration::from_secs(1))).await;
        }
    }));
}

/// What a server answers.
async fn ask(env: &Env, at: SocketAddr, path: &str) -> Option<Json> {
    let asking = async {
        let mut stream = env.sockets().connect(at).await.ok()?;
        let head = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        send_all(&mut stream, head.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        while let Some(more) = receive(&mut stream).await {
            answer.extend(more);
        }
        let answer = String::from_utf8(answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    };
    match race(asking, env.sleep(Duration::from_secs(15))).await {
        First::Left(answer) => answer,
        First::Right(()) => None,
    }
}

fn config(alertmanager: SocketAddr) -> RulesConfig {
    RulesConfig {
        files: vec![RULES.into()],
        alertmanagers: vec![format!("http://{alertmanager}")],
        ..RulesConfig::default()
    }
}

/// One server, and what is around it.
struct One {
    sim: Simulation,
    server: Env,
    looker: Env,
    heard: Arc<Heard>,
    value: Arc<Mutex<f64>>,
    manager: SocketAddr,
}

impl One {
    fn new(seed: u64) -> Self {
        let sim = Simulation::new(seed);
        let (server, looker) = (sim.process("server"), sim.process("looker"));
        let manager_env = sim.process("alertmanager");
        let manager = SocketAddr::new(sim.ip(&manager_env), ALERTMANAGER);
        let heard = Arc::new(Heard::default());
        alertmanager(&manager_env, manager, &heard);
        let one = Self { sim, server, looker, heard, value: Arc::default(), manager };
        one.write(TEXT);
        one.serve();
        let sender = one.sim.process("sender");
        load(&sender, vec![one.at(8282)], one.value.clone());
        one
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.sim.ip(&self.server), port)
    }

    fn write(&self, text: &'static str) {
        let writing = async {
            self.server.files().replace(RULES, text.as_bytes()).await.unwrap();
        };
        self.sim.run_until(writing);
    }

    fn serve(&self) {
        let (env, theirs) = (self.server.clone(), self.server.clone());
        let (listen, resp, http) = (self.at(4500), self.at(8282), self.at(8181));
        let rules = config(self.manager);
        drop(env.spawn("server", async move {
            let node = open(&theirs).await;
            let series = SeriesConfig {
                resp: Some(resp),
                http: Some(http),
                rules,
                ..SeriesConfig::default()
            };
            let config = ServerConfig { listen: vec![listen], series, ..ServerConfig::default() };
            let server = Server::start(Arc::new(node.endpoint()), config).await.expect("it starts");
            std::future::pending::<()>().await;
            drop(server);
        }));
    }

    fn run(&self, seconds: u64) {
        self.sim.run_for(Duration::from_secs(seconds));
    }

    fn ask(&self, path: &str) -> Json {
        let answer = self.sim.run_until(ask(&self.looker, self.at(8181), path));
        answer.unwrap_or_else(|| panic!("no answer to {path}"))
    }

    /// The only alert that there is: its state, and since when.
    fn alert(&self) -> (String, String) {
        let answer = self.ask("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        assert_eq!(alerts.len(), 1, "{answer}");
        let text = |field: &str| alerts[0][field].as_str().unwrap().to_string();
        (text("state"), text("activeAt"))
    }

    fn changes(&self) -> Vec<(String, bool)> {
        self.heard.changes()
    }
}

fn high(is_resolved: bool) -> (String, bool) {
    ("High".to_string(), is_resolved)
}

/// The alert rules that people are given.
const PAGE: &str = include_str!("../../../../docs/monitoring.md");
/// What the rules of the page are about and no server here measures of itself: whether it answers,
/// which whoever scrapes it says; what it copies, where that is asked of it; its connections with
/// other nodes, in whose place there are the simulation's; and what the engine `ssd` alone does.
const NOT_OWN: [&str; 6] = [
    "up",
    "plinth_backup_",
    "plinth_changes_",
    "plinth_dr_",
    "plinth_peer_connected",
    "plinth_flush_failing",
];

/// Rules that servers evaluate over what they record of themselves found nothing where that was
/// left out, as buckets were, and never fired.
#[test]
fn servers_record_what_the_alert_rules_of_the_page_ask_for() {
    let three = Three::in_parts(1, 1);
    let rules = PAGE.split("```yaml\n").find(|block| block.starts_with("groups:")).unwrap();
    let rules = rules.split("```").next().unwrap();
    let exprs = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let words = exprs.flat_map(|expr| expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let of_rules = words.filter(|word| word.starts_with("plinth_") || *word == "up");
    let names: BTreeSet<&str> = of_rules.collect();
    assert!(names.len() > 30 && names.contains("plinth_log_sync_seconds_bucket"), "{names:?}");
    let [_, questions] = three.world.doors();
    let found = |expr: &str| {
        let path = format!("/api/v1/query?query={expr}");
        let answer = three.world.sim().run_until(ask(&three.looker, questions[0], &path));
        let answer = answer.unwrap_or_else(|| panic!("no answer to {expr}"));
        answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{answer}")).len()
    };
    let missing: Vec<&str> = names.into_iter().filter(|name| found(name) == 0).collect();
    let is_not_own = |name: &&str| NOT_OWN.iter().any(|begin| name.starts_with(begin));
    let unexpected: Vec<&&str> = missing.iter().filter(|name| !is_not_own(name)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    for begin in NOT_OWN {
        assert!(missing.iter().any(|name| name.starts_with(begin)), "{begin} is there");
    }
    let slow = "histogram_quantile(0.99,rate(plinth_log_sync_seconds_bucket[1m]))";
    assert_eq!(found(slow), 3, "how long syncs take, of each server");
}

#[test]
fn rules_are_evaluated_and_alertmanager_is_told() {
    let one = One::new(1);
    one.run(30);
    let sum = one.ask("/api/v1/query?query=load:sum");
    assert_eq!(sum["data"]["result"][0]["value"][1], "0", "{sum}");
    assert_eq!(one.heard.count(), 0);
    *one.value.lock().unwrap() = 7.0;
    one.run(30);
    assert_eq!(one.alert().0, "firing");
    let told = one.heard.alerts.lock().unwrap()[0].0.clone();
    assert_eq!(
        told["labels"],
        serde_json::json!({ "alertname": "High", "host": "a", "severity": "page" })
    );
    assert_eq!(told["annotations"], serde_json::json!({ "v": "7" }));
    let link = told["generatorURL"].as_str().unwrap();
    assert!(
        link.starts_with(&format!("http://{}/graph?g0.expr=load+%3E+1", one.at(8181))),
        "{link}"
    );
    let firing = one.ask("/api/v1/query?query=ALERTS{alertstate=%22firing%22}");
    assert_eq!(firing["data"]["result"][0]["metric"]["alertname"], "High", "{firing}");
    *one.value.lock().unwrap() = 0.0;
    one.run(60);
    assert_eq!(one.changes(), [high(false), high(true)]);
    let rules = one.ask("/api/v1/rules?type=alert");
    assert_eq!(rules["data"]["groups"][0]["rules"][0]["state"], "inactive", "{rules}");
    assert_eq!(
        one.ask("/api/v1/alertmanagers")["data"]["activeAlertmanagers"][0]["url"],
        format!("http://{}/api/v2/alerts", one.manager)
    );
}

#[test]
fn an_alertmanager_that_was_away_is_told_what_is_so_then() {
    let one = One::new(2);
    one.heard.is_away.store(true, Ordering::Relaxed);
    *one.value.lock().unwrap() = 7.0;
    one.run(300);
    assert_eq!((one.alert().0.as_str(), one.heard.count()), ("firing", 0));
    one.heard.is_away.store(false, Ordering::Relaxed);
    one.run(60);
    assert_eq!(one.changes(), [high(false)]);
    one.heard.is_away.store(true, Ordering::Relaxed);
    *one.value.lock().unwrap() = 0.0;
    one.run(120);
    one.heard.is_away.store(false, Ordering::Relaxed);
    one.run(60);
    assert_eq!(one.changes(), [high(false), high(true)]);
}

#[test]
fn alerts_go_on_behind_a_crash() {
    let mut one = One::new(3);
    *one.value.lock().unwrap() = 7.0;
    one.run(40);
    let before = one.alert();
    assert_eq!(before.0, "firing");
    one.sim.crash(&one.server);
    one.run(20);
    one.server = one.sim.restart(&one.server);
    one.serve();
    one.run(20);
    assert_eq!(one.alert(), before);
    // It ends while the server is away, and that is told all the same.
    one.sim.crash(&one.server);
    *one.value.lock().unwrap() = 0.0;
    one.run(20);
    one.server = one.sim.restart(&one.server);
    one.serve();
    one.run(30);
    assert_eq!(one.changes(), [high(false), high(true)]);
}

/// A clock that was set back made a firing alert pending, and its end was told to nobody.
#[test]
fn a_clock_that_jumps_stops_nothing() {
    let one = One::new(4);
    one.write(
        "groups: [{name: load, interval: 5s, rules: [{alert: High, expr: vector(1), for: 10s}]}]",
    );
    one.run(60);
    for ahead in [3600, -3600, 0] {
        one.sim.move_wall_clock(&one.server, ahead);
        one.run(10);
        for _ in 0..20 {
            let (state, since) = one.alert();
            assert_eq!(state, "firing", "{ahead}");
            assert!(since <= iso(&one.server), "{ahead}: {since}");
            one.run(5);
        }
        let rules = one.ask("/api/v1/rules");
        let last = rules["data"]["groups"][0]["lastEvaluation"].as_str().unwrap().to_string();
        one.run(30);
        let rules = one.ask("/api/v1/rules");
        assert_ne!(rules["data"]["groups"][0]["lastEvaluation"], last, "{ahead}");
    }
    one.sim.move_wall_clock(&one.server, -600);
    one.write("groups: [{name: load, interval: 5s, rules: [{alert: High, expr: vector(1) > 1, for: 10s}]}]");
    one.heard.alerts.lock().unwrap().clear();
    one.run(60);
    let alerts = one.heard.alerts.lock().unwrap().clone();
    let (end, _) = alerts.last().expect("its end is told");
    let time = |field: &str| end[field].as_str().unwrap().to_string();
    assert!(time("startsAt") < time("endsAt") && time("endsAt") < iso(&one.server), "{end}");
}

#[test]
fn files_that_change_hold_and_those_that_make_no_sense_do_not() {
    let one = One::new(5);
    *one.value.lock().unwrap() = 7.0;
    one.run(40);
    let before = one.alert();
    one.write("groups: [{name: load, rules: [{alert: High, expr: 'sum('}]}]");
    one.run(40);
    assert_eq!(one.alert(), before);
    one.write("groups: [{name: load, interval: 5s, rules: [{alert: High, expr: 'load > 2', labels: {severity: page}}]}]");
    one.run(40);
    assert_eq!(one.alert(), before, "an alert is known again by its name and labels");
    let sum = one.ask("/api/v1/query?query=load:sum");
    assert_eq!(
        sum["data"]["result"],
        serde_json::json!([]),
        "the series of a rule that is gone ends"
    );
    one.write("groups: []");
    one.run(40);
    assert_eq!(one.ask("/api/v1/rules")["data"]["groups"], serde_json::json!([]));
    let alerts = one.ask("/api/v1/query?query=ALERTS");
    assert_eq!(alerts["data"]["result"], serde_json::json!([]));
}

/// Three servers, and what is around them.
struct Three {
    world: World,
    looker: Env,
    heard: Arc<Heard>,
    value: Arc<Mutex<f64>>,
}

impl Three {
    /// Behind forty seconds of a load that is high.
    fn new(seed: u64) -> Self {
        Self::in_parts(seed, 1)
    }

    /// The same with series in so many parts.
    fn in_parts(seed: u64, parts: usize) -> Self {
        let heard = Arc::new(Heard::default());
        let world = World::with_rules(seed, parts, |sim| {
            let env = sim.process("alertmanager");
            let at = SocketAddr::new(sim.ip(&env), ALERTMANAGER);
            alertmanager(&env, at, &heard);
            Some((TEXT.to_owned(), config(at)))
        });
        let value = Arc::new(Mutex::new(7.0));
        let (looker, sender) = (world.sim().process("looker"), world.sim().process("sender"));
        let [lines, _] = world.doors();
        load(&sender, lines, value.clone());
        let three = Self { world, looker, heard, value };
        three.run(40);
        three
    }

    fn run(&self, seconds: u64) {
        self.world.sim().run_for(Duration::from_secs(seconds));
    }

    fn owner(&self) -> usize {
        self.world.owner(&self.looker).expect("somebody owns the series")
    }

    /// The state of an alert, and since when it is there, as another server than the owner says.
    fn alert(&self, name: &str, owner: usize) -> (Json, Json) {
        let [_, questions] = self.world.doors();
        let others = (1..questions.len()).map(|more| questions[(owner + more) % questions.len()]);
        let mut answers = others
            .map(|other| self.world.sim().run_until(ask(&self.looker, other, "/api/v1/alerts")));
        let answer = answers.find_map(|answer| answer).expect("any server that is there answers");
        let alerts = answer["data"]["alerts"].as_array().expect("it is a list");
        let alert = alerts.iter().find(|alert| alert["labels"]["alertname"] == name);
        let alert = alert.unwrap_or_else(|| panic!("{name} isn't there: {answer}"));
        (alert["state"].clone(), alert["activeAt"].clone())
    }
}

/// Whoever owns the series next evaluates, and knows since when alerts are there.
#[test]
fn another_server_goes_on_where_the_owner_ended() {
    goes_on(1);
}

/// Where series are in parts that is whoever owns the first one.
#[test]
fn another_server_goes_on_where_the_owner_of_the_first_part_ended() {
    goes_on(4);
}

fn goes_on(parts: usize) {
    let mut three = Three::in_parts(6, parts);
    let first = three.owner();
    let before = three.alert("High", first);
    assert_eq!(before.0, "firing");
    three.world.crash(first);
    three.run(30);
    let next = three.owner();
    assert_ne!(next, first);
    three.world.restart(first);
    three.run(10);
    assert_eq!(three.alert("High", next), before);
    // Clean ends too.
    three.world.end(next);
    three.run(20);
    assert_eq!(three.alert("High", three.owner()), before);
    *three.value.lock().unwrap() = 0.0;
    three.run(60);
    assert_eq!(three.heard.changes(), [high(false), high(true)]);
    let alerts = three.heard.alerts.lock().unwrap().clone();
    let since: std::collections::BTreeSet<_> =
        alerts.iter().map(|(alert, _)| alert["startsAt"].to_string()).collect();
    assert_eq!(since.len(), 1, "it is one alert to whoever hears of it: {since:?}");
}

/// A server that came to own the series evaluated its files as it had read them at its own start,
/// and threw away what was kept of a group that had been added since.
#[test]
fn another_server_goes_on_with_the_files_as_they_are_by_then() {
    let mut three = Three::new(7);
    three.world.change_rules(more());
    three.run(60);
    let first = three.owner();
    let before = three.alert("Higher", first);
    assert_eq!(before.0, "firing");
    three.world.crash(first);
    three.run(40);
    let next = three.owner();
    assert_ne!(next, first);
    assert_eq!(three.alert("Higher", next), before);
}

/// As above, with files that nobody can read at the moment: what was kept stays until they can be.
#[test]
fn what_was_kept_outlives_files_that_make_no_sense() {
    let mut three = Three::new(8);
    three.world.change_rules(more());
    three.run(60);
    let first = three.owner();
    let before = three.alert("Higher", first);
    three
        .world
        .change_rules("groups: [{name: load, rules: [{alert: High, expr: 'sum('}]}]".to_owned());
    three.world.crash(first);
    three.run(30);
    three.world.change_rules(more());
    three.run(30);
    let next = three.owner();
    assert_eq!(three.alert("High", next).0, "firing");
    assert_eq!(three.alert("Higher", next), before);
}
