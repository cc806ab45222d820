//! All that a run found out, with what is needed to judge it and to repeat it.
//!
//! A figure without its commit, command, machine and date is a rumour, so they are part of the
//! report, in the text as in the JSON. So is what spoils figures: other processes on the same
//! processors.

use crate::load::Load;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::table::{self, Style};
use crate::{Error, Result, Settings, words};
use plinth_types::calendar::date_and_time;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// What a run was, for those who want to repeat it.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Provenance {
    /// The version of Plinth.
    pub version: String,
    /// The commit it was built from, or `unknown`.
    pub commit: String,
    /// The command line.
    pub command: String,
    /// The storage engine.
    pub engine: String,
}

/// How the name of an engine ends whose database is a server's.
pub const SERVED: &str = " (served)";

/// The order in which reports show workloads: the seeds', page by page, then ours.
pub(crate) const IN_REPORTS: [&str; 45] = [
    "write1",
    "write2",
    "write3",
    "read",
    "90-10",
    "range",
    "cluster-write",
    "cluster-read",
    "cluster-90-10",
    "throughput",
    "concurrency",
    "latency",
    "random-90-10",
    "random-50-50",
    "cached-reads",
    "range-reads",
    "adjacent-writes",
    "bulk-load",
    "read-latency",
    "commit-latency",
    "transaction-latency",
    "aged",
    "larger",
    "read-1-thread",
    "scaling",
    "write-1000",
    "sustained",
    "memory",
    "checkpoint",
    "backup",
    "restore",
    "changes",
    "dr",
    "three-nodes",
    "failover",
    "catch-up",
    "restart",
    "growth",
    "budget",
    "uncached",
    "series-names",
    "series-rows",
    "series-dictionary",
    "series-opentsdb",
    "series-queries",
];

/// The place of a workload in reports; `None` for one that isn't ours.
pub(crate) fn place_in_reports(name: &str) -> Option<usize> {
    IN_REPORTS.iter().position(|known| *known == name)
}

/// All that a run found out.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// What ran.
    pub provenance: Provenance,
    /// Where.
    pub machine: Machine,
    /// When it began, since the Unix epoch.
    pub date: Duration,
    /// How.
    pub settings: Settings,
    /// How the rows were loaded, unless they were there already.
    pub load: Option<Load>,
    /// What each workload found out.
    pub outcomes: Vec<Outcome>,
    /// Workloads that could not run, and why.
    pub skipped: Vec<(&'static str, String)>,
}

impl Report {
    /// Adds what a workload found out, in its place, or why it didn't run.
    ///
    /// # Errors
    /// That of a workload that failed.
    pub fn add(&mut self, name: &'static str, outcome: Result<Outcome>) -> Result<()> {
        match outcome {
            Ok(outcome) => self.outcomes.push(outcome),
            Err(Error::Skipped(why)) => self.skipped.push((name, why)),
            Err(Error::Interrupted) => self.skipped.push((name, "interrupted".to_owned())),
            Err(error) => return Err(error),
        }
        self.outcomes.sort_by_key(|outcome| place_in_reports(outcome.name).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Whether what was measured is a server's database.
    pub fn is_served(&self) -> bool {
        self.provenance.engine.ends_with(SERVED)
    }

    /// The report as JSON, for a file.
    pub fn json_text(&self) -> String {
        format!("{:#}\n", self.to_json())
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let settings = json!({
            "rows": self.settings.rows,
            "seconds": self.settings.time.as_secs_f64(),
            "clients": self.settings.clients,
            "threads": self.settings.threads,
            "seed": self.settings.seed,
        });
        let skipped = |(name, why): &(&str, String)| json!({"name": (*name), "why": why});
        json!({
            "product": "plinth",
            "version": self.provenance.version,
            "commit": self.provenance.commit,
            "command": self.provenance.command,
            "engine": self.provenance.engine,
            "date": date(self.date),
            "machine": self.machine.to_json(),
            "settings": settings,
            "load": self.load.as_ref().map(Load::to_json),
            "workloads": self.outcomes.iter().map(Outcome::to_json).collect::<Vec<_>>(),
            "skipped": self.skipped.iter().map(skipped).collect::<Vec<_>>(),
            "result_hash": format!("{:016x}", self.hash()),
        })
    }

    /// The report for people: the set-up, the table, and what else one should know.
    pub fn text(&self, style: Style) -> String {
        let mut text = self.head(style);
        text.push('\n');
        text.push_str(&table::render(&self.outcomes, style));
        text.push('\n');
        let bullet = if style == Style::Markdown { "- " } else { "  " };
        for outcome in &self.outcomes {
            for note in &outcome.notes {
                line(&mut text, bullet, &format!("{}: {note}", outcome.name));
            }
        }
        for (name, why) in &self.skipped {
            line(&mut text, bullet, &format!("{name} did not run: {why}"));
        }
        for note in self.general_notes(true) {
            line(&mut text, bullet, &note);
        }
        text
    }

    /// The table in short, and what one must know to read it.
    pub fn brief(&self, style: Style) -> String {
        let mut text = table::brief(&self.outcomes, style);
        text.push('\n');
        for note in self.general_notes(false) {
            line(&mut text, "  ", &note);
        }
        text
    }

    pub(crate) fn head_lines(&self) -> Vec<String> {
        let Machine { processor, cores, memory, system, filesystem } = &self.machine;
        let memory =
            memory.map_or_else(String::new, |bytes| format!(", {} GiB", (bytes + (1 << 29)) >> 30));
        let Provenance { version, commit, command, engine } = &self.provenance;
        let mut lines = vec![
            format!("plinth {version}, commit {commit}, {} UTC", date(self.date)),
            format!("command: {command}"),
            format!("machine: {processor}, {cores} processors{memory}, {system}, {filesystem}"),
            format!(
                "{} rows of 16-byte keys and values of 8 to 100 bytes, {engine} engine, {} a workload",
                words::grouped(self.settings.rows),
                words::duration(self.settings.time),
            ),
        ];
        if let Some(load) = &self.load {
            lines.push(format!(
                "loaded in {} ({} rows/s)",
                words::duration(load.time),
                words::short(load.rate())
            ));
        }
        lines
    }

    fn head(&self, style: Style) -> String {
        let bullet = if style == Style::Markdown { "- " } else { "" };
        self.head_lines().iter().fold(String::new(), |text, line| text + bullet + line + "\n")
    }

    pub(crate) fn general_notes(&self, judged: bool) -> Vec<String> {
        let mut notes = Vec::new();
        let retries: Vec<String> = self
            .measured()
            .filter(|(_, measured)| measured.tally.retries > 0)
            .map(|(name, measured)| {
                let share =
                    measured.tally.retries as f64 / measured.tally.transactions.max(1) as f64;
                format!(
                    "{name} {} ({:.2} %)",
                    words::grouped(measured.tally.retries),
                    share * 100.0
                )
            })
            .collect();
        if !retries.is_empty() {
            notes.push(format!("conflicts, retried: {}", retries.join(", ")));
        }
        notes.extend(self.disturbance());
        if judged && self.outcomes.iter().any(Outcome::has_unjudged) {
            let why = "this run's set-up differs from the one that they are for, or the machine was too busy";
            notes.push(format!("some bounds aren't shown: {why}"));
        }
        notes.push(
            "FoundationDB's guide: its published figure for one core; FoundationDB: its best when measured on two virtual \
             cores with its client; latencies are of whole transactions"
                .to_owned(),
        );
        if judged {
            let whose = "required, goal: what Plinth's developers ask of it on two virtual cores; NO: it gave less here";
            notes.push(whose.to_owned());
        }
        notes
    }

    /// What to know about a run during which other processes used the processors.
    fn disturbance(&self) -> Option<String> {
        let disturbed = self.outcomes.iter().filter(|outcome| outcome.is_disturbed());
        let figures: Vec<String> = disturbed
            .filter_map(|outcome| {
                let measured = outcome.measurement.as_ref()?;
                let (others, rate) = (measured.cpu?.others, measured.rate_of_processor()?);
                Some(format!("{} {others:.1} and {}", outcome.name, words::short(rate)))
            })
            .collect();
        let meaning = "other processes used the processors, so figures are low; processors they used, and our \
                       operations for each second that we had one";
        (!figures.is_empty()).then(|| format!("{meaning}: {}", figures.join(", ")))
    }

    fn measured(&self) -> impl Iterator<Item = (&'static str, &crate::Measurement)> {
        self.outcomes
            .iter()
            .filter_map(|outcome| Some((outcome.name, outcome.measurement.as_ref()?)))
    }

    /// Of everything that every workload read.
    fn hash(&self) -> u64 {
        self.measured()
            .fold(0, |hash: u64, (_, measured)| hash.rotate_left(9) ^ measured.tally.hash)
    }
}

fn line(text: &mut String, bullet: &str, words: &str) {
    let _infallible = writeln!(text, "{bullet}{words}");
}

/// A time since the Unix epoch as `2026-11-21 21:09:04`, UTC.
fn date(since_epoch: Duration) -> String {
    date_and_time(since_epoch.as_secs() as i64).replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days_and_centuries() {
        let dates = [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_799, "2000-02-29 23:59:59"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ];
        for (seconds, expected) in dates {
            assert_eq!(date(Duration::from_secs(seconds)), expected);
        }
    }
}
