//! Files that somebody else wrote: points in Parquet, and what is to be scraped, with the targets
//! that it names.
//!
//! What must hold: what is wrong is told with words, and no file gives more rows than it says it
//! has. The library that reads Parquet gives up by a panic on some files; the reader makes an error
//! of it, so here only one that leaves the reader counts, which is told with its words.

use plinth_env::simulated::Simulation;
use plinth_env::{Env, File, Open, TemporaryDir, block_on};
use plinth_series::dump::Cell;
use plinth_series::ingest::{Memory, Protocol, Session};
use plinth_series::parquet::{Reader, Writer};
use plinth_server::check_scraping;
use std::cell::Cell as Flag;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::sync::Once;

/// Rows that are taken of a file: few bytes may stand for any number.
const MOST_ROWS: u64 = 50_000;

thread_local! {
    /// Whether panics of this thread are none of ours yet.
    static IS_READING: Flag<bool> = const { Flag::new(false) };
}

/// Has a function work without a word of panics in it, but for one that leaves it.
fn quietly(work: impl FnOnce()) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_READING.get() {
                usual(info);
            }
        }));
    });
    IS_READING.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_READING.set(false);
    if let Err(panic) = done {
        match panic.downcast::<String>() {
            Ok(words) => panic!("the reader panicked: {words}"),
            Err(panic) => match panic.downcast::<&str>() {
                Ok(words) => panic!("the reader panicked: {words}"),
                Err(panic) => resume_unwind(panic),
            },
        }
    }
}

/// A file of Parquet, whose rows go where those of an import go.
pub(crate) fn parquet(bytes: &[u8]) {
    let (_dir, file) = file(bytes);
    quietly(|| {
        if let Err(why) = rows(Reader::open(file, bytes.len() as u64)) {
            assert!(!why.is_empty(), "it is refused without a word why");
        }
    });
}

/// A file with these bytes, in a directory that goes with it.
fn file(bytes: &[u8]) -> (TemporaryDir, File) {
    let env = Env::real();
    let write = async {
        let dir = env.files().temporary_dir("plinth-fuzz").await?;
        let file = env.files().open(dir.path().join("file"), Open::CreateNew).await?;
        file.write_all_at(0, bytes).await?;
        Ok::<_, plinth_env::IoError>((dir, file))
    };
    block_on(write).expect("there is room for a file")
}

/// How many rows were read, if nothing was wrong with the file itself.
fn rows(reader: Result<Reader, String>) -> Result<u64, String> {
    let reader = reader?;
    let mut session = Session::new(Protocol::Csv(0), 7, &Memory::default());
    let mut count = 0;
    for number in 0..reader.groups() {
        let mut group = reader.group(number)?;
        loop {
            let rows = group.next()?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                count += 1;
                let taken =
                    row.and_then(|(name, time, cell)| session.take_row(name.data(), time, &cell));
                assert!(taken.err().is_none_or(|why| !why.is_empty()), "no word why");
                if session.wants_save() {
                    session.discard();
                }
            }
            if count >= MOST_ROWS {
                return Ok(count);
            }
        }
    }
    assert!(count <= reader.rows(), "{count} rows of a file that says {}", reader.rows());
    Ok(count)
}

/// Files with every kind of cell, and with a name alone.
pub(crate) fn parquet_seeds() -> Vec<Vec<u8>> {
    let file = |rows: &[(&str, i64, Cell)]| {
        let mut out = Vec::new();
        let mut writer = Writer::new().expect("its columns are right");
        for (name, time, cell) in rows {
            writer.row(name, *time, cell.clone(), &mut out).expect("a row of its columns");
        }
        writer.finish(&mut out).expect("memory takes it");
        out
    };
    vec![
        file(&[
            ("cpu host=a", 5, Cell::Value(0.5.into())),
            ("cpu host=a", 6, Cell::Value(7_i64.into())),
            ("!deploy host=a", 7, Cell::Text(b"version 7 is out".to_vec())),
        ]),
        file(&[]),
    ]
}

/// What is to be scraped: a configuration, or, behind a `d`, a file of targets that one names.
pub(crate) fn scrape(bytes: &[u8]) {
    match checked(bytes) {
        Ok((jobs, targets)) => assert!(jobs > 0 || targets == 0, "{targets} targets of no job"),
        Err(why) => assert!(!why.is_empty(), "it is refused without a word why"),
    }
}

/// How many jobs and targets that comes to.
fn checked(bytes: &[u8]) -> Result<(usize, usize), String> {
    let (configuration, targets) = match bytes.split_first() {
        Some((b'd', targets)) => (NAMES_A_FILE.as_bytes(), targets),
        Some((_, configuration)) => (configuration, &b"[{targets: [a:1]}]"[..]),
        None => return Ok((0, 0)),
    };
    let simulation = Simulation::new(1);
    let env = simulation.process("server");
    let checked = simulation.run_until(async {
        let files = env.files();
        files.create_dir_all("/etc").await?;
        files.replace("/etc/scrape.yml", configuration).await?;
        files.replace("/etc/targets.yml", targets).await?;
        Ok::<_, plinth_env::IoError>(check_scraping(&env, "/etc/scrape.yml".as_ref()).await)
    });
    checked.expect("there is room for two files")
}

/// What names the file of targets; its rules come upon the labels of those.
const NAMES_A_FILE: &str = r#"scrape_configs:
- job_name: files
  target_limit: 9
  file_sd_configs: [{files: ["targets*"]}]
  relabel_configs:
  - {action: labelmap, regex: "l_(.+)", replacement: "m_${1}$1"}
  - {source_labels: [__address__, a], regex: "(.*):(\\d+);(.*)", target_label: port, replacement: "$2-$3"}
  - {source_labels: [b], modulus: 7, target_label: shard, action: hashmod}
"#;

/// Configurations that say all that may be said, and files of targets.
pub(crate) const SCRAPE: [&str; 5] = [
    r#"cglobal: {scrape_interval: 15s, scrape_timeout: 5s, body_size_limit: 1MiB, external_labels: {a: b}}
rule_files: [x]
scrape_configs:
- job_name: node
  scheme: https
  metrics_path: /m
  params: {"a[]": [b, c]}
  tls_config: {ca_file: ca.pem}
  basic_auth: {username: u, password_file: p}
  honor_labels: true
  scrape_native_histograms: true
  sample_limit: 10
  static_configs:
  - targets: ["a:1", "[::1]:2"]
    labels: {dc: eu}
  file_sd_configs: [{files: [targets.yml, "t*.json"], refresh_interval: 1m}]
  relabel_configs:
  - {source_labels: [__address__], regex: "(.+):.*", target_label: host, separator: "-"}
  - {regex: "x|y", action: labeldrop}
  metric_relabel_configs:
  - {source_labels: [__name__], regex: "go_.*", action: drop}
"#,
    r#"cscrape_configs: [{job_name: j, authorization: {type: T, credentials: c}, scrape_protocols: [PrometheusProto],
 relabel_configs: &r [{source_labels: [a, b], target_label: "${1}_x", regex: "((a)|b*)+", action: Replace}, {action: uppercase, source_labels: [job], target_label: job}],
 metric_relabel_configs: *r, static_configs: [{targets: [a:1], labels: {__scrape_interval__: 90s, __param_x: y, __metrics_path__: m}}]}]"#,
    "d- targets: [a:1, 'b:2']\n  labels: {l_x: \"1\", b: c}\n- targets: []\n",
    r#"d[{"targets": ["a:1"], "labels": {"a": "b", "__address__": "x"}}, {"labels": {}}]"#,
    "d- targets:\n  - a/b\n  labels: {1: 2}\n",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A target whose seeds are refused at the door would try nothing behind it.
    #[test]
    fn seeds_are_taken() {
        let found = SCRAPE.map(|text| checked(text.as_bytes()));
        assert_eq!(found[..4], [(1, 3), (1, 1), (1, 2), (1, 1)].map(Ok));
        assert!(found[4].as_ref().is_err_and(|why| why.contains("HOST:PORT")), "{found:?}");
        let read = |bytes: &[u8]| {
            let (_dir, file) = file(bytes);
            rows(Reader::open(file, bytes.len() as u64))
        };
        let found: Vec<_> = parquet_seeds().iter().map(|bytes| read(bytes)).collect();
        assert_eq!(found, [Ok(3), Ok(0)]);
    }
}
