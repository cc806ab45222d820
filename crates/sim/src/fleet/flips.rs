//! Bits that turn over on a member's disk, between a clean close and the next start.
//!
//! What a single database can't mend a cluster can: the member refuses to open, or ends when it
//! meets the damage, and names the file; that is a disk lost, and its machine comes back as another
//! node. Until then clients that read what is damaged are answered by others. It counts as one of
//! the machines that a cluster may lose, from the flip on.

use super::{Fleet, Played};
use crate::damage::Damage;
use crate::nemesis::Stop;
use plinth_types::Error;

impl Fleet {
    /// Whether a bit has been turned over that nobody has met with yet.
    pub(super) fn is_damaged(&self) -> bool {
        self.machines.iter().any(|machine| machine.damage.is_done())
    }

    /// A node ends well, and while it is down a bit turns over.
    pub(super) fn flip_a_bit(&mut self, at: usize) -> Played {
        self.calm();
        let id = self.machines[at].id;
        if id == 0 || !self.may_lose(id) || !self.close(at) {
            return Ok(());
        }
        self.stage.probe("bit turned over");
        let machine = &mut self.machines[at];
        machine.damage.flip_a_bit(&self.sim, &machine.env, &mut self.random);
        self.disk_lost = Some(self.sim.now());
        self.open(at)
    }

    /// A node, which is down now, has said this: its disk is lost if a bit that was turned over
    /// there explains it.
    pub(super) fn judge(&mut self, at: usize, error: &Error) -> Played {
        let machine = &self.machines[at];
        machine.damage.explains(&self.sim, &machine.env, error).map_err(Stop::Failure)?;
        self.stage.probe("damage found and named");
        self.lose_disk(at)
    }

    /// The damage that was met with when the rows of all nodes were read: whose disk that was comes
    /// back without.
    pub(super) fn judge_comparison(&mut self, error: &Error) -> Played {
        let damaged = self.machines.iter().position(|machine| machine.damage.is_done());
        let at = damaged.filter(|_| *error == Error::file_corrupt());
        let at = at.ok_or_else(|| format!("the nodes could not be compared: {error}"))?;
        self.kill(at);
        self.judge(at, error)?;
        self.all_come_back()
    }

    /// A machine's disk is another one.
    pub(super) fn forget_damage(&mut self, at: usize) {
        self.machines[at].damage = Damage::default();
    }
}
