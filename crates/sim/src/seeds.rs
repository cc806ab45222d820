//! Seeds of a spec, run from a test: what a crate with a layer of its own calls.
//!
//! A test names a spec and how many seeds of it are run each time. Of those that fail the one with
//! the lowest seed is told, however many threads ran them, and it is run once more: a layer that
//! asks for the time, for random numbers or for threads elsewhere than through the simulation isn't
//! the same the second time, and then the seed is worth nothing. So that is told as well.

use crate::many::{Sum, run_many};
use crate::plan::{COUNT, Caller, Plan, SEED};
use crate::run::{Report, run};
use crate::spec::Spec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads that run seeds, unless a test says otherwise.
const JOBS: usize = 2;

/// Seeds of a spec.
///
/// `PLINTH_SIM_SEED=17` in the environment has that seed run alone, and `PLINTH_SIM_COUNT=5000` so
/// many of them, from that seed or from the first one on: that is how a failure is repeated, and
/// how a night is spent. The command that a failure names filters tests by the spec's name, so the
/// test's name should have it in it.
#[derive(Clone, Debug)]
pub struct Seeds {
    spec: Arc<Spec>,
    first: u64,
    count: u64,
    jobs: usize,
}

impl Seeds {
    /// The seeds 1 to `count` of a spec, or what the environment says.
    ///
    /// # Panics
    /// If the environment's `PLINTH_SIM_SEED` or `PLINTH_SIM_COUNT` is no number.
    pub fn of(spec: Spec, count: u64) -> Self {
        let wanted = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
        };
        Self::wanted(spec, count, wanted(SEED), wanted(COUNT))
    }

    /// What the environment says counts before what the test says.
    fn wanted(spec: Spec, usual: u64, seed: Option<u64>, count: Option<u64>) -> Self {
        let count = count.unwrap_or(if seed.is_some() { 1 } else { usual });
        Self { spec: Arc::new(spec), first: seed.unwrap_or(1), count, jobs: JOBS }
    }

    /// On so many threads; a run itself stays on one of them.
    #[must_use]
    pub fn on_threads(mut self, threads: usize) -> Self {
        self.jobs = threads.max(1);
        self
    }

    /// Runs the seeds until one fails, and gives the report of the lowest one that does: its plan
    /// has the seed, and displayed it says what was found, and how to run it again. `Ok` has the
    /// sum of all.
    ///
    /// # Errors
    /// The report. It says so if the seed, run again, did not give the same run.
    pub fn run(&self) -> Result<Sum, Box<Report>> {
        let (spec, found) = (self.spec.clone(), Arc::new(AtomicBool::new(false)));
        let plans = (self.first..self.first.saturating_add(self.count))
            .map(move |seed| Plan { caller: Caller::Test, ..Plan::new(spec.clone(), seed) });
        // Who is at work on a lower seed comes to its end.
        let mut sum = run_many(plans, self.jobs, move |report| {
            found.fetch_or(report.failure.is_some(), Ordering::Relaxed);
            !found.load(Ordering::Relaxed)
        });
        let Some(failed) = (!sum.failed.is_empty()).then(|| sum.failed.swap_remove(0)) else {
            return Ok(sum);
        };
        Err(Box::new(repeated(failed)))
    }

    /// Runs the seeds, none of which may fail.
    ///
    /// # Panics
    /// With the report of the lowest seed that fails: what was found, and how to run it again.
    pub fn hold(&self) -> Sum {
        self.run().unwrap_or_else(|report| panic!("{report}"))
    }
}

/// The report, with a word if its seed doesn't give the same run a second time.
fn repeated(mut report: Report) -> Report {
    let again = run(&report.plan);
    if again.trace_hash != report.trace_hash
        && let Some(failure) = &mut report.failure
    {
        failure.push_str(
            "\n  the same seed gave another run the second time: something asks for the time, random numbers or threads past the \
             simulation, or keeps what it goes through in a hash map",
        );
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::workloads::{Work, Workload, Workloads};
    use std::sync::atomic::AtomicU64;

    /// One that finds something wrong in some of the runs.
    struct Losing {
        fails_from: u64,
    }

    impl Workload for Losing {
        fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
            Box::pin(async move {
                if client.next_u64() % 10 >= self.fails_from {
                    client.fail("it is lost");
                }
            })
        }

        fn check(self: Arc<Self>, client: Client) -> Work {
            drop(client);
            Box::pin(async {})
        }
    }

    fn spec(fails_from: u64) -> Spec {
        let workloads = Workloads::default().with("losing", move |draw| Losing {
            fails_from: draw.number("from", fails_from..fails_from + 1),
        });
        let text =
            "about = 'a bug'\nclients = 1\nmilliseconds = 20\n[[workload]]\nname = 'losing'\n";
        Spec::read_with(&workloads, "losing", text).unwrap()
    }

    #[test]
    fn the_lowest_seed_that_fails_is_told_with_what_runs_it_again() {
        let told =
            |jobs| *Seeds::wanted(spec(9), 60, None, None).on_threads(jobs).run().unwrap_err();
        let (alone, many) = (told(1), told(4));
        assert_eq!((alone.plan.seed, alone.trace_hash), (many.plan.seed, many.trace_hash));
        let again = format!("PLINTH_SIM_SEED={} cargo test losing", alone.plan.seed);
        let text = alone.to_string();
        assert!(text.contains("it is lost") && text.ends_with(&again), "{text}");
        assert!(!text.contains("another run"), "{text}");
        let one = Seeds::wanted(spec(9), 60, Some(alone.plan.seed), None);
        assert_eq!((one.first, one.count), (alone.plan.seed, 1));
        assert!(one.run().is_err() && Seeds::wanted(spec(10), 3, None, None).hold().runs == 3);
    }

    #[test]
    fn a_layer_that_asks_past_the_simulation_is_told_of() {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let workloads = Workloads::default().with("restless", |_| {
            // What a random number of the machine's would do.
            Losing { fails_from: RUNS.fetch_add(1, Ordering::Relaxed) % 2 * 10 }
        });
        let text = "about = 'x'\nclients = 1\nmilliseconds = 20\n[[workload]]\nname = 'restless'\n";
        let spec = Spec::read_with(&workloads, "restless", text).unwrap();
        let told = Seeds::wanted(spec, 4, None, None).on_threads(1).run().unwrap_err();
        assert!(told.to_string().contains("gave another run the second time"), "{told}");
    }

    #[test]
    fn own_workloads_are_found_by_specs_and_may_not_be_called_as_built_in_ones() {
        let error = Spec::read("x", "about = 'x'\n[[workload]]\nname = 'losing'\n").unwrap_err();
        assert!(error.contains("no workload \"losing\"; there are api_correctness"), "{error}");
        let own = Workloads::default().with("cycle", |_| Losing { fails_from: 10 });
        let error =
            Spec::read_with(&own, "x", "about = 'x'\n[[workload]]\nname = 'cycle'\n").unwrap_err();
        assert!(error.contains("another name"), "{error}");
        let error =
            Spec::read_with(&own, "x", "about = 'x'\n[[workload]]\nname = 'cycles'\n").unwrap_err();
        assert!(error.contains("there are cycle, api_correctness"), "{error}");
    }
}
