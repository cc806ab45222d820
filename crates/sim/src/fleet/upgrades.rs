//! Rolling upgrades: all nodes begin with the program of before, which speaks an older protocol,
//! and one after the other begins anew with this one, under load and whatever else goes wrong.
//!
//! As long as one has the old program an operator may go back with others. The last step is the one
//! that can't be undone: then the cluster's protocol rises, and an old program refuses to be a
//! member. No old program may ever come to that by what others wrote.

use super::{Fleet, HEALED, Played};
use crate::faults::Fault;
use crate::nemesis::Orders;
use plinth_pipeline::cluster::Spoken;
use std::time::Duration;

/// What the program of before spoke.
const BEFORE: Spoken = Spoken { newest: Spoken::THIS.newest - 1, ..Spoken::THIS };
/// How often it is looked whether the protocol has risen.
const LOOK: Duration = Duration::from_millis(100);

/// With what the machines begin.
pub(super) fn first_program(orders: &Orders) -> Spoken {
    if orders.faults.has(Fault::Upgrade) { BEFORE } else { Spoken::THIS }
}

impl Fleet {
    /// A node ends cleanly and begins anew with the other program; back only as long as there is an
    /// old one besides.
    pub(super) fn upgrade(&mut self, at: usize) -> Played {
        let is_old = |machine: &super::Machine| machine.spoken == BEFORE;
        let old = self.machines.iter().filter(|machine| is_old(machine)).count();
        let program = match is_old(&self.machines[at]) {
            true => Spoken::THIS,
            false if old > 0 && self.random.chance(0.3) => BEFORE,
            false => return Ok(()),
        };
        self.stage.probe(if program == BEFORE { "node went back" } else { "node upgraded" });
        if self.wires.node(self.machines[at].id).is_some() {
            self.close(at);
        }
        self.machines[at].spoken = program;
        self.open(at)
    }

    /// With everything at work the last ones are upgraded, and then the cluster's protocol rises,
    /// and not before.
    pub(super) fn all_are_upgraded(&mut self) -> Played {
        if !self.orders.faults.has(Fault::Upgrade) {
            return Ok(());
        }
        for at in 0..self.machines.len() {
            if self.machines[at].spoken == BEFORE {
                let known = self.protocols();
                // A new cluster begins with an older one yet.
                if known.iter().any(|protocol| *protocol > BEFORE.newest) {
                    return Err(format!(
                        "the protocol of nodes is {known:?}, and one has an old program"
                    )
                    .into());
                }
                self.upgrade(at)?;
            }
        }
        let until = self.stage.env().now() + HEALED;
        while self.protocols() != vec![Spoken::THIS.newest; self.machines.len()] {
            if self.stage.env().now() > until {
                return Err(format!("the protocol stays {:?}", self.protocols()).into());
            }
            self.sim.run_for(LOOK);
        }
        Ok(())
    }

    /// The cluster's protocol, as each node that is up knows it.
    fn protocols(&self) -> Vec<u16> {
        let nodes = self.nodes();
        nodes
            .iter()
            .filter_map(|node| node.membership())
            .map(|known| known.members.protocol)
            .collect()
    }
}
