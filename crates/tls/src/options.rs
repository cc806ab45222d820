//! What a side of a TLS connection is told: where its certificate, its key and its authorities are.
//!
//! Each part comes from a file or from bytes, and parts that a program doesn't name come from
//! FoundationDB's environment variables. Files are read when a connection is made, so that
//! certificates can be exchanged while a program runs.

use plinth_env::Env;
use plinth_types::{Error, Result};
use std::path::PathBuf;

/// Where PEM text comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// A file, read anew for each connection that a client makes, and when a server looks for new
    /// certificates.
    File(PathBuf),
    /// The text itself.
    Bytes(Vec<u8>),
}

impl Source {
    /// The text, and what to call it in errors.
    ///
    /// # Errors
    /// `tls_error` if the file can't be read.
    pub(crate) async fn read(&self, env: &Env) -> Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::File(path) => env.files().read(path).await.map_err(|error| {
                let why = error.summary();
                Error::tls_error().with_detail(format!("{}: {why}", path.display()))
            }),
        }
    }

    /// What errors call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Bytes(_) => "the bytes given".to_owned(),
        }
    }
}

/// Without the bytes: a key may be among them.
impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
        }
    }
}

/// What one side shows, and what it wants to see.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TlsOptions {
    /// Its certificate, and behind it those of authorities in between: PEM.
    pub certificate: Option<Source>,
    /// Its private key: PEM, not encrypted. If there is none it is looked for behind the
    /// certificate.
    pub key: Option<Source>,
    /// The certificates of the authorities that the other side's must be signed by: PEM.
    pub authorities: Option<Source>,
    /// What else the other side's certificate must say, in FoundationDB's words:
    /// `S.O=Shop,S.CN>db-`. One of several must hold. `Check.Valid=0` lets anybody be who he says
    /// he is.
    pub verify_peers: Vec<String>,
    /// What the key is encrypted with, which is not supported: a key that is encrypted is refused,
    /// with or without it.
    pub password: Option<String>,
}

/// FoundationDB's environment variables.
const CERTIFICATE: &str = "FDB_TLS_CERTIFICATE_FILE";
const KEY: &str = "FDB_TLS_KEY_FILE";
const AUTHORITIES: &str = "FDB_TLS_CA_FILE";
const PASSWORD: &str = "FDB_TLS_PASSWORD";
const VERIFY_PEERS: &str = "FDB_TLS_VERIFY_PEERS";

impl TlsOptions {
    /// What FoundationDB's environment variables say: `FDB_TLS_CERTIFICATE_FILE`,
    /// `FDB_TLS_KEY_FILE`, `FDB_TLS_CA_FILE`, `FDB_TLS_PASSWORD`, `FDB_TLS_VERIFY_PEERS`. An empty
    /// one counts as absent.
    pub fn from_environment() -> Self {
        Self::from_variables(|name| {
            std::env::var_os(name).and_then(|value| value.into_string().ok())
        })
    }

    fn from_variables(value: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name| value(name).filter(|value| !value.is_empty());
        let file = |name| value(name).map(|path| Source::File(path.into()));
        Self {
            certificate: file(CERTIFICATE),
            key: file(KEY),
            authorities: file(AUTHORITIES),
            verify_peers: value(VERIFY_PEERS).into_iter().collect(),
            password: value(PASSWORD),
        }
    }

    /// These, and what they don't say from `others`. Certificate and key belong together: who names
    /// the one doesn't get another one's.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        let (certificate, key) = match (self.certificate, self.key) {
            (None, None) => (others.certificate, others.key),
            own => own,
        };
        let is_silent = self.verify_peers.is_empty();
        Self {
            certificate,
            key,
            authorities: self.authorities.or(others.authorities),
            verify_peers: if is_silent { others.verify_peers } else { self.verify_peers },
            password: self.password.or(others.password),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_comes_before_the_environment() {
        let environment = TlsOptions::from_variables(|name| match name {
            CERTIFICATE => Some("env.crt".into()),
            KEY => Some("env.key".into()),
            AUTHORITIES => Some("env.ca".into()),
            VERIFY_PEERS => Some("S.O=Env".into()),
            _ => Some(String::new()),
        });
        assert_eq!(environment.password, None);
        let said =
            TlsOptions { certificate: Some(Source::Bytes(vec![1])), ..TlsOptions::default() }
                .or(environment);
        assert_eq!(said.certificate, Some(Source::Bytes(vec![1])));
        assert_eq!(said.key, None, "another certificate's key is of no use");
        assert_eq!(said.authorities, Some(Source::File("env.ca".into())));
        assert_eq!(said.verify_peers, ["S.O=Env"]);
        assert!(!format!("{:?}", Source::Bytes(b"secret".to_vec())).contains("secret"));
    }
}
