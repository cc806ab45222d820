//! What a directory's methods give: something to await, or to wait for.

use super::Directory;
use super::layer::{Layer, Request};
use plinth_client::Transaction;
use plinth_types::{Bytes, Result};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An operation on directories under way. It does nothing unless it is awaited, or waited for.
#[must_use = "nothing happens unless it is awaited, or waited for"]
pub struct Operation<'a, T>(Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>);

impl<'a, T> Operation<'a, T> {
    pub(super) fn new(future: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Self(Box::pin(future))
    }

    /// Parks the thread until the operation is done.
    ///
    /// # Errors
    /// The operation's own.
    pub fn wait(self) -> Result<T> {
        plinth_env::block_on(self)
    }
}

impl<T> Future for Operation<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.0.as_mut().poll(context)
    }
}

/// A directory about to be opened or created: await it, or say more about it first.
#[must_use = "nothing happens unless it is awaited, or waited for"]
pub struct Open<'a> {
    home: Arc<Layer>,
    tr: &'a Transaction,
    path: Vec<String>,
    request: Request,
}

impl<'a> Open<'a> {
    pub(super) fn new(
        home: Arc<Layer>,
        tr: &'a Transaction,
        path: Vec<String>,
        request: Request,
    ) -> Self {
        Self { home, tr, path, request }
    }

    /// What the directory is for. It is recorded with a new directory; one that exists must have
    /// the same, or the operation fails with `mismatched_layer`. [`PARTITION`](super::PARTITION)
    /// makes a partition. Empty: any will do.
    pub fn layer(mut self, layer: impl AsRef<[u8]>) -> Self {
        self.request.layer = Bytes::copy_from_slice(layer.as_ref());
        self
    }

    /// The prefix of a new directory's keys, in place of one that is chosen. Only where manual
    /// prefixes are allowed, else the operation fails with `manual_prefixes_not_enabled`, or
    /// `prefix_in_partition` below a partition; a prefix that begins another one in use, or begins
    /// with it, fails with `directory_prefix_in_use`.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.request.prefix = Some(Bytes::copy_from_slice(prefix.as_ref()));
        self
    }

    /// Parks the thread until the directory is open.
    ///
    /// # Errors
    /// The operation's own.
    pub fn wait(self) -> Result<Directory> {
        self.into_future().wait()
    }
}

impl<'a> IntoFuture for Open<'a> {
    type Output = Result<Directory>;
    type IntoFuture = Operation<'a, Directory>;

    fn into_future(self) -> Operation<'a, Directory> {
        let Self { home, tr, path, request } = self;
        Operation::new(async move { home.open(tr, path, request).await })
    }
}
