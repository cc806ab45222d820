//! Counts that many threads add to without meeting: each thread has a stripe, a sum reads all of
//! them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More threads than this share stripes, which costs time and no exactness.
const STRIPES: usize = 32;

/// As far apart as processors fetch memory, so that two stripes never travel together.
#[repr(align(128))]
struct Stripe<const N: usize>([AtomicU64; N]);

/// `N` counts.
pub(crate) struct Striped<const N: usize> {
    stripes: Box<[Stripe<N>]>,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

impl<const N: usize> Default for Striped<N> {
    fn default() -> Self {
        let stripe = |_| Stripe([const { AtomicU64::new(0) }; N]);
        Self { stripes: (0..STRIPES).map(stripe).collect() }
    }
}

impl<const N: usize> Striped<N> {
    pub fn add(&self, count: usize, amount: u64) {
        // Of a thread that is ending any stripe will do.
        let mine = MINE.try_with(|mine| *mine).unwrap_or(0);
        self.stripes[mine].0[count].fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(&self, count: usize) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0[count].load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::Env;
    use std::sync::Arc;

    #[test]
    fn what_threads_add_is_summed() {
        let counts: Arc<Striped<2>> = Arc::default();
        let add = |_| {
            let counts = counts.clone();
            Env::real().spawn("adds", async move { (0..1000).for_each(|n| counts.add(1, n)) })
        };
        let tasks: Vec<_> = (0..40).map(add).collect();
        tasks.into_iter().for_each(|task| task.wait().unwrap());
        assert_eq!((counts.get(0), counts.get(1)), (0, 40 * 499_500));
    }
}
