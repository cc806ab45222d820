//! What a stranger may send: nothing of it makes the program panic, loop, or run out of stack or
//! memory.
//!
//! Depth, length, lists, times at the ends of what a number holds, pieces in any order.
//! `crates/fuzz` goes on from here, with mutations of what is valid.

use super::script::{SECOND, load, now};
use plinth_promql::{
    Answered, Error, Histogram, Labels, Matcher, Memory, NAME, Options, Parts, Sample, Samples,
    Source, Span, functions, instant, parse, range,
};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn memory() -> Memory {
    let mut memory = Memory::default();
    for line in
        [r#"x{a="1"} 0+1x100"#, r#"x{a="2"} 0+2x100"#, r#"y{a="1"} 5 NaN Inf -Inf stale 1x90"#]
    {
        assert!(load(&mut memory, line, 60 * SECOND));
    }
    memory
}

/// The error of an expression at one time.
fn error(expression: &str) -> String {
    match now(instant(&memory(), expression, 600 * SECOND, &Options::default())) {
        Ok(answer) => panic!("{} gave {answer:?}", &expression[..expression.len().min(80)]),
        Err(error) => error.to_string(),
    }
}

#[test]
fn depth_is_refused() {
    for (begin, middle, end) in [
        ("(", "1", ")"),
        ("-", "x", ""),
        ("+", "1", ""),
        ("sum(", "x", ")"),
        ("abs(", "x", ")"),
        ("1 ^ ", "1", ""),
        ("", "x", "[5m:1m]"),
        ("max_over_time((", "x", ")[5m:1m])"),
        ("x > bool ", "1", ""),
        ("", "1", " + 1"),
        ("", "x", " or x"),
        ("(", "", ""),
        ("{a=\"", "", ""),
    ] {
        let expression = format!("{}{middle}{}", begin.repeat(10_000), end.repeat(10_000));
        assert!(parse(&expression).is_err(), "{begin}{middle}{end}");
    }
}

/// As deep and as long as it may be: the stack of a thread, two megabytes, has to be enough without
/// optimisation too.
#[test]
fn the_deepest_expressions_have_a_value() {
    let memory = memory();
    for expression in [
        format!("{}x{}", "(".repeat(63), ")".repeat(63)),
        format!("{}x{}", "abs(".repeat(63), ")".repeat(63)),
        format!("{}x{}", "sum(".repeat(63), ")".repeat(63)),
        format!("{}x{}", "max_over_time(".repeat(63), "[5m:5m])".repeat(63)),
        format!("{}x", "-".repeat(63)),
        format!("x{}", " + x".repeat(149)),
        format!("x{}", " or x".repeat(149)),
        format!("2{}", " ^ 1".repeat(63)),
    ] {
        let answer = now(instant(&memory, &expression, 600 * SECOND, &Options::default()));
        assert!(answer.is_ok(), "{}: {answer:?}", &expression[..20]);
    }
}

#[test]
fn long_lists_in_conditions_are_compared() {
    let names: Vec<String> = (0..20_000).map(|number| format!("name{number}")).collect();
    let memory = memory();
    for expression in [
        format!("x{{a=~\"{}\"}}", names.join("|")),
        format!("x{{a=~\"({}|1)\"}}", names.join("|")),
        format!("{{__name__=~\"{}|x\"}}", names.join("|")),
    ] {
        let answer = now(instant(&memory, &expression, 600 * SECOND, &Options::default()));
        assert!(answer.is_ok(), "{answer:?}");
    }
    // What can only be compiled is bounded.
    for pattern in [
        "(((a{100}){100}){100}){100}",
        "(a|b",
        "\\\\p{Greek}",
        "a{4294967296}",
        "[[:x:]]",
        "(?P<1>a)",
    ] {
        assert!(
            error(&format!("x{{a=~\"{pattern}\"}}")).contains("regular expression"),
            "{pattern}"
        );
    }
    assert!(error(&format!("x{{a=\"{}\"}}", "b".repeat(300_000))).contains("longer than"));
}

#[test]
fn times_and_durations_that_overflow_are_refused_or_reach_nothing() {
    let memory = memory();
    for expression in [
        "x offset 9223372036854775807y",
        "x[99999999999999999999s]",
        "x @ 1e300",
        "x @ Inf",
        "x @ NaN",
        "x offset 1e15",
        "x[1e18]",
        "1e999y",
        "x[0x7fffffffffffffff]",
    ] {
        assert!(parse(expression).is_err(), "{expression}");
    }
    let ends = [i64::MIN, i64::MIN + 1, -1, 0, 600 * SECOND, i64::MAX - 1, i64::MAX];
    for expression in [
        "x offset 292y",
        "x offset -292y",
        "rate(x[292y])",
        "x @ 9199999999",
        "x @ -9199999999",
        "count_over_time(x[290y:290y])",
        "max_over_time(x[5m:1m] offset -292y)",
        "timestamp(x) + time()",
        "year(vector(1e300)) + days_in_month(vector(-1e300))",
        "predict_linear(x[5m], 1e300)",
    ] {
        for end in ends {
            let _ = now(instant(&memory, expression, end, &Options::default()));
            let steps = (end.saturating_sub(9000), end, 1000);
            let _ = now(range(&memory, expression, steps, &Options::default()));
        }
    }
    for steps in [(0, i64::MAX, 1), (i64::MIN, i64::MAX, 1), (0, 10, 0), (10, 0, 1), (0, 10, -1)] {
        assert!(now(range(&memory, "x", steps, &Options::default())).is_err(), "{steps:?}");
    }
}

#[test]
fn what_would_take_too_much_is_refused() {
    let memory = memory();
    let options =
        Options { max_values: 1000, max_window: 50, max_visits: 2000, ..Options::default() };
    let hour = (0, 6000 * SECOND, 6 * SECOND);
    for (expression, named) in [
        ("x", "more than 1000 values"),
        ("x[100m]", "too many"),
        ("sum_over_time(x[90m])", "too many points"),
        ("sum_over_time(x[40m])", "too many points"),
        ("max_over_time(x[10h:1s])", "more than 1000 values"),
        ("count_over_time(vector(1)[290y:1ms])", "more than 1000 values"),
        ("count_values(\"v\", x)", "more than 1000 values"),
        ("x + x + x", "more than 1000 values"),
    ] {
        let answer = match expression {
            "x[100m]" => continue,
            expression => now(range(&memory, expression, hour, &options)),
        };
        let told = answer.expect_err(expression).to_string();
        assert!(told.contains(named), "{expression}: {told}");
    }
    let wide = Options { max_values: 100, ..Options::default() };
    let told = now(instant(&memory, "x[100m]", 6000 * SECOND, &wide))
        .expect_err("points are held")
        .to_string();
    assert!(told.contains("more than 100 values"), "{told}");
}

/// Each function that the parser knows is one that the evaluator knows.
#[test]
fn every_function_has_a_value() {
    use plinth_promql::ast::Type;
    let memory = memory();
    for name in functions::names() {
        let function = functions::find(name).unwrap();
        let argument = |kind: &Type| match (kind, name) {
            (Type::Scalar, _) => "0.5",
            (Type::Vector, _) => "x",
            (Type::Matrix, _) => "x[5m]",
            (Type::String, "label_replace") => "\"a\"",
            (Type::String, _) => "\"b\"",
        };
        let arguments: Vec<&str> = function.takes.iter().map(argument).collect();
        let expression = format!("{name}({})", arguments.join(", "));
        let answer = now(instant(&memory, &expression, 600 * SECOND, &Options::default()));
        assert!(answer.is_ok(), "{expression}: {answer:?}");
        let steps = (0, 6000 * SECOND, 60 * SECOND);
        let answer = now(range(&memory, &expression, steps, &Options::default()));
        assert!(answer.is_ok(), "{expression}: {answer:?}");
    }
}

/// Pieces of expressions in any order: whatever comes of them, it comes.
#[test]
fn nonsense_is_an_error_or_a_value() {
    const PIECES: [&str; 48] = [
        "x",
        "y",
        "(",
        ")",
        "{",
        "}",
        "[5m]",
        "[5m:]",
        "[1m:10s]",
        "offset",
        "5m",
        "-",
        "+",
        "*",
        "/",
        "^",
        "%",
        "==",
        ">",
        "bool",
        "and",
        "or",
        "unless",
        "on",
        "ignoring",
        "group_left",
        "by",
        "without",
        "(a)",
        "sum",
        "topk",
        "rate",
        "abs",
        "1",
        "0x1F",
        "1e3",
        "NaN",
        "\"a\"",
        "'",
        ",",
        "@",
        "start()",
        "end()",
        "a=\"1\"",
        "=~",
        "é",
        "\\",
        "#",
    ];
    let (memory, options) = (memory(), Options::default());
    let mut state = 7_u64;
    let mut values = 0;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..state % 9 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push_str(PIECES[(state >> 33) as usize % PIECES.len()]);
            text.push_str(if state >> 62 == 0 { "" } else { " " });
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        values += usize::from(now(instant(&memory, &text, 600 * SECOND, &options)).is_ok());
        let _ = now(range(&memory, &text, (0, 600 * SECOND, 60 * SECOND), &options));
    }
    assert!(values > 100, "only {values} of them had a value");
}

/// A histogram with many buckets, so far apart that none of them is in another's span.
fn large(buckets: i32) -> Arc<Histogram> {
    let spans =
        (0..buckets).map(|place| Span { offset: if place == 0 { -9000 } else { 1 }, length: 1 });
    let parts = Parts {
        schema: 8,
        count: f64::from(buckets),
        positive_spans: spans.collect(),
        positive: vec![1.0; buckets as usize],
        ..Parts::default()
    };
    Arc::new(Histogram::new(parts).unwrap())
}

/// A histogram counts as what it holds: in windows, in columns, in what operators make of two.
#[test]
fn histograms_are_counted_as_what_they_hold() {
    let mut memory = Memory::default();
    let name = |name: &str, i: &str| [(NAME, name), ("i", i)].into_iter().collect::<Labels>();
    for minute in 0..100 {
        let at = minute * 60 * SECOND;
        memory.add_histogram(&name("h", ""), at, large(1000));
        for i in ["1", "2", "3", "4", "5", "6", "7", "8"] {
            memory.add_histogram(&name("s", i), at, large(1));
        }
    }
    let options = Options { max_values: 400_000, max_window: 10_000, ..Options::default() };
    let ask = |text: &str, step: i64| {
        let steps = (0, 6000 * SECOND, step * SECOND);
        match now(range(&memory, text, steps, &options)) {
            Ok(_) => "fine".to_string(),
            Err(error) => error.to_string(),
        }
    };
    for (expression, wanted) in [
        ("h", "fine"),
        ("h @ 60", "fine"),
        ("rate(h[3m])", "fine"),
        ("histogram_count(h) + histogram_count(h) + histogram_count(h)", "fine"),
        ("histogram_count(rate(h[50m]))", "fine"),
        ("h + h", "more than 400000 values"),
        ("(h * 1) and (h * 2)", "more than 400000 values"),
        ("rate(h[50m])", "too many points"),
        ("s + on() group_left() h", "more than 400000 values"),
        ("max_over_time((h * 1)[50m:1m])", "more than 400000 values"),
    ] {
        let found = ask(expression, 60);
        assert!(found.contains(wanted), "{expression}: {found}");
    }
    // One that is there at all steps is held once, but not what is made of it.
    for (expression, wanted) in [
        ("-(h @ 60)", "fine"),
        ("h @ 60 == h @ 60", "fine"),
        ("h @ 60 * 2", "more than 400000 values"),
        ("sum(h @ 60)", "more than 400000 values"),
        ("h @ 60 + h @ 60", "more than 400000 values"),
    ] {
        let found = ask(expression, 10);
        assert!(found.contains(wanted), "{expression}: {found}");
    }
}

/// Any float may be stored, those that are marks here too: none of them is taken for a histogram.
#[test]
fn a_float_with_the_bits_of_a_mark_is_a_float() {
    let mut memory = Memory::default();
    let labels: Labels = [(NAME, "x")].into_iter().collect();
    memory.add(&labels, 0, f64::from_bits(plinth_promql::HISTOGRAM));
    memory.add_histogram(&labels, 60 * SECOND, large(1));
    memory.add(&labels, 120 * SECOND, f64::from_bits(plinth_promql::HISTOGRAM));
    for expression in ["x", "last_over_time(x[5m])", "x[5m]", "changes(x[5m])", "x == bool x", "-x"]
    {
        let answer = now(instant(&memory, expression, 120 * SECOND, &Options::default())).unwrap();
        let floats = match &answer.value {
            Answered::Vector(series) => {
                usize::from(series.iter().all(|(_, value)| value.float().is_some()))
            }
            Answered::Matrix(rows) => rows[0].samples.len() - rows[0].histograms.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(floats, 1, "{expression}: {answer:?}");
    }
}

/// A series with a point each millisecond, and how many of them were held at a time.
#[derive(Default)]
struct Endless {
    held: Arc<AtomicUsize>,
}

struct Points {
    time: i64,
    until: i64,
    held: Arc<AtomicUsize>,
}

impl Source for Endless {
    type Series = ();
    type Samples = Points;
    type Error = Infallible;

    async fn find(&self, _: &[Matcher]) -> Result<Vec<(Labels, ())>, Error<Infallible>> {
        Ok(vec![([(NAME, "x_total")].into_iter().collect(), ())])
    }

    async fn read(&self, (): &(), after: i64, until: i64) -> Result<Points, Infallible> {
        Ok(Points { time: after, until, held: self.held.clone() })
    }

    async fn pause(&self) -> Result<(), Error<Infallible>> {
        Ok(())
    }
}

impl Samples for Points {
    type Error = Infallible;

    async fn more(&mut self, samples: &mut Vec<Sample>) -> Result<bool, Infallible> {
        let before = samples.len();
        while samples.len() < before + 1000 && self.time + SECOND / 1000 <= self.until {
            self.time += SECOND / 1000;
            samples.push((self.time, 1.0));
        }
        self.held.fetch_max(samples.len(), Ordering::Relaxed);
        Ok(samples.len() > before)
    }
}

/// Windows were counted once they were whole: one of an hour of milliseconds was held whole before
/// it was refused.
#[test]
fn points_are_counted_while_they_are_read() {
    for (expression, lookback, most) in
        [("rate(x_total[1h])", 300 * SECOND, 11_000), ("x_total", 1_000_000 * SECOND / 1000, 2001)]
    {
        let source = Endless::default();
        let options = Options { max_window: 10_000, lookback, ..Options::default() };
        let answer = now(instant(&source, expression, 1_000_000_000 * SECOND, &options));
        let held = source.held.load(Ordering::Relaxed);
        assert!((1000..=most).contains(&held), "{expression}: {held} points at a time");
        match answer {
            Ok(answer) => {
                assert!(matches!(answer.value, Answered::Vector(series) if series.len() == 1))
            }
            Err(error) => assert!(error.to_string().contains("too many points"), "{error}"),
        }
    }
}
