//! Whom a node trusts, and connections to other nodes that follow from that.

use crate::failure::{PeerError, PeerResult};
use plinth_env::{Env, Stream};
use plinth_replication::Spoken;

/// What a node shows others, and wants to see of them, besides the cluster's secret.
#[derive(Clone, Default, Debug)]
pub struct Trust {
    /// This node's certificate, and whom the others' must be signed by; then connections are
    /// encrypted.
    #[cfg(feature = "tls")]
    pub tls: Option<plinth_tls::TlsOptions>,
    /// Whether nodes may speak in the clear where other machines can hear them.
    pub in_the_clear: bool,
    /// The versions of the protocol that it offers.
    pub spoken: Spoken,
    /// For how many versions a transaction may read and commit here, which others compare with
    /// theirs; 0: that isn't said.
    pub window: u64,
}

impl Trust {
    /// Whether secrets may go over a connection that was made.
    pub(crate) fn may_speak_to(&self, stream: &Stream) -> bool {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return true;
        }
        self.in_the_clear || stream.peer_address().ip().is_loopback()
    }

    /// Whether what the other side of an accepted connection has shown is what a node must show.
    #[cfg(feature = "tls")]
    pub(crate) fn check(&self, stream: &Stream) -> PeerResult<()> {
        let Some(options) = &self.tls else { return Ok(()) };
        let rule = plinth_tls::Rule::parse(&options.verify_peers)?;
        Ok(rule.check(stream.peer_certificate().as_deref())?)
    }

    /// Whether what the other side of an accepted connection has shown is what a node must show:
    /// nothing.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn check(&self, _: &Stream) -> PeerResult<()> {
        Ok(())
    }
}

/// Connects to an address, `host:port`, with TLS if nodes have certificates.
pub(crate) async fn connect(env: &Env, trust: &Trust, address: &str) -> PeerResult<Stream> {
    let wrong = || {
        let detail = format!("{address:?} is no address: host:port");
        PeerError::Mismatch(detail)
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let places = env.sockets().resolve(host, port).await?;
    let stream = env.connect_to_any(&places).await?;
    secured(env, trust, stream).await
}

#[cfg(feature = "tls")]
async fn secured(env: &Env, trust: &Trust, stream: Stream) -> PeerResult<Stream> {
    match &trust.tls {
        Some(options) => Ok(plinth_tls::connect(env, options, stream).await?),
        None => Ok(stream),
    }
}

#[cfg(not(feature = "tls"))]
async fn secured(_: &Env, _: &Trust, stream: Stream) -> PeerResult<Stream> {
    Ok(stream)
}
