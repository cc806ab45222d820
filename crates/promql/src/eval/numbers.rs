//! Means that don't overflow, quantiles, lines through points: as Prometheus computes them.

pub(crate) use crate::sum::Sum;

/// A mean, of a sum as long as that doesn't overflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mean {
    sum: Sum,
    count: f64,
    is_mean: bool,
}

impl Mean {
    pub(crate) fn new(first: f64) -> Self {
        Self { sum: Sum { sum: first, lost: 0.0 }, count: 1.0, is_mean: false }
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.is_mean {
            let mut sum = self.sum;
            sum.add(value);
            if !sum.sum.is_infinite() {
                self.sum = sum;
                return;
            }
            self.is_mean = true;
            self.sum.sum /= self.count - 1.0;
            self.sum.lost /= self.count - 1.0;
        }
        let part = (self.count - 1.0) / self.count;
        self.sum = Sum { sum: part * self.sum.sum, lost: part * self.sum.lost };
        self.sum.add(value / self.count);
    }

    pub(crate) fn value(self) -> f64 {
        match self.is_mean {
            true => self.sum.sum + self.sum.lost,
            false => self.sum.sum / self.count + self.sum.lost / self.count,
        }
    }
}

/// Whether a comes before b where values that are no numbers are the least.
pub(crate) fn ascending(a: f64, b: f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal),
        (a, b) => b.cmp(&a),
    }
}

/// The quantile of values, which are sorted by it.
pub(crate) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    match q {
        _ if values.is_empty() || q.is_nan() => return f64::NAN,
        q if q < 0.0 => return f64::NEG_INFINITY,
        q if q > 1.0 => return f64::INFINITY,
        _ => values.sort_by(|a, b| ascending(*a, *b)),
    }
    let rank = q * (values.len() - 1) as f64;
    let lower = (rank.floor().max(0.0) as usize).min(values.len() - 1);
    let upper = (lower + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[lower] * (1.0 - weight) + values[upper] * weight
}

/// The slope a second of the line through points, and its value at a time.
pub(crate) fn line(samples: &[(i64, f64)], time: i64) -> (f64, f64) {
    let first = samples.first().map_or(f64::NAN, |(_, value)| *value);
    if samples.iter().all(|(_, value)| *value == first) {
        return if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    }
    let [mut x, mut y, mut xy, mut xx] = [Sum::default(); 4];
    for (then, value) in samples {
        let seconds = super::seconds(time, *then);
        x.add(seconds);
        y.add(*value);
        xy.add(seconds * value);
        xx.add(seconds * seconds);
    }
    let count = samples.len() as f64;
    let [x, y, xy, xx] = [x, y, xy, xx].map(|sum| sum.sum + sum.lost);
    let slope = (xy - x * y / count) / (xx - x * x / count);
    (slope, y / count - slope * x / count)
}
