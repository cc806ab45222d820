//! Who may ask: the Host a browser names, the token, the sessions that a token opens, and where a
//! write comes from.
//!
//! On loopback whoever is on the machine may look. What must be kept out there is other people's
//! pages in the user's browser: those that made their own name point here are known by the Host
//! they name, and those that only send forms by what a form can't say. Elsewhere a token is needed:
//! as a bearer, or typed once into the page, which gets a session that scripts can't read. Sessions
//! are few, end after hours, and end with the server.

use crate::answers::{Answer, May};
use crate::config::ConsoleConfig;
use crate::rights::{Identity, Rights};
use crate::token::{self, PENANCE, is_local, is_same};
use hyper::HeaderMap;
use hyper::header::{self, HeaderName};
use plinth_env::Env;
use plinth_types::{Error, Result};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a server says of itself alone: no key is in it as long as there are no rows.
const OF_ITSELF: [&str; 3] = ["/metrics", "/status", "/status/json"];
/// Bytes of a login at most.
pub(super) const LOGIN_BYTES: usize = 4 << 10;
// The longest token fits in, with some escapes.
const _: () = assert!(2 * crate::token::LONGEST_TOKEN <= LOGIN_BYTES);
/// Sessions at a time; the oldest makes room.
const SESSIONS: usize = 64;
/// How long one lasts.
const SESSION: Duration = Duration::from_secs(12 * 60 * 60);
/// What no form of another site can send, and no script of one without being asked about it first.
const OURS: HeaderName = HeaderName::from_static("x-plinth-console");

pub(crate) struct Access {
    token: Option<(PathBuf, String)>,
    sessions: Mutex<VecDeque<Session>>,
    /// A cookie belongs to a host, whatever its port: each server's has a name of its own.
    cookie: String,
    /// Whether HTTP is HTTPS here: then a browser must not send the session over anything else.
    secure: bool,
    rights: Arc<Rights>,
}

struct Session {
    id: String,
    until: Duration,
}

impl Access {
    pub(crate) async fn open(
        env: &Env,
        config: &ConsoleConfig,
        address: Option<SocketAddr>,
        secure: bool,
        rights: Arc<Rights>,
    ) -> Result<Self> {
        let is_open =
            address.is_some_and(|address| !address.ip().is_loopback()) && !env.is_simulated();
        let token = match &config.token_file {
            Some(file) if address.is_some() => Some((file.clone(), token::read(env, file).await?)),
            _ if is_open => {
                let detail = "HTTP that other machines can reach needs a file for its token";
                return Err(Error::invalid_local_address().with_detail(detail));
            }
            _ => None,
        };
        let cookie = format!("plinth-{}", address.map_or(0, |address| address.port()));
        Ok(Self { token, sessions: Mutex::default(), cookie, secure, rights })
    }

    /// Whether whoever asked may go on hearing more, for as long as this is so.
    pub(super) fn may_go_on(&self, from: &Identity, token: Option<String>) -> May {
        let (rights, from) = (self.rights.clone(), from.clone());
        match (&self.token, token) {
            // What a session or the file's token has opened stays open.
            (Some(_), None) => Box::new(|| true),
            (Some(_), Some(token)) => Box::new(move || is_operators(&rights, &from, &token)),
            (None, token) => {
                Box::new(move || rights.check_operator(&from, token.as_deref()).is_ok())
            }
        }
    }

    /// The token that a request shows, unless it is that of the file.
    pub(super) fn other_token(&self, headers: &HeaderMap) -> Option<String> {
        let given = bearer(headers)?;
        let is_ours = self.token.as_ref().is_some_and(|(_, token)| is_same(given, token));
        (!is_ours).then(|| given.to_owned())
    }

    pub(super) fn token_file(&self) -> Option<&Path> {
        self.token.as_ref().map(|(file, _)| file.as_path())
    }

    fn sessions(&self) -> MutexGuard<'_, VecDeque<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses names that are not this machine's, where nothing else tells who asks.
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), Answer> {
        let Some(host) = headers.get(header::HOST) else { return Ok(()) };
        if self.token.is_some() || host.to_str().is_ok_and(is_local) {
            return Ok(());
        }
        Err(Answer::forbidden(
            "the Host of this request is not this machine; ask for localhost or 127.0.0.1",
        ))
    }

    /// Where nothing is asked for but rights: refuses whom they make no operator, by a token of
    /// theirs or by the address. What a server says of itself is told as long as it isn't known
    /// whether there are any, and it has no rows.
    pub(super) async fn check_rights(
        &self,
        env: &Env,
        (headers, path): (&HeaderMap, &str),
        from: &Identity,
    ) -> Result<(), Answer> {
        if self.token.is_some() {
            return Ok(());
        }
        match self.rights.check_operator(from, bearer(headers)) {
            Ok(()) => Ok(()),
            Err(why) if why == Error::permission_denied() => {
                env.sleep(PENANCE).await;
                Err(Answer::token_needed("there are rights: this takes an operator"))
            }
            Err(_) if self.rights.is_alone() && OF_ITSELF.contains(&path) => Ok(()),
            Err(why) => Err(Answer::database(&why)),
        }
    }

    /// Refuses who has neither the token nor a session. A wrong token has to wait for that.
    pub(super) async fn check_token(
        &self,
        env: &Env,
        headers: &HeaderMap,
        from: &Identity,
    ) -> Result<(), Answer> {
        let Some((_, token)) = &self.token else { return Ok(()) };
        if let Some(given) = bearer(headers) {
            if is_same(given, token) || is_operators(&self.rights, from, given) {
                return Ok(());
            }
            env.sleep(PENANCE).await;
            return Err(Answer::token_needed("the token is wrong"));
        }
        let now = env.now();
        let mut sessions = self.sessions();
        sessions.retain(|session| session.until > now);
        let is_known = cookies(headers, &self.cookie)
            .any(|given| sessions.iter().any(|session| is_same(given, &session.id)));
        drop(sessions);
        if is_known {
            Ok(())
        } else {
            Err(Answer::token_needed("a token is needed: log in, or send it as a bearer"))
        }
    }

    /// Opens a session for the token in `body`.
    pub(super) async fn log_in(&self, env: &Env, body: &Value) -> Result<Answer, Answer> {
        let Some(given) = body.get("token").and_then(Value::as_str) else {
            return Err(Answer::bad_request("a login is {\"token\": \"...\"}"));
        };
        let Some((_, token)) = &self.token else {
            return Ok(Answer::value(&json!({ "token": false })));
        };
        if !is_same(given.trim(), token) {
            env.sleep(PENANCE).await;
            return Err(Answer::token_needed("the token is wrong"));
        }
        let id = token::random(env);
        let cookie = self.set_cookie(&id, SESSION);
        let mut sessions = self.sessions();
        if sessions.len() >= SESSIONS {
            sessions.pop_front();
        }
        sessions.push_back(Session { id, until: env.now() + SESSION });
        Ok(Answer::value(&json!({ "token": true })).with_cookie(cookie))
    }

    /// Ends the session that a request has.
    pub(super) fn log_out(&self, headers: &HeaderMap) -> Answer {
        let mut sessions = self.sessions();
        sessions.retain(|session| {
            !cookies(headers, &self.cookie).any(|given| is_same(given, &session.id))
        });
        let cookie = self.set_cookie("", Duration::ZERO);
        Answer::value(&json!({ "token": self.token.is_some() })).with_cookie(cookie)
    }

    /// What gives a browser its session, or with nothing and no time takes it away.
    fn set_cookie(&self, id: &str, lasts: Duration) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        let (name, seconds) = (&self.cookie, lasts.as_secs());
        format!("{name}={id}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}")
    }
}

/// Refuses what another site's page could have sent.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Answer> {
    if !headers.contains_key(OURS) {
        return Err(Answer::forbidden(
            "what changes something must carry the header X-Plinth-Console: 1",
        ));
    }
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if text(HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| !matches!(site, "same-origin" | "none"))
    {
        return Err(Answer::forbidden("another site's page has sent this"));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let from =
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    if from.is_some() && from == text(header::HOST) {
        return Ok(());
    }
    Err(Answer::forbidden("the Origin of this request is not the server"))
}

/// Whether a token is an operator's, where only those are let in.
fn is_operators(rights: &Rights, from: &Identity, token: &str) -> bool {
    let is_judged = rights.reads_tokens() && rights.are_known();
    is_judged && rights.check_operator(from, Some(token)).is_ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The values of cookies of a name.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(move |(found, _)| *found == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=1; plinth-80=x;plinth-8=y".parse().unwrap());
        headers.append(header::COOKIE, "plinth-8=z".parse().unwrap());
        assert_eq!(cookies(&headers, "plinth-8").collect::<Vec<_>>(), ["y", "z"]);
    }
}
