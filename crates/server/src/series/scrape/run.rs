//! Scraping: who is to be scraped is looked up every fifteen seconds, and each target has a task
//! that asks it when it is due.
//!
//! Whoever looks after what is kept beside the series scrapes, one server of all that share them;
//! when he loses them his tasks end without a word, and the next one begins. A target that is no
//! longer named ends with the marks of its series.

use super::config::{Credentials, Secret};
use super::scraped::{Answer, Aside, Counts, Point, Report, Series};
use super::targets::{Target, in_words};
use super::{Health, Scraped, Scraping, Status, md5, plan};
use crate::series::Hub;
use crate::series::bodies::Held;
use crate::series::events;
use crate::series::gzip;
use crate::series::opened::Opened;
use crate::series::post::Recipient;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderName};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Task};
use plinth_series::{Beside, Error, SeriesStore};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whose the series are, and who is to be scraped.
const LOOK: Duration = Duration::from_secs(1);
const READ_AGAIN: Duration = Duration::from_secs(15);
/// Points that are appended at once, and bytes of what is no number.
const AT_ONCE: usize = 5000;
const BYTES_AT_ONCE: usize = 1 << 20;
/// For how long whoever has a part then is looked for when it changes hands, and how long it is
/// from one try to the next.
const MOVES: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of an answer, if the job doesn't say how many.
const MOST: usize = 64 << 20;
const NO_MEMORY: &str = "other requests take all the memory that there is for answers";
/// How long a target may take, in seconds: some have to ask others first.
const PATIENCE: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");
const SECRET: usize = 64 << 10;
const FORMATS: &str =
    "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";

/// What is asked for before these where it is wanted.
const MESSAGES: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                        encoding=delimited;q=0.8,";

/// What a target came to, on its way to the store.
#[derive(Default)]
struct Taken {
    points: Vec<Point>,
    asides: Vec<Aside>,
}

/// Targets that are being scraped, by their keys.
type Running = BTreeMap<String, (Arc<Scraped>, Task)>;

/// Scrapes whenever this server looks after the series, until it stops.
pub(super) async fn run(hub: Arc<Hub>) {
    let Some(scraping) = &hub.duties.scraping else { return };
    let (mut running, mut of) = (Running::new(), None::<Arc<Opened>>);
    let mut read_at = None::<Duration>;
    while !scraping.is_stopping() {
        let opened = hub.slot.of_first().ok();
        let is_same = match (&of, &opened) {
            (Some(of), Some(opened)) => of.store.is_same_as(&opened.store),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            end(std::mem::take(&mut running), false).await;
            scraping.show(&running, Vec::new());
            (of, read_at) = (opened, None);
        }
        let now = hub.env.now();
        if let Some(opened) = &of
            && read_at.is_none_or(|at| now.saturating_sub(at) >= READ_AGAIN)
        {
            read_at = Some(now);
            match plan(&hub.env, &scraping.file).await {
                Ok(plan) => {
                    scraping.is_read();
                    scraping.hold(plan.configuration);
                    // Whoever is asked in another way from now on has ended before he begins.
                    end(gone(&plan.targets, &mut running), true).await;
                    begin(&hub, opened, plan.targets, &mut running);
                    scraping.show(&running, plan.dropped);
                }
                Err(why) => scraping.is_unread(why),
            }
        }
        race(scraping.stop.wait(), hub.env.sleep(LOOK)).await;
    }
    end(running, false).await;
}

/// Takes those out who are no longer named.
fn gone(targets: &[Target], running: &mut Running) -> Running {
    let named: BTreeSet<String> = targets.iter().map(Target::key).collect();
    running.extract_if(.., |key, _| !named.contains(key)).collect()
}

/// Begins to scrape targets that are new. Whoever is named twice is asked once.
fn begin(hub: &Arc<Hub>, opened: &Arc<Opened>, targets: Vec<Target>, running: &mut Running) {
    for target in targets {
        running.entry(target.key()).or_insert_with(|| {
            let scraped = Arc::new(Scraped::new(target));
            let task = scrape(hub.clone(), opened.clone(), scraped.clone());
            (scraped, hub.env.spawn_network("scrape", task))
        });
    }
}

/// Ends targets, and waits for that.
async fn end(running: Running, with_marks: bool) {
    for (scraped, _) in running.values() {
        scraped.end(with_marks);
    }
    for (_, (_, task)) in running {
        // One that failed is at its end.
        let _ = task.await;
    }
}

/// Scrapes a target until it is told to end.
async fn scrape(hub: Arc<Hub>, opened: Arc<Opened>, scraped: Arc<Scraped>) {
    let Some(scraping) = &hub.duties.scraping else { return };
    let (env, target) = (&hub.env, &scraped.target);
    let (mut recipient, mut series) = (None, Series::new(scraping));
    // They are spread over the time from one to the next.
    let interval = u64::try_from(target.interval.as_nanos()).unwrap_or(u64::MAX).max(1);
    let offset = Duration::from_nanos(md5::last_eight(target.key().as_bytes()) % interval);
    let mut due = env.now() + offset;
    loop {
        race(scraped.stop.wait(), env.sleep(due.saturating_sub(env.now()))).await;
        if scraped.is_over() {
            break;
        }
        if due > env.now() {
            continue;
        }
        let asked = once(&hub, &scraped, &mut recipient, &mut series);
        // `held` is what was taken until it is in the store.
        let First::Left((taken, held)) = race(asked, scraped.stop.wait()).await else { continue };
        if scraped.is_over() {
            break;
        }
        if !write(&hub, &opened, &scraped, &taken).await {
            return;
        }
        drop(held);
        // What was missed is missed.
        let missed = env.now().saturating_sub(due).as_nanos() / u128::from(interval);
        due += Duration::from_nanos(interval.saturating_mul(missed as u64 + 1));
    }
    if scraped.is_marked() {
        let now = wall(env);
        let mut points = series.ends(now);
        points.extend(Report::ends(target, now));
        write(&hub, &opened, &scraped, &Taken { points, ..Taken::default() }).await;
    }
}

fn wall(env: &Env) -> i64 {
    i64::try_from(env.wall_clock().as_nanos()).unwrap_or(i64::MAX)
}

/// Asks a target once: what it comes to, with what is said of the scrape itself; and the memory
/// that this takes.
async fn once(
    hub: &Hub,
    scraped: &Scraped,
    recipient: &mut Option<Recipient>,
    series: &mut Series,
) -> (Taken, Held) {
    let (env, target) = (&hub.env, &scraped.target);
    let (begun, now) = (env.now(), wall(env));
    let (mut held, mut counts) = (hub.bodies.hold(), Counts::default());
    let asking = async {
        let (kind, body) = fetched(hub, target, recipient, &mut held).await?;
        let answer = Answer { kind: &kind, body: &body, now };
        series.read(env, target, answer, &mut held, &mut counts).await
    };
    let read = match race(asking, env.sleep(target.timeout)).await {
        First::Left(read) => read,
        First::Right(()) => {
            Err(format!("no answer within {} (scrape_timeout)", in_words(target.timeout)))
        }
    };
    let seconds = env.now().saturating_sub(begun).as_secs_f64();
    let is_up = read.is_ok();
    let (mut points, asides, error) = match read {
        Ok(read) => {
            hub.described.take(read.metadata);
            let why = "samples are of more than ten minutes ahead, and not kept";
            let error = (read.ahead > 0).then(|| format!("{} {why}", read.ahead));
            (read.points, read.asides, error)
        }
        Err(why) => (series.ends(now), Vec::new(), Some(why)),
    };
    points.extend(Report { is_up, seconds, counts }.points(target, now));
    let health = if is_up { Health::Up } else { Health::Down };
    scraped.note(Status { health, error, at: Some(now), seconds });
    (Taken { points, asides }, held)
}

/// What a target answers, `held` by what may be in memory: the content type, and the text.
async fn fetched(
    hub: &Hub,
    target: &Target,
    recipient: &mut Option<Recipient>,
    held: &mut Held,
) -> Result<(String, Vec<u8>), String> {
    if let Some(why) = &target.fault {
        return Err(why.clone());
    }
    let (env, job) = (&hub.env, &target.job);
    let recipient = match recipient {
        Some(recipient) => recipient,
        None => {
            let opened = Recipient::open(env, &target.server, job.asks.trusted.as_deref()).await;
            let why = |why: plinth_types::Error| {
                why.detail().map_or(why.to_string(), ToString::to_string)
            };
            recipient.insert(opened.map_err(why)?)
        }
    };
    let most = Some(job.limits.body).filter(|most| *most > 0).unwrap_or(MOST);
    let mut bytes = 0;
    let mut room = |more: usize| {
        bytes += more;
        if bytes > most {
            return Err(format!("the answer has more than {most} bytes (body_size_limit)"));
        }
        match held.add(more) {
            true => Ok(()),
            false => Err(NO_MEMORY.to_owned()),
        }
    };
    let headers = headers(env, target).await?;
    let got = recipient.get(env, &target.path, headers, &mut room).await?;
    if got.status != 200 {
        return Err(format!("server returned HTTP status {}", got.status));
    }
    let body = match got.encoding.to_ascii_lowercase().as_str() {
        "" | "identity" => got.body,
        "gzip" | "x-gzip" => {
            let expanded = gzip::expand_to(env, &got.body, most, held).await;
            expanded.map_err(|(status, why)| match status {
                StatusCode::SERVICE_UNAVAILABLE => NO_MEMORY.to_owned(),
                _ => why.replace("the body", "the answer"),
            })?
        }
        other => {
            return Err(format!("the answer is encoded as {other:?}, which was not asked for"));
        }
    };
    Ok((got.kind, body))
}

/// What a request says beside what it asks for.
async fn headers(env: &Env, target: &Target) -> Result<Vec<(HeaderName, String)>, String> {
    let encoding = if target.job.asks.compressed { "gzip" } else { "identity" };
    let first = if target.job.asks.messages { MESSAGES } else { "" };
    let formats = [first, FORMATS].concat();
    let mut headers = vec![
        (ACCEPT, formats),
        (ACCEPT_ENCODING, encoding.to_owned()),
        (PATIENCE, target.timeout.as_secs_f64().to_string()),
    ];
    match &target.job.asks.credentials {
        Credentials::None => {}
        Credentials::Basic { name, password } => {
            let pair = format!("{name}:{}", told(env, password).await?);
            headers.push((AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair))));
        }
        Credentials::Bearer { kind, secret } => {
            headers.push((AUTHORIZATION, format!("{kind} {}", told(env, secret).await?)));
        }
    }
    Ok(headers)
}

async fn told(env: &Env, secret: &Secret) -> Result<String, String> {
    match secret {
        Secret::Text(text) => Ok(text.clone()),
        Secret::File(file) => {
            let read = env.files().read_at_most(file, SECRET).await;
            let bytes = read.map_err(|why| format!("{}: {why}", file.display()))?;
            Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
        }
    }
}

/// What is appended at once.
#[derive(Clone, Copy)]
enum Batch<'a> {
    Points(&'a [Point]),
    Asides(&'a [Aside]),
}

impl Batch<'_> {
    /// How many samples it has: an exemplar is none.
    fn samples(&self) -> u64 {
        match self {
            Self::Points(points) => points.len() as u64,
            Self::Asides(asides) => asides.iter().filter(|aside| is_sample(aside)).count() as u64,
        }
    }

    /// Appends it; how many samples are refused, and why the first is.
    async fn append(&self, store: &SeriesStore) -> plinth_series::Result<(u64, Option<Error>)> {
        let refused = match self {
            Self::Points(points) => store.append_labelled(points).await?,
            Self::Asides(asides) => {
                let mut refused = store.append_labelled_beside(asides).await?;
                refused.retain(|(place, _)| is_sample(&asides[*place]));
                refused
            }
        };
        Ok((refused.len() as u64, refused.into_iter().next().map(|(_, why)| why)))
    }
}

fn is_sample((.., beside): &Aside) -> bool {
    matches!(beside, Beside::Histogram(_))
}

/// What is no number, so much of it at a time.
fn batches(mut rest: &[Aside]) -> impl Iterator<Item = Batch<'_>> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fit = rest.iter().take_while(|(.., beside)| {
            let has_room = bytes < BYTES_AT_ONCE;
            bytes += beside.size();
            has_room
        });
        let (now, later) = rest.split_at(fit.count().min(AT_ONCE));
        rest = later;
        (!now.is_empty()).then_some(Batch::Asides(now))
    })
}

/// Appends what was taken; whether the series are still this server's. Where a part changes hands
/// in the middle it is appended once more, to whoever has it then: to the same end, and so that a
/// scrape is there whole.
async fn write(hub: &Hub, opened: &Opened, scraped: &Scraped, taken: &Taken) -> bool {
    let mut moved = None::<Arc<Opened>>;
    let points = taken.points.chunks(AT_ONCE).map(Batch::Points);
    for batch in points.chain(batches(&taken.asides)) {
        let until = hub.env.now() + MOVES;
        loop {
            let store = moved.as_ref().map_or(&opened.store, |moved| &moved.store);
            // Points for parts of others' are posted, without a fence: whoever has the first part
            // scrapes, and nobody else.
            if let Err(Error::NotOwner) = store.check_owned(0).await {
                return false;
            }
            let why = match batch.append(store).await {
                Ok((refused, why)) => {
                    hub.counts.add(batch.samples() - refused, refused);
                    if let Some(why) = why {
                        scraped.refused(refused, &why);
                    }
                    break;
                }
                Err(why) => why,
            };
            let is_moving = matches!(why, Error::NotOwner);
            if is_moving && hub.env.now() < until && !hub.is_stopping() {
                hub.env.sleep(PAUSE).await;
                match hub.slot.of_first() {
                    Ok(opened) => moved = Some(opened),
                    Err(_) => return false,
                }
                continue;
            }
            scraped.refused(batch.samples(), &why);
            if is_moving {
                return false;
            }
            break;
        }
        hub.env.give_way().await;
    }
    // Whoever scrapes looks for the store that there is now.
    moved.is_none()
}

impl Scraping {
    /// Notes that the files make sense.
    fn is_read(&self) {
        if self.told().take().is_some() {
            events::scraping_changed();
        }
    }

    /// Tells once that they don't.
    fn is_unread(&self, why: String) {
        let mut told = self.told();
        if told.as_ref() != Some(&why) {
            events::scraping_not_read(&why);
        }
        *told = Some(why);
    }
}
