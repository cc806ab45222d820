//! Prometheus' query interface: what Grafana asks, and what is wrong named.
//!
//! Answers are compared as text, whole, as a client reads them: form, order and digits are what it
//! depends on. Random expressions over random series have a test of their own,
//! `prometheus_model.rs`.

use plinth::Local;
use plinth_env::block_on;
use plinth_env::sync::{First, pause, race};
use plinth_promql::Answered;
use plinth_series::{
    Direction, Histogram, HistogramParts, SeriesStore, Settings, delete_series, is_prometheus,
    prometheus,
};
use std::time::Duration;

/// A counter that rises by 10 every 15 seconds from 0 on, on two hosts, and begins anew on one of
/// them; and a gauge.
fn store() -> SeriesStore {
    block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let store = SeriesStore::open(&db).await.unwrap();
        for (host, restart) in [("a", i64::MAX), ("b", 20)] {
            let counter =
                store.series(&format!("http_requests_total host={host} code=200")).await.unwrap();
            for n in 0..41 {
                let value = if n < restart { n * 10 } else { (n - restart) * 10 };
                counter.append(n * 15_000_000_000, value).unwrap();
            }
        }
        let gauge = store.series("cpu.user host=a").await.unwrap();
        gauge.append(590_000_000_000, 2.5).unwrap();
        store
    })
}

fn ask(store: &SeriesStore, path: &str, parameters: &str) -> (u16, String) {
    assert!(is_prometheus(&format!("/api/v1/{path}")), "{path}");
    let path = format!("/api/v1/{path}");
    let asked = [parameters.as_bytes(), b""];
    let (status, text) = block_on(prometheus(store, &path, &asked, 600_000_000_000));
    (status, text.to_string())
}

/// The data of an answer.
fn data(store: &SeriesStore, path: &str, parameters: &str) -> String {
    let (status, text) = ask(store, path, parameters);
    assert_eq!(status, 200, "{text}");
    let text = text.strip_prefix(r#"{"data":"#).unwrap();
    text.strip_suffix(r#","status":"success"}"#).unwrap().to_string()
}

/// The metrics and values of an expression at the end of the data.
fn vector(store: &SeriesStore, query: &str) -> String {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let text = data(store, "query", &format!("query={encoded}"));
    let text =
        text.strip_prefix(r#"{"result":["#).unwrap().strip_suffix(r#"],"resultType":"vector"}"#);
    text.unwrap()
        .replace(r#"{"metric":"#, "")
        .replace(r#""value":[600,"#, "")
        .replace("]}", "")
        .replace('"', "")
}

#[test]
fn expressions_have_their_values() {
    let store = store();
    for (query, expected) in [
        ("cpu.user", "{__name__:cpu.user,host:a},2.5"),
        (r#"{__name__="cpu.user", host=~"a|x"} * 2"#, "{host:a},5"),
        (r#"http_requests_total{host!="b"}"#, "{__name__:http_requests_total,code:200,host:a},400"),
        ("rate(http_requests_total{host='a'}[1m])", "{code:200,host:a},0.6666666666666666"),
        ("sum by (code) (rate(http_requests_total[1m])) * 3", "{code:200},4"),
        ("increase(http_requests_total{host='b'}[10m])", "{code:200,host:b},389.7435897435897"),
        ("sum(http_requests_total)", "{},600"),
        ("count without (host) (http_requests_total)", "{code:200},2"),
        ("max(http_requests_total) by (host)", "{host:a},400,{host:b},200"),
        ("avg(http_requests_total) - min(http_requests_total)", "{},100"),
        ("max_over_time(http_requests_total{host='b'}[10m])", "{code:200,host:b},200"),
        (
            "http_requests_total / http_requests_total - 1",
            "{code:200,host:a},0,{code:200,host:b},0",
        ),
        ("nothing", ""),
    ] {
        assert_eq!(vector(&store, query), expected, "{query}");
    }
    assert_eq!(
        data(&store, "query", "query=1%2B1"),
        r#"{"result":[600,"2"],"resultType":"scalar"}"#
    );
    assert_eq!(vector(&store, "nothing{a='b'}"), "");
}

/// `up[1h]` was refused, and with it whoever reads points themselves: Prometheus' clients do, to
/// download a range.
#[test]
fn a_range_alone_is_the_points_themselves() {
    let store = store();
    let text = data(&store, "query", "query=http_requests_total{host=%22b%22}[ 45s ]&time=300.001");
    let expected =
        r#"{"result":[{"metric":{"__name__":"http_requests_total","code":"200","host":"b"},"#
            .to_string()
            + r#""values":[[270,"180"],[285,"190"],[300,"0"]]}],"resultType":"matrix"}"#;
    assert_eq!(text, expected);
    assert_eq!(
        data(&store, "query", "query=nothing[5m]"),
        r#"{"result":[],"resultType":"matrix"}"#
    );
    for wrong in ["x[5m", "x[0]", "x[5m]%2B1", "[5m]"] {
        assert_eq!(ask(&store, "query", &format!("query={wrong}")).0, 400, "{wrong}");
    }
    // In a range of times it has no meaning.
    assert_eq!(ask(&store, "query_range", "query=x[5m]&start=0&end=1&step=1").0, 400);
}

/// The time 1767225600.123 was answered as 1767225600.1230001: nanoseconds had been made a float
/// before they were divided.
#[test]
fn milliseconds_are_exact() {
    let store = store();
    for time in ["1767225600.123", "1795422091.403", "0.001", "-1.5", "7"] {
        let expected = format!(r#"{{"result":[{time},"1"],"resultType":"scalar"}}"#);
        assert_eq!(data(&store, "query", &format!("query=1&time={time}")), expected);
    }
}

/// Small and large values were printed with hundreds of digits, where Prometheus has an exponent.
#[test]
fn values_are_printed_as_prometheus_does() {
    let store = block_on(async {
        SeriesStore::open(&Local::in_memory().unwrap().into_database()).await.unwrap()
    });
    let values = [5e-324, 1e-6, 9.5e-7, -1.5e-10, -0.0, 1e20, 1e21, -1.25e300, f64::INFINITY];
    block_on(async {
        let series = store.series("m a=1").await.unwrap();
        for (time, value) in values.into_iter().enumerate() {
            series.append(600_000_000_000 - 1 - time as i64, value).unwrap();
        }
    });
    let text = data(&store, "query", "query=m[1s]");
    let printed: Vec<&str> =
        text.split('"').filter(|part| part.parse::<f64>().is_ok() && !part.contains(',')).collect();
    let expected = [
        "+Inf",
        "-1.25e+300",
        "1e+21",
        "100000000000000000000",
        "-0",
        "-1.5e-10",
        "9.5e-07",
        "0.000001",
        "5e-324",
    ];
    // The first is the value of the tag.
    assert_eq!(printed[1..], expected, "{text}");
}

/// Clients ask for what is never there, and took the error for a fault.
#[test]
fn what_is_never_there_is_empty() {
    let store = store();
    assert_eq!(data(&store, "query_exemplars", "query=x"), "[]");
    assert_eq!(data(&store, "rules", ""), r#"{"groups":[]}"#);
    assert_eq!(data(&store, "alerts", ""), r#"{"alerts":[]}"#);
    assert_eq!(data(&store, "metadata", "metric=x"), "{}");
}

/// The metric's name was taken from what `last_over_time` gives, which Prometheus leaves it.
#[test]
fn the_last_point_keeps_its_name() {
    assert_eq!(vector(&store(), "last_over_time(cpu.user[1m])"), "{__name__:cpu.user,host:a},2.5");
}

#[test]
fn ranges_have_a_value_a_step() {
    let store = store();
    let text = data(
        &store,
        "query_range",
        "query=http_requests_total{host%3D%22a%22}&start=0&end=30&step=15s",
    );
    assert!(
        text.ends_with(r#""values":[[0,"0"],[15,"10"],[30,"20"]]}],"resultType":"matrix"}"#),
        "{text}"
    );
    // A point is seen for five minutes, and not before it is there.
    let text =
        data(&store, "query_range", "query=cpu.user&start=1970-01-01T00:09:00Z&end=900&step=60");
    assert!(
        text.contains(r#""values":[[600,"2.5"],"#) && text.contains(r#"[840,"2.5"]]"#),
        "{text}"
    );
}

/// They were none, and the answer a good one.
#[test]
fn values_of_a_label_with_any_name_are_found() {
    let store = store();
    let series = block_on(store.series(r"m la\ bel=x größe=m a_b.c=y")).unwrap();
    series.append(599_000_000_000, 1).unwrap();
    for (name, value) in [
        ("la%20bel", "x"),
        ("U__la_20_bel", "x"),
        ("gr%C3%B6%C3%9Fe", "m"),
        ("U__gr_f6__df_e", "m"),
        ("U__a__b_2e_c", "y"),
    ] {
        let path = format!("label/{name}/values");
        assert_eq!(data(&store, &path, ""), format!("[\"{value}\"]"), "{name}");
    }
    for condition in ["la bel=\"x\"", "größe=\"m\"", "a_b.c=\"y\"", "la bel=~\"x|y\""] {
        let (label, rest) = condition.split_once('=').unwrap();
        let found = vector(&store, &format!("count({{\"{label}\"={rest}}})"));
        assert_eq!(found, "{},1", "{condition}");
    }
}

#[test]
fn what_a_query_took_is_told_if_asked_for() {
    let store = store();
    let of = |form: &str| -> serde_json::Value {
        serde_json::from_str(&data(&store, "query", form)).unwrap()
    };
    assert!(of("query=cpu.user").get("stats").is_none());
    assert!(of("query=cpu.user&stats=").get("stats").is_none());
    let plain = of("query=cpu.user&stats=all");
    assert_eq!(plain["stats"]["samples"]["totalQueryableSamples"], 1, "{plain}");
    let counted = of("query=count_over_time(cpu.user[10m])&stats=1");
    let points = &counted["result"][0]["value"][1];
    let looked_at = &counted["stats"]["samples"]["totalQueryableSamples"];
    assert_eq!(points.as_str().unwrap(), looked_at.to_string(), "{counted}");
    assert!(counted["stats"]["timings"]["execTotalTime"].as_f64().is_some_and(|time| time >= 0.0));
}

/// As Prometheus counts them: what lies behind the first one. One less was the most.
#[test]
fn a_range_has_eleven_thousand_steps_behind_its_first() {
    let store = store();
    let ask =
        |end, step| ask(&store, "query_range", &format!("query=1&start=0&end={end}&step={step}"));
    let (status, text) = ask("11000", "1");
    assert_eq!((status, text.matches(",\"1\"]").count()), (200, 11_001));
    assert_eq!(ask("11000.999", "1").0, 200);
    for (end, step) in [("11001", "1"), ("11000.001", "999ms"), ("9e8", "1ms")] {
        let (status, text) = ask(end, step);
        let words = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing \
                     the query resolution (?step=XX)";
        assert!(status == 400 && text.contains(words), "{text}");
    }
    let (status, text) = ask("-1", "1");
    assert!(status == 400 && text.contains("end timestamp must not be before"), "{text}");
}

#[test]
fn a_time_may_be_said_from_now_on_back() {
    let store = store();
    let at = |time: &str| data(&store, "query", &format!("query=time()&time={time}"));
    assert!(at("now-1m").contains("\"540\""), "{}", at("now-1m"));
    assert_eq!(at("now"), at("600"));
    assert_eq!(at("1970-01-01T00:09:00Z"), at("now-60s"));
    let (status, text) = ask(&store, "query", "query=1&time=yesterday");
    assert!(status == 400 && text.contains("now-1h"), "{text}");
}

#[test]
fn labels_and_series_are_listed() {
    let store = store();
    assert_eq!(data(&store, "labels", ""), r#"["__name__","code","host"]"#);
    assert_eq!(data(&store, "labels", "match[]=cpu.user"), r#"["__name__","host"]"#);
    assert_eq!(data(&store, "label/__name__/values", ""), r#"["cpu.user","http_requests_total"]"#);
    assert_eq!(data(&store, "label/host/values", ""), r#"["a","b"]"#);
    assert_eq!(data(&store, "label/host/values", "match%5B%5D=cpu.user"), r#"["a"]"#);
    assert_eq!(
        data(&store, "series", r#"match[]={__name__=~"cpu.%2B"}"#),
        r#"[{"__name__":"cpu.user","host":"a"}]"#
    );
    assert!(data(&store, "status/buildinfo", "").contains("version"));
}

#[test]
fn what_is_wrong_is_named() {
    let store = store();
    let deep = format!("query={}1", "(".repeat(5000));
    let long = format!("query=1{}", "%2B1".repeat(3000));
    for (path, parameters, named) in [
        ("query", "", "`query`"),
        ("query", "query=", "1:1: parse error: no expression found in input"),
        ("query", "query=top(1,x)", "1:1: parse error: unknown function with name \\\"top\\\""),
        (
            "query",
            "query=rate(x)",
            "1:6: parse error: expected type range vector in call to function",
        ),
        ("query", "query=rate(x[5q])", "bad number or duration syntax"),
        ("query", "query=x{a=~%22(%22}", "regular expression"),
        ("query", "query=x{a=%22", "unterminated quoted string"),
        ("query", "query=x%20y", "1:3: parse error: unexpected identifier"),
        (
            "query",
            "query=sum(1)",
            "expected type instant vector in aggregation expression, got scalar",
        ),
        ("query", "query=x&time=yesterday", "`time`"),
        ("query", "query=x&limit=some", "limit"),
        ("query", "query=x&timeout=-1", "`timeout`"),
        ("query", "query=x&timeout=2026-01-01T00:00:00Z", "`timeout`"),
        ("query", "query=x&lookback_delta=0", "`lookback_delta`"),
        ("query", &deep, "nested more than"),
        ("query", &long, "levels"),
        ("query_range", "query=x&start=0&end=10", "`step`"),
        ("query_range", "query=x&start=0&end=10&step=0", "`step`"),
        ("query_range", "query=x&start=0&end=99999999&step=1", "resolution"),
        ("series", "", "match[]"),
        ("series", "match[]=x{", "label"),
    ] {
        let (status, text) = ask(&store, path, parameters);
        assert!(status == 400 && text.contains(named), "{path} {parameters}: {text}");
    }
}

/// Dashboards and alert rules were refused that need any of these.
#[test]
fn all_of_promql_is_answered() {
    let store = store();
    block_on(async {
        for (bound, count) in [("0.1", 10), ("0.5", 60), ("+Inf", 100)] {
            let bucket = store.series(&format!("latency_bucket le={bound}")).await.unwrap();
            bucket.append(590_000_000_000, count).unwrap();
        }
    });
    for (query, expected) in [
        ("histogram_quantile(0.5, latency_bucket)", "{},0.42000000000000004"),
        ("topk(1, http_requests_total)", "{__name__:http_requests_total,code:200,host:a},400"),
        ("http_requests_total > 300", "{__name__:http_requests_total,code:200,host:a},400"),
        (
            "http_requests_total offset 5m",
            "{__name__:http_requests_total,code:200,host:a},200,{__name__:http_requests_total,code:200,host:b},0",
        ),
        (
            "http_requests_total and on (host) cpu.user",
            "{__name__:http_requests_total,code:200,host:a},400",
        ),
        ("cpu.user * on (host) group_right http_requests_total", "{code:200,host:a},1000"),
        ("max_over_time(sum(http_requests_total)[5m:1m])", "{},600"),
        ("{\"cpu.user\"} @ end()", "{__name__:cpu.user,host:a},2.5"),
        ("absent(nothing{host='x'})", "{host:x},1"),
    ] {
        assert_eq!(vector(&store, query), expected, "{query}");
    }
}

#[test]
fn an_expression_that_takes_too_long_is_ended() {
    let store = store();
    // 600,000 steps of each of two series: more than a millisecond on any machine.
    let query = "query=sum(sum_over_time(http_requests_total[600s:1ms]))";
    let (status, text) = ask(&store, "query", &format!("{query}&timeout=0.001"));
    assert!(status == 503 && text.contains(r#""errorType":"timeout""#), "{status} {text}");
    assert_eq!(ask(&store, "query", query).0, 200, "time is all that it lacked");
}

/// `time=1e300` made a server that was built with checks of overflow panic.
#[test]
fn a_time_that_no_clock_reaches_is_refused() {
    let store = store();
    for time in ["1e300", "-1e300", "9.3e9", "NaN", "Inf"] {
        let (status, text) = ask(&store, "query", &format!("query=1&time={time}"));
        assert!(status == 400 && text.contains("`time`"), "{time}: {text}");
    }
}

/// At each of a million series all others had a turn, so a sum took as often as long as theirs.
#[test]
fn a_query_has_turns_that_are_longer_than_a_series() {
    const SERIES: usize = 3_000;
    let turns = std::cell::Cell::new(0);
    let answered = block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let store = SeriesStore::open(&db).await.unwrap();
        for host in 0..SERIES {
            store.series(&format!("m host={host}")).await.unwrap().append(1, 1).unwrap();
        }
        let others = async {
            loop {
                turns.set(turns.get() + 1);
                pause().await;
            }
        };
        let asked = [&b"query=sum(m)"[..], b""];
        race(others, prometheus(&store, "/api/v1/query", &asked, 1_000_000_000)).await
    });
    let First::Right((status, text)) = answered;
    assert!(status == 200 && text.contains(&format!("\"{SERIES}\"")), "{text}");
    assert!(turns.get() < SERIES / 2, "others had {} turns", turns.get());
}

/// What a request says of the answer beside the expression was left unread.
#[test]
fn a_request_says_how_much_and_how_far_back() {
    let store = store();
    let cut = ask(&store, "query", "query=http_requests_total&limit=1").1;
    assert!(cut.contains(r#""warnings":["results truncated due to limit"]"#), "{cut}");
    assert!(cut.contains(r#""host":"a""#) && !cut.contains(r#""host":"b""#), "{cut}");
    assert!(ask(&store, "label/host/values", "limit=1").1.starts_with(r#"{"data":["a"],"#));
    assert!(ask(&store, "series", "match[]=http_requests_total&limit=1").1.contains("truncated"));
    assert_eq!(data(&store, "label/host/values", "limit=2"), r#"["a","b"]"#);
    assert_eq!(data(&store, "label/host/values", "limit=0"), r#"["a","b"]"#);
    // The first two are written otherwise, and mean the same: one value, and another behind it.
    block_on(async {
        for name in [r"way to=a\b", r"way to=a\\b", "way to=c"] {
            store.series(name).await.unwrap().append(1, 1).unwrap();
        }
    });
    assert_eq!(data(&store, "label/to/values", "limit=2"), r#"["a\\b","c"]"#);
    let cut = ask(&store, "label/to/values", "limit=1").1;
    assert!(cut.starts_with(r#"{"data":["a\\b"],"#) && cut.contains("truncated"), "{cut}");
    assert_eq!(
        data(&store, "format_query", "query=SUM(rate(x[60s]))/2"),
        r#""sum(rate(x[1m])) / 2""#
    );
    assert_eq!(ask(&store, "format_query", "query=x[").0, 400);
    // The point is ten seconds old.
    assert_eq!(
        data(&store, "query", "query=cpu.user&lookback_delta=9s"),
        r#"{"result":[],"resultType":"vector"}"#
    );
    assert!(data(&store, "query", "query=cpu.user&lookback_delta=11").contains("2.5"));
    // What may be meant otherwise is told, and what can't be is an error of its own kind.
    let told = ask(&store, "query", "query=rate(http_requests_total[1m])%2Brate(cpu.user[1m])").1;
    assert!(!told.contains("infos"), "nothing came of it: {told}");
    let told = ask(&store, "query", "query=increase(cpu.user[1m:5s])").1;
    assert!(told.contains(r#""infos":["PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"cpu.user\" (1:10)"]"#), "{told}");
    let (status, text) =
        ask(&store, "query", "query=cpu.user%20*%20on%28%29%20http_requests_total");
    assert!(status == 422 && text.contains("many-to-many matching not allowed"), "{status} {text}");
    assert!(text.contains(r#""errorType":"execution""#), "{text}");
}

/// Labels with blanks and backslashes were shown as names have them, and were not found by what
/// they are.
#[test]
fn labels_with_blanks_and_backslashes_are_what_they_were() {
    let store = block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let store = SeriesStore::open(&db).await.unwrap();
        for (name, value) in [
            ("m job=node\\ x path=C:\\\\a\\ b", 1),
            ("m job=node\\ y path=C:\\a", 2),
            ("my\\ metric job=node\\ x", 3),
        ] {
            store.series(name).await.unwrap().append(599_000_000_000, value).unwrap();
        }
        store
    });
    for (query, expected) in [
        (r#"m{job="node x"}"#, r"{__name__:m,job:node x,path:C:\\a b},1"),
        (r#"m{path="C:\\a b"}"#, r"{__name__:m,job:node x,path:C:\\a b},1"),
        (r#"m{path="C:\\a"}"#, r"{__name__:m,job:node y,path:C:\\a},2"),
        (r#"m{job=~"node (x|z)"}"#, r"{__name__:m,job:node x,path:C:\\a b},1"),
        (r#"m{job=~"node.*", job!="node x"}"#, r"{__name__:m,job:node y,path:C:\\a},2"),
        (r#"{__name__="my metric"}"#, "{__name__:my metric,job:node x},3"),
        (r#"{__name__=~"my .*"}"#, "{__name__:my metric,job:node x},3"),
        (r#"m{job="node"}"#, ""),
    ] {
        assert_eq!(vector(&store, query), expected, "{query}");
    }
    assert_eq!(data(&store, "label/job/values", ""), r#"["node x","node y"]"#);
    assert_eq!(data(&store, "label/path/values", ""), r#"["C:\\a","C:\\a b"]"#);
    assert_eq!(data(&store, "label/__name__/values", ""), r#"["m","my metric"]"#);
    // Akumuli's language has names as they are written, and blanks that nobody marked are meant so.
    let rows = |json: &str| {
        let query = plinth_series::Query::parse(json.as_bytes()).unwrap();
        let text = block_on(async { store.query(&query).await?.collect().await });
        text.map_or_else(|error| error.to_string(), |text| String::from_utf8(text).unwrap())
    };
    let range = r#""range": {"from": 0, "to": 600000000000}, "output": {"format": "csv", "timestamp": "raw"}"#;
    for tags in [
        r#"{"job": "node x"}"#,
        r#"{"job": ["z", "node\\ x"]}"#,
        r#"[{"job": "node x", "path": "C:\\\\a b"}, {"job": "z", "path": "z"}]"#,
    ] {
        let found = rows(&format!(r#"{{"select": "m", "where": {tags}, {range}}}"#));
        assert_eq!(found, "m job=node\\ x path=C:\\\\a\\ b,ts=599000000000,1\n", "{tags}");
    }
    assert_eq!(rows(&format!(r#"{{"select": "my metric", {range}}}"#)).lines().count(), 1);
}

/// What Prometheus writes when a target is gone made every sum over it a NaN for five minutes.
#[test]
fn a_series_that_has_ended_has_no_value() {
    const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);
    let store = store();
    block_on(async {
        for (host, values) in
            [("c", [1.0, 3.0, STALE]), ("d", [10.0, STALE, 30.0]), ("e", [100.0, 200.0, f64::NAN])]
        {
            let gauge = store.series(&format!("temperature host={host}")).await.unwrap();
            for (number, value) in (0_i64..).zip(values) {
                gauge.append((560 + number * 10) * 1_000_000_000, value).unwrap();
            }
        }
        // What was written is what is read, whatever it means.
        store.sync().await.unwrap();
    });
    assert_eq!(vector(&store, "temperature{host='c'}"), "");
    assert_eq!(
        vector(&store, "temperature"),
        "{__name__:temperature,host:d},30,{__name__:temperature,host:e},NaN"
    );
    assert_eq!(vector(&store, "sum(temperature{host!='e'})"), "{},30");
    assert_eq!(
        vector(&store, "count_over_time(temperature{host=~'c|d'}[1m])"),
        "{host:c},2,{host:d},2"
    );
    assert_eq!(vector(&store, "max_over_time(temperature{host='c'}[1m])"), "{host:c},3");
    let text = data(
        &store,
        "query_range",
        "query=temperature%7Bhost%3D%22d%22%7D&start=560&end=580&step=10",
    );
    assert!(text.contains(r#""values":[[560,"10"],[580,"30"]]"#), "{text}");
}

/// Series behind the first twenty thousand of a metric were left out, and nobody was told.
#[test]
fn a_condition_looks_at_all_series_of_a_metric() {
    const SERIES: usize = 20_500;
    let store = block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let store = SeriesStore::open(&db).await.unwrap();
        let names: Vec<String> = (0..SERIES).map(|host| format!("m host=h{host}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let series = store.all_series(&names).await.unwrap();
        for series in &series {
            series.append(599_000_000_000, 7).unwrap();
        }
        store
    });
    assert_eq!(vector(&store, "m{host=~'.*20499'}"), "{__name__:m,host:h20499},7");
    // At one time each has a value, and no more than that is held of it.
    assert_eq!(vector(&store, "count(m)"), "{},20500");
    let (status, text) = ask(&store, "query", "query=m&time=600");
    assert!(status == 400 && text.contains("an answer of 20500 series"), "{text}");
    let told = block_on(store.promql("sum(m)", 600_000_000_000, Duration::from_secs(120)));
    assert!(matches!(&told, Ok(Answered::Vector(found)) if found.len() == 1), "{told:?}");
    let (status, text) = ask(&store, "query_range", "query=m&start=0&end=600&step=60");
    assert!(status == 400 && text.contains("more than 20000 series"), "{text}");
}

#[test]
fn series_are_deleted_by_what_they_are_named_by() {
    let store = store();
    let delete = |parameters: &str| block_on(delete_series(&store, &[parameters.as_bytes(), b""]));
    let all = || vector(&store, "count_over_time({__name__=~'.+'}[1h])");
    let before = "{host:a},1,{code:200,host:a},41,{code:200,host:b},41";
    assert_eq!(all(), before);
    for (wrong, named) in [
        ("", "match[]"),
        ("match[]=m{", "label"),
        ("match[]=cpu.user&start=yesterday", "`start`"),
        ("match[]=cpu.user&match[]=m{", "label"),
    ] {
        let (status, text) = delete(wrong);
        assert!(status == 400 && text.contains(named), "{wrong}: {text}");
    }
    assert_eq!(delete("match[]=nothing"), (204, String::new()));
    assert_eq!(all(), before);
    // Both ends are part of it.
    assert_eq!(delete("match[]=http_requests_total{host='b'}&start=30&end=60").0, 204);
    assert_eq!(delete("match[]=http_requests_total{host='b'}&start=600").0, 204);
    assert_eq!(all(), "{host:a},1,{code:200,host:a},41,{code:200,host:b},37");
    assert_eq!(delete("match[]=http_requests_total{host='b'}&match[]=cpu.user").0, 204);
    assert_eq!(all(), "{code:200,host:a},41");
    assert_eq!(data(&store, "label/__name__/values", ""), r#"["http_requests_total"]"#);
}

/// Whoever evaluates rules has to know which of its series are there, to end them.
#[test]
fn points_whose_series_are_refused_are_told_and_keep_none_of_the_others_back() {
    let store = store();
    let point = |host: &str| {
        let pairs = [("__name__", "r"), ("host", host)];
        (pairs.into_iter().collect::<plinth_promql::Labels>(), (600_000_000_000, 7.0))
    };
    let long = "x".repeat(100_000);
    let points = [point("a"), point(&long), point("b")];
    let refused = block_on(store.append_labelled(&points)).unwrap();
    assert!(matches!(refused[..], [(1, plinth_series::Error::Name { .. })]), "{refused:?}");
    assert_eq!(vector(&store, "count(r)"), "{},2");
}

/// `start` and `end` of lists were not looked at: what made no sense was taken, and series were
/// listed that had no point for years.
#[test]
fn lists_are_of_the_time_that_is_asked_about() {
    let store = store();
    let all = r#"["cpu.user","http_requests_total"]"#;
    for (times, expected) in [
        ("", all),
        ("start=0&end=600", all),
        ("start=589", all),
        ("end=590", all),
        ("end=589.999", r#"["http_requests_total"]"#),
        ("start=595&end=599", "[]"),
        ("start=600&end=now", r#"["http_requests_total"]"#),
        ("start=now-10s&end=now-5s", r#"["cpu.user"]"#),
        ("start=601", "[]"),
        ("end=-1", "[]"),
        ("start=-292273086-05-16T16:47:06Z&end=292277025-08-18T07:12:54.999999999Z", all),
        // What clients send for no bounds: the least and the greatest time that they have.
        ("start=-62135596800&end=253402300799", all),
        ("start=0001-01-01T00:00:00Z&end=9999-12-31T23:59:59.999Z", all),
        ("start=253402300799&end=9.3e18", "[]"),
        ("start=-9.3e18&end=0001-01-01T00:00:00Z", "[]"),
    ] {
        let names =
            |matched: &str| data(&store, "label/__name__/values", &format!("{matched}{times}"));
        assert_eq!(names("match[]={host='a'}&"), expected, "{times}");
        // Also where no series are named.
        assert_eq!(names(""), expected, "{times}");
    }
    let at = "match[]=cpu.user&start=590&end=590";
    assert_eq!(data(&store, "series", at), r#"[{"__name__":"cpu.user","host":"a"}]"#);
    assert_eq!(data(&store, "series", "match[]=cpu.user&start=600"), "[]");
    assert_eq!(data(&store, "labels", "match[]=cpu.user&start=600"), "[]");
    assert_eq!(data(&store, "labels", "start=581&end=599"), r#"["__name__","code","host"]"#);
    assert_eq!(data(&store, "labels", "start=586&end=599"), r#"["__name__","host"]"#);
    assert_eq!(data(&store, "label/host/values", "start=586&end=599"), r#"["a"]"#);
    for path in ["labels", "series", "label/host/values"] {
        for matched in ["", "match[]=cpu.user&"] {
            for (times, told) in [
                ("start=yesterday", "`start`"),
                ("end=NaN", "`end`"),
                ("end=inf", "`end`"),
                ("start=9999-12-31T23:59:59Z&end=1", "end timestamp must not be before"),
                ("start=2&end=1", "end timestamp must not be before start timestamp"),
            ] {
                let (status, text) = ask(&store, path, &format!("{matched}{times}"));
                let is_told = text.contains(told) || (path == "series" && matched.is_empty());
                assert!(status == 400 && is_told, "{path} {matched}{times}: {text}");
            }
        }
    }
}

/// Native histograms are points, events are named whenever they were, and where there are many
/// series they are listed whatever the time.
#[test]
fn histograms_count_and_many_series_are_listed_whatever_the_time() {
    let store = store();
    block_on(async {
        let parts = HistogramParts { count: 1.0, zero_count: 1.0, ..HistogramParts::default() };
        let one = Histogram::new(parts).unwrap();
        store.append_histograms(&[("took host=a", 700_000_000_000, &one)]).await.unwrap();
        store.sync().await.unwrap();
    });
    let names = |times: &str| data(&store, "series", &format!("match[]=took&{times}"));
    assert_eq!(names("start=699&end=701"), r#"[{"__name__":"took","host":"a"}]"#);
    assert_eq!(names("start=701"), "[]");
    assert_eq!(data(&store, "label/__name__/values", "start=690"), r#"["took"]"#);
    block_on(async {
        for number in 0..1000 {
            let series = store.series(&format!("many host=a of={number}")).await.unwrap();
            series.append(1, 1.0).unwrap();
        }
    });
    let count = |matched: &str| {
        data(&store, "series", &format!("match[]={matched}&start=800")).matches("many").count()
    };
    assert_eq!(count("many"), 0);
    assert_eq!(count("{host='a'}"), 1000);
    let all = r#"["cpu.user","http_requests_total","many","took"]"#;
    assert_eq!(data(&store, "label/__name__/values", "start=800"), all);
}

/// Pieces of their texts were taken for numbers by selectors that name no metric.
#[test]
fn events_are_no_numbers() {
    use plinth_series::ingest::{Memory, Protocol, Session};
    let store = store();
    let mut session = Session::new(Protocol::Resp, 1, &Memory::default());
    let lines = b"+!deploy host=a\r\n+19700101T000950\r\n+version 7 is out\r\n";
    assert_eq!(session.feed(lines), lines.len());
    block_on(session.end(b"", &store)).unwrap();
    assert_eq!(session.saved(), 1);
    for (query, expected) in [
        ("count({host=\"a\"})", "{},2"),
        ("max({__name__=~\".+\"})", "{},400"),
        ("{\"!deploy\"}", ""),
        ("count_over_time({\"!deploy\"}[10m])", ""),
    ] {
        assert_eq!(vector(&store, query), expected, "{query}");
    }
    // Parameters that nobody filled in are as such that aren't there.
    assert_eq!(ask(&store, "query", "query=1&time=&timeout=").0, 200);
}

/// Which of the numbers that are none it is, is in their bits: one of them ends a series.
#[test]
fn numbers_that_are_none_keep_their_bits() {
    const MARK: u64 = 0x7ff0_0000_0000_0002;
    let all = [0x7ff8_0000_0000_0001, MARK, 0x7ff0_0000_0000_0001, 0xfff8_dead_beef_0001];
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { leaf_points: 2, ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let series = block_on(store.series("m")).unwrap();
    for (time, bits) in (1..).zip(all) {
        series.append(time * 100_000_000_000, f64::from_bits(bits)).unwrap();
    }
    for _ in 0..2 {
        let read = async { series.scan(.., Direction::Forward).await?.collect().await };
        let found = block_on(read).unwrap();
        let bits = found.iter().map(|point| point.value.as_f64().to_bits());
        assert!(bits.eq(all), "{found:?}");
        for (time, bits) in (1..).zip(all) {
            let told = data(&store, "query", &format!("query=m&time={}", time * 100));
            assert_eq!(told.contains("NaN"), bits != MARK, "{told}");
        }
        // In leaves, too.
        block_on(store.sync()).unwrap();
    }
}
