//! Series as text that can be taken in again, by Plinth and by others: what `plinth series export`
//! writes.
//!
//! Every number comes back with its type and all of its bits, the payload of a NaN aside: integers
//! have digits alone (in the line protocol an `i` behind them), floats always something else too.
//! Events are their texts; a line break in one becomes a blank.

pub use crate::cell::Cell;
use crate::event::Events;
use crate::ingest::{self, Clock, Protocol};
use crate::name::Name;
use crate::time::write_iso;
use crate::value::{Point, Points, Value};
use std::fmt::Write as _;

/// A form of text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Akumuli's protocol: three lines a point.
    Resp,
    /// `series,time,value`, a line each, with a heading.
    Csv,
    /// InfluxDB's line protocol. The metric `a.b.c` is the field `c` of `a.b`; one without a point
    /// gets the field `value`, and so comes back as another one.
    Influx,
}

impl Form {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("resp", Self::Resp), ("csv", Self::Csv), ("influx", Self::Influx)];

    /// What to give to a [`ingest::Session`] so that it reads this; `now` is the time of lines that
    /// have none.
    pub fn protocol(self, now: i64) -> Protocol {
        match self {
            Self::Resp => Protocol::Resp,
            Self::Csv => Protocol::Csv(now),
            Self::Influx => Protocol::Influx(Clock { unit: 1, now }),
        }
    }

    /// What stands before the first series.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Resp | Self::Influx => "",
            Self::Csv => ingest::CSV_HEADING,
        }
    }
}

/// Makes rows of a table of the points of one series: each point is one, or, of events, those that
/// belong together.
#[derive(Debug)]
pub struct Cells(Option<Events>);

impl Cells {
    /// For the points of this series.
    pub fn new(name: &Name) -> Self {
        Self(is_event(name).then(Events::default))
    }

    /// Takes the next point; they ascend. Gives a time and what is there, if that is whole.
    pub fn push(&mut self, point: Point) -> Option<(i64, Cell)> {
        match &mut self.0 {
            None => Some((point.time, Cell::Value(point.value))),
            Some(events) => events.push(point).map(|(time, text)| (time, Cell::Text(text))),
        }
    }
}

/// Writes the points of one series.
#[derive(Debug)]
pub struct Dump {
    form: Form,
    /// What each point begins with; for the line protocol, up to the value.
    head: String,
    cells: Cells,
    written: u64,
}

impl Dump {
    /// For the points of this series.
    pub fn new(form: Form, name: &Name) -> Self {
        let head = match form {
            Form::Resp => format!("+{name}\r\n"),
            Form::Csv => {
                let mut head = String::new();
                quoted(name.as_str(), &mut head);
                head + ","
            }
            Form::Influx => influx_head(name),
        };
        Self { form, head, cells: Cells::new(name), written: 0 }
    }

    /// Appends points, ascending, to `out`.
    pub fn points(&mut self, points: &Points, out: &mut String) {
        for point in points.iter() {
            match self.cells.push(point) {
                None => {}
                Some((time, Cell::Value(value))) => self.point(Point { time, value }, out),
                Some((time, Cell::Text(text))) => {
                    self.event(
                        time,
                        &String::from_utf8_lossy(&text).replace(['\r', '\n'], " "),
                        out,
                    );
                }
            }
        }
    }

    /// Points, or events, that were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn point(&mut self, point: Point, out: &mut String) {
        self.written += 1;
        out.push_str(&self.head);
        // A string takes whatever is written.
        let _ = match (self.form, point.value) {
            (Form::Resp, Value::Integer(value)) => write!(out, ":{}\r\n:{value}\r\n", point.time),
            (Form::Resp, Value::Float(value)) => write!(out, ":{}\r\n+{value:?}\r\n", point.time),
            (Form::Csv, Value::Integer(value)) => writeln!(out, "{},{value}", iso(point.time)),
            (Form::Csv, Value::Float(value)) => writeln!(out, "{},{value:?}", iso(point.time)),
            (Form::Influx, Value::Integer(value)) => writeln!(out, "{value}i {}", point.time),
            (Form::Influx, Value::Float(value)) => writeln!(out, "{value:?} {}", point.time),
        };
    }

    fn event(&mut self, time: i64, text: &str, out: &mut String) {
        self.written += 1;
        out.push_str(&self.head);
        match self.form {
            Form::Resp => out.extend([":", &time.to_string(), "\r\n+", text, "\r\n"]),
            Form::Csv => {
                out.extend([&iso(time), ","]);
                quoted(text, out);
                out.push('\n');
            }
            Form::Influx => {
                let text = text.replace('\\', "\\\\").replace('"', "\\\"");
                out.extend(["\"", &text, "\" ", &time.to_string(), "\n"]);
            }
        }
    }
}

fn is_event(name: &Name) -> bool {
    name.metric().starts_with('!')
}

fn iso(time: i64) -> String {
    let mut text = Vec::new();
    write_iso(time, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Appends a field of CSV.
fn quoted(text: &str, out: &mut String) {
    if text.contains([',', '"']) {
        out.extend(["\"", &text.replace('"', "\"\""), "\""]);
    } else {
        out.push_str(text);
    }
}

/// Measurement, tags, and the name of the field.
fn influx_head(name: &Name) -> String {
    // What has a meaning in the line protocol is escaped; blanks are already.
    let escaped = |text: &str| text.replace(',', "\\,").replace('=', "\\=");
    let metric = name.metric();
    let metric = metric.strip_prefix('!').unwrap_or(metric);
    let (measurement, field) = metric.rsplit_once('.').unwrap_or((metric, "value"));
    // Among fields a quotation mark begins a text.
    let field = field.replace('"', "\\\"");
    let tags: String =
        name.tags().map(|(tag, value)| format!(",{}={}", escaped(tag), escaped(value))).collect();
    format!("{}{tags} {}=", escaped(measurement), escaped(&field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::{Memory, Session};

    /// What a session makes of a text.
    fn read(form: Form, text: &str) -> Vec<(String, Point)> {
        let mut session = Session::new(form.protocol(0), 3, &Memory::default());
        let (mut at, mut found) = (0, Vec::new());
        loop {
            at += session.feed(&text.as_bytes()[at..]);
            found.extend(session.points().map(|(name, point)| (name.to_string(), point)));
            if !session.wants_save() {
                break;
            }
            session.discard();
        }
        session.discard();
        session.finish(&text.as_bytes()[at..]);
        found.extend(session.points().map(|(name, point)| (name.to_string(), point)));
        assert_eq!(String::from_utf8_lossy(session.replies()), "", "{text}");
        found
    }

    #[test]
    fn every_form_comes_back() {
        let values =
            [0.1, -0.0, 5.0, 1e16, 9_007_199_254_740_993.0, 1e300, 5e-324, f64::NAN, f64::INFINITY];
        let values = values.into_iter().map(Value::Float);
        let values = values
            .chain([0, -7, i64::MAX, i64::MIN].map(Value::Integer))
            .chain([f64::NEG_INFINITY.into()]);
        let times = [i64::MIN, -1].into_iter().chain((0..).map(|n| 1_700_000_000_000_000_000 + n));
        let points: Points = times.zip(values).map(|(time, value)| Point { time, value }).collect();
        let note: Vec<Point> = [
            (-5, "a, \"b\" \\ c"),
            (1_700_000_000_000_000_123, "d\u{e9}ployed"),
            (i64::MAX - 5000, ""),
        ]
        .into_iter()
        .flat_map(|(time, text)| crate::event::points(time, text.as_bytes()).unwrap())
        .collect();
        for (form_name, form) in Form::ALL {
            let (mut text, mut expected) = (form.heading().to_string(), Vec::new());
            for name in ["cpu.user host=a", "a.b\"c host=x,y\\ z os==", "!note.is who=me"] {
                let name = Name::parse(name).unwrap();
                let points =
                    if is_event(&name) { note.iter().copied().collect() } else { points.clone() };
                let mut dump = Dump::new(form, &name);
                dump.points(&points, &mut text);
                assert_eq!(dump.written(), if is_event(&name) { 3 } else { points.len() as u64 });
                expected.extend(points.iter().map(|point| (name.to_string(), point)));
            }
            assert_eq!(read(form, &text), expected, "{form_name}: {text}");
        }
    }
}
