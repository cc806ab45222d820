//! Machines that stop in the middle of what they do, again and again: what crash tests share.
//!
//! A simulated world, from a seed: the database, its log and the task that commits are the real
//! ones.

use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_series::workload::Random;
use plinth_series::{Result, Settings};
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is given to whoever writes until the machine stops.
pub struct Life<H> {
    pub env: Env,
    pub settings: Settings,
    pub random: Random,
    pub seed: u64,
    /// From 1 on.
    pub number: i64,
    /// What all lives of a machine have done.
    pub history: Arc<Mutex<H>>,
}

/// Has machines live four times each, write until they stop, and be looked at behind that: with
/// what they have done, which is given back as what is known from then on. Gives what was found.
pub fn lives<H, N, W, C>(
    seeds: Range<u64>,
    write: impl Fn(Life<H>) -> W,
    check: impl Fn(Env, Settings, (H, u64)) -> C,
) -> Vec<N>
where
    H: Default,
    W: Future<Output = Result<()>> + Send + 'static,
    C: Future<Output = Result<(H, N)>>,
{
    let mut found = Vec::new();
    for seed in seeds {
        let simulation = Simulation::new(seed);
        let mut random = Random::new(seed);
        let settings = Settings {
            leaf_points: 2 + random.below(20) as usize,
            tail_bytes: [300, 64 << 10][random.below(2) as usize],
            ..Settings::default()
        };
        let mut machine = simulation.process("node");
        let history = Arc::new(Mutex::new(H::default()));
        for number in 1..=4 {
            let (env, settings) = (machine.clone(), settings.clone());
            let (random_of_life, of_life) = (Random::new(random.next()), history.clone());
            let writing = write(Life {
                env,
                settings: settings.clone(),
                random: random_of_life,
                seed,
                number,
                history: of_life,
            });
            let task = machine.spawn("writer", async move {
                let ended = writing.await;
                panic!("seed {seed}: the writer ended: {ended:?}");
            });
            simulation.run_for(Duration::from_millis(100 + random.below(1000)));
            simulation.crash(&machine);
            drop(task);
            machine = simulation.restart(&machine);
            let before = std::mem::take(&mut *history.lock().unwrap());
            let checked = check(machine.clone(), settings, (before, seed));
            let (after, one) = simulation
                .run_until(checked)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            *history.lock().unwrap() = after;
            found.push(one);
            simulation.crash(&machine);
            machine = simulation.restart(&machine);
        }
    }
    found
}
