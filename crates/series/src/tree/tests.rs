//! The tree against a map: random leaves, every kind of query, a restart from what is stored at any
//! time.
//!
//! Sums are compared exactly: the values are small multiples of 1/4, whose sums do not depend on
//! the order.

use super::*;
use crate::value::{Point, Value};
use crate::workload::Random;
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Nodes in memory: nothing is ever waited for.
#[derive(Clone, Default)]
struct Memory {
    nodes: BTreeMap<Address, Bytes>,
    twigs: BTreeMap<Address, Bytes>,
    reads: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Nodes for Memory {
    async fn node(&self, address: Address) -> Result<Option<Bytes>> {
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(self.nodes.get(&address).cloned())
    }

    async fn twigs(&self, level: Option<u8>) -> Result<Vec<Twig>> {
        let of_level = self
            .twigs
            .iter()
            .filter(|(address, _)| level.is_none_or(|level| level == address.level));
        of_level
            .map(|(address, bytes)| {
                Ok(Twig { address: *address, summary: decode_summaries(address.level, bytes)?[0] })
            })
            .collect()
    }
}

impl Memory {
    fn apply(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Node(address, bytes) => {
                    assert_eq!(
                        self.nodes.insert(address, bytes.into()),
                        None,
                        "nodes never change"
                    );
                }
                Write::Twig(twig) => {
                    let bytes = encode_summaries(twig.address.level, &[twig.summary]);
                    assert_eq!(self.twigs.insert(twig.address, bytes.into()), None);
                }
                Write::Fold(level) => self.twigs.retain(|address, _| address.level != level),
            }
        }
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("memory does not wait"),
    }
}

fn value(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Float(f64::NAN),
        1 => Value::Integer(random.below(100) as i64 - 50),
        _ => Value::Float((random.below(800) as f64 - 400.0) / 4.0),
    }
}

struct Model {
    random: Random,
    memory: Memory,
    trunk: Trunk,
    points: BTreeMap<i64, Value>,
    time: i64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let time = [i64::MIN, -500, 0, crate::workload::START][random.below(4) as usize];
        Self {
            random,
            memory: Memory::default(),
            trunk: Trunk::default(),
            points: BTreeMap::new(),
            time,
        }
    }

    fn append(&mut self) {
        let mut points = Points::default();
        for _ in 0..=self.random.below(4) {
            let value = value(&mut self.random);
            points.push(Point { time: self.time, value });
            self.points.insert(self.time, value);
            self.time += 1 + self.random.below(5) as i64;
        }
        let writes = now(self.trunk.append(&self.memory, &points)).unwrap();
        self.memory.apply(writes);
    }

    fn span(&mut self) -> Span {
        let first = self.points.keys().next().copied().unwrap_or(0);
        let length = self.time.abs_diff(first) + 1;
        let mut time =
            || first.saturating_add_unsigned(self.random.below(length)).saturating_sub(1);
        let (a, b) = (time(), time());
        match self.random.below(6) {
            0 => Span::new(..),
            1 => Span::new(a..),
            2 => Span::new(..a),
            3 => Span::new(a..=a),
            _ => Span::new(a.min(b)..a.max(b)),
        }
    }

    fn expected(&self, span: Span) -> Vec<Point> {
        if span.is_empty() {
            return Vec::new();
        }
        self.points
            .range(span.first..=span.last)
            .map(|(time, value)| Point { time: *time, value: *value })
            .collect()
    }

    fn query(&mut self) {
        let span = self.span();
        let expected = self.expected(span);
        let summary = Summary::of_points(expected.iter().copied());
        assert_eq!(now(aggregate(&self.memory, span)).unwrap(), summary, "{span:?}");
        for direction in [Direction::Forward, Direction::Backward] {
            let mut scan = now(Scan::new(&self.memory, span, direction)).unwrap();
            let mut found = Vec::new();
            while let Some(points) = now(scan.next(&self.memory)).unwrap() {
                match direction {
                    Direction::Forward => found.extend(points.iter()),
                    Direction::Backward => found.extend(points.iter().rev()),
                }
            }
            if direction == Direction::Backward {
                found.reverse();
            }
            assert_eq!(found, expected, "{span:?} {direction:?}");
        }
        self.group(span, &expected);
    }

    fn group(&mut self, span: Span, expected: &[Point]) {
        let step = 1 + self.random.below(300);
        let mut buckets: BTreeMap<i64, Vec<Point>> = BTreeMap::new();
        for point in expected {
            let after = i128::from(point.time) - i128::from(span.first);
            let bucket = i128::from(span.first) + after / i128::from(step) * i128::from(step);
            buckets.entry(bucket as i64).or_default().push(*point);
        }
        let expected: Vec<(i64, Summary)> = buckets
            .into_iter()
            .filter_map(|(bucket, points)| Some((bucket, Summary::of_points(points.into_iter())?)))
            .collect();
        let mut walk = now(Walk::new(&self.memory, span, Direction::Forward)).unwrap();
        let mut groups = Groups::new(span.first, step);
        let mut found = Vec::new();
        while let Some(piece) =
            now(walk.next(&self.memory, |summary| groups.is_whole(summary))).unwrap()
        {
            groups.add(piece);
            found.extend(std::iter::from_fn(|| groups.next_done()));
        }
        found.extend(std::iter::from_fn(|| groups.finish()));
        assert_eq!(found, expected, "{span:?} step {step}");
    }
}

#[test]
fn every_query_agrees_with_a_map() {
    for seed in 0..4 {
        let mut model = Model::new(seed);
        for round in 0..(64 * 64 * 2 + 70) {
            model.append();
            if model.random.below(200) == 0 {
                assert_eq!(
                    now(Trunk::open(&model.memory)).unwrap(),
                    model.trunk,
                    "seed {seed}, round {round}"
                );
                model.query();
            }
        }
    }
}

#[test]
fn an_aggregate_touches_a_handful_of_nodes() {
    let mut model = Model::new(3);
    for _ in 0..64 * 64 * 3 {
        model.append();
    }
    for _ in 0..200 {
        let span = model.span();
        model.memory.reads.store(0, std::sync::atomic::Ordering::Relaxed);
        now(aggregate(&model.memory, span)).unwrap();
        let reads = model.memory.reads.load(std::sync::atomic::Ordering::Relaxed);
        assert!(reads <= 6, "{reads} nodes read, at most two a level expected");
    }
}

#[test]
fn a_damaged_or_missing_node_is_an_error() {
    let mut model = Model::new(4);
    for _ in 0..64 * 3 {
        model.append();
    }
    let addresses: Vec<Address> = model.memory.nodes.keys().copied().collect();
    for address in addresses {
        let whole = model.memory.nodes.get(&address).cloned().unwrap();
        let scan_fails = |memory: &Memory| {
            let mut scan = now(Scan::new(memory, Span::ALL, Direction::Forward)).unwrap();
            loop {
                match now(scan.next(memory)) {
                    Ok(Some(_)) => {}
                    Ok(None) => return false,
                    Err(_) => return true,
                }
            }
        };
        model.memory.nodes.remove(&address);
        assert!(scan_fails(&model.memory), "{address:?} is missing");
        let mut bytes = whole.to_vec();
        let at = model.random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << model.random.below(8);
        model.memory.nodes.insert(address, bytes.into());
        assert!(scan_fails(&model.memory), "{address:?}, byte {at}");
        model.memory.nodes.insert(address, whole);
    }
}

#[test]
fn summaries_of_a_node_are_small() {
    let mut random = Random::new(8);
    let points = crate::workload::seed_input(&mut random, 64 * 2048, false);
    let summaries: Vec<Summary> = (0..64)
        .map(|leaf| {
            Summary::of_points((leaf * 2048..(leaf + 1) * 2048).map(|at| points.get(at))).unwrap()
        })
        .collect();
    let bytes = encode_summaries(1, &summaries);
    assert_eq!(decode_summaries(1, &bytes).unwrap(), summaries);
    assert!(bytes.len() < 64 * 50, "{} bytes", bytes.len());
}
