//! A client's end.

use crate::identity::{Clock, Identity, provider};
use crate::options::TlsOptions;
use crate::stream::TlsStream;
use crate::verify::Servers;
use plinth_env::{Env, Stream};
use plinth_types::{Error, Result};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection};
use std::sync::Arc;

/// Lays TLS over a connection that was just made to a server. Files are read now; the handshake
/// happens while the stream is used, and its failure is an `io::Error` that holds a
/// [`plinth_types::Error`].
///
/// # Errors
/// `tls_error`, which says what is wrong with which certificate, key or option of this side.
pub async fn connect(env: &Env, options: &TlsOptions, below: Stream) -> Result<Stream> {
    let identity = Identity::load(env, options).await?;
    let wrong = |why: String| Error::tls_error().with_detail(why);
    let Some(verifier) = Servers::new(&identity) else {
        return Err(wrong(
            "no authority is named that the server's certificate must be signed by: \
             name a file of them by FDB_TLS_CA_FILE or TLS_ca_path"
                .to_owned(),
        ));
    };
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(Clock(env.clone())))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity.own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
            let name = options.certificate.as_ref().map(crate::Source::name).unwrap_or_default();
            wrong(format!("{name}: certificate and key can't be used together: {error}"))
        })?,
        None => builder.with_no_client_auth(),
    };
    // Connections are few and last, and certificates may have been exchanged since the last one.
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let name = ServerName::IpAddress(below.peer_address().ip().into());
    let session =
        ClientConnection::new(Arc::new(config), name).map_err(|error| wrong(error.to_string()))?;
    Ok(Stream::over(TlsStream::new(below, Connection::Client(session), None)))
}
