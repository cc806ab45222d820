//! Object stores by the URLs that people write: `s3://`, `gs://`, `az://`, and FoundationDB's
//! `blobstore://`.
//!
//! Where a URL has no credentials they come from the environment, as each cloud's own tools have
//! it, or from files of credentials.

use super::super::Target;
use super::http::{Connector, Patience, Trouble};
use super::{Store, accounts};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ObjectStore, RetryConfig};
use plinth_env::Env;
use plinth_types::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const SCHEMES: [&str; 4] = ["s3", "gs", "az", "blobstore"];

/// FoundationDB's parameters that mean nothing here: how many requests at a time, at which pace.
const IGNORED: [&str; 42] = [
    "connect_tries",
    "ct",
    "max_connection_life",
    "mcl",
    "requests_per_second",
    "rps",
    "list_requests_per_second",
    "lrps",
    "write_requests_per_second",
    "wrps",
    "read_requests_per_second",
    "rrps",
    "delete_requests_per_second",
    "drps",
    "multipart_max_part_size",
    "maxps",
    "multipart_min_part_size",
    "minps",
    "concurrent_requests",
    "cr",
    "concurrent_uploads",
    "cu",
    "concurrent_lists",
    "cl",
    "concurrent_reads_per_file",
    "crpf",
    "concurrent_writes_per_file",
    "cwpf",
    "enable_read_cache",
    "erc",
    "read_block_size",
    "rbs",
    "read_ahead_blocks",
    "rab",
    "read_cache_blocks_per_file",
    "rcb",
    "max_send_bytes_per_second",
    "sbps",
    "max_recv_bytes_per_second",
    "rbps",
    "global_connection_pool",
    "gcp",
];

/// Whether a URL of this scheme names an object store.
pub(in crate::target) fn is_store(scheme: &str) -> bool {
    SCHEMES.contains(&scheme)
}

/// A URL in its parts.
struct Parts<'u> {
    scheme: &'u str,
    /// What stands before the `@`.
    user: Option<&'u str>,
    host: &'u str,
    path: &'u str,
    params: Vec<(&'u str, &'u str)>,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::backup_invalid_url().with_detail(what.into())
}

impl<'u> Parts<'u> {
    fn of(scheme: &'u str, rest: &'u str) -> Result<Self> {
        // A secret may have anything in it. What could be a part of one is quoted in no error.
        let (user, rest) = match rest.rsplit_once('@') {
            Some(_) if scheme != "blobstore" => {
                let what = "credentials don't go into such URLs: they come from the environment, and '@' is in no name";
                return Err(wrong(format!("{scheme}://: {what}")));
            }
            Some((user, rest)) => (Some(user), rest),
            None => (None, rest),
        };
        let quoted = |text: &str| {
            if user.is_some() { "what it has".to_owned() } else { format!("{text:?}") }
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        check_host(scheme, host)?;
        let mut params = Vec::new();
        for param in query.split('&').filter(|param| !param.is_empty()) {
            let pair = param.split_once('=');
            let no_pair = || wrong(format!("{} is no parameter: name=value", quoted(param)));
            params.push(pair.ok_or_else(no_pair)?);
        }
        let path = path.trim_matches('/');
        if path.split('/').any(|part| [".", ".."].contains(&part)) {
            return Err(wrong(format!("{} is no place in a store", quoted(place))));
        }
        Ok(Self { scheme, user, host, path, params })
    }

    fn param(&self, names: &[&str]) -> Option<&'u str> {
        self.params.iter().find(|(name, _)| names.contains(name)).map(|(_, value)| *value)
    }

    fn number(&self, names: &[&str]) -> Result<Option<u64>> {
        let Some(text) = self.param(names) else { return Ok(None) };
        let shown = if self.user.is_some() { ".." } else { text };
        text.parse()
            .map(Some)
            .map_err(|_| wrong(format!("{}={shown}: a number is wanted", names[0])))
    }

    /// Refuses parameters that are none of these.
    fn only(&self, names: &[&str]) -> Result<()> {
        match self.params.iter().find(|(name, _)| !names.contains(name) && !PATIENCE.contains(name))
        {
            None => Ok(()),
            Some(_) if self.user.is_some() => {
                Err(wrong(format!("the URL has a parameter that {}:// hasn't", self.scheme)))
            }
            Some((name, _)) => Err(wrong(format!("{}:// has no parameter {name}", self.scheme))),
        }
    }

    fn patience(&self) -> Result<Patience> {
        let mut patience = Patience::default();
        if let Some(seconds) = self.number(&["connect_timeout", "cto"])? {
            patience.connect = Duration::from_secs(seconds.max(1));
        }
        if let Some(seconds) = self.number(&["request_timeout_min", "rtom", "request_timeout"])? {
            patience.request = Duration::from_secs(seconds.max(1));
        }
        if let Some(tries) = self.number(&["request_tries", "rt"])? {
            patience.tries = u32::try_from(tries).unwrap_or(u32::MAX).max(1);
        }
        Ok(patience)
    }
}

/// Refuses what looks like credentials without the `@` behind them.
fn check_host(scheme: &str, host: &str) -> Result<()> {
    match host.rsplit_once(':') {
        None => Ok(()),
        Some(_) if scheme != "blobstore" => Err(wrong(format!(
            "{scheme}://: a bucket has no ':' in its name, and credentials don't go here"
        ))),
        Some((_, port)) if port.ends_with(']') || port.parse::<u16>().is_ok() => Ok(()),
        Some(_) => Err(wrong("blobstore:// has no host and port: key:secret@host:port is wanted")),
    }
}

const PATIENCE: [&str; 7] = [
    "connect_timeout",
    "cto",
    "request_timeout_min",
    "rtom",
    "request_timeout",
    "request_tries",
    "rt",
];

/// Tries are the connector's: it has the store's own word when to come again.
fn no_tries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// The target that a URL names. `files` are files of credentials.
///
/// # Errors
/// `backup_invalid_url`, saying what is wrong.
pub(in crate::target) async fn named(
    env: &Env,
    scheme: &str,
    rest: &str,
    files: &[PathBuf],
) -> Result<Arc<dyn Target>> {
    let parts = Parts::of(scheme, rest)?;
    if parts.host.is_empty() {
        return Err(wrong(format!("{scheme}:// wants a bucket behind it")));
    }
    let trouble = Trouble::default();
    let (told, patience) = (trouble.clone(), parts.patience()?);
    let connector = Connector { env: env.clone(), patience, trouble: told };
    let refused = |error: object_store::Error| wrong(format!("{scheme}://{}: {error}", parts.host));
    let shown = super::super::redacted::redacted(&format!("{scheme}://{rest}"));
    let (inner, prefix, secrets): (Arc<dyn ObjectStore>, &str, Vec<String>) = match scheme {
        "s3" => {
            parts.only(&["region", "endpoint"])?;
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(parts.host);
            if let Some(region) = parts.param(&["region"]) {
                builder = builder.with_region(region);
            }
            if let Some(endpoint) = parts.param(&["endpoint"]) {
                builder = builder
                    .with_endpoint(endpoint)
                    .with_allow_http(endpoint.starts_with("http://"));
            }
            (Arc::new(s3(builder, connector).map_err(refused)?), parts.path, Vec::new())
        }
        "gs" => {
            parts.only(&[])?;
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(parts.host);
            let built = builder.with_retry(no_tries()).with_http_connector(connector).build();
            (Arc::new(built.map_err(refused)?), parts.path, Vec::new())
        }
        "az" => {
            parts.only(&[])?;
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(parts.host);
            let built = builder.with_retry(no_tries()).with_http_connector(connector).build();
            (Arc::new(built.map_err(refused)?), parts.path, Vec::new())
        }
        _ => {
            let (builder, secrets) = blobstore(env, &parts, files).await?;
            (Arc::new(s3(builder, connector).map_err(refused)?), parts.path, secrets)
        }
    };
    let store = Store::new(inner, prefix, shown).hiding(secrets).telling(trouble);
    Ok(Arc::new(store.lacking(lacking(scheme, |name| std::env::var_os(name).is_some()))))
}

/// The environment's variables by any of which a store is told who asks.
const CREDENTIALS: [(&str, &[&str]); 3] = [
    (
        "s3",
        &[
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_SKIP_SIGNATURE",
        ],
    ),
    (
        "gs",
        &[
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_SKIP_SIGNATURE",
        ],
    ),
    (
        "az",
        &[
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_CLIENT_SECRET",
            "AZURE_CLIENT_SECRET",
            "AZURE_STORAGE_TOKEN",
            "AZURE_FEDERATED_TOKEN_FILE",
            "AZURE_STORAGE_USE_EMULATOR",
            "AZURE_SKIP_SIGNATURE",
        ],
    ),
];

/// What is added to a store's messages where the environment has no credentials for it, so that it
/// is asked with those of the machine, if that has any.
fn lacking(scheme: &str, is_set: impl Fn(&str) -> bool) -> Option<String> {
    let (_, names) = CREDENTIALS.iter().find(|(known, _)| *known == scheme)?;
    let none = !names.iter().any(|name| is_set(name));
    none.then(|| {
        format!(
            "; none of {} is set, so the credentials are the machine's own, if it has any",
            names.join(", ")
        )
    })
}

fn s3(
    builder: AmazonS3Builder,
    connector: Connector,
) -> object_store::Result<object_store::aws::AmazonS3> {
    builder
        .with_retry(no_tries())
        .with_disable_bulk_delete(true)
        .with_http_connector(connector)
        .build()
}

/// FoundationDB's `blobstore://[key[:secret[:token]]@]host[:port]/name?bucket=B&region=R`.
async fn blobstore(
    env: &Env,
    parts: &Parts<'_>,
    files: &[PathBuf],
) -> Result<(AmazonS3Builder, Vec<String>)> {
    let known: Vec<&str> =
        [&IGNORED[..], &["bucket", "region", "secure_connection", "sc", "sdk_auth", "sa"]].concat();
    parts.only(&known)?;
    let bucket = parts
        .param(&["bucket"])
        .ok_or_else(|| wrong("blobstore:// wants a parameter bucket=NAME"))?;
    if parts.path.is_empty() {
        return Err(wrong(
            "blobstore:// wants the name of a backup behind the host: blobstore://host/NAME?bucket=..",
        ));
    }
    let is_secure = parts.number(&["secure_connection", "sc"])? != Some(0);
    let endpoint = format!("{}://{}", if is_secure { "https" } else { "http" }, parts.host);
    let user = parts.user.unwrap_or_default();
    let mut words = user.splitn(3, ':');
    let mut next = || words.next().unwrap_or_default().to_owned();
    let mut account = accounts::Account { key: next(), secret: next(), token: next() };
    let from_environment = parts.user.is_none() || parts.number(&["sdk_auth", "sa"])? == Some(1);
    let mut builder = match from_environment {
        true => AmazonS3Builder::from_env(),
        false => AmazonS3Builder::new(),
    };
    if !from_environment {
        if account.secret.is_empty() {
            account = accounts::find(env, files, &account.key, parts.host).await?;
        }
        builder = builder.with_access_key_id(&account.key).with_secret_access_key(&account.secret);
        if !account.token.is_empty() {
            builder = builder.with_token(&account.token);
        }
    }
    if let Some(region) = parts.param(&["region"]) {
        builder = builder.with_region(region);
    }
    let builder =
        builder.with_bucket_name(bucket).with_endpoint(endpoint).with_allow_http(!is_secure);
    Ok((builder, vec![account.secret, account.token]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever had forgotten them read of a service at 169.254.169.254 that refused him.
    #[test]
    fn it_is_said_where_credentials_were_looked_for() {
        for (scheme, names) in CREDENTIALS {
            let told = lacking(scheme, |_| false).unwrap();
            assert!(names.iter().all(|name| told.contains(name)), "{told}");
            assert!(names.iter().all(|name| lacking(scheme, |set| set == *name).is_none()));
        }
        assert_eq!(lacking("blobstore", |_| false), None, "they are in the URL, or in a file");
    }
}
