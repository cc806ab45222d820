//! `plinth series plot`: a series as characters. Each column is a part of the time, from its least
//! to its greatest value, with its mean in it.

use super::{Place, shown, times};
use crate::failure::Failure;
use crate::terminal;
use clap::ArgMatches;
use plinth::block_on;
use plinth::series::{Series, Summary, Value};
use std::fmt::Write as _;

const MEAN: char = '•';
const RANGE: char = '│';

/// What a column shows: least, mean and greatest value.
pub(super) type Column = Option<(f64, f64, f64)>;

/// Runs the command with these options.
pub fn run(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    let size = |name| options.get_one::<u64>(name).map_or(2, |size| *size as usize);
    let (width, height) = (size("width"), size("height"));
    place.each(&place.store()?, options, |series| {
        let text = plot(series, options, width, height).map_err(|error| place.failed(error))?;
        terminal::print(&format!("{}\n{text}\n", series.name()))
    })?;
    Ok(0)
}

fn plot(
    series: &Series,
    options: &ArgMatches,
    width: usize,
    height: usize,
) -> Result<String, plinth::series::Error> {
    block_on(async {
        let Some(summary) = series.aggregate(times(options)).await? else {
            return Ok("no points\n".to_owned());
        };
        let (first, last) = (summary.first.time, summary.last.time);
        let step = last.abs_diff(first) / width as u64 + 1;
        let mut columns: Vec<Column> = vec![None; width];
        let mut groups = series.group_aggregate(first..=last, step).await?;
        while let Some((begin, summary)) = groups.next().await? {
            let place = (begin.abs_diff(first) / step) as usize;
            columns[place.min(width - 1)] = column(&summary);
        }
        Ok(drawn(&columns, height, first, last))
    })
}

fn column(summary: &Summary) -> Column {
    let value = |value: Value| Some(value.as_f64()).filter(|value| value.is_finite());
    let (least, greatest) = (value(summary.min?.value)?, value(summary.max?.value)?);
    Some((least, summary.mean(), greatest)).filter(|(_, mean, _)| mean.is_finite())
}

pub(super) fn drawn(columns: &[Column], height: usize, first: i64, last: i64) -> String {
    let known = || columns.iter().flatten();
    let least = known().map(|(least, ..)| *least).fold(f64::INFINITY, f64::min);
    let greatest = known().map(|(_, _, greatest)| *greatest).fold(f64::NEG_INFINITY, f64::max);
    if known().next().is_none() {
        return "no numbers that could be drawn\n".to_owned();
    }
    // Halves, since their difference may be beyond all floats.
    let extent = greatest / 2.0 - least / 2.0;
    let row = |value: f64| match extent {
        0.0 => height / 2,
        _ => (((value / 2.0 - least / 2.0) / extent * (height - 1) as f64).round() as usize)
            .min(height - 1),
    };
    let labels = [format!("{greatest}"), format!("{least}")];
    let room = labels.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for line in (0..height).rev() {
        let label = match line {
            _ if line == height - 1 => labels[0].as_str(),
            0 => labels[1].as_str(),
            _ => "",
        };
        let cells: String = columns
            .iter()
            .map(|column| match column {
                Some((_, mean, _)) if row(*mean) == line => MEAN,
                Some((least, _, greatest)) if (row(*least)..=row(*greatest)).contains(&line) => {
                    RANGE
                }
                _ => ' ',
            })
            .collect();
        // A string takes whatever is written.
        let _ = writeln!(text, "{label:>room$} ┤{}", cells.trim_end());
    }
    let (first, last) = (shown(first), shown(last));
    let gap = columns.len().saturating_sub(first.len() + last.len()).max(1);
    let _ = writeln!(text, "{:room$} └{}", "", "─".repeat(columns.len()));
    let _ = writeln!(text, "{:room$}  {first}{}{last}", "", " ".repeat(gap));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_show_least_mean_and_greatest() {
        let columns = [Some((0.0, 0.5, 2.0)), None, Some((4.0, 4.0, 4.0)), Some((-4.0, 0.0, 4.0))];
        let text = drawn(&columns, 5, 0, 1);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..6],
            [" 4 ┤  •│", "   ┤│  │", "   ┤•  •", "   ┤   │", "-4 ┤   │", "   └────"]
        );
        assert!(lines[6].contains("19700101T000000"), "{text}");
    }

    #[test]
    fn odd_values_are_drawn_too() {
        assert_eq!(drawn(&[None], 3, 0, 0), "no numbers that could be drawn\n");
        assert!(drawn(&[Some((5.0, 5.0, 5.0))], 3, 0, 0).lines().nth(1).unwrap().ends_with(MEAN));
        let wide = drawn(&[Some((f64::MIN, 0.0, f64::MAX))], 3, i64::MIN, i64::MAX);
        assert_eq!(wide.matches(RANGE).count() + wide.matches(MEAN).count(), 3, "{wide}");
    }
}
