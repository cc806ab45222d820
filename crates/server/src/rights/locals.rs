//! Which user of this machine is at the other end of a connection over loopback.
//!
//! ```text
//!   accepted ──▶ Local: its ends ──▶ does a right or a quota name users? ──no──▶ nothing is looked up
//!                                      │ yes: before its first request is judged
//!                                      ▼
//!             one look at a time, for all who wait ──▶ the system's table, and /etc/passwd ──▶ User, or nobody
//! ```
//! A look takes as long as the machine has connections, so those who come meanwhile wait for the
//! next one together. Where the first row that names users comes while connections are open, all of
//! them are looked up before anybody is judged by it.
//!
//! Always: what isn't known, or isn't certain, is nobody; whom a connection is said to be of stays
//! so for as long as it is open.

use super::{PATIENCE, lock};
use plinth_env::reply::{Promise, promise};
use plinth_env::sync::race;
use plinth_env::{Ends, Env, Stream};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Where the names of users stand.
const NAMES: &str = "/etc/passwd";
/// Bytes of it that are read.
const MOST_NAMES: usize = 16 << 20;
/// Connections that are remembered before it is looked which of them have ended.
const FEW: usize = 64;

/// A user of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct User {
    uid: u32,
    names: Vec<String>,
}

impl User {
    /// Whether he is called so, or has this number.
    pub(super) fn is(&self, name: &str) -> bool {
        match name.parse::<u32>() {
            Ok(uid) => uid == self.uid,
            Err(_) => self.names.iter().any(|known| known == name),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names.first() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.uid),
        }
    }
}

/// A connection over loopback, and who is at its other end, once that was looked up.
#[derive(Debug)]
pub(crate) struct Local {
    ends: Ends,
    user: OnceLock<Option<User>>,
}

impl Local {
    /// Who it is, if that is known.
    pub(crate) fn user(&self) -> Option<&User> {
        self.user.get()?.as_ref()
    }

    fn is_pending(&self) -> bool {
        self.user.get().is_none()
    }
}

/// What a server knows of the users of its machine.
pub(crate) struct Locals {
    env: Env,
    /// Whether the system tells whose connections are.
    are_told: bool,
    /// Whether a right or a quota names users.
    are_needed: AtomicBool,
    /// Somebody was judged before he was looked up.
    is_missed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Connections that weren't looked up, or have ended since.
    open: Vec<Weak<Local>>,
    /// How many there may be before those that have ended are forgotten.
    most: usize,
    waiting: Vec<Promise<()>>,
    is_looking: bool,
    is_told: bool,
}

impl State {
    fn forget_ended(&mut self) {
        let is_open = |local: &Weak<Local>| local.upgrade().is_some_and(|local| local.is_pending());
        self.open.retain(is_open);
        self.most = FEW.max(2 * self.open.len());
    }
}

impl Locals {
    pub(super) async fn open(env: &Env) -> Self {
        let are_told = env.sockets().owners(Vec::new()).await.is_ok();
        let state = Mutex::new(State { most: FEW, ..State::default() });
        let (are_needed, is_missed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { env: env.clone(), are_told, are_needed, is_missed, state }
    }

    /// Whether the system tells whose connections are.
    pub(super) fn are_told(&self) -> bool {
        self.are_told
    }

    /// A connection has been accepted; `None` if it isn't over loopback.
    pub(super) fn meet(&self, stream: &Stream) -> Option<Arc<Local>> {
        if !self.are_told {
            return None;
        }
        let local = Arc::new(Local { ends: stream.ends()?, user: OnceLock::new() });
        let mut state = lock(&self.state);
        if state.open.len() >= state.most {
            state.forget_ended();
        }
        state.open.push(Arc::downgrade(&local));
        Some(local)
    }

    /// Whether it matters who somebody is, and isn't known.
    pub(super) fn is_missing(&self, local: Option<&Arc<Local>>) -> bool {
        // The connection is among those that are open before this is looked at, and whoever first
        // needs users says so before he looks at those.
        local.is_some_and(|local| local.is_pending()) && self.are_needed.load(Ordering::SeqCst)
    }

    /// Whether somebody was to be judged who is missing.
    pub(super) fn are_missed(&self) -> bool {
        self.is_missed.load(Ordering::Acquire)
    }

    /// Somebody was to be judged who is missing.
    pub(super) fn note_missed(&self) {
        self.is_missed.store(true, Ordering::Release);
    }

    /// Users are named from now on: looks up who is at the other end of all that is open, within
    /// the patience that there is.
    pub(crate) async fn need(self: &Arc<Self>) {
        let were_needed = self.are_needed.swap(true, Ordering::SeqCst);
        if !were_needed || self.is_missed.swap(false, Ordering::AcqRel) {
            race(self.look(), self.env.sleep(PATIENCE)).await;
        }
    }

    /// Waits until all who are here now have been looked up.
    pub(super) async fn look(self: &Arc<Self>) {
        let (done, looked) = promise();
        let begins = {
            let mut state = lock(&self.state);
            state.waiting.push(done);
            !std::mem::replace(&mut state.is_looking, true)
        };
        if begins {
            drop(self.env.spawn_network("local users", self.clone().look_for_all()));
        }
        let _ = looked.await;
    }

    async fn look_for_all(self: Arc<Self>) {
        loop {
            let (waiting, open) = {
                let mut state = lock(&self.state);
                if state.waiting.is_empty() {
                    state.is_looking = false;
                    return;
                }
                state.forget_ended();
                let open: Vec<_> = state.open.iter().filter_map(Weak::upgrade).collect();
                (std::mem::take(&mut state.waiting), open)
            };
            if !open.is_empty() {
                self.look_for(&open).await;
            }
            waiting.into_iter().for_each(|done| done.send(Ok(())));
        }
    }

    async fn look_for(&self, open: &[Arc<Local>]) {
        let ends = open.iter().map(|local| local.ends.clone()).collect();
        let owners = match self.env.sockets().owners(ends).await {
            Ok(owners) => owners,
            Err(error) => {
                if !std::mem::replace(&mut lock(&self.state).is_told, true) {
                    tracing::error!(%error, "the system doesn't tell which users connect: rights of users give nothing");
                }
                vec![None; open.len()]
            }
        };
        let text = self.env.files().read_at_most(NAMES, MOST_NAMES).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        for (local, owner) in open.iter().zip(owners) {
            let user = owner.map(|uid| User { uid, names: names_of(uid, &text) });
            let _ = local.user.set(user);
        }
    }
}

/// The names of a user, as a file of them has them. A name that stands there twice is the first
/// one's, as the system has it.
fn names_of(uid: u32, text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let entries = || {
        text.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields
                .next()
                .filter(|name| !name.is_empty() && !name.starts_with(['#', '+', '-']))?;
            Some((name, fields.nth(1)?.parse::<u32>().ok()?))
        })
    };
    for (name, number) in entries().filter(|(_, number)| *number == uid) {
        let first = entries().find(|(known, _)| *known == name);
        if first == Some((name, number)) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_names_that_the_system_gives_them() {
        let text = "root:x:0:0:root:/root:/bin/bash\n# comment:x:5:5::/:\n\nshop:x:1000:1000::/home/shop:\n+:::::\n\
                    till:x:1000:1000::/:\nshop:x:1001:1001::/:\nlog:x:4294967296:1::/:\nhalf:x\n";
        assert_eq!(names_of(0, text), ["root"]);
        assert_eq!(names_of(1000, text), ["shop", "till"]);
        // Whoever wrote another one of that name behind it is not him.
        for nobody in [1001, 5, 7] {
            assert_eq!(names_of(nobody, text), [""; 0], "{nobody}");
        }
    }

    #[test]
    fn a_number_is_no_name() {
        let user = User { uid: 1000, names: vec!["shop".to_owned(), "1001".to_owned()] };
        assert!(user.is("shop") && user.is("1000"));
        assert!(!user.is("1001") && !user.is("sho") && !user.is(""));
        assert_eq!(user.to_string(), "shop");
        assert_eq!(User { uid: 7, names: Vec::new() }.to_string(), "7");
    }
}
