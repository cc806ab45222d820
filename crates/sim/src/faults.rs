//! What may go wrong in a run, and how often, one fault against another.
//!
//! A spec names a mix (`faults = "usual"`) or gives weights of its own (`[faults]` with
//! `crash = 3`, `stalls = 1`). The nemesis draws from them. A weight of nothing is a fault that
//! never happens.

use plinth_env::simulated::Random;
use plinth_types::Error;
use serde_json::Value;

/// One thing that the nemesis can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The power fails: unsynced data is lost, kept or torn.
    Crash,
    /// The process is killed, and its machine goes on.
    Kill,
    /// The node is closed with clients at work, and opened again.
    Close,
    /// Calls to the disk fail.
    Errors,
    /// Syncs fail.
    FailingSyncs,
    /// The disk is full, until it isn't.
    DiskFull,
    /// Calls to the disk take long.
    Stalls,
    /// The wall clock jumps.
    Clock,
    /// Connections break, clog, and are cut for a while.
    Network,
    /// Between a clean end and the next start a bit turns over on the disk.
    BitFlip,
    /// In a cluster: whoever leads is cut off, with clients that still reach it.
    IsolateLeader,
    /// In a cluster: from one node to another nothing comes through, the other way all.
    OneWay,
    /// In a cluster: links lose, double and delay much.
    BadLinks,
    /// In a cluster: one disk is slow.
    SlowDisk,
    /// In a cluster: all machines lose their power at once.
    Blackout,
    /// In a cluster: a process is stopped for a while, its connections stay, and it wakes with all
    /// that came meanwhile.
    Pause,
    /// In a cluster: a machine's clock is fast, or slow.
    Drift,
    /// In a cluster: a disk is lost, and its machine comes back as a new member.
    Wipe,
    /// In a cluster: another machine is taken in.
    Join,
    /// In a cluster: a member loses its vote, or those that lost theirs may have one again.
    Leave,
    /// In a cluster whose nodes begin with the program of before: one begins anew with this one, or
    /// goes back.
    Upgrade,
    /// In a cluster: where backups go calls fail, or take long, or there is no room, or the clock
    /// jumps.
    Target,
    /// In a cluster: the machine on which the agent of backups runs dies, and comes back.
    Agent,
    /// All is well for a while.
    Calm,
}

/// Names in specs, and weights in the usual mix.
const TABLE: [(&str, Fault, u64); 24] = [
    ("crash", Fault::Crash, 3),
    ("kill", Fault::Kill, 1),
    ("close", Fault::Close, 1),
    ("errors", Fault::Errors, 2),
    ("failing_syncs", Fault::FailingSyncs, 1),
    ("disk_full", Fault::DiskFull, 2),
    ("stalls", Fault::Stalls, 1),
    ("clock", Fault::Clock, 1),
    ("network", Fault::Network, 0),
    ("bit_flip", Fault::BitFlip, 0),
    ("isolate_leader", Fault::IsolateLeader, 0),
    ("one_way", Fault::OneWay, 0),
    ("bad_links", Fault::BadLinks, 0),
    ("slow_disk", Fault::SlowDisk, 0),
    ("blackout", Fault::Blackout, 0),
    ("pause", Fault::Pause, 0),
    ("drift", Fault::Drift, 0),
    ("wipe", Fault::Wipe, 0),
    ("join", Fault::Join, 0),
    ("leave", Fault::Leave, 0),
    ("upgrade", Fault::Upgrade, 0),
    ("target", Fault::Target, 0),
    ("agent", Fault::Agent, 0),
    ("calm", Fault::Calm, 1),
];

/// What a cluster has to bear besides, where a spec of one node is run on several.
const OF_CLUSTERS: [(Fault, u64); 6] = [
    (Fault::IsolateLeader, 2),
    (Fault::OneWay, 2),
    (Fault::BadLinks, 1),
    (Fault::Blackout, 1),
    (Fault::Pause, 2),
    (Fault::Drift, 1),
];

/// Weights, in the order of the table.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    weights: [u64; TABLE.len()],
}

impl Faults {
    /// A bit of everything from which a sound database must recover.
    pub fn usual() -> Self {
        Self { weights: TABLE.map(|(.., weight)| weight) }
    }

    /// The same with what goes wrong in clusters besides; nothing stays nothing.
    #[must_use]
    pub fn of_clusters(mut self) -> Self {
        if !self.is_nothing() {
            for (at, (_, fault, _)) in TABLE.iter().enumerate() {
                let more = OF_CLUSTERS.iter().find(|(other, _)| other == fault);
                self.weights[at] += more.map_or(0, |(_, weight)| *weight);
            }
        }
        self
    }

    /// Whether nothing ever goes wrong.
    pub fn is_nothing(&self) -> bool {
        self.weights.iter().all(|weight| *weight == 0)
    }

    /// Whether this one ever happens.
    pub fn has(&self, wanted: Fault) -> bool {
        TABLE.iter().zip(self.weights).any(|((_, fault, _), weight)| *fault == wanted && weight > 0)
    }

    /// The next one.
    pub fn draw(&self, random: &mut Random) -> Fault {
        let mut at = random.below(self.weights.iter().sum());
        for ((_, fault, _), weight) in TABLE.iter().zip(self.weights) {
            if at < weight {
                return *fault;
            }
            at -= weight;
        }
        Fault::Calm
    }

    /// Reads what a spec says.
    pub fn read(value: Option<Value>) -> Result<Self, String> {
        let mut faults = Self::default();
        match value {
            None => {}
            Some(Value::String(mix)) if mix == "usual" => faults = Self::usual(),
            Some(Value::Object(weights)) => {
                for (name, weight) in &weights {
                    let at = TABLE.iter().position(|(known, ..)| known == name);
                    let at = at.ok_or_else(|| {
                        format!("there is no fault {name:?}; there are {}", names())
                    })?;
                    faults.weights[at] =
                        weight.as_u64().ok_or_else(|| format!("{name} = {weight} is no weight"))?;
                }
            }
            Some(other) => {
                return Err(format!("there is no mix of faults {other}; there is \"usual\""));
            }
        }
        Ok(faults)
    }
}

fn names() -> String {
    TABLE.map(|(name, ..)| name).join(", ")
}

/// Whether a fault of the nemesis explains that opening failed.
pub(crate) fn is_excused(error: &Error) -> bool {
    *error == Error::io_error() || plinth_env::is_disk_full(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_weight_is_drawn() {
        let faults = Faults::read(Some(serde_json::json!({"stalls": 1, "kill": 3}))).unwrap();
        let mut random = Random::new(7);
        let drawn: Vec<Fault> = (0..200).map(|_| faults.draw(&mut random)).collect();
        assert!(drawn.iter().all(|fault| matches!(fault, Fault::Stalls | Fault::Kill)));
        let kills = drawn.iter().filter(|fault| **fault == Fault::Kill).count();
        assert!((120..180).contains(&kills), "{kills} of 200 at three to one");
        assert!(Faults::read(None).unwrap().is_nothing() && !Faults::usual().is_nothing());
    }
}
