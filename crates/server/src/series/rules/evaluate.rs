//! Evaluating: when this server comes to own the series it takes over what was kept of each group,
//! and goes on with it until it owns them no more.
//!
//! Groups go in lanes beside each other, so that a slow one holds up a few others at most. Between
//! two evaluations a lane looks at least once a second whether it is still its business, so that a
//! clock that jumps, a lease that is lost and a file that changes are noticed soon.

use super::Rules;
use super::store::Owned;
use crate::series::Hub;
use crate::series::events;
use plinth_env::Env;
use plinth_env::sync::{First, all, race};
use plinth_rules::{Group, Saved, Store};
use plinth_series::SeriesStore;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Groups that are evaluated beside each other.
const LANES: usize = 8;
/// How often it is looked whether anything has changed.
const LOOK: Duration = Duration::from_secs(1);
/// How often files are read again.
const READ_AGAIN: Duration = Duration::from_secs(15);
/// How often it is kept how far a group is with which nothing happens.
const KEEP: Duration = Duration::from_secs(60);
/// How long it may take to keep it: alerts wait for that, also those that say that nothing can be
/// committed.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the names begin with under which something is kept.
const KEPT: &str = "rules/";

/// A group, and what is kept of it.
struct Running {
    group: Group,
    kept: Saved,
    kept_at: Option<Duration>,
    /// What the group was when it was kept: see [`Group::fingerprint`].
    kept_as: u64,
    /// Whether it couldn't be kept the last time.
    is_unkept: bool,
}

/// Evaluates whenever this server owns the series, until it stops.
pub(super) async fn run(hub: Arc<Hub>) {
    let Some(rules) = &hub.duties.rules else { return };
    let mut before: Vec<Group> = Vec::new();
    while !rules.is_stopping() {
        let Ok(opened) = hub.slot.of_first() else {
            // Whoever has the series now evaluates, keeps how far he is, and tells of alerts.
            rules.show_nothing();
            rules.notifiers.iter().for_each(|notifier| notifier.forget());
            before.clear();
            race(rules.stop.wait(), hub.env.sleep(LOOK)).await;
            continue;
        };
        let store = Owned(opened.store.clone());
        match take_over(&hub.env, rules, &store, std::mem::take(&mut before)).await {
            Ok(running) => before = evaluate(&hub, rules, &store, running).await,
            Err(why) => {
                events::rules_unknown(&why);
                race(rules.stop.wait(), hub.env.sleep(LOOK)).await;
            }
        }
    }
}

/// Evaluates groups until it is over, and gives them back if the series are still this server's.
async fn evaluate(
    hub: &Hub,
    rules: &Rules,
    store: &Owned,
    mut running: Vec<Running>,
) -> Vec<Group> {
    let is_over = AtomicBool::new(false);
    let in_a_lane = running.len().div_ceil(LANES).max(1);
    {
        let lanes = running
            .chunks_mut(in_a_lane)
            .map(|groups| lane(&hub.env, rules, store, (groups, &is_over)));
        let mut lanes = std::pin::pin!(all(lanes));
        let mut watching = std::pin::pin!(watch(&hub.env, rules, store, &is_over));
        // What is being evaluated is brought to its end.
        match race(watching.as_mut(), lanes.as_mut()).await {
            First::Left(()) => drop(lanes.await),
            First::Right(_) => watching.await,
        }
    }
    match store.0.failure() {
        None => running.into_iter().map(|running| running.group).collect(),
        Some(_) => Vec::new(),
    }
}

/// The groups, each where it ended: here, before the files changed; or elsewhere, as it was kept.
async fn take_over(
    env: &Env,
    rules: &Rules,
    store: &Owned,
    before: Vec<Group>,
) -> plinth_series::Result<Vec<Running>> {
    let mut kept = saved(store.0.kept().await?);
    // Whoever evaluated before may have read them since this server did.
    rules.read_again(env).await;
    let mut here: BTreeMap<String, Group> =
        before.into_iter().map(|group| (group.key(), group)).collect();
    rules.show_nothing();
    let mut running = Vec::new();
    for mut group in rules.files.groups(&rules.options) {
        let key = group.key();
        let kept = kept.remove(&key).unwrap_or_default();
        if let Some(before) = here.remove(&key) {
            group.succeed(&before);
        } else if kept != Saved::default()
            && let Err(why) = group.load(&kept)
        {
            events::rules_not_restored(&key, &why);
        }
        rules.show(&key, group.status());
        let (kept_as, is_unkept) = (group.fingerprint(), false);
        running.push(Running { group, kept, kept_at: None, kept_as, is_unkept });
    }
    if rules.is_outdated() {
        // Nobody knows which groups there should be.
        return Ok(running);
    }
    // Groups that are no more: their series end.
    for (key, saved) in kept {
        if let Ok(ends) = saved.ends(wall(env)) {
            // What can't be written now is seen for five minutes, and then it is over too.
            let _ = store.write(&ends).await;
        }
        for part in ["alerts", "series"] {
            store.0.keep(&format!("{KEPT}{key}/{part}"), b"").await?;
        }
    }
    Ok(running)
}

fn wall(env: &Env) -> i64 {
    i64::try_from(env.wall_clock().as_nanos()).unwrap_or(i64::MAX)
}

/// What is kept, by the keys of groups.
fn saved(kept: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Saved> {
    let mut all: BTreeMap<String, Saved> = BTreeMap::new();
    for (name, text) in kept {
        let Some((key, part)) = name.strip_prefix(KEPT).and_then(|name| name.rsplit_once('/'))
        else {
            continue;
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let saved = all.entry(key.to_string()).or_default();
        match part {
            "alerts" => saved.alerts = text,
            _ => saved.series = text,
        }
    }
    all
}

/// Says when it is over: the series are somebody else's, the files have changed, or the server
/// stops.
async fn watch(env: &Env, rules: &Rules, store: &Owned, is_over: &AtomicBool) {
    let mut read = env.now();
    loop {
        race(rules.stop.wait(), env.sleep(LOOK)).await;
        if rules.is_stopping() || store.0.failure().is_some() {
            break;
        }
        if env.now().saturating_sub(read) < READ_AGAIN {
            continue;
        }
        read = env.now();
        if rules.read_again(env).await {
            break;
        }
    }
    is_over.store(true, Ordering::Relaxed);
}

/// Evaluates groups one after the other, each when it is due, until it is over.
async fn lane(
    env: &Env,
    rules: &Rules,
    store: &Owned,
    (groups, is_over): (&mut [Running], &AtomicBool),
) {
    while !is_over.load(Ordering::Relaxed) {
        for running in groups.iter_mut() {
            let Some(slot) = running.group.due(wall(env)) else { continue };
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let outcome = running.group.evaluate(store, env, slot).await;
            if store.0.failure().is_some() {
                // Whoever has the series now evaluates this, and tells of it.
                return;
            }
            rules.note(&running.group.key(), running.group.status(), &outcome);
            running.keep(env, rules, &store.0, !outcome.notices.is_empty()).await;
            // Keeping it may have been the first to meet with whoever has the series now. What
            // can't be kept for another reason is told all the same.
            if store.0.failure().is_some() {
                return;
            }
            for notifier in &rules.notifiers {
                notifier.add(&outcome.notices);
            }
        }
        let now = wall(env);
        let next = groups.iter().map(|running| running.group.next(now)).min().unwrap_or(i64::MAX);
        let pause = Duration::from_nanos(u64::try_from(next.saturating_sub(now)).unwrap_or(0));
        env.sleep(pause.clamp(Duration::from_millis(1), LOOK)).await;
    }
}

impl Running {
    /// Keeps how far the group is, as far as that is news; always before anybody is told.
    async fn keep(&mut self, env: &Env, rules: &Rules, store: &SeriesStore, is_told: bool) {
        let now = env.now();
        let is_due = self.kept_at.is_none_or(|at| now.saturating_sub(at) >= KEEP);
        let is = self.group.fingerprint();
        if !is_due && !is_told && !self.is_unkept && is == self.kept_as {
            return;
        }
        let saved = self.group.save();
        match race(self.keep_all(store, saved), env.sleep(PATIENCE)).await {
            First::Left(Ok(())) => {
                (self.kept_at, self.kept_as, self.is_unkept) = (Some(now), is, false);
            }
            // It is tried again behind the next evaluation.
            First::Left(Err(why)) => self.is_not_kept(rules, &why.to_string()),
            First::Right(()) => self.is_not_kept(rules, &format!("not within {PATIENCE:?}")),
        }
    }

    fn is_not_kept(&mut self, rules: &Rules, why: &str) {
        rules.counts.unsaved.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_unkept, true) {
            events::rules_not_kept(&self.group.key(), why);
        }
    }

    /// Keeps what isn't kept yet: alerts also if there is no room for the series.
    async fn keep_all(&mut self, store: &SeriesStore, saved: Saved) -> plinth_series::Result<()> {
        // What is said to be there has to be there first.
        store.sync().await?;
        let key = self.group.key();
        for (part, text, kept) in [
            ("alerts", saved.alerts, &mut self.kept.alerts),
            ("series", saved.series, &mut self.kept.series),
        ] {
            if text != *kept {
                store.keep(&format!("{KEPT}{key}/{part}"), text.as_bytes()).await?;
                *kept = text;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RulesConfig;
    use plinth_client::Database;
    use plinth_env::simulated::Simulation;
    use plinth_pipeline::{Node, NodeConfig};
    use std::collections::BTreeSet;

    const FIRES: &str = "groups: [{name: g, interval: 1s, rules: [{alert: A, expr: vector(1)}]}]";

    /// Rules of which alerts are told with each evaluation, and a database with series.
    async fn opened(env: &Env, text: &str) -> (Rules, Database) {
        env.files().replace("/rules.yml", text.as_bytes()).await.unwrap();
        let config = RulesConfig {
            files: vec!["/rules.yml".into()],
            alertmanagers: vec!["http://nowhere".into()],
            ..RulesConfig::default()
        };
        let mut rules = Rules::open(env, &config, None).await.unwrap().unwrap();
        rules.options.resend = 0;
        let node = Node::in_memory(env, NodeConfig::default()).await.unwrap();
        (rules, Database::new(Arc::new(node.endpoint())))
    }

    /// Evaluates for some seconds; how many alerts are to be told then.
    async fn evaluated(
        env: &Env,
        (rules, store): (&Rules, &Owned),
        running: &mut [Running],
        seconds: u64,
    ) -> u64 {
        rules.notifiers[0].forget();
        let is_over = AtomicBool::new(false);
        let lane = lane(env, rules, store, (running, &is_over));
        race(lane, env.sleep(Duration::from_secs(seconds))).await;
        rules.notifiers[0].waiting()
    }

    /// A group with alerts was kept, and the series synced for it, with each evaluation.
    #[test]
    fn a_group_with_which_nothing_happens_is_kept_once_a_minute() {
        let sim = Simulation::new(2);
        let env = sim.process("server");
        sim.run_until(async {
            let (mut rules, database) = opened(&env, FIRES).await;
            rules.options.resend = 1000 * 1_000_000_000;
            let store = Owned(SeriesStore::open(&database).await.unwrap());
            let mut running = take_over(&env, &rules, &store, Vec::new()).await.unwrap();
            let mut kept = BTreeSet::new();
            for _ in 0..130 {
                evaluated(&env, (&rules, &store), &mut running, 1).await;
                let all = saved(store.0.kept().await.unwrap());
                kept.extend(all.into_values().map(|saved| saved.alerts));
            }
            // When it fires, and behind each minute.
            assert_eq!(kept.len(), 3, "{kept:?}");
        });
    }

    /// Alerts were told before what they come from was kept, so a server that had lost the series
    /// and didn't know it told of alerts beside the one that has them.
    #[test]
    fn whoever_has_the_series_no_longer_tells_nobody() {
        let sim = Simulation::new(1);
        let env = sim.process("server");
        sim.run_until(async {
            let (rules, database) = opened(&env, FIRES).await;
            let store = Owned(SeriesStore::open(&database).await.unwrap());
            let mut running = take_over(&env, &rules, &store, Vec::new()).await.unwrap();
            assert_eq!(evaluated(&env, (&rules, &store), &mut running, 3).await, 1);
            let _theirs = SeriesStore::open(&database).await.unwrap();
            assert_eq!(evaluated(&env, (&rules, &store), &mut running, 3).await, 0);
        });
    }
}
