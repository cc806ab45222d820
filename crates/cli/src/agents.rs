//! What works on a database beside its server: the agent of continuous backups, and whoever looks
//! how a second site is.

use plinth::Database;
use plinth::backup::Agent;
use plinth_bench::Value;
use plinth_dr::Watch;
use plinth_env::Env;
use plinth_env::sync::race;
use std::time::Duration;

/// How long each is waited for at the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Both, as long as this is there.
pub struct Agents {
    backups: Agent,
    sites: Watch,
}

impl Agents {
    /// Begins; for a member of a cluster `cluster` is the same database, wherever it is led.
    pub fn start(env: &Env, database: &Database, cluster: Option<&Database>) -> Self {
        let backups = match cluster {
            Some(cluster) => Agent::start_in_cluster(env, database, cluster),
            None => Agent::start(env, database),
        };
        Self { backups, sites: Watch::start(env, database) }
    }

    /// What measures them, in Prometheus' text format.
    pub fn metrics(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let (backups, sites) = (self.backups.metrics(), self.sites.metrics());
        move || backups() + &sites()
    }

    /// What the status document has of them below `cluster.layers`: an object as JSON.
    pub fn layers(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let (backups, sites) = (self.backups.layer(), self.sites.layers());
        move || {
            let read = |text: String| text.parse::<Value>().unwrap_or_default();
            let mut layers = read(sites());
            layers["backup"] = read(backups());
            layers.to_string()
        }
    }

    /// Ends them. What the agent is at goes on wherever another one begins; one that waits for its
    /// target is not waited for.
    pub async fn end(self, env: &Env) {
        race(self.backups.stop(), env.sleep(FAREWELL)).await;
        race(self.sites.stop(), env.sleep(FAREWELL)).await;
    }
}
