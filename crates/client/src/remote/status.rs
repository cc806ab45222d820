//! What the client itself says in a status document: whether anybody could be reached, and whether
//! its cluster file says what it should.
//!
//! The document comes as text from a server, which knows nothing of the client's file; its first
//! member is always the one about that file, and is written anew here.

use super::cluster_file::ClusterFile;
use crate::endpoint::Description;
use crate::json::quoted;
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_env::sync::{First, race};
use plinth_types::Error;
use std::time::Duration;

/// How soon it is noticed that nobody can be reached.
const TICK: Duration = Duration::from_millis(100);

/// After which others are asked instead of the one server that a file names.
const SILENT: Duration = Duration::from_secs(1);

/// How each document of a server begins.
const BEGIN: &str = r#"{"client":{"cluster_file":{"path":"#;
const UP_TO_DATE: &str = r#","up_to_date":true}"#;
const MESSAGES: &str = r#""messages":["#;

/// A document, with what there is to say of this client's cluster file, which ought to be as `file`
/// is.
pub(super) fn told(env: &Env, file: ClusterFile, document: Reply<String>) -> Reply<String> {
    let (promise, reply) = promise();
    let theirs = env.clone();
    drop(env.spawn_network("status", async move {
        let doubt = file.doubt(&theirs).await;
        let path = file.path().map(|path| path.display().to_string());
        promise.send(
            document.await.map(|document| with_file(document, path.as_deref(), doubt.as_deref())),
        );
    }));
    reply
}

/// A server's document with this client's file in it, and what is wrong with that.
fn with_file(document: String, path: Option<&str>, doubt: Option<&str>) -> String {
    let Some((path, rest)) = path.zip(behind_file(&document)) else { return document };
    let mut told = format!("{BEGIN}{},\"up_to_date\":{}}}", quoted(path), doubt.is_none());
    match doubt.zip(rest.split_once(MESSAGES)) {
        Some((doubt, (before, after))) => {
            let comma = if after.starts_with(']') { "" } else { "," };
            let (name, text) = (quoted("incorrect_cluster_file_contents"), quoted(doubt));
            told += before;
            told += &format!("{MESSAGES}{{\"description\":{text},\"name\":{name}}}{comma}{after}");
        }
        None => told += rest,
    }
    told
}

/// What stands behind the part about the cluster file, if the document is as servers write it.
fn behind_file(document: &str) -> Option<&str> {
    let mut rest = document.strip_prefix(BEGIN)?.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = rest.next() {
        match c {
            '\\' => _ = rest.next(),
            '"' => {
                let from = document.len() - rest.as_str().len();
                debug_assert!(at < from, "offsets rise");
                return document[from..].strip_prefix(UP_TO_DATE);
            }
            _ => {}
        }
    }
    None
}

/// The document of the server that a client's file names, or what `others` say if that is silent.
pub(super) fn or_of_others(
    env: &Env,
    own: Reply<String>,
    others: impl FnOnce() -> Reply<String> + Send + 'static,
) -> Reply<String> {
    let ((promise, reply), theirs) = (promise(), env.clone());
    drop(env.spawn_network("status", async move {
        promise.send(match race(own, theirs.sleep(SILENT)).await {
            First::Left(Ok(document)) => Ok(document),
            _ => others().await,
        });
    }));
    reply
}

/// The document that `ask` gives, or the client's own once nobody can be reached: that is what
/// somebody asks for then.
pub(super) fn unless_absent(
    env: &Env,
    unreachable: impl Fn() -> Option<Error> + Send + 'static,
    ask: impl FnOnce() -> Reply<String>,
    description: Description,
) -> Reply<String> {
    if let Some(why) = unreachable() {
        return Reply::ready(Ok(absent(&description, &why.to_string())));
    }
    let mut document = ask();
    let ((promise, reply), theirs) = (promise(), env.clone());
    drop(env.spawn_network("status", async move {
        let told = loop {
            if let First::Left(told) = race(&mut document, theirs.sleep(TICK)).await {
                break told;
            }
            if let Some(why) = unreachable() {
                break Ok(absent(&description, &why.to_string()));
            }
        };
        promise.send(told);
    }));
    reply
}

/// The status of a database that can't be reached, which is for the client to say.
pub(super) fn absent(description: &Description, why: &str) -> String {
    format!(
        "{{\"client\":{{\"cluster_file\":{{\"path\":{},\"up_to_date\":true}},\
         \"coordinators\":{{\"coordinators\":[],\"quorum_reachable\":false}},\
         \"database_status\":{{\"available\":false,\"healthy\":false}},\
         \"messages\":[{{\"name\":\"unreachable\",\"description\":{}}}]}},\"cluster\":{{}}}}",
        quoted(&description.cluster_file_path),
        quoted(why)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_that_of_the_client_and_what_is_wrong_with_it_comes_first() {
        let document = |messages: &str| {
            format!(
                r#"{{"client":{{"cluster_file":{{"path":"/srv/a\\\"}}b","up_to_date":true}},"messages":[{messages}]}},"cluster":{{"messages":[]}}}}"#
            )
        };
        let well = with_file(document(""), Some("/etc/f"), None);
        assert_eq!(
            well,
            r#"{"client":{"cluster_file":{"path":"/etc/f","up_to_date":true},"messages":[]},"cluster":{"messages":[]}}"#
        );
        for (before, comma) in [("", ""), (r#"{"name":"x"}"#, ",")] {
            let told = with_file(document(before), Some("/etc/f"), Some("no \"room\""));
            let message =
                r#"{"description":"no \"room\"","name":"incorrect_cluster_file_contents"}"#;
            assert_eq!(
                told,
                format!(
                    r#"{{"client":{{"cluster_file":{{"path":"/etc/f","up_to_date":false}},"messages":[{message}{comma}{before}]}},"cluster":{{"messages":[]}}}}"#
                )
            );
        }
        assert_eq!(
            with_file("{}".into(), Some("/etc/f"), Some("x")),
            "{}",
            "another server's, left as it is"
        );
        assert_eq!(with_file(document(""), None, Some("x")), document(""));
    }
}
