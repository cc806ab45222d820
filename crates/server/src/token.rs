//! Secrets that HTTP asks for: where they stand, how they are compared, and by which names a
//! machine is called that only itself can reach.
//!
//! A token is read from a file, which gets one if it doesn't exist. Comparing says nothing by the
//! time that it takes, and a wrong token has to wait for its answer.

use plinth_env::{Env, Open};
use plinth_types::{Error, Result};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// A shorter token could be guessed.
const SHORTEST_TOKEN: usize = 16;
/// A longer one doesn't fit into a login.
pub(crate) const LONGEST_TOKEN: usize = 2 << 10;
/// How long a wrong token waits for its answer.
pub(crate) const PENANCE: Duration = Duration::from_millis(300);

/// The token in a file, which gets one if it doesn't exist.
pub(crate) async fn read(env: &Env, file: &Path) -> Result<String> {
    if !env.files().exists(file).await? {
        let token = random(env);
        let made = env.files().open(file, Open::CreatePrivate).await?;
        made.write_all_at(0, format!("{token}\n").as_bytes()).await?;
        made.sync_all().await?;
        return Ok(token);
    }
    let refused = |why: &str| {
        Error::client_invalid_operation()
            .with_detail(format!("the token in {}: {why}", file.display()))
    };
    let text =
        String::from_utf8(env.files().read(file).await?).map_err(|_| refused("is no text"))?;
    let token = text.trim();
    if token.len() < SHORTEST_TOKEN || token.len() > LONGEST_TOKEN {
        return Err(refused(&format!(
            "has {} characters; at least {SHORTEST_TOKEN} are wanted",
            token.len()
        )));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused("has characters that a header can't carry"));
    }
    Ok(token.to_owned())
}

/// 256 random bits, as hexadecimal digits.
pub(crate) fn random(env: &Env) -> String {
    (0..4).map(|_| format!("{:016x}", env.random_u64())).collect()
}

/// Whether two secrets are the same, in a time that says nothing of where they differ.
pub(crate) fn is_same(given: &str, secret: &str) -> bool {
    let (given, secret) = (given.as_bytes(), secret.as_bytes());
    if given.len() != secret.len() {
        return false;
    }
    let differing =
        given.iter().zip(secret).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
    std::hint::black_box(differing) == 0
}

/// Whether a Host is one by which only this machine is called, whatever the port: it may be a
/// tunnel's.
pub(crate) fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names_are_local_and_no_others() {
        for host in [
            "localhost",
            "LOCALHOST:9",
            "127.0.0.1",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "127.8.8.8",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            "localhost.evil.org",
            "evil.org:8080",
            "127.0.0.1.evil.org",
            "10.0.0.1",
            "[::2]",
            "[",
            "::1",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(is_same("abc", "abc") && is_same("", ""));
        assert!(!is_same("abc", "abd") && !is_same("abc", "ab") && !is_same("xbc", "abc"));
    }
}
