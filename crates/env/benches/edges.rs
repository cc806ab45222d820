//! What an edge between two roles costs: a ready reply, a pending one, a wake-up across threads,
//! a timer, a signal, and a step of the simulation. `cargo bench -p plinth-env`; under `cargo test`
//! everything runs a few times only, so that it can't rot.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use plinth_env::reply::{Reply, promise};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, Signal, block_on};
use plinth_types::Error;

/// Prints nanoseconds per round, the median of several runs.
fn measure(env: &Env, name: &str, rounds: u64, mut run: impl FnMut(u64)) {
    let mut nanos: Vec<f64> = (0..9)
        .map(|_| {
            let began = env.now();
            run(rounds);
            (env.now() - began).as_nanos() as f64 / rounds as f64
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    println!("{name:<44} {:>10.1} ns (fastest {:.1})", nanos[4], nanos[0]);
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let scale = |rounds: u64| if full { rounds } else { rounds.min(10) };
    let env = Env::real();
    replies(&env, &scale);
    threads(&env, &scale);
    simulation(&env, &scale);
}

fn replies(env: &Env, scale: &dyn Fn(u64) -> u64) {
    measure(env, "ready reply, waited for", scale(1_000_000), |rounds| {
        for at in 0..rounds {
            let reply = Reply::<_, Error>::ready(Ok(black_box(at)));
            black_box(reply.wait().is_ok());
        }
    });
    measure(env, "ready reply, block_on", scale(1_000_000), |rounds| {
        for at in 0..rounds {
            black_box(block_on(Reply::<_, Error>::ready(Ok(black_box(at)))).is_ok());
        }
    });
    measure(env, "promise, send, wait on one thread", scale(1_000_000), |rounds| {
        for at in 0..rounds {
            let (kept, reply) = promise();
            kept.send(Ok(black_box(at)));
            black_box(reply.wait().is_ok());
        }
    });
    measure(env, "promise, on_complete, send", scale(1_000_000), |rounds| {
        for at in 0..rounds {
            let (kept, reply) = promise::<u64>();
            reply.on_complete(|answer| drop(black_box(answer)));
            kept.send(Ok(black_box(at)));
        }
    });
    let signal = Signal::new();
    measure(env, "signal, notify and take", scale(1_000_000), |rounds| {
        for _ in 0..rounds {
            signal.notify();
            black_box(signal.try_take());
        }
    });
    signal.notify();
    measure(env, "signal, notify again", scale(1_000_000), |rounds| {
        for _ in 0..rounds {
            signal.notify();
        }
    });
    measure(env, "random_u64", scale(100_000), |rounds| {
        for _ in 0..rounds {
            black_box(env.random_u64());
        }
    });
    measure(env, "now", scale(1_000_000), |rounds| {
        for _ in 0..rounds {
            black_box(env.now());
        }
    });
    measure(env, "timer set and cancelled", scale(100_000), |rounds| {
        for _ in 0..rounds {
            drop(env.call_at(env.now() + Duration::from_secs(60), || {}));
        }
    });
}

fn threads(env: &Env, scale: &dyn Fn(u64) -> u64) {
    // A request and its answer: two wake-ups across threads, which is what a commit pays.
    let (to, from) = (Arc::new(Signal::new()), Arc::new(Signal::new()));
    let (theirs_to, theirs_from) = (to.clone(), from.clone());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let theirs_stop = stop.clone();
    let echo = env.spawn("echo", async move {
        while !theirs_stop.load(std::sync::atomic::Ordering::Acquire) {
            theirs_to.wait().await;
            theirs_from.notify();
        }
    });
    measure(env, "there and back between two threads", scale(20_000), |rounds| {
        for _ in 0..rounds {
            to.notify();
            block_on(from.wait());
        }
    });
    stop.store(true, std::sync::atomic::Ordering::Release);
    to.notify();
    drop(echo.wait());

    // The same with bare park and unpark: what the system itself takes.
    let me = std::thread::current();
    let turn = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let theirs = turn.clone();
    let rounds = scale(20_000);
    let (kept, reply) = promise();
    let echo = env.spawn("bare echo", async move {
        kept.send(Ok(std::thread::current()));
        for at in 0..9 * rounds {
            while theirs.load(std::sync::atomic::Ordering::Acquire) != 2 * at as u32 + 1 {
                std::thread::park();
            }
            theirs.store(2 * at as u32 + 2, std::sync::atomic::Ordering::Release);
            me.unpark();
        }
    });
    let other = reply.wait().expect("the task sends its thread");
    measure(env, "the same with bare park and unpark", rounds, |rounds| {
        for _ in 0..rounds {
            let next = turn.load(std::sync::atomic::Ordering::Acquire) + 1;
            turn.store(next, std::sync::atomic::Ordering::Release);
            other.unpark();
            while turn.load(std::sync::atomic::Ordering::Acquire) != next + 1 {
                std::thread::park();
            }
        }
    });
    drop(echo.wait());
}

fn simulation(env: &Env, scale: &dyn Fn(u64) -> u64) {
    let sim = Simulation::new(1);
    let process = sim.process("node");
    measure(env, "simulation: a step", scale(200_000), |rounds| {
        sim.run_until(async {
            for _ in 0..rounds {
                process.yield_now().await;
            }
        });
    });
    measure(env, "simulation: a sleep", scale(200_000), |rounds| {
        sim.run_until(async {
            for _ in 0..rounds {
                process.sleep(Duration::from_millis(1)).await;
            }
        });
    });
    let file = sim.run_until(process.files().open("/file", plinth_env::Open::Create));
    let file = file.expect("a disk without faults opens a file");
    measure(env, "simulation: write 100 bytes and sync", scale(20_000), |rounds| {
        sim.run_until(async {
            for at in 0..rounds {
                let written = file.write_all_at(at * 100 % 1_000_000, &[7; 100]).await;
                black_box(written.is_ok());
                black_box(file.sync_data().await.is_ok());
            }
        });
    });
    println!("trace of the simulation: {:016x}", sim.trace_hash());
}
