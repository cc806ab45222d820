//! The names in a certificate: subject, issuer, and the subject's others.
//!
//! A certificate is DER: a tree of (kind, length, content). This reads the few branches in which
//! names are, and gives up at anything that isn't as it must be; whether the certificate is genuine
//! has been decided before.

/// Names by the last number of their object identifier below 2.5.4.
pub(crate) struct Names {
    pub(crate) subject: Vec<(u8, String)>,
    pub(crate) issuer: Vec<(u8, String)>,
    pub(crate) others: Vec<(Other, String)>,
}

/// The kinds of other names that can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Other {
    Email,
    Dns,
    Uri,
    Ip,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTETS: u8 = 0x04;
/// `[0]`: the version.
const VERSION: u8 = 0xa0;
/// `[3]`: the extensions.
const EXTENSIONS: u8 = 0xa3;
/// 2.5.4: fields of a name.
const FIELD: [u8; 2] = [0x55, 0x04];
/// 2.5.29.17: the subject's other names.
const OTHER_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

/// The branches of a certificate from its issuer on.
struct Branches<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
    rest: &'a [u8],
}

fn branches(certificate: &[u8]) -> Option<Branches<'_>> {
    let (_, whole, _) = element(certificate)?;
    let (_, mut content, _) = element(whole)?;
    if content.first() == Some(&VERSION) {
        content = element(content)?.2;
    }
    // Serial number, algorithm.
    for _ in 0..2 {
        content = element(content)?.2;
    }
    let (_, issuer, rest) = element(content)?;
    let (_, _validity, rest) = element(rest)?;
    let (_, subject, rest) = element(rest)?;
    Some(Branches { issuer, subject, rest })
}

/// The bytes by which a certificate names who signed it.
#[cfg(feature = "make")]
pub(crate) fn issuer_bytes(certificate: &[u8]) -> Option<&[u8]> {
    branches(certificate).map(|branches| branches.issuer)
}

/// The bytes of a certificate's own name.
#[cfg(feature = "make")]
pub(crate) fn subject_bytes(certificate: &[u8]) -> Option<&[u8]> {
    branches(certificate).map(|branches| branches.subject)
}

impl Names {
    /// The names in a certificate.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let Branches { issuer, subject, mut rest } = branches(certificate)?;
        let mut others = Vec::new();
        while !rest.is_empty() {
            let (kind, branch, behind) = element(rest)?;
            if kind == EXTENSIONS {
                others = other_names(branch)?;
            }
            rest = behind;
        }
        Some(Self { subject: fields(subject)?, issuer: fields(issuer)?, others })
    }
}

/// Whether a certificate is of version 1 of X.509, or 2: it has no extensions, so it can't say what
/// it is for.
pub(crate) fn has_no_extensions(certificate: &[u8]) -> bool {
    let version = || {
        let (SEQUENCE, whole, _) = element(certificate)? else { return None };
        let (SEQUENCE, content, _) = element(whole)? else { return None };
        // Version 1 isn't written: the first element is the serial number then.
        let (VERSION, version, _) = element(content)? else { return Some(0) };
        element(version)?.1.first().copied()
    };
    version().is_some_and(|version| version < 2)
}

/// The first element of `bytes`: its kind, its content, and what is behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, behind) = rest.split_at_checked(len)?;
    Some((kind, content, behind))
}

fn fields(mut name: &[u8]) -> Option<Vec<(u8, String)>> {
    let mut fields = Vec::new();
    while !name.is_empty() {
        let (kind, mut set, behind) = element(name)?;
        name = behind;
        while kind == SET && !set.is_empty() {
            let (SEQUENCE, pair, behind) = element(set)? else { return None };
            set = behind;
            let (OBJECT_IDENTIFIER, identifier, value) = element(pair)? else { return None };
            let (_, text, _) = element(value)?;
            if let Some([number]) = identifier.strip_prefix(&FIELD) {
                fields.push((*number, String::from_utf8_lossy(text).into_owned()));
            }
        }
    }
    Some(fields)
}

fn other_names(branch: &[u8]) -> Option<Vec<(Other, String)>> {
    let (SEQUENCE, mut list, _) = element(branch)? else { return None };
    let mut names = Vec::new();
    while !list.is_empty() {
        let (SEQUENCE, extension, behind) = element(list)? else { return None };
        list = behind;
        let (OBJECT_IDENTIFIER, identifier, mut rest) = element(extension)? else { return None };
        if identifier != OTHER_NAMES {
            continue;
        }
        // A flag may stand before the content.
        while !rest.is_empty() {
            let (kind, content, behind) = element(rest)?;
            rest = behind;
            if kind == OCTETS {
                let (SEQUENCE, found, _) = element(content)? else { return None };
                collect(found, &mut names)?;
            }
        }
    }
    Some(names)
}

fn collect(mut found: &[u8], names: &mut Vec<(Other, String)>) -> Option<()> {
    while !found.is_empty() {
        let (kind, name, behind) = element(found)?;
        found = behind;
        let text = || String::from_utf8_lossy(name).into_owned();
        match kind {
            0x81 => names.push((Other::Email, text())),
            0x82 => names.push((Other::Dns, text())),
            0x86 => names.push((Other::Uri, text())),
            0x87 => names.extend(address(name).map(|address| (Other::Ip, address))),
            _ => {}
        }
    }
    Some(())
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}
