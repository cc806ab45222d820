//! A cluster file with one address may be that of one server of several, which another one leads.
//!
//! Such a client asks its server alone, as it would one that is all there is, until that says that
//! it doesn't lead (1037). Then it is asked who the others are, and from then on all of them are
//! asked what each can answer; the cluster file is made to name those who vote. One that is alone
//! in its cluster and doesn't lead for a moment is asked again with the next refusal.

use super::Core;
use super::cluster::Cluster;
use super::slots::Answer;
use plinth_env::reply::promise;
use plinth_proto::frame::Kind;
use plinth_proto::request;
use plinth_types::Located;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// What becomes of what waits for an answer while there is no connection.
#[derive(Clone)]
pub(super) enum Lost {
    /// It is given up, since others may be asked.
    GivesUp,
    /// It waits. Of others somebody may find out.
    Waits(Option<Arc<Scout>>),
}

/// Finds out whether there are other servers.
#[derive(Default)]
pub(super) struct Scout {
    core: OnceLock<Weak<Core>>,
    cluster: OnceLock<Arc<Cluster>>,
    /// Whether the server has been asked, and hasn't answered.
    is_out: AtomicBool,
    is_over: AtomicBool,
}

impl Scout {
    /// One who knows already.
    pub fn of(cluster: Arc<Cluster>) -> Self {
        Self { cluster: OnceLock::from(cluster), ..Self::default() }
    }

    /// Has it ask by these connections.
    pub fn serve(&self, core: &Arc<Core>) {
        let _ = self.core.set(Arc::downgrade(core));
    }

    /// The servers, once several are known of.
    #[inline]
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.get()
    }

    /// Asks who the others are, unless that is known or being asked.
    pub fn go(self: &Arc<Self>) {
        let Some(core) = self.core.get().and_then(Weak::upgrade) else { return };
        if self.cluster.get().is_some() || self.is_out.swap(true, Ordering::AcqRel) {
            return;
        }
        let (promise, reply) = promise();
        core.link()
            .submit(Answer::Located(promise), |out, id| request::empty(out, id, Kind::Locate));
        let (scout, core) = (self.clone(), Arc::downgrade(&core));
        reply.on_complete(move |located| {
            if let (Ok(located), Some(core)) = (located, core.upgrade()) {
                scout.learn(&core, &located);
            }
            scout.is_out.store(false, Ordering::Release);
        });
    }

    fn learn(&self, core: &Core, located: &Located) {
        if located.term == 0 || located.members.len() < 2 {
            return;
        }
        let connect = || Cluster::connect(&core.env, &core.file, &core.options, &core.database);
        let cluster = self.cluster.get_or_init(connect);
        if self.is_over.load(Ordering::Acquire) {
            cluster.close();
        }
    }

    /// Nobody asks for anything any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(cluster) = self.cluster() {
            cluster.close();
        }
    }
}
