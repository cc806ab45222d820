//! Sessions between two requests that write: they remember series, so the next request finds them
//! quickly.

use super::Hub;
use plinth_series::ingest::{Protocol, Session};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Sessions that wait for the next request.
const WAITING: usize = 16;

/// Sessions between two requests.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Vec<Session>>);

impl Waiting {
    pub(super) fn take(&self, hub: &Hub, protocol: Protocol, sender: IpAddr) -> Session {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(mut session) = waiting else {
            return hub.session(protocol, sender);
        };
        session.restart(protocol);
        session.count_for(hub.callers.newcomers(&hub.env, sender, hub.bounds.new_series));
        session
    }

    pub(super) fn put(&self, session: Session) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING {
            waiting.push(session);
        }
    }
}
