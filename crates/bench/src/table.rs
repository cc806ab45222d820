//! The report as a table: for a terminal with colours, for a file without, for a document in
//! Markdown.
//!
//! A row is made of cells once; the styles differ in how cells are joined and dressed. Widths are
//! counted in characters of the bare text, so that colours don't move columns.

use crate::outcome::{Figure, Mark, Outcome};
use crate::words;
use std::fmt::Write;

/// How a table is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Aligned columns.
    Plain,
    /// Aligned columns, what was reached in green and what was missed in red.
    Colours,
    /// A Markdown table.
    Markdown,
}

const HEADINGS: [&str; 12] = [
    "workload",
    "what it does",
    "Plinth",
    "FoundationDB's guide",
    "ratio",
    "FoundationDB",
    "ratio",
    "required",
    "goal",
    "p50",
    "p99",
    "p99.9",
];
/// The columns before this one hold words, the others figures.
const WORDS: usize = 2;

#[derive(Clone, Default)]
struct Cell {
    text: String,
    mark: Option<Mark>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, mark: None }
    }
}

/// The columns of [`brief`].
const BRIEF: [usize; 8] = [1, 2, 3, 4, 5, 6, 9, 10];

/// The table of these outcomes.
pub fn render(outcomes: &[Outcome], style: Style) -> String {
    let mut rows = vec![HEADINGS.map(|heading| Cell::from(heading.to_owned())).to_vec()];
    for outcome in outcomes {
        rows.extend(
            outcome
                .figures
                .iter()
                .enumerate()
                .map(|(index, figure)| row(outcome, figure, index == 0)),
        );
    }
    lay_out(&rows, WORDS, style)
}

/// The first figure of each outcome, beside what others have, without our own requirements.
pub fn brief(outcomes: &[Outcome], style: Style) -> String {
    let headings = BRIEF.map(|column| Cell::from(HEADINGS[column].to_owned())).to_vec();
    let figures =
        outcomes.iter().filter_map(|outcome| Some(row(outcome, outcome.figures.first()?, true)));
    let rows: Vec<Vec<Cell>> = std::iter::once(headings)
        .chain(figures.map(|row| BRIEF.map(|column| row[column].clone()).to_vec()))
        .collect();
    lay_out(&rows, WORDS - 1, style)
}

fn lay_out(rows: &[Vec<Cell>], words: usize, style: Style) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].text.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        line(&mut text, row, &widths, words, style);
        if index == 0 && style == Style::Markdown {
            rule(&mut text, &widths, words);
        }
    }
    text
}

fn row(outcome: &Outcome, figure: &Figure, first: bool) -> Vec<Cell> {
    let unit = figure.unit;
    let ratio = |peer: Option<f64>| {
        peer.map_or_else(String::new, |peer| {
            format!("{}×", words::short(figure.target.ratio(figure.value, peer)))
        })
    };
    let peer = |peer: Option<f64>| peer.map_or_else(String::new, |peer| unit.show(peer)).into();
    let published = match figure.target.published {
        // A cluster's figure is no core's.
        Some(published) if figure.target.published_cores > 1 => {
            format!("{} ({} cores)", unit.show(published), figure.target.published_cores).into()
        }
        published => peer(published),
    };
    let bound = |bound: Option<f64>| {
        let Some(bound) = bound else { return Cell::default() };
        let mark = outcome.mark(figure, bound);
        let word = match mark {
            Mark::Reached => " yes",
            Mark::Missed => " NO",
            // A bound for another set-up tells nothing of this one.
            Mark::NotComparable => return Cell::default(),
        };
        Cell { text: unit.show(bound) + word, mark: Some(mark) }
    };
    let latency =
        outcome.measurement.as_ref().filter(|_| first).map(|measured| measured.tally.latency());
    let quantile = |pick: fn(crate::Latency) -> std::time::Duration| {
        latency.map_or_else(String::new, |latency| words::duration(pick(latency))).into()
    };
    let name = if first { outcome.name } else { "" };
    let what =
        if first { format!("{}: {}", outcome.title, figure.what) } else { figure.what.clone() };
    vec![
        name.to_owned().into(),
        what.into(),
        unit.show(figure.value).into(),
        published,
        ratio(figure.target.published).into(),
        peer(figure.target.foundationdb),
        ratio(figure.target.foundationdb).into(),
        bound(figure.target.required),
        bound(figure.target.goal),
        quantile(|latency| latency.p50),
        quantile(|latency| latency.p99),
        quantile(|latency| latency.p999),
    ]
}

fn line(out: &mut String, row: &[Cell], widths: &[usize], words: usize, style: Style) {
    let mut text = String::new();
    for (column, (cell, &width)) in row.iter().zip(widths).enumerate() {
        let space = " ".repeat(width - cell.text.chars().count());
        let (before, after) =
            if column < words { ("", space.as_str()) } else { (space.as_str(), "") };
        let (on, off) = match (style, cell.mark) {
            (Style::Colours, Some(Mark::Reached)) => ("\x1b[32m", "\x1b[0m"),
            (Style::Colours, Some(Mark::Missed)) => ("\x1b[31m", "\x1b[0m"),
            _ => ("", ""),
        };
        let edge = if style == Style::Markdown { "| " } else { "" };
        let gap = if style == Style::Markdown { " " } else { "  " };
        let _infallible = write!(text, "{edge}{before}{on}{}{off}{after}{gap}", cell.text);
    }
    if style == Style::Markdown {
        text.push('|');
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

fn rule(out: &mut String, widths: &[usize], words: usize) {
    for (column, &width) in widths.iter().enumerate() {
        let end = if column < words { "-" } else { ":" };
        let _infallible = write!(out, "|{}{end}", "-".repeat(width + 1));
    }
    out.push_str("|\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{self, Target};
    use crate::unit::Unit;

    fn outcomes() -> Vec<Outcome> {
        let figure =
            |value| Figure::new("writes/s", value, Unit::PerSecond("writes"), figures::WRITE_1);
        let mut first =
            Outcome::new("write1", "1 client, 1 write".to_owned(), figure(5_000.0), None);
        let syncs =
            Figure::new("mean commit, in fdatasyncs", 1.2, Unit::Times, figures::WRITE_1_SYNCS);
        first.figures.push(syncs);
        let other = Figure::new("keys/s", 1.0, Unit::Part, Target::NONE);
        vec![first, Outcome::new("x", "y".to_owned(), other, None)]
    }

    #[test]
    fn columns_line_up_and_verdicts_stand_beside_their_bounds() {
        let text = render(&outcomes(), Style::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        let at = |line: &str, word: &str| {
            line.chars().count() - line.split(word).nth(1).unwrap().chars().count()
        };
        assert_eq!(at(lines[0], "required"), at(lines[1], "4,425 yes"));
        assert_eq!(at(lines[0], "goal"), at(lines[1], "7,080 NO"));
        assert!(
            lines[1].contains("5.65×")
                && lines[2].contains("2.00× yes")
                && lines[2].contains("1.50× yes")
        );
        assert!(lines[3].contains("100 %") && !lines[3].contains("yes"));
        assert!(!text.contains('\x1b') && text.lines().all(|line| !line.ends_with(' ')));
    }

    #[test]
    fn colours_and_markdown_change_the_dress_and_not_the_figures() {
        let coloured = render(&outcomes(), Style::Colours);
        assert!(
            coloured.contains("\x1b[32m4,425 yes\x1b[0m")
                && coloured.contains("\x1b[31m7,080 NO\x1b[0m")
        );
        let markdown = render(&outcomes(), Style::Markdown);
        assert!(
            markdown.lines().all(|line| line.matches('|').count() == HEADINGS.len() + 1),
            "{markdown}"
        );
    }

    #[test]
    fn the_brief_table_leaves_out_what_we_ask_of_ourselves() {
        let text = brief(&outcomes(), Style::Plain);
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.contains("5.65×") && text.contains("917") && !text.contains("4,425"),
            "{text}"
        );
    }

    #[test]
    fn another_set_up_is_not_judged() {
        let mut outcomes = outcomes();
        outcomes[0].comparable = false;
        let text = render(&outcomes, Style::Plain);
        assert!(!text.contains("4,425") && !text.contains("yes") && !text.contains("NO"));
    }
}
