//! An object store as a target: S3 and what speaks its language, Google's and Azure's, and one in
//! memory for tests.
//!
//! ```text
//!   Target ──▶ Store ──▶ object_store: requests, signatures ──▶ http.rs: sockets of `env`, TLS, tries ──▶ the store
//!                └ large objects go up in parts, which are an object once the last request says so
//! ```
//! Always: an object is there whole or not at all, whatever is cut off; what a request may have
//! done before its answer was lost is found out, not guessed; credentials stand in no name, no
//! error and no log.

mod accounts;
mod http;
mod urls;

use super::{Doing, Object, Target};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions,
    PutPayload,
};
use plinth_types::{Error, Result};
use std::sync::Arc;

pub(super) use urls::{is_store, named};

/// Larger objects go up in parts of so many bytes.
const PART: usize = 8 << 20;

/// A place in an object store.
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// What stands before all names: empty, or parts without a slash at either end.
    prefix: String,
    url: String,
    /// What no message may have in it.
    secrets: Vec<String>,
    /// Where credentials were looked for, if none were found there.
    lacking: Option<String>,
    trouble: http::Trouble,
}

/// Where a machine in a cloud is asked for credentials of its own.
const OF_THE_MACHINE: [&str; 3] = ["169.254.", "metadata.google.internal", "[fd00:ec2::254]"];

impl Store {
    /// An empty store in memory, for tests.
    #[cfg(any(test, feature = "conformance"))]
    pub fn in_memory(prefix: &str) -> Self {
        Self::new(
            Arc::new(object_store::memory::InMemory::new()),
            prefix,
            format!("memory://{prefix}"),
        )
    }

    /// The place below `prefix` of a store, which is called `url` where people see it.
    fn new(inner: Arc<dyn ObjectStore>, prefix: &str, url: impl Into<String>) -> Self {
        Self {
            inner,
            prefix: prefix.trim_matches('/').to_owned(),
            url: url.into(),
            secrets: Vec::new(),
            lacking: None,
            trouble: http::Trouble::default(),
        }
    }

    /// One whose requests tell here why they are tried again.
    fn telling(mut self, trouble: http::Trouble) -> Self {
        self.trouble = trouble;
        self
    }

    /// One that no credentials were found for: without them its messages are about what the machine
    /// itself may do, which few of those who read them had in mind.
    fn lacking(mut self, credentials: Option<String>) -> Self {
        self.lacking = credentials;
        self
    }

    fn hiding(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.secrets.extend(secrets.into_iter().filter(|secret| !secret.is_empty()));
        self
    }

    fn path(&self, name: &str) -> Path {
        match self.prefix.is_empty() {
            true => Path::from(name),
            false => Path::from(format!("{}/{name}", self.prefix)),
        }
    }

    fn failed(&self, name: &str, error: object_store::Error) -> Error {
        let said = self.said(&error);
        let is_refused = matches!(
            error,
            object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
        );
        // What credentials have nothing to do with needs no word about them.
        let is_about_them = is_refused || OF_THE_MACHINE.iter().any(|host| said.contains(host));
        let lacking = self.lacking.as_deref().filter(|_| is_about_them).unwrap_or_default();
        let detail = format!("{name} in {}: {said}{lacking}", self.url);
        match error {
            object_store::Error::NotFound { .. } => {
                Error::file_not_found().with_detail(format!("there is no {name} in {}", self.url))
            }
            _ if is_refused => Error::permission_denied().with_detail(detail),
            _ => Error::connection_failed().with_detail(detail),
        }
    }

    /// What the store said, in a line, without secrets. Answers in XML are cut to their code and
    /// message: the rest repeats the request.
    fn said(&self, error: &object_store::Error) -> String {
        let text = error.to_string();
        let head =
            text.split(['<', '\n']).next().unwrap_or_default().trim_end_matches([' ', ':', '-']);
        let mut said = head.to_owned();
        for tag in ["Code", "Message"] {
            let begin = text.split_once(&format!("<{tag}>")).map(|(_, rest)| rest);
            if let Some((inner, _)) = begin.and_then(|rest| rest.split_once(&format!("</{tag}>"))) {
                said = format!("{said}: {inner}");
            }
        }
        self.secrets.iter().fold(said, |said, secret| said.replace(secret, "***"))
    }

    async fn put_whole(&self, name: &str, contents: Bytes) -> Result<()> {
        let path = self.path(name);
        if contents.len() > PART {
            return self.put_in_parts(name, &path, contents).await;
        }
        let put = self
            .inner
            .put_opts(&path, PutPayload::from_bytes(contents), PutOptions::default())
            .await;
        put.map(drop).map_err(|error| self.failed(name, error))
    }

    async fn put_in_parts(&self, name: &str, path: &Path, contents: Bytes) -> Result<()> {
        let failed = |error| self.failed(name, error);
        let upload = self.inner.put_multipart_opts(path, PutMultipartOptions::default()).await;
        let mut upload = upload.map_err(failed)?;
        let mut at = 0;
        while at < contents.len() {
            let part = contents.slice(at..contents.len().min(at + PART));
            at += part.len();
            if let Err(error) = upload.put_part(PutPayload::from_bytes(part)).await {
                // What went up is no object. If this can't be said either, the store's rules remove
                // it one day.
                let _ = upload.abort().await;
                return Err(failed(error));
            }
        }
        match upload.complete().await {
            Ok(_) => Ok(()),
            Err(error) => {
                // The answer to a try that did it may have been lost, and then there is no such
                // upload any more.
                let found = self.inner.head(path).await;
                if found.is_ok_and(|found| found.size == contents.len() as u64)
                    && self.read(name, None).await.is_ok_and(|found| found == contents)
                {
                    return Ok(());
                }
                let _ = upload.abort().await;
                Err(failed(error))
            }
        }
    }

    async fn put_new(&self, name: &str, contents: Bytes) -> Result<bool> {
        let (path, payload) = (self.path(name), PutPayload::from_bytes(contents.clone()));
        let put = self.inner.put_opts(&path, payload, PutOptions::from(PutMode::Create)).await;
        match put {
            Ok(_) => Ok(true),
            // Whose it is tells: the answer to a try that put it may have been lost.
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => match self.read(name, None).await {
                Ok(found) => Ok(found == contents),
                Err(error) if error == Error::file_not_found() => Ok(false),
                Err(error) => Err(error),
            },
            Err(
                object_store::Error::NotImplemented { .. }
                | object_store::Error::NotSupported { .. },
            ) => self.put_if_absent(name, contents).await,
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// For stores that know no condition: of two who do this at the same time the later one finds
    /// out when it reads.
    async fn put_if_absent(&self, name: &str, contents: Bytes) -> Result<bool> {
        match self.read(name, Some(1)).await {
            Ok(_) => return Ok(false),
            Err(error) if error != Error::file_not_found() => return Err(error),
            Err(_) => {}
        }
        self.put_whole(name, contents.clone()).await?;
        Ok(self.read(name, None).await? == contents)
    }

    async fn read(&self, name: &str, most: Option<u64>) -> Result<Bytes> {
        let (path, failed) = (self.path(name), |error| self.failed(name, error));
        if most == Some(0) {
            return self.inner.head(&path).await.map(|_| Bytes::new()).map_err(failed);
        }
        let range = most.map(|most| GetRange::Bounded(0..most));
        let got =
            match self.inner.get_opts(&path, GetOptions { range, ..GetOptions::default() }).await {
                Ok(found) => found.bytes().await,
                Err(error) => Err(error),
            };
        match got {
            Ok(found) => Ok(found),
            // An empty object has no first bytes, which is an error to some stores.
            Err(error) if most.is_some() => match self.inner.head(&path).await {
                Ok(found) if found.size == 0 => Ok(Bytes::new()),
                Err(absent @ object_store::Error::NotFound { .. }) => Err(failed(absent)),
                _ => Err(failed(error)),
            },
            Err(error) => Err(failed(error)),
        }
    }

    async fn list_below(&self, prefix: &str) -> Result<Vec<Object>> {
        let below = format!("{}/{prefix}", self.prefix);
        let below = below.trim_matches('/');
        let path = (!below.is_empty()).then(|| Path::from(below));
        let mut stream = self.inner.list(path.as_ref());
        // As the store writes it, which is in another way where it is odd.
        let own = Path::from(&*self.prefix);
        let mut found = Vec::new();
        while let Some(meta) =
            std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await
        {
            let meta = meta.map_err(|error| self.failed(prefix, error))?;
            let name = meta.location.as_ref();
            let name = match self.prefix.is_empty() {
                true => Some(name),
                false => name.strip_prefix(own.as_ref()).and_then(|rest| rest.strip_prefix('/')),
            };
            let name = name.ok_or_else(|| {
                let detail =
                    format!("the listing of {prefix} in {} has {}", self.url, meta.location);
                Error::connection_failed().with_detail(detail)
            })?;
            found.push(Object { name: name.to_owned(), len: meta.size });
        }
        found.sort();
        Ok(found)
    }
}

impl Target for Store {
    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, ()> {
        Box::pin(self.put_whole(name, contents))
    }

    fn create<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, bool> {
        Box::pin(self.put_new(name, contents))
    }

    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Bytes> {
        Box::pin(self.read(name, None))
    }

    fn get_begin<'a>(&'a self, name: &'a str, len: usize) -> Doing<'a, Bytes> {
        Box::pin(self.read(name, Some(len as u64)))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<Object>> {
        Box::pin(self.list_below(prefix))
    }

    fn delete<'a>(&'a self, name: &'a str) -> Doing<'a, ()> {
        Box::pin(async move {
            match self.inner.delete(&self.path(name)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed(name, error)),
            }
        })
    }

    /// A store shows what it has.
    fn settle<'a>(&'a self, _prefix: &'a str) -> Doing<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    fn trouble(&self) -> Option<String> {
        http::lock(&self.trouble).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that couldn't be reached was told with a list of variables that aren't set.
    #[test]
    fn credentials_are_spoken_of_where_they_may_be_missed_and_nowhere_else() {
        let store = Store::in_memory("shop").lacking(Some("; none of KEY is set".into()));
        let source = |text: &str| Box::<dyn std::error::Error + Send + Sync>::from(text);
        let generic =
            |text: &str| object_store::Error::Generic { store: "S3", source: source(text) };
        let path = || "shop/a".to_owned();
        let machine = "performing PUT http://169.254.169.254/latest/api/token: took too long";
        for (error, is_told) in [
            (object_store::Error::PermissionDenied { path: path(), source: source("403") }, true),
            (object_store::Error::Unauthenticated { path: path(), source: source("401") }, true),
            (generic(machine), true),
            (generic("performing GET http://10.0.0.1:9000/shop/a: connection refused"), false),
            (generic("performing GET http://10.0.0.1:9000/shop/a: 500"), false),
            (object_store::Error::NotFound { path: path(), source: source("404") }, false),
        ] {
            let told = store.failed("a", error).to_string();
            assert_eq!(told.contains("none of KEY is set"), is_told, "{told}");
        }
    }
}
