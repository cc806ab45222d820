//! Sessions between two requests that write: they remember series, so the next request finds them
//! quickly.

use super::Hub;
use plinth_series::ingest::{Protocol, Session};
use plinth_types::MetricSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Sessions that wait for the next request.
const WAITING: usize = 16;

/// Who sends a request, and of which metrics he may; all if it isn't said.
pub(super) struct Sender {
    pub(super) address: IpAddr,
    pub(super) metrics: Option<Arc<MetricSet>>,
}

/// Sessions between two requests.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Vec<Session>>);

impl Waiting {
    pub(super) fn take(&self, hub: &Hub, protocol: Protocol, sender: &Sender) -> Session {
        let metrics = sender.metrics.as_ref();
        let waiting = {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // One that may write something else has to forget all names.
            let fits = waiting.iter().rposition(|session| session.is_restricted_to(metrics));
            fits.map(|at| waiting.remove(at)).or_else(|| waiting.pop())
        };
        let mut session = match waiting {
            Some(mut session) => {
                session.restart(protocol);
                let bound = hub.bounds.new_series;
                session.count_for(hub.callers.newcomers(&hub.env, sender.address, bound));
                session
            }
            None => hub.session(protocol, sender.address),
        };
        session.restrict(sender.metrics.clone());
        session
    }

    pub(super) fn put(&self, session: Session) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING {
            waiting.push(session);
        }
    }
}
