//! Makes certificates: an authority, and what it signs for servers and clients.
//!
//! A certificate names its authority by the bytes of that one's subject. They are written anew from
//! what was read, so an authority that was made elsewhere is taken as long as its subject comes out
//! as the same bytes; one that doesn't is refused, and nothing is made that no other side would
//! take.

use crate::names::{self, Names};
use plinth_types::{Error, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::time::Duration;

/// A certificate and its private key, as PEM.
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key, in the clear.
    pub key: String,
}

/// What a certificate says.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// The common name.
    pub name: &'a str,
    /// The organisation, if it says one.
    pub organisation: Option<&'a str>,
    /// Other names: of hosts, or addresses.
    pub others: &'a [String],
    /// Since the epoch: from when on it is valid.
    pub from: Duration,
    /// For how long.
    pub valid: Duration,
}

/// So much before it is asked for a certificate is valid, since clocks differ.
const LENIENCE: Duration = Duration::from_secs(3600);

/// An authority, which signs itself, and other certificates.
///
/// # Errors
/// `tls_error` for what can't stand in a certificate.
pub fn authority(wish: &Wish<'_>) -> Result<Pair> {
    let mut params = params(wish)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(refused)?;
    let made = params.self_signed(&key).map_err(refused)?;
    Ok(Pair { certificate: made.pem(), key: key.serialize_pem() })
}

/// A certificate for a server or a client, signed by the authority whose certificate and key these
/// are (PEM).
///
/// # Errors
/// `tls_error` if they are not an authority's, not each other's, or its subject can't be written as
/// it stands there.
pub fn certificate(wish: &Wish<'_>, authority: &[u8], authority_key: &str) -> Result<Pair> {
    let signer = CertificateDer::from_pem_slice(authority)
        .map_err(|error| wrong(&format!("the authority's certificate is none (PEM): {error}")))?;
    let signer_key = KeyPair::from_pem(authority_key).map_err(|error| {
        wrong(&format!("the authority's key can't be used: {error} (PEM, PKCS #8, not encrypted)"))
    })?;
    if !contains(&signer, signer_key.public_key_raw()) {
        return Err(wrong("the authority's certificate and key do not belong together"));
    }
    let mut named = CertificateParams::default();
    named.distinguished_name = subject(&signer)?;
    named.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let mut params = params(wish)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().map_err(refused)?;
    let made = params.signed_by(&key, &Issuer::new(named, signer_key)).map_err(refused)?;
    let (issuer, is) = (names::issuer_bytes(made.der()), names::subject_bytes(&signer));
    if issuer.is_none() || issuer != is {
        return Err(unlike());
    }
    Ok(Pair { certificate: made.pem(), key: key.serialize_pem() })
}

fn params(wish: &Wish<'_>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(wish.others).map_err(refused)?;
    params.distinguished_name = DistinguishedName::new();
    if let Some(organisation) = wish.organisation {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    params.distinguished_name.push(DnType::CommonName, wish.name);
    let epoch = date_time_ymd(1970, 1, 1);
    // A certificate's years have four digits.
    let last = Duration::from_secs(253_402_300_799);
    params.not_before = epoch + wish.from.saturating_sub(LENIENCE).min(last);
    params.not_after = epoch + (wish.from.saturating_add(wish.valid)).min(last);
    Ok(params)
}

/// The subject of an authority's certificate, to be written as an issuer.
fn subject(authority: &[u8]) -> Result<DistinguishedName> {
    let fields = Names::of(authority)
        .ok_or_else(|| wrong("the authority's certificate is damaged"))?
        .subject;
    let mut name = DistinguishedName::new();
    for (field, text) in fields {
        let kind = match field {
            3 => DnType::CommonName,
            6 => DnType::CountryName,
            7 => DnType::LocalityName,
            8 => DnType::StateOrProvinceName,
            10 => DnType::OrganizationName,
            11 => DnType::OrganizationalUnitName,
            _ => return Err(unlike()),
        };
        // A country's two letters are of another kind of text.
        let value = match kind {
            DnType::CountryName => DnValue::PrintableString(text.try_into().map_err(refused)?),
            _ => DnValue::Utf8String(text),
        };
        name.push(kind, value);
    }
    Ok(name)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len().max(1)).any(|window| window == part)
}

fn unlike() -> Error {
    wrong(
        "the authority's subject has fields, or kinds of text, that certificates made here can't name: sign with openssl, as the \
         recipe in docs/operations.md does, or make an authority with plinth tls new-ca",
    )
}

fn refused(error: rcgen::Error) -> Error {
    wrong(&error.to_string())
}

fn wrong(why: &str) -> Error {
    Error::tls_error().with_detail(why)
}
