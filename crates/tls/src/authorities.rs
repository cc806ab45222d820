//! A client's end towards servers that the world knows: by their names, signed by one of the
//! authorities that the system trusts.
//!
//! Object stores are such. Nothing of this is used between Plinth's own servers and clients, which
//! name their authorities themselves.

use crate::identity::{Clock, provider};
use crate::stream::TlsStream;
use plinth_env::{Env, Stream};
use plinth_types::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names another file than the system's, as OpenSSL has it.
const VARIABLE: &str = "SSL_CERT_FILE";
/// Where systems keep the authorities that they trust.
const FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Whom the system trusts to say who a server is.
pub struct Authorities {
    config: Arc<ClientConfig>,
}

impl Authorities {
    /// Reads the file that `SSL_CERT_FILE` names, or else the system's.
    ///
    /// # Errors
    /// `tls_error` if there is none, or it has no certificate.
    pub async fn load(env: &Env) -> Result<Self> {
        let wrong = |why: String| Error::tls_error().with_detail(why);
        let named = std::env::var_os(VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from);
        let mut file = named;
        for known in FILES.map(PathBuf::from) {
            if file.is_none() && env.files().exists(&known).await? {
                file = Some(known);
            }
        }
        let file = file.ok_or_else(|| {
            wrong(format!(
                "the system's list of authorities is in none of the usual places; name it by {VARIABLE}"
            ))
        })?;
        Self::of_file(env, &file).await
    }

    /// Reads a file of certificates (PEM): these are trusted, and nobody else.
    ///
    /// # Errors
    /// `tls_error` if it can't be read, or has no certificate.
    pub async fn of_file(env: &Env, file: &Path) -> Result<Self> {
        let wrong = |why: String| Error::tls_error().with_detail(why);
        let contents = env.files().read(file).await;
        let contents = contents.map_err(|error| wrong(format!("{}: {error}", file.display())))?;
        let found = CertificateDer::pem_slice_iter(&contents).filter_map(std::result::Result::ok);
        let mut roots = RootCertStore::empty();
        // A list as long as a system's has one now and then that can't be used.
        let (taken, _) = roots.add_parsable_certificates(found);
        if taken == 0 {
            return Err(wrong(format!("{} has no certificate", file.display())));
        }
        let config = ClientConfig::builder_with_details(provider(), Arc::new(Clock(env.clone())))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config) })
    }

    /// Lays TLS over a connection that was just made to the server of this name. The handshake
    /// happens while the stream is used.
    ///
    /// # Errors
    /// `tls_error` for a name that is none.
    pub fn connect(&self, host: &str, below: Stream) -> Result<Stream> {
        let wrong = |why: String| Error::tls_error().with_detail(format!("{host}: {why}"));
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| wrong(error.to_string()))?;
        let session = ClientConnection::new(self.config.clone(), name)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Stream::over(TlsStream::new(below, Connection::Client(session), None)))
    }
}
