//! A store that is seen within some metrics: for whoever uses it there are no others. Whoever has
//! a right to some metrics and no more is shown such a store, so what it tells of others everybody
//! is told.
//!
//! What it says is compared with what a store says that has nothing else: each answer has to be the
//! same, byte for byte, however many others lie before and between.

use super::damage;
use plinth::{Database, Local};
use plinth_env::block_on;
use plinth_series::ingest::{Memory, Protocol, Session};
use plinth_series::{
    Error, Export, Listing, Query, QueryError, RemoteRead, SeriesLimits, SeriesStore, Settings,
    delete_series, opentsdb, prometheus,
};
use plinth_types::{MetricSet, Metrics};
use std::sync::Arc;

fn set(texts: &[&str]) -> Arc<MetricSet> {
    Arc::new(MetricSet::of(texts.iter().map(|text| Metrics::parse(text).unwrap())))
}

fn database() -> Database {
    Local::in_memory().unwrap().into_database()
}

fn open(settings: Settings) -> SeriesStore {
    let settings = Settings { commit_every: None, ..settings };
    block_on(SeriesStore::open_with(&database(), settings)).unwrap()
}

/// Has a point of each series, in this order.
fn fill(store: &SeriesStore, names: &[String]) {
    block_on(async {
        for names in names.chunks(1000) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for series in store.all_series(&names).await.unwrap() {
                let number = series.name().as_str().bytes().map(i64::from).sum::<i64>();
                series.append(1_000_000_000 + number, number as f64).unwrap();
            }
        }
        store.sync().await.unwrap();
    });
}

fn shown() -> Vec<String> {
    let hosts = |metric: &'static str| (0..3).map(move |host| format!("{metric} host=h{host}"));
    let all = ["cpu.busy", "cpu.idle", "disk\\ used", "!cpu.log"].map(hosts);
    all.into_iter().flatten().collect()
}

/// Names that come before, between and behind those, in their order and in that of the metrics.
fn hidden(count: usize, place: usize) -> impl Iterator<Item = String> {
    (0..count).flat_map(move |number| {
        ["a", "cpu", "cpux", "disk", "zone", "!log"]
            .map(|metric| format!("{metric}.{place}_{number} zone=z{number} host=h0"))
    })
}

const SHOWN: [&str; 4] = ["cpu.*", "cpu", "disk used", "!cpu.log"];

/// A store that has what is shown alone, and one that has much more, as far as it is seen.
fn both() -> [SeriesStore; 2] {
    let stores = [(); 2].map(|()| open(Settings::default()));
    fill(&stores[0], &shown());
    // One has the first page of them to itself, and the others come pages later.
    let mut names = vec![shown().remove(0)];
    names.extend(hidden(500, 0).filter(|name| !name.starts_with("cpu.")));
    for (place, name) in shown().into_iter().enumerate().skip(1) {
        names.push(name);
        names.extend(hidden(2, place + 1).filter(|name| !name.starts_with("cpu.")));
    }
    names.extend(["cpu\\ x host=h0".to_owned(), "disk host=h0".to_owned()]);
    fill(&stores[1], &names);
    [stores[0].within(set(&SHOWN)), stores[1].within(set(&SHOWN))]
}

fn same<T: PartialEq + std::fmt::Debug>(
    stores: &[SeriesStore; 2],
    what: impl AsyncFn(&SeriesStore) -> T,
) -> T {
    let [alone, among] = stores.each_ref().map(|store| block_on(what(store)));
    assert_eq!(alone, among);
    alone
}

async fn told(store: &SeriesStore, query: &str) -> Result<String, String> {
    let answer = async {
        let query = Query::parse(query.as_bytes())?;
        store.query(&query).await?.collect().await
    };
    let answer: Result<_, QueryError> = answer.await;
    answer.map(|text| String::from_utf8(text).unwrap()).map_err(|why| why.to_string())
}

#[test]
fn what_is_listed_and_found_is_what_there_is_without_others() {
    let stores = both();
    let metrics = same(&stores, async |store| {
        let mut all = Vec::new();
        for (prefix, after, limit) in [
            ("", None, 1),
            ("", None, 2),
            ("", None, 1000),
            ("cpu", None, 1),
            ("", Some("cpu.busy"), 10),
            ("a", None, 10),
            ("", None, 0),
        ] {
            all.push(store.list(&Listing::Metrics, prefix, after, limit).await.unwrap());
        }
        all
    });
    assert_eq!(metrics[2], ["!cpu.log", "cpu.busy", "cpu.idle", "disk\\ used"]);
    for metric in ["cpu.busy", "a.0_1", "cpu", "disk\\ used", "disk"] {
        let of = || metric.to_owned();
        let (tags, values) = same(&stores, async |store| {
            let tag = |tag: &str| Listing::Values { metric: of(), tag: tag.to_owned() };
            let tags = store.list(&Listing::Tags { metric: of() }, "", None, 9).await.unwrap();
            let mut values = Vec::new();
            for tag in [tag("host"), tag("zone")] {
                values.push(store.list(&tag, "", None, 9).await.unwrap());
            }
            (tags, values)
        });
        assert_eq!(tags.is_empty(), !["cpu.busy", "disk\\ used"].contains(&metric), "{metric}");
        assert_eq!(values[0].len(), 3 * tags.len(), "{metric}");
        same(&stores, async |store| store.find(metric, &[]).await.unwrap());
        for (tag, value) in [("host", "h0"), ("zone", "z1")] {
            same(&stores, async |store| store.find(metric, &[(tag, &[value])]).await.unwrap());
        }
    }
    let pages = same(&stores, async |store| {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(begin) = from {
            let (found, next) = store.browse(None, &[], begin).await.unwrap();
            all.extend(found.iter().map(|found| found.name().to_string()));
            from = next;
        }
        all
    });
    assert_eq!(pages, shown());
    for name in ["a.0_1 zone=z1 host=h0", "cpu.busy host=h0", "disk host=h0", "disk\\ used host=h1"]
    {
        let found = same(&stores, async |store| store.existing(name).await.unwrap().map(|_| name));
        assert_eq!(found.is_some(), shown().iter().any(|one| one == name), "{name}");
    }
}

#[test]
fn queries_answer_as_if_there_were_no_others() {
    let stores = both();
    let all = r#""range":{"from":0,"to":9000000000}"#;
    let mut answered = 0;
    for metric in ["cpu.busy", "a.0_1", "cpu\\ x", "disk\\\\ used", "none"] {
        for query in [
            format!(r#"{{"select":"meta:names:{metric}"}}"#),
            format!(r#"{{"select":"{metric}",{all}}}"#),
            format!(r#"{{"select":"{metric}",{all},"where":[{{"host":"h0","zone":"z1"}}]}}"#),
            format!(r#"{{"aggregate":{{"{metric}":"count"}},{all}}}"#),
            format!(r#"{{"join":["cpu.idle","{metric}"],{all}}}"#),
            format!(
                r#"{{"group-aggregate":{{"metric":"{metric}","step":"1s","func":["max"]}},{all}}}"#
            ),
        ] {
            answered += usize::from(same(&stores, async |store| told(store, &query).await).is_ok());
        }
    }
    assert!(answered > 8, "{answered}");
    let names = same(&stores, async |store| told(store, r#"{"select":"meta:names"}"#).await);
    assert_eq!(names.unwrap().lines().count(), shown().len());
    for path in [
        "labels",
        "label/zone/values",
        "label/host/values",
        "label/__name__/values",
        "label/__name__/values?limit=2",
        "label/__name__/values?start=0",
        "label/zone/values?start=0&end=1",
        "labels?end=0",
        "series?match[]={__name__=~\".%2b\"}&start=1",
        "status/tsdb",
        "series?match[]={__name__=~\".%2b\"}",
        "series?match[]={zone=~\".%2b\"}",
        "query?time=1&query=count({__name__!=\"none\"})",
        "query?time=1&query={__name__=~\"cpu.*\"}",
        "query?time=1&query=absent({__name__=\"a.0_1\"})",
        "query?time=1&query=topk(1,{host=\"h0\"})",
        "query?time=1&query=max_over_time({__name__=\"a.0_1\"}[5s:1s])",
        "query?time=1&query=label_replace({__name__=\"cpu.busy\"},\"__name__\",\"a.0_1\",\"\",\"\")",
        "query_exemplars?query={__name__=\"a.0_1\"}",
        "format_query?query=zone",
    ] {
        let (path, url) = path.split_once('?').unwrap_or((path, ""));
        let path = &format!("/api/v1/{path}");
        same(&stores, async |store| prometheus(store, path, &[url.as_bytes()], 1).await);
    }
    for url in ["type=metrics&max=1", "type=metrics", "type=tagk", "type=tagv", "type=tagv&q=z"] {
        same(&stores, async |store| {
            opentsdb(store, "/api/suggest", (url.as_bytes(), b""), 1).await
        });
    }
    same(&stores, async |store| {
        let ask = b"start=1&end=9&m=sum:1s-sum:a.0_1";
        opentsdb(store, "/api/query", (ask, b""), 1).await
    });
    for selector in ["{__name__=~\".%2B\"}", "{__name__=\"a.0_1\"}"] {
        let lines = same(&stores, async |store| {
            let mut export = Export::begin(store, &[format!("match[]={selector}").as_bytes()])
                .await
                .unwrap_or_else(|why| panic!("{why:?}"));
            let mut all = Vec::new();
            while let Some(some) = export.next().await.unwrap() {
                all.extend(some);
            }
            String::from_utf8(all).unwrap()
        });
        assert_eq!(lines.lines().count() > 0, selector.contains("=~"), "{lines}");
    }
}

/// A condition of a remote read: a label, and what it is, or what it is like.
fn condition(is_like: bool, label: &str, value: &str) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let kind = vec![1 << 3, if is_like { 2 } else { 0 }];
    field(3, &[kind, field(2, label.as_bytes()), field(3, value.as_bytes())].concat())
}

#[test]
fn remote_reads_answer_as_if_there_were_no_others() {
    let stores = both();
    for is_streamed in [false, true] {
        for (is_like, metric) in [(false, "a.0_1"), (false, "cpu.busy"), (true, ".*")] {
            let query = [vec![2 << 3, 0xd0, 0x0f], condition(is_like, "__name__", metric)].concat();
            let kinds = if is_streamed { vec![2 << 3, 1] } else { Vec::new() };
            let query = [vec![1 << 3 | 2, query.len() as u8], query, kinds].concat();
            // Snappy's, of literals alone.
            let body = [vec![query.len() as u8, (query.len() as u8 - 1) << 2], query].concat();
            let told =
                same(&stores, async |store| match RemoteRead::begin(store, &body).await.unwrap() {
                    RemoteRead::Whole(message) => message,
                    RemoteRead::Stream(mut stream) => {
                        let mut all = Vec::new();
                        while let Some(some) = stream.next().await.unwrap() {
                            all.extend(some);
                        }
                        all
                    }
                });
            let told = String::from_utf8_lossy(&told);
            assert_eq!(told.contains("h0"), metric != "a.0_1", "{is_streamed} {metric}");
        }
    }
}

/// All names that there are.
fn names(store: &SeriesStore) -> Vec<String> {
    let text = block_on(told(store, r#"{"select":"meta:names"}"#)).unwrap();
    text.lines().map(|line| line.trim_start_matches('+').to_owned()).collect()
}

#[test]
fn others_are_neither_made_nor_opened_nor_deleted() {
    let all = open(Settings::default());
    fill(&all, &["mem host=a".to_owned()]);
    let some = all.within(set(&["cpu*"]));
    let names_sent = ["mem host=a", "mem host=b", "cpu host=a", "cpu\\ x", "x y", "xcpu"];
    let made = block_on(some.each_series(&names_sent)).unwrap();
    let denied = |made: &Result<_, Error>, of: &str| {
        let why = made.as_ref().err().map(ToString::to_string).unwrap_or_default();
        why.contains("permission_denied (6000)") && why.ends_with(&format!("{of:?}"))
    };
    assert!(denied(&made[0], "mem") && denied(&made[1], "mem") && denied(&made[5], "xcpu"));
    assert!(made[2].is_ok() && made[3].is_ok());
    assert!(matches!(made[4], Err(Error::Name { .. })));
    assert!(matches!(block_on(some.series("mem host=a")), Err(Error::Denied { .. })));
    assert_eq!(block_on(delete_series(&some, &[b"match[]={__name__=~\".%2B\"}"])).0, 204);
    assert_eq!(names(&all), ["mem host=a"]);
}

/// A limit that others have reached says no more than that.
#[test]
fn how_many_others_there_are_is_not_told_by_a_limit() {
    let limits = SeriesLimits { series: 3, ..SeriesLimits::default() };
    let all = open(Settings { limits, ..Settings::default() });
    fill(&all, &["mem host=a", "mem host=b", "mem host=c"].map(str::to_owned));
    let why = |store: &SeriesStore| block_on(store.series("cpu")).unwrap_err().to_string();
    assert!(why(&all).contains("there are 3 series"), "{}", why(&all));
    let some = all.within(set(&["cpu"]));
    assert!(why(&some).contains("there may be no more") && !why(&some).contains('3'));
}

#[test]
fn parts_are_seen_as_the_whole_is() {
    let all = open(Settings { parts: 4, ..Settings::default() });
    let hosts = |metric: &'static str| (0..9).map(move |host| format!("{metric} host={host}"));
    fill(&all, &["cpu", "mem"].into_iter().flat_map(hosts).collect::<Vec<_>>());
    let some = all.within(set(&["cpu"]));
    let found = |store: &SeriesStore| {
        let mut names = names(store);
        names.sort();
        names
    };
    assert_eq!(found(&some), hosts("cpu").collect::<Vec<_>>());
    let by_part: usize = (0..4).map(|part| found(&some.parts_among(&[part]).unwrap()).len()).sum();
    assert_eq!(by_part, 9);
    let metrics = block_on(some.list(&Listing::Metrics, "", None, 9)).unwrap();
    assert_eq!(metrics, ["cpu"]);
}

/// What is damaged has a name perhaps, and perhaps none that can be read.
#[test]
fn others_that_are_damaged_are_in_nobodys_way() {
    let db = damage::database();
    drop({
        let store = damage::open(&db);
        damage::fill(&store, 1..9);
        store
    });
    let row = damage::row_of(&db, damage::SERIES);
    damage::set(&db, &(row.0, b"\xff".to_vec()));
    let all = damage::open(&db);
    assert!(block_on(told(&all, r#"{"select":"meta:names"}"#)).is_err());
    let some = all.within(set(&["mem"]));
    assert_eq!(names(&some), ["mem host=ill"]);
    assert!(!all.damaged().is_empty() && some.damaged().is_empty());
}

fn session() -> Session {
    Session::new(Protocol::Resp, 5, &Memory::default())
}

fn feed(session: &mut Session, text: &str) {
    assert_eq!(session.feed(text.as_bytes()), text.len());
}

fn count(store: &SeriesStore, name: &str) -> u64 {
    let Some(series) = block_on(store.existing(name)).unwrap() else { return 0 };
    block_on(series.aggregate(..)).unwrap().map_or(0, |all| all.count)
}

/// Names are looked up once, and points wait for others: neither outlives the right to write them.
#[test]
fn what_a_session_may_write_holds_from_then_on_for_what_waits_too() {
    let store = open(Settings::default());
    let mut session = session();
    // A dictionary's names, too.
    feed(&mut session, "*4\r\n+mem host=a\r\n:1\r\n+cpu host=a\r\n:2\r\n");
    feed(&mut session, ":1\r\n:1\r\n:1\r\n:2\r\n:1\r\n:1\r\n");
    block_on(session.save(&store)).unwrap();
    assert!(session.replies().is_empty() && !session.was_denied());
    let counts = |store: &SeriesStore| ["mem host=a", "cpu host=a"].map(|name| count(store, name));
    assert_eq!(counts(&store), [1, 1]);
    feed(&mut session, ":1\r\n:2\r\n:2\r\n:2\r\n:2\r\n:2\r\n+mem host=a\r\n:3\r\n:3\r\n");
    session.restrict(Some(set(&["cpu"])));
    block_on(session.save(&store)).unwrap();
    let told = String::from_utf8_lossy(session.replies()).into_owned();
    assert!(told.contains("-DB permission_denied (6000)") && told.contains("\"mem\""), "{told}");
    assert!(session.was_denied());
    assert_eq!((counts(&store), session.saved()), ([1, 2], 3));
    // They are refused again the next time, by the names that are remembered.
    session.sent(told.len());
    feed(&mut session, ":1\r\n:4\r\n:4\r\n");
    block_on(session.save(&store)).unwrap();
    assert!(!session.replies().is_empty());
    // And are taken with the right.
    session.sent(session.replies().len());
    session.restrict(None);
    feed(&mut session, ":1\r\n:5\r\n:5\r\n");
    block_on(session.save(&store)).unwrap();
    assert_eq!((counts(&store), session.replies()), ([2, 2], &b""[..]));
    session.restart(Protocol::Resp);
    assert!(!session.was_denied());
}

/// The next sender was told which names the one before had sent, and refused for them. And they
/// were looked up for him, so that a series which was deleted meanwhile was there again.
#[test]
fn a_session_tells_nobody_what_somebody_else_has_sent() {
    let store = open(Settings::default());
    let mut session = session();
    let send = |session: &mut Session, text: &str| {
        session.restart(Protocol::Resp);
        feed(session, text);
        block_on(session.save(&store)).unwrap();
        String::from_utf8_lossy(session.replies()).into_owned()
    };
    let cpu = "+cpu host=a\r\n:1\r\n:1\r\n";
    let others = "+mem host=a\r\n:1\r\n:1\r\n+disk host=a\r\n:1\r\n:1\r\n";
    for before in [None, Some(set(&["mem", "disk"]))] {
        for next in [Some(set(&["cpu"])), Some(set(&["cpu", "disk"])), None] {
            session.restrict(before.clone());
            assert_eq!(send(&mut session, others), "");
            assert_eq!(block_on(delete_series(&store, &[b"match[]=disk"])).0, 204);
            session.restart(Protocol::Resp);
            session.restrict(next);
            assert_eq!(send(&mut session, cpu), "");
            assert!(!session.was_denied() && session.refused() == 0);
            assert!(!names(&store).contains(&"disk host=a".to_owned()));
        }
    }
}

#[test]
fn what_is_said_of_metrics_is_heard_of_those_that_may_be_written() {
    let store = open(Settings::default());
    let clock = plinth_series::ingest::Clock { unit: 1_000_000, now: 1 };
    let mut session = Session::new(Protocol::Exposition(clock), 5, &Memory::default());
    session.restrict(Some(set(&["cpu"])));
    feed(
        &mut session,
        "# HELP mem No\n# TYPE mem gauge\nmem 1 1\n# HELP cpu Yes\n# TYPE cpu gauge\ncpu 1 1\n",
    );
    block_on(session.end(b"", &store)).unwrap();
    let said = session.take_metadata();
    assert!(!said.is_empty() && said.iter().all(|one| one.metric == "cpu"), "{said:?}");
    assert_eq!(names(&store), ["cpu"]);
}
