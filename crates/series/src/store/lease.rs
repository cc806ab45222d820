//! Leases: several servers side by side on one database, of which one at a time owns its series.
//!
//! ```text
//!   owner's row   a number, drawn at each takeover: the fence. Among the read conflicts of each of the owner's commits
//!   lease's row   whose it is, where he is, a count that he moves on every half a second
//!
//!   holder                                    everybody else
//!     moves the count, if the owner's row       looks at both rows every half a second, and when the owner's row changes
//!     has his number: else he holds nothing     nobody owns: takes over.  The count stood still for as long as the lease
//!     at a clean end clears both rows           lasts: takes over, unless either row has changed by the commit
//! ```
//!
//! What is right never hangs on a clock: a holder whose lease has run out while he was paused finds
//! the owner's row changed with his next commit, and with his next look into the database for a
//! reader. Clocks say only how soon another one takes over, and each reads its own: how long a
//! count stands still is measured by whoever looks, in looks that were answered, so that nobody is
//! deposed because the database gave no answers for a while.
//!
//! The count has a row of its own, so that moving it on is in conflict with no commit of points.

use super::keys::Keys;
use super::{Role, Shared, retry};
use crate::error::{Error, Result};
use foundationdb_tuple::{Bytes as Packed, pack, unpack};
use plinth_client::{Database, Transaction};
use plinth_env::Env;
use plinth_types::Bytes;
use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often a holder moves the count on, and others look.
pub(super) const BEAT: Duration = Duration::from_millis(500);
/// How long a lease lasts if nobody says.
pub(super) const LASTS: Duration = Duration::from_millis(2500);
/// What a lease that somebody else wrote may last at most.
const LONGEST: Duration = Duration::from_secs(60);

/// What draws a number.
pub(super) type Token = [u8; 16];

/// Who wants to own series, as long as the lease is renewed.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Whose name stands in the row. Who comes back under the same name takes his own lease over at
    /// once, so no two that live at the same time share one.
    pub name: String,
    /// Where others find him; what stands there is their affair.
    pub address: String,
    /// For how long the lease holds that isn't renewed: at least some beats of half a second.
    pub lasts: Duration,
}

impl Claim {
    /// A claim with a lease of two and a half seconds.
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { name: name.into(), address: address.into(), lasts: LASTS }
    }
}

/// Who holds series, as whoever reads the database sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// His name; empty for one that holds them without a lease, until somebody else opens them.
    pub name: String,
    /// Where he is found; empty if nowhere.
    pub address: String,
    /// A secret that all who read this database know, and nobody else: drawn anew at each takeover.
    pub secret: [u8; 16],
}

impl Holder {
    pub(super) fn unleased() -> Self {
        Self { name: String::new(), address: String::new(), secret: [0; 16] }
    }
}

/// The row of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    token: Token,
    pub(super) holder: Holder,
    pub(super) lasts: Duration,
    beats: u64,
}

/// What the row looks like: token, name, address, secret, milliseconds, count.
type Fields<'a> = (Packed<'a>, Cow<'a, str>, Cow<'a, str>, Packed<'a>, u64, u64);

impl Row {
    fn encode(&self) -> Vec<u8> {
        let Holder { name, address, secret } = &self.holder;
        let lasts = u64::try_from(self.lasts.as_millis()).unwrap_or(u64::MAX);
        pack(&(&self.token[..], name.as_str(), address.as_str(), &secret[..], lasts, self.beats))
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |why| Error::damaged("the lease of the series", why);
        let fields: Fields<'_> = unpack(bytes).map_err(|_| damaged("it is no tuple of six"))?;
        let (token, name, address, secret, lasts, beats) = fields;
        let number = |bytes: &[u8]| bytes.try_into().map_err(|_| damaged("16 bytes expected"));
        Ok(Self {
            token: number(&token)?,
            holder: Holder {
                name: name.into_owned(),
                address: address.into_owned(),
                secret: number(&secret)?,
            },
            lasts: Duration::from_millis(lasts).clamp(BEAT, LONGEST),
            beats,
        })
    }
}

/// Both rows, as one transaction saw them.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) owner: Option<Bytes>,
    lease: Option<Bytes>,
}

impl Rows {
    /// Reads them, with conflicts.
    pub(super) async fn read(tr: &Transaction, keys: &Keys) -> plinth_types::Result<Self> {
        let (owner, lease) = (tr.get(keys.owner()), tr.get(keys.lease()));
        Ok(Self { owner: owner.await?, lease: lease.await? })
    }

    /// The lease of whoever owns the series; `None` if that is nobody, or he has none.
    pub(super) fn leased(&self) -> Result<Option<Row>> {
        let (Some(owner), Some(lease)) = (&self.owner, &self.lease) else { return Ok(None) };
        let row = Row::decode(lease)?;
        Ok(Some(row).filter(|row| row.token[..] == owner[..]))
    }

    /// Whom others are told of.
    pub(super) fn holder(&self) -> Result<Holder> {
        Ok(self.leased()?.map_or_else(Holder::unleased, |row| row.holder))
    }
}

/// The lease that a store has, to be renewed.
pub(super) struct Tenure {
    claim: Claim,
    pub(super) token: Token,
    secret: [u8; 16],
}

impl Tenure {
    /// A new one.
    pub(super) fn draw(env: &Env, claim: &Claim) -> Self {
        let (mut token, mut secret) = ([0; 16], [0; 16]);
        env.fill_random(&mut token);
        env.fill_random(&mut secret);
        Self { claim: claim.clone(), token, secret }
    }

    pub(super) fn role(&self) -> Role {
        Role::Owner { token: self.token, lease: Some(self.secret) }
    }

    pub(super) fn row(&self, beats: u64) -> Vec<u8> {
        let Claim { name, address, lasts } = self.claim.clone();
        let holder = Holder { name, address, secret: self.secret };
        Row { token: self.token, holder, lasts, beats }.encode()
    }
}

/// Renews the lease as long as there is a store that has it.
pub(super) fn start_renewing(shared: &Arc<Shared>, tenure: Tenure) {
    let (database, keys) = (shared.database.clone(), shared.keys.clone());
    let env = database.endpoint().env().clone();
    let shared: Weak<Shared> = Arc::downgrade(shared);
    let timer = env.clone();
    let task = env.spawn("plinth-series-lease", async move {
        let mut beats = 0;
        loop {
            timer.sleep(BEAT).await;
            beats += 1;
            match shared.upgrade() {
                Some(shared) if shared.failure.get().is_none() => {}
                _ => return,
            }
            // What fails is tried again with the next beat; nothing of the store is held meanwhile.
            if let Ok(false) = renew(&database, &keys, &tenure, beats).await {
                if let Some(shared) = shared.upgrade() {
                    let _ = shared.failure.set(Error::NotOwner);
                }
                return;
            }
        }
    });
    drop(task);
}

/// Moves the count on; whether the series are ours still.
async fn renew(database: &Database, keys: &Keys, tenure: &Tenure, beats: u64) -> Result<bool> {
    let row = &tenure.row(beats);
    retry::transact(database, |tr| async move {
        let is_ours = tr.get(keys.owner()).await?.as_deref() == Some(&tenure.token[..]);
        if is_ours {
            tr.set(keys.lease(), row);
        }
        Ok(is_ours)
    })
    .await
}

/// Gives the series up, if they are ours: nobody owns them then.
pub(super) async fn give_up(database: &Database, keys: &Keys, token: &Token) -> Result<()> {
    retry::transact(database, |tr| async move {
        if tr.get(keys.owner()).await?.as_deref() == Some(&token[..]) {
            tr.clear(keys.owner());
            tr.clear(keys.lease());
        }
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_and_one_that_is_none_is_damage() {
        let holder = Holder { name: "n".into(), address: "10.0.0.1:8181".into(), secret: [7; 16] };
        let row = Row { token: [3; 16], holder, lasts: Duration::from_millis(2500), beats: 258 };
        let bytes = row.encode();
        let golden = [
            &b"\x01\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\x03\0\x02n\0"[..],
            b"\x0210.0.0.1:8181\0",
            b"\x01\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\0",
            b"\x16\x09\xc4\x16\x01\x02",
        ];
        assert_eq!(bytes, golden.concat());
        assert_eq!(Row::decode(&bytes).unwrap(), row);
        for len in 0..bytes.len() {
            assert!(Row::decode(&bytes[..len]).is_err(), "{len}");
        }
        assert!(
            Row::decode(b"").is_err() && Row::decode(&[bytes.clone(), bytes].concat()).is_err()
        );
    }
}
