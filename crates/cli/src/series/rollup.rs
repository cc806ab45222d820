//! `plinth series rollup` and `plinth series retention`: rules about what is kept, which are in the
//! database, and so a server's and a directory's alike.
//!
//! A directory's rollups are made here and now; a server makes those of its series in the
//! background.

use super::Place;
use crate::failure::Failure;
use crate::terminal;
use clap::{Arg, ArgAction, ArgMatches, Command};
use plinth::block_on;
use plinth::series::{Error, Keeping, Metrics, Retention, Rollup, SeriesStore, Settings, time};
use std::time::Duration;

/// The command line of `plinth series rollup`.
pub fn command(place: impl Fn(Command) -> Command) -> Command {
    let metrics = || {
        Arg::new("metrics")
            .value_name("METRICS")
            .required(true)
            .value_parser(metrics)
            .help("A metric, or cpu.* for all that begin so; * for all")
    };
    let add = Command::new("add")
        .about("Keeps buckets of the points of some metrics, also when the points go; said again it changes for how long")
        .arg(metrics())
        .arg(span("every", "The length of a bucket, by which a day can be divided").required(true))
        .arg(span("keep", "For how long buckets are kept [default: for ever]"))
        .arg(span(
            "raw",
            "For how long points are kept that are in buckets [default: as retention says]",
        ));
    let remove = Command::new("remove")
        .about("Removes rules, and the buckets that were kept by them")
        .arg(metrics())
        .arg(span("every", "Only the rule with buckets of this length"))
        .arg(
            Arg::new("yes")
                .long("yes")
                .action(ArgAction::SetTrue)
                .help("Needed where points may have gone of which these buckets are all there is"),
        );
    Command::new("rollup")
        .about("Rules of rollups: buckets of points that are kept when the points go")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([place(add), place(Command::new("list").about("The rules")), place(remove)])
}

/// The command line of `plinth series retention`.
pub fn retention_command(place: impl Fn(Command) -> Command) -> Command {
    let about = "For how long points are kept, in place of what servers were started with";
    place(Command::new("retention").about(about))
        .arg(
            Arg::new("rules")
                .value_name("RULES")
                .value_parser(|text: &str| text.parse::<Retention>().map(|_| text.to_owned()))
                .help("Such as cpu.*=30d,audit=forever,*=1y; the first that fits a metric counts. Without any it says which there are"),
        )
        .arg(
            Arg::new("unset")
                .long("unset")
                .action(ArgAction::SetTrue)
                .conflicts_with("rules")
                .help("Leaves it to what servers are started with"),
        )
}

fn metrics(text: &str) -> Result<Metrics, String> {
    Metrics::parse(text).ok_or_else(|| "a metric, or cpu.* for all that begin so".to_owned())
}

fn span(name: &'static str, help: &'static str) -> Arg {
    let parser = |text: &str| {
        let nanoseconds = time::duration(text).map(i64::unsigned_abs);
        nanoseconds.map(Duration::from_nanos).ok_or("a time such as 5m, 12h or 30d")
    };
    Arg::new(name).long(name).value_name("TIME").value_parser(parser).help(help)
}

/// Runs `plinth series rollup` with these options.
pub fn run(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    match options.subcommand() {
        Some(("add", options)) => add(place, options),
        Some(("remove", options)) => remove(place, options),
        _ => list(place),
    }
}

/// Runs `plinth series retention` with these options.
pub fn run_retention(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    let rules = options.get_one::<String>("rules");
    if rules.is_some() || options.get_flag("unset") {
        change(place, |keeping| {
            keeping.set_retention(rules.cloned());
            Ok(())
        })?;
    }
    let keeping = kept(place)?;
    let text = match keeping.retention() {
        Some(text) => format!("{text}\n"),
        None => "what servers are started with counts\n".to_owned(),
    };
    terminal::print(&text)?;
    Ok(0)
}

fn settings(place: &Place) -> Settings {
    Settings { prefix: place.prefix.clone(), ..Settings::default() }
}

fn kept(place: &Place) -> Result<Keeping, Failure> {
    block_on(SeriesStore::keeping(&place.database, &settings(place)))
        .map_err(|error| place.failed(error))
}

fn change<T>(
    place: &Place,
    change: impl FnMut(&mut Keeping) -> Result<T, String>,
) -> Result<T, Failure> {
    let settings = settings(place);
    block_on(SeriesStore::change_keeping(&place.database, &settings, change)).map_err(|error| {
        match &error {
            Error::Database(refused) if *refused == plinth::Error::client_invalid_operation() => {
                Failure::usage(refused.detail().unwrap_or("the rule was refused").to_owned())
            }
            _ => place.failed(error),
        }
    })
}

fn add(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    let time = |name| options.get_one::<Duration>(name).copied();
    let (Some(metrics), Some(every)) = (options.get_one::<Metrics>("metrics"), time("every"))
    else {
        return Err(Failure::usage("METRICS and --every TIME are needed"));
    };
    let rule =
        Rollup { keep: time("keep"), raw: time("raw"), ..Rollup::new(metrics.clone(), every) };
    change(place, |keeping| keeping.add(rule.clone()))?;
    terminal::print(&format!("{rule}\n"))?;
    make(place)
}

fn remove(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    let every = options.get_one::<Duration>("every").copied();
    let Some(metrics) = options.get_one::<Metrics>("metrics") else {
        return Err(Failure::usage("METRICS are needed"));
    };
    let is_sure = options.get_flag("yes");
    let removed = change(place, |keeping| {
        let removed = keeping.remove(metrics, every);
        let stands_for_points = removed.iter().find(|rule| rule.raw.is_some());
        match stands_for_points.filter(|_| !is_sure) {
            _ if removed.is_empty() => Err(format!("there is no such rule for {metrics}")),
            Some(rule) => Err(format!(
                "{rule}: points may have gone, of which its buckets are all there is; nothing was \
                 removed. To change for how long they are kept, `add` it again; --yes removes them"
            )),
            None => Ok(removed),
        }
    })?;
    for rule in removed {
        terminal::print(&format!("{rule}: removed\n"))?;
    }
    make(place)
}

/// Makes what rules ask for, where nobody else does.
fn make(place: &Place) -> Result<u8, Failure> {
    if place.is_ours {
        let store = place.store()?;
        block_on(store.roll_up()).map_err(|error| place.failed(error))?;
    } else {
        terminal::print("whoever owns the series does so in the background\n")?;
    }
    Ok(0)
}

fn list(place: &Place) -> Result<u8, Failure> {
    let keeping = kept(place)?;
    for rule in keeping.rollups() {
        terminal::print(&format!("{rule}\n"))?;
    }
    Ok(0)
}
