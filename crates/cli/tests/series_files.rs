//! `plinth series` as its users meet it: points through files of each format and back, from and to
//! a directory and a server, and lines that make no sense.
//!
//! What a format does with each value is tested in `crates/series`; here it is files, words and
//! exit codes.

mod common;

use common::Running;
use plinth::Local;
use plinth::series::SeriesLayer;
use plinth_env::{Env, TemporaryDir, block_on};
use std::io::Write;
use std::ops::Range;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn place() -> TemporaryDir {
    block_on(Env::real().files().temporary_dir("plinth-cli-series")).unwrap()
}

fn path(place: &TemporaryDir, name: &str) -> String {
    place.path().join(name).display().to_string()
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.stdin(Stdio::null());
    command
}

fn series(arguments: &[&str]) -> Output {
    program().arg("series").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts that it went well, and gives what it printed.
fn done(arguments: &[&str]) -> String {
    let output = series(arguments);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn write(path: &str, contents: &str) {
    block_on(Env::real().files().replace(path, contents.as_bytes())).unwrap();
}

fn read(path: &str) -> String {
    text(&block_on(Env::real().files().read(path)).unwrap())
}

/// Points of some series, as CSV. The event is four points.
fn sample() -> String {
    let mut sample = "series,time,value\n".to_owned();
    for second in 0..30_000 {
        let (minute, hour) = (second / 60 % 60, second / 3600);
        let time = format!("20260101T{hour:02}{minute:02}{:02}.000000000", second % 60);
        sample += &format!("cpu.user host=a os=linux,{time},{:?}\n", f64::from(second) * 0.1);
    }
    sample += "cpu.user host=b os=linux,20260101T000000.000000001,-0.0\n";
    sample += "disk.free host=a,20260101T000000.000000000,9007199254740993\n";
    sample += "disk.free host=a,20260101T000001.000000000,-7\n";
    sample += "!deploy.note host=a,20260101T000000.000000000,\"version 7, at last\"\n";
    sample
}

/// Lines, whatever their order: series come in that of their making.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn forms_come_back(to: &[&str], place: &TemporaryDir) {
    let csv = path(place, "sample.csv");
    write(&csv, &sample());
    let said = done(&[&["import"], to, &[csv.as_str()]].concat());
    assert!(said.contains("30,004 points are committed"), "{said}");
    let mut forms = vec!["csv", "resp", "influx"];
    if cfg!(feature = "parquet") {
        forms.push("parquet");
    }
    for form in forms {
        let (file, back) =
            (path(place, &format!("out.{form}")), path(place, &format!("back-{form}")));
        // Whether the owner of a server's series has taken them in or not.
        assert_eq!(done(&[&["list"], to].concat()).lines().count(), 4);
        done(&[&["export"], to, &["--format", form, "--out", &file]].concat());
        let said = done(&["import", "--create", "--dir", &back, &file]);
        assert!(said.contains("30,004 points are committed"), "{form}: {said}");
        let out = done(&["export", "--dir", &back]);
        assert!(sorted(&out) == sorted(&sample()), "{form}: {} bytes, not as they were", out.len());
        block_on(Env::real().files().remove(&file)).unwrap();
    }
}

#[test]
fn points_go_through_every_format_and_come_back() {
    let place = place();
    let dir = path(&place, "data");
    Local::open(&dir).unwrap().close().unwrap();
    forms_come_back(&["--dir", &dir], &place);
    // Again: no point is there twice.
    done(&["import", "--create", "--dir", &dir, &path(&place, "sample.csv")]);
    assert!(sorted(&done(&["export", "--dir", &dir])) == sorted(&sample()));

    assert_eq!(
        done(&["list", "--dir", &dir, "cpu.user"]),
        "cpu.user host=a os=linux\ncpu.user host=b os=linux\n"
    );
    assert_eq!(done(&["list", "--dir", &dir, "cpu.user", "host=b"]), "cpu.user host=b os=linux\n");
    let said = done(&["describe", "--dir", &dir, "disk.free"]);
    assert!(
        said.contains("points       2\n") && said.contains("least        -7 at 20260101T000001"),
        "{said}"
    );
    let said = done(&[
        "export",
        "--dir",
        &dir,
        "--from",
        "20260101T000001",
        "--to",
        "20260101T000003",
        "cpu.user",
    ]);
    assert_eq!(said.lines().count(), 3, "{said}");
    let said =
        done(&["plot", "--dir", &dir, "--width", "40", "--height", "5", "cpu.user", "host=a"]);
    assert_eq!(said.lines().filter(|line| line.contains('┤')).count(), 5, "{said}");
    assert!(said.contains("2999.9") && said.matches('•').count() == 40, "{said}");
}

#[test]
fn expressions_are_answered_in_the_terminal() {
    let place = place();
    let dir = path(&place, "data");
    let csv = path(&place, "sample.csv");
    write(&csv, &sample());
    done(&["import", "--create", "--dir", &dir, &csv]);
    let query = |more: &[&str]| done(&[&["query", "--dir", &dir], more].concat());
    let at = "2026-01-01T00:00:02Z";
    let total = "sum by (host) ({__name__=~\"disk.*\"})";
    assert_eq!(query(&["--at", at, total]), "{host=\"a\"}  -7\n");
    assert_eq!(query(&["--at", at, "1 + 1"]), "2\n");
    // Digits alone were nanoseconds, and so a moment of 1970.
    for at in ["1767225602", "1767225602000", "1767225602000000", "1767225602000000000"] {
        assert_eq!(query(&["--at", at, total]), "{host=\"a\"}  -7\n", "{at}");
    }
    // As the pages write it; options behind the expression were taken for a part of it.
    assert_eq!(query(&["-1", "--at", at]), "-1\n");
    let range = ["--from", "2026-01-01", "--to", "2026-01-01T00:00:20Z", "--step", "10s"];
    let of_a = "{__name__=\"cpu.user\", host=\"a\"}";
    let answered = query(&[&range[..], &["--format", "csv", of_a]].concat());
    assert_eq!(answered.lines().count(), 4, "{answered}");
    assert!(answered.contains(",20260101T000010.000000000,"), "{answered}");
    let answered = query(&[&range[..], &["--width", "40", "--height", "5", of_a]].concat());
    assert_eq!(answered.lines().filter(|line| line.contains('┤')).count(), 5, "{answered}");
    let json = query(&["--format", "json", "--at", at, "1"]);
    assert!(json.starts_with("{\"data\""), "{json}");
    for (wrong, code, said) in [
        (&["query", "--dir", &dir, "sum("][..], 1, "parse error"),
        (&["query", "--dir", &dir, "--to", "now", "1"], 2, "--from"),
        (&["query", "--dir", &dir, "--at", "yesterday", "1"], 2, "now-1h"),
        (&["query", "--dir", &dir, "--format", "plot", "1"], 2, "--from"),
    ] {
        let output = series(wrong);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{wrong:?}: {told}");
        assert!(told.contains(said), "{wrong:?}: {told}");
    }
}

/// A server that ends with the test, and its cluster file.
fn serve(place: &TemporaryDir) -> (Running, String) {
    let more =
        ["--listen", "127.0.0.1:0", "--series-resp", "127.0.0.1:0", "--series-metrics=false"];
    let server = Running::start(&place.path().join("served"), &more);
    let cluster_file = server.cluster_file().display().to_string();
    (server, cluster_file)
}

#[test]
fn a_server_keeps_its_series_while_they_are_imported_and_exported() {
    let place = place();
    let (_server, cluster_file) = serve(&place);
    forms_come_back(&["--cluster-file", &cluster_file], &place);
}

/// What an import says is committed is there for whoever looks right behind it, though the points
/// wait in the inbox until the server takes them in.
#[test]
fn what_was_imported_into_a_server_is_described_right_behind() {
    let place = place();
    let (_server, cluster_file) = serve(&place);
    let (file, to) = (path(&place, "some.csv"), ["--cluster-file", &cluster_file]);
    for round in 1..=8_usize {
        let some: String = lines(round * 1000 - 1000..round * 1000).collect();
        write(&file, &some);
        done(&[&["import"], &to[..], &[&file]].concat());
        let said = done(&[&["describe"], &to[..], &["m"]].concat());
        let last = format!("last         {} at 1970", round * 1000 - 1);
        let points = format!("points       {round},000\n");
        assert!(said.contains(&points) && said.contains(&last), "round {round}: {said}");
    }
}

/// Points of one series as CSV, a second apart.
fn lines(of: Range<usize>) -> impl Iterator<Item = String> {
    of.map(|second| format!("m host=a,{second}s,{second}\n"))
}

/// Runs to its end; gives the most memory that it has had.
#[expect(
    clippy::disallowed_methods,
    reason = "what the system says of a process is no file of a node's"
)]
fn most_memory(arguments: &[&str]) -> usize {
    let mut child = program().arg("series").args(arguments).stdout(Stdio::null()).spawn().unwrap();
    let (status, mut most) = (format!("/proc/{}/status", child.id()), 0);
    let code = loop {
        // Of one that has ended there is no such line.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        most = kilobytes.unwrap_or(0).max(most);
        match child.try_wait().unwrap() {
            Some(code) => break code,
            None => block_on(Env::real().sleep(Duration::from_millis(5))),
        }
    };
    assert!(code.success() && most > 0, "{arguments:?}");
    most << 10
}

/// A file of any size passes through, and is never in memory: neither on the way in nor on the way
/// out.
#[test]
fn imports_and_exports_take_as_much_memory_for_much_as_for_little() {
    const BOUND: usize = 32 << 20;
    let place = place();
    let (_server, cluster_file) = serve(&place);
    let (file, out) = (path(&place, "some.csv"), path(&place, "out.csv"));
    let to = ["--cluster-file", &*cluster_file];
    let mut most = [0, 1].map(|_| Vec::new());
    for (begin, count) in [(0, 50_000), (50_000, 3_000_000)] {
        let mut text = String::new();
        lines(begin..begin + count).for_each(|line| text += &line);
        write(&file, &text);
        if begin > 0 {
            assert!(text.len() > 2 * BOUND, "{} bytes", text.len());
        }
        drop(text);
        most[0].push(most_memory(&[&["import"], &to[..], &[&file]].concat()));
        most[1].push(most_memory(&[&["export"], &to[..], &["--out", &out, "m"]].concat()));
        assert!(read(&out).lines().count() == begin + count + 1);
        block_on(Env::real().files().remove(&out)).unwrap();
    }
    for (what, most) in ["import", "export"].iter().zip(most) {
        println!("{what}: {most:?} bytes at most");
        assert!(most[1] < most[0] + BOUND, "{what}: {most:?}");
    }
}

#[test]
fn lines_that_make_no_sense_are_told_and_the_others_are_taken() {
    let place = place();
    let dir = path(&place, "data");
    for (name, contents, line, why) in [
        (
            "bad.csv",
            "m a=1,1ns,1\nm a=1,2ns\nm a=1,3ns,3\n",
            "(line 2)",
            "three fields are expected",
        ),
        // What is told from now is taken, and refused where its span is none.
        (
            "relative.csv",
            "m a=1,now-1h,1\nm a=1,now-1x,2\nm a=1,now,3\n",
            "(line 2)",
            "no time from 1677 to 2262: write 20260101T120000",
        ),
        (
            "bad.influx",
            "m,a=1 v=1i 1\nm,a=1 v=x 2\nm,a=1 v=3i 3\n",
            "(line 2)",
            "can't parse double value",
        ),
        (
            "bad.resp",
            "+m a=1\n:1\n:1\n+m a=1\n:2\n+x\n+m a=1\n:3\n:3\n",
            "(line 6)",
            "can't parse double value",
        ),
    ] {
        let file = path(&place, name);
        write(&file, contents);
        let output = series(&["import", "--create", "--dir", &dir, &file]);
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{out}{said}");
        assert!(said.contains(&file) && said.contains(line) && said.contains(why), "{said}");
        assert!(out.contains("2 points are committed, 1 of its messages were refused"), "{out}");
    }
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = series(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    };
    let there = read(&path(&place, "bad.csv")).len();
    assert!(there > 0);
    refused(&["import", "--create", "--dir", &dir, &path(&place, "none.csv")], 1, "none.csv");
    write(&path(&place, "unknown"), "x");
    refused(&["import", "--create", "--dir", &dir, &path(&place, "unknown")], 2, "--format");
    // A name that was mistyped became a database.
    let (nowhere, there) = (path(&place, "nowhere"), path(&place, "bad.csv"));
    refused(&["import", "--dir", &nowhere, &there], 1, "--create makes one");
    refused(&["list", "--dir", &nowhere], 1, "cannot open");
    refused(&["plot", "--dir", &dir, "nothing", "a=1"], 1, "has no series nothing a=1");
    refused(&["list", "--dir", &dir, "a b"], 2, "host=a");
    refused(&["export", "--dir", &dir, "--from", "yesterday"], 2, "20260101T120000");
    refused(&["export", "--dir", &dir, "--out", &path(&place, "bad.csv")], 1, "bad.csv");
}

/// A table whose end is missing leaves nothing behind, and one with wrong bytes in it what it says.
#[test]
#[cfg(feature = "parquet")]
fn tables_that_are_not_whole_are_told_and_what_is_taken_of_them_is_said() {
    let place = place();
    let (dir, csv, table) =
        (path(&place, "data"), path(&place, "sample.csv"), path(&place, "out.parquet"));
    // The event apart, whose row is four points.
    write(&csv, sample().rsplit_once("!deploy").unwrap().0);
    done(&["import", "--create", "--dir", &dir, &csv]);
    done(&["export", "--dir", &dir, "--format", "parquet", "--out", &table]);
    let whole = block_on(Env::real().files().read(&table)).unwrap();
    let import = |bytes: &[u8], dir: &str| {
        let file = path(&place, "bad.parquet");
        block_on(Env::real().files().replace(&file, bytes)).unwrap();
        let output = series(&["import", "--create", "--dir", &path(&place, dir), &file]);
        let said = text(&output.stderr);
        assert!(said.contains(&file), "{said}");
        let there = done(&["export", "--dir", &path(&place, dir)]).lines().count() - 1;
        (output.status.code(), said, there)
    };
    for (number, len) in [0, 3, whole.len() / 2, whole.len() - 1].into_iter().enumerate() {
        let (code, said, there) = import(&whole[..len], &format!("cut-{number}"));
        assert!(
            code == Some(1) && said.contains("nothing was taken") && there == 0,
            "{there} points: {said}"
        );
    }
    let mut told = 0;
    for number in 1..10 {
        let mut damaged = whole.clone();
        let middle = whole.len() / 10 * number;
        damaged[middle..middle + 500].fill(0xa5);
        let (code, said, there) = import(&damaged, &format!("damaged-{number}"));
        match said.split("any further, ").nth(1).and_then(|rest| rest.split(" points").next()) {
            Some(points) => {
                assert_eq!((code, points.replace(',', "")), (Some(1), there.to_string()), "{said}");
                told += 1;
            }
            // There is no checksum in it: where floats lie as they are, others are floats too.
            None => {
                assert!(
                    code == Some(1) || (code == Some(0) && there == 30_003),
                    "{there} points: {said}"
                )
            }
        }
    }
    assert!(told > 0, "{told}");
    let output = program()
        .args(["series", "import", "--create", "--dir", &dir, "--format", "parquet", "-"])
        .output()
        .unwrap();
    assert!(
        output.status.code() == Some(2) && text(&output.stderr).contains("give its name"),
        "{output:?}"
    );
}

/// Streams of Arrow's are read in `crates/series`; here it is that the program writes one.
#[test]
fn a_table_of_arrow_is_written_where_the_program_can() {
    let place = place();
    let (dir, csv, out) =
        (path(&place, "data"), path(&place, "sample.csv"), path(&place, "out.arrows"));
    write(&csv, &sample());
    done(&["import", "--create", "--dir", &dir, &csv]);
    let output = series(&["export", "--dir", &dir, "--format", "arrow", "--out", &out]);
    if cfg!(feature = "arrow") {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let bytes = block_on(Env::real().files().read(&out)).unwrap();
        assert!(bytes.starts_with(&[255; 4]) && bytes.ends_with(&[255, 255, 255, 255, 0, 0, 0, 0]));
        assert!(text(&output.stderr).contains("30,004 points of 4 series"), "{output:?}");
    } else {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("feature `arrow`"), "{output:?}");
    }
    if !cfg!(feature = "parquet") {
        let output = series(&["import", "--create", "--dir", &dir, "x.parquet"]);
        assert!(text(&output.stderr).contains("feature `parquet`"), "{output:?}");
    }
}

#[test]
fn series_are_deleted_when_that_is_meant() {
    let place = place();
    let (dir, csv) = (path(&place, "data"), path(&place, "sample.csv"));
    write(&csv, &sample());
    done(&["import", "--create", "--dir", &dir, &csv]);
    let count = || done(&["export", "--dir", &dir]).lines().count() - 1;
    let all = count();
    let said = done(&["delete", "--dir", &dir, "cpu.user"]);
    assert!(
        said.ends_with("2 series with 30,001 points would be deleted; --yes does so\n"),
        "{said}"
    );
    assert_eq!(count(), all);
    let said =
        done(&["delete", "--dir", &dir, "--to", "20260101T000010", "--yes", "cpu.user", "host=a"]);
    assert!(said.ends_with("10 points of 1 series are deleted\n"), "{said}");
    assert_eq!(count(), all - 10);
    let said = done(&["delete", "--dir", &dir, "--yes", "cpu.user"]);
    assert!(said.ends_with("2 series with 29,991 points are deleted\n"), "{said}");
    assert_eq!(count(), all - 30_001);
    assert_eq!(done(&["list", "--dir", &dir]).lines().count(), 2);
    let output = series(&["delete", "--dir", &dir, "--yes", "cpu.user"]);
    assert!(text(&output.stderr).contains("has no series cpu.user"), "{output:?}");
    let output = series(&["delete", "--dir", &dir, "--yes"]);
    assert_eq!(output.status.code(), Some(2), "all of them are not meant by nothing: {output:?}");
    let (_server, cluster_file) = serve(&place);
    let output = series(&["delete", "--cluster-file", &cluster_file, "--yes", "cpu.user"]);
    assert!(
        output.status.code() == Some(2) && text(&output.stderr).contains("delete_series"),
        "{output:?}"
    );
}

#[test]
fn standard_input_is_a_file_too() {
    let place = place();
    let dir = path(&place, "data");
    let mut child = program()
        .args(["series", "import", "--create", "--dir", &dir, "--format", "influx", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"cpu,host=a user=0.5 1\ncpu,host=a user=1.5 2").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stdout).contains("2 points are committed"), "{output:?}");
    let db = Local::open(&dir).unwrap().into_database();
    let store = block_on(SeriesLayer::new(&db).open()).unwrap();
    let user = block_on(store.existing("cpu.user host=a")).unwrap().unwrap();
    assert_eq!(block_on(user.aggregate(..)).unwrap().map(|summary| summary.sum), Some(2.0));
}

/// What a server would not take is told before it is given the file: where, and what.
#[test]
fn files_of_rules_are_checked() {
    let place = place();
    let write = |name: &str, text: &str| {
        let path = path(&place, name);
        block_on(Env::real().files().replace(&path, text.as_bytes())).unwrap();
        path
    };
    let good = write(
        "good.yml",
        "groups: [{name: g, rules: [{record: r, expr: sum(a)}, {alert: A, expr: a > 1}]}]",
    );
    let said = done(&["rules", "check", &good]);
    assert_eq!(said, format!("{good}: groups 1, recording rules 1, alerting rules 1\n"));
    let bad = write("bad.yml", "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'sum('}\n");
    let output = series(&["rules", "check", &good, &bad]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        told.contains(&format!("{bad}:4:22: group \"g\", rule 1, \"A\": could not parse")),
        "{told}"
    );
    let dir = path(&place, "db");
    let server =
        ["server", "--dir", &dir, "--listen", "127.0.0.1:0", "--series-http", "127.0.0.1:0"];
    let scraped = write(
        "scrape.yml",
        "global: {scrape_interval: 15s}\nrule_files: [x]\nscrape_configs:\n- job_name: j\n  static_configs: [{targets: [a:1, b:2]}]\n",
    );
    let said = done(&["scrape", "check", &scraped]);
    assert_eq!(said, format!("{scraped}: jobs 1, targets 2\n"));
    let unscraped = write("bad-scrape.yml", "scrape_configs:\n- {job_name: j, scrap: 1}\n");
    let output = series(&["scrape", "check", &unscraped]);
    let told = text(&output.stderr);
    assert!(told.contains(&format!("{unscraped}:2:17: field \"scrap\" is not known")), "{told}");
    let unscraped = ["--scrape", &unscraped];
    let alertmanager = ["--rules", &good, "--alertmanager", "ftp://nowhere"];
    for (wrong, said) in [
        (&["--rules", &bad][..], "could not parse"),
        (&alertmanager, "ftp:"),
        (&unscraped, "is not known"),
    ] {
        let mut command = program();
        let output = command.args(server).args(["--listen", "127.0.0.1:0"]).args(wrong).output();
        let output = output.unwrap();
        let told = text(&output.stderr);
        assert!(output.status.code() != Some(0) && told.contains(said), "{told}");
        let made = block_on(Env::real().files().exists(path(&place, "db"))).unwrap();
        assert!(!made, "a directory was made for settings that are refused");
    }
}

#[test]
fn rules_of_rollups_are_kept_in_the_database() {
    let place = place();
    let (dir, points) = (path(&place, "shop"), path(&place, "points.csv"));
    write(&points, &sample());
    done(&["import", "--dir", &dir, "--create", &points]);
    let rule = ["rollup", "add", "--dir", &dir, "cpu.*", "--every", "1m", "--keep", "2y"];
    let added = done(&[&rule[..], &["--raw", "30d"]].concat());
    assert_eq!(added, "cpu.* every 1m keep 730d raw 30d\n");
    assert_eq!(done(&["rollup", "list", "--dir", &dir]), added);
    // Said again it is changed, and keeps its buckets.
    assert_eq!(done(&[&rule[..], &["--raw", "60d"]].concat()), added.replace("raw 30d", "raw 60d"));
    assert_eq!(done(&[&rule[..], &["--raw", "30d"]].concat()), added);
    for (wrong, why) in [("7s", "a day has to be a multiple"), ("1", "5m")] {
        let refused = series(&["rollup", "add", "--dir", &dir, "cpu.*", "--every", wrong]);
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
    }
    let careless = series(&["rollup", "remove", "--dir", &dir, "cpu.*"]);
    assert!(text(&careless.stderr).contains("--yes"), "{}", text(&careless.stderr));
    assert_eq!(done(&["rollup", "list", "--dir", &dir]), added);
    let removed = done(&["rollup", "remove", "--dir", &dir, "--yes", "cpu.*"]);
    assert_eq!(removed, "cpu.* every 1m keep 730d raw 30d: removed\n");
    assert_eq!(done(&["rollup", "list", "--dir", &dir]), "");
    let nothing = series(&["rollup", "remove", "--dir", &dir, "cpu.*"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert_eq!(done(&["retention", "--dir", &dir, "cpu.*=30d,*=1y"]), "cpu.*=30d,*=1y\n");
    assert_eq!(done(&["retention", "--dir", &dir]), "cpu.*=30d,*=1y\n");
    assert_eq!(series(&["retention", "--dir", &dir, "cpu"]).status.code(), Some(2));
    assert!(done(&["retention", "--dir", &dir, "--unset"]).contains("started with"));
}

#[test]
fn a_server_rolls_up_what_there_is_and_lets_its_points_go() {
    let place = place();
    let (_server, cluster_file) = serve(&place);
    let points = path(&place, "points.csv");
    write(&points, &sample());
    done(&["import", "--cluster-file", &cluster_file, &points]);
    let rule = ["cpu.user", "--every", "1m", "--raw", "1m"];
    done(&[&["rollup", "add", "--cluster-file", &cluster_file], &rule[..]].concat());
    let selected = ["--cluster-file", &cluster_file, "cpu.user", "host=a"];
    // The last minute of a series that has ended is kept with its points.
    while done(&[&["export"], &selected[..]].concat()).lines().count() > 62 {
        block_on(Env::real().sleep(std::time::Duration::from_millis(300)));
    }
    let described = done(&[&["describe"], &selected[..]].concat());
    assert!(described.contains("points       30,000"), "{described}");
}

/// A database with series of a user's and of a server's own, each of one point.
fn mixed(place: &TemporaryDir) -> String {
    let (dir, file) = (path(place, "data"), path(place, "points.csv"));
    let lines = [
        "plinth_commits server=here",
        "process_cpu server=here",
        "process_orders shop=a",
        "cpu.user host=a",
    ];
    let lines = lines.map(|name| format!("{name},20260101T000000,1.0\n")).concat();
    write(&file, &format!("series,time,value\n{lines}"));
    done(&["import", "--dir", &dir, "--create", &file]);
    dir
}

/// Of a new database's series a hundred were the server's own, which nobody had sent.
#[test]
fn what_servers_record_of_themselves_is_left_out_unless_it_is_asked_for() {
    let place = place();
    let dir = mixed(&place);
    let asked = |arguments: &[&str]| {
        let output = series(&[arguments, &["--dir", &dir]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let named = ["plinth_commits", "process_cpu", "process_orders", "cpu.user"]
            .map(|name| text(&output.stdout).contains(name));
        (named, text(&output.stderr))
    };
    let left_out = "2 series of what servers record of themselves are left out; --own has them";
    for (command, counted) in [("list", ""), ("export", "2 points of 2 series were exported")] {
        let (named, told) = asked(&[command]);
        assert_eq!(named, [false, false, true, true], "{command}");
        assert!(told.contains(left_out) && told.contains(counted), "{told}");
        let (named, told) = asked(&[command, "--own"]);
        assert_eq!(named, [true; 4], "{command}");
        assert!(!told.contains("left out"), "{told}");
        // Whoever names one means it.
        let (named, told) = asked(&[command, "plinth_commits"]);
        assert_eq!(named, [true, false, false, false], "{command}");
        assert!(!told.contains("left out"), "{told}");
    }
}

/// "no series has a value there", where nobody had said where; and a name that nobody has sent was
/// told in the same words. A server's own series stood before its user's.
#[test]
fn what_is_not_found_is_said_with_where_it_was_looked_for() {
    let place = place();
    let dir = mixed(&place);
    let listed = done(&["list", "--dir", &dir, "--own"]);
    let own = listed.find("plinth_commits server=here\nprocess_cpu server=here\n").unwrap();
    assert!(
        listed.ends_with("process_cpu server=here\n") && own > listed.find("cpu.user").unwrap()
    );
    assert!(listed.find("process_orders").unwrap() < own, "{listed}");
    let query = |more: &[&str]| done(&[&["query", "--dir", &dir], more].concat());
    let told = query(&["process_orders"]);
    assert!(told.starts_with("no series has a value now, at 2") && told.contains("--at TIME"));
    let told = query(&["process_orders", "--at", "20250101T000000"]);
    assert!(told.starts_with("no series has a value at 20250101T000000"), "{told}");
    let told = query(&["rate(process_order[5m]) + process_orders"]);
    assert!(told.starts_with("there is no metric process_order: `plinth series list`"), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
    let told = query(&["process_orders", "--from", "now-1h"]);
    assert!(told.starts_with("no series has a value from ") && told.contains("--to"), "{told}");
    let out = path(&place, "one.csv");
    let exported = series(&["export", "--dir", &dir, "--out", &out, "cpu.user"]);
    let told = text(&exported.stderr);
    assert!(told.contains("1 point of 1 series was exported"), "{told}");
}

/// Somebody waited for retention where nothing was taken in.
#[test]
fn what_is_said_of_series_needs_some() {
    let place = place();
    let dir = path(&place, "data");
    let server = |more: &[&str]| {
        let mut command = program();
        command.args(["server", "--dir", &dir, "--listen", "127.0.0.1:0"]).args(more);
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for (setting, value) in [("series-retention", "*=30d"), ("series-limit", "1000000")] {
        let (code, told) = server(&[&format!("--{setting}"), value]);
        assert_eq!(code, Some(2), "{told}");
        let words = format!("{setting} is about time series");
        assert!(told.contains(&words) && told.contains("--series-resp"), "{told}");
    }
    let file = path(&place, "rules.yml");
    write(&file, "groups: 7\n");
    let (code, told) = server(&["--series-resp", "127.0.0.1:0", "--rules", &file]);
    assert!(code == Some(1) && told.contains("rules.yml"), "{told}");
    assert!(!told.contains("client_invalid_operation"), "{told}");
}
