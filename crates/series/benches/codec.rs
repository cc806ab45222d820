//! Bytes a point and speed of leaves, on the shapes that series have.
//!
//! Each line is one shape: bytes a point of the leaves (nothing else), what it costs to make and to
//! read them. The last column is a sum over all that was decoded, so that nothing is optimised
//! away. `cargo bench -p plinth-series --bench codec -- [points in a leaf]`.
#![expect(clippy::disallowed_methods, reason = "a benchmark takes the machine's time")]

use plinth_series::workload::{self, Random};
use plinth_series::{Column, Points, codec};
use std::time::Instant;

/// The machine may be busy with something else: the fastest of so many counts.
const RUNS: usize = 40;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let series = if measured { 64 } else { 2 };
    let leaf = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(2048);
    println!(
        "{leaf} points a leaf\n{:24} {:>8} {:>12} {:>12}",
        "", "B/point", "encode M/s", "decode M/s"
    );
    let mut random = Random::new(1);
    let mut total = (0.0, 0.0);
    for as_integer in [false, true] {
        let name = if as_integer { "article, integers" } else { "article, doubles" };
        let bytes =
            shape(name, leaf, series, |count| workload::seed_input(&mut random, count, as_integer));
        total = (total.0 + bytes / 2.0, 0.0);
    }
    println!("{:24} {:>8.3}", "article, both", total.0);
    for deviation in [0.01, 0.1, 0.5, 1.0] {
        let name = format!("two decimals, {deviation}");
        shape(&name, leaf, series, |count| workload::two_decimals(&mut random, count, deviation));
    }
    shape("cpu-only", leaf, series, |count| workload::cpu_only(&mut random, count));
    shape("constant", leaf, series, workload::constant);
    shape("counter", leaf, series, |count| workload::counter(&mut random, count));
    shape("noise", leaf, series, |count| workload::noise(&mut random, count));
    shape("sensor", leaf, series, |count| workload::sensor(&mut random, count));
}

/// Measures one shape, prints its line, gives bytes a point.
fn shape(name: &str, leaf: usize, series: usize, mut generate: impl FnMut(usize) -> Points) -> f64 {
    let leaves: Vec<Points> = (0..series).flat_map(|_| split(generate(leaf * 4), leaf)).collect();
    let points: usize = leaves.iter().map(Points::len).sum();
    let mut encoded = Vec::new();
    let encode = fastest(|| encoded = leaves.iter().map(codec::encode).collect());
    let bytes: usize = encoded.iter().map(Vec::len).sum();
    let mut decoded = Points::default();
    let mut sum = 0.0;
    let decode = fastest(|| {
        for bytes in &encoded {
            codec::decode(bytes, &mut decoded).expect("these are leaves");
            sum += decoded.values.get(decoded.len() - 1).as_f64() + decoded.times[0] as f64;
        }
    });
    let rate = |seconds: f64| points as f64 / seconds / 1e6;
    let each = bytes as f64 / points as f64;
    println!("{name:24} {each:>8.3} {:>12.0} {:>12.0}   {sum:e}", rate(encode), rate(decode));
    each
}

fn split(points: Points, leaf: usize) -> Vec<Points> {
    let starts = (0..points.len()).step_by(leaf);
    starts
        .map(|start| {
            let range = start..(start + leaf).min(points.len());
            let values = match &points.values {
                Column::Floats(floats) => Column::Floats(floats[range.clone()].to_vec()),
                Column::Integers(integers) => Column::Integers(integers[range.clone()].to_vec()),
                Column::Mixed(values) => Column::Mixed(values[range.clone()].to_vec()),
            };
            Points { times: points.times[range].to_vec(), values }
        })
        .collect()
}

/// Seconds of the fastest of some runs.
fn fastest(mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let begin = Instant::now();
        run();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    best
}
