//! `plinth status` and `plinth top`: how a database fares, once or again and again.
//!
//! Both read the status document and nothing else, so they show whatever has one: a server,
//! FoundationDB, a directory. Rates are differences of its counters between two looks, so they are
//! exact for the time between.

use crate::CLUSTER_FILE;
use crate::failure::Failure;
use crate::interrupt;
use crate::layers;
use crate::patience::{PATIENCE, no_answer, within};
use crate::target::{Open, Target};
use crate::terminal::{self, Terminal};
use crate::told;
use crate::trend::Trend;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::{Database, Error, block_on, codes};
use plinth_bench::Value;
use plinth_bench::words::{bytes, duration, grouped, short};
use plinth_env::Env;
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn place() -> Arg {
    Arg::new("database").value_name("T").help(
        "A server's cluster file or directory, fdb:CLUSTER_FILE[?lib=PATH], or a directory that nobody has open [default: FDB_CLUSTER_FILE, ./fdb.cluster]",
    )
}

/// The command line of `plinth status`.
pub fn status_command() -> Command {
    Command::new("status")
        .about("How a database fares: available, locked, how busy, how large, and what limits it")
        .after_help("Exit code 1: it can't be reached, or is not available.\n\nExample:\n  plinth status ./shop")
        .arg(place())
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("The whole status document, as JSON"))
}

/// The command line of `plinth top`.
pub fn top_command() -> Command {
    Command::new("top")
        .about("Shows what a database does, live, until Ctrl-C")
        .after_help("Example:\n  plinth top ./shop --interval 2")
        .arg(place())
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("S")
                .value_parser(value_parser!(f64))
                .default_value("1")
                .help("Seconds between two looks"),
        )
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .help("Ends after so many looks"),
        )
}

fn open(options: &ArgMatches) -> Result<(String, Database), Failure> {
    let given = options.get_one::<String>("database").cloned();
    let target = given.as_deref().map_or_else(|| Target::of_cluster_file(None), Target::named);
    let target = target.map_err(|error| Failure::usage(error.to_string()))?;
    let name = given.unwrap_or_else(|| "the database".to_owned());
    let opened = match target.open(true) {
        Err(error) if error.code() == codes::LOCK_FILE_FAILURE => by_its_server(&target, error),
        opened => opened,
    };
    let opened = opened.map_err(|error| Failure::opening(&name, &error))?;
    Ok((name, opened.database))
}

/// A directory that somebody has open: if that is a server, it is asked.
fn by_its_server(target: &Target, error: Error) -> Result<Open, Error> {
    let Target::Directory(dir) = target else { return Err(error) };
    let file = dir.join(CLUSTER_FILE);
    match block_on(Env::real().files().exists(&file)) {
        Ok(true) => Target::ClusterFile(file).open(true),
        _ => Err(error),
    }
}

fn look(name: &str, database: &Database) -> Result<Value, Failure> {
    let env = database.endpoint().env().clone();
    let text = within(&env, PATIENCE, database.status_json())
        .unwrap_or_else(|| Err(Error::timed_out().with_detail(no_answer(PATIENCE))));
    let text =
        text.map_err(|error| Failure::of(format!("cannot read the status of {name}"), error))?;
    text.parse().map_err(|error| Failure::of(format!("the status of {name} is not JSON"), error))
}

/// Runs `plinth status`.
pub fn status(options: &ArgMatches) -> Result<u8, Failure> {
    let (name, database) = open(options)?;
    let document = look(&name, &database)?;
    let available = flag(&document, "/client/database_status/available");
    if options.get_flag("json") {
        terminal::print(&format!("{document:#}\n"))?;
    } else {
        terminal::print(&summary(&document, Terminal::stdout()))?;
    }
    Ok(if available { 0 } else { crate::failure::FAILED })
}

fn flag(document: &Value, path: &str) -> bool {
    document.pointer(path).and_then(Value::as_bool).unwrap_or(false)
}

/// A number, if the document has it.
fn known(document: &Value, path: &str) -> Option<f64> {
    document.pointer(path).and_then(Value::as_f64)
}

fn number(document: &Value, path: &str) -> f64 {
    known(document, path).unwrap_or(0.0)
}

fn known_text<'a>(document: &'a Value, path: &str) -> Option<&'a str> {
    document.pointer(path).and_then(Value::as_str)
}

fn text<'a>(document: &'a Value, path: &str) -> &'a str {
    known_text(document, path).unwrap_or("-")
}

fn seconds(value: f64) -> String {
    duration(Duration::try_from_secs_f64(value).unwrap_or_default())
}

/// Whether it takes commits, in a word or two; if not, how far its recovery is.
fn state(document: &Value, terminal: Terminal) -> String {
    let refused = document.pointer("/cluster/plinth/commits_refused/now").and_then(Value::as_str);
    let recovery = known_text(document, "/cluster/recovery_state/name");
    match (flag(document, "/client/database_status/available"), refused) {
        (false, _) => terminal.bad(&match recovery.filter(|name| *name != "fully_recovered") {
            Some(recovery) => format!("NOT AVAILABLE ({recovery})"),
            None => "NOT AVAILABLE".to_owned(),
        }),
        (true, Some(cause)) => terminal.bad(&format!("REFUSES COMMITS ({cause})")),
        (true, None) => terminal.good("available"),
    }
}

/// Figures in words, in which a star stands for each; `None` unless the first is known.
fn each(figures: &[(&str, &str)], told: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    let known = |(words, path): &(&str, &str)| Some(words.replace('*', &told(path)?));
    known(figures.first()?)?;
    Some(figures.iter().filter_map(known).collect())
}

fn summary(document: &Value, terminal: Terminal) -> String {
    let state = state(document, terminal);
    let locked =
        if flag(document, "/cluster/database_lock_state/locked") { ", locked" } else { "" };
    let rate = |path: &str| known(document, &format!("/cluster/workload/{path}/hz")).map(short);
    let size = |path: &str| known(document, path).map(|size| bytes(size as u64));
    let mut out = String::new();
    let mut line = |name: &str, what: String| {
        // Writing to a string can't fail.
        let _ = writeln!(out, "{name:13}{what}");
    };
    let engine = known_text(document, "/cluster/configuration/storage_engine");
    let engine = engine.map(|engine| format!(" ({engine})")).unwrap_or_default();
    line("database", format!("{}{engine}", text(document, "/client/cluster_file/path")));
    line("state", format!("{state}{locked}"));
    // What nobody tells isn't 0.
    let mut figures = |name: &str, told: Option<Vec<String>>| {
        told.into_iter().for_each(|told| line(name, told.join(", ")));
    };
    let data = [
        ("*", "/cluster/data/total_kv_size_bytes"),
        ("* on disk", "/cluster/data/total_disk_used_bytes"),
    ];
    figures("data", each(&data, size));
    figures("starts", each(&[("* a second", "transactions/started")], rate));
    let commits =
        [("* a second", "transactions/committed"), ("* conflicts", "transactions/conflicted")];
    figures("commits", each(&commits, rate));
    let reads = [("* a second", "operations/reads"), ("of * keys", "keys/read")];
    figures("reads", each(&reads, rate));
    figures("writes", each(&[("* a second", "operations/writes")], rate));
    let limit = known_text(document, "/cluster/qos/performance_limited_by/name");
    limit.into_iter().for_each(|limit| line("limited by", limit.to_owned()));
    for (what, told) in followers(document) {
        line(what, told);
    }
    for (server, what) in servers(document, terminal) {
        line(
            if server.is_empty() { "cluster" } else { "" },
            format!("{server:22}{what}").trim_start().to_owned(),
        );
    }
    let tags = number(document, "/cluster/qos/throttled_tags/manual/count");
    if tags > 0.0 {
        line("throttled", format!("{} tags", grouped(tags as u64)));
    }
    for message in messages(document) {
        line("message", text(message, "/description").to_owned());
    }
    out
}

/// What the client has to say, and the cluster.
pub fn messages(document: &Value) -> impl Iterator<Item = &Value> {
    let list = |path: &str| document.pointer(path).and_then(Value::as_array).into_iter().flatten();
    // FoundationDB's client has a message of its own for what the servers say at greater length.
    let is_said = list("/cluster/messages").any(|message| message["name"] == "no_majority");
    let client = list("/client/messages")
        .filter(move |message| !is_said || message["name"] != "quorum_not_reachable");
    client.chain(list("/cluster/messages"))
}

/// What goes on behind the database, a line each: streams of changes, continuous backups, a second
/// site.
fn followers(document: &Value) -> Vec<(&'static str, String)> {
    let mut lines: Vec<_> =
        streams(document).map(|streams| ("streams", streams)).into_iter().collect();
    lines.extend(layers::backups(document).into_iter().map(|backup| ("backup", backup)));
    lines.extend(layers::sites(document).into_iter().map(|site| ("site", site)));
    lines
}

/// How many streams of changes there are, and how their consumers do.
pub fn streams(document: &Value) -> Option<String> {
    let streams = document.pointer("/cluster/plinth/changes").and_then(Value::as_array)?;
    let lost = streams.iter().filter(|stream| stream["lost"].is_string()).count();
    let slowest = streams.iter().max_by(|one, other| {
        let lag = |stream: &Value| number(stream, "/lag/seconds");
        lag(one).total_cmp(&lag(other))
    })?;
    let lag = seconds(number(slowest, "/lag/seconds"));
    let lost = if lost > 0 { format!(", {lost} LOST") } else { String::new() };
    Some(format!(
        "{} of changes{lost}; {} not acknowledged for {lag}",
        streams.len(),
        text(slowest, "/name")
    ))
}

/// The servers of a cluster, by address: what each is, and how far behind. What holds for all of
/// them comes first, without an address. Nothing for a database that has one server.
fn servers(document: &Value, terminal: Terminal) -> Vec<(String, String)> {
    let Some(own) = document.pointer("/cluster/plinth/member").filter(|own| own.is_object()) else {
        return Vec::new();
    };
    let may_fail =
        number(document, "/cluster/fault_tolerance/max_zone_failures_without_losing_availability");
    let (term, elections) = (number(own, "/term"), number(own, "/elections"));
    let counted = |count: f64, what: &str| {
        let plural = if (count - 1.0).abs() < 0.5 { "" } else { "s" };
        format!("{count} {what}{plural}")
    };
    let elections = counted(elections, "election");
    let all = match document.pointer("/client/database_status/available") {
        Some(Value::Bool(false)) => format!("term {term}, {elections} seen from here"),
        _ => {
            let may_fail = counted(may_fail, "server");
            format!("{may_fail} may fail; term {term}, {elections} seen from here")
        }
    };
    let mut lines = vec![(String::new(), all)];
    let processes = document.pointer("/cluster/processes").and_then(Value::as_object);
    let is_away = |node: &Value| {
        let known = processes.into_iter().flat_map(|all| all.values());
        known
            .into_iter()
            .any(|known| known["plinth"]["node"] == *node && known["plinth"]["reachable"] == false)
    };
    for (part, votes) in [("voters", true), ("learners", false)] {
        for server in own[part].as_array().into_iter().flatten() {
            let role = match (server["node"] == own["leader"], votes) {
                (true, _) => "leads",
                (false, true) => "votes",
                (false, false) => "follows, without a vote",
            };
            let lag = server["lag_entries"].as_u64().filter(|lag| *lag > 0);
            let lag = match lag {
                Some(1) => ", lacks 1 entry".to_owned(),
                Some(lag) => format!(", lacks {} entries", grouped(lag)),
                None => String::new(),
            };
            let away = if is_away(&server["node"]) {
                terminal.bad("  CAN'T BE REACHED")
            } else {
                String::new()
            };
            lines.push((text(server, "/address").to_owned(), format!("{role}{lag}{away}")));
        }
    }
    lines
}

/// Runs `plinth top`.
pub fn top(options: &ArgMatches) -> Result<u8, Failure> {
    let (name, database) = open(options)?;
    let interval = options.get_one::<f64>("interval").copied().unwrap_or(1.0);
    let interval = Duration::try_from_secs_f64(interval.clamp(0.1, 3600.0)).unwrap_or(PATIENCE);
    let looks = options.get_one::<u64>("count").copied().unwrap_or(u64::MAX);
    let (env, stop) = (Env::real(), interrupt::flag());
    let screen = std::io::stdout().is_terminal();
    let mut before = (env.now(), look(&name, &database)?);
    let mut trend = Trend::default();
    for _ in 0..looks {
        let next = env.now() + interval;
        while env.now() < next && !stop.load(Ordering::Relaxed) {
            block_on(env.sleep(TICK.min(next.saturating_sub(env.now()))));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let now = (env.now(), look(&name, &database)?);
        let passed = now.0.saturating_sub(before.0).as_secs_f64();
        let rates = TREND.map(|(_, path)| rate(&before.1, &now.1, path, passed));
        if let [Some(_), ..] = rates {
            trend.add(now.0, rates.map(Option::unwrap_or_default).to_vec());
        }
        let page = page(&name, &before.1, &now.1, passed, &trend, Terminal::stdout());
        // Home, the page, and nothing of what stood below: so that nothing flickers.
        let page = if screen {
            format!("\x1b[H{}\x1b[J", page.replace('\n', "\x1b[K\n"))
        } else {
            page + "\n"
        };
        terminal::print(&page)?;
        before = now;
    }
    Ok(0)
}

/// How soon Ctrl-C is noticed.
const TICK: Duration = Duration::from_millis(50);

/// What `top` shows two minutes of.
const TREND: [(&str, &str); 3] = [
    ("commits", "transactions/committed"),
    ("keys read", "keys/read"),
    ("writes", "operations/writes"),
];

/// How often a second a counter went up between two looks, if both tell.
fn rate(before: &Value, now: &Value, path: &str, seconds_passed: f64) -> Option<f64> {
    let path = format!("/cluster/workload/{path}/counter");
    let more = known(now, &path)? - known(before, &path)?;
    Some(more.max(0.0) / seconds_passed.max(1e-3))
}

/// What stands beside the counters: latencies, hot ranges, clients, slow transactions.
fn beside(now: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let latencies = told::latencies(now);
    if !latencies.is_empty() {
        lines.push(format!("{:10}{:>11}{:>11}{:>11}", "latency", "median", "p99", "worst"));
    }
    for told::Latency { what, median, p99, worst } in latencies {
        lines.push(format!("  {what:8}{median:>11}{p99:>11}{worst:>11}"));
    }
    lines.extend(told::hot(now).into_iter().map(|(kind, ranges)| format!("hot {kind:10}{ranges}")));
    lines.extend(told::clients(now).map(|clients| format!("{:14}{clients}", "clients")));
    lines.extend(told::slow(now).into_iter().map(|slow| format!("{:14}{slow}", "slow")));
    lines
}

/// What `top` shows of the time between two looks.
fn page(
    name: &str,
    before: &Value,
    now: &Value,
    seconds_passed: f64,
    trend: &Trend,
    terminal: Terminal,
) -> String {
    // What nobody tells isn't 0.
    let told = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
    let rate = |path: &str| told(rate(before, now, path, seconds_passed).map(short));
    let size = |path: &str| told(known(now, path).map(|size| bytes(size as u64)));
    let probe = |what: &str| {
        told(known(now, &format!("/cluster/latency_probe/{what}_seconds")).map(seconds))
    };
    let held_back = known(now, "/cluster/plinth/start_queue/transactions");
    let state = state(now, terminal);
    let locked = if flag(now, "/cluster/database_lock_state/locked") { ", locked" } else { "" };
    let limited = match known_text(now, "/cluster/qos/performance_limited_by/name") {
        Some("workload") => "  limited by workload".to_owned(),
        Some(cause) => format!("  limited by {}", terminal.bad(cause)),
        None => String::new(),
    };
    let rows = [
        ("", "starts", rate("transactions/started")),
        ("a second", "commits", rate("transactions/committed")),
        ("", "conflicts", rate("transactions/conflicted")),
        ("", "reads", rate("operations/reads")),
        ("", "keys read", rate("keys/read")),
        ("", "writes", rate("operations/writes")),
        ("median", "start", probe("transaction_start")),
        ("", "read", probe("read")),
        ("", "commit", probe("commit")),
        ("queues", "to commit", size("/cluster/qos/worst_queue_bytes_log_server")),
        ("", "older versions", size("/cluster/qos/worst_queue_bytes_storage_server")),
        ("", "held back", told(held_back.map(|held| grouped(held as u64)))),
        ("space", "keys and values", size("/cluster/data/total_kv_size_bytes")),
        ("", "disk", size("/cluster/data/total_disk_used_bytes")),
    ];
    let mut out = format!("{}  {state}{locked}{limited}\n", terminal.heading(name));
    let beside = beside(now);
    for at in 0..rows.len().max(beside.len()) {
        let (group, what, figure) = rows.get(at).cloned().unwrap_or_default();
        let beside = beside.get(at).map_or("", String::as_str);
        let _ =
            writeln!(out, "{}", format!("{group:10}{what:16}{figure:>12}    {beside}").trim_end());
    }
    for (at, (what, _)) in TREND.iter().enumerate() {
        let (group, line) = (if at == 0 { "2 minutes" } else { "" }, trend.line(at));
        if !line.is_empty() {
            let _ = writeln!(out, "{group:10}{what:12}{line}");
        }
    }
    for (what, told) in followers(now) {
        let _ = writeln!(out, "{what:10}{told}");
    }
    for (server, what) in servers(now, terminal) {
        let group = if server.is_empty() { "servers" } else { "" };
        let _ = writeln!(out, "{group:10}{}", format!("{server:22}{what}").trim_start());
    }
    for message in messages(now) {
        let _ = writeln!(out, "{}", terminal.bad(text(message, "/description")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(committed: u64) -> Value {
        let database = plinth::Local::in_memory().unwrap().into_database();
        let mut document: Value = database.status_json().wait().unwrap().parse().unwrap();
        document["cluster"]["workload"]["transactions"]["committed"]["counter"] = committed.into();
        document
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let mut trend = Trend::default();
        trend.add(Duration::from_secs(1), vec![500.0, 1.0, 1.0]);
        let page = page("shop", &document(100), &document(1100), 2.0, &trend, Terminal::stdout());
        let commits = page.lines().find(|line| line.contains("commits")).unwrap();
        assert_eq!(commits[26..].split_whitespace().next(), Some("500"), "{page}");
        assert!(page.contains("clients") && page.contains("█ most 500"), "{page}");
        assert!(page.contains("available") && page.contains("limited by workload"), "{page}");
    }

    #[test]
    fn what_follows_the_database_is_shown() {
        let mut shown = document(1);
        shown["cluster"]["plinth"]["changes"] =
            serde_json::json!([{ "name": "s", "lag": { "seconds": 2.0 } }]);
        let tag = serde_json::json!({
            "running_backup": true, "running_backup_is_restorable": true, "current_container": "/b",
            "last_restorable_seconds_behind": 0.5,
        });
        shown["cluster"]["layers"]["backup"] = serde_json::json!({ "tags": { "default": tag } });
        shown["cluster"]["layers"]["dr_backup"] = serde_json::json!({ "tags": { "site": { "running_backup": true, "seconds_behind": 0.25 } } });
        let page = page("x", &shown, &shown, 1.0, &Trend::default(), Terminal::stdout());
        for wanted in [
            "streams   1 of changes; s not acknowledged for 2 s\n",
            "backup    default to /b: 0.5 s behind\n",
            "site      site: this is the first, the second is 0.2 s behind\n",
        ] {
            assert!(page.contains(wanted), "{wanted} in {page}");
        }
    }

    #[test]
    fn the_servers_of_a_cluster_are_shown() {
        let mut shown = document(1);
        assert!(servers(&shown, Terminal::stdout()).is_empty());
        let server = |node: u64, lag: Option<u64>| serde_json::json!({ "address": format!("10.0.0.{node}:4500"), "node": node, "lag_entries": lag });
        shown["cluster"]["plinth"]["member"] = serde_json::json!({
            "node": 1, "leader": 1, "term": 4, "elections": 2,
            "voters": [server(1, Some(0)), server(2, Some(1200)), server(3, None)], "learners": [server(7, None)],
        });
        shown["cluster"]["processes"]["3"] =
            serde_json::json!({ "plinth": { "node": 3, "reachable": false } });
        let page = page("x", &shown, &shown, 1.0, &Trend::default(), Terminal::stdout());
        for wanted in [
            "term 4, 2 elections",
            "10.0.0.1:4500         leads\n",
            "10.0.0.2:4500         votes, lacks 1,200 entries\n",
            "10.0.0.3:4500         votes  CAN'T BE REACHED",
            "10.0.0.7:4500         follows, without a vote\n",
        ] {
            assert!(page.contains(wanted), "{wanted} in {page}");
        }
        assert!(summary(&shown, Terminal::stdout()).contains("may fail"));
    }

    #[test]
    fn what_a_document_does_not_tell_is_no_obstacle() {
        let nothing: Value = "{}".parse().unwrap();
        let told = summary(&nothing, Terminal::stdout());
        assert!(told.contains("NOT AVAILABLE"), "{told}");
        let page = page("x", &nothing, &document(7), 1.0, &Trend::default(), Terminal::stdout());
        assert!(page.contains("available"), "{page}");
    }

    /// A server that couldn't be reached was said to hold 0 B, and to do nothing.
    #[test]
    fn what_is_not_known_is_not_zero() {
        let away: Value =
            r#"{"client":{"cluster_file":{"path":"f"}},"cluster":{}}"#.parse().unwrap();
        let told = summary(&away, Terminal::stdout());
        assert_eq!(told.lines().count(), 2, "{told}");
        let told = summary(&document(7), Terminal::stdout());
        assert!(told.contains(" a second, of ") && !told.contains('*'), "{told}");
        let looks = [(&away, &away), (&away, &document(1_000_000))];
        for (before, now) in looks {
            let page = page("x", before, now, 1.0, &Trend::default(), Terminal::stdout());
            let commits = page.lines().find(|line| line.contains("commits")).unwrap();
            assert_eq!(commits[26..].split_whitespace().next(), Some("-"), "{page}");
        }
        let page = page("x", &away, &away, 1.0, &Trend::default(), Terminal::stdout());
        assert!(!page.contains(" 0"), "{page}");
    }
}
