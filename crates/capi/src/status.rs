//! The client status document (`fdb_database_get_client_status`).

use plinth_client::Database;
use plinth_client::json::quoted;

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
        .map(|address| {
            format!(r#"{{"Address":{address},"SSID":{}}}"#, quoted(&description.cluster_id))
        })
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
