//! Pure decoders: what they take is encoded to the same again, and what they refuse is an error
//! with words.
//!
//! Bytes behind a checksum would hardly ever be reached by chance. So where a message has one, the
//! target takes the kind and the content from its input and wraps them up properly; that a wrong
//! checksum is refused is tested elsewhere.

use plinth_client::remote::ClusterFile;
use plinth_env::{Env, block_on};
use plinth_proto::frame::{self, Kind, MAX_REPLY, MAX_REQUEST};
use plinth_proto::{Hello, Request, Welcome, reply};
use plinth_tls::{Acceptor, Source, TlsOptions};
use plinth_types::quotas::{Bounds, Quota, Whom};
use plinth_types::{Bytes, Error};

/// A refusal is told to somebody, who wants to know why.
pub(crate) fn told(error: &Error) {
    assert!(
        error.code() != 0 && error.detail().is_some_and(|why| !why.is_empty()),
        "{error} without a word why"
    );
}

/// A stream of frames: split as they come, each one decoded.
pub(crate) fn frames(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        match frame::split(rest, MAX_REQUEST) {
            Ok(Some(found)) => {
                if let Err(error) = Request::decode(&found) {
                    told(&error);
                }
                rest = &rest[found.len()..];
            }
            Ok(None) => {
                assert!(rest.len() < frame::wanted(rest), "a whole frame was left lying");
                return;
            }
            Err(error) => return told(&error),
        }
    }
}

/// A frame around a body: the first byte says its kind, and the checksum is right.
fn framed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (kind, body) = bytes.split_first()?;
    let mut out = Vec::new();
    let start = frame::begin(&mut out, 7, Kind::Ping);
    out[start + 12] = *kind;
    out.extend_from_slice(body);
    frame::finish(&mut out, start);
    Some(out)
}

/// One request: its kind, then its body.
pub(crate) fn requests(bytes: &[u8]) {
    let Some(framed) = framed(bytes) else { return };
    let found =
        frame::split(&framed, MAX_REQUEST).expect("it was framed here").expect("as a whole");
    match Request::decode(&found) {
        Ok(request) => {
            let mut again = Vec::new();
            request.encode(&mut again, found.id);
            let found =
                frame::split(&again, MAX_REQUEST).expect("it was framed here").expect("as a whole");
            assert_eq!(Request::decode(&found).as_ref(), Ok(&request), "another request came out");
        }
        Err(error) => told(&error),
    }
}

/// One reply, as a client reads it: its kind, then its body.
pub(crate) fn replies(bytes: &[u8]) {
    let Some(framed) = framed(bytes) else { return };
    let found = frame::split(&framed, MAX_REPLY).expect("it was framed here").expect("as a whole");
    let body = Bytes::copy_from_slice(found.body);
    let refused = match Kind::from_code(found.kind) {
        Some(Kind::ReadVersionReply) => reply::read_version(&body).err(),
        Some(Kind::CountedVersionReply) => reply::counted_version(&body).err(),
        Some(Kind::StandingReply) => reply::standing(&body).err(),
        Some(Kind::Waits) => reply::waits(&body).err(),
        Some(Kind::GetNewestReply) => reply::get_newest(&body).err(),
        Some(Kind::GetManyReply) => reply::get_many(&body).err(),
        Some(Kind::GetRangeReply) => match reply::get_range(&body) {
            Ok(result) => {
                let mut again = Vec::new();
                reply::put_get_range(&mut again, 7, &result);
                let rows: usize =
                    result.rows.iter().map(|(key, value)| key.len() + value.len()).sum();
                assert!(rows <= body.len(), "more rows than bytes");
                None
            }
            Err(error) => Some(error),
        },
        Some(Kind::CommitReply) => reply::commit(&body).err(),
        Some(
            Kind::WatchReply
            | Kind::RangeSizeReply
            | Kind::RenewReply
            | Kind::DisconnectReply
            | Kind::RebootReply,
        ) => reply::number(&body).err(),
        Some(Kind::SplitPointsReply | Kind::AddressesReply | Kind::ClientsReply) => {
            reply::list(&body).err()
        }
        Some(Kind::PinReply) => reply::pin(&body).err(),
        Some(Kind::Failure) => {
            assert_ne!(reply::failure(&body).code(), 0);
            None
        }
        _ => None,
    };
    if let Some(error) = refused {
        told(&error);
    }
}

/// The first message of either side, as it comes.
pub(crate) fn greetings(bytes: &[u8]) {
    match Hello::decode(bytes) {
        Ok(Some((hello, len))) => {
            assert!(len <= bytes.len());
            let mut again = Vec::new();
            hello.encode(&mut again);
            if let Err(error) = hello.choose() {
                told(&error);
            }
        }
        Ok(None) => {}
        Err(error) => told(&error),
    }
    if let Err(error) = Welcome::decode(bytes) {
        told(&error);
    }
    // And the same content with its checksum put right, which mutations never are.
    if let Some(content) = bytes.get(16..) {
        let mut right = bytes[..8].to_vec();
        right.extend_from_slice(&(content.len() as u32).to_le_bytes());
        right.extend_from_slice(&crc32c::crc32c(content).to_le_bytes());
        right.extend_from_slice(content);
        let refused = [Hello::decode(&right).err(), Welcome::decode(&right).err()];
        refused.iter().flatten().for_each(told);
    }
}

/// A cluster file: what is accepted is written back as the same.
pub(crate) fn cluster_file(bytes: &[u8]) {
    match ClusterFile::parse(&String::from_utf8_lossy(bytes)) {
        Ok(file) => {
            let again = ClusterFile::parse(&file.connection_string()).expect("it was written here");
            assert_eq!(again, file);
        }
        Err(error) => told(&error),
    }
}

/// Quotas: a row's key or value, or words, as the first byte says. What is read is written as the
/// same.
pub(crate) fn quotas(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b'k', key)) => {
            if let Some(whom) = Whom::decode(key) {
                assert_eq!(whom.key(), key, "another key came out");
            }
        }
        Some((b'v', value)) => {
            if let Some(bounds) = Bounds::decode(value) {
                assert_eq!(Bounds::decode(&bounds.value(7)), Some(bounds));
            }
        }
        Some((_, text)) => {
            let words: Vec<_> = text.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect();
            match Quota::parse(&words) {
                Ok(quota) => {
                    let key = quota.whom.key();
                    assert_eq!(Whom::decode(&key).as_ref(), Some(&quota.whom), "{quota:?}");
                    let bounds = quota.change(Bounds::default());
                    assert_eq!(Bounds::decode(&bounds.value(7)), Some(bounds), "{quota:?}");
                }
                Err(error) => told(&error),
            }
        }
        None => {}
    }
}

/// Valid rows of quotas, and the words that say them.
pub(crate) fn quota_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "cert S.CN=till read=10MB/s connections=10",
        "token sub=till,aud=plinth write=1500B/s watches=0 snapshots=2",
        "address 10.0.0.0/8 read=3MiB/s",
        "tenant app read=250kB/s write=none",
        "* connections=50",
    ];
    let seeds = |text: &str| {
        let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let quota = Quota::parse(&words).expect("it says a quota");
        let value = quota.change(Bounds::default()).value(1_700_000_000);
        let tagged = |tag: &[u8], bytes: &[u8]| [tag, bytes].concat();
        [tagged(b"k", &quota.whom.key()), tagged(b"v", &value), tagged(b"w", text.as_bytes())]
    };
    texts.into_iter().flat_map(seeds).collect()
}

/// What clients' certificates must say, in FoundationDB's words.
pub(crate) fn tls_peers(bytes: &[u8]) {
    const CERTIFICATE: &[u8] = include_bytes!("../../tls/tests/certificates/server.crt");
    const KEY: &[u8] = include_bytes!("../../tls/tests/certificates/server.key");
    const AUTHORITY: &[u8] = include_bytes!("../../tls/tests/certificates/ca.crt");
    let source = |text: &[u8]| Some(Source::Bytes(text.to_vec()));
    let options = TlsOptions {
        certificate: source(CERTIFICATE),
        key: source(KEY),
        authorities: source(AUTHORITY),
        verify_peers: vec![String::from_utf8_lossy(bytes).into_owned()],
        password: None,
    };
    if let Err(error) = block_on(Acceptor::load(&Env::real(), options)) {
        told(&error);
    }
}
