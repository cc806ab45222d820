//! `plinth series query`: an expression of PromQL, answered in the terminal.
//!
//! It is evaluated in this process, over the series of a directory or over a server's as they are
//! now; what comes out is what the same request over HTTP would get. Without a range it is an
//! instant's values, a line each; with one, values of many steps, drawn or as CSV.

use super::{Place, moment, plot, shown};
use crate::failure::{Failure, tell};
use crate::terminal;
use clap::{Arg, ArgMatches, Command};
use plinth::block_on;
use plinth::series::{Labels, SeriesStore, prometheus};
use plinth_env::Env;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Series that are drawn at most: more make a terminal that nobody looks at.
const MOST_DRAWN: usize = 20;
const SECOND: i64 = 1_000_000_000;

/// The command line, but for where the series are.
pub fn command(command: Command) -> Command {
    let parser = |text: &str| moment(text).ok_or(format!("write {}", plinth::series::time::FORMS));
    command.args([
        Arg::new("at")
            .long("at")
            .value_name("TIME")
            .allow_negative_numbers(true)
            .value_parser(parser)
            .conflicts_with_all(["from", "to"])
            .help("The moment of the answer [default: now]"),
        Arg::new("step")
            .long("step")
            .value_name("SPAN")
            .requires("from")
            .help("From value to value, as in 30s or 5m [default: a column of the drawing]"),
        Arg::new("format")
            .long("format")
            .value_name("FORMAT")
            .value_parser(["text", "plot", "csv", "json"])
            .help("text, plot (of a range), csv (series,time,value) or json (Prometheus' answer) [default: plot with --from, else text]"),
        Arg::new("expression")
            .value_name("EXPRESSION")
            .required(true)
            .allow_hyphen_values(true)
            .help("PromQL, such as 'rate(http_requests_total[5m])', as one argument"),
    ])
}

/// Runs the command with these options.
pub fn run(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    let expression = options.get_one::<String>("expression").cloned().unwrap_or_default();
    let now = i64::try_from(Env::real().wall_clock().as_nanos()).unwrap_or(i64::MAX);
    let time = |name| options.get_one::<i64>(name).copied();
    let range = time("from").map(|from| (from, time("to").unwrap_or(now)));
    if time("to").is_some() && range.is_none() {
        return Err(Failure::usage("--to without --from: a range has a begin"));
    }
    let size = |name| options.get_one::<u64>(name).map_or(2, |size| *size as usize);
    let (width, height) = (size("width"), size("height"));
    let mut parameters = vec![("query", expression.clone())];
    let path = match range {
        None => {
            parameters.push(("time", seconds(time("at").unwrap_or(now))));
            "/api/v1/query"
        }
        Some((from, to)) => {
            let column = (to.saturating_sub(from) / width as i64 / SECOND).max(1);
            let step = options.get_one::<String>("step").cloned();
            parameters.push(("start", seconds(from)));
            parameters.push(("end", seconds(to)));
            parameters.push(("step", step.unwrap_or_else(|| format!("{column}s"))));
            "/api/v1/query_range"
        }
    };
    let store = place.store()?;
    let (_, text) = block_on(prometheus(&store, path, &[encoded(&parameters).as_bytes()], now));
    let answer: Json = serde_json::from_str(&text)
        .map_err(|error| Failure::of("cannot read the answer", error))?;
    if let Some(error) = answer["error"].as_str() {
        return Err(Failure::new(error));
    }
    for told in ["warnings", "infos"] {
        for said in answer[told].as_array().into_iter().flatten().filter_map(Json::as_str) {
            tell(said);
        }
    }
    let default = if range.is_some() { "plot" } else { "text" };
    let data = &answer["data"];
    let text = match options.get_one::<String>("format").map_or(default, String::as_str) {
        "json" => format!("{}\n", &*text),
        "csv" => csv(data),
        "plot" if range.is_none() => {
            return Err(Failure::usage("a plot is of a range: give --from, as in now-1h"));
        }
        _ if rows(data).iter().all(|(_, points)| points.is_empty()) => {
            nothing(&store, &expression, (time("at"), range, now))
        }
        "plot" => match range {
            Some((from, to)) => drawn(data, from, to, width, height),
            None => String::new(),
        },
        _ => lines(data),
    };
    terminal::print(&text)?;
    Ok(0)
}

/// Nanoseconds as seconds with all of their digits.
fn seconds(time: i64) -> String {
    format!("{}.{:09}", time.div_euclid(SECOND), time.rem_euclid(SECOND))
}

/// Parameters as a form has them.
fn encoded(parameters: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in parameters {
        let _ = write!(text, "{}{name}=", if text.is_empty() { "" } else { "&" });
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                    text.push(byte as char);
                }
                // A string takes whatever is written.
                _ => drop(write!(text, "%{byte:02X}")),
            }
        }
    }
    text
}

/// What an answer has: names and values at times, in seconds.
fn rows(data: &Json) -> Vec<(String, Vec<(f64, String)>)> {
    let point = |pair: &Json| {
        Some((
            pair[0].as_f64()?,
            pair[1].as_str().map_or_else(|| pair[1].to_string(), str::to_owned),
        ))
    };
    let result = &data["result"];
    if matches!(data["resultType"].as_str(), Some("scalar" | "string")) {
        return vec![(String::new(), point(result).into_iter().collect())];
    }
    let row = |series: &Json| {
        let points = match &series["values"] {
            Json::Array(values) => values.iter().filter_map(point).collect(),
            _ => point(&series["value"]).into_iter().collect(),
        };
        (selector(&series["metric"]), points)
    };
    result.as_array().into_iter().flatten().map(row).collect()
}

/// A series as PromQL selects it.
fn selector(metric: &Json) -> String {
    let labels = metric.as_object().into_iter().flatten();
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    labels.map(|(name, value)| (name.as_str(), text(value))).collect::<Labels>().selector()
}

/// Values behind the names of their series; of a range, the times before them.
fn lines(data: &Json) -> String {
    let rows = rows(data);
    let is_range = data["resultType"] == "matrix";
    let room = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, points) in &rows {
        if is_range {
            let _ = writeln!(text, "{name}");
        }
        for (time, value) in points {
            let _ = match (is_range, name.is_empty()) {
                (true, _) => writeln!(text, "  {}  {value}", shown(nanoseconds(*time))),
                (false, true) => writeln!(text, "{value}"),
                (false, false) => writeln!(text, "{name:room$}  {value}"),
            };
        }
    }
    text
}

/// What is told where no series has a value: where that was looked for, or that there is no such
/// metric at all.
fn nothing(
    store: &SeriesStore,
    expression: &str,
    (at, range, now): (Option<i64>, Option<(i64, i64)>, i64),
) -> String {
    let asked = |path: &str, name: &str, text: String| -> Json {
        let form = encoded(&[(name, text)]);
        let (_, answer) = block_on(prometheus(store, path, &[form.as_bytes()], now));
        serde_json::from_str(&answer).unwrap_or_default()
    };
    let mut text = String::new();
    let tree = asked("/api/v1/parse_query", "query", expression.to_owned());
    for metric in metrics(&tree["data"]) {
        let only: Labels = [("__name__", metric.clone())].into_iter().collect();
        let there = asked("/api/v1/series", "match[]", only.selector());
        if there["data"].as_array().is_some_and(Vec::is_empty) {
            let _ =
                writeln!(text, "there is no metric {metric}: `plinth series list` has the names");
        }
    }
    let (where_, how) = match (range, at) {
        (Some((from, to)), _) => {
            (format!("from {} to {}", shown(from), shown(to)), "--from and --to")
        }
        (None, Some(at)) => (format!("at {}", shown(at)), "--at"),
        (None, None) => (format!("now, at {}", shown(now)), "--at TIME"),
    };
    let _ = writeln!(
        text,
        "no series has a value {where_}, nor in the five minutes before; {how} says where to look"
    );
    text
}

/// The metrics that an expression names.
fn metrics(tree: &Json) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = vec![tree];
    while let Some(node) = rest.pop() {
        match node {
            Json::Object(fields) => {
                let is_selector = fields
                    .get("type")
                    .and_then(Json::as_str)
                    .is_some_and(|kind| kind == "vectorSelector" || kind == "matrixSelector");
                let name = fields.get("name").and_then(Json::as_str).filter(|_| is_selector);
                found.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
                rest.extend(fields.values());
            }
            Json::Array(nodes) => rest.extend(nodes),
            _ => {}
        }
    }
    found
}

fn nanoseconds(seconds: f64) -> i64 {
    // To the millisecond, as answers have them.
    (seconds * 1e3).round() as i64 * 1_000_000
}

fn csv(data: &Json) -> String {
    let mut text = "series,time,value\n".to_owned();
    for (name, points) in rows(data) {
        let name = if name.contains(['"', ',']) {
            format!("\"{}\"", name.replace('"', "\"\""))
        } else {
            name
        };
        for (time, value) in points {
            let _ = writeln!(text, "{name},{},{value}", shown(nanoseconds(time)));
        }
    }
    text
}

fn drawn(data: &Json, from: i64, to: i64, width: usize, height: usize) -> String {
    let rows = rows(data);
    let step = to.abs_diff(from) / width as u64 + 1;
    let mut text = String::new();
    for (name, points) in rows.iter().take(MOST_DRAWN) {
        let mut columns = vec![None; width];
        for (time, value) in points {
            let place = (nanoseconds(*time).abs_diff(from) / step) as usize;
            let value = value.parse().ok().filter(|value: &f64| value.is_finite());
            columns[place.min(width - 1)] = value.map(|value| (value, value, value));
        }
        let _ = writeln!(text, "{name}\n{}", plot::drawn(&columns, height, from, to));
    }
    if rows.len() > MOST_DRAWN {
        let left = rows.len() - MOST_DRAWN;
        let _ = writeln!(
            text,
            "and {left} more series; --format csv has all, topk(5, ..) the greatest"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_form_keeps_every_byte() {
        let text = "a{b=\"c&d+%\"} é";
        let form = encoded(&[("query", text.to_owned()), ("time", "1.5".to_owned())]);
        let pairs = plinth::series::form_pairs(form.as_bytes());
        assert_eq!(pairs, [("query".into(), text.into()), ("time".into(), "1.5".to_owned())]);
    }

    #[test]
    fn answers_are_told_as_promql_writes_series() {
        let vector = json!({"resultType": "vector", "result": [
            {"metric": {"__name__": "up", "job": "a,b"}, "value": [1.5, "1"]},
            {"metric": {"a.b": "\"q\""}, "value": [1.5, "+Inf"]},
            {"metric": {}, "value": [1.5, "NaN"]},
        ]});
        assert_eq!(
            lines(&vector),
            "up{job=\"a,b\"}    1\n{\"a.b\"=\"\\\"q\\\"\"}  +Inf\n{}               NaN\n"
        );
        let scalar = json!({"resultType": "scalar", "result": [7, "2"]});
        assert_eq!(lines(&scalar), "2\n");
        assert_eq!(csv(&scalar), "series,time,value\n,19700101T000007.000000000,2\n");
        let matrix = json!({"resultType": "matrix", "result": [
            {"metric": {"__name__": "up", "job": "a"}, "values": [[0, "1"], [1, "2"]]},
        ]});
        assert_eq!(
            csv(&matrix).lines().nth(2).unwrap(),
            "\"up{job=\"\"a\"\"}\",19700101T000001.000000000,2"
        );
        assert_eq!(drawn(&matrix, 0, 2 * SECOND, 10, 2).matches('•').count(), 2);
    }
}
