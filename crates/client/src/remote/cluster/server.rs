//! One server of several: how soon it answers, whether it does at all, and which node it is.

use super::super::RemoteEndpoint;
use super::super::cluster_file::{Address, ClusterFile};
use plinth_types::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Of an average of times the last one counts for an eighth.
const WEIGHT: u64 = 8;
/// Before the first answer.
const UNKNOWN: u64 = u64::MAX;

pub(super) struct Server {
    endpoint: RemoteEndpoint,
    address: RwLock<Arc<str>>,
    /// Which node it is; 0 until it has said so.
    node: AtomicU64,
    /// Whether it has answered since it was lost or silent.
    up: AtomicBool,
    /// The time that answers take on average, in microseconds; `UNKNOWN` before the first.
    latency_us: AtomicU64,
    /// Until when others are asked whether somebody leads, in microseconds of the clock.
    passed_over_us: AtomicU64,
    /// Whether it has been asked who leads, and hasn't said.
    pub(super) asked: AtomicBool,
    refusal: Mutex<Option<Error>>,
}

impl Server {
    pub(super) fn new(endpoint: RemoteEndpoint, address: &Address) -> Self {
        Self {
            endpoint,
            address: RwLock::new(address.bare().into()),
            node: AtomicU64::new(0),
            up: AtomicBool::new(false),
            latency_us: AtomicU64::new(UNKNOWN),
            passed_over_us: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            refusal: Mutex::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &RemoteEndpoint {
        &self.endpoint
    }

    pub(super) fn address(&self) -> Arc<str> {
        self.address.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is no connection with it. It may have answered last: one that went while
    /// nothing was asked of it isn't known to be lost.
    pub(super) fn is_gone(&self) -> bool {
        self.endpoint.core.is_unconnected()
    }

    /// Another server has its place from now on: the one that a file names. False if this one came
    /// back just then, and keeps it.
    pub(super) fn give_way(&self, file: ClusterFile) -> bool {
        let (target, address) = (&self.endpoint.core.target, file.addresses()[0].bare());
        let before = target.now();
        target.aim(file);
        if !self.is_gone() {
            target.aim((*before).clone());
            return false;
        }
        self.introduce(0);
        self.latency_us.store(UNKNOWN, Ordering::Relaxed);
        self.passed_over_us.store(0, Ordering::Relaxed);
        self.lost(None);
        *self.address.write().unwrap_or_else(PoisonError::into_inner) = address.into();
        true
    }

    pub(super) fn node(&self) -> u64 {
        self.node.load(Ordering::Relaxed)
    }

    pub(super) fn introduce(&self, node: u64) {
        self.node.store(node, Ordering::Relaxed);
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// The time that its answers take on average, in microseconds; `None` before the first.
    pub(super) fn latency_us(&self) -> Option<u64> {
        let known = self.latency_us.load(Ordering::Relaxed);
        (known != UNKNOWN).then_some(known)
    }

    /// Others are asked whether somebody leads, until then.
    pub(super) fn pass_over(&self, until: Duration) {
        self.passed_over_us.store(micros(until), Ordering::Relaxed);
    }

    pub(super) fn is_passed_over(&self, now: Duration) -> bool {
        micros(now) < self.passed_over_us.load(Ordering::Relaxed)
    }

    /// It has answered something, after so long.
    pub(super) fn answered(&self, after: Duration) {
        self.is_there();
        let last = micros(after).min(10_000_000);
        let average = self.latency_us().unwrap_or(last);
        self.latency_us.store((average * (WEIGHT - 1) + last) / WEIGHT, Ordering::Relaxed);
    }

    pub(super) fn is_there(&self) {
        self.up.store(true, Ordering::Relaxed);
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// It is silent, or can't be reached: why, if it will never be.
    pub(super) fn lost(&self, refusal: Option<&Error>) {
        self.up.store(false, Ordering::Relaxed);
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal.cloned();
    }

    pub(super) fn refusal(&self) -> Option<Error> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
