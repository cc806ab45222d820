//! The status document as a server gives it: the endpoint's, with what only the server knows.
//!
//! FoundationDB's tools look for addresses, processes and clients in it; an endpoint in a process
//! has none of them.

use crate::heavy::{AsOf, REST};
use crate::shared::Shared;
use plinth_env::reply::{Reply, promise};
use plinth_types::system::{EXCLUDED_PREFIX, FAILED_PREFIX};
use plinth_types::{Bytes, KeySelector, KeySpace, RangeRead};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The version of FoundationDB whose clients ours are like, and their protocol.
const CLIENT_VERSION: &str = "7.3.0";
const PROTOCOL: &str = "fdb00b073000000";
/// The end of the rows of servers that are excluded, as failed or not; and how many are told.
const EXCLUDED_END: &[u8] = b"\xff/conf/failed0";
const MOST_EXCLUDED: usize = 1000;
/// For how long they are waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clients that are listed by address; FoundationDB lists as many.
const LISTED: usize = 20;

/// The status document, with the server's part in it: of this moment, or, where it is asked for all
/// the time, of a second before it. `is_often`: whoever asks has asked just before, and waits for
/// his turn.
pub(crate) fn document(shared: &Arc<Shared>, connection: u64, is_often: bool) -> Reply<Arc<str>> {
    let asked = shared.env.now();
    let heavy = &shared.turns.heavy;
    let rest = if is_often { REST } else { Duration::ZERO };
    let has_own = !is_often && heavy.may_have_own_status(asked);
    if !is_often
        && !has_own
        && let Some(document) = heavy.recent_status(asked, as_of(shared))
    {
        return Reply::ready(Ok(document));
    }
    let theirs = shared.clone();
    heavy.submit_and_rest(connection, rest, move || {
        let (heavy, began) = (&theirs.turns.heavy, theirs.env.now());
        let as_of = as_of(&theirs);
        let has_own = has_own || (is_often && heavy.may_have_own_status(began));
        let recent = || if has_own { None } else { heavy.recent_status(began, as_of) };
        // One that was begun meanwhile, for another, says as much.
        if let Some(document) = heavy.status_since(asked).or_else(recent) {
            return Reply::ready(Ok(document));
        }
        let (done, reply) = promise();
        let server = theirs.clone();
        theirs.endpoint.status_json().on_complete(move |document| {
            let there = server.clone();
            excluded(&there).on_complete(move |excluded| {
                let excluded = excluded.unwrap_or_default();
                done.send(document.map(|document| {
                    let document: Arc<str> = complete(&server, &document, &excluded).into();
                    server.turns.heavy.keep_status(began, as_of, document.clone());
                    document
                }));
            });
        });
        reply
    })
}

/// The addresses that are excluded, as this member of a cluster knows. A disk that doesn't answer
/// keeps nobody from the status, which says so: then there are none.
fn excluded(shared: &Shared) -> Reply<Vec<String>> {
    let none = || Reply::ready(Ok(Vec::new()));
    if shared.config.peers.is_none() {
        return none();
    }
    let Ok(version) = shared.endpoint.newest_here() else { return none() };
    let [begin, end] = [EXCLUDED_PREFIX, EXCLUDED_END].map(Bytes::from_static);
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(begin),
        end: KeySelector::first_greater_or_equal(end),
        limit: MOST_EXCLUDED,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let place = |key: &[u8]| {
        let place = key.strip_prefix(EXCLUDED_PREFIX).or_else(|| key.strip_prefix(FAILED_PREFIX));
        place.map(|place| String::from_utf8_lossy(place).into_owned())
    };
    let (promise, reply) = promise();
    // Whoever comes first sends it: the rows, or the time.
    let promise = Arc::new(Mutex::new(Some(promise)));
    let take =
        |promise: &Mutex<Option<_>>| promise.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (late, env) = (Arc::downgrade(&promise), shared.env.clone());
    shared.endpoint.get_range(version, KeySpace::System, &read).on_complete(move |found| {
        let Some(promise) = take(&promise) else { return };
        let found =
            found.map(|found| found.rows.iter().filter_map(|(key, _)| place(key)).collect());
        promise.send(found);
    });
    if late.strong_count() > 0 {
        drop(shared.env.spawn_network("status", async move {
            env.sleep(PATIENCE).await;
            if let Some(promise) = late.upgrade().and_then(|promise| take(&promise)) {
                promise.send(Ok(Vec::new()));
            }
        }));
    }
    reply
}

/// What operators have done here, and what has been learnt of rights and quotas.
fn as_of(shared: &Shared) -> AsOf {
    let doors = &shared.doors;
    [doors.audit.operations(), doors.rights.epoch(), doors.quotas.epoch()]
}

/// The endpoint's document with the server's part in it; as it is if it is none.
fn complete(shared: &Shared, document: &str, excluded: &[String]) -> String {
    let Ok(Value::Object(mut document)) = serde_json::from_str(document) else {
        return document.to_owned();
    };
    let place = &shared.place;
    let own = shared.endpoint.describe().connection_string;
    if let (Some((_, own)), Some(public)) = (own.rsplit_once('@'), place.addresses.first()) {
        // What is under `plinth` names keys, which may read like anything.
        let fields =
            section(&mut document, "cluster").iter_mut().filter(|(name, _)| *name != "plinth");
        fields.for_each(|(_, value)| rename(value, own, public));
    }
    tell_of_series(shared, &mut document);
    let client = section(&mut document, "client");
    // Where its directory is says nothing to whoever looks for it. A client names its own.
    if let Some(file) = &shared.config.cluster_file {
        let path = file.display().to_string();
        client.insert("cluster_file".to_owned(), json!({ "path": path, "up_to_date": true }));
    }
    client.insert(
        "coordinators".to_owned(),
        json!({
            "coordinators": place.addresses.iter().map(|address| {
                json!({ "address": address, "protocol": format!("0{PROTOCOL}"), "reachable": true })
            }).collect::<Vec<_>>(),
            "quorum_reachable": true,
        }),
    );
    let cluster = section(&mut document, "cluster");
    cluster.insert("connection_string".to_owned(), json!(place.connection_string));
    cluster.insert("clients".to_owned(), clients(shared));
    section(cluster, "plinth").insert("server".to_owned(), server(shared));
    let layers = shared
        .config
        .pages
        .layers
        .as_ref()
        .and_then(|page| serde_json::from_str(&page.text()).ok());
    if let Some(Value::Object(mut layers)) = layers {
        section(cluster, "layers").append(&mut layers);
    }
    if let Some(mesh) = &shared.config.peers {
        crate::members::complete(&mut document, mesh, &format!("0{PROTOCOL}"));
        crate::nodes::complete(mesh, &mut document);
        crate::members::tell_excluded(&mut document, excluded);
    }
    Value::Object(document).to_string()
}

/// Puts `to` in the place of each text that is `from`: an endpoint's word for itself, in whose
/// place the server stands.
fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => to.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|value| rename(value, from, to)),
        _ => {}
    }
}

/// Who is connected, and has said who he is: a client for each connection, all of them like
/// FoundationDB's of one version.
fn clients(shared: &Shared) -> Value {
    let (mut count, mut listed) = (0_u64, Vec::new());
    shared.connections.visit(|outbox| {
        if !outbox.has_greeted() {
            return;
        }
        count += 1;
        if listed.len() < LISTED {
            listed.push(json!({ "address": outbox.peer.to_string(), "log_group": "default" }));
        }
    });
    let version = json!({
        "client_version": CLIENT_VERSION,
        "connected_clients": listed,
        "count": count,
        "max_protocol_clients": listed,
        "max_protocol_count": count,
        "protocol_version": PROTOCOL,
        "source_version": "",
    });
    let versions = if count > 0 { vec![version] } else { Vec::new() };
    json!({ "count": count, "supported_versions": versions })
}

/// What a server has counted, and what it took.
fn server(shared: &Shared) -> Value {
    let figures = shared.figures();
    json!({
        "addresses": shared.place.addresses,
        "audit": shared.doors.audit.newest(),
        "connections": figures.connections,
        "connections_accepted": figures.accepted,
        "connections_refused": figures.refused,
        "tls": shared.doors.has_tls(),
        "tls_failures": figures.tls_failures,
        "connections_cut_off": figures.cut_off,
        "connections_max": shared.config.limits.connections,
        "requests": figures.requests,
        "read_versions": figures.read_versions,
        "transactions_started": figures.transactions,
        "reads": figures.reads,
        "ranges": figures.ranges,
        "rows": figures.rows,
        "commits": figures.commits,
        "failures": figures.failures,
        "bytes_received": figures.bytes_in,
        "bytes_sent": figures.bytes_out,
        "bytes_buffered": shared.memory.held(),
        "pinned_snapshots": shared.snapshots.status(shared.env.now()),
        "rights": shared.doors.rights.status(shared.doors.tls().asks_clients),
        "quotas": shared.doors.quotas.status(),
        "series": shared.series.status(),
        "process_id": shared.env.process_id(),
        "cpu_seconds": shared.env.cpu_time().as_secs_f64(),
        "uptime_seconds": shared.env.now().as_secs_f64(),
    })
}

/// Series that can't be opened, or are damaged, are a message, behind all that keys suffer from.
/// Keys are served, but what has something to be looked at isn't well.
fn tell_of_series(shared: &Shared, document: &mut Map<String, Value>) {
    let told = [
        ("series_unavailable", shared.series.unavailable()),
        ("series_damaged", shared.series.damage()),
    ];
    for (name, description) in told {
        let Some(description) = description else { continue };
        section(section(document, "client"), "database_status")
            .insert("healthy".to_owned(), json!(false));
        let messages = section(document, "cluster").entry("messages").or_insert_with(|| json!([]));
        if let Some(messages) = messages.as_array_mut() {
            messages.push(json!({ "name": name, "description": description }));
        }
    }
}

/// The object of this name, made if there is none.
fn section<'a>(of: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let value = of.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("it was made an object"),
    }
}
