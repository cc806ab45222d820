//! What came of the tokens that were shown, and the keys by which that is found out.
//!
//! ```text
//!   token ──▶ believed before? refused before? ──▶ its signature, by the keys of now ──▶ remembered
//!                                                        ▲
//!   JWKS file, looked at every second ──▶ keys ──────────┘   others: nothing is remembered any more
//! ```
//! Looking at a signature takes a tenth of a millisecond, and nobody waits for another's. When a
//! token ends is looked at each time, by the clock of then: one that is ahead ends none for good.
//!
//! Always: what is remembered came of the keys that are in use.

use super::remembered::Remembered;
use super::token::{Claims, Keys, refused};
use super::{PATIENCE, later, lock};
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_types::Result;
use ring::digest::{SHA256, digest};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Tokens that are remembered, of those that are believed and of those that aren't.
const REMEMBERED: usize = 4_096;
/// Tokens of one connection in a second that may turn out to be none.
const REFUSED: u32 = 50;
/// How often it is looked whether the file has changed.
const LOOK: Duration = Duration::from_secs(1);

/// What stands for a token: its hash.
type Name = [u8; 32];

/// Whose tokens are believed.
pub(crate) struct Tokens {
    file: PathBuf,
    state: Mutex<State>,
}

struct State {
    keys: Arc<Keys>,
    believed: Remembered<Name, Arc<Claims>>,
    /// Why not.
    refused: Remembered<Name, &'static str>,
    /// The second in which it was looked last which have expired.
    judged_at: u64,
    /// When the file was looked at, and what was told last of why it can't be read.
    looked_at: Duration,
    told: Option<String>,
}

impl State {
    fn of(keys: Keys, looked_at: Duration) -> Self {
        let (believed, refused) = (Remembered::new(REMEMBERED), Remembered::new(REMEMBERED));
        Self { keys: Arc::new(keys), believed, refused, judged_at: 0, looked_at, told: None }
    }

    /// Whether it is told now, and not before, that the file can't be read for this reason.
    fn is_news(&mut self, why: &str) -> bool {
        let is_news = self.told.as_deref() != Some(why);
        self.told = Some(why.to_owned());
        is_news
    }
}

/// How many tokens a connection has shown in this second that were none.
#[derive(Default)]
pub(crate) struct Allowance {
    second: u64,
    refused: u32,
}

impl Allowance {
    /// # Errors
    /// `tag_throttled` if those were many.
    fn check(&mut self, env: &Env) -> Result<()> {
        let now = env.now().as_secs();
        if self.second != now {
            *self = Self { second: now, refused: 0 };
        }
        match self.refused < REFUSED {
            true => Ok(()),
            false => Err(later("too many tokens were shown here that aren't accepted")),
        }
    }
}

impl Tokens {
    /// By the keys of a file.
    ///
    /// # Errors
    /// Those of [`Keys::parse`] and of reading it.
    pub(super) async fn open(env: &Env, file: &Path) -> Result<Self> {
        let keys = Keys::parse(file, env.files().read(file).await?)?;
        Ok(Self { file: file.to_owned(), state: Mutex::new(State::of(keys, env.now())) })
    }

    /// What a token says, if it is to be believed.
    ///
    /// # Errors
    /// `permission_denied`, with why not; `tag_throttled`.
    pub(super) fn believe(
        &self,
        env: &Env,
        token: &[u8],
        allowance: &mut Allowance,
    ) -> Result<Arc<Claims>> {
        let (name, now) = (name_of(token), env.wall_clock().as_secs());
        loop {
            let keys = {
                let state = lock(&self.state);
                if let Some(claims) = state.believed.get(&name) {
                    return claims.check(now).map(|()| claims.clone());
                }
                if let Some(why) = state.refused.get(&name) {
                    return Err(refused(why));
                }
                state.keys.clone()
            };
            allowance.check(env)?;
            let outcome = keys.verify(token);
            let mut state = lock(&self.state);
            if !Arc::ptr_eq(&state.keys, &keys) {
                continue;
            }
            match outcome {
                Ok(claims) => {
                    allowance.refused += u32::from(claims.check(now).is_err());
                    state.believed.insert(name, Arc::new(claims));
                }
                Err(why) => {
                    allowance.refused += 1;
                    state.refused.insert(name, why);
                }
            }
        }
    }

    /// Looks for other keys, if it is time, and whether tokens have expired. Whether somebody may
    /// something else by that.
    pub(super) async fn renew(&self, env: &Env) -> bool {
        let has_expired = self.has_expired(env.wall_clock().as_secs());
        let keys = {
            let mut state = lock(&self.state);
            if env.now().saturating_sub(state.looked_at) < LOOK {
                return has_expired;
            }
            state.looked_at = env.now();
            state.keys.clone()
        };
        let First::Left(read) = race(env.files().read(&self.file), env.sleep(PATIENCE)).await
        else {
            return has_expired;
        };
        let others = match read {
            Ok(text) if *keys.text() == text => Ok(None),
            Ok(text) => Keys::parse(&self.file, text).map(Some),
            Err(error) => Err(error.into()),
        };
        let mut state = lock(&self.state);
        match others {
            Ok(Some(others)) => {
                *state = State::of(others, state.looked_at);
                true
            }
            Ok(None) => {
                state.told = None;
                has_expired
            }
            Err(error) => {
                if state.is_news(&error.to_string()) {
                    tracing::warn!(code = error.code(), %error, "the keys of tokens can't be read: those before stay in use");
                }
                has_expired
            }
        }
    }

    /// Whether a token has expired since this was asked last.
    fn has_expired(&self, now: u64) -> bool {
        let mut state = lock(&self.state);
        let before = std::mem::replace(&mut state.judged_at, now);
        let is_new = |claims: &Arc<Claims>| (before + 1..=now).contains(&claims.until());
        before < now && state.believed.values().any(is_new)
    }
}

fn name_of(token: &[u8]) -> Name {
    let mut name = [0; 32];
    name.copy_from_slice(digest(&SHA256, token).as_ref());
    name
}

#[cfg(test)]
mod tests {
    use super::super::token::tests::{Signer, header};
    use super::*;
    use plinth_env::block_on;
    use plinth_types::Error;
    use serde_json::json;

    fn believe(tokens: &Tokens, env: &Env, token: &str) -> Result<Arc<Claims>> {
        tokens.believe(env, token.as_bytes(), &mut Allowance::default())
    }

    fn tokens(env: &Env, signer: &Signer) -> Tokens {
        let keys = Keys::parse(Path::new("keys"), signer.set().to_string().into()).unwrap();
        Tokens { file: "keys".into(), state: Mutex::new(State::of(keys, env.now())) }
    }

    fn counts(tokens: &Tokens) -> (usize, usize) {
        let state = lock(&tokens.state);
        (state.believed.values().count(), state.refused.values().count())
    }

    #[test]
    fn what_came_of_a_token_is_remembered_until_it_ends() {
        let (env, signer) = (Env::real(), Signer::new());
        let (tokens, now) = (tokens(&env, &signer), env.wall_clock().as_secs());
        let until = now + 1_000;
        let good = signer.sign(&header("EdDSA", "e"), &json!({ "exp": until }));
        let bad = signer.sign(&header("EdDSA", "nobody's"), &json!({ "exp": until }));
        let early = signer.sign(&header("EdDSA", "e"), &json!({ "exp": until, "nbf": until - 1 }));
        for _ in 0..2 {
            assert!(believe(&tokens, &env, &good).is_ok());
            let told = [&bad, &early].map(|token| believe(&tokens, &env, token).unwrap_err());
            assert!(told.iter().all(|why| *why == Error::permission_denied()));
            // One that isn't valid yet will be.
            assert_eq!(counts(&tokens), (2, 1));
        }
        assert_eq!(
            [until - 1, until, until].map(|at| tokens.has_expired(at)),
            [false, true, false]
        );
        // A clock that was ahead for a moment has ended nothing.
        assert!(believe(&tokens, &env, &good).is_ok());
        let old = signer.sign(&header("EdDSA", "e"), &json!({ "exp": now - 1 }));
        let why = believe(&tokens, &env, &old).unwrap_err();
        assert!(why.to_string().contains("expired") && counts(&tokens) == (3, 1), "{why}");
    }

    #[test]
    fn whoever_shows_many_that_are_none_waits_and_others_do_not() {
        let (env, signer) = (Env::real(), Signer::new());
        let tokens = tokens(&env, &signer);
        let claims = json!({ "exp": env.wall_clock().as_secs() + 1_000 });
        let (mut allowance, mut told) = (Allowance::default(), Vec::new());
        let began = env.now().as_secs();
        for n in 0..REFUSED + 5 {
            let token = format!("a.{n}.c");
            let error = tokens.believe(&env, token.as_bytes(), &mut allowance).unwrap_err();
            told.push(error == Error::permission_denied());
        }
        if env.now().as_secs() == began {
            assert_eq!(told.iter().filter(|is_refused| **is_refused).count(), REFUSED as usize);
        }
        let good = signer.sign(&header("ES256", "p"), &claims);
        assert!(believe(&tokens, &env, &good).is_ok());
        // What is known costs nothing.
        assert!(tokens.believe(&env, good.as_bytes(), &mut allowance).is_ok());
        let before = tokens.believe(&env, b"a.0.c", &mut allowance).unwrap_err();
        assert_eq!(before, Error::permission_denied());
    }

    #[test]
    fn keys_are_read_again_when_they_change_and_what_is_no_set_replaces_nothing() {
        let env = Env::real();
        let dir = block_on(env.files().temporary_dir("keys")).unwrap();
        let file = dir.path().join("keys.json");
        let write = |text: &str| block_on(env.files().replace(&file, text.as_bytes())).unwrap();
        let (signer, other) = (Signer::new(), Signer::new());
        write(&signer.set().to_string());
        let tokens = block_on(Tokens::open(&env, &file)).unwrap();
        let renew = || {
            lock(&tokens.state).looked_at = Duration::ZERO;
            while env.now() < LOOK {
                block_on(env.sleep(Duration::from_millis(10)));
            }
            block_on(tokens.renew(&env))
        };
        let claims = json!({ "exp": env.wall_clock().as_secs() + 1_000 });
        let [ours, theirs] =
            [&signer, &other].map(|signer| signer.sign(&header("EdDSA", "e"), &claims));
        for text in ["", "[]", "{}", "{\"keys\": 1}"] {
            write(text);
            assert!(!renew(), "{text}");
            assert!(block_on(Tokens::open(&env, &file)).is_err(), "{text}");
        }
        let is_believed = |token: &str| believe(&tokens, &env, token).is_ok();
        assert_eq!((is_believed(&ours), is_believed(&theirs)), (true, false));
        write(&other.set().to_string());
        assert!(renew() && !renew());
        assert_eq!((is_believed(&ours), is_believed(&theirs)), (false, true));
    }
}
