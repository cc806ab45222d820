//! Prometheus' own test files, evaluated: how many of their cases pass.
//!
//! `cargo run -p plinth-promql --example promqltest -- DIR` reads all `*.test` of
//! `promql/promqltest/testdata` of a copy of Prometheus' sources, and prints how many cases of each
//! passed, failed, and ask for what isn't here, which is experimental; and which fail as they have
//! to, in other words. With `--tell` behind it each that failed is printed.
//! The exit code is 1 if any did. Nothing of these files lies in this repository, so this is no
//! test.
#![expect(
    clippy::disallowed_methods,
    reason = "reads files of another project, which no simulation has"
)]

#[path = "../tests/script/mod.rs"]
#[expect(dead_code, reason = "tests load series in another way")]
mod script;
#[path = "promqltest/store.rs"]
mod store;

use plinth_promql::{Answer, Answered, Labels, Memory, Options, Row, Value};
use script::{Point, SECOND, is_near, labels, now, points, time, values};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Words of what isn't here, and of whose expressions some are refused.
const EXPERIMENTAL: [&str; 13] = [
    "info(",
    "fill(",
    "fill_left(",
    "fill_right(",
    "anchored",
    "smoothed",
    "histogram_quantiles",
    "max_of",
    "min_of",
    "step()",
    "range()",
    "start()",
    "end()",
];
const EXPERIMENTAL_FILES: [&str; 4] =
    ["duration_expression", "extended_vectors", "fill-modifier", "info"];
/// Words and files about what isn't here of series, and not of expressions, which are understood.
const OF_SERIES: [&str; 2] = ["__type__", "@st"];
const FILES_OF_SERIES: [&str; 2] = ["start_timestamps", "type_and_unit"];

/// What a case is told to be that fails as it has to, in other words than Prometheus'.
const OTHERWISE: &str = "other words: ";

#[derive(Default, Debug)]
struct Counts {
    passed: usize,
    failed: usize,
    experimental: usize,
    otherwise: usize,
}

/// What has to be told, if that matters.
#[derive(Default, Debug)]
struct Told {
    is_any: Option<bool>,
    /// All of them: each is one of these, and each of these is one of them.
    messages: Vec<String>,
    patterns: Vec<plinth_promql::Pattern>,
}

/// What an error's text has to have in it, and what it has to match.
#[derive(Default, Debug)]
struct Wording {
    message: Option<String>,
    pattern: Option<plinth_promql::Pattern>,
}

/// A pattern that is somewhere in a text.
fn compiled(pattern: &str) -> plinth_promql::Pattern {
    let pattern = plinth_promql::compiled(pattern.trim(), 1 << 20);
    pattern.expect("a file has patterns that can be read")
}

impl Told {
    fn expect(&mut self, rest: &str) {
        self.is_any = Some(true);
        if let Some((_, message)) = rest.split_once("msg:") {
            self.messages.push(message.trim().to_string());
        } else if let Some((_, pattern)) = rest.split_once("regex:") {
            self.patterns.push(compiled(pattern));
        }
    }

    fn is_it(&self, found: &[String]) -> bool {
        let fits = |text: &String| {
            self.messages.contains(text) || self.patterns.iter().any(|one| one.is_match(text))
        };
        let is_free = self.messages.is_empty() && self.patterns.is_empty();
        self.is_any.is_none_or(|is_any| is_any != found.is_empty())
            && (is_free || found.iter().all(fits))
            && self.messages.iter().all(|message| found.contains(message))
            && self.patterns.iter().all(|one| found.iter().any(|text| one.is_match(text)))
    }
}

/// One `eval` with what has to come of it.
#[derive(Debug)]
struct Case {
    line: usize,
    expression: String,
    first: i64,
    range: Option<(i64, i64)>,
    fails: bool,
    error: Wording,
    ordered: bool,
    warns: Told,
    informs: Told,
    string: Option<String>,
    points: Option<(i64, i64)>,
    lines: Vec<String>,
}

fn case(line: usize, head: &str) -> Option<Case> {
    let (word, rest) = head.split_once(char::is_whitespace)?;
    let mut rest = rest.trim();
    let mut next = || {
        let (word, after) = rest.split_once(char::is_whitespace)?;
        rest = after.trim();
        Some(word)
    };
    let (first, range) = match next()? {
        "instant" => {
            next()?;
            (time(next()?)?, None)
        }
        _ => {
            next()?;
            let first = time(next()?)?;
            next()?;
            let last = time(next()?)?;
            next()?;
            (first, Some((last, time(next()?)?)))
        }
    };
    let told = |is: bool| Told { is_any: is.then_some(true), ..Told::default() };
    Some(Case {
        line,
        expression: rest.to_string(),
        first,
        range,
        fails: word == "eval_fail",
        error: Wording::default(),
        ordered: word == "eval_ordered",
        warns: told(word == "eval_warn"),
        informs: told(word == "eval_info"),
        string: None,
        points: None,
        lines: Vec::new(),
    })
}

impl Case {
    fn expect(&mut self, line: &str) {
        let rest = line.strip_prefix("expect ").unwrap_or_default();
        match rest.split_whitespace().next() {
            Some("fail") => {
                self.fails = true;
                if let Some((_, message)) = rest.split_once("msg:") {
                    self.error.message = Some(message.trim().to_string());
                } else if let Some((_, pattern)) = rest.split_once("regex:") {
                    self.error.pattern = Some(compiled(pattern));
                }
            }
            Some("warn") => self.warns.expect(rest),
            Some("no_warn") => self.warns.is_any = Some(false),
            Some("info") => self.informs.expect(rest),
            Some("no_info") => self.informs.is_any = Some(false),
            Some("ordered") => self.ordered = true,
            Some("string") => {
                let text = plinth_promql::parse(rest["string".len()..].trim());
                if let Ok(plinth_promql::ast::Expr::String(text)) = text.map(|node| node.expr) {
                    self.string = Some(text);
                }
            }
            Some("range") => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let known = |word: &str| time(word).expect("a range has times");
                self.points = Some((known(words[3]), known(words[7])));
            }
            _ => match line.split_once(char::is_whitespace) {
                Some(("expected_fail_message", text)) => {
                    self.error.message = Some(text.trim().to_string());
                }
                Some(("expected_fail_regexp", pattern)) => {
                    self.error.pattern = Some(compiled(pattern))
                }
                _ => self.lines.push(line.to_string()),
            },
        }
    }

    fn answer(&self, memory: &Memory) -> Result<Answer, String> {
        let options = Options { late_names: true, ..Options::default() };
        let answer = match self.range {
            None => now(plinth_promql::instant(memory, &self.expression, self.first, &options)),
            Some((last, step)) => now(plinth_promql::range(
                memory,
                &self.expression,
                (self.first, last, step),
                &options,
            )),
        };
        answer.map_err(|error| error.to_string())
    }

    /// What is wrong with the answer.
    fn wrong(&self, memory: &Memory) -> Option<String> {
        let answer = match self.answer(memory) {
            Err(found) if self.fails => {
                let is_it = self.error.message.as_ref().is_none_or(|wanted| found.contains(wanted))
                    && self.error.pattern.as_ref().is_none_or(|wanted| wanted.is_match(&found));
                let wanted = (&self.error.message, &self.error.pattern);
                return (!is_it).then(|| format!("{OTHERWISE}{found} instead of {wanted:?}"));
            }
            Err(found) => return Some(found),
            Ok(answer) if self.fails => return Some(format!("{answer:?} instead of an error")),
            Ok(answer) => answer,
        };
        for (wanted, found) in [(&self.warns, &answer.warnings), (&self.informs, &answer.infos)] {
            if !wanted.is_it(found) {
                return Some(format!("told: {found:?} instead of {wanted:?}"));
            }
        }
        self.compare(&answer.value)
    }

    fn compare(&self, found: &Answered) -> Option<String> {
        let wrong = || Some(format!("{found:?}"));
        match found {
            Answered::String(text) => {
                if self.string.as_ref() == Some(text) {
                    None
                } else {
                    wrong()
                }
            }
            Answered::Scalar(number) => {
                let wanted = self.lines.first().and_then(|line| values(line)?.first().copied()?);
                if wanted.is_some_and(|wanted| is_near(wanted, *number)) { None } else { wrong() }
            }
            Answered::Vector(found) => self.compare_vector(found.clone()),
            Answered::Matrix(rows) => self.compare_rows(rows),
        }
    }

    /// The lines that are wanted.
    fn rows(&self) -> Option<Vec<(Labels, Vec<Point>)>> {
        let line = |line: &String| {
            let (labels, rest) = labels(line)?;
            Some((labels, points(rest)?))
        };
        self.lines.iter().map(line).collect()
    }

    fn compare_vector(&self, mut found: Vec<(Labels, Value)>) -> Option<String> {
        let Some(mut wanted) = self.rows() else {
            return Some("a line isn't understood".to_string());
        };
        if !self.ordered {
            found.sort_by(|a, b| a.0.cmp(&b.0));
            wanted.sort_by(|a, b| a.0.cmp(&b.0));
        }
        let is_same = found.len() == wanted.len()
            && found.iter().zip(&wanted).all(|(found, (labels, wanted))| {
                found.0 == *labels && wanted.len() == 1 && wanted[0].is(&found.1)
            });
        if is_same { None } else { Some(format!("{found:?}")) }
    }

    fn compare_rows(&self, rows: &[Row]) -> Option<String> {
        let (first, step) = match (self.range, self.points) {
            (Some((_, step)), _) => (self.first, step),
            (None, points) => points.unwrap_or((0, SECOND)),
        };
        let Some(mut wanted) = self.rows() else {
            return Some("a line isn't understood".to_string());
        };
        wanted.sort_by(|a, b| a.0.cmp(&b.0));
        let is_row = |row: &Row, (labels, points): &(Labels, Vec<Point>)| {
            let points = points.iter().filter(|point| !matches!(point, Point::Left));
            let count = row.samples.len() + row.histograms.len();
            row.labels == *labels && points.count() == count
        };
        let are_points = |row: &Row, points: &[Point]| {
            points.iter().enumerate().all(|(place, point)| {
                let time = first + step * place as i64;
                let float = row.samples.iter().find(|(at, _)| *at == time);
                let histogram = row.histograms.iter().find(|(at, _)| *at == time);
                match (float, histogram) {
                    (Some((_, value)), None) => point.is(&Value::Float(*value)),
                    (None, Some((_, one))) => point.is(&Value::Histogram(one.clone())),
                    (None, None) => matches!(point, Point::Left),
                    _ => false,
                }
            })
        };
        let is_same = rows.len() == wanted.len()
            && rows.iter().zip(&wanted).all(|(a, b)| is_row(a, b) && are_points(a, &b.1));
        if is_same { None } else { Some(format!("{rows:?}")) }
    }
}

fn run(name: &str, text: &str, tell: bool) -> Counts {
    let (mut counts, mut loaded) = (Counts::default(), store::Store::default());
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_end = |line: &str| line.is_empty() || line.starts_with('#');
    let mut place = 0;
    while place < lines.len() {
        let (head, begin) = (lines[place], place);
        place += 1;
        if is_end(head) {
            continue;
        }
        let body =
            lines[place..].iter().take_while(|line| !is_end(line)).copied().collect::<Vec<&str>>();
        if head == "clear" {
            loaded = store::Store::default();
        } else if head.starts_with("load") {
            place += body.len();
            let step =
                time(head.split_whitespace().nth(1).expect("a case is read with what it wants"))
                    .expect("a case is read with what it wants");
            let is_nhcb = head.starts_with("load_with_nhcb");
            for line in loaded.load(&body, step, is_nhcb) {
                println!("{name}:{}: not understood: {line}", begin + 1);
            }
        } else if let Some(mut case) = case(begin + 1, head) {
            place += body.len();
            body.into_iter().for_each(|line| case.expect(line));
            judge(name, &case, &loaded.memory, &mut counts, tell);
        } else {
            println!("{name}:{}: not understood: {head}", begin + 1);
            counts.failed += 1;
        }
    }
    counts
}

/// Whether a case that fails is about what isn't here: what is understood has to come to what it
/// means, whatever stands in it.
fn is_experimental(name: &str, expression: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| expression.contains(word));
    let is_refused = || plinth_promql::parse(expression).is_err();
    FILES_OF_SERIES.contains(&name)
        || has(&OF_SERIES)
        || (EXPERIMENTAL_FILES.contains(&name) || has(&EXPERIMENTAL)) && is_refused()
}

fn judge(name: &str, case: &Case, memory: &Memory, counts: &mut Counts, tell: bool) {
    let Some(why) = case.wrong(memory) else {
        counts.passed += 1;
        return;
    };
    let is_experimental = is_experimental(name, &case.expression);
    match () {
        () if is_experimental => counts.experimental += 1,
        () if why.starts_with(OTHERWISE) => counts.otherwise += 1,
        () => counts.failed += 1,
    }
    if tell && !is_experimental {
        println!(
            "{name}:{}: {}\n    wanted {:?}\n    {why}",
            case.line, case.expression, case.lines
        );
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tell = arguments.iter().any(|argument| argument == "--tell");
    let Some(directory) = arguments.iter().find(|argument| *argument != "--tell") else {
        eprintln!("the directory of Prometheus' test files is wanted");
        return ExitCode::from(2);
    };
    let mut all = BTreeMap::new();
    let entries = std::fs::read_dir(directory).expect("the directory that was named can be read");
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|end| end == "test") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a file that is listed can be read");
            all.insert(name.clone(), run(&name, &text, tell));
        }
    }
    println!("{:24} passed failed experimental otherwise worded", "file");
    for (name, counts) in &all {
        let Counts { passed, failed, experimental, otherwise } = counts;
        println!("{name:24} {passed:6} {failed:6} {experimental:12} {otherwise:16}");
    }
    let failed: usize = all.values().map(|counts| counts.failed).sum();
    if failed > 0 || all.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
