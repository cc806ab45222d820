//! What went wrong, in words: whose certificate, what about it, and what to do.
//!
//! rustls names its errors for those who write programs; whoever runs a server needs to know which
//! side to look at. So each error is told from our side: the other's certificate, or ours.
//!
//! Always: an error of a connection names the peer's address first.

use plinth_types::Error;
use rustls::{AlertDescription as Alert, CertificateError};
use std::net::SocketAddr;

/// What is wrong with a certificate without extensions, and what to do.
pub(crate) const VERSION_1: &str = "is of X.509 version 1, which no TLS library takes: `openssl x509 -req` makes such where it is given no \
     extensions. Make it anew by `plinth tls new-cert`, or with -copy_extensions copy and an extension in the request, as the recipe in \
     docs/operations.md does";

/// The other side, as errors call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Other {
    Client,
    Server,
}

impl Other {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The error of a connection to `peer`, which is the other side.
pub(crate) fn failure(other: Other, peer: SocketAddr, error: &rustls::Error) -> Error {
    Error::tls_error().with_detail(format!("{peer}: {}", words(other, error)))
}

fn words(other: Other, error: &rustls::Error) -> String {
    let name = other.name();
    match error {
        rustls::Error::NoCertificatesPresented => {
            "the client shows no certificate, and must".to_owned()
        }
        rustls::Error::InvalidCertificate(what) => {
            format!("the {name}'s certificate {}", certificate(what))
        }
        rustls::Error::AlertReceived(what) => match alert(*what) {
            Some(what) => format!("the {name} {what}"),
            None => format!("the {name} ended the connection: {what:?}"),
        },
        rustls::Error::PeerIncompatible(what) => {
            format!(
                "the {name} has no version or cipher in common with us, who speak TLS 1.3 ({what:?})"
            )
        }
        error => error.to_string(),
    }
}

fn certificate(what: &CertificateError) -> String {
    match what {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; one of the clocks is wrong, perhaps".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "is not signed by any of the authorities in our CA file".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "was not made for this side of a connection (extended key usage)".to_owned()
        }
        // The library that judges chains has no type of its own for this in rustls' interface.
        CertificateError::Other(why) if why.0.to_string().contains("UnsupportedCertVersion") => {
            VERSION_1.to_owned()
        }
        CertificateError::Other(why) => format!("is not wanted: {}", why.0),
        what => format!("is wrong: {what}"),
    }
}

/// What the other side says of us.
fn alert(what: Alert) -> Option<&'static str> {
    Some(match what {
        Alert::CertificateRequired | Alert::NoCertificate => {
            "wants our certificate, and we show none"
        }
        Alert::CertificateExpired => "says that our certificate has expired, or is not valid yet",
        Alert::UnknownCA => "knows no authority that has signed our certificate",
        Alert::BadCertificate
        | Alert::CertificateUnknown
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::AccessDenied
        | Alert::DecryptError => "does not accept our certificate; its log says why",
        Alert::ProtocolVersion => "does not speak TLS 1.3",
        _ => return None,
    })
}

/// The error of a connection to a `peer` whose first bytes are not TLS.
pub(crate) fn no_tls(other: Other, peer: SocketAddr, bytes: &[u8]) -> Error {
    let is_ours = bytes.starts_with(b"\x89PLNTH");
    let why = match (other, is_ours) {
        (Other::Client, true) => {
            "a client without TLS: the address in its cluster file must end in :tls"
        }
        (Other::Client, false) => "what the client says is not TLS",
        (Other::Server, true) => {
            "the server there speaks without TLS: the address in the cluster file must not end in :tls"
        }
        (Other::Server, false) => "what the server says is not TLS",
    };
    Error::tls_error().with_detail(format!("{peer}: {why}"))
}

/// The error of a connection to a `peer` who went away before the handshake was over.
pub(crate) fn gone(peer: SocketAddr) -> Error {
    Error::connection_failed()
        .with_detail(format!("{peer} closed the connection during the TLS handshake"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::WebPkiServerVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use std::sync::Arc;
    use std::time::Duration;

    fn certificate_of(pem: &[u8]) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem).unwrap()
    }

    #[test]
    fn a_certificate_of_version_1_is_told_with_what_to_do() {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate_of(include_bytes!("../tests/certificates/ca.crt"))).unwrap();
        let provider = crate::identity::provider();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let old = certificate_of(include_bytes!("../tests/certificates/version-1.crt"));
        let name = ServerName::try_from("localhost").unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_900_000_000));
        let error = rustls::client::danger::ServerCertVerifier::verify_server_cert(
            &*verifier,
            &old,
            &[],
            &name,
            &[],
            now,
        );
        let told = words(Other::Server, &error.unwrap_err());
        assert!(told.starts_with("the server's certificate is of X.509 version 1, "), "{told}");

        assert!(crate::names::has_no_extensions(&old));
        let usual = certificate_of(include_bytes!("../tests/certificates/server.crt"));
        assert!(
            !crate::names::has_no_extensions(&usual)
                && !crate::names::has_no_extensions(b"nonsense")
        );
    }
}
