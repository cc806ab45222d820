//! What a server tells of its database's part in a second site: fields of the status document, and
//! measurements.
//!
//! A database knows its own side. The first knows to whom its changes go and what of them was
//! taken; the second knows what it holds, and what the agent last saw of the first. Neither is
//! asked to reach the other.

use crate::rows::hex;
use crate::sites::firsts;
use crate::status::{Phase, Status, status};
use crate::system;
use plinth_client::Database;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, Task};
use plinth_types::{Result, Version, version::VERSIONS_PER_SECOND};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);
/// An agent that has given no sign of life for so long works no more.
const SILENT: Duration = Duration::from_secs(10);

/// One that is followed, as the first knows it.
#[derive(Clone, PartialEq, Debug)]
struct Followed {
    tag: String,
    id: String,
    /// The identity of the second.
    to: String,
    /// How far what the second has taken is behind, in versions; none if its stream is lost.
    lag: Option<Version>,
}

/// Both sides of a database.
#[derive(Clone, Default)]
struct Sides {
    first: Vec<Followed>,
    second: Option<Status>,
    /// When this was seen, in seconds since 1970.
    at: f64,
}

/// Looks at a database for as long as it lives.
pub struct Watch {
    stop: Arc<Signal>,
    task: Task,
    seen: Arc<Mutex<Sides>>,
}

fn lock(sides: &Mutex<Sides>) -> MutexGuard<'_, Sides> {
    sides.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Begins to look.
    pub fn start(env: &Env, db: &Database) -> Self {
        let (stop, seen) = (Arc::<Signal>::default(), Arc::<Mutex<Sides>>::default());
        let (told, found, inner, db) = (stop.clone(), seen.clone(), env.clone(), db.clone());
        let mut last = env.now();
        let task = env.spawn("second-site-watch", async move {
            // Without a majority nobody answers.
            while let First::Left(looked) = race(look(&db), told.wait()).await {
                match looked {
                    Ok(sides) => (*lock(&found), last) = (sides, inner.now()),
                    // What can't be read for long is not known: measurements that stand still would
                    // say that all is well.
                    Err(_) if inner.now().saturating_sub(last) > SILENT => {
                        *lock(&found) = Sides::default()
                    }
                    Err(_) => {}
                }
                // Where a look is over at once, as in this process, this alone hears of the end.
                if let First::Right(()) = race(inner.sleep(LOOK), told.wait()).await {
                    return;
                }
            }
        });
        Self { stop, task, seen }
    }

    /// What the status document has below `cluster.layers` for its two sides, `dr_backup` and
    /// `dr_backup_dest`, as JSON: an object, empty without a second site.
    pub fn layers(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let seen = self.seen.clone();
        move || lock(&seen).layers().to_string()
    }

    /// What measures them, in Prometheus' text format.
    pub fn metrics(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let seen = self.seen.clone();
        move || lock(&seen).metrics()
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it panicked.
    pub async fn stop(self) -> Result<()> {
        self.stop.notify();
        Ok(self.task.await?)
    }
}

async fn look(db: &Database) -> Result<Sides> {
    let known = firsts(db).await?;
    let mut first = Vec::new();
    if !known.is_empty() {
        let streams = db.list_changes().await?;
        let newest = system::read_version(db).await?;
        for (tag, row) in known {
            let name = crate::rows::stream_name(&row.id);
            let stream = streams.iter().find(|stream| stream.name[..] == *name.as_bytes());
            let lag = stream.map(|stream| (newest - stream.acknowledged).max(0));
            first.push(Followed { tag, id: hex(&row.id), to: row.to, lag });
        }
    }
    let second = status(None, db).await?;
    let at = db.endpoint().env().wall_clock().as_secs_f64();
    Ok(Sides { first, second, at })
}

/// A measurement that is so or not: name, what it is, and whether it is so.
type Flag = (&'static str, &'static str, fn(&Status) -> bool);

fn seconds(versions: Version) -> f64 {
    versions as f64 / VERSIONS_PER_SECOND as f64
}

/// Whether an agent works at the second.
fn has_agent(status: &Status) -> bool {
    status.agent_age.is_some_and(|age| age < SILENT)
}

impl Sides {
    fn layers(&self) -> Value {
        let mut layers = Map::new();
        if !self.first.is_empty() {
            let tags: Map<_, _> =
                self.first.iter().map(|one| (one.tag.clone(), one.to_json())).collect();
            layers.insert("dr_backup".to_owned(), json!({ "last_updated": self.at, "tags": tags }));
        }
        if let Some(second) = &self.second {
            let running = u8::from(has_agent(second));
            let layer = json!({
                "instances_running": running,
                "last_updated": self.at,
                "paused": second.phase == Phase::Paused,
                "tags": { second.tag.as_str(): tag_of(second) },
                "total_workers": running,
            });
            layers.insert("dr_backup_dest".to_owned(), layer);
        }
        Value::Object(layers)
    }

    fn metrics(&self) -> String {
        let mut out = String::new();
        let mut add = |name: &str, help: &str, values: Vec<(&str, f64)>| {
            if values.is_empty() {
                return;
            }
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
            for (tag, value) in values {
                let _ = writeln!(out, "{name}{{tag=\"{}\"}} {value}", escaped(tag));
            }
        };
        let first = |value: fn(&Followed) -> Option<f64>| {
            let values = self.first.iter().filter_map(|one| Some((one.tag.as_str(), value(one)?)));
            values.collect()
        };
        let second = |value: fn(&Status) -> Option<f64>| {
            self.second.iter().filter_map(|one| Some((one.tag.as_str(), value(one)?))).collect()
        };
        let flag = |is_so: bool| Some(f64::from(u8::from(is_so)));
        add(
            "plinth_dr_first_behind_seconds",
            "How far the second site is behind this database, the first one.",
            first(|one| one.lag.map(seconds)),
        );
        let lost: fn(&Followed) -> Option<f64> = |one| Some(f64::from(u8::from(one.lag.is_none())));
        add("plinth_dr_first_lost", "Whether the stream to the second site is gone.", first(lost));
        add(
            "plinth_dr_second_behind_seconds",
            "How far this database, the second one, is behind the first one as its agent saw that last.",
            second(Status::lag_seconds),
        );
        let values: [Flag; 3] = [
            (
                "plinth_dr_second_whole",
                "Whether it is what the first one was at one version.",
                |one| one.whole_at.is_some(),
            ),
            ("plinth_dr_second_agent", "Whether an agent works at it.", has_agent),
            ("plinth_dr_second_failing", "Whether it gets no further.", |one| {
                one.problem.is_some()
            }),
        ];
        for (name, help, is_so) in values {
            let found =
                self.second.iter().filter_map(|one| Some((one.tag.as_str(), flag(is_so(one))?)));
            add(name, help, found.collect());
        }
        out
    }
}

impl Followed {
    fn to_json(&self) -> Value {
        json!({
            "backup_state": if self.lag.is_some() { "is followed" } else { "has lost its stream" },
            "mutation_stream_id": self.id,
            "other": self.to,
            "running_backup": self.lag.is_some(),
            "seconds_behind": self.lag.map(seconds),
            "versions_behind": self.lag,
        })
    }
}

fn tag_of(second: &Status) -> Value {
    json!({
        "agent": has_agent(second),
        "backup_state": second.phase.name(),
        "error": second.problem,
        "has_half": second.has_half,
        "mutation_stream_id": second.id,
        "range_bytes_written": second.copied.bytes,
        "running_backup": !matches!(second.phase, Phase::Beginning | Phase::Aborting),
        "running_backup_is_restorable": second.whole_at.is_some(),
        "seconds_behind": second.lag_seconds(),
        "versions_behind": second.lag_versions(),
    })
}

/// A tag may have anything in it, but for what ends a label.
fn escaped(tag: &str) -> String {
    tag.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Copied;

    fn second() -> Status {
        Status {
            tag: "a\"b".to_owned(),
            id: "07".to_owned(),
            is_reversed: false,
            phase: Phase::Following,
            position: Some(1_000_000),
            whole_at: Some(1_000_000),
            has_half: false,
            newest: Some(3_500_000),
            is_first_reached: false,
            copied: Copied { rows: 3, bytes: 40, of_bytes: None },
            agent_age: Some(Duration::from_secs(11)),
            problem: Some("why".to_owned()),
            is_given_up: false,
        }
    }

    #[test]
    fn each_side_tells_what_it_knows_and_nothing_without_a_second_site() {
        let none = Sides::default();
        assert_eq!((none.layers(), none.metrics()), (json!({}), String::new()));
        let followed =
            |tag: &str, lag| Followed { tag: tag.into(), id: "07".into(), to: "db".into(), lag };
        let first = vec![followed("x", Some(500_000)), followed("y", None)];
        let sides = Sides { first, second: Some(second()), at: 1.0 };
        let layers = sides.layers();
        let tags = &layers["dr_backup"]["tags"];
        assert_eq!(
            (&tags["x"]["seconds_behind"], &tags["x"]["running_backup"]),
            (&json!(0.5), &json!(true))
        );
        assert_eq!(
            (&tags["y"]["seconds_behind"], &tags["y"]["running_backup"]),
            (&Value::Null, &json!(false))
        );
        let dest = &layers["dr_backup_dest"];
        assert_eq!((&dest["instances_running"], &dest["paused"]), (&json!(0), &json!(false)));
        let tag = &dest["tags"]["a\"b"];
        let fields = ["seconds_behind", "running_backup_is_restorable", "backup_state", "error"];
        assert_eq!(
            fields.map(|name| &tag[name]),
            [&json!(2.5), &json!(true), &json!("following"), &json!("why")]
        );
        let metrics = sides.metrics();
        for line in [
            "plinth_dr_first_behind_seconds{tag=\"x\"} 0.5\n",
            "plinth_dr_first_lost{tag=\"y\"} 1\n",
            "plinth_dr_second_behind_seconds{tag=\"a\\\"b\"} 2.5\n",
            "plinth_dr_second_agent{tag=\"a\\\"b\"} 0\n",
        ] {
            assert!(metrics.contains(line), "no {line} in {metrics}");
        }
        assert!(!metrics.contains("plinth_dr_first_behind_seconds{tag=\"y\"}"), "{metrics}");
    }
}
