//! Network options: validated as FoundationDB does; here there is no network for most of them to
//! act on.
//!
//! Environment variables `FDB_NETWORK_OPTION_<NAME>` set options too: they are read once, before
//! the first option that the program sets, or when the network is set up.

use crate::future::call::NETWORK;
use plinth_client::remote::{Source, TlsOptions};
use plinth_types::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The kind of value that an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    None,
    Int,
    Text,
    Bytes,
}

#[cfg(test)]
impl Kind {
    /// What a header says of it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::None => "no value",
            Self::Int => "integer: 8 bytes, little-endian",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }
}

/// The codes, names and kinds of all network options; those from 1000 on are hidden.
pub(crate) const ALL: &[(i32, &str, Kind)] = &[
    (10, "local_address", Kind::Text),
    (20, "cluster_file", Kind::Text),
    (30, "trace_enable", Kind::Text),
    (31, "trace_roll_size", Kind::Int),
    (32, "trace_max_logs_size", Kind::Int),
    (33, "trace_log_group", Kind::Text),
    (34, "trace_format", Kind::Text),
    (35, "trace_clock_source", Kind::Text),
    (36, "trace_file_identifier", Kind::Text),
    (37, "trace_share_among_client_threads", Kind::None),
    (38, "trace_initialize_on_setup", Kind::None),
    (39, "trace_partial_file_suffix", Kind::Text),
    (40, "knob", Kind::Text),
    (41, "TLS_plugin", Kind::Text),
    (42, "TLS_cert_bytes", Kind::Bytes),
    (43, "TLS_cert_path", Kind::Text),
    (45, "TLS_key_bytes", Kind::Bytes),
    (46, "TLS_key_path", Kind::Text),
    (47, "TLS_verify_peers", Kind::Bytes),
    (48, "Buggify_enable", Kind::None),
    (49, "Buggify_disable", Kind::None),
    (50, "Buggify_section_activated_probability", Kind::Int),
    (51, "Buggify_section_fired_probability", Kind::Int),
    (52, "TLS_ca_bytes", Kind::Bytes),
    (53, "TLS_ca_path", Kind::Text),
    (54, "TLS_password", Kind::Text),
    (55, "TLS_disable_plaintext_connection", Kind::None),
    (60, "disable_multi_version_client_api", Kind::None),
    (61, "callbacks_on_external_threads", Kind::None),
    (62, "external_client_library", Kind::Text),
    (63, "external_client_directory", Kind::Text),
    (64, "disable_local_client", Kind::None),
    (65, "client_threads_per_version", Kind::Int),
    (66, "future_version_client_library", Kind::Text),
    (67, "retain_client_library_copies", Kind::None),
    (68, "ignore_external_client_failures", Kind::None),
    (69, "fail_incompatible_client", Kind::None),
    (70, "disable_client_statistics_logging", Kind::None),
    (71, "enable_run_loop_profiling", Kind::None),
    (72, "disable_client_bypass", Kind::None),
    (80, "client_buggify_enable", Kind::None),
    (81, "client_buggify_disable", Kind::None),
    (82, "client_buggify_section_activated_probability", Kind::Int),
    (83, "client_buggify_section_fired_probability", Kind::Int),
    (84, "trace_ip", Kind::Text),
    (90, "distributed_client_tracer", Kind::Text),
    (91, "client_tmp_dir", Kind::Text),
    (1000, "supported_client_versions", Kind::Text),
    (1001, "external_client", Kind::None),
    (1002, "external_client_transport_id", Kind::Int),
];

static LOCAL_CLIENT_DISABLED: AtomicBool = AtomicBool::new(false);
static TLS_ONLY: AtomicBool = AtomicBool::new(false);
static TLS: Mutex<TlsOptions> = Mutex::new(TlsOptions {
    certificate: None,
    key: None,
    authorities: None,
    verify_peers: Vec::new(),
    password: None,
});

/// What the options say of TLS; the environment fills up what they don't.
pub(crate) fn tls() -> TlsOptions {
    TLS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether servers without TLS are not to be reached.
pub(crate) fn is_tls_only() -> bool {
    TLS_ONLY.load(Ordering::Relaxed)
}

fn set_tls(code: i32, value: &[u8]) {
    let mut tls = TLS.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = || Some(Source::Bytes(value.to_vec()));
    let text = || String::from_utf8_lossy(value).into_owned();
    let file = || Some(Source::File(text().into()));
    match code {
        42 => tls.certificate = bytes(),
        43 => tls.certificate = file(),
        45 => tls.key = bytes(),
        46 => tls.key = file(),
        47 => tls.verify_peers.push(text()),
        52 => tls.authorities = bytes(),
        53 => tls.authorities = file(),
        _ => tls.password = Some(text()),
    }
}

/// Sets an option.
///
/// # Errors
/// `invalid_option` for an unknown code or one that comes too late; `invalid_option_value`.
pub(crate) fn set(code: i32, value: Option<&[u8]>) -> Result<()> {
    let Some((_, name, kind)) = ALL.iter().find(|(known, ..)| *known == code) else {
        return Err(
            Error::invalid_option().with_detail(format!("no network option has the code {code}"))
        );
    };
    check(code, *kind, value).map_err(|error| error.with_detail(*name))?;
    match code {
        60 | 64 if NETWORK.is_set_up() => return Err(Error::invalid_option()),
        62 if value.is_some_and(is_missing_file) => return Err(Error::file_not_found()),
        42 | 43 | 45..=47 | 52..=54 => set_tls(code, value.unwrap_or_default()),
        55 => TLS_ONLY.store(true, Ordering::Relaxed),
        64 => LOCAL_CLIENT_DISABLED.store(true, Ordering::Relaxed),
        65 if value != Some(&1_i64.to_le_bytes()) => {
            LOCAL_CLIENT_DISABLED.store(true, Ordering::Relaxed)
        }
        _ => {}
    }
    Ok(())
}

/// Fails with `no_external_client_provided` if the program gave up the only client that there is.
pub(crate) fn check_clients() -> Result<()> {
    if LOCAL_CLIENT_DISABLED.load(Ordering::Relaxed) {
        return Err(Error::from_code(2123));
    }
    Ok(())
}

fn is_missing_file(path: &[u8]) -> bool {
    let Ok(path) = std::str::from_utf8(path) else { return true };
    let exists = plinth_env::block_on(crate::world::env().files().exists(path));
    !exists.unwrap_or(false)
}

fn check(code: i32, kind: Kind, value: Option<&[u8]>) -> Result<()> {
    let bytes = value.unwrap_or_default();
    let valid = match (kind, code) {
        (Kind::None, _) => bytes.is_empty(),
        (Kind::Int, _) => {
            let Ok(bytes) = bytes.try_into() else { return Err(Error::invalid_option_value()) };
            let number = i64::from_le_bytes(bytes);
            match code {
                31 | 32 => number >= 0,
                65 => number >= 1,
                50 | 51 | 82 | 83 => (0..=100).contains(&number),
                _ => true,
            }
        }
        (Kind::Text | Kind::Bytes, 34) => matches!(bytes, b"xml" | b"json"),
        (Kind::Text | Kind::Bytes, 35) => matches!(bytes, b"now" | b"realtime"),
        (Kind::Text | Kind::Bytes, 36) => {
            bytes.len() <= 50
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        }
        (Kind::Text | Kind::Bytes, 40) => {
            bytes.iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0)
        }
        (Kind::Text | Kind::Bytes, 90) => matches!(bytes, b"none" | b"log_file" | b"network_lossy"),
        // The directory of trace files may be left out: then it is the current one.
        (Kind::Text | Kind::Bytes, 30) => true,
        (Kind::Text | Kind::Bytes, _) => value.is_some(),
    };
    if valid { Ok(()) } else { Err(Error::invalid_option_value()) }
}

/// Sets the options that the environment names, the first time it is called.
///
/// # Errors
/// `environment_variable_network_option_failed`, every time, if one of them is not valid.
pub(crate) fn of_environment() -> Result<()> {
    static RESULT: OnceLock<bool> = OnceLock::new();
    let valid = *RESULT.get_or_init(|| {
        let visible = ALL.iter().filter(|(code, ..)| *code < 1000);
        visible.into_iter().all(|(code, name, kind)| {
            let variable = format!("FDB_NETWORK_OPTION_{}", name.to_ascii_uppercase());
            let Ok(values) = std::env::var(variable) else { return true };
            split(&values).iter().all(|value| set_text(*code, *kind, value).is_ok())
        })
    });
    if valid { Ok(()) } else { Err(Error::environment_variable_network_option_failed()) }
}

fn set_text(code: i32, kind: Kind, text: &str) -> Result<()> {
    match kind {
        Kind::Int => {
            let number: i64 = text.parse().map_err(|_| Error::invalid_option_value())?;
            set(code, Some(&number.to_le_bytes()))
        }
        Kind::None => set(code, None),
        Kind::Text | Kind::Bytes => set(code, Some(text.as_bytes())),
    }
}

/// The values of a variable: separated by colons, with a backslash before what is meant as it
/// stands.
fn split(values: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = values.chars();
    while let Some(letter) = letters.next() {
        match (letter, parts.last_mut()) {
            (':', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.extend(letters.next()),
            (_, Some(part)) => part.push(letter),
            (_, None) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_environment_are_split_at_colons() {
        assert_eq!(split("a:b\\:c:"), ["a", "b:c", ""]);
    }

    #[test]
    fn options_are_validated() {
        let ok = |code, value: Option<&[u8]>| set(code, value).map_err(|error| error.code());
        assert_eq!(ok(12345, None), Err(2007));
        assert_eq!(ok(34, Some(b"json")), Ok(()));
        assert_eq!(ok(34, Some(b"yaml")), Err(2006));
        assert_eq!(ok(31, Some(&(-1_i64).to_le_bytes())), Err(2006));
        assert_eq!(ok(31, Some(b"1234")), Err(2006));
        assert_eq!(ok(37, Some(b"x")), Err(2006));
        assert_eq!(ok(37, Some(b"")), Ok(()));
        assert_eq!(ok(40, Some(b"knob")), Err(2006));
        assert_eq!(ok(40, Some(b"knob=1")), Ok(()));
        assert_eq!(ok(62, Some(b"/no/such/library.so")), Err(1511));
    }

    #[test]
    fn certificates_are_kept_for_connections_that_need_them() {
        for (code, value) in
            [(42, "a"), (43, "b.crt"), (46, "b.key"), (52, "c"), (47, "S.O=a"), (47, "S.O=b")]
        {
            set(code, Some(value.as_bytes())).unwrap();
        }
        let tls = tls();
        assert_eq!(tls.certificate, Some(Source::File("b.crt".into())), "the last one counts");
        assert_eq!(tls.key, Some(Source::File("b.key".into())));
        assert_eq!(tls.authorities, Some(Source::Bytes(b"c".to_vec())));
        assert_eq!(tls.verify_peers, ["S.O=a", "S.O=b"]);
    }
}
