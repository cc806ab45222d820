//! A real server among hostile clients, and good ones beside them: nothing dies, and the good ones
//! hardly notice.
//!
//! ```text
//!   this process                    plinth server, under `ulimit -v`        its child, while processors are idle
//!   ten good clients ─────────────▶ keys                    ◀───────────────┐
//!   a probe, each second ─────────▶ HTTP's /health          ◀─────────────── a thousand connections that do
//!                                   points, their queries   ◀─────────────── what each kind of `attacks` does
//!   ├─ undisturbed ─┤─ attacked ──────────────────────┤─ a second ─┤─ afterwards ─┤
//! ```
//!
//! Each kind once stopped a server, or may: it asks for much and reads nothing, says half of
//! something, sends bombs, or what is cheap to ask for and dear to answer. The server may have
//! twice the memory to which the bounds of `docs/security.md` add up, and no more. What good
//! clients wait for is a commit with a read in it, from its begin until it is acknowledged, and the
//! figure is the 99th percentile beside their own undisturbed one. Attackers run while nobody else
//! wants a processor: elsewhere they would bring their own.
//!
//! Always: a good client reads what it wrote last, or the run has failed; so has one in which the
//! server ended, answered nobody afterwards, or in which a good client met an error that no loop of
//! retries takes care of. Times are told, and judged where it is said what they may be.
//!
//! Not here: damage that a client may do by design, as long as it may do everything (clearing all
//! rows, locking the database, ending others).

mod arena;
mod attacks;
mod good;
mod wire;

use arena::Arena;
use good::{Good, Stay};
use plinth_env::{Env, block_on};
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

pub use attacks::{COMMAND, attack};

/// Good clients.
const GOOD: u64 = 10;
/// How long good clients are watched alone, at least and at most.
const ALONE: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(20)];
/// When all must be as before, after the last attacker has gone.
const SETTLED: Duration = Duration::from_secs(1);

/// What there is to do.
#[derive(Clone, Debug)]
pub struct Siege {
    /// Hostile connections.
    pub attackers: u64,
    /// For how long.
    pub time: Duration,
    /// What they do, by names with commas between them; empty for all that there is.
    pub kinds: String,
    /// The engine's name.
    pub engine: String,
    /// What attackers draw from.
    pub seed: u64,
    /// How many times as long as undisturbed good clients may wait, by the 99th percentile, while
    /// they are attacked, and afterwards; then each probe has to be answered, too.
    pub at_most: Option<[f64; 2]>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Judged {
    siege: Siege,
    /// What good clients waited for: undisturbed, attacked, afterwards.
    stays: [Stay; 3],
    /// Probes that were answered by 200, and all of them.
    probes: (u64, u64),
    /// Mebibytes of address space that the server had at most, might have had, and its memory.
    memory: [u64; 3],
    /// Attempts of attackers, by kind.
    attempts: Vec<String>,
}

impl Judged {
    /// How many times as long as undisturbed good clients wait, by the 99th percentile, while they
    /// are attacked, and afterwards.
    #[must_use]
    pub fn times_as_long(&self) -> [f64; 2] {
        let [alone, attacked, after] = &self.stays;
        [attacked, after].map(|stay| stay.p99.as_secs_f64() / alone.p99.as_secs_f64().max(1e-6))
    }

    /// What was beyond what the siege says, if it says anything: that good clients waited for
    /// longer, or that a probe wasn't answered.
    #[must_use]
    pub fn beyond(&self) -> Vec<String> {
        let Some(at_most) = self.siege.at_most else { return Vec::new() };
        let times = self.times_as_long().into_iter().zip(at_most).zip(["attacked", "afterwards"]);
        let mut beyond: Vec<_> = times
            .filter(|((times, most), _)| times > most)
            .map(|((times, most), when)| {
                format!(
                    "{when}, good clients waited {times:.1} times as long, at most {most} may be"
                )
            })
            .collect();
        let (answered, asked) = self.probes;
        if answered < asked {
            let failed = asked - answered;
            beyond.push(format!("{failed} of {asked} probes of /health weren't answered with 200"));
        }
        beyond
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Siege { attackers, time, engine, seed, .. } = &self.siege;
        writeln!(
            f,
            "{attackers} hostile connections for {} s, engine {engine}, seed {seed}: the server serves, nothing was lost",
            time.as_secs()
        )?;
        for (name, stay) in ["undisturbed", "attacked", "afterwards"].iter().zip(&self.stays) {
            writeln!(f, "  {GOOD} good clients, {name:12} {stay}")?;
        }
        let [attacked, after] = self.times_as_long();
        writeln!(
            f,
            "  99th percentile beside undisturbed: attacked {attacked:.1}, afterwards {after:.1}"
        )?;
        let (answered, asked) = self.probes;
        writeln!(f, "  /health: {answered} of {asked} probes answered with 200")?;
        let [had, might, resident] = self.memory;
        writeln!(
            f,
            "  server: {had} MiB of address space of {might}, {resident} MiB in memory at most"
        )?;
        self.attempts.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Starts a server, attacks it, and judges what good clients saw. `program` is what starts
/// `plinth server`; `attacker` what starts [`attack`], with what comes before its own arguments.
///
/// # Errors
/// What died, was lost, or was answered wrongly; or why nothing could be tried.
pub fn besiege(program: &OsString, attacker: &[OsString], siege: &Siege) -> Result<Judged, String> {
    let env = Env::real();
    let dir =
        block_on(env.files().temporary_dir("plinth-hostile")).map_err(|error| error.to_string())?;
    let mut arena = Arena::open(&env, program, dir.path(), &siege.engine)?;
    let good = Good::begin(&env, &arena, GOOD)?;
    let wait = |time: Duration| block_on(env.sleep(time));
    let alone = siege.time.clamp(ALONE[0], ALONE[1]);
    wait(SETTLED);
    let begin = env.now();
    wait(alone);
    let before = env.now();
    let attempts = arena.attack(attacker, siege)?;
    arena.check()?;
    let attacked = env.now();
    wait(SETTLED);
    let settled = env.now();
    wait(alone);
    let end = env.now();
    arena.check()?;
    let memory = arena.memory()?;
    let seen = good.end()?;
    arena.end()?;
    Ok(Judged {
        siege: siege.clone(),
        stays: [seen.stay(begin, before)?, seen.stay(before, attacked)?, seen.stay(settled, end)?],
        probes: seen.probes,
        memory,
        attempts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(at_most: Option<[f64; 2]>, p99: [u64; 3], probes: (u64, u64)) -> Vec<String> {
        let siege = Siege {
            attackers: 1,
            time: SETTLED,
            kinds: String::new(),
            engine: String::new(),
            seed: 1,
            at_most,
        };
        let stays = p99.map(|ms| Stay { p99: Duration::from_millis(ms), ..Stay::default() });
        Judged { siege, stays, probes, memory: [0; 3], attempts: Vec::new() }.beyond()
    }

    #[test]
    fn figures_are_judged_where_it_is_said_what_they_may_be() {
        let bound = Some([10.0, 2.0]);
        assert!(judged(bound, [2, 20, 4], (7, 7)).is_empty());
        let [slow] = &judged(bound, [2, 21, 4], (7, 7))[..] else { panic!("one thing") };
        assert!(slow.starts_with("attacked") && slow.contains("10.5"), "{slow}");
        let [slow] = &judged(bound, [2, 20, 5], (7, 7))[..] else { panic!("one thing") };
        assert!(slow.starts_with("afterwards") && slow.contains("2.5"), "{slow}");
        let [silent] = &judged(bound, [2, 20, 4], (6, 7))[..] else { panic!("one thing") };
        assert!(silent.starts_with("1 of 7 probes"), "{silent}");
        assert_eq!(judged(bound, [2, 50, 50], (0, 7)).len(), 3);
        assert!(judged(None, [2, 50, 50], (0, 7)).is_empty());
    }
}
