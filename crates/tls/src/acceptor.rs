//! A server's end: its certificate, and what it wants of clients, exchanged for newer ones while it
//! runs.
//!
//! Files are read again when somebody asks for it, and what is made of them replaces what was there
//! at once, for clients and browsers alike.
//!
//! Always: what can't be used replaces nothing, and open connections keep what they began with.

use crate::identity::{Clock, Identity, provider};
use crate::options::TlsOptions;
use crate::stream::{Refusals, TlsStream};
use crate::verify::Clients;
use plinth_env::{Env, Stream};
use plinth_types::{Error, Result};
use rustls::{Connection, ServerConfig, ServerConnection};
use std::sync::{Arc, PoisonError, RwLock};

/// Whom a stream is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Clients of the database, who must show certificates if there are authorities.
    Clients,
    /// Browsers and programs that watch the server, who show none.
    Web,
}

/// What a listener does with those with whom no connection comes about.
#[derive(Clone)]
pub struct Terms {
    /// Whom it serves.
    pub purpose: Purpose,
    /// What those who don't speak TLS are told, as it stands.
    pub plain_answer: Arc<[u8]>,
    /// Called once for each connection that fails: `tls_error`, or `connection_failed` for who just
    /// went away.
    pub on_failure: Arc<dyn Fn(&Error) + Send + Sync>,
}

/// A server's certificates, and the streams that are made with them.
pub struct Acceptor {
    env: Env,
    options: TlsOptions,
    current: RwLock<Current>,
}

struct Current {
    clients: Arc<ServerConfig>,
    web: Arc<ServerConfig>,
    asks_clients: bool,
    /// What the files contained.
    texts: Vec<Vec<u8>>,
}

impl Acceptor {
    /// Reads the certificates.
    ///
    /// # Errors
    /// `tls_error`, which says what is wrong with which file or option.
    pub async fn load(env: &Env, options: TlsOptions) -> Result<Self> {
        let current = RwLock::new(Current::load(env, &options).await?);
        Ok(Self { env: env.clone(), options, current })
    }

    /// Reads the files again; says whether anything has changed. Connections that are open keep
    /// what they have.
    ///
    /// # Errors
    /// As [`Acceptor::load`]; then everything stays as it was.
    pub async fn reload(&self) -> Result<bool> {
        let texts = texts(&self.env, &self.options).await?;
        if self.read().texts == texts {
            return Ok(false);
        }
        let current = Current::load(&self.env, &self.options).await?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
        Ok(true)
    }

    /// Whether clients must show certificates.
    pub fn asks_clients(&self) -> bool {
        self.read().asks_clients
    }

    /// Lays TLS over a connection that was just accepted. The handshake happens while the stream is
    /// used.
    ///
    /// # Errors
    /// `tls_error` if rustls refuses its configuration.
    pub fn accept(&self, below: Stream, terms: &Terms) -> Result<Stream> {
        let config = match terms.purpose {
            Purpose::Clients => self.read().clients.clone(),
            Purpose::Web => self.read().web.clone(),
        };
        let refusals = Refusals {
            plain_answer: terms.plain_answer.clone(),
            on_failure: terms.on_failure.clone(),
        };
        let session = ServerConnection::new(config)
            .map_err(|error| Error::tls_error().with_detail(error.to_string()))?;
        Ok(Stream::over(TlsStream::new(below, Connection::Server(session), Some(refusals))))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Current {
    async fn load(env: &Env, options: &TlsOptions) -> Result<Self> {
        let texts = texts(env, options).await?;
        let identity = Identity::load(env, options).await?;
        let wrong = |why: String| Error::tls_error().with_detail(why);
        let verifier = Clients::new(&identity).map_err(wrong)?;
        let asks_clients = verifier.is_some();
        let Some((chain, key)) = identity.own else {
            return Err(wrong(
                "a server needs a certificate and its key (--tls-cert, --tls-key)".to_owned(),
            ));
        };
        let name = options.certificate.as_ref().map(crate::Source::name).unwrap_or_default();
        let config = |verifier: Option<Arc<Clients>>| {
            let builder =
                ServerConfig::builder_with_details(provider(), Arc::new(Clock(env.clone())))
                    .with_protocol_versions(&[&rustls::version::TLS13])
                    .map_err(|error| wrong(error.to_string()))?;
            let builder = match verifier {
                Some(verifier) => builder.with_client_cert_verifier(verifier),
                None => builder.with_no_client_auth(),
            };
            let mut config =
                builder.with_single_cert(chain.clone(), key.clone_key()).map_err(|error| {
                    wrong(format!("{name}: certificate and key can't be used together: {error}"))
                })?;
            // Nobody resumes: connections are few and last.
            config.send_tls13_tickets = 0;
            Ok::<_, Error>(config)
        };
        let clients = Arc::new(config(verifier.map(Arc::new))?);
        let mut web = config(None)?;
        web.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { clients, web: Arc::new(web), asks_clients, texts })
    }
}

/// What the files contain, to tell whether they have changed.
async fn texts(env: &Env, options: &TlsOptions) -> Result<Vec<Vec<u8>>> {
    let mut texts = Vec::new();
    for source in [&options.certificate, &options.key, &options.authorities].into_iter().flatten() {
        texts.push(source.read(env).await?);
    }
    Ok(texts)
}
