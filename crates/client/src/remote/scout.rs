//! A cluster file with one address may be that of one server of several.
//!
//! Such a client asks its server alone, as it would one that is all there is, until it knows of
//! others: from then on all of them are asked what each can answer, and the cluster file is made to
//! name those who vote, so that the client gets on without the server that its file named. The
//! server is asked who they are with each connection, when it says that it doesn't lead (1037), and
//! now and then while it is the only one of a cluster, which may get others at any time.

use super::Core;
use super::cluster::Cluster;
use super::slots::Answer;
use plinth_env::reply::promise;
use plinth_proto::frame::Kind;
use plinth_proto::request;
use plinth_types::Located;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long after a server was the only one of its cluster it is asked again.
const AGAIN: Duration = Duration::from_secs(5);

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
    /// Whether it will be asked again.
    is_due: AtomicBool,
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
        core.link().submit(None, Answer::Located(promise), |out, id| {
            request::empty(out, id, Kind::Locate)
        });
        let (scout, core) = (self.clone(), Arc::downgrade(&core));
        reply.on_complete(move |located| {
            if let (Ok(located), Some(core)) = (located, core.upgrade()) {
                scout.learn(&core, &located);
                // One that is no member of a cluster becomes none while it runs.
                if located.term > 0 {
                    scout.go_again(&core);
                }
            }
            scout.is_out.store(false, Ordering::Release);
        });
    }

    /// Asks once more, later, unless several servers are known by now.
    fn go_again(self: &Arc<Self>, core: &Core) {
        if self.cluster.get().is_some() || self.is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let (scout, env) = (Arc::downgrade(self), core.env.clone());
        drop(core.env.spawn_network("scout", async move {
            env.sleep(AGAIN).await;
            if let Some(scout) = scout.upgrade() {
                scout.is_due.store(false, Ordering::Release);
                scout.go();
            }
        }));
    }

    fn learn(&self, core: &Core, located: &Located) {
        if located.term == 0 || located.members.len() < 2 {
            return;
        }
        let connect =
            || Cluster::connect(&core.env, core.target.given(), &core.options, &core.database);
        let cluster = self.cluster.get_or_init(connect);
        // The file's one address is that of whoever said so. Nobody may ask for anything for long,
        // and the file is to name the others by then.
        cluster.note(0, located);
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

/// One whom somebody needs: it ends with the last of those.
pub(super) struct Needed(Arc<Scout>);

impl Needed {
    pub fn new(scout: Arc<Scout>) -> Arc<Self> {
        Arc::new(Self(scout))
    }

    /// The servers, once several are known of.
    #[inline]
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.0.cluster()
    }
}

impl Drop for Needed {
    fn drop(&mut self) {
        self.0.end();
    }
}
