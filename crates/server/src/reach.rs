//! Where a server may listen, and what of that can be found out before a database is opened, or
//! made, for it: a wrong address must not leave a new database behind.
//!
//! Trying an address out beforehand promises nothing: what is listened on in the end is what
//! counts.

use crate::config::ServerConfig;
use crate::door::{Purpose, Tls};
use crate::wanted::Wanted;
use plinth_env::Env;
use plinth_types::{Error, Result};
use std::net::SocketAddr;

/// Whether the server may listen there.
///
/// # Errors
/// `invalid_local_address`, which says what to do.
pub(crate) fn check_reach(
    env: &Env,
    address: SocketAddr,
    config: &ServerConfig,
    tls: Tls,
    purpose: Purpose,
) -> Result<()> {
    // Simulated machines have no loopback; nor has anybody there anything to hide.
    if address.ip().is_loopback() || config.without_tls || env.is_simulated() {
        return Ok(());
    }
    let refuse = |why: &str| {
        let detail = format!("{address} can be reached by other machines, and {why}");
        Err(Error::invalid_local_address().with_detail(detail))
    };
    if purpose == Purpose::Datagrams {
        return refuse(
            "datagrams are neither encrypted nor asked who sent them; allow that in so many words (--without-tls, which needs \
             a server without certificates), or take them in on loopback",
        );
    }
    if !tls.has_tls {
        return refuse(
            "nothing is encrypted; give the server certificates (--tls-cert, --tls-key, --tls-ca), or allow it in so \
             many words (--without-tls)",
        );
    }
    if purpose != Purpose::Http && !tls.asks_clients && !config.without_client_certificates {
        return refuse(
            "anybody may connect; name the authorities that clients' certificates must be signed by (--tls-ca), or \
             allow it in so many words (--without-client-certificates)",
        );
    }
    Ok(())
}

/// Each address that a setting asks for, with the setting.
fn asked(config: &ServerConfig) -> impl Iterator<Item = (&'static str, SocketAddr, Purpose)> {
    let clients = config.listen.iter().map(|address| ("listen", Some(*address), Purpose::Clients));
    #[cfg(feature = "series")]
    let series = &config.series;
    let others = [
        ("http", config.http, Purpose::Http),
        #[cfg(feature = "series")]
        ("series-resp", series.resp, Purpose::Series),
        #[cfg(feature = "series")]
        ("series-opentsdb", series.opentsdb, Purpose::Series),
        #[cfg(feature = "series")]
        ("series-graphite", series.graphite, Purpose::Series),
        #[cfg(feature = "series")]
        ("series-http", series.http, Purpose::Series),
        #[cfg(feature = "series")]
        ("series-udp", series.udp, Purpose::Datagrams),
    ];
    let all = clients.chain(others);
    all.filter_map(|(setting, address, purpose)| Some((setting, address?, purpose)))
}

/// Checks addresses and certificates.
///
/// # Errors
/// `invalid_local_address`, `address_in_use` or `bind_failed`, with the setting; `tls_error`.
pub(crate) async fn check(env: &Env, config: &ServerConfig) -> Result<()> {
    #[cfg(feature = "tls")]
    let tls = Tls::of(crate::door::acceptor(env, config).await?.as_deref());
    #[cfg(not(feature = "tls"))]
    let tls = Tls::default();
    // All at once: two settings may name the same.
    let mut listeners = Vec::new();
    #[cfg(feature = "series")]
    let mut datagrams = Vec::new();
    for (setting, address, purpose) in asked(config) {
        let told = |error: Error| {
            let detail = error.detail().unwrap_or_default().to_owned();
            // Of a listener that can't be made its address is all that is known.
            let why = if detail == address.to_string() { "" } else { &format!(": {detail}") };
            error.with_detail(format!("{setting} {address}{why}"))
        };
        check_reach(env, address, config, tls, purpose).map_err(told)?;
        if purpose != Purpose::Datagrams {
            let listening = Wanted::asked(address).listen(env).await;
            listeners.push(listening.map_err(|error| told(error.into()))?);
            continue;
        }
        #[cfg(feature = "series")]
        datagrams.push(Wanted::asked(address).datagrams(env).map_err(|error| told(error.into()))?);
    }
    Ok(())
}

/// The settings that ask for addresses, each with its address, for [`with_setting`].
pub(crate) fn settings(config: &ServerConfig) -> Vec<(&'static str, SocketAddr)> {
    asked(config).map(|(setting, address, _)| (setting, address)).collect()
}

/// The error of a listener that can't be made names its address alone: with the setting that asks
/// for that. Somebody may have begun to listen there since [`check`].
pub(crate) fn with_setting(error: Error, settings: &[(&'static str, SocketAddr)]) -> Error {
    let is_it = |address: &SocketAddr| error.detail() == Some(address.to_string().as_str());
    match settings.iter().find(|(_, address)| is_it(address)) {
        Some((setting, address)) => error.clone().with_detail(format!("{setting} {address}")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_listens_where_this_server_is_to_is_told_by_the_setting() {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let settings = [("http", at(1)), ("series-resp", at(2))];
        let told = |detail: &str| {
            let error = Error::address_in_use().with_detail(detail.to_owned());
            with_setting(error, &settings).detail().map(str::to_owned)
        };
        assert_eq!(told("127.0.0.1:2").as_deref(), Some("series-resp 127.0.0.1:2"));
        assert_eq!(told("127.0.0.1:3").as_deref(), Some("127.0.0.1:3"));
        assert_eq!(told("http 127.0.0.1:1").as_deref(), Some("http 127.0.0.1:1"), "it says so");
    }
}
