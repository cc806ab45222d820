//! How long a thread runs before the system lets another have the processor, and how soon it runs
//! when it is woken.
//!
//! Linux gives the processor to whoever has to be done first, and assumes of each that it wants a
//! turn of some milliseconds. A thread that says it wants a tenth of one, which is what answering a
//! socket takes, is let in as soon as it is woken, though one with more to do is running; in
//! return it is interrupted sooner itself. No thread gets more of the processor by it.
//!
//! Linux before 6.12 takes what is said and thinks no more of it; other systems aren't told.
//!
//! What computes for long, and nobody's commit waits for, is nicer instead: it gets less of the
//! processors while others want them.

/// The shortest turn that may be asked for, in nanoseconds.
#[cfg(target_os = "linux")]
const SHORT: u64 = 100_000;

/// The calling thread wants short turns. Where that can't be had, nothing changes.
pub(crate) fn ask_for_short_ones() {
    #[cfg(target_os = "linux")]
    let _ = linux::ask_for(SHORT);
}

/// By how much a thread is nicer that lets others go first.
#[cfg(target_os = "linux")]
const NICER: i32 = 5;

/// Where processors are short, the calling thread gets less of them than others do. A system that
/// has no such thing for threads treats it as all.
pub(crate) fn let_others_go_first() {
    #[cfg(target_os = "linux")]
    {
        let this = rustix::thread::gettid();
        let nice = rustix::process::getpriority_process(Some(this)).unwrap_or_default();
        let _ = rustix::process::setpriority_process(Some(this), nice.saturating_add(NICER));
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use libc::{SYS_sched_getattr, SYS_sched_setattr, sched_attr, syscall};

    const LEN: usize = size_of::<sched_attr>();

    /// What the system says of the calling thread.
    fn attributes() -> Option<sched_attr> {
        let mut found = sched_attr {
            size: 0,
            sched_policy: 0,
            sched_flags: 0,
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: 0,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: thread 0 is the calling one; at most `LEN` bytes are written to `found`, which
        // has as many, any of which are integers.
        let failed = unsafe { syscall(SYS_sched_getattr, 0, &raw mut found, LEN, 0) };
        (failed == 0).then_some(found)
    }

    /// Whether the system has taken it.
    pub(super) fn ask_for(nanoseconds: u64) -> bool {
        // Whoever started the process may have given it another policy, and has it.
        let is_usual = |found: &sched_attr| found.sched_policy == libc::SCHED_OTHER as u32;
        let Some(mut wanted) = attributes().filter(is_usual) else { return false };
        wanted.sched_runtime = nanoseconds;
        if wanted.sched_nice >= 0 {
            // Threads that it starts have turns like all others; they would lose a precedence, too.
            wanted.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
        }
        // SAFETY: thread 0 is the calling one; `size`, which the system has filled in, isn't beyond
        // `wanted`, in which the system may correct it, and nothing keeps the pointer.
        let failed = unsafe { syscall(SYS_sched_setattr, 0, &raw mut wanted, 0) };
        failed == 0
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_thread_that_asks_has_short_turns_and_is_as_nice_as_before() {
            std::thread::spawn(|| {
                let Some(before) = attributes() else { return };
                if !ask_for(super::super::SHORT) {
                    return; // a sandbox
                }
                let now = attributes().unwrap();
                assert_eq!(now.sched_policy, before.sched_policy);
                assert_eq!(now.sched_nice, before.sched_nice);
                // Linux before 6.12 tells of no turn, and has none.
                assert!([0, super::super::SHORT].contains(&now.sched_runtime));
            })
            .join()
            .unwrap();
        }
    }
}
