//! Workloads by name: the built-in ones, and those that a program of somebody else's brings along.
//!
//! A spec names its workloads, so whoever reads one must know them. What is registered here is
//! known to the specs that are read through it, beside the built-in ones.

use super::Workload;
use crate::draw::Draw;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

type Make = dyn Fn(&mut Draw<'_>) -> Arc<dyn Workload> + Send + Sync;

/// Workloads of your own, by the names that specs call them:
/// `Workloads::default().with("queue", Queue::new)`.
#[derive(Clone, Default)]
pub struct Workloads {
    own: BTreeMap<String, Arc<Make>>,
}

impl Workloads {
    /// With one more. `make` is called at the beginning of each run; what it asks of the [`Draw`]
    /// are the parameters that specs may give. The later one counts of two with the same name;
    /// names of built-in workloads are refused when a spec is read.
    #[must_use]
    pub fn with<W: Workload + 'static>(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&mut Draw<'_>) -> W + Send + Sync + 'static,
    ) -> Self {
        self.own.insert(name.into(), Arc::new(move |draw| Arc::new(make(draw))));
        self
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.own.keys().map(String::as_str)
    }

    pub(super) fn make(&self, name: &str, draw: &mut Draw<'_>) -> Option<Arc<dyn Workload>> {
        self.own.get(name).map(|make| make(draw))
    }
}

impl fmt::Debug for Workloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
