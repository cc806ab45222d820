//! Prometheus' query interface: what Grafana asks, and what is wrong named.

use plinth::Database;
use plinth_env::block_on;
use plinth_series::{SeriesStore, is_prometheus, prometheus};

/// A counter that rises by 10 every 15 seconds from 0 on, on two hosts, and begins anew on one of them; and a gauge.
fn store() -> SeriesStore {
    block_on(async {
        let db = Database::in_memory().unwrap();
        let store = SeriesStore::open(&db).await.unwrap();
        for (host, restart) in [("a", i64::MAX), ("b", 20)] {
            let counter = store.series(&format!("http_requests_total host={host} code=200")).await.unwrap();
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
    block_on(prometheus(store, &format!("/api/v1/{path}"), &[parameters.as_bytes(), b""], 600_000_000_000))
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
    let text = text.strip_prefix(r#"{"result":["#).unwrap().strip_suffix(r#"],"resultType":"vector"}"#);
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
        ("http_requests_total / http_requests_total - 1", "{code:200,host:a},0,{code:200,host:b},0"),
        ("nothing", ""),
    ] {
        assert_eq!(vector(&store, query), expected, "{query}");
    }
    assert_eq!(data(&store, "query", "query=1%2B1"), r#"{"result":[600,"2"],"resultType":"scalar"}"#);
    assert_eq!(vector(&store, "nothing{a='b'}"), "");
}

#[test]
fn ranges_have_a_value_a_step() {
    let store = store();
    let text =
        data(&store, "query_range", "query=http_requests_total{host%3D%22a%22}&start=0&end=30&step=15s");
    assert!(text.ends_with(r#""values":[[0,"0"],[15,"10"],[30,"20"]]}],"resultType":"matrix"}"#), "{text}");
    // A point is seen for five minutes, and not before it is there.
    let text = data(&store, "query_range", "query=cpu.user&start=1970-01-01T00:09:00Z&end=900&step=60");
    assert!(text.contains(r#""values":[[600,"2.5"],"#) && text.contains(r#"[840,"2.5"]]"#), "{text}");
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
        ("query", "query=", "byte 0"),
        ("query", "query=topk(1,x)", "`topk`"),
        ("query", "query=rate(x)", "`[`"),
        ("query", "query=rate(x[5])", "duration"),
        ("query", "query=x{a=~%22(%22}", "regular expression"),
        ("query", "query=x{a=%22", "no end"),
        ("query", "query=x%20y", "operator"),
        ("query", "query=sum(1)", "series expected"),
        ("query", "query=x&time=yesterday", "`time`"),
        ("query", &deep, "deeper"),
        ("query", &long, "parts"),
        ("query_range", "query=x&start=0&end=10", "`step`"),
        ("query_range", "query=x&start=0&end=10&step=0", "`step`"),
        ("query_range", "query=x&start=0&end=99999999&step=1", "steps"),
        ("series", "", "match[]"),
        ("series", "match[]=x{", "label"),
    ] {
        let (status, text) = ask(&store, path, parameters);
        assert!(status == 400 && text.contains(named), "{path} {parameters}: {text}");
    }
}
