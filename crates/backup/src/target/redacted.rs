//! URLs without what nobody may see.

/// A URL as people may see it: without the secret and the token that stand before its last `@`.
/// They have no place in URLs other than FoundationDB's, but are hidden there, too. A path is no
/// such URL.
pub fn redacted(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let (user, place) = rest.rsplit_once('@')?;
        let key = user.split(':').next().unwrap_or_default();
        Some(format!("{scheme}://{key}@{place}"))
    };
    hidden().filter(|_| !url.starts_with("file://")).unwrap_or_else(|| url.to_owned())
}
