//! Specs: which workloads a run has, how large it is, and what goes wrong in it; small TOML files.
//!
//! A spec says what matters to it and leaves the rest to the seed: a number may be given as a
//! number, as a range from which each seed draws, or as a list from which it picks; what isn't
//! named is drawn from the workload's own range. A name that means nothing (a workload, a
//! parameter, a fault) is refused when the spec is read, not when it runs.

use crate::draw::{Choice, Entry};
use crate::faults::Faults;
use crate::link::Link;
use crate::workloads::{self, Workloads};
use plinth_env::simulated::Random;
use serde_json::{Map, Value};
use std::ops::Range;

/// One run's composition.
#[derive(Clone, Debug)]
pub struct Spec {
    /// By which `--spec` finds it: the name of a built-in spec, or the path of a file.
    pub name: String,
    /// What it is for, in a sentence.
    pub about: String,
    /// The workloads, side by side on one database.
    pub(crate) workloads: Vec<Entry>,
    pub(crate) clients: Choice,
    pub(crate) milliseconds: Choice,
    pub(crate) links: Vec<Link>,
    pub(crate) faults: Faults,
    /// How many nodes the database has; 1: it is a database of its own.
    pub(crate) nodes: Choice,
    /// Somebody wants another number of them than the spec says.
    pub(crate) wanted: Option<u64>,
    /// What its workloads may be beside the built-in ones.
    pub(crate) own: Workloads,
    /// How likely a node of its own is restarted after each thing that is done to it, in percent.
    pub(crate) restarts: u64,
}

macro_rules! built_in {
    ($($name:literal)*) => {
        /// The built-in specs: name, and text.
        pub const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../specs/", $name, ".toml")))),*];
    };
}

built_in! {
    "api_correctness" "atomic_ops" "automatic_idempotency" "backup" "bit_flips" "changes" "conflict_range" "conflict_range_network"
    "cycle" "disk_durability" "doubled" "dr" "everything_at_once" "fuzz_api_correctness" "history_network" "increment"
    "lost_answers" "network" "pinned_snapshots" "quiet" "ryow_correctness" "selector_correctness" "serializability" "sideband"
    "small_flushes" "version_stamp" "watches" "write_during_read" "cluster_backup" "cluster_changes" "cluster_cycle" "cluster_damage" "cluster_disks" "cluster_dr"
    "cluster_history" "cluster_increment" "cluster_members" "cluster_mixed" "cluster_quiet" "cluster_upgrade"
}

impl Spec {
    /// The built-in spec of this name, or the one in the file of this name.
    ///
    /// # Errors
    /// There is none, or what is wrong with it.
    pub fn find(name: &str) -> Result<Self, String> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::read(name, text);
        }
        let files = plinth_env::Env::real();
        let text = plinth_env::block_on(files.files().read(name));
        let text = text.map_err(|_| {
            let known: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            format!(
                "there is no file {name:?} and no spec of that name; there are {}",
                known.join(", ")
            )
        })?;
        Self::read(name, &String::from_utf8_lossy(&text))
    }

    /// All built-in specs.
    ///
    /// # Panics
    /// If one of them is wrong, which a test rules out.
    pub fn all() -> Vec<Self> {
        let specs = BUILT_IN.iter().map(|(name, text)| Self::read(name, text));
        specs.map(|spec| spec.expect("built-in specs are right")).collect()
    }

    /// Reads a spec.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(name: &str, text: &str) -> Result<Self, String> {
        Self::read_with(&Workloads::default(), name, text)
    }

    /// Reads a spec whose workloads may be these too.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_with(own: &Workloads, name: &str, text: &str) -> Result<Self, String> {
        Self::parse(own, name, text).map_err(|what| format!("spec {name}: {what}"))
    }

    fn parse(own: &Workloads, name: &str, text: &str) -> Result<Self, String> {
        let mut all: Map<String, Value> =
            basic_toml::from_str(text).map_err(|error| error.to_string())?;
        let about = all.remove("about").and_then(|about| about.as_str().map(str::to_string));
        let workloads = match all.remove("workload") {
            Some(Value::Array(entries)) => {
                entries.into_iter().map(Entry::read).collect::<Result<Vec<_>, _>>()?
            }
            _ => return Err("it has no [[workload]]".into()),
        };
        let mut choice = |name: &str, usual: Range<u64>| {
            all.remove(name).map_or(Ok(Choice::Between(usual)), |value| Choice::read(&value))
        };
        let clients = choice("clients", 2..8)?;
        let milliseconds = choice("milliseconds", 1_500..6_000)?;
        let nodes = choice("nodes", 1..2)?;
        let restarts = match all.remove("restarts") {
            None => 40,
            Some(value) => match value.as_u64() {
                Some(percent @ ..=100) => percent,
                _ => return Err(format!("restarts = {value} is no number of percents")),
            },
        };
        let links = Link::read(all.remove("link"))?;
        let faults = Faults::read(all.remove("faults"))?;
        if let Some(name) = all.into_iter().next().map(|(name, _)| name) {
            return Err(format!("{name:?} means nothing here"));
        }
        let about = about.ok_or("it doesn't say what it is about")?;
        let spec = Self {
            name: name.into(),
            about,
            workloads,
            clients,
            milliseconds,
            links,
            faults,
            nodes,
            wanted: None,
            own: own.clone(),
            restarts,
        };
        spec.check()?;
        Ok(spec)
    }

    /// The same on so many nodes; a spec of one node has what goes wrong in clusters besides.
    #[must_use]
    pub fn on(mut self, nodes: u64) -> Self {
        if nodes > 1 && !self.is_of_clusters() {
            self.faults = self.faults.of_clusters();
        }
        self.nodes = if nodes > 1 { Choice::OneOf(vec![nodes]) } else { Choice::Between(1..2) };
        self.wanted = Some(nodes);
        self
    }

    /// Whether its databases have several nodes.
    pub(crate) fn is_of_clusters(&self) -> bool {
        self.nodes != Choice::Between(1..2)
    }

    fn check(&self) -> Result<(), String> {
        let mut names: Vec<&str> = self.workloads.iter().map(|entry| &entry.name[..]).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("a workload stands there twice".into());
        }
        for entry in &self.workloads {
            let made = workloads::make(&self.own, entry, &mut Random::new(0))?;
            if made.owns_database() && self.workloads.len() > 1 {
                return Err(format!("the workload {} wants the database for itself", entry.name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;

    const CYCLE: &str =
        "about = 'a ring'\nclients = '2..4'\n[[workload]]\nname = 'cycle'\nnodes = [5, 7]\n";

    #[test]
    fn a_spec_is_read_and_draws_what_it_says() {
        let spec = Spec::read("mine", CYCLE).unwrap();
        assert_eq!((&spec.name[..], &spec.about[..]), ("mine", "a ring"));
        let mut random = Random::new(1);
        for _ in 0..20 {
            assert!((2..4).contains(&spec.clients.draw(&mut random)));
            let nodes = Draw::new(&mut random, &spec.workloads[0]).number("nodes", 100..200);
            assert!(nodes == 5 || nodes == 7, "{nodes}");
        }
        assert!(spec.faults.is_nothing(), "no faults unless they are asked for");
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (wrong, says) in [
            ("colour = 'red'\n", "colour"),
            ("faults = 'biblical'\n", "biblical"),
            ("link = 'string'\n", "string"),
            ("restarts = 101\n", "restarts = 101"),
            ("clients = 'many'\n", "many"),
        ] {
            let error =
                Spec::read("mine", &format!("{wrong}{CYCLE}").replace("clients = '2..4'\n", ""))
                    .err();
            assert!(error.as_ref().is_some_and(|error| error.contains(says)), "{wrong}: {error:?}");
        }
        let error = Spec::read("mine", &format!("{CYCLE}colour = 1\n")).unwrap_err();
        assert!(error.contains("no parameter \"colour\""), "{error}");
        let error =
            Spec::read("mine", "about = 'x'\n[[workload]]\nname = 'bicycle'\n").unwrap_err();
        assert!(error.contains("bicycle"), "{error}");
        let two = format!("{CYCLE}[[workload]]\nname = 'serializability'\n");
        assert!(Spec::read("mine", &two).unwrap_err().contains("for itself"));
    }

    #[test]
    fn every_built_in_spec_is_right_and_every_workload_has_one() {
        let specs = Spec::all();
        for name in workloads::NAMES {
            assert!(specs.iter().any(|spec| spec.name == *name), "no spec is named after {name}");
        }
    }
}
