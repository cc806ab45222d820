//! A listener, with or without TLS: what it accepts is ready to be spoken to.
//!
//! The handshake is made by the connection that uses the stream, within the time that it has for
//! its greeting, so that nobody who is slow at it keeps others waiting.

use crate::audit::Audit;
use crate::counters::Counters;
use crate::events::Bursts;
use crate::quotas::Quotas;
use crate::rights::Rights;
use plinth_env::{Listener, Stream};
use plinth_types::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;

/// Whom a door is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Clients,
    Http,
    #[cfg_attr(not(feature = "series"), expect(dead_code, reason = "series have it"))]
    Series,
    /// Points without a connection, over which nothing can be laid.
    Datagrams,
}

/// A listener, and what is laid over the connections that it accepts.
pub(crate) struct Door {
    listener: Listener,
    bursts: Arc<Bursts>,
    #[cfg(feature = "tls")]
    tls: Option<(Arc<plinth_tls::Acceptor>, plinth_tls::Terms)>,
}

impl Door {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// `connection_failed` if none could be taken; the next one may be.
    pub(crate) async fn accept(&self) -> Result<Stream> {
        let accepted = self.listener.accept().await.map_err(Error::from);
        let stream =
            accepted.inspect_err(|error| self.bursts.not_accepted(self.local_address(), error))?;
        #[cfg(feature = "tls")]
        if let Some((acceptor, terms)) = &self.tls {
            return acceptor.accept(stream, terms);
        }
        Ok(stream)
    }

    /// Whether what goes through it is encrypted.
    #[cfg(feature = "tls")]
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether what goes through it is encrypted: never.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn is_secure(&self) -> bool {
        false
    }

    /// As [`Listener::room`].
    pub(crate) fn room(&self) -> Option<usize> {
        self.listener.room()
    }

    /// Where it listens.
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.listener.local_address()
    }
}

/// What makes doors: the server's certificates, if it has any, and what those may who come in.
pub(crate) struct Doors {
    pub(crate) rights: Arc<Rights>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) bursts: Arc<Bursts>,
    /// What operators did who came in.
    pub(crate) audit: Arc<Audit>,
    #[cfg(feature = "tls")]
    pub(crate) acceptor: Option<Arc<plinth_tls::Acceptor>>,
}

/// What stands between whoever connects and what is here.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tls {
    /// There are certificates.
    pub(crate) has_tls: bool,
    /// Clients must show some, too.
    pub(crate) asks_clients: bool,
}

#[cfg(feature = "tls")]
impl Tls {
    pub(crate) fn of(acceptor: Option<&plinth_tls::Acceptor>) -> Self {
        let asks_clients = acceptor.is_some_and(plinth_tls::Acceptor::asks_clients);
        Self { has_tls: acceptor.is_some(), asks_clients }
    }
}

/// What lays TLS over connections, if there are certificates.
///
/// # Errors
/// `tls_error` if they can't be used; `invalid_option_value` if TLS was declined beside them.
#[cfg(feature = "tls")]
pub(crate) async fn acceptor(
    env: &plinth_env::Env,
    config: &crate::ServerConfig,
) -> plinth_types::Result<Option<Arc<plinth_tls::Acceptor>>> {
    match &config.tls {
        Some(_) if config.without_tls => {
            let detail = "there is a certificate, and TLS was declined (--without-tls)";
            Err(plinth_types::Error::invalid_option_value().with_detail(detail))
        }
        Some(options) => {
            Ok(Some(Arc::new(plinth_tls::Acceptor::load(env, options.clone()).await?)))
        }
        None => Ok(None),
    }
}

#[cfg(feature = "tls")]
impl Doors {
    /// The door of a listener. HTTP and series on loopback have no TLS: nobody else can hear it,
    /// and a certificate isn't made for it.
    pub(crate) fn door(&self, listener: Listener, purpose: Purpose) -> Door {
        let is_open = purpose != Purpose::Clients && listener.local_address().ip().is_loopback();
        let acceptor = self.acceptor.clone().filter(|_| !is_open);
        let tls = acceptor.map(|acceptor| (acceptor, self.terms(purpose)));
        Door { listener, bursts: self.bursts.clone(), tls }
    }

    fn terms(&self, purpose: Purpose) -> plinth_tls::Terms {
        let plain_answer = match purpose {
            Purpose::Clients => {
                let mut answer = Vec::new();
                let detail =
                    "the server speaks TLS: the address in the cluster file must end in :tls";
                plinth_proto::Welcome::refuse(plinth_types::Error::tls_error().with_detail(detail))
                    .encode(&mut answer);
                answer
            }
            Purpose::Series | Purpose::Datagrams => b"-ERR this port speaks TLS\r\n".to_vec(),
            Purpose::Http => {
                let text = "this is HTTPS: the address begins with https://\n";
                let len = text.len();
                let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close";
                format!("{head}\r\nContent-Length: {len}\r\n\r\n{text}").into_bytes()
            }
        };
        let (counters, bursts) = (self.counters.clone(), self.bursts.clone());
        let on_failure = Arc::new(move |error: &plinth_types::Error| {
            counters.add(&crate::Figures { tls_failures: 1, ..Default::default() });
            bursts.tls_failed(error);
        });
        let purpose = match purpose {
            Purpose::Clients | Purpose::Series | Purpose::Datagrams => plinth_tls::Purpose::Clients,
            Purpose::Http => plinth_tls::Purpose::Web,
        };
        plinth_tls::Terms { purpose, plain_answer: plain_answer.into(), on_failure }
    }

    /// Whether there are certificates.
    pub(crate) fn has_tls(&self) -> bool {
        self.acceptor.is_some()
    }

    /// What stands between whoever connects and what is here.
    pub(crate) fn tls(&self) -> Tls {
        Tls::of(self.acceptor.as_deref())
    }

    /// Reads the certificates again; says whether they have changed.
    ///
    /// # Errors
    /// `tls_error`, which says what is wrong with which file; the ones in use stay.
    pub(crate) async fn reload(&self) -> Result<bool> {
        match &self.acceptor {
            Some(acceptor) => acceptor.reload().await,
            None => Ok(false),
        }
    }
}

#[cfg(not(feature = "tls"))]
impl Doors {
    pub(crate) fn door(&self, listener: Listener, _: Purpose) -> Door {
        Door { listener, bursts: self.bursts.clone() }
    }

    pub(crate) fn has_tls(&self) -> bool {
        false
    }

    pub(crate) fn tls(&self) -> Tls {
        Tls::default()
    }

    pub(crate) async fn reload(&self) -> Result<bool> {
        Ok(false)
    }
}
