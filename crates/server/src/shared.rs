//! What all connections of a server share, whatever they speak.
//!
//! It is put together when the server starts (`server.rs`) and only read afterwards; what changes
//! in it looks after itself.

use crate::config::ServerConfig;
use crate::counters::Figures;
use crate::door::Doors;
use crate::heavy::Heavy;
use crate::lane::Lane;
use crate::memory::Memory;
use crate::place::Place;
use crate::registry::Registry;
use crate::series::Reach;
use crate::snapshots::Snapshots;
use plinth_client::Endpoint;
use plinth_env::{Env, Signal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What all connections of a server share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) endpoint: Arc<dyn Endpoint>,
    pub(crate) config: ServerConfig,
    pub(crate) place: Place,
    pub(crate) connections: Registry,
    pub(crate) doors: Doors,
    /// What connections hold from one turn to the next.
    pub(crate) memory: Arc<Memory>,
    pub(crate) turns: Turns,
    pub(crate) doorstep: Doorstep,
    pub(crate) stops: Stops,
    pub(crate) snapshots: Arc<Snapshots>,
    /// Where it takes in time series.
    pub(crate) series: Reach,
}

impl Shared {
    /// Whether clients know this server by this address.
    pub(crate) fn is_at(&self, address: &str) -> bool {
        let bare = |text: &str| text.strip_suffix(":tls").unwrap_or(text).to_owned();
        let address = bare(address);
        let by_members = || {
            let located = self.endpoint.located()?;
            located.members.into_iter().find(|member| member.node == located.node)
        };
        self.place.addresses.iter().any(|known| bare(known) == address)
            || by_members().is_some_and(|member| member.address == address)
    }

    /// Whether it has been told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stops.is_stopping.load(Ordering::Relaxed)
    }

    /// What it has counted.
    pub(crate) fn figures(&self) -> Figures {
        self.doors.counters.figures(self.connections.len())
    }
}

/// Where those wait for each other who would keep everybody else waiting.
pub(crate) struct Turns {
    /// Requests that take long.
    pub(crate) heavy: Arc<Heavy>,
    /// Connections that move more than fits into a turn.
    pub(crate) lane: Arc<Lane>,
}

/// Connections that are not in the registry, counted.
#[derive(Default)]
pub(crate) struct Doorstep {
    /// Those that are told why they can't come in.
    pub(crate) refusals: AtomicUsize,
    /// Those that have yet to tell whose they are.
    pub(crate) arriving: AtomicUsize,
}

/// What tells each task that the server stops.
pub(crate) struct Stops {
    is_stopping: AtomicBool,
    /// One for each listener and the sweeper.
    pub(crate) tasks: Vec<Signal>,
    pub(crate) http: Signal,
    pub(crate) history: Signal,
    pub(crate) rights: Signal,
    /// A client has asked for the server to begin anew.
    pub(crate) reboot: AtomicBool,
}

impl Stops {
    /// For so many listeners.
    pub(crate) fn new(listeners: usize) -> Self {
        Self {
            is_stopping: AtomicBool::new(false),
            tasks: (0..=listeners).map(|_| Signal::new()).collect(),
            http: Signal::new(),
            history: Signal::new(),
            rights: Signal::new(),
            reboot: AtomicBool::new(false),
        }
    }

    /// Tells all of them.
    pub(crate) fn notify(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let others = [&self.http, &self.history, &self.rights];
        self.tasks.iter().chain(others).for_each(Signal::notify);
    }
}
