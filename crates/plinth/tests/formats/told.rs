//! What layers say of a database, in lines: points, buckets, histograms, exemplars, what is kept of
//! rules, rights, quotas, streams of changes with what they give.
//!
//! All of it is read without becoming the owner of anything. A directory that has none of a kind
//! has no line of it, so one list serves them all.

use super::hex;
use super::layers::{BASE, SECOND};
use plinth::series::{
    Direction, Histogram, Point, Series, SeriesLayer, SeriesStore, Settings, Summary, Value,
    prometheus,
};
use plinth::{Database, TransactionOption, block_on};
use plinth_types::quotas::{Bounds, Whom};
use plinth_types::rights::Grant;
use plinth_types::system;

type Lines = Result<Vec<String>, plinth::series::Error>;

/// Everything.
pub fn lines(db: &Database) -> Vec<String> {
    let mut lines = rights(db);
    lines.extend(block_on(streams(db)).unwrap());
    lines.extend(block_on(kept(db)).unwrap());
    lines
}

/// The rows of rights and of quotas, as programs read them.
fn rights(db: &Database) -> Vec<String> {
    let read = |(begin, end): (&[u8], &[u8])| {
        db.transact_blocking(|tr| {
            tr.set_option(TransactionOption::ReadSystemKeys)?;
            tr.range(begin..end).collect_blocking()
        })
        .unwrap()
    };
    let of_row = |row: &plinth::KeyValue| format!("{} {}", hex(&row.key), hex(&row.value));
    let mut lines = Vec::new();
    for row in &read(system::RIGHTS) {
        let grant = Grant::decode(&row.key).expect("a grant");
        lines.push(format!("grant {grant}: {}", of_row(row)));
    }
    for row in &read(system::QUOTAS) {
        let whom = Whom::decode(&row.key).expect("somebody");
        let bounds = Bounds::decode(&row.value).expect("bounds");
        lines.push(format!("quota {whom} {bounds}: {}", of_row(row)));
    }
    lines
}

/// The streams of changes, and what is in them behind what was acknowledged.
async fn streams(db: &Database) -> plinth::Result<Vec<String>> {
    let mut lines = Vec::new();
    for stream in db.list_changes().await? {
        let name = String::from_utf8_lossy(&stream.name);
        let ranges = stream.ranges.iter().map(|of| format!("{}-{}", hex(&of.begin), hex(&of.end)));
        lines.push(format!(
            "stream {name} {} {} {} {:?} {}",
            stream.id,
            stream.registered,
            stream.acknowledged,
            stream.bound_bytes,
            ranges.collect::<Vec<_>>().join(",")
        ));
        let mut consumer = db.consume_changes(&stream.name).await?;
        loop {
            let changes = consumer.try_next().await?;
            if changes.batches.is_empty() {
                break;
            }
            let text: String = changes.batches.iter().map(|batch| batch.text_lines()).collect();
            lines.extend(text.lines().map(|line| format!("change {name} {line}")));
        }
    }
    Ok(lines)
}

fn value(value: Value) -> String {
    match value {
        Value::Integer(value) => format!("integer:{value}"),
        Value::Float(value) => format!("float:{:016x}", value.to_bits()),
    }
}

fn at(point: Point) -> String {
    format!("{}={}", point.time, value(point.value))
}

/// The line of a point.
pub fn point(name: &str, point: Point) -> String {
    format!("point {} {} {}", name.replace(' ', ","), point.time, value(point.value))
}

/// The line of a series whose points can't be read.
pub fn unreadable(name: &str) -> String {
    format!("unreadable {}", name.replace(' ', ","))
}

/// What there is of series.
async fn kept(db: &Database) -> Lines {
    let store = SeriesLayer::new(db).view().await?;
    let mut lines = Vec::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let (page, behind) = store.browse(None, &[], from).await?;
        for series in &page {
            lines.extend(of_series(series).await?);
        }
        next = behind;
    }
    // Those that are in the inbox alone have to be asked for.
    for name in [super::fill::SERIES[2], super::layers::TOOK[1]] {
        if let Some(series) = store.existing(name).await? {
            lines.extend(of_series(&series).await?);
        }
    }
    for (name, text) in store.kept().await? {
        let begin = String::from_utf8_lossy(&text[..text.len().min(80)]);
        lines.push(format!("text {name} {} bytes, {begin}", text.len()));
    }
    let keeping = SeriesStore::keeping(db, &Settings::default()).await?;
    lines.extend(keeping.rollups().iter().map(|rule| format!("rule {} {rule}", rule.id)));
    lines.extend(keeping.retention().map(|text| format!("rule retention {text}")));
    if !keeping.rollups().is_empty() {
        let query = "query=%7b__name__=~%22took.*%22%7d&start=0&end=2000000000";
        lines.extend(asked(&store, "query_exemplars", query).await);
        // Buckets know where a counter fell, which shows in this alone.
        let series = "%7b%22cpu.user%22,host=%22a%22%7d";
        let query = format!("query=increase({series}%5b10m%5d)&time={}", BASE / SECOND + 1_600);
        lines.extend(asked(&store, "query", &query).await);
    }
    lines.sort();
    lines.dedup();
    Ok(lines)
}

async fn asked(store: &SeriesStore, path: &str, query: &str) -> Option<String> {
    let path = format!("/api/v1/{path}");
    let (status, text) = prometheus(store, &path, &[query.as_bytes()], BASE).await;
    assert_eq!(status, 200, "{text}");
    Some(format!("answer {path}?{query} {text}"))
}

/// Points, buckets of ten seconds and of a minute, and native histograms of a series.
async fn of_series(series: &Series) -> Lines {
    let name = series.name().to_string().replace(' ', ",");
    let points = match series.scan(.., Direction::Forward).await {
        Ok(points) => points.collect().await,
        Err(error) => Err(error),
    };
    let Ok(points) = points else { return Ok(vec![unreadable(&name)]) };
    let mut lines: Vec<_> = points.into_iter().map(|one| point(&name, one)).collect();
    if name.starts_with("cpu.") {
        for seconds in [10, 60] {
            let mut buckets = series.group_aggregate(.., seconds * SECOND as u64).await?;
            while let Some((begin, of)) = buckets.next().await? {
                lines.push(format!("bucket {name} {seconds}s {begin} {}", bucket(&of)));
            }
        }
    }
    for (time, one) in series.histograms(..).await?.collect().await? {
        lines.push(format!("histogram {name} {time} {}", histogram(&one)));
    }
    Ok(lines)
}

fn bucket(of: &Summary) -> String {
    let [first, last] = [of.first, of.last].map(at);
    let [min, max] = [of.min, of.max].map(|one| one.map_or_else(String::new, at));
    format!("{} {} {:016x} {first} {last} {min} {max}", of.count, of.numbers, of.sum.to_bits())
}

fn histogram(histogram: &Histogram) -> String {
    let of = histogram.parts();
    let bits = |all: &[f64]| -> Vec<String> {
        all.iter().map(|one| format!("{:016x}", one.to_bits())).collect()
    };
    let single = bits(&[of.zero_threshold, of.zero_count, of.count, of.sum]);
    let lists = [&of.positive, &of.negative, &of.bounds].map(|all| bits(all).join(","));
    let spans = [&of.positive_spans, &of.negative_spans].map(|spans| {
        let span =
            |span: &plinth::series::HistogramSpan| format!("{}+{}", span.offset, span.length);
        spans.iter().map(span).collect::<Vec<_>>().join(",")
    });
    format!(
        "{:?} {} {} {} {}",
        of.hint,
        of.schema,
        single.join(","),
        spans.join(";"),
        lists.join(";")
    )
}
