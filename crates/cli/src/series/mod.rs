//! `plinth series`: points of time series into a database and out of it, and what is there.
//!
//! A directory is opened by this process alone, which then owns its series; behind a server the
//! series stay their owner's: they are looked at, and points that are imported are written in
//! transactions, for the owner to take in.
//!
//! Files of rules, and of what is to be scraped, are looked at without any database.
//!
//! An import takes every line that makes sense and tells of each other one by its number. What it
//! was told is taken is committed; run again, it puts no point there twice.

mod delete;
mod export;
mod import;
mod plot;
mod query;
mod rollup;
mod rules;
mod scrape;

use crate::failure::{Failure, tell};
use crate::target::{Open, Target};
use crate::terminal;
use crate::token;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::series::dump::Form;
use plinth::series::{
    Error, Name, Series, SeriesLayer, SeriesStore, Settings, Summary, Value, time,
};
use plinth::{Database, block_on};
use plinth_bench::words::{duration, grouped};
use plinth_env::Env;
use plinth_server::is_of_a_server;
use std::path::PathBuf;
use std::time::Duration;

/// The command line of `plinth series`.
pub fn command() -> Command {
    let about =
        "Time series: what there is, points from files and into them, a plot in the terminal";
    Command::new("series")
        .about(about)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(
            "SERIES is a metric and tags, as in: cpu.user host=a. With fewer tags than a series has, or with the metric alone,\n\
             it stands for all series that have them. TIME is 20260101T120000, 2026-01-01T12:00:00Z, now-1h,\n\
             or since 1970: 1767268800.5 or 1767268800s; digits alone are seconds, milliseconds, microseconds\n\
             or nanoseconds by their size.\n\n\
             Examples:\n  plinth series import --dir ./shop --create points.csv\n  plinth series list --dir ./shop cpu.user\n  \
             plinth series export --cluster-file ./shop/fdb.cluster --format influx > points.lp\n  \
             plinth series plot --dir ./shop cpu.user host=a\n  \
             plinth series query --dir ./shop --from now-1h 'sum by (host) (rate(requests[5m]))'\n  \
             plinth series delete --dir ./shop --to 20260101T000000 cpu.user\n  \
             plinth series rollup add --dir ./shop 'cpu.*' --every 5m --keep 2y --raw 30d",
        )
        .subcommands([
            place(Command::new("list").about("The names of series, one a line")).arg(own()).arg(selector(false)),
            range(place(Command::new("describe").about("How many points series have, from when to when, and of what size")))
                .arg(selector(true)),
            range(place(Command::new("plot").about("Draws a series in the terminal")))
                .args([size("width", "72", 10..=1000), size("height", "16", 2..=200)])
                .arg(selector(true)),
            query::command(range(place(Command::new("query").about("Answers an expression of PromQL"))))
                .args([size("width", "72", 10..=1000), size("height", "16", 2..=200)]),
            range(place(Command::new("export").about("Writes points, to standard output or a file")))
                .arg(format(&FORMATS).default_value("csv"))
                .arg(Arg::new("out").long("out").value_name("FILE").value_parser(value_parser!(PathBuf)).help("The file; it must not exist"))
                .arg(own())
                .arg(selector(false)),
            range(place(Command::new("delete").about("Deletes series, or points of them, from a directory")))
                .arg(Arg::new("yes").long("yes").action(ArgAction::SetTrue).help("Deletes them; without it only says which"))
                .arg(selector(true)),
            place(Command::new("import").about("Takes in points from files"))
                .arg(format(&FORMATS[..4]))
                .arg(Arg::new("create").long("create").action(ArgAction::SetTrue).requires("dir").help("Makes the database if there is none"))
                .arg(
                    Arg::new("file")
                        .value_name("FILE")
                        .num_args(1..)
                        .required(true)
                        .help("The files, one after the other; - is standard input"),
                ),
            rollup::command(place),
            rollup::retention_command(place),
            rules::command(),
            scrape::command(),
        ])
}

fn place(command: Command) -> Command {
    let path = |name: &'static str, value: &'static str| {
        Arg::new(name).long(name).value_name(value).value_parser(value_parser!(PathBuf))
    };
    let prefix = Arg::new("series-prefix")
        .long("series-prefix")
        .value_name("KEY")
        .value_parser(prefix_of_series)
        .help("What the keys of series begin with, if servers are told so");
    command.arg(path("dir", "DIR").help("The database in this directory")).arg(
        path("cluster-file", "FILE")
            .conflicts_with("dir")
            .help("The database of a server, by its cluster file, or fdb:CLUSTER_FILE for FoundationDB's [default: FDB_CLUSTER_FILE, ./fdb.cluster]"),
    )
    .arg(prefix)
}

/// A prefix of users' keys, written with escapes.
pub fn prefix_of_series(text: &str) -> Result<Vec<u8>, String> {
    let prefix = plinth::printable::parse(text).map_err(|error| error.to_string())?;
    match prefix.first() {
        None => Err("a prefix has a byte at least".to_owned()),
        Some(0xff) => Err("a prefix of users' keys is below \\xff".to_owned()),
        Some(_) => Ok(prefix.to_vec()),
    }
}

fn range(command: Command) -> Command {
    let end = |name: &'static str| {
        let parser = |text: &str| moment(text).ok_or(format!("write {}", time::FORMS));
        Arg::new(name)
            .long(name)
            .value_name("TIME")
            .allow_negative_numbers(true)
            .value_parser(parser)
    };
    command
        .args([end("from").help("The first moment"), end("to").help("The moment behind the last")])
}

fn selector(is_required: bool) -> Arg {
    Arg::new("series")
        .value_name("SERIES")
        .num_args(1..)
        .required(is_required)
        .help("Which series [default: all]")
}

fn own() -> Arg {
    Arg::new("own")
        .long("own")
        .action(ArgAction::SetTrue)
        .help("With what servers record of themselves (plinth_*, process_*), which is left out unless it is named")
}

/// The formats of files by name: all may be written, and all but the last read.
const FORMATS: [(&str, Format); 5] = [
    ("resp", Format::Text(Form::Resp)),
    ("csv", Format::Text(Form::Csv)),
    ("influx", Format::Text(Form::Influx)),
    ("parquet", Format::Parquet),
    ("arrow", Format::Arrow),
];

/// A format of files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text(Form),
    Parquet,
    Arrow,
}

impl Format {
    /// The one that the options choose, if this program has it.
    fn chosen(options: &ArgMatches) -> Result<Option<Self>, Failure> {
        let name = options.get_one::<String>("format");
        let found = name.and_then(|name| FORMATS.iter().find(|(known, _)| known == name));
        found.map(|(_, format)| format.available()).transpose()
    }

    /// Itself, if this program was built with what it takes.
    fn available(self) -> Result<Self, Failure> {
        let missing = match self {
            Self::Parquet if !cfg!(feature = "parquet") => ("Parquet", "parquet"),
            Self::Arrow if !cfg!(feature = "arrow") => ("Arrow", "arrow"),
            _ => return Ok(self),
        };
        let (name, feature) = missing;
        Err(Failure::new(format!(
            "this program was built without {name}: build it with the feature `{feature}` (cargo build --release -p plinth-cli --features {feature})"
        )))
    }
}

fn format(formats: &[(&'static str, Format)]) -> Arg {
    Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(formats.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        .help("resp (Akumuli's protocol), csv (series,time,value), influx (InfluxDB's line protocol), or a table of other programs")
}

fn size(name: &'static str, default: &'static str, range: std::ops::RangeInclusive<u64>) -> Arg {
    let parser = value_parser!(u64).range(range);
    Arg::new(name)
        .long(name)
        .value_name("N")
        .default_value(default)
        .value_parser(parser)
        .help("In characters")
}

fn moment(text: &str) -> Option<i64> {
    // A date without its strokes would be seconds of 1970, and a delete up to there another one.
    if text.len() == 8 && time::parse_iso(format!("{text}T000000").as_bytes()).is_some() {
        return None;
    }
    let now = i64::try_from(Env::real().wall_clock().as_nanos()).ok();
    time::parse_moment(text, now)
}

/// A moment as people read it.
fn shown(time: i64) -> String {
    let mut text = Vec::new();
    time::write_iso(time, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let Some((command, options)) = options.subcommand() else {
        return Err(Failure::usage("there is no such command; see plinth series --help"));
    };
    if command == "rules" {
        return rules::run(options);
    }
    if command == "scrape" {
        return scrape::run(options);
    }
    // Of commands that have commands, the place is the inner one's.
    let of_place = match command {
        "rollup" => options.subcommand().map_or(options, |(_, options)| options),
        _ => options,
    };
    let place = Place::open(of_place, command == "import")?;
    let code = match command {
        "rollup" => rollup::run(&place, options)?,
        "retention" => rollup::run_retention(&place, options)?,
        "import" => import::run(&place, options)?,
        "export" => export::run(&place, options)?,
        "list" => list(&place, options)?,
        "describe" => describe(&place, options)?,
        "delete" => delete::run(&place, options)?,
        "query" => query::run(&place, options)?,
        _ => plot::run(&place, options)?,
    };
    let name = place.name.clone();
    place.opened.close().map_err(|error| Failure::of(format!("cannot close {name}"), error))?;
    Ok(code)
}

/// A database with series.
struct Place {
    database: Database,
    opened: Open,
    name: String,
    /// Whether no other process has it.
    is_ours: bool,
    /// Where its series are, if not where they usually are.
    prefix: Option<Vec<u8>>,
}

impl Place {
    /// The one that the options name; `create` is an option of `import` alone.
    fn open(options: &ArgMatches, is_import: bool) -> Result<Self, Failure> {
        let may_make = is_import && options.get_flag("create");
        let dir = options.get_one::<PathBuf>("dir");
        let file = options.get_one::<PathBuf>("cluster-file");
        let target = match dir {
            Some(dir) => Target::Directory(dir.clone()),
            None => {
                Target::of_cluster_file(file).map_err(|error| Failure::usage(error.to_string()))?
            }
        };
        let name = match &target {
            Target::Directory(path) | Target::ClusterFile(path) if path.as_os_str().is_empty() => {
                let _ = path;
                "the database that the cluster file names".to_owned()
            }
            Target::Directory(path) | Target::ClusterFile(path) => path.display().to_string(),
            Target::Foundation(target) => target.to_string(),
        };
        let opened = target.open(!may_make).map_err(|error| match dir {
            _ if token::is_of_it(&error) => Failure::of("cannot show a token", error),
            None if file.is_none() => {
                Failure::of("no --dir DIR and no --cluster-file FILE is given", error)
            }
            Some(_) if is_import && !may_make => Failure::opening_what_is_there(&name, &error),
            _ => Failure::opening(&name, &error),
        })?;
        let prefix = options.get_one::<Vec<u8>>("series-prefix").cloned();
        Ok(Self { database: opened.database.clone(), opened, name, is_ours: dir.is_some(), prefix })
    }

    fn layer(&self) -> SeriesLayer {
        let settings = Settings { prefix: self.prefix.clone(), ..Settings::default() };
        SeriesLayer::with_settings(&self.database, settings)
    }

    /// Its series, to be read; to be written too where nobody else has them.
    fn store(&self) -> Result<SeriesStore, Failure> {
        let layer = self.layer();
        let opened =
            block_on(async { if self.is_ours { layer.open().await } else { layer.view().await } });
        opened.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: Error) -> Failure {
        Failure::of(&self.name, error)
    }

    /// Calls `each` for every series that the options select.
    fn each(
        &self,
        store: &SeriesStore,
        options: &ArgMatches,
        mut each: impl FnMut(&Series) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let words: Vec<String> =
            options.get_many::<String>("series").into_iter().flatten().cloned().collect();
        let selected = words.join(" ");
        let (metric, tags) = filter(&selected)?;
        let metric = (!metric.is_empty()).then_some(metric.as_str());
        let (mut from, mut count) = (0, 0);
        loop {
            let (series, next) =
                block_on(store.browse(metric, &tags, from)).map_err(|error| self.failed(error))?;
            for series in &series {
                count += 1;
                each(series)?;
            }
            match next {
                Some(next) => from = next,
                None if count == 0 && metric.is_some() => {
                    return Err(Failure::new(format!("{} has no series {selected}", self.name)));
                }
                None => return Ok(count),
            }
        }
    }
}

/// A metric and the tags that series have to have.
type Filter = (String, Vec<(String, Vec<String>)>);

fn filter(text: &str) -> Result<Filter, Failure> {
    if text.contains('=') {
        let name = Name::parse(text).map_err(|error| Failure::usage(error.to_string()))?;
        let tags =
            name.tags().map(|(tag, value)| (tag.to_owned(), vec![value.to_owned()])).collect();
        return Ok((name.metric().to_owned(), tags));
    }
    if text.trim().contains(' ') {
        return Err(Failure::usage(format!(
            "{text}: a metric and tags such as host=a are expected"
        )));
    }
    Ok((text.trim().to_owned(), Vec::new()))
}

/// The range of times that the options name.
fn times(options: &ArgMatches) -> (std::ops::Bound<i64>, std::ops::Bound<i64>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let end = |name| options.get_one::<i64>(name).copied();
    (end("from").map_or(Unbounded, Included), end("to").map_or(Unbounded, Excluded))
}

/// What servers record of themselves, among series that the options select: it is nothing that
/// their user has sent, so it is left out unless he asks for it.
struct Own {
    are_wanted: bool,
    left_out: u64,
}

impl Own {
    /// They are wanted where the options say so, or name series.
    fn of(options: &ArgMatches) -> Self {
        let are_wanted = options.get_flag("own") || options.contains_id("series");
        Self { are_wanted, left_out: 0 }
    }

    /// Whether a series is passed over.
    fn leaves_out(&mut self, series: &Series) -> bool {
        let is_left_out = !self.are_wanted && is_of_a_server(series.name());
        self.left_out += u64::from(is_left_out);
        is_left_out
    }

    /// Says how many were, if any.
    fn tell(&self) {
        if self.left_out > 0 {
            let (count, are) = (self.left_out, if self.left_out == 1 { "is" } else { "are" });
            tell(format_args!(
                "{} series of what servers record of themselves {are} left out; --own has them, too",
                grouped(count)
            ));
        }
    }
}

fn list(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    // What a server records of itself comes behind what its user sent.
    let (mut own, mut behind) = (Own::of(options), Vec::new());
    place.each(&place.store()?, options, |series| {
        if own.leaves_out(series) {
            return Ok(());
        }
        let line = format!("{}\n", series.name());
        if is_of_a_server(series.name()) {
            behind.push(line);
            return Ok(());
        }
        terminal::print(&line)
    })?;
    behind.iter().try_for_each(|line| terminal::print(line))?;
    own.tell();
    Ok(0)
}

fn describe(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    place.each(&place.store()?, options, |series| {
        let summary =
            block_on(series.aggregate(times(options))).map_err(|error| place.failed(error))?;
        let text = summary.map_or_else(|| "no points\n".to_owned(), |summary| described(&summary));
        terminal::print(&format!("{}\n{text}\n", series.name()))
    })?;
    Ok(0)
}

fn described(summary: &Summary) -> String {
    let at = |value: Value, time: i64| format!("{} at {}", number(value), shown(time));
    let span = summary.last.time.abs_diff(summary.first.time);
    let mut lines = vec![
        format!("points       {}", grouped(summary.count)),
        format!("first        {}", at(summary.first.value, summary.first.time)),
        format!("last         {}", at(summary.last.value, summary.last.time)),
        format!("span         {}", duration(Duration::from_nanos(span))),
    ];
    if let (Some(least), Some(greatest)) = (summary.min, summary.max) {
        lines.push(format!("least        {}", at(least.value, least.time)));
        lines.push(format!("greatest     {}", at(greatest.value, greatest.time)));
        lines.push(format!("mean         {}", summary.mean()));
    }
    if summary.numbers < summary.count {
        lines.push(format!("not numbers  {}", grouped(summary.count - summary.numbers)));
    }
    lines.join("\n") + "\n"
}

fn number(value: Value) -> String {
    match value {
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
    }
}
