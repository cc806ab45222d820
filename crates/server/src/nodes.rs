//! What the status document and `/metrics` of a member say of its connections with the other nodes:
//! numbers of their own, in places of their own. What FoundationDB has a field for is in
//! `members.rs`.

use plinth_peers::{Mesh, PeerStatus};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Puts what is counted of the connections with other nodes into the document.
pub(crate) fn complete(mesh: &Mesh, document: &mut Map<String, Value>) {
    if let Some(cluster) = document.get_mut("cluster").filter(|cluster| cluster.is_object()) {
        cluster["plinth"]["peers"] = mesh.status().iter().map(peer).collect();
    }
}

fn peer(peer: &PeerStatus) -> Value {
    let figures = peer.figures;
    json!({
        "address": peer.address,
        "bytes_received": figures.received_bytes,
        "bytes_sent": figures.sent_bytes,
        "bytes_waiting": figures.waiting_bytes,
        "connected": figures.connected,
        "connections": figures.connections,
        "failure": peer.failure,
        "frames_dropped": figures.dropped,
        "frames_received": figures.received,
        "frames_sent": figures.sent,
        "node": peer.node,
        "refused": figures.refused,
        "speaks": peer.spoken.map(|spoken| [spoken.oldest, spoken.newest]),
    })
}

/// What `/metrics` shows of the connections with other nodes.
pub(crate) fn metrics(mesh: &Mesh, text: &mut String) {
    type Number = fn(&PeerStatus) -> u64;
    let numbers: [(&str, &str, &str, Number); 7] = [
        ("connected", "gauge", "1 while this node reaches that one.", |peer| {
            peer.figures.connected.into()
        }),
        ("connections_total", "counter", "Connections made to it.", |peer| {
            peer.figures.connections
        }),
        ("sent_bytes_total", "counter", "Bytes of frames sent to it.", |peer| {
            peer.figures.sent_bytes
        }),
        ("received_bytes_total", "counter", "Bytes of frames it sent.", |peer| {
            peer.figures.received_bytes
        }),
        ("waiting_bytes", "gauge", "Bytes that wait to be sent to it.", |peer| {
            peer.figures.waiting_bytes as u64
        }),
        (
            "dropped_total",
            "counter",
            "Frames not sent: too many waited, or nobody was there.",
            |peer| peer.figures.dropped,
        ),
        (
            "refused_total",
            "counter",
            "Its connections that ended because of what it said.",
            |peer| peer.figures.refused,
        ),
    ];
    let peers = mesh.status();
    for (name, kind, help, number) in numbers {
        // Writing to a string can't fail.
        let _ =
            write!(text, "# HELP plinth_peer_{name} {help}\n# TYPE plinth_peer_{name} {kind}\n");
        for peer in &peers {
            let _ = writeln!(
                text,
                "plinth_peer_{name}{{address=\"{}\"}} {}",
                peer.address,
                number(peer)
            );
        }
    }
}
