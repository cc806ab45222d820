//! What the console names of series where a server records itself, and what it says of how long
//! points are kept.

use super::*;
use plinth_series::{Keeping, Metrics, Rollup, SeriesStore, Settings};
use serde_json::{Value, json};
use std::time::Duration;

/// A server that takes in series, of which it has these.
fn with(lines: &str) -> Server {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        series: SeriesConfig { http: Some(loopback()), ..SeriesConfig::default() },
        ..ServerConfig::default()
    };
    let server = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap();
    let mut raw = Raw::to(server.series_addresses().http.unwrap());
    let head = "POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length:";
    raw.send(format!("{head} {}\r\n\r\n{lines}", lines.len()).as_bytes()).unwrap();
    assert!(String::from_utf8_lossy(&raw.all()).starts_with("HTTP/1.1 204 "));
    server
}

/// The fifty names that were listed were all of a server's own, and none of the user's.
#[test]
fn what_servers_record_of_themselves_hides_no_metric_of_a_user() {
    let mut lines = String::new();
    for number in 0..120 {
        lines += &format!("plinth_figure_{number:03},server=a v=1i 1\n");
    }
    // Of any program, of the server alone, and of both.
    lines += "process_mine,job=x v=1i 1\nprocess_own,server=a v=1i 1\n";
    lines += "process_both,server=a v=1i 1\nprocess_both,job=x v=1i 1\n";
    lines += "a,host=x v=1i 1\nplint,host=x v=1i 1\nzz,host=x v=1i 1\n";
    let server = with(&lines);
    let asked = |typed: &str| json(&get(&server, &format!("/api/series?q={typed}")));
    let all = asked("");
    assert_eq!(all["names"], json!(["a.v", "plint.v", "process_both.v", "process_mine.v", "zz.v"]));
    let own = all["own"].as_array().unwrap();
    assert_eq!((own.len(), &own[0]), (50, &Value::from("plinth_figure_000.v")), "{all}");
    assert_eq!((&all["more"], &all["more_own"]), (&false.into(), &true.into()));
    let own = |typed: &str| (asked(typed)["names"].clone(), asked(typed)["own"].clone());
    assert_eq!(asked("plinth_figure_11")["own"].as_array().unwrap().len(), 10);
    assert_eq!(asked("plinth_figure_11")["more_own"], false);
    assert_eq!(own("process_o"), (json!([]), json!(["process_own.v"])));
    assert_eq!(own("z"), (json!(["zz.v"]), json!([])));
    assert_eq!(asked("plinth_figure_000.v+")["names"], json!(["plinth_figure_000.v server=a"]));
}

/// More metrics than are named: those of the user are named before the others are looked at.
#[test]
fn many_metrics_of_a_user_are_cut_and_own_ones_are_named_beside() {
    let mut lines = String::new();
    for number in 0..60 {
        lines += &format!("user{number:02},host=a v=1i 1\nplinth_{number:02},server=a v=1i 1\n");
    }
    let server = with(&lines);
    let all = json(&get(&server, "/api/series?q="));
    let list = |name: &str| all[name].as_array().unwrap().clone();
    assert_eq!((list("names").len(), list("own").len()), (50, 50), "{all}");
    assert_eq!((&list("names")[49], &all["more"]), (&"user49.v".into(), &true.into()));
}

#[test]
fn what_is_kept_is_told_as_the_database_says_it() {
    let server = with("cpu,host=a user=1i 1\ncpu,host=b user=1i 1\nmem,host=a free=1i 1\n");
    let kept = || json(&get(&server, "/api/kept"));
    let nothing = json!({ "rollups": [], "retention": null, "rolled": 0, "left": 0 });
    assert_eq!(kept(), nothing);
    let change = |keeping: &mut Keeping| {
        let metrics = Metrics::parse("cpu.*").unwrap();
        let rule = Rollup::new(metrics, Duration::from_mins(5));
        keeping.set_retention(Some("debug.*=7d,*=90d".to_owned()));
        keeping.add(Rollup {
            keep: Some(Duration::from_hours(48)),
            raw: Some(Duration::from_mins(90)),
            ..rule
        })
    };
    let settings = Settings::default();
    block_on(SeriesStore::change_keeping(&database(&server), &settings, change)).unwrap();
    // Its owner learns of it, and has rolled up what there was.
    let mut told = kept();
    for _ in 0..3000 {
        if told["rolled"] != 0 && told["left"] == 0 {
            break;
        }
        block_on(Env::real().sleep(Duration::from_millis(20)));
        told = kept();
    }
    assert_eq!(told["rollups"], json!(["cpu.* every 5m keep 2d raw 1h30m"]), "{told}");
    assert_eq!(told["retention"], "debug.*=7d,*=90d");
    // Series without a rule were looked at too.
    assert_eq!((&told["rolled"], &told["left"]), (&3.into(), &0.into()), "{told}");
    block_on(server.stop());
    let answer = get(&open_console(), "/api/kept");
    assert!(status(&answer) == "404" && answer.contains("takes in no time series"), "{answer}");
}
