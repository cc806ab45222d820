//! Two minutes of a few figures, each as a line of bars.
//!
//! Looks come when they come, so a line's places are spans of time: a place shows the mean of the
//! looks that fall into it, and a blank where none did.

use plinth_bench::words::short;
use std::collections::VecDeque;
use std::time::Duration;

/// How far back it goes.
const SPAN: Duration = Duration::from_secs(120);
/// How many places a line has.
const PLACES: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The figures of the last two minutes.
#[derive(Default)]
pub struct Trend {
    looks: VecDeque<(Duration, Vec<f64>)>,
}

impl Trend {
    /// Adds what was seen at a time; figures are always the same ones, in the same order.
    pub fn add(&mut self, at: Duration, figures: Vec<f64>) {
        self.looks.push_back((at, figures));
        while self.looks.front().is_some_and(|(first, _)| *first + SPAN <= at) {
            self.looks.pop_front();
        }
    }

    /// One figure as bars, the newest on the right, and the greatest of what they show.
    pub fn line(&self, figure: usize) -> String {
        let Some((now, _)) = self.looks.back() else { return String::new() };
        let mut places = [(0.0, 0_u32); PLACES];
        for (at, figures) in &self.looks {
            let ago = now.saturating_sub(*at).as_secs_f64() / SPAN.as_secs_f64();
            let place = PLACES - 1 - ((ago * PLACES as f64) as usize).min(PLACES - 1);
            places[place].0 += figures.get(figure).copied().unwrap_or_default();
            places[place].1 += 1;
        }
        let means = places.map(|(sum, count)| (count > 0).then(|| sum / f64::from(count)));
        let most = means.iter().flatten().copied().fold(0.0, f64::max);
        let bar = |mean: &Option<f64>| match mean {
            None => ' ',
            Some(mean) if most > 0.0 => BARS[((mean / most * 7.0).round() as usize).min(7)],
            Some(_) => BARS[0],
        };
        format!("{} most {}", means.iter().map(bar).collect::<String>(), short(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_two_minutes_the_newest_on_the_right() {
        let mut trend = Trend::default();
        assert_eq!(trend.line(0), "");
        for second in 0..300_u64 {
            trend.add(Duration::from_secs(second), vec![second as f64, 0.0]);
        }
        let line = trend.line(0);
        let bars: Vec<char> = line.chars().take(PLACES).collect();
        assert!(bars[0] < bars[PLACES - 1] && bars[PLACES - 1] == '█', "{line}");
        assert!(line.ends_with("█ most 298"), "the mean of two looks: {line}");
        assert_eq!(trend.looks.len(), 120);
        assert!(
            trend.line(1).starts_with('▁') && trend.line(1).ends_with("▁ most 0"),
            "{}",
            trend.line(1)
        );
    }

    #[test]
    fn where_nobody_looked_is_a_blank() {
        let mut trend = Trend::default();
        trend.add(Duration::from_secs(1000), vec![4.0]);
        trend.add(Duration::from_secs(1050), vec![8.0]);
        let line: Vec<char> = trend.line(0).chars().take(PLACES).collect();
        assert_eq!((line[PLACES - 1], line[PLACES - 1 - 25]), ('█', '▅'));
        assert_eq!(line.iter().filter(|place| **place == ' ').count(), PLACES - 2);
    }
}
