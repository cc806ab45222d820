//! Valid inputs of each target, from which mutation begins: one of every message, and texts with
//! all that may stand in them.
//!
//! They are made by the encoders of today and kept as files, so that a fuzzer has them; a test
//! holds the files to what is made here. A message that gets a new field needs its seed made anew
//! (`plinth-fuzz seeds`).

use crate::{decoders, files, gzip, nodes, rights, series};
use plinth_proto::frame::{HEADER, Kind, NO_ID};
use plinth_proto::{Hello, ReadVersion, Request, Welcome, reply};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace,
    MutationType, Quorum, RangeLock, RangeLocks, RangeRead, RangeResult, Rows, Standing,
};

/// The seeds of a target: a name and the bytes.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let texts = |texts: &[&str]| numbered(texts.iter().map(|text| text.as_bytes().to_vec()));
    match target {
        "frames" | "connection" => named(framed()),
        "requests" => {
            named(framed().into_iter().map(|(name, frame)| (name, unframed(&frame))).collect())
        }
        "replies" => numbered(replies().iter().map(|frame| unframed(frame))),
        "greetings" => numbered(greetings().into_iter()),
        "quotas" => numbered(decoders::quota_seeds().into_iter()),
        "grants" => numbered(rights::grant_seeds().into_iter()),
        "tokens" => numbered(rights::token_seeds().into_iter()),
        "gzip" => numbered(gzip::gzip_seeds().into_iter()),
        "cluster_file" => texts(&CLUSTER_FILES),
        "tls_peers" => texts(&PEERS),
        "http" => texts(&HTTP),
        "series_lines" => texts(&SERIES_LINES),
        "series_remote_write" => {
            let named = |name: &str, message| (format!("seed-{name}"), message);
            vec![
                named("two-series", series::remote_write_message()),
                named("second", series::remote_write_second()),
                named("scraped", series::scraped_families()),
            ]
        }
        "series_import" => texts(&SERIES_IMPORT),
        "series_otlp" => series::otlp_requests(),
        "series_query" => texts(&SERIES_QUERIES),
        "series_promql" => texts(&PROMQL),
        "series_rules" => texts(&RULES),
        "series_scrape" => texts(&files::SCRAPE),
        "series_parquet" => numbered(files::parquet_seeds().into_iter()),
        "replication_messages" => numbered(nodes::message_seeds().into_iter()),
        "replication_frames" => numbered(nodes::frame_seeds().into_iter()),
        "peers_words" => numbered(nodes::word_seeds().into_iter()),
        "log_bodies" => numbered(nodes::log_seeds().into_iter()),
        "chunks" => numbered(nodes::chunk_seeds().into_iter()),
        _ => Vec::new(),
    }
}

fn numbered(all: impl Iterator<Item = Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    all.enumerate().map(|(at, bytes)| (format!("seed-{at:02}"), bytes)).collect()
}

fn named(all: Vec<(&'static str, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    all.into_iter().map(|(name, bytes)| (format!("seed-{name}"), bytes)).collect()
}

/// A frame as the targets `requests` and `replies` take it: its kind, then its body.
fn unframed(frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![frame[12]];
    bytes.extend_from_slice(&frame[HEADER..]);
    bytes
}

/// Every request with every field in use.
fn requests() -> Vec<(&'static str, Request)> {
    let mut keys = KeyList::new();
    for key in [&b"a"[..], b"\xff\x02/x", b""] {
        keys.push(key);
    }
    let (begin, end) = (
        KeySelector::first_greater_or_equal(&b"a"[..]),
        KeySelector::first_greater_than(&b"\xff"[..]),
    );
    let idempotency_id = Some(Bytes::from_static(b"sixteen bytes id"));
    let mut commit = CommitRequest {
        lock_aware: true,
        report_conflicting_keys: true,
        idempotency_id,
        ..CommitRequest::default()
    };
    commit.conflicts.read_version = 9;
    commit.mutations.push(MutationType::Set, b"k", b"v");
    commit.mutations.push(MutationType::ClearRange, b"x", b"y");
    commit.mutations.push(MutationType::Add, b"n", b"\x01\0\0\0");
    commit.mutations.push(
        MutationType::SetVersionstampedKey,
        b"k\0\0\0\0\0\0\0\0\0\0\x01\0\0\0",
        b"v",
    );
    commit.conflicts.writes.push(b"k", b"y");
    commit.conflicts.reads.push_single(b"k");
    let read = RangeRead { begin: begin.clone(), end, limit: 9, target_bytes: 999, reverse: true };
    let range = KeyRange::new(&b"a"[..], &b"z"[..]);
    let tags = vec![Bytes::from_static(b"tag"), Bytes::from_static(b"other")];
    let version = ReadVersion { priority: 1, lock_aware: true, causal_risky: true, count: 3, tags };
    let value = Some(Bytes::from_static(b"old"));
    let snapshot = *b"sixteen bytes id";
    let in_snapshot = Request::GetRange { version: 0, space: KeySpace::Normal, read: read.clone() };
    let few = keys.clone();
    vec![
        ("ping", Request::Ping),
        ("read-version", Request::ReadVersion(version)),
        ("get-many", Request::GetMany { version: 1, space: KeySpace::Normal, keys }),
        ("get-key", Request::GetKey { version: 1, space: KeySpace::System, selector: begin }),
        ("get-range", Request::GetRange { version: 1, space: KeySpace::System, read }),
        ("commit", Request::Commit(Box::new(commit))),
        ("watch", Request::Watch { key: Bytes::from_static(b"k"), value, version: 1 }),
        ("cancel", Request::Cancel),
        ("range-size", Request::RangeSize(range.clone())),
        ("split-points", Request::SplitPoints { range, chunk: 10 }),
        ("addresses", Request::Addresses(Bytes::from_static(b"k"))),
        ("status", Request::Status),
        ("pin", Request::Pin { lease_ms: 30_000 }),
        ("renew", Request::Renew { snapshot, lease_ms: 30_000 }),
        ("release", Request::Release(snapshot)),
        ("in-snapshot", Request::InSnapshot { snapshot, read: Box::new(in_snapshot) }),
        ("clients", Request::Clients),
        ("locate", Request::Locate),
        ("standing", Request::Standing),
        ("get-newest", Request::GetNewest { lock_aware: true, space: KeySpace::Normal, keys: few }),
        ("token", Request::Token(Bytes::from_static(b"a.b.c"))),
        ("reboot", Request::Reboot(Bytes::from_static(b"192.0.2.1:4500"))),
        ("disconnect", Request::Disconnect(Bytes::from_static(b"192.0.2.1:50000"))),
    ]
}

fn framed() -> Vec<(&'static str, Vec<u8>)> {
    let framed = |(at, (name, request)): (usize, (&'static str, Request))| {
        let mut out = Vec::new();
        request.encode(&mut out, at as u32);
        (name, out)
    };
    let mut all: Vec<_> = requests().into_iter().enumerate().map(framed).collect();
    all.push(("all", all.iter().flat_map(|(_, frame)| frame.clone()).collect()));
    all
}

/// What writes a reply.
type Write<'w> = &'w dyn Fn(&mut Vec<u8>);

fn replies() -> Vec<Vec<u8>> {
    let value = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
    let mut rows = Rows::builder();
    rows.push(b"key", b"value");
    rows.push(b"key2", b"");
    let range = RangeResult {
        more: true,
        read_to_begin: false,
        read_through_end: true,
        rows: rows.finish(),
    };
    let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    let error = Error::transaction_too_old().with_detail("why");
    let locked = KeyRange::new(&b"a"[..], &b"b"[..]);
    let locks = RangeLocks::new(vec![RangeLock { range: locked, owner: [7; 16] }]);
    let pinned = reply::Pinned {
        snapshot: *b"sixteen bytes id",
        version: 77,
        metadata_version: value(b"m"),
        lease_ms: 30_000,
        range_locks: Some(locks.clone()),
    };
    let quorum = Quorum { term: 3, leader: 1, voters: vec![1, 2, 5] };
    let standing = Standing { node: 2, term: 3, follows: Some(1) };
    let writes: [Write<'_>; 14] = [
        &|out| reply::put_pong(out, 1),
        &|out| reply::put_read_version(out, 1, 77, Some(b"metadata"), Some(&locks)),
        &|out| reply::put_get_many(out, 1, &[value(b"v"), None, value(b"")]),
        &|out| reply::put_get_range(out, 1, &range),
        &|out| reply::put_commit(out, 1, &CommitReply::Committed { version: 9, batch_index: 1 }),
        &|out| reply::put_commit(out, 1, &CommitReply::Conflict { conflicting_reads: vec![0, 2] }),
        &|out| reply::put_number(out, 1, Kind::WatchReply, 12),
        &|out| reply::put_list(out, 1, Kind::SplitPointsReply, &keys),
        &|out| reply::put_failure(out, 1, &error),
        &|out| reply::put_pin(out, 1, &pinned),
        &|out| reply::put_counted_version(out, 1, Some(&quorum), 77, Some(b"m"), Some(&locks)),
        &|out| reply::put_standing(out, 1, &standing),
        &|out| reply::put_get_newest(out, 1, &[value(b"v"), None], 77, None, Some(&locks)),
        &|out| reply::put_waits(out, NO_ID, true),
    ];
    let write = |write: &Write<'_>| {
        let mut out = Vec::new();
        write(&mut out);
        out
    };
    writes.iter().map(write).collect()
}

fn greetings() -> Vec<Vec<u8>> {
    let hello = Hello { features: 5, ..Hello::new("plinth:k3v", "fuzz") };
    let refusal = Error::incompatible_protocol_version().with_detail("no");
    let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
    hello.encode(&mut first);
    Welcome::accept(&hello, 1, "0123").encode(&mut second);
    Welcome::refuse(refusal).encode(&mut third);
    vec![first, second, third]
}

const CLUSTER_FILES: [&str; 3] = [
    "# Where the shop's database is.\n\nshop:k3v@192.0.2.1:4500,192.0.2.2:4500\n",
    "a_1:Z9@[2001:db8::1]:4500:tls,db-1.example:4501:tls",
    "d:i@host:65535",
];

const PEERS: [&str; 4] = [
    "S.O=Shop,S.CN>db-",
    "Check.Valid=0",
    "I.C=DE,S.L<furt|S.subjectAltName=DNS:db.example,S.OU=a\\,b",
    "S.subjectAltName>IP:192.0.2.,I.subjectAltName=EMAIL:a@b",
];

const HTTP: [&str; 9] = [
    "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "GET /api/range?prefix=%28%22users%22%5Cx00&limit=7&reverse=true&after=a%5Cxff HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n",
    "GET /api/range?begin=a&end=b&limit=1 HTTP/1.1\r\nHost: [::1]:8080\r\nCookie: plinth-8080=ab; x=1\r\n\r\n",
    "GET /api/key?key=still HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
    "GET /api/history?since=3 HTTP/1.0\r\n\r\nGET /api/overview HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /api/set HTTP/1.1\r\nHost: localhost\r\nX-Plinth-Console: 1\r\nOrigin: http://localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 26\r\n\r\n{\"key\":\"a\\\\x00\",\"value\":\"b\"}",
    "POST /api/clear HTTP/1.1\r\nHost: localhost\r\nX-Plinth-Console: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"key\r\n6\r\n\":\"a\"}\r\n0\r\n\r\n",
    "POST /api/login HTTP/1.1\r\nHost: localhost\r\nX-Plinth-Console: 1\r\nExpect: 100-continue\r\nContent-Length: 13\r\n\r\n{\"token\":\"x\"}",
    "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\nGET /status HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\n\r\n",
];

/// The first character says which protocol, the second the size of the pieces.
const SERIES_IMPORT: [&str; 2] = [
    "{\"metric\":{\"__name__\":\"up\",\"job\":\"a b\"},\"values\":[1,null,\"Infinity\"],\"timestamps\":[5,6,7]}\n",
    "\n{\"timestamps\":[],\"x\":{},\"metric\":{},\"values\":[]}\nnonsense\n{\"metric\":{\"__name__\":\"m\"},\"values\":[-0.5e300],\"timestamps\":[-1]}",
];

const SERIES_LINES: [&str; 9] = [
    "00+cpu.user host=a region=eu\r\n+20260101T000000.000000001\r\n+0.25\r\n+cpu.user|cpu.sys host=a\n:1767225600000000001\n*2\n+0.25\n:7\n+SYNC\n",
    "05*4\n+cpu.user host=a\n:1\n+cpu.user|cpu.sys host=b\n:2\n:1\n:1767225600000000001\n+nan\n:2\n:5\n*2\n+1e300\n:-7\n",
    "0a+!deploy host=a\n+20260101T000000\n+version 7 is out\n+m a=1\n+bad\n+1\n+m a\\ b=1\n:1\n:1\n",
    "1zput cpu.user 1767225600 0.25 host=a region=eu\nput cpu.user 1767225600000 7 host=a\nput x 20260101T000000 -inf a=b\nsync\nversion\nput\n",
    "2xcpu,host=a,os=x\\ y user=0.5,sys=7i,up=t,note=\"a \\\"text\\\"\" 1767225600000000001\n# a comment\ncpu user=1\n",
    "3~series,time,value\ncpu host=a,20260101T000000,0.5\n\"cpu host=a,b\",5,-7\n!deploy host=a,6,\"done, \"\"at last\"\"\"\n",
    "4dservers.a.load 0.5 1767225600\ndisk;host=a;mount=/x 7 1767225600.25\nbad x y\n",
    "5d[{\"metric\": \"m\", \"timestamp\": 1767225600, \"value\": 0.5, \"tags\": {\"host\": \"a b\"}}, {\"metric\": \"n\", \"timestamp\": \"5\", \"value\": \"7\"}]",
    "6e# HELP up Is it there?\n# TYPE up gauge\nup{job=\"a \\\"b\\\"\",x=\"\"} 1 1767225600000\nup 2\n{\"utf.8\",a=\"b\"} +Inf # {t=\"1\"} 5\nbad{ 1\n# EOF\n",
];

const RULES: [&str; 3] = [
    r#"groups:
- name: g
  interval: 1m
  limit: 10
  labels: {team: db}
  rules:
  - record: a:b
    expr: sum(m)
    labels: &labels {x: y}
  - alert: A
    expr: >
      m > 1
    for: 30m
    keep_firing_for: 1m
    labels: *labels
    annotations:
      v: '{{ $labels.host }} {{ $value | printf "%5.2f" }} {{- if gt $value 1.0 }} x{{ else }}y{{ end }}'
"#,
    r#"groups: [{name: g, rules: [{alert: A, expr: m, labels: {<<: {a: b}, c: ~}, annotations: {
 q: '{{ range $i, $e := query "m" }}{{ $i }}{{ $e.Labels.host }}{{ break }}{{ end }}',
 h: "{{ with $x := $value }}{{ humanize $x }} {{ humanizeDuration . }} {{ humanizeTimestamp 1e9 }}{{ end }}",
 r: '{{ reReplaceAll "(.)" "$1$1" $labels.host | title | toUpper }}'}}]}]"#,
    "a: &a [x]\nb: [*a, *a]\n---\n",
];

const PROMQL: [&str; 12] = [
    "sum by (a) (rate(x_total[5m])) / on (a) group_left (b) y{a=~\"1|2\", b!=\"\"} > bool 0.5",
    "histogram_quantile(0.9, sum without (a) (rate(h_bucket[1m:10s] offset -1m)))",
    "topk(2, {\"x_total\", 'a'!~`1.*`} @ end()) or bottomk by (b) (1, y @ 12.5 offset 1h30m)",
    "label_replace(label_join(y, \"c\", \"-\", \"a\", \"b\"), \"d\", \"$1-${2}\", \"c\", \"(.)-(.*)\") unless absent(z)",
    "-2 ^ 3 ^ -0x1F % 1_000 atan2 NaN != bool Inf # all numbers",
    "quantile_over_time(0.5, y[2m]) and predict_linear(y[5m], 60) >= count_values(\"v\", y)",
    "max_over_time(deriv(y[2m])[5m:]) ignoring (a) group_right () sort_desc(clamp(y, 1, scalar(y)))",
    "\"\\u00e9\\x41\\101\\n\"",
    "days_in_month(vector(time())) + changes(stale[10m]) * stddev(y) - y",
    "histogram_quantile(0.9, sum by (a) (rate(n[2m]))) / histogram_count(avg_over_time(n[3m:20s]) </ 1.5)",
    "histogram_fraction(-1, 2, {__name__=~\"n|h_bucket\"} >/ 0) or histogram_stddev(-n * 2 - n offset 30s)",
    "count_values(\"v\", n == n) + resets(n[5m]) + changes({a=\"2\"}[3m]) or n + ignoring (a) group_left () n",
];

const SERIES_QUERIES: [&str; 9] = [
    r#"{"select": "cpu", "where": {"host": ["a", "b"]}, "range": {"from": "20260101T000000", "to": 1767225600000000001}, "output": {"format": "csv", "timestamp": "raw"}}"#,
    r#"{"aggregate": {"cpu": "max", "mem": ["min", "count"]}, "where": [{"host": "a"}]}"#,
    r#"{"group-aggregate": {"metric": ["cpu"], "step": "30s", "func": ["min", "max"]}, "range": {"from": 9, "to": 1}, "filter": {"max": {"gt": 1}, "=": {"require": "any"}}, "limit": 7, "offset": "2"}"#,
    r#"{"join": ["x", "y"], "range": {"from": 0, "to": 9}, "apply": [{"name": "eval", "expr": "x * 2 + sqrt(y) / -1e3"}, {"name": "ewma", "decay": 0.5}]}"#,
    r#"{"group-aggregate-join": {"metric": ["x", "y"], "step": "1h", "func": "sum"}, "range": {"from": 0, "to": 9}, "pivot-by-tag": ["host"], "order-by": "series"}"#,
    r#"{"select-events": "!deploy", "range": {"from": 0, "to": 9}, "filter": "done|(at [a-z]+)"}"#,
    r#"{"select": "meta:names:cpu", "where": {"host": "a"}}"#,
    r#"{"start": "1h-ago", "end": 1767225600, "msResolution": true, "queries": [{"metric": "cpu", "aggregator": "p95", "downsample": "1m-avg-none", "rate": true, "rateOptions": {"counter": true, "counterMax": 9}, "tags": {"host": "a|b"}, "filters": [{"type": "iwildcard", "tagk": "dc", "filter": "x*y", "groupBy": true}]}]}"#,
    "start=2026/01/01-00:00&end=1767225600123&ms&m=sum:rate{counter,100}:1m-max:cpu{host=*,dc=a|b}&m=none:1h-p999:x",
];
