//! URLs without what nobody may see.

/// A URL as people may see it: without the secret and the token that stand before the `@` of one of FoundationDB's.
pub fn redacted(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let (user, place) = rest.split_once('@')?;
        let key = user.split(':').next().unwrap_or_default();
        Some(format!("{scheme}://{key}@{place}"))
    };
    hidden().filter(|_| url.starts_with("blobstore://")).unwrap_or_else(|| url.to_owned())
}
