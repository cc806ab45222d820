//! The client status document (`fdb_database_get_client_status`).

use plinth_client::Database;
use std::fmt::Write;

/// What this client knows of its database, as JSON.
pub(crate) fn document(db: &Database) -> String {
    let description = db.endpoint().describe();
    let connected = !description.cluster_id.is_empty();
    let addresses: Vec<String> = description
        .connection_string
        .split_once('@')
        .map(|(_, addresses)| addresses.split(',').map(quoted).collect())
        .unwrap_or_default();
    let servers = if connected { addresses.join(",") } else { String::new() };
    let storage: Vec<String> = addresses
        .iter()
        .filter(|_| connected)
        .map(|address| format!(r#"{{"Address":{address},"SSID":{}}}"#, quoted(&description.cluster_id)))
        .collect();
    let status = if connected { "connected" } else { "disconnected" };
    let connections: Vec<String> = addresses
        .iter()
        .map(|address| format!(r#"{{"Address":{address},"Status":"{status}","Compatible":true}}"#))
        .collect();
    format!(
        r#"{{"Healthy":{connected},"ClusterID":{},"Coordinators":[{}],"CurrentCoordinator":{},"GrvProxies":[{servers}],"CommitProxies":[{servers}],"StorageServers":[{}],"Connections":[{}],"NumConnectionsFailed":{}}}"#,
        quoted(&description.cluster_id),
        addresses.join(","),
        addresses.first().map_or("\"\"", String::as_str),
        storage.join(","),
        connections.join(","),
        if connected { 0 } else { addresses.len() },
    )
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => {
                // Writing to a string can't fail.
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
