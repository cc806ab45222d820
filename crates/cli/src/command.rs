//! The command line: its subcommands, options and help.
//!
//! What a value may be is said here as far as a type can say it; the commands check the rest, and
//! say so in the same words.

use clap::{Arg, ArgAction, Command, value_parser};
use plinth_bench::workloads::ALL;
use std::path::PathBuf;

/// The hidden command by which the tour starts the process that it kills.
pub const WRITER: &str = "demo-writer";
/// The hidden command by which the benchmark does so.
pub const BENCH_WRITER: &str = "bench-writer";

const ABOUT: &str = "An ordered, transactional key-value database with FoundationDB's API";
const CODES: &str = "Exit codes: 0 all is well; 1 it could not be done; 2 the command line makes no sense; \
                     3 a database is damaged; 75 a server is to be started again; 130 interrupted.";

/// The whole command line.
pub fn command(version: &'static str) -> Command {
    Command::new("plinth")
        .about(ABOUT)
        .version(version)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(format!(
            "Begin with:\n  plinth demo          a guided tour, under two minutes, nothing needed\n  \
             plinth bench --help  what can be measured\n\n{CODES}"
        ))
        .subcommands([
            crate::server::command(),
            crate::server::dev_command(),
            crate::backup::command(),
            crate::backup::restore_command(),
            crate::migrate::command(),
            crate::changes::command(),
            crate::dr::command(),
            crate::series::command(),
            crate::tls::command(),
            crate::sim::command(),
        ])
        .subcommands([crate::monitor::status_command(), crate::monitor::top_command()])
        .subcommands([
            demo(),
            bench(),
            shell(),
            check(),
            salvage(),
            crate::reference::completions_command(),
            crate::reference::man_pages_command(),
            version_command(),
            writer(),
            bench_writer(),
        ])
}

fn demo() -> Command {
    Command::new("demo")
        .about("A guided tour on a temporary database: transactions, a conflict, a watch, a crash, a benchmark")
        .after_help("Takes under two minutes, needs nothing running, and leaves nothing behind.\n\nExample:\n  plinth demo")
        .arg(Arg::new("short").long("short").action(ArgAction::SetTrue).hide(true))
}

fn bench() -> Command {
    let workloads =
        ALL.iter().map(|workload| format!("\n  {:20} {}", workload.name, workload.about));
    let help = format!(
        "Workloads:{}\n\nGroups of them:\n  \
         guide                the six of FoundationDB's benchmarking guide for one core\n  \
         cluster              its three for twelve machines\n  \
         performance          those of its performance page\n  \
         kpi                  those of its page of key performance indicators\n  \
         published            all of these\n  own                  our own\n  \
         default              the guide's and our own but the long ones\n  all                  all of them\n\n\
         Examples:\n  plinth bench\n  plinth bench --workload guide --seconds 60\n  \
         plinth bench --workload write1,write3 --dir /mnt/fast/bench --json report.json\n  \
         PLINTH_TOKEN_FILE=app.token plinth bench --cluster-file data/fdb.cluster\n\n{CODES}",
        workloads.collect::<String>()
    );
    Command::new("bench")
        .about("Measures the database, and shows the figures beside FoundationDB's")
        .long_about(
            "Loads rows of 16-byte keys and values of 8 to 100 bytes through ordinary transactions, runs\n\
             workloads on them, and shows each figure beside what FoundationDB's benchmarking guide publishes\n\
             for one core, what FoundationDB gave when measured, and what Plinth asks of itself.",
        )
        .after_help(help)
        .arg(
            path("dir", "DIR").help(
                "Where the database lies; made if it doesn't exist, and kept [default: a temporary directory]",
            ),
        )
        .arg(path("cluster-file", "FILE").help("Measures the database of the server that this cluster file names, or fdb:CLUSTER_FILE"))
        .arg(text("engine", "ENGINE,...").default_value("memory").value_delimiter(',').action(ArgAction::Append).help(
            "Storage engine: memory or ssd; of several, each in turn, in a directory of its name below DIR",
        ))
        .arg(
            text("workload", "NAME,...")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .default_value("default")
                .help("Workloads to run, by the names below"),
        )
        .arg(number("clients", "N").help("Clients at once, for workloads of more than one [default: each its own]"))
        .arg(number("rows", "N").default_value("1000000").help("Rows to load"))
        .arg(number("memory", "BYTES").help(
            "Memory that the engine ssd may take for the data, window and caches included [default: 1 GiB; for the workload budget a tenth of the data, of 20 times the rows]",
        ))
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("S")
                .value_parser(value_parser!(f64))
                .default_value("10")
                .help("How long each workload is measured; those over time take 6 times that, `sustained` 60 times, and ten minutes at least from 5 on"),
        )
        .arg(number("threads", "N").help("Threads that clients run on [default: each workload its own]"))
        .arg(path("json", "FILE").help("Writes everything that was measured to FILE, as JSON"))
        .arg(path("html", "FILE").help("Writes a page of tables and plots to FILE, which needs nothing else"))
        .arg(path("pictures", "DIR").help("Writes each plot into DIR as an SVG picture, for a document"))
        .arg(path("markdown", "FILE").help("Writes the table to FILE, for a document"))
        .arg(
            Arg::new("rest")
                .long("rest")
                .value_parser(value_parser!(f64))
                .default_value("8")
                .hide(true)
                .help("Seconds to wait before memory is at rest"),
        )
}

fn shell() -> Command {
    Command::new("shell")
        .about("FoundationDB's shell commands on a database: get, set, getrange, begin, commit, status, ...")
        .after_help(format!(
            "Begin with the command help. Keys and values are written with escapes: \\xHH is a byte.\n\
             With --exec, and when commands come from a pipe, the first that fails ends the shell.\n\n\
             Examples:\n  plinth shell --dir ./shop\n  plinth shell --dir ./shop --exec \"getrange shelf/\"\n  \
             plinth shell --dir ./shop --exec \"writemode on; set shelf/apple 1\"\n\n{CODES}"
        ))
        .arg(path("dir", "DIR").help("The database in this directory; :memory: for one that is gone afterwards"))
        .arg(
            path("cluster-file", "FILE")
                .conflicts_with("dir")
                .help("The database of a server, by its cluster file, or fdb:CLUSTER_FILE for FoundationDB's [default: FDB_CLUSTER_FILE, ./fdb.cluster]"),
        )
        .args(crate::encryption::args())
        .arg(Arg::new("create").long("create").action(ArgAction::SetTrue).requires("dir").help("Makes the database if there is none"))
        .arg(text("exec", "COMMANDS").help("Runs these, separated by semicolons, and ends"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .requires("exec")
                .value_parser(value_parser!(u64).range(1..))
                .help("Ends with exit code 1 if the commands aren't done by then; what was committed stays [default: waits]"),
        )
}

fn check() -> Command {
    Command::new("check")
        .about("Verifies every checksum of a database, and changes nothing")
        .after_help(format!(
            "The database must not be open. Without the key of one that is encrypted checksums are compared, and\n\
             nothing else. Damage is told by file, offset, what was expected and what was found.\n\n\
             Example:\n  plinth check ./shop\n\n{CODES}"
        ))
        .arg(Arg::new("dir").value_name("DIR").required(true).value_parser(value_parser!(PathBuf)).help("The database"))
        .args(crate::encryption::args())
}

fn salvage() -> Command {
    let place =
        |name: &'static str| Arg::new(name).required(true).value_parser(value_parser!(PathBuf));
    Command::new("salvage")
        .about(
            "Copies what is readable of a damaged database into a new one, and says what was not",
        )
        .after_help(format!(
            "DIR is not changed. OUT must not exist, or be empty.\n\n\
             Example:\n  plinth salvage ./shop ./shop-saved\n\n{CODES}"
        ))
        .arg(place("dir").value_name("DIR").help("The damaged database"))
        .arg(place("out").value_name("OUT").help("Where the new one goes"))
        .args(crate::encryption::args())
}

fn version_command() -> Command {
    Command::new("version").about("The version, and the commit it was built from")
}

fn writer() -> Command {
    Command::new(WRITER)
        .hide(true)
        .about("Writes until it is killed: the victim in the tour's crash")
        .arg(Arg::new("dir").required(true).value_parser(value_parser!(PathBuf)))
        .arg(Arg::new("round").required(true).value_parser(value_parser!(u64)))
}

fn bench_writer() -> Command {
    let number = |name: &'static str| {
        Arg::new(name).required(true).value_parser(value_parser!(u64).range(1..))
    };
    Command::new(BENCH_WRITER)
        .hide(true)
        .about("Writes until it is killed: the victim of the workload `restart`")
        .arg(Arg::new("dir").required(true).value_parser(value_parser!(PathBuf)))
        .arg(Arg::new("engine").required(true))
        .args([number("rows"), number("transactions"), number("memory").required(false)])
}

fn path(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).value_parser(value_parser!(PathBuf))
}

fn text(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).value_parser(value_parser!(String))
}

fn number(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).value_parser(value_parser!(u64).range(1..))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command("0").debug_assert();
    }
}
