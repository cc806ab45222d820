//! What Prometheus' own libraries tell of a process, under their names:
//! `process_cpu_seconds_total`, `process_open_fds`, ...; and which build it is,
//! `plinth_build_info`.
//!
//! Taken from Linux's `/proc`; where there is none, only the build is told.

use plinth_bench::machine::read_text;
use plinth_env::{Env, block_on};
use std::fmt::Write;

/// Ticks of `/proc` in a second, on every Linux that there is.
const TICKS: f64 = 100.0;

/// One measurement: its name, its kind, what it is.
type About = (&'static str, &'static str, &'static str);

const CPU: About =
    ("process_cpu_seconds_total", "counter", "Processor time that the process took, in seconds");
const START: About =
    ("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970");
const RESIDENT: About =
    ("process_resident_memory_bytes", "gauge", "Memory of the process that is in memory");
const VIRTUAL: About = ("process_virtual_memory_bytes", "gauge", "Address space of the process");
const OPEN: About = ("process_open_fds", "gauge", "File descriptors that are open");
const MOST: About = ("process_max_fds", "gauge", "File descriptors that may be open");
const THREADS: About = ("process_threads", "gauge", "Threads of the process");

/// All of it, in Prometheus' text format.
pub fn metrics(env: &Env, version: &str, commit: &str) -> String {
    let mut text = format!(
        "# HELP plinth_build_info The version and the commit that the program was built from\n\
         # TYPE plinth_build_info gauge\nplinth_build_info{{version=\"{version}\",commit=\"{commit}\"}} 1\n"
    );
    let stat = read_text(env, "/proc/self/stat").unwrap_or_default();
    if let Some(found) = of_stat(&stat) {
        add(&mut text, CPU, found.cpu_seconds);
        add(&mut text, VIRTUAL, found.virtual_bytes as f64);
        add(&mut text, THREADS, found.threads as f64);
        if let Some(booted) = read_text(env, "/proc/stat").and_then(|text| field(&text, "btime ")) {
            add(&mut text, START, booted as f64 + found.started_seconds);
        }
    }
    let status = read_text(env, "/proc/self/status").unwrap_or_default();
    if let Some(kilobytes) = field(&status, "VmRSS:") {
        add(&mut text, RESIDENT, kilobytes as f64 * 1024.0);
    }
    if let Ok(open) = block_on(env.files().list("/proc/self/fd")) {
        add(&mut text, OPEN, open.len() as f64);
    }
    let limits = read_text(env, "/proc/self/limits").unwrap_or_default();
    if let Some(most) = field(&limits, "Max open files") {
        add(&mut text, MOST, most as f64);
    }
    text
}

fn add(text: &mut String, (name, kind, about): About, value: f64) {
    // Writing to a String doesn't fail.
    let _ = writeln!(text, "# HELP {name} {about}\n# TYPE {name} {kind}\n{name} {value}");
}

/// The first number in the line that begins so.
fn field(text: &str, begin: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(begin))?;
    line.split_whitespace().next()?.parse().ok()
}

#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    started_seconds: f64,
    virtual_bytes: u64,
    threads: u64,
}

/// The fields of `/proc/self/stat`. The second is the program's name in parentheses, and may have
/// any characters.
fn of_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // They are counted from 1, and the first of these is the third.
    let number = |at: usize| fields.get(at - 3).and_then(|field| field.parse::<u64>().ok());
    let ticks = number(14)? + number(15)?;
    Some(Stat {
        cpu_seconds: ticks as f64 / TICKS,
        started_seconds: number(22)? as f64 / TICKS,
        virtual_bytes: number(23)?,
        threads: number(20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_tells_of_a_process_is_read() {
        let stat =
            "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1234 8192000 500 1844 0";
        let expected =
            Stat { cpu_seconds: 3.0, started_seconds: 12.34, virtual_bytes: 8_192_000, threads: 9 };
        assert_eq!(of_stat(stat), Some(expected));
        assert_eq!(of_stat("7 (short) S 1"), None);
        assert_eq!(field("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(
            field("Max open files            unlimited  unlimited  files\n", "Max open files"),
            None
        );
    }

    #[test]
    fn the_build_is_told_everywhere_and_the_process_on_linux() {
        let text = metrics(&Env::real(), "1.2.3", "abc");
        assert!(
            text.contains("\nplinth_build_info{version=\"1.2.3\",commit=\"abc\"} 1\n"),
            "{text}"
        );
        if cfg!(target_os = "linux") {
            for (name, ..) in [CPU, START, RESIDENT, VIRTUAL, OPEN, MOST, THREADS] {
                let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
                // A process that has just begun may have taken no time.
                let is_right = |value: f64| value > 0.0 || (name == CPU.0 && value == 0.0);
                assert!(
                    value.is_some_and(|value| value.parse::<f64>().is_ok_and(is_right)),
                    "{name}: {text}"
                );
            }
        }
    }
}
