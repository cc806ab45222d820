//! From PEM to what rustls takes: a chain, its key, the authorities.
//!
//! Every error names the file and the part of it that is missing or wrong, because certificates go
//! wrong more often than anything else about TLS.

use crate::names::has_no_extensions;
use crate::options::{Source, TlsOptions};
use crate::peers::Peers;
use crate::words::VERSION_1;
use plinth_env::Env;
use plinth_types::{Error, Result};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use std::sync::Arc;

/// What one side is and trusts.
pub(crate) struct Identity {
    pub(crate) own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub(crate) authorities: Option<Arc<RootCertStore>>,
    pub(crate) peers: Peers,
}

impl Identity {
    /// Reads and parses what the options name.
    ///
    /// # Errors
    /// `tls_error`, which says what is wrong with which file.
    pub(crate) async fn load(env: &Env, options: &TlsOptions) -> Result<Self> {
        let peers = Peers::parse(&options.verify_peers)?;
        let authorities = match &options.authorities {
            Some(source) => Some(Arc::new(roots(source, &source.read(env).await?)?)),
            None => None,
        };
        let own = match (&options.certificate, &options.key) {
            (None, None) => None,
            (None, Some(key)) => {
                return Err(wrong(key, "there is a private key, and no certificate for it"));
            }
            (Some(certificate), key) => {
                let text = certificate.read(env).await?;
                let chain = certificates(certificate, &text)?;
                if chain.iter().any(|certificate| has_no_extensions(certificate)) {
                    return Err(wrong(certificate, &format!("a certificate in it {VERSION_1}")));
                }
                let key = match key {
                    Some(source) => private_key(source, &source.read(env).await?)?,
                    None => private_key(certificate, &text)?,
                };
                Some((chain, key))
            }
        };
        Ok(Self { own, authorities, peers })
    }
}

fn certificates(source: &Source, text: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(wrong(source, "there is no certificate in it (PEM: -----BEGIN CERTIFICATE-----)"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(source, &error.to_string())),
    }
}

fn private_key(source: &Source, text: &[u8]) -> Result<PrivateKeyDer<'static>> {
    let contains = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
    if contains(b"BEGIN ENCRYPTED PRIVATE KEY") || contains(b"Proc-Type: 4,ENCRYPTED") {
        return Err(wrong(
            source,
            "the private key is encrypted, which is not supported, with TLS_password or without; \
             write it in the clear (openssl pkey -in ENCRYPTED -out PLAIN) where only the program may read it",
        ));
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            wrong(source, "there is no private key in it (PEM: -----BEGIN PRIVATE KEY-----)")
        }
        error => wrong(source, &error.to_string()),
    })
}

fn roots(source: &Source, text: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(source, text)? {
        roots.add(certificate).map_err(|error| {
            wrong(source, &format!("an authority's certificate is wrong: {error}"))
        })?;
    }
    Ok(roots)
}

fn wrong(source: &Source, why: &str) -> Error {
    Error::tls_error().with_detail(format!("{}: {why}", source.name()))
}

/// The cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The time that certificates are held against.
#[derive(Debug)]
pub(crate) struct Clock(pub(crate) Env);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.wall_clock()))
    }
}
