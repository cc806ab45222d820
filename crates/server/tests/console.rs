//! The console's interface: history, overview, the key browser with its limits, tokens, and who is
//! kept out.
//!
//! Requests are bare bytes over a socket, so that each header is just what a browser, a script, or
//! somebody with other plans would send. The page itself is clicked through in `tests/console`, at
//! the repository's root.

mod common;
#[path = "console/feed.rs"]
mod feed;
#[path = "console/series.rs"]
mod series;

use common::*;
use plinth_client::TransactionOption;
use plinth_env::{Env, TemporaryDir, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{ConsoleConfig, Page, Pages, SeriesConfig, Server, ServerConfig};
use std::sync::Arc;

fn start(console: ConsoleConfig) -> Server {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        console,
        pages: Pages {
            metrics: Some(Page::new(|| "plinth_watches 7\n".to_owned())),
            ..Pages::default()
        },
        ..ServerConfig::default()
    };
    block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap()
}

/// The body of an answer, as JSON.
fn json(answer: &str) -> serde_json::Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// A server with series of a thousand points and of one, of events, and of more hosts than the
/// store names at a time.
fn with_series() -> Server {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let series = SeriesConfig { http: Some(loopback()), ..SeriesConfig::default() };
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        series,
        ..ServerConfig::default()
    };
    let server = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap();
    let mut points = String::new();
    for time in 0..1000 {
        points += &format!("cpu,host=a,os=x user={time}i {time}000000\n");
    }
    points += "cpu,host=ab user=1i 5\nmem,host=a free=1.5 6\nmem,host=a note=\"x\" 6\n";
    // More than the store gives at a time: the last ones could not be found by the beginning of a
    // tag.
    points.extend((0..1100).map(|host| format!("many,host=h{host} v=1i 1\n")));
    let mut raw = Raw::to(server.series_addresses().http.unwrap());
    let head = format!(
        "POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        points.len()
    );
    raw.send((head + &points).as_bytes()).unwrap();
    assert!(String::from_utf8_lossy(&raw.all()).starts_with("HTTP/1.1 204 "));
    server
}

#[test]
fn series_are_found_as_they_are_typed_and_summed_up_in_buckets() {
    let server = with_series();
    for (typed, kind, names) in [
        ("", "metrics", &["!mem.note", "cpu.user", "many.v", "mem.free"][..]),
        ("many.v+host=h1099", "series", &["many.v host=h1099"]),
        ("cpu", "metrics", &["cpu.user"]),
        ("cpu.user%20", "series", &["cpu.user host=a os=x", "cpu.user host=ab"]),
        ("cpu.user+host=a", "series", &["cpu.user host=a os=x", "cpu.user host=ab"]),
        ("cpu.user+host=a+", "series", &["cpu.user host=a os=x"]),
        ("cpu.user+os=x+host", "series", &["cpu.user host=a os=x"]),
        ("nothing", "metrics", &[]),
    ] {
        let found = json(&get(&server, &format!("/api/series?q={typed}")));
        assert_eq!(
            found,
            serde_json::json!({ "kind": kind, "names": names, "own": [], "more": false, "more_own": false }),
            "{typed}"
        );
    }
    let all = json(&get(&server, "/api/points?name=cpu.user+os=x+host=a&buckets=10"));
    assert_eq!(
        (&all["name"], &all["from"], &all["to"]),
        (&"cpu.user host=a os=x".into(), &0.0.into(), &999.0.into())
    );
    let rows = all["points"].as_array().unwrap();
    assert_eq!(rows.len(), 10, "{all}");
    assert_eq!(rows[1], serde_json::json!([99.900_001, 100, 149.5, 100.0, 199.0, 199.0]), "{all}");
    let some = json(&get(&server, "/api/points?name=cpu.user+os=x+host=a&span=1&to=500"));
    assert_eq!(some["points"].as_array().unwrap().len(), 151, "{some}");
    let none = json(&get(&server, "/api/points?name=cpu.user+os=x+host=a&span=60"));
    assert_eq!(none["points"], serde_json::json!([]));
    for (path, expected, words) in [
        ("points", "400", "which series"),
        ("points?name=x", "404", "there is no series"),
        ("points?name=x+a=1", "404", "there is no series"),
        ("points?name=!mem.note+host=a", "400", "events"),
        ("points?name=mem.free+host=a&span=x", "400", "whole number"),
        ("points?name=mem.free+host=a&span=1&to=18446744073709551615", "400", "before 2262"),
        (
            "points?name=mem.free+host=a&span=18446744073709551615&to=0&buckets=18446744073709551615",
            "200",
            "points",
        ),
    ] {
        let answer = get(&server, &format!("/api/{path}"));
        assert!(status(&answer) == expected && answer.contains(words), "{path}: {answer}");
    }
    assert_eq!(json(&get(&server, "/api/overview"))["series"], true);
    block_on(server.stop());
    let without = open_console();
    assert_eq!(json(&get(&without, "/api/overview"))["series"], false);
    let answer = get(&without, "/api/series?q=");
    assert!(status(&answer) == "404" && answer.contains("takes in no time series"), "{answer}");
}

fn open_console() -> Server {
    start(ConsoleConfig { token_file: None, write: true })
}

fn send(server: &Server, request: &[u8]) -> String {
    let mut raw = Raw::to(server.http_address().unwrap());
    // A server that has refused may close before it has read all.
    let _ = raw.send(request);
    String::from_utf8_lossy(&raw.all()).into_owned()
}

/// The answer to a GET with more lines in its head.
fn get_with(server: &Server, path: &str, head: &str) -> String {
    send(
        server,
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n")
            .as_bytes(),
    )
}

fn get(server: &Server, path: &str) -> String {
    get_with(server, path, "")
}

fn post(server: &Server, path: &str, head: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n{body}"
    );
    send(server, request.as_bytes())
}

const OURS: &str = "X-Plinth-Console: 1\r\n";

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

#[test]
fn the_page_brings_everything_it_needs() {
    let server = open_console();
    let page = get(&server, "/");
    assert_eq!(status(&page), "200");
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    let quoted = page
        .split('"')
        .filter(|text| text.ends_with(".js") || text.ends_with(".css") || text.ends_with(".svg"));
    let files: Vec<_> = quoted.collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let answer = get(&server, &format!("/{file}"));
        assert_eq!(status(&answer), "200", "{file}");
        assert!(!answer.contains("https://"), "{file} asks for something elsewhere");
    }
}

#[test]
fn history_and_overview_say_how_the_server_does() {
    let server = open_console();
    let client = database(&server);
    client.transact_blocking(|tr| tr.get("k").wait()).unwrap();
    let overview = get(&server, "/api/overview");
    assert!(
        overview.contains("\"state\":\"serving\"")
            && overview.contains("\"address\":\"127.0.0.1\""),
        "{overview}"
    );
    let mut history = get(&server, "/api/history");
    while history.contains("\"samples\":[]") {
        block_on(Env::real().sleep(std::time::Duration::from_millis(100)));
        history = get(&server, "/api/history?since=0");
    }
    assert!(
        history.contains("\"capacity\":600") && history.contains("\"connections\""),
        "{history}"
    );
    assert_eq!(status(&get(&server, "/api/history?since=18446744073709551615")), "200");
    assert_eq!(status(&get(&server, "/api/history?since=-1")), "400");
    assert_eq!(status(&get(&server, "/api/nothing")), "404");
}

#[test]
fn keys_are_shown_page_by_page_in_both_directions() {
    let server = open_console();
    let client = database(&server);
    client
        .transact_blocking(|tr| {
            (0..10).for_each(|at| tr.set(format!("a/{at}"), "v"));
            tr.set(b"a\xff\x00", vec![b'x'; 5000]);
            tr.set(b"b", b"\x00\xfe");
            Ok(())
        })
        .unwrap();
    let first = get(&server, "/api/range?prefix=a%2F&limit=4");
    assert!(first.contains("\"after\":\"a/3\"") && first.contains("\"more\":true"), "{first}");
    let second = get(&server, "/api/range?prefix=a%2F&limit=400000&after=a%2F3");
    assert!(
        second.contains("\"key\":\"a/4\"")
            && !second.contains("\"a/3\"")
            && second.contains("\"more\":false"),
        "{second}"
    );
    let reverse = get(&server, "/api/range?reverse=true&limit=1");
    assert!(reverse.contains("\"key\":\"b\",\"value\":\"\\\\x00\\\\xfe\""), "{reverse}");
    let before = get(&server, "/api/range?reverse=true&limit=1&after=b");
    assert!(
        before.contains("\"bytes\":5000") && before.len() < 2000,
        "a page shows the beginning of a value: {before}"
    );
    let whole = get(&server, "/api/key?key=a%5Cxff%5Cx00");
    assert!(whole.contains(&"x".repeat(5000)), "{whole}");
    assert!(get(&server, "/api/key?key=none").contains("\"exists\":false"));
    assert!(get(&server, "/api/range?begin=a%2F2&end=a%2F4").contains("\"a/3\""));
    assert_eq!(
        status(&get(&server, "/api/range?prefix=%5Cxff")),
        "200",
        "the system's keys may be looked at"
    );
}

#[test]
fn what_makes_no_sense_is_told_and_nothing_breaks() {
    let server = open_console();
    for path in [
        "/api/range?prefix=%",
        "/api/range?prefix=%zz",
        "/api/range?prefix=%ff",
        "/api/range?prefix=%5Cxq0",
        "/api/range?limit=many",
        "/api/range?limit=99999999999999999999999",
        "/api/range?reverse=perhaps",
        "/api/range?begin=b&end=a",
        "/api/range?begin=b&prefix=a",
        "/api/key",
    ] {
        let answer = get(&server, path);
        assert_eq!(status(&answer), "400", "{path}: {answer}");
        assert!(answer.contains("\"message\":"), "{path}: {answer}");
    }
    let long = format!("/api/key?key={}", "k".repeat(14_000));
    // No key is as long as that, so it doesn't exist; that is an answer, as it is to any client.
    assert!(get(&server, &long).contains("\"exists\":false"));
    for body in
        ["", "{", "[]", "{\"key\":1}", "{\"key\":\"\\\\x\",\"value\":\"\"}", "{\"key\":\"k\"}"]
    {
        assert_eq!(status(&post(&server, "/api/set", OURS, body)), "400", "{body}");
    }
    let huge = format!("{{\"key\":\"k\",\"value\":\"{}\"}}", "v".repeat(1_100_000));
    assert!(["413", ""].contains(&status(&post(&server, "/api/set", OURS, &huge))));
    let large = format!("{{\"key\":\"k\",\"value\":\"{}\"}}", "v".repeat(200_000));
    assert_eq!(
        status(&post(&server, "/api/set", OURS, &large)),
        "400",
        "a value too large for the database"
    );
    assert_eq!(status(&get(&server, "/api/set")), "405");
    assert_eq!(status(&post(&server, "/api/range", OURS, "")), "405");
    assert_eq!(status(&get(&server, "/health")), "200");
}

#[test]
fn a_key_is_set_and_cleared_by_who_may() {
    let server = open_console();
    let set = "{\"key\":\"\\\\x00k\",\"value\":\"v\\\\xff\"}";
    assert_eq!(status(&post(&server, "/api/set", OURS, set)), "200");
    let value = database(&server).transact_blocking(|tr| tr.get(b"\x00k").wait()).unwrap();
    assert_eq!(value.as_deref(), Some(&b"v\xff"[..]));
    assert_eq!(status(&post(&server, "/api/clear", OURS, "{\"key\":\"\\\\x00k\"}")), "200");
    assert_eq!(database(&server).transact_blocking(|tr| tr.get(b"\x00k").wait()).unwrap(), None);
    assert_eq!(status(&post(&server, "/api/clear", OURS, "{\"key\":\"\\\\xff/conf\"}")), "403");
    assert_eq!(status(&post(&server, "/api/set", "", set)), "403", "a form has no such header");
    for origin in ["http://evil.example", "null", "http://localhost:1"] {
        let head = format!("{OURS}Origin: {origin}\r\n");
        assert_eq!(status(&post(&server, "/api/set", &head, set)), "403", "{origin}");
    }
    assert_eq!(
        status(&post(&server, "/api/set", &format!("{OURS}Origin: http://localhost\r\n"), set)),
        "200"
    );
    let cross = format!("{OURS}Sec-Fetch-Site: cross-site\r\n");
    assert_eq!(status(&post(&server, "/api/set", &cross, set)), "403");
    let reader = start(ConsoleConfig::default());
    let refused = post(&reader, "/api/set", OURS, set);
    assert!(status(&refused) == "403" && refused.contains("--console-write"), "{refused}");
}

#[test]
fn a_name_that_another_site_made_point_here_is_refused() {
    let server = open_console();
    let asked = |host: &str| {
        send(
            &server,
            format!("GET /api/overview HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        )
    };
    assert_eq!(status(&asked("evil.example:8080")), "403");
    assert_eq!(status(&asked("localhost.evil.example")), "403");
    for host in ["localhost:9999", "127.0.0.1", "[::1]:80"] {
        assert_eq!(status(&asked(host)), "200", "{host}");
    }
}

fn with_token() -> (Server, String, TemporaryDir) {
    let directory = block_on(Env::real().files().temporary_dir("plinth-token")).unwrap();
    let file = directory.path().join("token");
    let server = start(ConsoleConfig { token_file: Some(file.clone()), write: false });
    assert_eq!(server.http_token_file(), Some(file.as_path()));
    let token = String::from_utf8(block_on(Env::real().files().read(&file)).unwrap()).unwrap();
    (server, token.trim().to_owned(), directory)
}

#[test]
fn with_a_token_nothing_is_told_without_it() {
    let (server, token, directory) = with_token();
    assert_eq!(token.len(), 64, "a token of 256 bits was made");
    for path in [
        "/metrics",
        "/status",
        "/api/overview",
        "/api/history",
        "/api/range",
        "/api/key?key=a",
        "/api/none",
        "/api/changes/x",
    ] {
        assert_eq!(status(&get(&server, path)), "401", "{path}");
        assert_eq!(
            status(&get_with(&server, path, "Authorization: Bearer wrong\r\n")),
            "401",
            "{path}"
        );
    }
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(status(&get_with(&server, "/metrics", &bearer)), "200");
    assert_eq!(status(&get(&server, "/health")), "200", "health is open");
    assert_eq!(status(&get(&server, "/")), "200", "and the page that asks for the token");
    let again =
        start(ConsoleConfig { token_file: Some(directory.path().join("token")), write: false });
    assert_eq!(
        status(&get_with(&again, "/metrics", &bearer)),
        "200",
        "the file is read by the next start"
    );
}

#[test]
fn the_token_s_file_is_its_owner_s() {
    let (_server, _, directory) = with_token();
    #[expect(clippy::disallowed_methods, reason = "the environment has no word for permissions")]
    let found = std::fs::metadata(directory.path().join("token")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&found) & 0o777, 0o600);
}

#[test]
fn a_login_opens_a_session_that_a_logout_ends() {
    let (server, token, _directory) = with_token();
    assert_eq!(
        status(&post(&server, "/api/login", OURS, "{\"token\":\"wrong wrong wrong\"}")),
        "401"
    );
    assert_eq!(
        status(&post(&server, "/api/login", "", &format!("{{\"token\":\"{token}\"}}"))),
        "403"
    );
    let opened = post(&server, "/api/login", OURS, &format!("{{\"token\":\"{token}\"}}"));
    let cookie = opened.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(
        cookie.contains("HttpOnly")
            && cookie.contains("SameSite=Strict")
            && !cookie.contains(&token),
        "{cookie}"
    );
    let head = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    assert_eq!(status(&get_with(&server, "/api/overview", &head)), "200");
    assert_eq!(status(&get_with(&server, "/api/overview", &head.replace("=", "=0"))), "401");
    assert_eq!(status(&post(&server, "/api/logout", &format!("{OURS}{head}"), "{}")), "200");
    assert_eq!(status(&get_with(&server, "/api/overview", &head)), "401");
}

#[test]
fn elsewhere_than_on_loopback_there_must_be_a_token() {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some("0.0.0.0:0".parse().unwrap()),
        without_tls: true,
        ..ServerConfig::default()
    };
    let error = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap_err();
    assert!(error.to_string().contains("token"), "{error}");
}

#[test]
fn a_token_that_could_be_guessed_is_refused() {
    let directory = block_on(Env::real().files().temporary_dir("plinth-token")).unwrap();
    let file = directory.path().join("token");
    block_on(Env::real().files().replace(&file, b"short\n")).unwrap();
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        console: ConsoleConfig { token_file: Some(file), write: false },
        ..ServerConfig::default()
    };
    let error = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap_err();
    assert!(error.to_string().contains("5 characters"), "{error}");
}

/// What operators did is in a list of its own, in the status, and on the console's page; what
/// applications do isn't, nor what was refused.
#[test]
fn who_did_what_of_an_operator_s_things_is_told() {
    let server = with_series();
    let db = database(&server);
    let set = |key: &[u8], value: Option<&str>| {
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
        tr.set_option(TransactionOption::LockAware).unwrap();
        match value {
            Some(value) => tr.set(key, value),
            None => tr.clear(key),
        }
        tr.commit().wait()
    };
    set(b"k", Some("v")).unwrap();
    set(b"\xff/tenant/idPrefix", Some("v")).unwrap();
    set(b"\xff/conf/excluded/10.0.0.1", Some("")).unwrap();
    set(b"\xff/conf/excluded/10.0.0.1", None).unwrap();
    db.endpoint().disconnect("203.0.113.9").wait().unwrap();
    let delete = "/api/v1/admin/tsdb/delete_series?match[]=mem_free";
    let http = server.series_addresses().http.unwrap();
    let mut raw = Raw::to(http);
    let head = format!("POST {delete} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    raw.send(head.as_bytes()).unwrap();
    assert!(raw.until("\r\n").contains("204"));

    let all = json(&get(&server, "/api/audit"));
    let newest = all["newest"].as_array().unwrap();
    let what: Vec<_> = newest.iter().map(|one| one["what"].as_str().unwrap()).collect();
    let expected = [
        "series delete match[]=mem_free",
        "disconnect 203.0.113.9",
        "include 10.0.0.1",
        "exclude 10.0.0.1",
    ];
    assert_eq!((&all["count"], &what[..]), (&4.into(), &expected[..]));
    assert!(newest.iter().all(|one| one["by"].as_str().unwrap().starts_with("127.0.0.1")));
    assert!(newest.iter().all(|one| one["time"].as_f64().unwrap() > 1e9));
    let status = json(&get(&server, "/status"));
    assert_eq!(status["cluster"]["plinth"]["server"]["audit"], all);
    assert_eq!(json(&get(&server, "/api/overview"))["audit"], all);
}
