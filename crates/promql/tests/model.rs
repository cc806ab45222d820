//! Random expressions over random series against a naive evaluator: one step at a time, by
//! comparing everything with everything.
//!
//! The model has maps of labels and the definitions of Prometheus' manual, no columns and no
//! signatures. Where it finds an error at any step, the range has to end with one. Seed and
//! expression are in each message.

use super::script::{SECOND, is_near, now};
use plinth_promql::{Answered, Labels, Memory, Options, range};
use std::collections::BTreeMap;

type Set = BTreeMap<String, String>;
type Vector = Vec<(Set, f64)>;
type Points = BTreeMap<Set, BTreeMap<i64, f64>>;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// An expression that the model knows.
enum Expr {
    Select {
        metric: &'static str,
        value: Option<&'static str>,
        offset: i64,
        over: Option<&'static str>,
    },
    Aggregate {
        op: &'static str,
        without: bool,
        labels: Vec<&'static str>,
        inner: Box<Self>,
    },
    Number {
        op: &'static str,
        bool: bool,
        number: f64,
        swapped: bool,
        inner: Box<Self>,
    },
    Meet {
        op: &'static str,
        bool: bool,
        on: Option<bool>,
        labels: Vec<&'static str>,
        both: Box<(Self, Self)>,
    },
}

const ARITHMETIC: [&str; 4] = ["+", "-", "*", "/"];
const COMPARISONS: [&str; 6] = ["==", "!=", ">", "<", ">=", "<="];
const SETS: [&str; 3] = ["and", "or", "unless"];
const RANGE: i64 = 90;

impl Expr {
    fn random(random: &mut Random, depth: u64) -> Self {
        let inner = |random: &mut Random| Box::new(Self::random(random, depth - 1));
        let labels = |random: &mut Random| {
            ["a", "b", "__name__"].into_iter().filter(|_| random.below(3) == 0).collect::<Vec<_>>()
        };
        match if depth == 0 { 0 } else { random.below(5) } {
            0 => Self::Select {
                metric: random.pick(&["x", "y"]),
                value: (random.below(2) == 0).then(|| random.pick(&["1", "2", ""])),
                offset: random.pick(&[0, 0, 30, -30]),
                over: (random.below(2) == 0).then(|| {
                    random.pick(&[
                        "sum_over_time",
                        "max_over_time",
                        "count_over_time",
                        "last_over_time",
                    ])
                }),
            },
            1 => Self::Aggregate {
                op: random.pick(&["sum", "min", "max", "count", "avg", "group"]),
                without: random.below(2) == 0,
                labels: labels(random),
                inner: inner(random),
            },
            2 => {
                let op = random.pick(&[ARITHMETIC.as_slice(), &COMPARISONS].concat());
                let bool = COMPARISONS.contains(&op) && random.below(2) == 0;
                let (number, swapped) = (random.pick(&[0.0, 1.0, 2.5]), random.below(2) == 0);
                Self::Number { op, bool, number, swapped, inner: inner(random) }
            }
            _ => {
                let op = random.pick(&[ARITHMETIC.as_slice(), &COMPARISONS, &SETS].concat());
                let bool = COMPARISONS.contains(&op) && random.below(2) == 0;
                let on = random.pick(&[None, Some(true), Some(false)]);
                let labels = if on.is_some() { labels(random) } else { Vec::new() };
                Self::Meet {
                    op,
                    bool,
                    on,
                    labels,
                    both: Box::new((*inner(random), *inner(random))),
                }
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Select { metric, value, offset, over } => {
                let value = value.map_or(String::new(), |value| format!("{{a=\"{value}\"}}"));
                let offset =
                    if *offset == 0 { String::new() } else { format!(" offset {offset}s") };
                match over {
                    Some(over) => format!("{over}({metric}{value}[{RANGE}s]{offset})"),
                    None => format!("{metric}{value}{offset}"),
                }
            }
            Self::Aggregate { op, without, labels, inner } => {
                let word = if *without { "without" } else { "by" };
                format!("{op} {word} ({}) ({})", labels.join(", "), inner.text())
            }
            Self::Number { op, bool, number, swapped, inner } => {
                let bool = if *bool { "bool " } else { "" };
                match swapped {
                    true => format!("({number} {op} {bool}({}))", inner.text()),
                    false => format!("(({}) {op} {bool}{number})", inner.text()),
                }
            }
            Self::Meet { op, bool, on, labels, both } => {
                let bool = if *bool { "bool " } else { "" };
                let on = match on {
                    None => String::new(),
                    Some(true) => format!("on ({}) ", labels.join(", ")),
                    Some(false) => format!("ignoring ({}) ", labels.join(", ")),
                };
                format!("({} {op} {bool}{on}{})", both.0.text(), both.1.text())
            }
        }
    }

    fn value(&self, points: &Points, at: i64) -> Result<Vector, ()> {
        let found = match self {
            Self::Select { metric, value, offset, over } => {
                let fits = |set: &Set| {
                    set["__name__"] == *metric
                        && value
                            .is_none_or(|value| set.get("a").map_or("", String::as_str) == value)
                };
                let of = |(set, points): (&Set, &BTreeMap<i64, f64>)| {
                    let end = (at - offset) * SECOND;
                    let back = if over.is_some() { RANGE } else { 300 } * SECOND;
                    let seen: Vec<f64> =
                        points.range(end - back + 1..=end).map(|(_, value)| *value).collect();
                    let last = *seen.last()?;
                    let (set, value) = match *over {
                        Some("sum_over_time") => (without_name(set), seen.iter().sum()),
                        Some("count_over_time") => (without_name(set), seen.len() as f64),
                        Some("max_over_time") => {
                            (without_name(set), seen.into_iter().fold(f64::MIN, f64::max))
                        }
                        _ => (set.clone(), last),
                    };
                    Some((set, value))
                };
                points.iter().filter(|(set, _)| fits(set)).filter_map(of).collect()
            }
            Self::Aggregate { op, without, labels, inner } => {
                let mut groups: BTreeMap<Set, Vec<f64>> = BTreeMap::new();
                for (mut set, value) in inner.value(points, at)? {
                    set.retain(|label, _| {
                        labels.contains(&label.as_str()) != *without
                            && !(*without && label == "__name__")
                    });
                    groups.entry(set).or_default().push(value);
                }
                groups.into_iter().map(|(set, values)| (set, together(op, &values))).collect()
            }
            Self::Number { op, bool, number, swapped, inner } => {
                let of = |(set, value): (Set, f64)| {
                    let (a, b) = if *swapped { (*number, value) } else { (value, *number) };
                    match compared(op, a, b) {
                        None => Some((without_name(&set), computed(op, a, b))),
                        Some(holds) if *bool => {
                            Some((without_name(&set), f64::from(u8::from(holds))))
                        }
                        Some(holds) => holds.then_some((set, value)),
                    }
                };
                inner.value(points, at)?.into_iter().filter_map(of).collect()
            }
            Self::Meet { op, bool, on, labels, both } => {
                let (left, right) = (both.0.value(points, at)?, both.1.value(points, at)?);
                meet(op, *bool, &|set| signature(set, *on, labels), *on, labels, (left, right))?
            }
        };
        unique(found)
    }
}

fn without_name(set: &Set) -> Set {
    let mut set = set.clone();
    set.remove("__name__");
    set
}

fn signature(set: &Set, on: Option<bool>, labels: &[&str]) -> Set {
    let mut set = set.clone();
    let listed = |label: &String| labels.contains(&label.as_str());
    set.retain(|label, _| match on {
        Some(true) => listed(label),
        _ => label != "__name__" && !listed(label),
    });
    set
}

fn unique(vector: Vector) -> Result<Vector, ()> {
    let sets: std::collections::BTreeSet<&Set> = vector.iter().map(|(set, _)| set).collect();
    if sets.len() == vector.len() { Ok(vector) } else { Err(()) }
}

fn together(op: &str, values: &[f64]) -> f64 {
    match op {
        "sum" => values.iter().sum(),
        "avg" => values.iter().sum::<f64>() / values.len() as f64,
        "count" => values.len() as f64,
        "group" => 1.0,
        "min" => values.iter().copied().reduce(f64::min).unwrap(),
        _ => values.iter().copied().reduce(f64::max).unwrap(),
    }
}

fn computed(op: &str, a: f64, b: f64) -> f64 {
    match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        _ => a / b,
    }
}

fn compared(op: &str, a: f64, b: f64) -> Option<bool> {
    Some(match op {
        "==" => a == b,
        "!=" => a != b,
        ">" => a > b,
        "<" => a < b,
        ">=" => a >= b,
        "<=" => a <= b,
        _ => return None,
    })
}

fn meet(
    op: &str,
    bool: bool,
    signature: &dyn Fn(&Set) -> Set,
    on: Option<bool>,
    labels: &[&str],
    (left, right): (Vector, Vector),
) -> Result<Vector, ()> {
    let has =
        |vector: &Vector, wanted: &Set| vector.iter().any(|(set, _)| signature(set) == *wanted);
    match op {
        "and" => {
            return Ok(left.into_iter().filter(|(set, _)| has(&right, &signature(set))).collect());
        }
        "unless" => {
            return Ok(left.into_iter().filter(|(set, _)| !has(&right, &signature(set))).collect());
        }
        "or" => {
            let more = right.into_iter().filter(|(set, _)| !has(&left, &signature(set)));
            let more: Vector = more.collect();
            return Ok(left.into_iter().chain(more).collect());
        }
        _ => {}
    }
    // Prometheus looks no further where one side has nothing.
    if left.is_empty() || right.is_empty() {
        return Ok(Vec::new());
    }
    let mut seen = std::collections::BTreeSet::new();
    if !right.iter().all(|(set, _)| seen.insert(signature(set))) {
        return Err(());
    }
    let (mut out, mut met) = (Vec::new(), std::collections::BTreeSet::new());
    for (set, a) in left {
        let Some((_, b)) = right.iter().find(|(other, _)| signature(other) == signature(&set))
        else {
            continue;
        };
        if !met.insert(signature(&set)) {
            return Err(());
        }
        let mut result = set.clone();
        result.retain(|label, _| labels.contains(&label.as_str()) == (on == Some(true)));
        match compared(op, a, *b) {
            None => out.push((without_name(&result), computed(op, a, *b))),
            Some(holds) if bool => out.push((without_name(&result), f64::from(u8::from(holds)))),
            Some(true) => out.push((result, a)),
            Some(false) => {}
        }
    }
    Ok(out)
}

/// Series that come and go, some without labels that others have.
fn measured(random: &mut Random) -> (Memory, Points) {
    let (mut memory, mut points) = (Memory::default(), Points::new());
    for metric in ["x", "y"] {
        for a in ["", "1", "2"] {
            for b in ["", "p", "q"] {
                if random.below(3) == 0 {
                    continue;
                }
                let pairs = [("__name__", metric), ("a", a), ("b", b)];
                let labels: Labels = pairs.into_iter().collect();
                let set: Set =
                    labels.iter().map(|(name, value)| (name.into(), value.into())).collect();
                let mut time = random.below(400) as i64;
                while time < 900 {
                    let value = random.below(4) as f64;
                    memory.add(&labels, time * SECOND, value);
                    points.entry(set.clone()).or_default().insert(time * SECOND, value);
                    let gap = if random.below(9) == 0 { 500 } else { 40 };
                    time += 1 + random.below(gap) as i64;
                }
            }
        }
    }
    (memory, points)
}

#[test]
fn expressions_are_answered_as_a_model_does() {
    let (mut answered, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut random = Random(seed);
        let (memory, points) = measured(&mut random);
        for _ in 0..40 {
            let depth = 1 + random.below(3);
            let expr = Expr::random(&mut random, depth);
            let text = expr.text();
            let steps = (0, 900, 1 + random.below(120) as i64);
            let found = now(range(
                &memory,
                &text,
                (0, steps.1 * SECOND, steps.2 * SECOND),
                &Options::default(),
            ));
            let at = (steps.0..=steps.1).step_by(steps.2 as usize);
            let wanted: Result<Vec<(i64, Vector)>, ()> =
                at.map(|at| Ok((at * SECOND, expr.value(&points, at)?))).collect();
            let (Ok(found), Ok(wanted)) = (&found, &wanted) else {
                // Two series of a metric each that lose it are refused even if they never meet.
                let is_strict =
                    found.as_ref().is_err_and(|error| error.to_string().contains("same labelset"));
                assert!(
                    is_strict || found.is_err() == wanted.is_err(),
                    "seed {seed}: {text}: {found:?} {wanted:?}"
                );
                refused += 1;
                continue;
            };
            answered += 1;
            let mut cells: BTreeMap<(Set, i64), f64> = BTreeMap::new();
            for (at, vector) in wanted {
                cells.extend(vector.iter().map(|(set, value)| ((set.clone(), *at), *value)));
            }
            let Answered::Matrix(rows) = &found.value else { panic!("{text}") };
            let mut count = 0;
            for row in rows {
                let set: Set =
                    row.labels.iter().map(|(name, value)| (name.into(), value.into())).collect();
                for (at, value) in &row.samples {
                    let wanted = cells.get(&(set.clone(), *at));
                    assert!(
                        wanted.is_some_and(|wanted| is_near(*wanted, *value)),
                        "seed {seed}: {text}: {set:?} at {at}: {value} instead of {wanted:?}"
                    );
                    count += 1;
                }
            }
            assert_eq!(count, cells.len(), "seed {seed}: {text}: cells are missing");
        }
    }
    assert!(answered > 1000 && refused > 100, "{answered} answered, {refused} refused");
}
