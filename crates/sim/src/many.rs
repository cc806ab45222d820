//! Many runs, side by side on a few threads; a run itself stays on one.
//!
//! Threads take the next plan from a shared list, so the order in which runs end is not the order
//! of the list; what comes out is put back into it, so that a report doesn't depend on the machine.

use crate::plan::Plan;
use crate::probes::Probes;
use crate::run::{Report, run};
use plinth_env::{Env, block_on};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What many runs came to.
#[derive(Clone, Default, Debug)]
pub struct Sum {
    /// How many runs there were.
    pub runs: u64,
    /// How many attempts are known to have committed.
    pub committed: u64,
    /// How many lives nodes had.
    pub lives: u64,
    /// The rare paths that were reached.
    pub probes: Probes,
    /// Those runs in which something was found wrong, in the order of the plans.
    pub failed: Vec<Report>,
}

struct Progress<I> {
    plans: I,
    next: usize,
    sum: Sum,
    failed: BTreeMap<usize, Report>,
}

/// Runs all plans on `jobs` threads; `told` is called with each report as it comes, and says
/// whether to go on.
pub fn run_many<I>(
    plans: I,
    jobs: usize,
    told: impl Fn(&Report) -> bool + Send + Sync + 'static,
) -> Sum
where
    I: Iterator<Item = Plan> + Send + 'static,
{
    let progress = Progress { plans, next: 0, sum: Sum::default(), failed: BTreeMap::new() };
    let (progress, told) = (Arc::new(Mutex::new(Some(progress))), Arc::new(told));
    let env = Env::real();
    let threads: Vec<_> = (0..jobs.max(1))
        .map(|n| {
            let (progress, told) = (progress.clone(), told.clone());
            env.spawn(&format!("simulation-{n}"), async move { work(&progress, &*told) })
        })
        .collect();
    for thread in threads {
        block_on(thread).unwrap_or_else(|failed| panic!("{failed}"));
    }
    let ended = progress.lock().unwrap_or_else(PoisonError::into_inner).take();
    ended.map_or_else(Sum::default, |ended| Sum {
        failed: ended.failed.into_values().collect(),
        ..ended.sum
    })
}

fn work<I: Iterator<Item = Plan>>(
    progress: &Mutex<Option<Progress<I>>>,
    told: &dyn Fn(&Report) -> bool,
) {
    let with = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let mut goes_on = true;
    while goes_on {
        let next = with().as_mut().and_then(|progress| {
            progress.next += 1;
            Some((progress.next, progress.plans.next()?))
        });
        let Some((at, plan)) = next else { return };
        let report = run(&plan);
        goes_on = told(&report);
        let mut guard = with();
        let Some(progress) = guard.as_mut() else { return };
        progress.sum.runs += 1;
        progress.sum.committed += report.committed;
        progress.sum.lives += report.lives;
        progress.sum.probes.merge(&report.probes);
        if report.failure.is_some() {
            progress.failed.insert(at, report);
        }
    }
}
