//! `kill`: servers begin anew, connections of clients are closed.
//!
//! A server that is told so hands over what it leads, ends cleanly, and is started again by whoever looks after its process. Several are
//! told one after the other, each when the one before serves again: so a cluster never has less than it can do without.

use super::session::{Refusal, Session};
use super::words::quoted;
use plinth::ClusterFile;
use plinth_bench::Value;
use plinth_types::Error;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const WORKERS: &[u8] = b"\xff\xff/worker_interfaces/";
/// How long a server is waited for until it has gone, and until it is back, before the next one is told.
const GOING: Duration = Duration::from_secs(15);
const COMING: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// The servers: all members of a cluster, or the one that there is.
fn servers<Out: Write>(session: &Session<Out>) -> Result<Vec<String>, Refusal> {
    let read = plinth::RangeOptions::prefix(WORKERS);
    let rows = session.database.transact_blocking(|tr| tr.get_range(read.clone()).wait())?.rows;
    let members = rows.iter().map(|(key, _)| String::from_utf8_lossy(&key[WORKERS.len()..]).into_owned());
    let members: Vec<String> = members.collect();
    if !members.is_empty() {
        return Ok(members);
    }
    let file = ClusterFile::parse(&session.database.endpoint().describe().connection_string)?;
    Ok(file.address_list().split(',').map(|address| bare(address).to_owned()).collect())
}

/// An address without its mark for TLS.
fn bare(address: &str) -> &str {
    address.strip_suffix(":tls").unwrap_or(address)
}

/// `kill [list|all|clients|ADDRESS...]`
pub fn kill<Out: Write>(session: &mut Session<Out>, arguments: &[Vec<u8>]) -> Result<(), Refusal> {
    let words: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    // A database without a server says so here.
    let clients = session.database.endpoint().clients().wait()?;
    let servers = servers(session)?;
    if let [] | [b"list"] = words[..] {
        servers.iter().try_for_each(|server| writeln!(session.out, "{server} server"))?;
        clients.iter().try_for_each(|client| writeln!(session.out, "{client}"))?;
        return Ok(());
    }
    // All of them are looked at before the first one is acted upon.
    let names: Result<Vec<&str>, _> = words.iter().map(|word| std::str::from_utf8(word)).collect();
    let names = names.map_err(|_| Refusal::Usage("an address is IP:PORT or IP".to_owned()))?;
    if names == ["all"] {
        return restart(session, &servers);
    }
    let is_address = |name: &&str| {
        bare(name).parse::<SocketAddr>().is_ok()
            || name.parse::<IpAddr>().is_ok()
            || servers.iter().any(|server| server == bare(name))
    };
    if let (Some(wrong), false) = (names.iter().find(|name| !is_address(name)), names == ["clients"]) {
        let wrong = quoted(wrong.as_bytes());
        return Err(Refusal::Usage(format!(
            "list, all, clients, or addresses as kill lists them (IP:PORT, IP), not {wrong}"
        )));
    }
    let (to_restart, to_close): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| servers.iter().any(|server| server == bare(name)));
    let to_restart: Vec<String> = to_restart.iter().map(|name| bare(name).to_owned()).collect();
    if !to_close.is_empty() {
        close(session, &to_close)?;
    }
    restart(session, &to_restart)
}

/// Closes connections of clients.
fn close<Out: Write>(session: &mut Session<Out>, names: &[&str]) -> Result<(), Refusal> {
    let mut closed = 0;
    for name in names {
        let name = if *name == "clients" { "all" } else { name };
        closed += session.database.endpoint().disconnect(name).wait()?;
    }
    let connections = if closed == 1 { "connection" } else { "connections" };
    writeln!(session.out, "Closed {closed} {connections}")?;
    Ok(())
}

/// Has servers begin anew, one after the other.
fn restart<Out: Write>(session: &mut Session<Out>, servers: &[String]) -> Result<(), Refusal> {
    for (at, server) in servers.iter().enumerate() {
        if session.database.endpoint().reboot(server).wait()? == 0 {
            return Err(Refusal::Usage(format!("{server} can't be reached")));
        }
        writeln!(session.out, "{server} begins anew")?;
        session.out.flush()?;
        if at + 1 < servers.len() && !comes_back(session, server)? {
            let left = servers[at + 1..].join(", ");
            return Err(Refusal::Usage(format!(
                "{server} has not come back within {} s (does anything start it again?), so these are left as they are: {left}",
                COMING.as_secs()
            )));
        }
    }
    Ok(())
}

/// Waits until a server that was told to begin anew has gone and is back.
fn comes_back<Out: Write>(session: &Session<Out>, server: &str) -> Result<bool, Refusal> {
    let env = session.database.endpoint().env().clone();
    let until = |wanted: bool, patience: Duration| -> Result<bool, Error> {
        let end = env.now() + patience;
        while env.now() < end {
            if is_there(session, server)? == wanted {
                return Ok(true);
            }
            plinth_env::block_on(env.sleep(LOOK));
        }
        Ok(false)
    };
    // One that was gone too shortly to be seen is back.
    until(false, GOING)?;
    Ok(until(true, COMING)?)
}

/// Whether a server is there, as whoever answers says of it.
fn is_there<Out: Write>(session: &Session<Out>, server: &str) -> Result<bool, Error> {
    let status: Value = session.database.status_json().wait()?.parse().unwrap_or_default();
    let processes = status.pointer("/cluster/processes").and_then(Value::as_object);
    let mut found = processes.into_iter().flat_map(|all| all.values());
    // The one that answers says nothing of itself.
    let is_it = |process: &&Value| process["address"].as_str().is_some_and(|known| bare(known) == server);
    Ok(found.find(is_it).is_some_and(|known| known["plinth"]["reachable"] != Value::Bool(false)))
}
