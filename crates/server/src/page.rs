//! A page of text that others give a server, to be shown with its own.

use std::sync::Arc;

/// Text made anew for each request, such as a node's measurements.
#[derive(Clone)]
pub struct Page(Arc<dyn Fn() -> String + Send + Sync>);

impl Page {
    /// The page that `make` gives.
    pub fn new(make: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn text(&self) -> String {
        (self.0)()
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Page")
    }
}
