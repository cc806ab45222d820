//! Who the other side may be: signed by one of the authorities, in time, and as `verify_peers`
//! says.
//!
//! Both verifiers leave signatures and chains to rustls. The name of the host is not compared:
//! cluster files have addresses, and FoundationDB's certificates are made for that.

use crate::identity::{Identity, provider};
use crate::peers::Peers;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// A certificate that the authorities signed, and that doesn't say what it must.
#[derive(Debug)]
pub(crate) struct Unwanted(pub(crate) String);

impl fmt::Display for Unwanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unwanted {}

fn wanted(peers: &Peers, certificate: &CertificateDer<'_>) -> Result<(), Error> {
    peers.check(certificate).map_err(|why| {
        Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Unwanted(why)))))
    })
}

/// What a client makes of a server.
#[derive(Debug)]
pub(crate) struct Servers {
    /// Absent if nothing is checked.
    authorities: Option<Arc<RootCertStore>>,
    peers: Peers,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Servers {
    /// The verifier of an identity; `None` if it has no authorities and doesn't go without.
    pub(crate) fn new(identity: &Identity) -> Option<Self> {
        let algorithms = provider().signature_verification_algorithms;
        let peers = identity.peers.clone();
        if peers.is_unchecked() {
            return Some(Self { authorities: None, peers, algorithms });
        }
        let authorities = Some(identity.authorities.clone()?);
        Some(Self { authorities, peers, algorithms })
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(authorities) = &self.authorities {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                authorities,
                intermediates,
                now,
                self.algorithms.all,
            )?;
            wanted(&self.peers, end_entity)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// What a server makes of its clients.
#[derive(Debug)]
pub(crate) struct Clients {
    below: Arc<dyn ClientCertVerifier>,
    peers: Peers,
}

impl Clients {
    /// The verifier of an identity; `None` if its clients need no certificates.
    ///
    /// # Errors
    /// If rustls can't use the authorities.
    pub(crate) fn new(identity: &Identity) -> Result<Option<Self>, String> {
        let Some(authorities) = identity.authorities.clone() else { return Ok(None) };
        if identity.peers.is_unchecked() {
            return Ok(None);
        }
        let below = WebPkiClientVerifier::builder_with_provider(authorities, provider()).build();
        let below = below.map_err(|error| error.to_string())?;
        Ok(Some(Self { below, peers: identity.peers.clone() }))
    }
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.below.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.below.verify_client_cert(end_entity, intermediates, now)?;
        wanted(&self.peers, end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.below.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.below.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.below.supported_verify_schemes()
    }
}
