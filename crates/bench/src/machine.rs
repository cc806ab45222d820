//! What the report says about the machine, and what else it was doing meanwhile.
//!
//! Everything is read from Linux's `/proc`; on other systems it is unknown, and said to be. A
//! figure measured while other processes used the processors is worth little, so each measurement
//! says how much they did. A server that is measured, on the same machine, is not one of the
//! others.

use plinth_env::reply::{self, Reply};
use plinth_env::{Env, Open, block_on};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than any of these files has.
const TEXT_MAX: usize = 4 << 20;
/// Processor time is counted in hundredths of a second, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// A measurement is disturbed when others used more than so many processors meanwhile.
const DISTURBED: f64 = 0.2;

/// The machine that a report was made on.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many processors there are.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// The system's name and version.
    pub system: String,
    /// The kind of file system that the database lies on.
    pub filesystem: String,
}

/// How busy the processors were, in processors: 1.5 is one and a half of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CpuUse {
    /// By this process, and the server that it measures.
    pub own: f64,
    /// By all others: other processes, a hypervisor, and the kernel's threads, those that write for
    /// this process too.
    pub others: f64,
    /// Of that, by other programs' own code, and by the hypervisor, for whatever it was.
    pub taken: f64,
}

/// Processor time at some moment, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimes {
    own: OwnTicks,
    all: AllTicks,
}

/// Processor time of a process, in ticks.
#[derive(Clone, Copy, PartialEq, Debug)]
struct OwnTicks {
    /// In its own code.
    user: f64,
    /// In the kernel, on its behalf.
    system: f64,
}

/// Processor time of the whole machine, in ticks.
#[derive(Clone, Copy, PartialEq, Debug)]
struct AllTicks {
    /// Not idle, or stolen.
    busy: f64,
    /// In programs' own code, niced or not.
    user: f64,
    /// Wanted by this machine, and given to others by its hypervisor.
    stolen: f64,
}

impl Machine {
    /// This machine, as far as a database in `directory` is concerned.
    pub fn this(env: &Env, directory: &Path) -> Self {
        let processors = read_text(env, "/proc/cpuinfo").unwrap_or_default();
        let names = |name: &'static str| {
            processors
                .lines()
                .filter_map(move |line| line.split_once(':').filter(|(key, _)| key.trim() == name))
        };
        let version = read_text(env, "/proc/sys/kernel/osrelease").unwrap_or_default();
        let memory = read_text(env, "/proc/meminfo").and_then(|text| kilobytes(&text, "MemTotal:"));
        Self {
            processor: names("model name")
                .next()
                .map_or("unknown", |(_, name)| name.trim())
                .to_owned(),
            cores: names("processor").count().max(1),
            memory,
            system: format!("{} {}", std::env::consts::OS, version.trim()).trim().to_owned(),
            filesystem: filesystem(env, directory).unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    /// For the report.
    pub fn to_json(&self) -> Value {
        json!({
            "processor": self.processor,
            "cores": self.cores,
            "memory_bytes": self.memory,
            "system": self.system,
            "filesystem": self.filesystem,
        })
    }
}

impl CpuTimes {
    /// Now; `None` where that can't be known. The process of this number, if one is given, counts
    /// as this one.
    pub fn now(env: &Env, server: Option<u32>) -> Option<Self> {
        let mut own = own_ticks(&read_text(env, "/proc/self/stat")?)?;
        if let Some(server) = server {
            let more = own_ticks(&read_text(env, &format!("/proc/{server}/stat"))?)?;
            own.user += more.user;
            own.system += more.system;
        }
        let all = all_ticks(&read_text(env, "/proc/stat")?)?;
        Some(Self { own, all })
    }

    /// How busy the processors were from then until now, `seconds` later.
    pub fn since(self, then: Self, seconds: f64) -> CpuUse {
        let per_second = 1.0 / (TICKS_PER_SECOND * seconds.max(1e-3));
        let own_user = self.own.user - then.own.user;
        let own = own_user + self.own.system - then.own.system;
        let others = (self.all.busy - then.all.busy - own).max(0.0);
        let other_programs = (self.all.user - then.all.user - own_user).max(0.0);
        let taken = other_programs + self.all.stolen - then.all.stolen;
        CpuUse { own: own * per_second, others: others * per_second, taken: taken * per_second }
    }
}

/// How busy the processors were in each of a row of slices of time. It is looked at now and then,
/// so a slice's ends are as exact as that.
pub struct CpuOfSlices {
    slice: Duration,
    count: usize,
    /// When the next slice begins.
    next: Duration,
    then: Option<(Duration, CpuTimes)>,
    uses: Vec<CpuUse>,
}

impl CpuOfSlices {
    /// `count` slices between two moments.
    pub fn new(begin: Duration, end: Duration, count: usize) -> Self {
        let slice = end.saturating_sub(begin) / count.max(1) as u32;
        Self { slice, count, next: begin, then: None, uses: Vec::new() }
    }

    /// Ends a slice if its time is over.
    pub fn look(&mut self, env: &Env, server: Option<u32>) {
        let now = env.now();
        if now < self.next || self.uses.len() >= self.count {
            return;
        }
        let Some(times) = CpuTimes::now(env, server) else { return };
        if let Some((then, before)) = self.then.replace((now, times)) {
            self.uses.push(times.since(before, (now - then).as_secs_f64()));
        }
        self.next += self.slice;
    }

    /// What was seen: nothing where it can't be known.
    pub fn finish(self) -> Vec<CpuUse> {
        self.uses
    }
}

impl CpuUse {
    /// Whether others used more than a fair measurement bears; what a hypervisor takes is theirs.
    pub fn is_disturbed(self) -> bool {
        self.others > DISTURBED
    }

    /// Whether others took so much. What the kernel does for this process on threads of its own
    /// isn't counted, so a database that makes it work hard can't hide behind that.
    pub fn is_robbed(self) -> bool {
        self.taken > DISTURBED
    }

    /// The mean of this over `mine` seconds and another over `others`.
    #[must_use]
    pub fn mean(self, mine: f64, other: Self, others: f64) -> Self {
        let mean = |one, two| (one * mine + two * others) / (mine + others).max(1e-9);
        Self {
            own: mean(self.own, other.own),
            others: mean(self.others, other.others),
            taken: mean(self.taken, other.taken),
        }
    }

    /// For the report.
    pub fn to_json(self) -> Value {
        json!({"cores_used": self.own, "cores_used_by_others": self.others, "cores_taken": self.taken})
    }
}

/// The memory that this process occupies now, in bytes; `None` where that can't be known.
pub fn resident(env: &Env) -> Option<u64> {
    kilobytes(&read_text(env, "/proc/self/status")?, "VmRSS:")
}

/// What the kernel has counted of this process's files: calls that read, and bytes that it sent
/// towards disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileUse {
    /// System calls that read, of files and all else.
    pub read_calls: u64,
    /// Bytes that had to be fetched from disks.
    pub read_bytes: u64,
    /// Bytes written to file systems on disks, whether or not they have got there yet.
    pub written_bytes: u64,
}

impl FileUse {
    /// Until now; `None` where that can't be known.
    pub fn now(env: &Env) -> Option<Self> {
        Self::parse(&read_text(env, "/proc/self/io")?)
    }

    fn parse(text: &str) -> Option<Self> {
        let number =
            |name| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
        let [read_calls, read_bytes] = [number("syscr:")?, number("read_bytes:")?];
        Some(Self { read_calls, read_bytes, written_bytes: number("write_bytes:")? })
    }
}

/// Watches the memory that this process occupies, until it is asked.
pub struct MemoryWatch {
    stop: StopOnDrop,
    highest: Reply<Option<u64>>,
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl MemoryWatch {
    /// Looks from now on, twenty times a second.
    pub fn begin(env: &Env) -> Self {
        let (promise, highest) = reply::promise();
        let (stop, clock) = (Arc::new(AtomicBool::new(false)), env.clone());
        let stopped = stop.clone();
        env.spawn("bench-memory", async move {
            let mut highest = resident(&clock);
            while !stopped.load(Ordering::Relaxed) {
                clock.sleep(Duration::from_millis(50)).await;
                highest = highest.max(resident(&clock));
            }
            promise.send(Ok(highest));
        });
        Self { stop: StopOnDrop(stop), highest }
    }

    /// The most that was seen, in bytes; `None` where that can't be known.
    pub fn end(self) -> Option<u64> {
        drop(self.stop);
        self.highest.wait().ok()?
    }
}

/// The kind of file system that `directory` lies on: `ext4`, `tmpfs`, ...
pub fn filesystem(env: &Env, directory: &Path) -> Option<String> {
    let mounts = read_text(env, "/proc/self/mounts")?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields
        .filter(|fields| fields.len() > 2 && directory.starts_with(fields[1]))
        .max_by_key(|fields| fields[1].len())
        .map(|fields| fields[2].to_owned())
}

/// A text file of the system's; `None` if it can't be read. Those of `/proc` don't know their
/// length.
pub fn read_text(env: &Env, path: &str) -> Option<String> {
    let read = async {
        let file = env.files().open(Path::new(path), Open::Read).await.ok()?;
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while bytes.len() < TEXT_MAX {
            match file.read_at(bytes.len() as u64, &mut part).await.ok()? {
                0 => break,
                more => bytes.extend_from_slice(&part[..more]),
            }
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    block_on(read)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// User and system time of `/proc/self/stat`; the name before them may hold anything, a parenthesis
/// too.
fn own_ticks(stat: &str) -> Option<OwnTicks> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    Some(OwnTicks { user: times.next()?.parse().ok()?, system: times.next()?.parse().ok()? })
}

/// The first line of `/proc/stat`: user, nice, system, idle, waiting for devices, two kinds of
/// interrupts, stolen.
fn all_ticks(stat: &str) -> Option<AllTicks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> =
        line.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    (ticks.len() == 8).then(|| AllTicks {
        busy: ticks.iter().sum::<f64>() - ticks[3] - ticks[4],
        user: ticks[0] + ticks[1],
        stolen: ticks[7],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_found_in_their_files() {
        let own = "17 (a (b) c) R 1 17 17 0 -1 4194304 97 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        let own = own_ticks(own).expect("well formed");
        assert_eq!(own, OwnTicks { user: 250.0, system: 50.0 });
        let all = all_ticks("cpu  300 10 40 9000 300 5 5 140 0 0\ncpu0 1 2").expect("well formed");
        assert_eq!(all, AllTicks { busy: 500.0, user: 310.0, stolen: 140.0 });
        assert_eq!((own_ticks("17"), all_ticks("cpu  1 2")), (None, None));
        let nothing = AllTicks { busy: 0.0, user: 0.0, stolen: 0.0 };
        let then = CpuTimes { own: OwnTicks { user: 0.0, system: 0.0 }, all: nothing };
        // Of the kernel's 50 ticks, those that aren't ours may be for us all the same: nobody took
        // them.
        let taken = (310.0 - 250.0 + 140.0) / 200.0;
        assert_eq!(CpuTimes { own, all }.since(then, 2.0), CpuUse { own: 1.5, others: 1.0, taken });
    }

    #[test]
    fn slices_end_when_their_time_is_over() {
        let env = Env::real();
        let begin = env.now();
        let mut slices = CpuOfSlices::new(begin, begin + Duration::from_millis(60), 3);
        let looks = || block_on(env.sleep(Duration::from_millis(5)));
        for _ in 0..40 {
            slices.look(&env, None);
            looks();
        }
        let uses = slices.finish();
        assert_eq!(uses.len(), if CpuTimes::now(&env, None).is_some() { 3 } else { 0 }, "{uses:?}");
        let [quiet, loud] =
            [0.1, 0.3].map(|others| CpuUse { own: 1.0, others, taken: others / 2.0 });
        assert!(!quiet.is_disturbed() && loud.is_disturbed() && !loud.is_robbed());
    }

    #[test]
    fn what_the_kernel_counts_of_files_is_found() {
        let text = "rchar: 5\nwchar: 6\nsyscr: 7\nsyscw: 8\nread_bytes: 9\nwrite_bytes: 4096\n";
        assert_eq!(
            FileUse::parse(text),
            Some(FileUse { read_calls: 7, read_bytes: 9, written_bytes: 4096 })
        );
        assert_eq!(FileUse::parse("syscr: 7\n"), None);
    }

    #[test]
    fn memory_is_given_in_bytes() {
        assert_eq!(kilobytes("VmPeak:\t 9 kB\nVmRSS:\t  2048 kB\n", "VmRSS:"), Some(2 << 20));
        assert_eq!(kilobytes("VmRSS: many\n", "VmRSS:"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let env = Env::real();
        let machine = Machine::this(&env, Path::new("/proc"));
        assert!(
            machine.cores >= 1 && machine.memory.is_some_and(|memory| memory > 1 << 24),
            "{machine:?}"
        );
        assert_eq!(machine.filesystem, "proc");
        assert!(resident(&env).is_some_and(|resident| resident > 1 << 18));
        assert!(CpuTimes::now(&env, None).is_some());
        // Two processes that are the same one count twice, which shows once this one has used some
        // ticks.
        let used = |server| CpuTimes::now(&env, server).expect("Linux tells").own;
        while used(None).user + used(None).system < 20.0 {}
        let (before, twice) = (used(None), used(Some(env.process_id())));
        assert!(
            twice.user + twice.system >= 2.0 * (before.user + before.system),
            "{twice:?} {before:?}"
        );
        assert!(CpuTimes::now(&env, Some(u32::MAX)).is_none(), "there is no such process");
    }
}
