//! A curve as an SVG picture inside a page: lines with points, on linear or logarithmic axes,
//! beside published values.
//!
//! Drawn here rather than by a plotting library, because the picture must live in the page: its
//! colours are the page's variables, so it follows the reader's light or dark scheme, and its
//! letters are the page's, so it needs no fonts. What a library would add, the choice of ticks, is
//! the smaller part.

use super::escape;
use crate::curve::{Axis, Curve, Reference, Scale, Series};
use std::fmt::Write;

pub const WIDTH: f64 = 460.0;
pub const HEIGHT: f64 = 290.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// About so many ticks on an axis.
const TICKS: f64 = 5.0;
/// Colours that the page has for lines.
pub const COLOURS: usize = 6;
/// Height of a line of words, and width of a letter, about.
const WORDS: (f64, f64) = (13.0, 6.6);

/// The picture of a curve.
pub fn svg(curve: &Curve) -> String {
    let title = escape(&curve.title);
    let parts = parts(curve);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n{parts}</svg>\n"
    )
}

/// What stands in the picture.
pub fn parts(curve: &Curve) -> String {
    let values = |pick: fn(&(f64, f64)) -> f64| {
        curve.series.iter().flat_map(move |series| series.points.iter().map(pick))
    };
    let references = || curve.references.iter();
    let x = Ruler::new(
        &curve.x,
        values(|point| point.0).chain(references().filter_map(|mark| mark.x)),
        false,
    );
    let y =
        Ruler::new(&curve.y, values(|point| point.1).chain(references().map(|mark| mark.y)), true);
    let mut out = String::new();
    let place = Place { x, y };
    place.grid(&mut out, curve);
    let marks = together(&curve.references);
    place.marks(&mut out, &marks);
    for (number, series) in curve.series.iter().enumerate() {
        place.line(&mut out, curve, series, number % COLOURS);
    }
    // Over the lines, or those would cross them out.
    place.words(&mut out, curve, &marks);
    out
}

/// The published values, those in the same place as one.
fn together(references: &[Reference]) -> Vec<Reference> {
    let mut merged: Vec<Reference> = Vec::new();
    for mark in references {
        match merged.iter_mut().find(|known| known.x == mark.x && known.y == mark.y) {
            Some(known) => {
                known.name.push_str(" and ");
                known.name.push_str(mark.name.strip_prefix("guide, ").unwrap_or(&mark.name));
            }
            None => merged.push(mark.clone()),
        }
    }
    merged
}

/// The values of an axis: from where to where, and at which of them there are ticks.
#[derive(Clone, PartialEq, Debug)]
struct Ruler {
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Ruler {
    /// For these values. A linear axis of measured values begins at zero, so that lengths can be
    /// compared.
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, measured: bool) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let (low, high) =
            values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| {
                (low.min(value), high.max(value))
            });
        match axis.scale {
            Scale::Logarithmic => Self::logarithmic(low, high, measured),
            Scale::Linear => Self::linear(low.min(0.0), high, measured),
        }
    }

    fn linear(low: f64, high: f64, measured: bool) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let step = nice_step((high - low) / TICKS);
        // Measured values end below a tick; chosen ones, where they end.
        let to = if measured { (high / step).ceil() * step } else { high };
        let count = ((to - low) / step + 1e-9).floor() as u32;
        let ticks = (0..=count).map(|number| low + f64::from(number) * step).collect();
        Self { scale: Scale::Linear, from: low, to, ticks }
    }

    fn logarithmic(low: f64, high: f64, measured: bool) -> Self {
        let low = if low > 0.0 && low.is_finite() { low } else { 1.0 };
        let high = if high > low { high } else { low * 10.0 };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let steps: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all = (first..=last)
            .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        let (mut from, mut to) = (low, high);
        if measured {
            from = all.clone().filter(|tick| *tick <= low * 1.000_001).fold(from, |_, tick| tick);
            to = all.clone().find(|tick| *tick >= high * 0.999_999).unwrap_or(high);
        }
        let ticks = all.filter(|tick| (from * 0.999_999..=to * 1.000_001).contains(tick)).collect();
        Self { scale: Scale::Logarithmic, from, to, ticks }
    }

    /// Where a value lies, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Logarithmic => (value.max(1e-300) / self.from).ln() / (self.to / self.from).ln(),
        };
        part.clamp(0.0, 1.0)
    }
}

/// The next of 1, 2, 2.5, 5 and 10 times a power of ten.
fn nice_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|nice| nice * power);
    steps.into_iter().find(|nice| *nice >= step * 0.999_999).unwrap_or(step)
}

/// Where some words stand: from left to right, and their base line.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: f64,
    to: f64,
    y: f64,
}

impl Span {
    fn meets(&self, other: &Self) -> bool {
        self.from < other.to && other.from < self.to && (self.y - other.y).abs() < WORDS.0
    }
}

/// Where words for a mark at this height can stand: above it, higher where others stand, and below
/// where there is no room above.
fn free_span(from: f64, to: f64, mark: f64, taken: &[Span]) -> Span {
    let above =
        (0..).map(|line| mark - 6.0 - f64::from(line) * WORDS.0).take_while(|y| *y > TOP + 8.0);
    let below = (0..8).map(|line| mark + 15.0 + f64::from(line) * WORDS.0);
    let mut spans = above.take(8).chain(below).map(|y| Span { from, to, y });
    let free = spans.find(|span| !taken.iter().any(|other| span.meets(other)));
    free.unwrap_or(Span { from, to, y: mark - 6.0 })
}

/// Where values lie in the picture.
struct Place {
    x: Ruler,
    y: Ruler,
}

impl Place {
    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.part(value) * (WIDTH - LEFT - RIGHT)
    }

    fn up(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.part(value) * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&self, out: &mut String, curve: &Curve) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for &tick in &self.y.ticks {
            let at = self.up(tick);
            let text = escape(&curve.y.unit.tick(tick));
            let _infallible = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 6.0,
                at + 4.0,
            );
        }
        for &tick in &self.x.ticks {
            let at = self.across(tick);
            let text = escape(&curve.x.unit.tick(tick));
            let _infallible = writeln!(
                out,
                "<line class=\"axis\" x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 4.0,
                bottom + 17.0,
            );
        }
        let _infallible = writeln!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 6.0,
            escape(&curve.x.label),
        );
    }

    /// The published values: those without a place of their own as lines across.
    fn marks(&self, out: &mut String, marks: &[Reference]) {
        for mark in marks {
            let y = self.up(mark.y);
            let _infallible = match mark.x.map(|x| self.across(x)) {
                None => writeln!(
                    out,
                    "<line class=\"guide\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/>",
                    WIDTH - RIGHT,
                ),
                Some(x) => writeln!(
                    out,
                    "<rect class=\"seed\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" \
                     transform=\"rotate(45 {x:.1} {y:.1})\"/>",
                    x - 4.0,
                    y - 4.0,
                ),
            };
        }
    }

    /// What they are, none over another.
    fn words(&self, out: &mut String, curve: &Curve, marks: &[Reference]) {
        let mut taken: Vec<Span> = Vec::new();
        for mark in marks {
            let text = format!("{}: {}", mark.name, curve.y.unit.show(mark.y));
            let (at, is_end) = match mark.x.map(|x| self.across(x)) {
                None => (WIDTH - RIGHT - 2.0, true),
                Some(x) if x > (LEFT + WIDTH) / 2.0 => (x - 9.0, true),
                Some(x) => (x + 9.0, false),
            };
            let width = text.chars().count() as f64 * WORDS.1;
            let from = if is_end { at - width } else { at };
            let y = self.up(mark.y);
            let span = free_span(from, from + width, y, &taken);
            let anchor = if is_end { "end" } else { "start" };
            let _infallible = writeln!(
                out,
                "<text class=\"said\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                span.y,
                escape(&text),
            );
            taken.push(span);
        }
    }

    fn line(&self, out: &mut String, curve: &Curve, series: &Series, colour: usize) {
        let points: Vec<String> = series
            .points
            .iter()
            .map(|&(x, y)| format!("{:.1},{:.1}", self.across(x), self.up(y)))
            .collect();
        let _infallible =
            writeln!(out, "<polyline class=\"line c{colour}\" points=\"{}\"/>", points.join(" "));
        // Many points are a line by themselves.
        let radius = if series.points.len() > 30 { 1.6 } else { 3.4 };
        for &(x, y) in &series.points {
            let (what, of) = (curve.y.unit.show(y), curve.x.unit.show(x));
            let text = escape(&format!("{}: {what} at {of}", series.name));
            let _infallible = writeln!(
                out,
                "<circle class=\"dot c{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\"><title>{text}</title></circle>",
                self.across(x),
                self.up(y),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Unit;

    #[test]
    fn linear_axes_begin_at_zero_and_end_at_a_tick_above() {
        let axis = Axis::linear("y", Unit::PerSecond("reads"));
        let ruler = Ruler::new(&axis, [120.0, 930.0].into_iter(), true);
        assert_eq!((ruler.from, ruler.to), (0.0, 1_000.0));
        assert_eq!(ruler.ticks, [0.0, 200.0, 400.0, 600.0, 800.0, 1_000.0]);
        assert_eq!(ruler.part(500.0), 0.5);
        let one = Ruler::new(&axis, std::iter::empty(), true);
        assert!(
            one.ticks.len() >= 2 && one.part(0.0) == 0.0,
            "nothing measured is drawn, too: {one:?}"
        );
    }

    #[test]
    fn logarithmic_axes_have_ticks_at_powers_or_between_them_if_there_are_few() {
        let axis = Axis::logarithmic("y", Unit::Seconds);
        let wide = Ruler::new(&axis, [2e-6, 3e-2].into_iter(), true);
        let close = |one: f64, two: f64| (one / two - 1.0).abs() < 1e-9;
        assert!(
            close(wide.from, 1e-6) && close(wide.to, 1e-1) && wide.ticks.len() == 6,
            "{wide:?}"
        );
        assert!(close(wide.part(1e-1), 1.0) && wide.part(1e-6) == 0.0 && wide.part(0.0) == 0.0);
        let narrow = Ruler::new(&axis, [3e-3, 4e-2].into_iter(), true);
        assert!(
            close(narrow.from, 2e-3) && close(narrow.to, 5e-2) && narrow.ticks.len() == 5,
            "{narrow:?}"
        );
    }

    #[test]
    fn no_words_stand_over_others() {
        let mut taken: Vec<Span> = Vec::new();
        for (from, to, mark) in [
            (60.0, 200.0, 250.0),
            (60.0, 220.0, 252.0),
            (180.0, 420.0, 251.0),
            (60.0, 430.0, 20.0),
            (60.0, 430.0, 22.0),
        ] {
            let span = free_span(from, to, mark, &taken);
            assert!(span.y > TOP && span.y < HEIGHT, "{span:?}");
            assert!(
                !taken.iter().any(|other| other.meets(&span)),
                "{span:?} over one of {taken:?}"
            );
            taken.push(span);
        }
        let curve = Curve::new(
            "c",
            Axis::linear("x", Unit::Seconds),
            Axis::linear("y", Unit::PerSecond("reads")),
        );
        let curve = curve.with("Plinth", vec![(0.0, 10.0), (1.0, 20.0)]).beside("guide", 15.0);
        let svg = svg(&curve);
        assert!(svg.find("<polyline") < svg.find("class=\"said\""), "words stand over lines");
    }

    #[test]
    fn a_picture_has_its_points_and_what_the_guide_says() {
        let axis = || Axis::linear("time", Unit::Seconds);
        let curve = Curve::new("a < b", axis(), Axis::linear("y", Unit::PerSecond("reads")))
            .with("Plinth", vec![(0.0, 10.0), (1.0, 20.0)])
            .beside("guide", 15.0)
            .beside("guide, writes", 15.0)
            .beside_at("guide", 0.5, 5.0);
        let svg = svg(&curve);
        assert!(svg.contains("aria-label=\"a &lt; b\"") && svg.ends_with("</svg>\n"));
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count()), (2, 1));
        assert!(svg.contains("guide and writes: 15") && svg.contains("class=\"seed\""));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
