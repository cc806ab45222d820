//! `kill`: servers begin anew, connections of clients are closed.
//!
//! A server that is told so hands over what it leads, ends cleanly, and is started again by whoever
//! looks after its process. Several are told one after the other, each when the one before serves
//! again: so a cluster never has less than it can do without. What a server says of itself decides
//! that, and not what others see of it: one that takes long to end is still there for them.

use super::session::{Refusal, Session, again};
use super::words::quoted;
use crate::patience::within;
use plinth_bench::Value;
use plinth_types::Error;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const WORKERS: &[u8] = b"\xff\xff/worker_interfaces/";
/// How long a server is waited for while it ends, which a checkpoint may delay, and while it is
/// away.
const ENDING: Duration = Duration::from_secs(300);
const AWAY: Duration = Duration::from_secs(60);
/// How often it is looked at, for how long it has to serve, for how long it may be silent,
/// and after how long a user is told what is waited for.
const LOOK: Duration = Duration::from_millis(50);
const SERVED: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(2);

/// The servers: all members of a cluster, or the one that there is.
fn servers<Out: Write>(session: &Session<Out>) -> Result<Vec<String>, Refusal> {
    let read = plinth::RangeOptions::prefix(WORKERS);
    let transaction = session.create_outside()?;
    let rows = loop {
        match transaction.get_range(read.clone()).wait() {
            Ok(found) => break found.rows,
            Err(error) => again(&transaction, error)?,
        }
    };
    let servers =
        rows.iter().map(|(key, _)| String::from_utf8_lossy(&key[WORKERS.len()..]).into_owned());
    Ok(servers.collect())
}

/// An address without its mark for TLS.
fn bare(address: &str) -> &str {
    address.strip_suffix(":tls").unwrap_or(address)
}

/// `kill [list|all|clients|ADDRESS...]`
pub fn kill<Out: Write>(session: &mut Session<Out>, arguments: &[Vec<u8>]) -> Result<(), Refusal> {
    let words: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    // A database without a server says so here.
    let clients = session.answer(session.shown().endpoint().clients())?;
    let servers = servers(session)?;
    if let [] | [b"list"] = words[..] {
        for server in &servers {
            // One that there is answers itself, or this would not have come so far.
            let is_away = servers.len() > 1 && is_away(session, server);
            let but = if is_away { " (can't be reached)" } else { "" };
            writeln!(session.out, "{server} server{but}")?;
        }
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
    if let (Some(wrong), false) =
        (names.iter().find(|name| !is_address(name)), names == ["clients"])
    {
        let wrong = quoted(wrong.as_bytes());
        return Err(Refusal::Usage(format!(
            "list, all, clients, or addresses as kill lists them (IP:PORT, IP), not {wrong}"
        )));
    }
    let (to_restart, to_close): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| servers.iter().any(|server| server == bare(name)));
    let to_restart: Vec<String> = to_restart.iter().map(|name| bare(name).to_owned()).collect();
    let unknown: Vec<&str> = to_close
        .iter()
        .filter(|name| **name != "clients" && !clients.iter().any(|client| is_at(client, name)))
        .copied()
        .collect();
    if !unknown.is_empty() {
        return Err(Refusal::Usage(format!(
            "`kill` lists no server {0}, and no client from {0}",
            unknown.join(", ")
        )));
    }
    if !to_close.is_empty() {
        close(session, &to_close)?;
    }
    restart(session, &to_restart)
}

/// Whether a client, as it is listed, connects from an address, or from a host.
fn is_at(client: &str, name: &str) -> bool {
    let Some(peer) = client.split(' ').next().and_then(|peer| peer.parse::<SocketAddr>().ok())
    else {
        return false;
    };
    name.parse() == Ok(peer) || name.parse() == Ok(peer.ip())
}

/// Whether a server doesn't answer.
fn is_away<Out: Write>(session: &Session<Out>, server: &str) -> bool {
    let database = session.shown();
    let endpoint = database.endpoint();
    !matches!(within(endpoint.env(), ANSWER, endpoint.status_of(server)), Some(Ok(_)))
}

/// Closes connections of clients.
fn close<Out: Write>(session: &mut Session<Out>, names: &[&str]) -> Result<(), Refusal> {
    let mut closed = 0;
    for name in names {
        let name = if *name == "clients" { "all" } else { name };
        closed += session.answer(session.shown().endpoint().disconnect(name))?;
    }
    let connections = if closed == 1 { "connection" } else { "connections" };
    writeln!(session.out, "Closed {closed} {connections}")?;
    Ok(())
}

/// What a server that was told to begin anew is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It is the one that was told, and is at its end.
    Ending,
    /// Nobody is there, or one who doesn't serve yet.
    Away,
    Serving,
}

/// Has servers begin anew, one after the other.
fn restart<Out: Write>(session: &mut Session<Out>, servers: &[String]) -> Result<(), Refusal> {
    for (at, server) in servers.iter().enumerate() {
        let told = session.database.endpoint().env().now();
        match session.answer(session.shown().endpoint().reboot(server)) {
            Ok(0) => return Err(Refusal::Usage(format!("{server} can't be reached"))),
            Ok(_) => {}
            // Whether it was told shows in what it does.
            Err(error) if error == Error::connection_failed() => {}
            Err(error) => return Err(error.into()),
        }
        writeln!(session.out, "{server} begins anew")?;
        session.out.flush()?;
        if let Some(patience) = waits_in_vain(session, server, told)? {
            let left = servers[at + 1..].join(", ");
            let left = if left.is_empty() {
                left
            } else {
                format!("; these are left as they are: {left}")
            };
            return Err(Refusal::Usage(format!(
                "{server} doesn't serve again after {} s (does anything start it again?){left}",
                patience.as_secs()
            )));
        }
    }
    Ok(())
}

/// Waits until a server that was told to begin anew serves again; gives how long it was waited for
/// if it doesn't.
fn waits_in_vain<Out: Write>(
    session: &mut Session<Out>,
    server: &str,
    told: Duration,
) -> Result<Option<Duration>, Refusal> {
    let env = session.database.endpoint().env().clone();
    let (mut was, mut since, mut is_said) = (Doing::Ending, told, false);
    loop {
        let now = env.now();
        let is = doing(session, server, now - told);
        if is != was {
            (was, since, is_said) = (is, now, false);
        }
        let (patience, words) = match is {
            Doing::Serving if now - since >= SERVED => return Ok(None),
            Doing::Serving | Doing::Ending => (ENDING, "to end"),
            Doing::Away => (AWAY, "to serve again"),
        };
        // One that ends again and again is never in one state for long.
        if now - since >= patience || now - told >= ENDING + AWAY {
            return Ok(Some(now - told));
        }
        if now - since >= SILENCE && !is_said {
            is_said = true;
            writeln!(session.out, "... waits for {server} {words}")?;
            session.out.flush()?;
        }
        session.answer(async {
            env.sleep(LOOK).await;
            Ok(())
        })?;
    }
}

/// What a server does that was told so long ago to begin anew, as it says itself.
fn doing<Out: Write>(session: &Session<Out>, server: &str, ago: Duration) -> Doing {
    let database = session.shown();
    let endpoint = database.endpoint();
    let asked = within(endpoint.env(), ANSWER, endpoint.status_of(server));
    let Some(Ok(status)) = asked else { return Doing::Away };
    let status: Value = status.parse().unwrap_or_default();
    let Some(own) = status.pointer("/cluster/plinth") else { return Doing::Away };
    match own["server"]["uptime_seconds"].as_f64() {
        None => Doing::Away,
        Some(uptime) if uptime >= ago.as_secs_f64() => Doing::Ending,
        Some(_) if own["member"].is_null() => Doing::Serving,
        Some(_) if own["member"]["leader"].is_null() || !own["member"]["catching_up"].is_null() => {
            Doing::Away
        }
        Some(_) => Doing::Serving,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_found_by_its_address_and_by_its_host_and_by_nothing_else() {
        let (four, six) = ("10.0.0.1:4711 plinth-client 0.1.0", "[::1]:4711 other");
        assert!(is_at(four, "10.0.0.1:4711") && is_at(four, "10.0.0.1"));
        assert!(is_at(six, "[::1]:4711") && is_at(six, "::1"));
        for name in ["10.0.0.1:471", "10.0.0.10", "10.0.0.1:4712", "plinth-client", ""] {
            assert!(!is_at(four, name), "{name}");
        }
    }
}
