//! `plinth series delete`: series out of a database, or the points of a range of times.
//!
//! It says what it would delete unless it is told to do so. The series of a server are deleted by
//! the server, which has them in memory.

use super::{Place, times};
use crate::failure::Failure;
use crate::terminal;
use clap::ArgMatches;
use plinth::block_on;
use plinth_bench::words::grouped;
use std::ops::Bound::Unbounded;

/// Runs the command with these options.
pub fn run(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    if !place.is_ours {
        return Err(Failure::usage(
            "the series of a server are deleted over HTTP, where series-http is: \
             curl -X POST 'ADDRESS/api/v1/admin/tsdb/delete_series' --data-urlencode 'match[]=cpu.user{host=\"a\"}'",
        ));
    }
    let (store, range) = (place.store()?, times(options));
    let (is_whole, is_meant) = (range == (Unbounded, Unbounded), options.get_flag("yes"));
    let mut points = 0;
    let series = place.each(&store, options, |series| {
        let deleted = block_on(async {
            let summary = series.aggregate(range).await?;
            match (is_meant, is_whole) {
                (false, _) => {}
                (true, true) => store.delete(series).await?,
                (true, false) => series.delete_range(range).await?,
            }
            Ok(summary.map_or(0, |summary| summary.count))
        });
        let count = deleted.map_err(|error| place.failed(error))?;
        points += count;
        terminal::print(&format!("{}: {} points\n", series.name(), grouped(count)))
    })?;
    let (series, points) = (grouped(series), grouped(points));
    let what = if is_whole {
        format!("{series} series with {points} points")
    } else {
        format!("{points} points of {series} series")
    };
    match is_meant {
        true => terminal::print(&format!("{what} are deleted\n"))?,
        false => terminal::print(&format!("{what} would be deleted; --yes does so\n"))?,
    }
    Ok(0)
}
