//! Prometheus' own test files, evaluated: how many of their cases pass.
//!
//! `cargo run -p plinth-promql --example promqltest -- DIR` reads all `*.test` of
//! `promql/promqltest/testdata` of a copy of Prometheus' sources, and prints how many cases of each
//! passed, failed, and ask for what isn't here: native histograms and what is experimental; and
//! which fail as they have to, in other words. With `--tell` behind it each that failed is printed.
//! The exit code is 1 if any did. Nothing of these files lies in this repository, so this is no
//! test.
#![expect(
    clippy::disallowed_methods,
    reason = "reads files of another project, which no simulation has"
)]

#[path = "../tests/script/mod.rs"]
mod script;

use plinth_promql::ast::Expr;
use plinth_promql::{Answer, Answered, Labels, Memory, Options};
use script::{SECOND, is_near, labels, now, time, values};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// What a case is about that isn't here, as words of its expression.
const EXPERIMENTAL: [&str; 18] = [
    "limit_ratio",
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
    "</",
    ">/",
    "__type__",
    "@st",
];
const EXPERIMENTAL_FILES: [&str; 6] = [
    "duration_expression",
    "extended_vectors",
    "fill-modifier",
    "info",
    "start_timestamps",
    "type_and_unit",
];

/// What a case is told to be that fails as it has to, in other words than Prometheus'.
const OTHERWISE: &str = "other words: ";

#[derive(Default, Debug)]
struct Counts {
    passed: usize,
    failed: usize,
    native: usize,
    experimental: usize,
    otherwise: usize,
}

/// One `eval` with what has to come of it.
#[derive(Debug)]
struct Case {
    line: usize,
    expression: String,
    first: i64,
    range: Option<(i64, i64)>,
    fails: bool,
    message: Option<String>,
    ordered: bool,
    warns: Option<bool>,
    informs: Option<bool>,
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
    Some(Case {
        line,
        expression: rest.to_string(),
        first,
        range,
        fails: word == "eval_fail",
        message: None,
        ordered: word == "eval_ordered",
        warns: (word == "eval_warn").then_some(true),
        informs: (word == "eval_info").then_some(true),
        string: None,
        points: None,
        lines: Vec::new(),
    })
}

impl Case {
    fn expect(&mut self, line: &str) {
        let rest = line.strip_prefix("expect ").unwrap_or_default();
        let message =
            |text: &str| text.split_once(':').map(|(_, message)| message.trim().to_string());
        match rest.split_whitespace().next() {
            Some("fail") => {
                (self.fails, self.message) =
                    (true, rest.contains("msg:").then(|| message(rest)).flatten())
            }
            Some("warn") => self.warns = Some(true),
            Some("no_warn") => self.warns = Some(false),
            Some("info") => self.informs = Some(true),
            Some("no_info") => self.informs = Some(false),
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
            _ => match line.strip_prefix("expected_fail_message") {
                Some(text) => self.message = Some(text.trim().to_string()),
                None if line.starts_with("expected_fail_regexp") => {}
                None => self.lines.push(line.to_string()),
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
            Err(_) if self.fails && self.message.is_none() => return None,
            Err(found) if self.fails => {
                let wanted = self.message.clone().unwrap_or_default();
                return (!found.contains(&wanted))
                    .then(|| format!("{OTHERWISE}{found} instead of {wanted}"));
            }
            Err(found) => return Some(found),
            Ok(answer) if self.fails => return Some(format!("{answer:?} instead of an error")),
            Ok(answer) => answer,
        };
        for (wanted, found) in [(self.warns, &answer.warnings), (self.informs, &answer.infos)] {
            if wanted.is_some_and(|wanted| wanted == found.is_empty()) {
                return Some(format!("told: {found:?}"));
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
            Answered::Vector(found) => {
                let line = |line: &String| {
                    let (labels, rest) = labels(line)?;
                    Some((labels, values(rest)?.first().copied()??))
                };
                let Some(mut wanted) = self.lines.iter().map(line).collect::<Option<Vec<_>>>()
                else {
                    return Some("a line isn't understood".to_string());
                };
                let mut found: Vec<(Labels, f64)> = found.clone();
                if !self.ordered {
                    found.sort_by(|a, b| a.0.cmp(&b.0));
                    wanted.sort_by(|a, b| a.0.cmp(&b.0));
                }
                let is_same = found.len() == wanted.len()
                    && found.iter().zip(&wanted).all(|(a, b)| a.0 == b.0 && is_near(a.1, b.1));
                if is_same { None } else { wrong() }
            }
            Answered::Matrix(rows) => {
                let (first, step) = match (self.range, self.points) {
                    (Some((_, step)), _) => (self.first, step),
                    (None, points) => points.unwrap_or((0, SECOND)),
                };
                let line = |line: &String| {
                    let (labels, rest) = labels(line)?;
                    let points = values(rest)?.into_iter().enumerate();
                    let point = |(place, value): (usize, Option<f64>)| {
                        Some((first + step * place as i64, value?))
                    };
                    Some((labels, points.filter_map(point).collect::<Vec<_>>()))
                };
                let Some(mut wanted) = self.lines.iter().map(line).collect::<Option<Vec<_>>>()
                else {
                    return Some("a line isn't understood".to_string());
                };
                wanted.sort_by(|a, b| a.0.cmp(&b.0));
                let same = |a: &[(i64, f64)], b: &[(i64, f64)]| {
                    a.len() == b.len()
                        && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && is_near(a.1, b.1))
                };
                let is_same = rows.len() == wanted.len()
                    && rows.iter().zip(&wanted).all(|(a, b)| a.0 == b.0 && same(&a.1, &b.1));
                if is_same { None } else { wrong() }
            }
        }
    }
}

/// Series, and the labels of those that are histograms.
#[derive(Default)]
struct Loaded {
    memory: Memory,
    native: Vec<Labels>,
}

impl Loaded {
    fn line(&mut self, line: &str, step: i64, is_nhcb: bool) {
        let (line, is_float) = (&without_histograms(line), !line.contains("{{"));
        script::load(&mut self.memory, line, step);
        let Some((labels, _)) = labels(line) else { return };
        let metric = labels.metric().strip_suffix("_bucket").filter(|_| is_nhcb);
        match metric {
            // Prometheus makes a histogram of such buckets as well.
            Some(metric) => self.native.push(labels.with("le", "").with("__name__", metric)),
            None if !is_float => self.native.push(labels),
            None => {}
        }
    }

    /// Whether an expression asks for histograms.
    fn asks_for_native(&self, expression: &str) -> bool {
        let mut waiting: Vec<_> = plinth_promql::parse(expression).into_iter().collect();
        while let Some(node) = waiting.pop() {
            match node.expr {
                Expr::Vector(selector) | Expr::Matrix(selector, _) => {
                    let fits = |labels: &Labels| {
                        selector.matchers.iter().all(|m| m.matches(labels.get(&m.label)))
                    };
                    if self.native.iter().any(fits) {
                        return true;
                    }
                }
                Expr::Subquery(subquery) => waiting.push(*subquery.inner),
                Expr::Call(_, arguments) => waiting.extend(arguments),
                Expr::Aggregate(aggregate) => {
                    waiting.extend(
                        [*aggregate.inner].into_iter().chain(aggregate.param.map(|param| *param)),
                    );
                }
                Expr::Binary(binary) => waiting.extend([*binary.left, *binary.right]),
                Expr::Negative(inner) | Expr::Positive(inner) => waiting.push(*inner),
                Expr::Number(_) | Expr::String(_) => {}
            }
        }
        false
    }
}

/// A line of values with none where there are histograms.
fn without_histograms(line: &str) -> String {
    let (mut plain, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("{{") {
        let behind = after.split_once("}}").map_or("", |(_, behind)| behind);
        let digits = behind.strip_prefix('x').unwrap_or_default();
        let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
        plain.push_str(before.trim_end_matches(['+', '-']));
        // So often again, and the first.
        match digits.parse::<usize>() {
            Ok(times) => plain.push_str(&format!(" _x{}", times + 1)),
            Err(_) => plain.push_str(" _"),
        }
        rest = if digits.is_empty() { behind } else { &behind[1 + digits.len()..] };
    }
    // What is added to a histogram goes with it.
    plain + rest
}

fn run(name: &str, text: &str, tell: bool) -> Counts {
    let (mut counts, mut loaded) = (Counts::default(), Loaded::default());
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
            loaded = Loaded::default();
        } else if head.starts_with("load") {
            place += body.len();
            let step =
                time(head.split_whitespace().nth(1).expect("a case is read with what it wants"))
                    .expect("a case is read with what it wants");
            let is_nhcb = head.starts_with("load_with_nhcb");
            body.into_iter().for_each(|line| loaded.line(line, step, is_nhcb));
        } else if let Some(mut case) = case(begin + 1, head) {
            place += body.len();
            body.into_iter().for_each(|line| case.expect(line));
            judge(name, &case, &loaded, &mut counts, tell);
        } else {
            println!("{name}:{}: not understood: {head}", begin + 1);
            counts.failed += 1;
        }
    }
    counts
}

fn judge(name: &str, case: &Case, loaded: &Loaded, counts: &mut Counts, tell: bool) {
    let Some(why) = case.wrong(&loaded.memory) else {
        counts.passed += 1;
        return;
    };
    let is_native = case.lines.iter().any(|line| line.contains("{{"))
        || loaded.asks_for_native(&case.expression);
    let is_experimental = EXPERIMENTAL_FILES.contains(&name)
        || EXPERIMENTAL.iter().any(|word| case.expression.contains(word));
    match () {
        () if is_native => {
            counts.native += 1;
            if tell && !case.lines.iter().any(|line| line.contains("{{")) {
                println!(
                    "native {name}:{}: {}\n    wanted {:?}\n    {why}",
                    case.line, case.expression, case.lines
                );
            }
        }
        () if is_experimental => counts.experimental += 1,
        () => {
            match why.starts_with(OTHERWISE) {
                true => counts.otherwise += 1,
                false => counts.failed += 1,
            }
            if tell {
                println!(
                    "{name}:{}: {}\n    wanted {:?}\n    {why}",
                    case.line, case.expression, case.lines
                );
            }
        }
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
    println!("{:24} passed failed native experimental otherwise worded", "file");
    for (name, counts) in &all {
        let Counts { passed, failed, native, experimental, otherwise } = counts;
        println!("{name:24} {passed:6} {failed:6} {native:6} {experimental:12} {otherwise:16}");
    }
    let failed: usize = all.values().map(|counts| counts.failed).sum();
    if failed > 0 || all.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
