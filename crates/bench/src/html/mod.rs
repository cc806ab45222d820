//! The report as one HTML page that needs nothing else: tables, and curves as plots beside
//! FoundationDB's published figures.
//!
//! It takes several reports, of one engine each, and shows them side by side. The page has no
//! script, and asks for nothing over the network; it follows the reader's light or dark scheme, and
//! on a narrow screen each row of a table becomes a card.

mod pictures;
mod plot;

pub use pictures::pictures;

use crate::Report;
use crate::curve::Curve;
use crate::outcome::{Figure, Mark, Outcome};
use crate::words;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// The page of these reports, one for each engine.
pub fn page(reports: &[Report]) -> String {
    let mut out = String::new();
    let _infallible = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Plinth's benchmark</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>Plinth's benchmark</h1>\n{}</header>\n",
        head(reports)
    );
    out.push_str(&overview(reports));
    out.push_str(&curves(reports));
    for report in reports {
        out.push_str(&table(report, reports.len() > 1));
    }
    let served = reports.iter().filter(|report| report.is_served()).count();
    out.push_str(&reading(served > 0, served < reports.len()));
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// How to read a page of reports, of which some are of a server, or of a database in the process,
/// or both.
fn reading(of_server: bool, in_process: bool) -> String {
    let mut out = String::from(
        "<section>\n<h2>How to read it</h2>\n<ul>\n\
        <li><b>FoundationDB's guide</b>: what FoundationDB publishes, for one process on one core unless a number of cores stands beside \
        it (its benchmarking guide, performance page and page of key performance indicators). <b>FoundationDB</b>: version 7.3, its \
        best when measured with its own C client on two virtual cores.</li>\n",
    );
    if in_process {
        out.push_str(
            "<li>FoundationDB's client reaches its server over a socket, Plinth runs in the process that calls it. That is the \
            difference a user gets, and most of the difference in the rows of reads.</li>\n",
        );
    }
    if of_server {
        out.push_str(
            "<li>Plinth's figures for a server, and FoundationDB's, are of a client that reaches its server over a socket, on one \
            machine.</li>\n",
        );
    }
    out.push_str(
        "<li>Latencies by load: transactions arrive at a part of the peak rate whether or not earlier ones have ended, and \
        each time counts from the arrival.</li>\n\
        <li>Machines differ, and a shared machine differs from minute to minute. Compare ratios, not figures.</li>\n\
        </ul>\n</section>\n",
    );
    out
}

/// Text as it may stand in a page.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn head(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        let lines = report.head_lines().into_iter().map(|line| escape(&line)).collect::<Vec<_>>();
        let _infallible = writeln!(out, "<p class=\"head\">{}</p>", lines.join("<br>\n"));
    }
    out
}

/// How many times FoundationDB's published figure for one core each workload reaches, as bars.
fn overview(reports: &[Report]) -> String {
    let single = |figure: &&Figure| {
        let target = figure.target;
        target.published.is_some() && target.published_cores == 1 && !target.smaller_is_better
    };
    let rows: Vec<(usize, String, f64)> = reports
        .iter()
        .enumerate()
        .flat_map(|(number, report)| report.outcomes.iter().map(move |outcome| (number, outcome)))
        .flat_map(|(number, outcome)| {
            outcome.figures.iter().filter(single).filter_map(move |figure| {
                let ratio = figure.value / figure.target.published?;
                Some((number, format!("{}: {}", outcome.title, figure.what), ratio))
            })
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let most = rows.iter().map(|row| row.2).fold(1.0, f64::max);
    let mut out = String::from(
        "<section>\n<h2>In times of FoundationDB's published figure for one core</h2>\n<div class=\"bars\">\n",
    );
    out.push_str(&legend(reports));
    for (number, what, ratio) in &rows {
        let _infallible = writeln!(
            out,
            "<div class=\"bar\"><span class=\"what\">{}</span><span class=\"track\"><span class=\"fill c{}\" \
             style=\"width:{:.1}%\"></span><span class=\"one\" style=\"left:{:.1}%\"></span></span>\
             <span class=\"times\">{}×</span></div>",
            escape(what),
            number % plot::COLOURS,
            ratio / most * 100.0,
            100.0 / most,
            words::short(*ratio),
        );
    }
    out.push_str(
        "</div>\n<p class=\"note\">The thin line is the published figure.</p>\n</section>\n",
    );
    out
}

/// The engines' colours, where there are several.
fn legend(reports: &[Report]) -> String {
    if reports.len() < 2 {
        return String::new();
    }
    let name = |(number, report): (usize, &Report)| key(number, &report.provenance.engine);
    let names: String = reports.iter().enumerate().map(name).collect();
    format!("<p class=\"legend\">{names}</p>\n")
}

fn key(number: usize, name: &str) -> String {
    let colour = number % plot::COLOURS;
    format!("<span class=\"name\"><span class=\"key c{colour}\"></span>{}</span> ", escape(name))
}

/// All curves, those of the same title, of several engines, in one; and what is to be said of each.
fn merged(reports: &[Report]) -> Vec<(Curve, Vec<String>)> {
    let mut merged: Vec<(Curve, Vec<String>)> = Vec::new();
    for report in reports {
        for (curve, outcome) in report
            .outcomes
            .iter()
            .flat_map(|outcome| outcome.curves.iter().map(move |curve| (curve, outcome)))
        {
            let mut curve = curve.clone();
            if reports.len() > 1 {
                for series in &mut curve.series {
                    let engine = &report.provenance.engine;
                    series.name = if series.name == "Plinth" {
                        engine.clone()
                    } else {
                        format!("{}, {engine}", series.name)
                    };
                }
            }
            let note = outcome.notes.first().filter(|_| reports.len() == 1).cloned();
            match merged.iter_mut().find(|(known, _)| known.title == curve.title) {
                None => merged.push((curve, note.into_iter().collect())),
                Some((known, _)) => {
                    known.series.extend(curve.series);
                    let new =
                        curve.references.into_iter().filter(|new| !known.references.contains(new));
                    let new: Vec<_> = new.collect();
                    known.references.extend(new);
                }
            }
        }
    }
    merged
}

/// All plots.
fn curves(reports: &[Report]) -> String {
    let merged = merged(reports);
    if merged.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section>\n<h2>Curves</h2>\n<div class=\"plots\">\n");
    for (curve, notes) in &merged {
        let keys: String = curve
            .series
            .iter()
            .enumerate()
            .map(|(number, series)| key(number, &series.name))
            .collect();
        let legend = if curve.series.len() > 1 {
            format!("<p class=\"legend\">{keys}</p>")
        } else {
            String::new()
        };
        let note = notes.first().map(|note| format!("<p class=\"note\">{}</p>", escape(note)));
        let _infallible = writeln!(
            out,
            "<figure>\n<figcaption><b>{}</b> <span>{}</span></figcaption>\n{legend}{}{}</figure>",
            escape(&curve.title),
            escape(&curve.y.label),
            plot::svg(curve),
            note.unwrap_or_default(),
        );
    }
    out.push_str("</div>\n</section>\n");
    out
}

fn table(report: &Report, several: bool) -> String {
    let engine = &report.provenance.engine;
    let title =
        if several { format!("All figures, {engine} engine") } else { "All figures".to_owned() };
    let mut out = format!(
        "<section>\n<h2>{}</h2>\n<table>\n<thead><tr><th>workload</th><th>what it does</th><th>Plinth</th><th>FoundationDB's guide</th>\
         <th>FoundationDB</th><th>required</th><th>goal</th><th>p50</th><th>p99</th></tr></thead>\n<tbody>\n",
        escape(&title)
    );
    for outcome in &report.outcomes {
        for (index, figure) in outcome.figures.iter().enumerate() {
            row(&mut out, outcome, figure, index == 0);
        }
    }
    out.push_str("</tbody>\n</table>\n<ul class=\"notes\">\n");
    let notes = report.outcomes.iter().flat_map(|outcome| {
        outcome.notes.iter().map(move |note| format!("<b>{}</b>: {}", outcome.name, escape(note)))
    });
    let skipped = report
        .skipped
        .iter()
        .map(|(name, why)| format!("<b>{name}</b> did not run: {}", escape(why)));
    for note in
        notes.chain(skipped).chain(report.general_notes(true).iter().map(|note| escape(note)))
    {
        let _infallible = writeln!(out, "<li>{note}</li>");
    }
    out.push_str("</ul>\n</section>\n");
    out
}

fn row(out: &mut String, outcome: &Outcome, figure: &Figure, first: bool) {
    let unit = figure.unit;
    let peer = |peer: Option<f64>, cores: u32| {
        peer.map_or_else(String::new, |peer| {
            let cores = if cores > 1 { format!(" on {cores} cores") } else { String::new() };
            let ratio = words::short(figure.target.ratio(figure.value, peer));
            format!("{}{cores}<br><span class=\"ratio\">{ratio}×</span>", escape(&unit.show(peer)))
        })
    };
    let bound = |bound: Option<f64>| {
        bound.map_or_else(String::new, |bound| {
            let (class, word) = match outcome.mark(figure, bound) {
                Mark::Reached => ("yes", "✓"),
                Mark::Missed => ("no", "✗"),
                Mark::NotComparable => return String::new(),
            };
            format!("{} <span class=\"{class}\">{word}</span>", escape(&unit.show(bound)))
        })
    };
    let latency =
        outcome.measurement.as_ref().filter(|_| first).map(|measured| measured.tally.latency());
    let quantile = |pick: fn(crate::Latency) -> std::time::Duration| {
        latency.map_or_else(String::new, |latency| words::duration(pick(latency)))
    };
    let name = if first { outcome.name } else { "" };
    let what =
        if first { format!("{}: {}", outcome.title, figure.what) } else { figure.what.clone() };
    let class = if first { "first" } else { "more" };
    let target = figure.target;
    let cells = [
        ("FoundationDB's guide", peer(target.published, target.published_cores)),
        ("FoundationDB", peer(target.foundationdb, 1)),
        ("required", bound(target.required)),
        ("goal", bound(target.goal)),
        ("p50", quantile(|latency| latency.p50)),
        ("p99", quantile(|latency| latency.p99)),
    ];
    let _infallible = write!(
        out,
        "<tr class=\"{class}\"><th>{}</th><td class=\"what\">{}</td><td class=\"value\">{}</td>",
        escape(name),
        escape(&what),
        escape(&unit.show(figure.value)),
    );
    for (label, text) in cells {
        let empty = if text.is_empty() { " class=\"empty\"" } else { "" };
        let _infallible = write!(out, "<td data-label=\"{label}\"{empty}>{text}</td>");
    }
    out.push_str("</tr>\n");
}
