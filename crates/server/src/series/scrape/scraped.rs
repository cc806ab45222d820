//! What targets answer, as points: their labels put to those of each series, and the marks of ends
//! where a series is no longer there.
//!
//! The labels of a series are worked out once, and known by its bytes from then on. An answer
//! counts as a whole or not at all: where it fails, all series end that were there before, and
//! those that it was the first to have are forgotten. What is known of series takes of the memory
//! that there is for that, and points of what there is for bodies; whatever there is no room for
//! fails.

use super::Scraping;
use super::config::Limits;
use super::relabel::{Labels, relabel};
use super::targets::Target;
use crate::series::bodies::Held;
use plinth_env::Env;
use plinth_promql::{NAME, STALE, Sample};
use plinth_series::Beside;
use plinth_series::ingest::{
    Metadata, ScrapedBody, ScrapedExemplar, ScrapedSample, ScrapedValue, scraped_labels,
};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::size_of;

/// Work that is done before others have their turn on the thread: bytes that are read, and what
/// new series take besides.
const TURN: usize = 128 << 10;
const NEW: usize = 1 << 10;
/// How far ahead of now the time of a sample may be, in nanoseconds, as with Prometheus.
const AHEAD: i64 = 600_000_000_000;
/// Bytes of a point on its way, in a list that may have twice the room.
const POINT: usize = 2 * size_of::<Point>();
/// The same of what is no number, besides its buckets and texts.
const BESIDE: usize = 2 * size_of::<Aside>();
/// Bytes that a known series takes besides its name and its labels, and a label besides its texts.
const KNOWN: usize = 192;
const LABEL: usize = 64;

/// A series' labels as they are kept, and its sample.
pub(super) type Point = (plinth_promql::Labels, Sample);
/// The same with a native histogram or an exemplar.
pub(super) type Aside = (plinth_promql::Labels, i64, Beside);

/// The series of a target.
pub(super) struct Series {
    known: HashMap<Vec<u8>, Known>,
    /// Which answer is read.
    answer: u64,
    /// What is known takes so much memory.
    names: Held,
}

struct Known {
    /// None if it is not kept.
    labels: Option<plinth_promql::Labels>,
    /// Which answer had it last.
    answer: u64,
    state: State,
    /// Whether its last point said of when it is: then nobody knows when it ends.
    has_time: bool,
    bytes: usize,
    exemplars: Told,
}

/// The exemplars of a series that were told last: targets say the same ones again and again.
#[derive(Clone, Copy, Default)]
struct Told {
    /// The time of the newest that said of when it is.
    newest: Option<i64>,
    /// What the last that did not is told from others by.
    last: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The answer that is being read is the first to have it.
    New,
    /// It has points.
    Live,
    /// And an end behind them.
    Ended,
}

/// An answer: its content type, what it says, and when it was asked for.
pub(super) struct Answer<'a> {
    pub(super) kind: &'a str,
    pub(super) body: &'a [u8],
    pub(super) now: i64,
}

/// What an answer came to.
#[derive(Default)]
pub(super) struct Read {
    pub(super) points: Vec<Point>,
    pub(super) asides: Vec<Aside>,
    pub(super) metadata: Vec<Metadata>,
    /// Samples that are of too late a time.
    pub(super) ahead: u64,
}

/// Samples that stood in an answer, those that rules kept, and series that weren't there before.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) scraped: usize,
    pub(super) kept: usize,
    pub(super) added: usize,
}

impl Series {
    pub(super) fn new(scraping: &Scraping) -> Self {
        Self { known: HashMap::new(), answer: 0, names: scraping.names.hold() }
    }

    /// Reads an answer: what is of no time is of when it was asked for. All samples are counted,
    /// those beyond a limit too, so that whoever sets it sees by how much.
    ///
    /// # Errors
    /// What is wrong with it; then [`Self::ends`] is what it comes to.
    pub(super) async fn read(
        &mut self,
        env: &Env,
        target: &Target,
        answer: Answer<'_>,
        held: &mut Held,
        counts: &mut Counts,
    ) -> Result<Read, String> {
        self.answer += 1;
        let (mut read, mut work) = (Read::default(), 0);
        let mut body = ScrapedBody::of(answer.kind, answer.body, target.job.keeps.histograms)?;
        let limit = Some(target.job.limits.samples).filter(|limit| *limit > 0);
        while !body.is_at_end() {
            if let Some(ScrapedSample { series, value, time, exemplars }) = body.step(&mut work)? {
                counts.scraped += 1;
                let time = time.filter(|_| target.job.keeps.honors_times);
                let is_beyond = limit.is_some_and(|limit| counts.kept >= limit);
                let found = self.labels(target, series, time, is_beyond);
                let at = (time.unwrap_or(answer.now), answer.now.saturating_add(AHEAD));
                let told = self.told(series, exemplars, at);
                let (labels, is_new) = found.map_err(|why| format!("{}: {why}", body.place()))?;
                work += if is_new { NEW } else { 0 };
                if let Some(labels) = labels {
                    counts.kept += 1;
                    if at.0 > at.1 {
                        read.ahead += 1;
                    } else if !is_beyond {
                        counts.added += usize::from(is_new);
                        read.take(labels, (at.0, value), told, held)?;
                    }
                }
            }
            if work > TURN {
                work = 0;
                env.give_way().await;
            }
        }
        body.end()?;
        if let Some(limit) = limit.filter(|limit| counts.kept > *limit) {
            let count = counts.kept;
            return Err(format!("there are {count} samples, more than {limit} (sample_limit)"));
        }
        read.metadata = body.take_metadata();
        self.done(&mut read.points, answer.now);
        Ok(read)
    }

    /// The labels that a series is kept with, if it is; and whether it is new. Of those beyond the
    /// limit of samples nothing is remembered.
    fn labels(
        &mut self,
        target: &Target,
        series: &[u8],
        time: Option<i64>,
        is_beyond: bool,
    ) -> Result<(Option<plinth_promql::Labels>, bool), String> {
        let has_time = time.is_some() && !target.job.keeps.tracks_times;
        if let Some(known) = self.known.get_mut(series) {
            (known.answer, known.has_time) = (self.answer, has_time);
            return Ok((known.labels.clone(), false));
        }
        let labels = kept_as(target, series)?;
        if !is_beyond {
            let of_labels = |labels: &plinth_promql::Labels| {
                labels.iter().map(|(name, value)| name.len() + value.len() + LABEL).sum()
            };
            let bytes = KNOWN + series.len() + labels.as_ref().map_or(0, of_labels);
            if !self.names.add(bytes) {
                self.names.give_back(bytes);
                return Err("there is no memory for the names of its series".to_owned());
            }
            let labels = labels.clone();
            let (answer, state, exemplars) = (self.answer, State::New, Told::default());
            let known = Known { labels, answer, state, has_time, bytes, exemplars };
            self.known.insert(series.to_vec(), known);
        }
        Ok((labels, true))
    }

    /// The exemplars of a series' sample that were not told before, with their times: its own,
    /// where they have none. It is known by now, or nothing of it is kept.
    fn told(
        &mut self,
        series: &[u8],
        exemplars: Vec<ScrapedExemplar>,
        (time, latest): (i64, i64),
    ) -> Vec<(i64, Beside)> {
        if exemplars.is_empty() {
            return Vec::new();
        }
        let Some(known) = self.known.get_mut(series) else { return Vec::new() };
        let (before, mut told) = (known.exemplars, Vec::new());
        for ScrapedExemplar { exemplar, time: own } in exemplars {
            let is_new = match own {
                Some(own) => own <= latest && before.newest.is_none_or(|newest| own > newest),
                None => {
                    let mut hasher = DefaultHasher::new();
                    (&exemplar.labels, exemplar.value.to_bits()).hash(&mut hasher);
                    known.exemplars.last = Some(hasher.finish());
                    known.exemplars.last != before.last
                }
            };
            if is_new {
                known.exemplars.newest = known.exemplars.newest.max(own);
                told.push((own.unwrap_or(time), Beside::Exemplar(exemplar)));
            }
        }
        told
    }

    /// Ends what an answer that was read no longer has.
    fn done(&mut self, points: &mut Vec<Point>, now: i64) {
        let Self { known, answer, names } = self;
        known.retain(|_, known| {
            if known.answer == *answer {
                known.state = State::Live;
                return true;
            }
            points.extend(known.end(now));
            names.give_back(known.bytes);
            false
        });
    }

    /// The ends of all series, of which the answer says nothing. They are remembered, and not new
    /// when they come back; those of an answer that failed, which had them first, are forgotten.
    pub(super) fn ends(&mut self, now: i64) -> Vec<Point> {
        let Self { known, names, .. } = self;
        let mut points = Vec::new();
        known.retain(|_, known| {
            points.extend(known.end(now));
            if known.state == State::New {
                names.give_back(known.bytes);
                return false;
            }
            known.state = State::Ended;
            // Those of the answer that failed are to be told again.
            known.exemplars = Told::default();
            true
        });
        points
    }
}

impl Read {
    /// Takes a sample of a series with its exemplars.
    fn take(
        &mut self,
        labels: plinth_promql::Labels,
        (time, value): (i64, ScrapedValue),
        exemplars: Vec<(i64, Beside)>,
        held: &mut Held,
    ) -> Result<(), String> {
        let mut hold = |bytes| match held.add(bytes) {
            true => Ok(()),
            false => Err("there is no memory for its samples".to_owned()),
        };
        let mut asides: Vec<(i64, Beside)> = Vec::new();
        match value {
            ScrapedValue::Float(value) => {
                hold(POINT)?;
                self.points.push((labels.clone(), (time, value)));
            }
            ScrapedValue::Histogram(histogram) => {
                asides.push((time, Beside::Histogram(histogram)));
            }
        }
        asides.extend(exemplars);
        for (time, beside) in asides {
            hold(BESIDE + beside.size())?;
            self.asides.push((labels.clone(), time, beside));
        }
        Ok(())
    }
}

impl Known {
    fn end(&self, now: i64) -> Option<Point> {
        let has_end = self.state == State::Live && !self.has_time;
        let labels = self.labels.clone().filter(|_| has_end)?;
        Some((labels, (now, f64::from_bits(STALE))))
    }
}

/// The labels with which a series of a target is kept, if its rules keep it.
fn kept_as(target: &Target, series: &[u8]) -> Result<Option<plinth_promql::Labels>, String> {
    let mut labels: Labels = scraped_labels(series)?.into_iter().collect();
    for (name, value) in &target.labels {
        match labels.get(name) {
            // It may say that there is none: Pushgateway does of `instance`.
            Some(_) if target.job.keeps.honors_labels => continue,
            Some(theirs) if !theirs.is_empty() => {
                let theirs = theirs.clone();
                let mut renamed = format!("exported_{name}");
                while labels.contains_key(&renamed) || target.labels.contains_key(&renamed) {
                    renamed.insert_str(0, "exported_");
                }
                labels.insert(renamed, theirs);
            }
            _ => {}
        }
        labels.insert(name.clone(), value.clone());
    }
    labels.retain(|_, value| !value.is_empty());
    if !relabel(&target.job.keeps.relabel, &mut labels)? {
        return Ok(None);
    }
    let metric = labels.get(NAME).map_or("", String::as_str);
    if metric.is_empty() || metric.starts_with('!') || metric.contains('|') {
        return Err(format!("{metric:?} is no name of a metric"));
    }
    check(&labels, &target.job.limits).map_err(|why| format!("{metric}: {why}"))?;
    Ok(Some(labels.into_iter().collect()))
}

/// Whether labels, the name of the metric among them, are within a job's limits.
fn check(labels: &Labels, limits: &Limits) -> Result<(), String> {
    let is_beyond = |count: usize, limit: usize| limit > 0 && count > limit;
    if is_beyond(labels.len(), limits.labels) {
        let (count, limit) = (labels.len(), limits.labels);
        return Err(format!("there are {count} labels, more than {limit} (label_limit)"));
    }
    for (name, value) in labels {
        if is_beyond(name.len(), limits.name_bytes) {
            let limit = limits.name_bytes;
            let why = format!("the label {name} is longer than {limit} (label_name_length_limit)");
            return Err(why);
        }
        if is_beyond(value.len(), limits.value_bytes) {
            let limit = limits.value_bytes;
            let why =
                format!("label {name} has more than {limit} bytes (label_value_length_limit)");
            return Err(why);
        }
    }
    Ok(())
}

/// What is said of a scrape itself.
pub(super) struct Report {
    pub(super) is_up: bool,
    pub(super) seconds: f64,
    pub(super) counts: Counts,
}

impl Report {
    /// The points of a target that say so.
    pub(super) fn points(&self, target: &Target, now: i64) -> Vec<Point> {
        let Counts { scraped, kept, added } = self.counts;
        let all = [
            ("up", f64::from(u8::from(self.is_up))),
            ("scrape_duration_seconds", self.seconds),
            ("scrape_samples_scraped", scraped as f64),
            ("scrape_samples_post_metric_relabeling", kept as f64),
            ("scrape_series_added", added as f64),
        ];
        all.map(|(metric, value)| (of_target(target, metric), (now, value))).into()
    }

    /// The ends of those series.
    pub(super) fn ends(target: &Target, now: i64) -> Vec<Point> {
        let none = Self { is_up: false, seconds: 0.0, counts: Counts::default() };
        let points = none.points(target, now).into_iter();
        points.map(|(labels, (time, _))| (labels, (time, f64::from_bits(STALE)))).collect()
    }
}

fn of_target(target: &Target, metric: &str) -> plinth_promql::Labels {
    let labels = target.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    labels.chain([(NAME, metric)]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{config, targets};
    use super::*;
    use crate::series::bodies::Bodies;
    use plinth_env::block_on;
    use std::sync::Arc;

    /// A target that answers what a test says, and the memory that there is for it.
    struct Scraped {
        target: Target,
        series: Series,
        names: Bodies,
        bodies: Bodies,
        counts: Counts,
    }

    impl Scraped {
        fn with(config: &str, names: usize, bodies: usize) -> Self {
            let text = format!(
                "scrape_configs: [{{job_name: j, static_configs: [{{targets: [h]}}]{config}}}]"
            );
            let job = Arc::new(config::parse("f", &text, "".as_ref()).unwrap().remove(0));
            let target = targets::targets(&job, &job.of.groups).unwrap().0.remove(0);
            let (names, bodies) = (Bodies::up_to(names), Bodies::up_to(bodies));
            let series = Series { known: HashMap::new(), answer: 0, names: names.hold() };
            Self { target, series, names, bodies, counts: Counts::default() }
        }

        /// What an answer at a time comes to: metrics, and their values or ends.
        fn answers(&mut self, body: &str, now: i64) -> Result<String, String> {
            self.answers_as("text/plain", body.as_bytes(), now)
        }

        fn answers_as(&mut self, kind: &str, body: &[u8], now: i64) -> Result<String, String> {
            self.counts = Counts::default();
            let answer = Answer { kind, body, now };
            let (env, mut held) = (Env::real(), self.bodies.hold());
            let read = self.series.read(&env, &self.target, answer, &mut held, &mut self.counts);
            block_on(read).map(|read| told(&read))
        }
    }

    fn listed(points: &[Point]) -> String {
        let one = |(labels, (time, value)): &Point| match value.to_bits() {
            STALE => format!("{} ends {time}", labels.get(NAME)),
            _ => format!("{} {value} {time}", labels.get(NAME)),
        };
        let mut all: Vec<String> = points.iter().map(one).collect();
        all.sort();
        all.join(", ")
    }

    /// The points of an answer, and what it has besides.
    fn told(read: &Read) -> String {
        let mut all = listed(&read.points);
        for (labels, time, beside) in &read.asides {
            all += &match beside {
                Beside::Histogram(it) => format!("; {} {it} {time}", labels.get(NAME)),
                Beside::Exemplar(it) => format!("; {} # {} {time}", labels.get(NAME), it.value),
            };
        }
        all
    }

    #[test]
    fn what_is_remembered_of_names_is_bounded_and_given_back() {
        let mut scraped = Scraped::with("", 1000, 1 << 20);
        let why = scraped.answers("a 1\nb 1\nc 1\n", 1).unwrap_err();
        assert!(why.contains("line 3") && why.contains("no memory for the names"), "{why}");
        assert_eq!(listed(&scraped.series.ends(1)), "", "nothing of it was kept");
        assert_eq!(scraped.names.held(), 0);
        assert_eq!(scraped.answers("a 1\nb 1\n", 2).unwrap(), "a 1 2, b 1 2");
        assert_eq!(scraped.counts.added, 2);
        let both = scraped.names.held();
        assert_eq!(scraped.answers("a 2\n", 3).unwrap(), "a 2 3, b ends 3");
        assert_eq!(scraped.names.held(), both / 2);
        // Those that an answer which fails was the first to have are forgotten, others are not.
        assert!(scraped.answers("a 3\nc 3\nd", 4).is_err());
        assert_eq!(listed(&scraped.series.ends(4)), "a ends 4");
        assert_eq!(listed(&scraped.series.ends(5)), "", "an end is told once");
        assert_eq!(scraped.answers("a 4\nc 4\n", 6).unwrap(), "a 4 6, c 4 6");
        assert_eq!(scraped.counts.added, 1);
        drop(scraped.series);
        assert_eq!(scraped.names.held(), 0);
    }

    #[test]
    fn samples_take_of_the_memory_for_bodies() {
        let mut scraped = Scraped::with("", 1 << 20, 2 * POINT);
        assert!(scraped.answers("a 1\nb 1\n", 1).is_ok());
        let why = scraped.answers("a 1\nb 1\nc 1\n", 2).unwrap_err();
        assert!(why.contains("no memory for its samples"), "{why}");
        assert_eq!(scraped.bodies.held(), 0);
    }

    #[test]
    fn samples_that_say_of_when_they_are_end_where_that_is_asked_for() {
        let mut scraped = Scraped::with("", 1 << 20, 1 << 20);
        assert_eq!(scraped.answers("a 1 5\n", 1).unwrap(), "a 1 5000000");
        assert_eq!(scraped.answers("", 2).unwrap(), "");
        let mut scraped = Scraped::with(", track_timestamps_staleness: true", 1 << 20, 1 << 20);
        scraped.answers("a 1 5\n", 1).unwrap();
        assert_eq!(scraped.answers("", 2).unwrap(), "a ends 2");
    }

    #[test]
    fn an_exemplar_is_told_once() {
        let mut scraped = Scraped::with("", 1 << 20, 1 << 20);
        let timed = |seconds: i64| format!("a 1 # {{}} 5 {seconds}\n");
        assert_eq!(scraped.answers(&timed(2), 1).unwrap(), "a 1 1; a # 5 2000000000");
        assert_eq!(scraped.answers(&timed(2), 2).unwrap(), "a 1 2");
        assert_eq!(scraped.answers(&timed(1), 3).unwrap(), "a 1 3", "it is older");
        assert_eq!(scraped.answers(&timed(3), 4).unwrap(), "a 1 4; a # 5 3000000000");
        assert_eq!(scraped.answers(&timed(6000), 5).unwrap(), "a 1 5", "it is far ahead");
        // One that doesn't say of when it is is of its sample's time.
        assert_eq!(scraped.answers("a 1 7 # {} 5\n", 6).unwrap(), "a 1 7000000; a # 5 7000000");
        assert_eq!(scraped.answers("a 1 8 # {} 5\n", 7).unwrap(), "a 1 8000000");
        assert_eq!(scraped.answers("a 1 # {b=\"c\"} 5\n", 8).unwrap(), "a 1 8; a # 5 8");
        // What an answer that failed had is told again.
        assert!(scraped.answers("a 1 # {} 9\n!", 9).is_err());
        scraped.series.ends(9);
        assert_eq!(scraped.answers("a 1 # {} 9\n", 10).unwrap(), "a 1 10; a # 9 10");
        // It is no sample, and of a series that isn't kept there is none.
        assert_eq!((scraped.counts.scraped, scraped.counts.kept), (1, 1));
        let drops =
            ", metric_relabel_configs: [{action: drop, regex: a, source_labels: [__name__]}]";
        let mut scraped = Scraped::with(drops, 1 << 20, 1 << 20);
        assert_eq!(scraped.answers("a 1 # {} 9\n", 1).unwrap(), "");
    }

    /// A family of histograms that has this many series, each with an observation from 1 to 2.
    fn histograms(series: u8) -> Vec<u8> {
        let histogram =
            [8, 1, 0x11, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x62, 4, 8, 2, 16, 1, 0x6a, 1, 2];
        let mut family = vec![10, 1, b'h', 0x18, 4];
        for number in 0..series {
            let metric = [10, 6, 10, 1, b'a', 0x12, 1, b'0' + number, 0x3a, histogram.len() as u8];
            family.extend([0x22, (metric.len() + histogram.len()) as u8]);
            family.extend(metric);
            family.extend(histogram);
        }
        [vec![family.len() as u8], family].concat()
    }

    #[test]
    fn a_native_histogram_is_one_sample_whose_series_ends() {
        const MESSAGES: &str = "application/vnd.google.protobuf";
        let native = ", scrape_native_histograms: true";
        let mut scraped = Scraped::with(&format!("{native}, sample_limit: 2"), 1 << 20, 1 << 20);
        let one = "h {count:1, sum:1.5, (1,2]:1}";
        let found = scraped.answers_as(MESSAGES, &histograms(2), 1).unwrap();
        assert_eq!(found, format!("; {one} 1; {one} 1"));
        let Counts { scraped: said, kept, added } = scraped.counts;
        assert_eq!((said, kept, added), (2, 2, 2));
        let why = scraped.answers_as(MESSAGES, &histograms(3), 2).unwrap_err();
        assert!(why.contains("3 samples, more than 2 (sample_limit)"), "{why}");
        assert_eq!(listed(&scraped.series.ends(2)), "h ends 2, h ends 2");
        scraped.answers_as(MESSAGES, &histograms(2), 3).unwrap();
        let found = scraped.answers_as(MESSAGES, &histograms(1), 4).unwrap();
        assert_eq!(found, format!("h ends 4; {one} 4"));
        // It takes of the memory for bodies, and is read whole or not at all.
        let mut scraped = Scraped::with(native, 1 << 20, BESIDE + 64);
        let why = scraped.answers_as(MESSAGES, &histograms(1), 1).unwrap_err();
        assert!(why.contains("no memory for its samples"), "{why}");
        let mut scraped = Scraped::with(native, 1 << 20, 1 << 20);
        let why = scraped.answers_as(MESSAGES, &histograms(2)[..40], 1).unwrap_err();
        assert!(why.contains("cut off"), "{why}");
        // Nobody asked for them here.
        let mut scraped = Scraped::with("", 1 << 20, 1 << 20);
        let found = scraped.answers_as(MESSAGES, &histograms(1), 1).unwrap();
        assert_eq!(found, "h_bucket 1 1, h_count 1 1, h_sum 1.5 1");
    }
}
