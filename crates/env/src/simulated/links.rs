//! What a test does to the network of a simulation.

use std::net::IpAddr;
use std::task::Waker;
use std::time::Duration;

use super::Simulation;
use super::network::{Network, NetworkPlan, Wakers, ip_of};
use crate::Env;

impl Simulation {
    /// How the network behaves from now on.
    pub fn set_network(&self, plan: NetworkPlan) {
        self.universe().lock().network.plan = plan;
    }

    /// The address of a process's machine. Ports are its own affair.
    pub fn ip(&self, process: &Env) -> IpAddr {
        ip_of(self.host(process).process)
    }

    /// Nothing arrives between two machines any more, in either direction, and nothing is lost:
    /// it arrives when the partition is healed. Nobody is told.
    pub fn partition(&self, one: &Env, two: &Env) {
        self.on_link(one, two, "partition", |network, one, two, _| {
            network.cut(one, two);
            network.cut(two, one);
            Vec::new()
        });
    }

    /// The same in one direction: what the second machine sends still arrives at the first. Neither
    /// can make a new connection to the other.
    pub fn cut(&self, from: &Env, to: &Env) {
        self.on_link(from, to, "cut", |network, from, to, _| {
            network.cut(from, to);
            Vec::new()
        });
    }

    /// Nothing arrives between two machines for a time.
    pub fn clog(&self, one: &Env, two: &Env, duration: Duration) {
        self.on_link(one, two, "clog", |network, one, two, now| {
            network.clog(one, two, now.saturating_add(duration));
            Vec::new()
        });
    }

    /// Ends a partition, cut or clog between two machines.
    pub fn heal(&self, one: &Env, two: &Env) {
        self.on_link(one, two, "heal", |network, one, two, _| network.heal(one, two));
    }

    /// Breaks all connections between two machines; both ends are told, and what was under way is
    /// lost.
    pub fn close_connections(&self, one: &Env, two: &Env) {
        self.on_link(one, two, "break", Network::break_between);
    }

    fn on_link(
        &self,
        one: &Env,
        two: &Env,
        what: &'static str,
        act: impl FnOnce(&mut Network, usize, usize, Duration) -> Wakers,
    ) {
        let (one, two) = (self.host(one).process, self.host(two).process);
        let mut guard = self.universe().lock();
        let core = &mut *guard;
        core.note(what, one as u64, two as u64);
        let wakers = act(&mut core.network, one, two, core.now);
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
    }
}
