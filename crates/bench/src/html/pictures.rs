//! Each plot of a report as a file of its own, for documents: an SVG picture that has its title,
//! its legend and its colours in it.
//!
//! A document can't give a picture its style, and shows it on a page of any colour. So a picture
//! brings the part of the page's style sheet that plots use, and a card behind it; like the page it
//! follows the reader's light or dark scheme.

use super::{STYLE, escape, merged, plot};
use crate::Report;
use crate::curve::Curve;
use std::fmt::Write;

/// Height of what stands above a plot: its title, and what the y axis has; then the legend, if
/// there is one.
const HEAD: f64 = 44.0;
const LEGEND: f64 = 20.0;
/// Width of a letter, about.
const LETTER: f64 = 7.0;

/// The plots of these reports: a name that a file may have, and its picture.
pub fn pictures(reports: &[Report]) -> Vec<(String, String)> {
    merged(reports).iter().map(|(curve, _)| (file_name(&curve.title), picture(curve))).collect()
}

/// `Throughput by concurrency` becomes `throughput-by-concurrency`.
fn file_name(title: &str) -> String {
    let words =
        title.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

fn picture(curve: &Curve) -> String {
    let has_legend = curve.series.len() > 1;
    let above = if has_legend { HEAD + LEGEND } else { HEAD };
    let (width, height) = (plot::WIDTH, plot::HEIGHT + above);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" \
         aria-label=\"{}\">\n<style>\n{}{}</style>\n<rect class=\"card\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n",
        escape(&curve.title),
        colours(),
        style(),
    );
    let _infallible = writeln!(
        out,
        "<text class=\"title\" x=\"16\" y=\"22\">{}</text>\n<text class=\"tick\" x=\"16\" y=\"39\">{}</text>",
        escape(&curve.title),
        escape(&curve.y.label),
    );
    let mut x = 16.0;
    for (number, series) in curve.series.iter().enumerate().filter(|_| has_legend) {
        let colour = number % plot::COLOURS;
        let _infallible = writeln!(
            out,
            "<rect class=\"key c{colour}\" x=\"{x:.0}\" y=\"49\" width=\"10\" height=\"10\" rx=\"3\"/><text class=\"tick\" \
             x=\"{:.0}\" y=\"58\">{}</text>",
            x + 15.0,
            escape(&series.name),
        );
        x += 30.0 + LETTER * series.name.chars().count() as f64;
    }
    let _infallible =
        writeln!(out, "<g transform=\"translate(0 {above})\">\n{}</g>\n</svg>", plot::parts(curve));
    out
}

/// The page's variables: colours, light and dark.
fn colours() -> &'static str {
    STYLE.split_once("* {").map_or("", |(variables, _)| variables)
}

/// What the page's style sheet says of plots.
fn style() -> String {
    let of_plots =
        ["svg text", ".tick", ".said", ".grid", ".axis", ".guide", ".seed", ".line", ".dot", ".c0"];
    let lines = STYLE.lines().filter(|line| of_plots.iter().any(|name| line.starts_with(name)));
    let mut style: String = lines.flat_map(|line| [line, "\n"]).collect();
    style.push_str(
        ".key { fill: var(--own); }\n.card { fill: var(--card); stroke: var(--rule); }\n",
    );
    style.push_str(".title { fill: var(--ink); font-size: 15px; font-weight: 600; }\n");
    style
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Axis;
    use crate::unit::Unit;

    #[test]
    fn a_picture_needs_nothing_else() {
        let curve = Curve::new(
            "Throughput by <concurrency>",
            Axis::linear("clients", Unit::Count),
            Axis::linear("a second", Unit::PerSecond("reads")),
        )
        .with("Plinth", vec![(0.0, 10.0), (1.0, 20.0)])
        .with("another", vec![(0.0, 5.0)])
        .beside("guide", 15.0);
        let picture = picture(&curve);
        assert_eq!(file_name(&curve.title), "throughput-by-concurrency");
        for word in [
            "xmlns",
            "Throughput by &lt;concurrency&gt;",
            "--c0: #2a6fc9",
            ".line.c0",
            "key c1",
            "prefers-color-scheme",
        ] {
            assert!(picture.contains(word), "no {word} in {picture}");
        }
        assert_eq!((picture.matches("<svg").count(), picture.matches("</svg>").count()), (1, 1));
        for class in ["tick", "grid", "axis", "guide", "line", "dot", "said"] {
            assert!(
                !picture.contains(&format!("class=\"{class}"))
                    || picture.contains(&format!("\n.{class}")),
                "{class}"
            );
        }
    }
}
