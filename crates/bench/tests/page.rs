//! The page and the pictures of a report: what they have to show, and that they are well-formed.
//!
//! Why it matters: the figures stand beside those that FoundationDB publishes, and a curve that is
//! missing, a published figure that stands nowhere or an axis without a unit is seen by nobody who
//! doesn't look for it. So the workloads of its pages run for an instant, and what is drawn is
//! compared with a list written down from those pages, not from our constants. None of the measured
//! figures means anything here.

use plinth_bench::curve::Curve;
use plinth_bench::{Bench, Progress, Provenance, Report, Settings, page, pictures, workloads};
use plinth_env::{Env, block_on};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a picture has to show.
struct Wanted {
    title: &'static str,
    /// Names of the axes, and how their ticks end.
    x: (&'static str, &'static [&'static str]),
    y: (&'static str, &'static [&'static str]),
    lines: &'static [&'static str],
    /// What is published, in the words at its mark.
    published: &'static [&'static str],
}

const RATE: &[&str] = &["", " k", " M"];
const TIME: &[&str] = &[" ns", " µs", " ms", " s"];
const PERCENT: &[&str] = &[" %"];
const OURS: &[&str] = &["Plinth"];
const WHOLE: &str = "whole transaction";

const WANTED: [Wanted; 16] = [
    Wanted {
        title: "12-machine write test, over time",
        x: ("time", TIME),
        y: ("writes a second", RATE),
        lines: OURS,
        published: &["guide, 48 cores: 720 k"],
    },
    Wanted {
        title: "12-machine read test, over time",
        x: ("time", TIME),
        y: ("reads a second", RATE),
        lines: OURS,
        published: &["guide, 48 cores: 5.54 M"],
    },
    Wanted {
        title: "12-machine 90/10 test, over time",
        x: ("time", TIME),
        y: ("operations a second", RATE),
        lines: OURS,
        published: &["guide, 48 cores: 2.39 M"],
    },
    Wanted {
        title: "Throughput from reads to writes",
        x: ("share of writes", PERCENT),
        y: ("operations a second", RATE),
        lines: OURS,
        published: &["guide, reads (memory): 90.0 k", "guide, writes (memory): 35.0 k"],
    },
    Wanted {
        title: "Throughput by concurrency, 90/10",
        x: ("operations outstanding", RATE),
        y: ("operations a second", RATE),
        lines: OURS,
        published: &["guide, 1 core: 107 k"],
    },
    Wanted {
        title: "Latency by concurrency, 90/10",
        x: ("operations outstanding", RATE),
        y: ("mean time of a transaction", TIME),
        lines: OURS,
        published: &[],
    },
    Wanted {
        title: "Latency of each part by load, 90/10",
        x: ("percent of load", PERCENT),
        y: ("mean latency", TIME),
        lines: &["start", "read", "commit"],
        published: &["guide, start and read: 1 ms", "guide, commit: 2.50 ms"],
    },
    Wanted {
        title: "90/10 on ten random keys, over time",
        x: ("time", TIME),
        y: ("operations a second", RATE),
        lines: OURS,
        published: &["guide, steady, 96 cores: 890 k", "guide, burst, 96 cores: 1.45 M"],
    },
    Wanted {
        title: "50/50 on ten random keys, over time",
        x: ("time", TIME),
        y: ("operations a second", RATE),
        lines: OURS,
        published: &["guide, steady, 96 cores: 235 k", "guide, burst, 96 cores: 380 k"],
    },
    Wanted {
        title: "Cached reads, over time",
        x: ("time", TIME),
        y: ("reads a second", RATE),
        lines: OURS,
        published: &["guide, 96 cores: 3.75 M"],
    },
    Wanted {
        title: "Range reads by size",
        x: ("keys in a range", RATE),
        y: ("keys a second", RATE),
        lines: OURS,
        published: &["guide, 96 cores: 26.0 M"],
    },
    Wanted {
        title: "Writes of 140 adjacent keys, over time",
        x: ("time", TIME),
        y: ("writes a second", RATE),
        lines: OURS,
        published: &["guide, 96 cores: 1.50 M"],
    },
    Wanted {
        title: "Bulk load",
        x: ("rows loaded", RATE),
        y: ("rows a second", RATE),
        lines: OURS,
        published: &["guide, 96 cores: 1.39 M"],
    },
    Wanted {
        title: "Mean latency by load, 1 read",
        x: ("percent of load", PERCENT),
        y: ("mean latency", TIME),
        lines: &["read", WHOLE],
        published: &["guide, read: 1 ms"],
    },
    Wanted {
        title: "Mean latency by load, 5 reads and 5 writes",
        x: ("percent of load", PERCENT),
        y: ("mean latency", TIME),
        lines: &["commit", WHOLE],
        published: &["guide, commit: 10.0 ms"],
    },
    Wanted {
        title: "Mean latency by load, 20% with 5 writes, 80% reads",
        x: ("percent of load", PERCENT),
        y: ("mean latency", TIME),
        lines: &[WHOLE],
        published: &["guide, whole transaction: 10.0 ms"],
    },
];

/// What the table has of the benchmarking guide besides, whose tests have no curve.
const IN_TABLE: [(&str, &str); 6] = [
    ("write1", "917"),
    ("write2", "8,650"),
    ("write3", "46.0 k"),
    ("read", "305 k"),
    ("90-10", "107 k"),
    ("range", "3.60 M"),
];

/// A report of all that FoundationDB's pages have, each measured for an instant.
fn report() -> Report {
    let directory = block_on(Env::real().files().temporary_dir("plinth-bench-page")).unwrap();
    let database = plinth::Local::in_memory().unwrap().into_database();
    let (time, rest) = (Duration::from_millis(100), Duration::from_millis(1));
    let settings = Settings {
        rows: 3_000,
        clients: Some(5),
        threads: Some(2),
        time,
        rest,
        seed: 42,
        memory: None,
    };
    let path = directory.path().to_owned();
    let bench =
        Bench::prepare(database, path, settings, Progress::Silent, std::sync::Arc::default());
    let provenance = Provenance {
        version: "1.2.3".to_owned(),
        commit: "abc".to_owned(),
        command: "plinth bench".to_owned(),
        engine: "memory".to_owned(),
    };
    let published = workloads::select(&["published"]).unwrap();
    bench.unwrap().run(&published, provenance).unwrap()
}

/// An element of a document, with the text right in it.
#[derive(Clone, Default, Debug)]
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
    text: String,
    children: Vec<Element>,
}

impl Element {
    fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// All elements below it of this name, in their order.
    fn all<'a>(&'a self, name: &'a str) -> Vec<&'a Element> {
        let mut found = Vec::new();
        for child in &self.children {
            if child.name == name {
                found.push(child);
            }
            found.extend(child.all(name));
        }
        found
    }

    /// The texts of all elements of a class.
    fn texts(&self, name: &str, class: &str) -> Vec<String> {
        let of_class = |element: &&Element| element.attribute("class") == class;
        self.all(name).into_iter().filter(of_class).map(|found| found.text.clone()).collect()
    }
}

/// HTML's elements that have no end.
const VOID: [&str; 2] = ["meta", "br"];

/// Reads a document strictly: each element is closed where it has to be, attributes are quoted and
/// given once, and no `<`, `>`, `"` or `&` stands where it would be taken for something else.
fn parse(document: &str) -> Result<Element, String> {
    let mut rest = document.strip_prefix("<!doctype html>").unwrap_or(document);
    let mut open = vec![Element::default()];
    while let Some(at) = rest.find('<') {
        let inside = open.last_mut().ok_or("nothing is open")?;
        let text = &rest[..at];
        // A style sheet is no text: there `>` and quotes mean what they do there.
        inside.text.push_str(&if inside.name == "style" { text.to_owned() } else { plain(text)? });
        let end = rest.find('>').ok_or_else(|| format!("a tag has no end: {:.60}", &rest[at..]))?;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let closed = open.pop().ok_or("nothing is open")?;
            if closed.name != name {
                return Err(format!("</{name}> closes <{}>", closed.name));
            }
            open.last_mut().ok_or("closed too often")?.children.push(closed);
            continue;
        }
        let (tag, is_closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let element = begun(tag)?;
        if is_closed || VOID.contains(&element.name.as_str()) {
            open.last_mut().ok_or("nothing is open")?.children.push(element);
        } else {
            open.push(element);
        }
    }
    let root = open.pop().filter(|root| root.name.is_empty() && rest.trim().is_empty());
    root.ok_or_else(|| format!("something is left open: {rest:.60}"))
}

/// The element that a tag begins.
fn begun(tag: &str) -> Result<Element, String> {
    let (name, mut rest) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return Err(format!("no element is called `{name:.60}`"));
    }
    let mut element = Element { name: name.to_owned(), ..Element::default() };
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(element);
        }
        let (name, value) = rest.split_once("=\"").ok_or_else(|| format!("<{tag}>"))?;
        let (value, behind) = value.split_once('"').ok_or_else(|| format!("<{tag}>"))?;
        let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
        let is_new = element.attributes.insert(name.to_owned(), plain(value)?).is_none();
        if name.is_empty() || !is_name || !is_new {
            return Err(format!("attribute `{name}` of <{tag}>"));
        }
        rest = behind;
    }
}

/// What a text means, if it may stand there.
fn plain(text: &str) -> Result<String, String> {
    if text.contains(['<', '>', '"']) {
        return Err(format!("a text has what would be taken for something else: {text:.60}"));
    }
    let mut parts = text.split('&');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let known = [("lt;", '<'), ("gt;", '>'), ("quot;", '"'), ("amp;", '&')];
        let found = known.iter().find_map(|(name, is)| Some((part.strip_prefix(name)?, is)));
        let (behind, is) = found.ok_or_else(|| format!("a bare `&`: &{part:.60}"))?;
        plain.push(*is);
        plain.push_str(behind);
    }
    Ok(plain)
}

/// Whether all of these ticks have one of these ends, behind a number.
fn have_unit(ticks: &[String], ends: &[&str]) -> bool {
    let has = |tick: &String| {
        let number = |rest: &str| rest.replace(',', "").parse::<f64>().is_ok();
        tick == "0" || ends.iter().any(|end| tick.strip_suffix(end).is_some_and(number))
    };
    ticks.len() > 1 && ticks.iter().all(has)
}

/// What is drawn in an `svg`, and its axes.
fn check_plot(drawn: &Element, wanted: &Wanted) {
    let title = wanted.title;
    let ends = |anchor: &str| {
        let anchored = |text: &&Element| {
            text.attribute("class") == "tick" && text.attribute("text-anchor") == anchor
        };
        let texts = drawn.all("text").into_iter().filter(anchored);
        texts.map(|text| text.text.clone()).collect::<Vec<_>>()
    };
    let (up, mut across) = (ends("end"), ends("middle"));
    assert_eq!(across.pop().as_deref(), Some(wanted.x.0), "{title}: what the x axis has");
    assert!(have_unit(&across, wanted.x.1), "{title}: ticks of x: {across:?}");
    assert!(have_unit(&up, wanted.y.1), "{title}: ticks of y: {up:?}");
    let lines = drawn.all("polyline");
    assert_eq!(lines.len(), wanted.lines.len(), "{title}: lines");
    for line in lines {
        let points = line.attribute("points").split(' ').count();
        assert!(points > 2, "{title}: {points} points of a line");
    }
    let said = drawn.texts("text", "said");
    assert_eq!(said, wanted.published, "{title}: what is published");
    let is_mark = |mark: &&Element| ["guide", "seed"].contains(&mark.attribute("class"));
    let marks = drawn.all("line").into_iter().chain(drawn.all("rect")).filter(is_mark).count();
    assert_eq!(marks, said.len(), "{title}: each is drawn");
    // Those who can't see it are told of each point.
    let told: Vec<_> = drawn.all("title").iter().map(|title| title.text.clone()).collect();
    for line in wanted.lines {
        let of_line = told.iter().filter(|told| told.starts_with(&format!("{line}: "))).count();
        assert!(of_line > 2, "{title}: {line} in {told:?}");
    }
}

fn check_pictures(report: &Report) {
    let pictures = pictures(std::slice::from_ref(report));
    assert_eq!(pictures.len(), WANTED.len(), "{:?}", pictures.iter().map(|(name, _)| name));
    for ((name, picture), wanted) in pictures.iter().zip(&WANTED) {
        let document = parse(picture).unwrap_or_else(|why| panic!("{name}: {why}"));
        let [drawn] = &document.children[..] else { panic!("{name}: one element") };
        assert_eq!(drawn.attribute("xmlns"), "http://www.w3.org/2000/svg", "{name}");
        assert_eq!(drawn.texts("text", "title"), [wanted.title]);
        let above = drawn.all("text").into_iter().filter(|text| text.attribute("y") == "39");
        let above: Vec<_> = above.map(|text| text.text.as_str()).collect();
        assert_eq!(above, [wanted.y.0], "{name}: what the y axis has");
        let keys = drawn.all("text").into_iter().filter(|text| text.attribute("y") == "58");
        let keys: Vec<_> = keys.map(|text| text.text.as_str()).collect();
        let is_one = wanted.lines.len() == 1;
        assert_eq!(keys, if is_one { &[][..] } else { wanted.lines }, "{name}: its legend");
        check_plot(drawn, wanted);
    }
}

fn check_page(report: &Report) {
    let page = page(std::slice::from_ref(report));
    let document = parse(&page).unwrap_or_else(|why| panic!("{why}"));
    let figures = document.all("figure");
    let titles: Vec<_> = figures.iter().map(|figure| figure.all("b")[0].text.as_str()).collect();
    assert_eq!(titles, WANTED.iter().map(|wanted| wanted.title).collect::<Vec<_>>());
    for (figure, wanted) in figures.iter().zip(&WANTED) {
        let caption = figure.all("figcaption")[0].all("span");
        assert_eq!(caption[0].text, wanted.y.0, "{}: what the y axis has", wanted.title);
        let [drawn] = figure.all("svg")[..] else { panic!("{}: one picture", wanted.title) };
        assert_eq!(drawn.attribute("aria-label"), wanted.title);
        check_plot(drawn, wanted);
        let names = figure.all("span").into_iter().filter(|span| span.attribute("class") == "name");
        let names: Vec<_> = names.map(|name| name.text.as_str()).collect();
        let is_one = wanted.lines.len() == 1;
        assert_eq!(names, if is_one { &[][..] } else { wanted.lines }, "{}", wanted.title);
    }
    let rows = document.all("tr");
    for (workload, published) in IN_TABLE {
        let row = rows
            .iter()
            .find(|row| row.attribute("class") == "first" && row.all("th")[0].text == workload);
        let row = row.unwrap_or_else(|| panic!("no row of {workload}"));
        let guide = |cell: &&&Element| cell.attribute("data-label") == "FoundationDB's guide";
        let cells = row.all("td");
        assert_eq!(cells.iter().find(guide).unwrap().text, published, "{workload}");
    }
}

#[test]
fn every_curve_is_drawn_beside_what_is_published_and_its_axes_have_units() {
    let report = report();
    // These have no curves, and need a host that makes other databases.
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, ["aged", "larger"], "all others run: {:?}", report.skipped);
    check_pictures(&report);
    check_page(&report);
}

/// What comes from outside, or may some day: a command line, a processor's name, an engine.
const HOSTILE: &str = "a < b && \"c\" > 'd' <script>&lt;</script> ]]>";

fn spoil(text: &mut String) {
    text.push_str(HOSTILE);
}

fn spoil_curve(curve: &mut Curve) {
    for text in [&mut curve.title, &mut curve.x.label, &mut curve.y.label] {
        spoil(text);
    }
    curve.series.iter_mut().for_each(|series| spoil(&mut series.name));
    curve.references.iter_mut().for_each(|reference| spoil(&mut reference.name));
}

#[test]
fn whatever_stands_in_a_report_page_and_pictures_are_well_formed_and_say_it() {
    let mut report = report();
    let Report { provenance, machine, outcomes, skipped, .. } = &mut report;
    for text in [
        &mut provenance.version,
        &mut provenance.commit,
        &mut provenance.command,
        &mut provenance.engine,
        &mut machine.processor,
        &mut machine.system,
        &mut machine.filesystem,
    ] {
        spoil(text);
    }
    for outcome in outcomes {
        spoil(&mut outcome.title);
        outcome.figures.iter_mut().for_each(|figure| spoil(&mut figure.what));
        outcome.notes.push(HOSTILE.to_owned());
        outcome.notes.iter_mut().for_each(spoil);
        outcome.curves.iter_mut().for_each(spoil_curve);
    }
    skipped.push(("read", HOSTILE.to_owned()));
    // One, and several side by side, which have legends and engines' names besides.
    for reports in [vec![report.clone()], vec![report.clone(), report]] {
        let page = page(&reports);
        let document = parse(&page).unwrap_or_else(|why| panic!("the page: {why}"));
        assert!(document.all("script").is_empty() && !page.contains("<script"));
        let drawn = document.all("svg");
        assert_eq!(drawn.len(), WANTED.len());
        assert!(drawn.iter().all(|drawn| drawn.attribute("aria-label").ends_with(HOSTILE)));
        for (name, picture) in pictures(&reports) {
            let document = parse(&picture).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(document.texts("text", "title")[0].ends_with(HOSTILE), "{name}");
        }
    }
}

/// The judge itself.
#[test]
fn what_is_not_well_formed_is_told() {
    let good = "<!doctype html>\n<p class=\"a&amp;b\">1 &lt; 2<br>\n<b/></p>\n";
    let document = parse(good).unwrap();
    let paragraph = document.all("p")[0];
    assert_eq!((paragraph.attribute("class"), &*paragraph.text), ("a&b", "1 < 2\n"));
    for bad in [
        "<p>1 < 2</p>",
        "<p>1 > 2</p>",
        "<p>a & b</p>",
        "<p>a &nbsp; b</p>",
        "<p><b></p></b>",
        "<p>",
        "</p>",
        "<p class=a></p>",
        "<p class=\"a\" class=\"b\"></p>",
        "<p class=\"a\"b\"></p>",
        "<p class=\"<\"></p>",
        "<p>a <",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}
