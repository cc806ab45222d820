//! Suites side by side: each waits for servers, sleeps and downloads more than it computes.
//!
//! Two that would use the same thing, a folder that they install into or a package manager that
//! locks out a second one, run one behind the other: they have the same [`Job::shares`].

use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};

/// How many run at a time.
const LANES: usize = 2;

/// A suite that is to be run.
pub(super) struct Job {
    /// By which it may be left out.
    pub name: String,
    /// By which its results are told.
    pub label: String,
    pub command: Command,
}

impl Job {
    /// What no two that run at the same time may have in common.
    fn shares(&self) -> &str {
        match &*self.name {
            "alerts" | "console" | "packages" | "sources" => "Debian's packages",
            "java" | "record-layer" => "Maven's repository",
            name => name,
        }
    }
}

/// What is left to run, and what is used at the moment.
struct Line {
    waiting: Vec<Option<Job>>,
    in_use: Vec<String>,
}

impl Line {
    /// The next one that may run now, and its place.
    fn take(&mut self) -> Option<(usize, Job)> {
        let is_free = |job: &Job| !self.in_use.iter().any(|used| used == job.shares());
        let at = self.waiting.iter().position(|job| job.as_ref().is_some_and(is_free))?;
        let job = self.waiting[at].take()?;
        self.in_use.push(job.shares().to_string());
        Some((at, job))
    }

    fn is_empty(&self) -> bool {
        self.waiting.iter().all(Option::is_none)
    }
}

/// Runs all of them, and gives what came of each, in their order.
pub(super) fn run<T: Send>(jobs: Vec<Job>, one: impl Fn(Job) -> T + Sync) -> Vec<T> {
    let mut results: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
    let waiting = jobs.into_iter().map(Some).collect();
    let line = Mutex::new(Line { waiting, in_use: Vec::new() });
    let (ended, done) = (Condvar::new(), Mutex::new(&mut results));
    let lock = || line.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let mut now = lock();
        while !now.is_empty() {
            let Some((at, job)) = now.take() else {
                now = ended.wait(now).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(now);
            let used = job.shares().to_string();
            let result = one(job);
            done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
            now = lock();
            now.in_use.retain(|other| *other != used);
            ended.notify_all();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(work);
        }
    });
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn job(name: &str) -> Job {
        Job { name: name.into(), label: name.into(), command: Command::new("true") }
    }

    #[test]
    fn all_are_run_and_told_in_their_order() {
        let names = ["go", "java", "record-layer", "python", "python", "alerts", "sources", "go"];
        let jobs = names.map(job).into_iter().collect();
        let used = Mutex::new(Vec::new());
        let told = run(jobs, |job| {
            let share = job.shares().to_string();
            let mut now = used.lock().unwrap();
            assert!(!now.contains(&share), "{share} is used already");
            now.push(share.clone());
            drop(now);
            std::thread::yield_now();
            used.lock().unwrap().retain(|other| *other != share);
            job.label
        });
        assert_eq!(told, names);
    }

    #[test]
    fn two_run_at_a_time() {
        let both = Barrier::new(2);
        let told = run(vec![job("go"), job("node")], |job| {
            both.wait();
            job.name
        });
        assert_eq!(told, ["go", "node"]);
    }
}
