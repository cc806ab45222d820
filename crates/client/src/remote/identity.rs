//! Which database an endpoint works with, where a cluster file's addresses might lead to several.
//!
//! Two clusters whose files begin alike can't be told apart by those files. If a server of the one
//! has the address at which the other had a server, clients would be spread among both, depending
//! on who answers sooner, and find rows in one that others wrote to the other. So servers say the
//! identity of their database when they are greeted, and it is decided which one counts:
//!
//! ```text
//!   greeted     ──▶ most of the file's addresses say the same?  that one, from now on
//!   not so many ──▶ 250 ms later: do more of those who have answered lately say it than anything
//!                                 else?  that one, from now on
//!                                 as many ──▶ none of them is asked; it is tried again
//! ```
//! Of a file with one address that is the first answer. Two are of no cluster: where they differ,
//! the one that the file names first counts, as all clients see it.
//!
//! Always: once it is decided it stays; a server with another database is not asked.
//!
//! Not seen: a server of another cluster that is the only one to answer. Files of different
//! clusters ought to begin differently.

use super::cluster_file::{Address, ClusterFile};
use plinth_env::Env;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_env::sync::race;
use plinth_types::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How long servers are waited for that might say something else. Those of a healthy cluster are
/// connected at the same time; where fewer than most of them answer nothing goes on anyway.
const PATIENCE: Duration = Duration::from_millis(250);

/// For how long what was said counts: whoever said it may be there no more. An address that can be
/// reached is tried again each second.
const LATELY: Duration = Duration::from_secs(5);

/// See the module. All links of an endpoint share one.
pub(super) struct Identity {
    /// Addresses of the file with which the endpoint was opened.
    addresses: usize,
    first: String,
    decided: OnceLock<String>,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    /// What was said last at each address, and when.
    by_address: BTreeMap<String, (String, Duration)>,
    waiting: Vec<Promise<()>>,
}

impl Heard {
    /// Forgets what was said too long ago.
    fn forget(&mut self, now: Duration) {
        self.by_address.retain(|_, (_, at)| now < *at + LATELY);
    }
}

impl Identity {
    /// Not decided yet.
    pub(super) fn new(file: &ClusterFile) -> Self {
        let addresses = file.addresses().len();
        let first = file.addresses().first().map(Address::to_string).unwrap_or_default();
        Self { addresses, first, decided: OnceLock::new(), heard: Mutex::default() }
    }

    /// The database's, once it is decided.
    pub(super) fn get(&self) -> Option<&str> {
        self.decided.get().map(String::as_str)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server at an address has said whose it is: whether it may be asked.
    ///
    /// # Errors
    /// `connection_string_invalid` if it has another database and nobody else could be asked;
    /// `connection_failed` if others can, or servers don't agree.
    pub(super) async fn agree(&self, env: &Env, found: String, address: &Address) -> Result<()> {
        if let Some(others) = self.hear(&found, address, env.now()) {
            race(others, env.sleep(PATIENCE)).await;
            self.look_again(env.now());
        }
        match self.get() {
            Some(known) if known == found => Ok(()),
            Some(known) => Err(self.is_another(&found, known, address)),
            None => Err(self.is_disputed()),
        }
    }

    /// Notes what was said. If that leaves it undecided, others are to be waited for.
    fn hear(&self, found: &str, address: &Address, now: Duration) -> Option<Reply<()>> {
        if self.decided.get().is_some() {
            return None;
        }
        let mut heard = self.heard();
        heard.forget(now);
        heard.by_address.insert(address.to_string(), (found.to_owned(), now));
        let same = heard.by_address.values().filter(|(said, _)| said == found).count();
        if 2 * same > self.addresses {
            self.decide(&mut heard, found.to_owned());
            return None;
        }
        let (promise, reply) = promise();
        heard.waiting.retain(|waiting| !waiting.is_cancelled());
        heard.waiting.push(promise);
        Some(reply)
    }

    /// Nobody else is waited for: what more of them say than anything else counts.
    fn look_again(&self, now: Duration) {
        let mut heard = self.heard();
        heard.forget(now);
        let mut counts = BTreeMap::<&str, usize>::new();
        for (said, _) in heard.by_address.values() {
            *counts.entry(said).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let mut of_the_most = counts.iter().filter(|(_, count)| Some(**count) == most);
        let said = match (of_the_most.next(), of_the_most.next()) {
            (Some((said, _)), None) => Some((*said).to_owned()),
            (Some(_), Some(_)) if self.addresses == 2 => {
                heard.by_address.get(&self.first).map(|(said, _)| said.clone())
            }
            _ => None,
        };
        said.into_iter().for_each(|said| self.decide(&mut heard, said));
    }

    fn decide(&self, heard: &mut Heard, database: String) {
        // Whoever was sooner is right.
        let _ = self.decided.set(database);
        let Heard { by_address, waiting } = std::mem::take(heard);
        drop(by_address);
        waiting.into_iter().for_each(|waiting| waiting.send(Ok(())));
    }

    fn is_another(&self, found: &str, known: &str, address: &Address) -> Error {
        // Where the file names others, one of them may be the right one.
        let is_final = self.addresses == 1;
        let kind =
            if is_final { Error::connection_string_invalid() } else { Error::connection_failed() };
        kind.with_detail(format!(
            "the server at {address} has the database {found}, and this client works with the \
             database {known}; name one database in the cluster file, or open it anew"
        ))
    }

    fn is_disputed(&self) -> Error {
        let heard = self.heard();
        let said = heard.by_address.iter();
        let said: Vec<_> = said.map(|(address, (said, _))| format!("{address}: {said}")).collect();
        Error::connection_failed().with_detail(format!(
            "the cluster file's servers have different databases ({}); name those of one in it",
            said.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::simulated::Simulation;

    /// What comes of answers, each so many milliseconds from the beginning: of each whether the
    /// server may be asked, or why not.
    fn answers(
        addresses: &[&str],
        answers: &[(usize, &'static str, u64)],
    ) -> (Vec<Result<()>>, Option<String>) {
        let sim = Simulation::new(1);
        let env = sim.process("client");
        let file = ClusterFile::parse(&format!("d:i@{}", addresses.join(","))).unwrap();
        let identity = Identity::new(&file);
        let agreed = sim.run_until(plinth_env::sync::all(answers.iter().map(|answer| {
            let (at, said, after) = *answer;
            let (env, identity, file) = (&env, &identity, &file);
            async move {
                env.sleep(Duration::from_millis(after)).await;
                identity.agree(env, said.to_owned(), &file.addresses()[at]).await
            }
        })));
        (agreed, identity.get().map(str::to_owned))
    }

    const THREE: [&str; 3] = ["10.0.0.1:4500", "10.0.0.2:4500", "10.0.0.3:4500"];

    #[test]
    fn whoever_answers_first_at_one_address_counts() {
        let (agreed, known) = answers(&THREE[..1], &[(0, "a", 0), (0, "b", 5)]);
        assert!(agreed[0].is_ok() && known.as_deref() == Some("a"));
        assert_eq!(agreed[1].as_ref().unwrap_err().code(), 2104);
    }

    #[test]
    fn most_of_the_addresses_decide_however_late_they_are() {
        let (agreed, known) = answers(&THREE, &[(2, "b", 0), (0, "a", 100), (1, "a", 200)]);
        assert_eq!(known.as_deref(), Some("a"));
        assert!(agreed[1].is_ok() && agreed[2].is_ok());
        let told = agreed[0].as_ref().unwrap_err();
        assert!(told.code() == 1026 && told.detail().unwrap().contains("database b"), "{told}");
    }

    #[test]
    fn one_that_says_it_twice_is_one() {
        let (agreed, known) = answers(&THREE, &[(2, "b", 0), (2, "b", 1), (0, "a", 100)]);
        assert_eq!(known, None);
        let told = agreed[0].as_ref().unwrap_err();
        assert_eq!(told.code(), 1026);
        let told = told.detail().unwrap();
        assert!(told.contains("10.0.0.1:4500: a, 10.0.0.3:4500: b"), "{told}");
    }

    #[test]
    fn one_that_has_gone_contradicts_nobody_for_long() {
        let (agreed, known) = answers(&THREE, &[(1, "b", 0), (0, "a", 200), (0, "a", 5500)]);
        assert!(agreed[1].is_err() && agreed[2].is_ok());
        assert_eq!(known.as_deref(), Some("a"));
    }

    #[test]
    fn of_two_that_differ_the_one_that_is_named_first_counts() {
        let (agreed, known) = answers(&THREE[..2], &[(1, "b", 0), (0, "a", 200)]);
        assert!(agreed[0].is_err() && agreed[1].is_ok());
        assert_eq!(known.as_deref(), Some("a"));
    }

    #[test]
    fn of_fewer_than_most_those_decide_who_are_more_than_any_others() {
        let five = [THREE[0], THREE[1], THREE[2], "10.0.0.4:4500", "10.0.0.5:4500"];
        let (agreed, known) = answers(&five, &[(4, "b", 0), (0, "a", 10), (2, "a", 20)]);
        assert!(agreed[0].is_err() && agreed[1].is_ok() && agreed[2].is_ok());
        assert_eq!(known.as_deref(), Some("a"));
    }

    #[test]
    fn fewer_are_enough_if_nobody_contradicts() {
        let (agreed, known) = answers(&THREE, &[(1, "a", 0), (0, "b", 400)]);
        assert!(agreed[0].is_ok() && agreed[1].is_err());
        assert_eq!(known.as_deref(), Some("a"));
    }
}
