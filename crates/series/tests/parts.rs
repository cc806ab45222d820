//! Series in parts answer as series that are not divided do: random operations and queries on a
//! plain store, on one that owns all of four parts, and on two that own two each and read the
//! others' through their owners, parts changing hands meanwhile.
//!
//! Rows of one time come in the order of the numbers of series, which parts give out apart; so
//! answers are compared as sets of rows.

use plinth::{Builder, Database};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_series::workload::Random;
use plinth_series::{
    Claim, Division, Error, Look, Members, Owner, Query, SeriesLayer, SeriesLimits, SeriesStore,
    Settings, Told, delete_series, prometheus,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PARTS: usize = 4;
const HOSTS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const SPAN: u64 = 2000;

/// A database of this name on a simulated machine.
async fn database(env: &Env, name: &str) -> Database {
    Builder::new(name).env(env.clone()).open_async().await.unwrap().into_database()
}

fn run<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Env) -> F) {
    let sim = Simulation::new(seed);
    let env = sim.process("machine");
    sim.run_until(test(env));
}

fn settings(parts: usize) -> Settings {
    Settings { parts, leaf_points: 16, commit_every: None, ..Settings::default() }
}

/// The stores of those who own the parts now.
type Owners = Arc<Mutex<Vec<SeriesStore>>>;

/// The way to whoever owns a part, in this process.
struct Way {
    part: usize,
    owners: Owners,
}

impl Owner for Way {
    fn ask(&self, question: Vec<u8>) -> Told<'_> {
        Box::pin(async move {
            let store = self.owners.lock().unwrap()[self.part].clone();
            store.answer(self.part, &question).await
        })
    }
}

/// Two servers that own parts of one database's series.
struct Fleet {
    divisions: [Division; 2],
    /// Which of them owns each part.
    of: [usize; PARTS],
    owners: Owners,
    stores: [SeriesStore; 2],
}

async fn taken(division: &Division, part: usize, server: usize) -> SeriesStore {
    let mut candidate = division.candidate(part, Claim::new(format!("server {server}"), ""));
    match candidate.look().await.unwrap() {
        Look::Ours(store) => store,
        other => panic!("part {part} is not free: {other:?}"),
    }
}

impl Fleet {
    async fn new(database: &Database) -> Self {
        let divisions = [
            Division::of(database, settings(PARTS)).await.unwrap(),
            Division::of(database, settings(1)).await.unwrap(),
        ];
        assert_eq!(divisions[1].parts(), PARTS, "it was made in so many");
        let of = [0, 1, 0, 1];
        let mut owners = Vec::new();
        for (part, server) in of.into_iter().enumerate() {
            owners.push(taken(&divisions[server], part, server).await);
        }
        let owners = Arc::new(Mutex::new(owners));
        let stores = [0, 1].map(|server| Self::store(&divisions, of, &owners, server));
        Self { divisions, of, owners, stores }
    }

    fn store(
        divisions: &[Division; 2],
        of: [usize; PARTS],
        owners: &Owners,
        server: usize,
    ) -> SeriesStore {
        let division = &divisions[server];
        division.together((0..PARTS).map(|part| match of[part] == server {
            true => owners.lock().unwrap()[part].clone(),
            false => division.elsewhere(part, Arc::new(Way { part, owners: owners.clone() })),
        }))
    }

    /// A part changes hands.
    async fn move_part(&mut self, part: usize) {
        for store in &self.stores {
            store.sync().await.unwrap();
        }
        let (old, new) = (self.of[part], 1 - self.of[part]);
        let before = self.owners.lock().unwrap()[part].clone();
        before.hand_over().await.unwrap();
        assert!(before.failure().is_some() && before.lost().is_none(), "of {old}");
        let store = taken(&self.divisions[new], part, new).await;
        self.owners.lock().unwrap()[part] = store;
        self.of[part] = new;
        self.stores =
            [0, 1].map(|server| Self::store(&self.divisions, self.of, &self.owners, server));
    }
}

/// The same series three times.
struct Three {
    plain: (Database, SeriesStore),
    own: (Database, SeriesStore),
    fleet: (Database, Fleet),
}

impl Three {
    async fn new(env: &Env) -> Self {
        let (one, two, three) = (
            database(env, "/plain").await,
            database(env, "/own").await,
            database(env, "/fleet").await,
        );
        let plain = SeriesStore::open_with(&one, settings(1)).await.unwrap();
        let own = SeriesStore::open_with(&two, settings(PARTS)).await.unwrap();
        let fleet = Fleet::new(&three).await;
        Self { plain: (one, plain), own: (two, own), fleet: (three, fleet) }
    }

    fn stores(&self, random: &mut Random) -> [&SeriesStore; 3] {
        let either = random.below(2) as usize;
        [&self.plain.1, &self.own.1, &self.fleet.1.stores[either]]
    }

    async fn sync(&self) {
        for store in [&self.plain.1, &self.own.1].into_iter().chain(&self.fleet.1.stores) {
            store.sync().await.unwrap();
        }
        // Between what waits and what an owner appends the one counts that he takes in last.
        let owners = self.fleet.1.owners.lock().unwrap().clone();
        for store in owners {
            store.take_in().await.unwrap();
        }
    }

    async fn change(&mut self, random: &mut Random) {
        let name = name(random);
        match random.below(20) {
            0 => {
                self.sync().await;
                self.fleet.1.move_part(random.below(PARTS as u64) as usize).await;
            }
            1 => {
                self.sync().await;
                let (first, long) = (random.below(SPAN), random.below(100));
                let matched = format!("match[]={}", encoded(&selector(&name)));
                let span = format!("&start={}&end={}", first, first + long);
                let form = if random.below(3) == 0 { matched } else { matched + &span };
                for store in [&self.plain.1, &self.own.1] {
                    assert_eq!(delete_series(store, &[form.as_bytes()]).await.0, 204);
                }
                let owners = self.fleet.1.owners.lock().unwrap().clone();
                for store in owners {
                    assert_eq!(delete_series(&store, &[form.as_bytes()]).await.0, 204);
                }
            }
            2 | 3 => {
                self.sync().await;
                let points = [(point(random), name.clone()), (point(random), self::name(random))];
                for database in [&self.plain.0, &self.own.0, &self.fleet.0] {
                    transact(database, &points).await;
                }
            }
            4 => self.sync().await,
            _ => {
                let points: Vec<_> = (0..1 + random.below(30)).map(|_| point(random)).collect();
                for store in self.stores(random) {
                    let series = store.series(&name).await.unwrap();
                    for (time, value) in &points {
                        series.append(*time, *value).unwrap();
                    }
                }
                // The next one may go by the other server: what counts is the last that was sent.
                self.sync().await;
            }
        }
    }
}

async fn transact(database: &Database, points: &[((i64, f64), String)]) {
    let layer = SeriesLayer::new(database);
    let body = |tr| {
        let layer = layer.clone();
        async move {
            for ((time, value), name) in points {
                layer.append(&tr, name, *time, *value).await?;
            }
            Ok::<_, Error>(())
        }
    };
    database.try_transact(body).await.unwrap();
}

fn name(random: &mut Random) -> String {
    let metric = ["x", "y", "z"][random.below(3) as usize];
    format!("{metric} host={}", HOSTS[random.below(7) as usize])
}

fn selector(name: &str) -> String {
    let (metric, host) = name.split_once(" host=").unwrap();
    format!("{metric}{{host=\"{host}\"}}")
}

/// Seconds, and a quarter of an integer, whose sums do not depend on their order.
fn point(random: &mut Random) -> (i64, f64) {
    (random.below(SPAN) as i64 * 1_000_000_000, random.below(400) as f64 / 4.0)
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// A query of Akumuli's.
fn query(random: &mut Random) -> String {
    let metric = ["x", "y", "z"][random.below(3) as usize];
    let (from, long) = (random.below(SPAN), random.below(SPAN));
    let to = if random.below(3) == 0 { from.saturating_sub(long) } else { from + long + 1 };
    let range =
        format!(r#""from": "{}ns", "to": "{}ns""#, from * 1_000_000_000, to * 1_000_000_000);
    let order = if random.below(2) == 0 { "time" } else { "series" };
    let host = HOSTS[random.below(7) as usize];
    let tags = match random.below(3) {
        0 => format!(r#", "where": {{"host": ["{host}", "a"]}}"#),
        1 => String::new(),
        _ => r#", "group-by-tag": ["host"]"#.to_owned(),
    };
    let step = 1 + random.below(200);
    let kind = match random.below(5) {
        0 => format!(r#""select": "{metric}""#),
        1 => format!(r#""aggregate": {{"{metric}": "sum"}}"#),
        2 => {
            format!(
                r#""group-aggregate": {{"metric": "{metric}", "step": "{step}s", "func": ["min", "count"]}}"#
            )
        }
        3 => r#""join": ["x", "y", "z"]"#.to_owned(),
        _ => format!(
            r#""group-aggregate-join": {{"metric": ["x", "y"], "step": "{step}s", "func": "last"}}"#
        ),
    };
    let tags = if kind.contains("join") || kind.contains(r#""aggregate""#) {
        tags.replace(r#", "group-by-tag": ["host"]"#, "")
    } else {
        tags
    };
    let is_ordered = |kind: &str| !kind.starts_with("\"aggregate");
    let order =
        if is_ordered(&kind) { format!(r#", "order-by": "{order}""#) } else { String::new() };
    format!(
        r#"{{{kind}, "range": {{{range}}}{tags}{order}, "output": {{"format": "csv", "timestamp": "raw"}}}}"#
    )
}

/// The rows of an answer as a set, and what is wrong with the query if there are none.
async fn rows(store: &SeriesStore, text: &str) -> Vec<String> {
    let query = match Query::parse(text.as_bytes()) {
        Ok(query) => query,
        Err(why) => panic!("{text}: {why}"),
    };
    let answer = match store.query(&query).await {
        Ok(answer) => answer.collect().await.map_err(|why| why.to_string()),
        Err(why) => Err(why.to_string()),
    };
    let text = answer.map_or_else(|why| why, |text| String::from_utf8(text).unwrap());
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    rows.sort_unstable();
    rows
}

/// An expression of PromQL, or a question about names.
fn question(random: &mut Random) -> (&'static str, String) {
    let name = name(random);
    let expression = match random.below(6) {
        0 => selector(&name),
        1 => "sum by (host) (x + on (host) y)".to_owned(),
        2 => "max_over_time(z[90s]) - ignoring (nothing) min_over_time(z[90s])".to_owned(),
        3 => format!("sum({})", selector(&name)),
        4 => r#"count({__name__=~"x|y|z"})"#.to_owned(),
        _ => "rate(x[120s] offset 30s)".to_owned(),
    };
    let span = format!("start={}&end={SPAN}&step=37", random.below(SPAN));
    // A list of all time, or of some.
    let first = random.below(SPAN);
    let times = ["", &format!("&start={first}&end={}", first + random.below(20))]
        [random.below(2) as usize]
        .to_owned();
    match random.below(8) {
        0 => ("/api/v1/labels", times),
        1 => ("/api/v1/label/host/values", times),
        2 => ("/api/v1/series", format!("match[]={}{times}", encoded(r#"{host=~"a|b|c"}"#))),
        _ => ("/api/v1/query_range", format!("query={}&{span}", encoded(&expression))),
    }
}

async fn told(store: &SeriesStore, (path, form): &(&'static str, String)) -> serde_json::Value {
    let (status, text) = prometheus(store, path, &[form.as_bytes(), b""], 0).await;
    assert_eq!(status, 200, "{path}?{form}: {text}");
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let list =
        if json["data"].is_array() { &mut json["data"] } else { &mut json["data"]["result"] };
    list.as_array_mut().unwrap().sort_by_key(ToString::to_string);
    json
}

#[test]
fn series_in_parts_answer_as_series_that_are_not_divided_whoever_owns_them() {
    for seed in 0..6 {
        run(seed, |env| async move {
            let mut random = Random::new(seed);
            let mut three = Three::new(&env).await;
            for round in 0..60 {
                for _ in 0..random.below(6) {
                    three.change(&mut random).await;
                }
                three.sync().await;
                if random.below(2) == 0 {
                    // What waits for the owners counts as well.
                    let points = [(point(&mut random), name(&mut random))];
                    for database in [&three.plain.0, &three.own.0, &three.fleet.0] {
                        transact(database, &points).await;
                    }
                }
                let (text, asked) = (query(&mut random), question(&mut random));
                let [plain, own, theirs] = three.stores(&mut random);
                let (wanted, is_told) = (rows(plain, &text).await, told(plain, &asked).await);
                for (which, store) in [("own", own), ("theirs", theirs)] {
                    let about = format!("seed {seed}, round {round}, {which}");
                    assert_eq!(rows(store, &text).await, wanted, "{about}: {text}");
                    assert_eq!(told(store, &asked).await, is_told, "{about}: {asked:?}");
                }
                let view = SeriesStore::view(&three.fleet.0, settings(1)).await.unwrap();
                assert_eq!(rows(&view, &text).await, wanted, "seed {seed}, a view: {text}");
            }
            three.own.1.check_invariants().await.unwrap();
            let owners = three.fleet.1.owners.lock().unwrap().clone();
            for store in owners {
                store.check_invariants().await.unwrap();
            }
        });
    }
}

/// An owner in whose store points move on between what it says and what whoever asked then reads.
struct Restless {
    store: SeriesStore,
    /// Behind all that is asked for.
    next: Mutex<i64>,
}

impl Owner for Restless {
    fn ask(&self, question: Vec<u8>) -> Told<'_> {
        Box::pin(async move {
            let answer = self.store.answer(0, &question).await;
            // What was open is sealed, and what came late is merged into leaves.
            for (metric, host) in ["x", "y"].into_iter().flat_map(|m| HOSTS.map(|host| (m, host))) {
                let name = format!("{metric} host={host}");
                let Ok(series) = self.store.series(&name).await else { continue };
                for _ in 0..17 {
                    let next = { *self.next.lock().unwrap() };
                    *self.next.lock().unwrap() += 1;
                    series.append(next, 1.0).unwrap();
                }
            }
            self.store.sync().await.unwrap();
            answer
        })
    }
}

/// What moves from the owner's memory into rows while somebody asks is there once.
#[test]
fn points_that_are_sealed_and_merged_while_somebody_asks_are_there_once() {
    run(12, |env| async move {
        let mut random = Random::new(12);
        let (one, two) = (database(&env, "/plain").await, database(&env, "/parts").await);
        let plain = SeriesStore::open_with(&one, settings(1)).await.unwrap();
        let division = Division::of(&two, settings(2)).await.unwrap();
        let own = [taken(&division, 0, 0).await, taken(&division, 1, 0).await];
        let behind = SPAN as i64 * 1_000_000_000;
        let restless = Restless { store: own[0].clone(), next: Mutex::new(2 * behind) };
        let first = division.elsewhere(0, Arc::new(restless));
        let (all, theirs) =
            (division.together(own.clone()), division.together([first, own[1].clone()]));
        for round in 0..40 {
            for _ in 0..1 + random.below(12) {
                let name = name(&mut random).replace('z', "x");
                for (time, value) in (0..1 + random.below(20)).map(|_| point(&mut random)) {
                    for store in [&plain, &all] {
                        store.series(&name).await.unwrap().append(time, value).unwrap();
                    }
                }
            }
            if random.below(3) == 0 {
                all.sync().await.unwrap();
            }
            let text = format!(
                r#"{{"{}": {}, "range": {{"from": 0, "to": "{behind}ns"}}, "output": {{"format": "csv", "timestamp": "raw"}}}}"#,
                ["select", "aggregate", "group-aggregate"][round % 3],
                [
                    r#""x""#,
                    r#"{"x": "count"}"#,
                    r#"{"metric": "x", "step": "70s", "func": ["sum", "count"]}"#
                ][round % 3]
            );
            assert_eq!(rows(&theirs, &text).await, rows(&plain, &text).await, "{round}: {text}");
            let expression = encoded(["rate(y[300s])", "sum(count_over_time(x[500s]))"][round % 2]);
            let form = format!("query={expression}&start=0&end={SPAN}&step=90");
            let asked = ("/api/v1/query_range", form);
            assert_eq!(told(&theirs, &asked).await, told(&plain, &asked).await, "{round}");
        }
    });
}

/// What owners had said lay in memory beside what all queries may hold together.
#[test]
fn what_owners_say_counts_for_what_queries_hold() {
    run(13, |env| async move {
        let database = database(&env, "/db").await;
        let few = Settings { query_bytes: 20_000, leaf_points: 2048, ..settings(2) };
        let division = Division::of(&database, few).await.unwrap();
        let plenty = Settings { leaf_points: 2048, ..settings(2) };
        let theirs = Division::of(&database, plenty).await.unwrap();
        let owners = vec![taken(&theirs, 0, 0).await, taken(&theirs, 1, 0).await];
        let own = theirs.together(owners.clone());
        let owners = Arc::new(Mutex::new(owners));
        let way = |part| Arc::new(Way { part, owners: owners.clone() });
        let store = division.together((0..2).map(|part| division.elsewhere(part, way(part))));
        let text = r#"{"aggregate": {"x": "count"}, "range": {"from": 0, "to": 100000}, "output": {"format": "csv"}}"#;
        let fill = async |points: i64| {
            for host in HOSTS {
                let series = own.series(&format!("x host={host}")).await.unwrap();
                for time in 0..points {
                    series.append(time, 1.0).unwrap();
                }
            }
        };
        fill(10).await;
        assert_eq!(rows(&store, text).await.len(), HOSTS.len());
        assert_eq!(store.stats().query_bytes, 0, "it is given back");
        fill(1000).await;
        let told = rows(&store, text).await;
        assert!(told[0].contains("bytes held by all queries"), "{told:?}");
        assert_eq!(store.stats().query_bytes, 0, "it is given back");
        assert_eq!(rows(&own, text).await.len(), HOSTS.len());
    });
}

#[test]
fn limits_are_those_of_the_whole() {
    run(1, |env| async move {
        let database = database(&env, "/db").await;
        let limits = SeriesLimits { series: 40, of_metric: 30, ..SeriesLimits::default() };
        let settings = Settings { limits, ..settings(PARTS) };
        let store = SeriesStore::open_with(&database, settings).await.unwrap();
        let made = async |metric: &str| {
            let mut made = 0;
            for host in 0..50 {
                match store.series(&format!("{metric} host={host}")).await {
                    Ok(_) => made += 1,
                    Err(Error::TooMany { .. }) => {}
                    Err(why) => panic!("{why}"),
                }
            }
            made
        };
        assert_eq!((made("x").await, made("y").await, made("x").await), (30, 10, 30));
        store.sync().await.unwrap();
        store.check_invariants().await.unwrap();
    });
}

/// What was appended between the last commit and the end of the lease was lost, and a sender that
/// went on with another server was told that it was durable.
#[test]
fn whoever_hands_a_part_over_keeps_nothing_back_and_writes_nothing_more() {
    run(2, |env| async move {
        let database = database(&env, "/db").await;
        let mut fleet = Fleet::new(&database).await;
        let old = fleet.owners.lock().unwrap().clone();
        let mut series = Vec::new();
        for host in HOSTS {
            let name = format!("x host={host}");
            for store in &old {
                match store.series(&name).await {
                    Ok(found) => series.push(found),
                    Err(why) => assert!(matches!(why, Error::NotOwner), "{why}"),
                }
            }
        }
        assert_eq!(series.len(), HOSTS.len(), "each name has one part");
        series.iter().for_each(|series| series.append(1, 1.0).unwrap());
        for part in 0..PARTS {
            fleet.move_part(part).await;
        }
        for series in &series {
            assert!(matches!(series.append(2, 2.0), Err(Error::NotOwner)));
        }
        for store in &fleet.stores {
            for host in HOSTS {
                let found = store.existing(&format!("x host={host}")).await.unwrap().unwrap();
                assert_eq!(found.aggregate(..).await.unwrap().unwrap().count, 1);
            }
        }
        for store in old {
            assert!(store.lost().is_none() && store.sync().await.is_ok());
        }
    });
}

#[test]
fn a_place_with_rows_is_not_divided_and_one_that_was_cleared_is_made_again() {
    run(3, |env| async move {
        let database = database(&env, "/db").await;
        transact(&database, &[((1, 1.0), "x host=a".to_owned())]).await;
        let division = Division::of(&database, settings(PARTS)).await.unwrap();
        assert_eq!(division.parts(), 1, "somebody wrote there who knew of no parts");

        let prefix = Some(b"series/".to_vec());
        let settings = Settings { prefix: prefix.clone(), ..settings(PARTS) };
        let division = Division::of(&database, settings.clone()).await.unwrap();
        let layer = SeriesLayer::with_settings(&database, Settings { prefix, ..self::settings(1) });
        let write = async || {
            let body = |tr| {
                let layer = layer.clone();
                async move { layer.append(&tr, "x host=a", 1, 1.0).await }
            };
            database.try_transact(body).await
        };
        write().await.unwrap();
        let poster = division.elsewhere(0, Arc::new(Way { part: 0, owners: Owners::default() }));
        let everything = async || {
            let clear = |tr: plinth::Transaction| async move {
                tr.clear_prefix("series/");
                Ok(())
            };
            database.transact(clear).await.unwrap();
        };
        everything().await;
        let mut candidate = division.candidate(0, Claim::new("late", ""));
        assert!(matches!(candidate.look().await, Err(Error::NotOwner)), "there is no place");
        drop(poster);
        let mut member = division.member("late");
        assert_eq!(member.beat().await.unwrap().members, ["late"]);
        assert!(matches!(candidate.look().await, Ok(Look::Ours(_))));
        write().await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        let view = SeriesStore::view(&database, settings).await.unwrap();
        assert_eq!(
            rows(
                &view,
                r#"{"select": "x", "range": {"from": 0, "to": 9}, "output": {"format": "csv"}}"#
            )
            .await
            .len(),
            1
        );
    });
}

/// A server that looked before there was a place took it for one that is not divided. What it was
/// sent after another one had divided it lay in an inbox that nobody owns, acknowledged, and was
/// never read.
#[test]
fn whoever_took_the_series_for_undivided_posts_nothing_once_they_are_divided() {
    run(5, |env| async move {
        let database = database(&env, "/db").await;
        let early = Division::of(&database, settings(1)).await.unwrap();
        let posting = SeriesStore::post_undivided(&database, settings(1));
        let mut candidate = early.candidate(0, Claim::new("early", ""));
        let division = Division::of(&database, settings(PARTS)).await.unwrap();
        assert_eq!((early.parts(), division.parts()), (1, PARTS));
        assert!(matches!(posting.series("x host=a").await, Err(Error::NotOwner)));
        assert!(matches!(candidate.look().await, Err(Error::NotOwner)));
        let anew = Division::of(&database, settings(1)).await.unwrap();
        assert_eq!(anew.parts(), PARTS, "it looks again, and takes what is there");
    });
}

/// The other way round: what was posted stays where whoever looks next finds it.
#[test]
fn a_place_is_not_divided_once_somebody_has_posted_there() {
    run(6, |env| async move {
        let database = database(&env, "/db").await;
        let posting = SeriesStore::post_undivided(&database, settings(1));
        posting.series("x host=a").await.unwrap().append(1, 1.0).unwrap();
        posting.sync().await.unwrap();
        assert_eq!(Division::of(&database, settings(PARTS)).await.unwrap().parts(), 1);
        let store = SeriesStore::open_with(&database, settings(PARTS)).await.unwrap();
        let series = store.existing("x host=a").await.unwrap().unwrap();
        assert_eq!(series.aggregate(..).await.unwrap().unwrap().count, 1);
    });
}

/// The same after all rows were cleared: what was known of the place before holds no more.
#[test]
fn whoever_owned_undivided_series_posts_nothing_once_they_were_made_again_in_parts() {
    run(7, |env| async move {
        let database = database(&env, "/db").await;
        let here = |parts| Settings { prefix: Some(b"series/".to_vec()), ..settings(parts) };
        let posting = SeriesStore::post_undivided(&database, here(1));
        let series = posting.series("x host=a").await.unwrap();
        series.append(1, 1.0).unwrap();
        posting.sync().await.unwrap();
        let clear = |tr: plinth::Transaction| async move {
            tr.clear_prefix("series/");
            Ok(())
        };
        database.transact(clear).await.unwrap();
        assert_eq!(Division::of(&database, here(PARTS)).await.unwrap().parts(), PARTS);
        series.append(2, 2.0).unwrap();
        assert!(matches!(posting.sync().await, Err(Error::NotOwner)));
    });
}

/// A transaction that found the place as it was known put its points there also if it was cleared,
/// and made anew in other parts, before the commit.
#[test]
fn a_transaction_meets_with_whoever_makes_the_place_anew() {
    run(9, |env| async move {
        let database = database(&env, "/db").await;
        let here = |parts| Settings { prefix: Some(b"series/".to_vec()), ..settings(parts) };
        Division::of(&database, here(PARTS)).await.unwrap();
        let layer = SeriesLayer::with_settings(&database, here(1));
        let append = |tr: plinth::Transaction| {
            let layer = layer.clone();
            async move { layer.append(&tr, "x host=a", 1, 1.0).await }
        };
        database.try_transact(append).await.unwrap();
        let tr = database.create_transaction();
        layer.append(&tr, "x host=a", 2, 2.0).await.unwrap();
        let clear = |tr: plinth::Transaction| async move {
            tr.clear_prefix("series/");
            Ok(())
        };
        database.transact(clear).await.unwrap();
        assert_eq!(Division::of(&database, here(2 * PARTS)).await.unwrap().parts(), 2 * PARTS);
        let committed = tr.commit().await;
        assert_eq!(committed.unwrap_err(), plinth::Error::not_committed());
        database.try_transact(append).await.unwrap();
        let view = SeriesStore::view(&database, here(1)).await.unwrap();
        let series = view.existing("x host=a").await.unwrap().expect("it goes where it belongs");
        assert_eq!(series.aggregate(..).await.unwrap().unwrap().count, 1);
    });
}

/// Each inbox could have as much from transactions as all of them together were to have.
#[test]
fn an_inbox_has_its_part_of_what_may_wait_whoever_fills_it() {
    run(10, |env| async move {
        let database = database(&env, "/db").await;
        let settings = Settings { inbox_bytes: 4000, ..settings(PARTS) };
        Division::of(&database, settings.clone()).await.unwrap();
        let layer = SeriesLayer::with_settings(&database, settings);
        let mut taken = 0;
        loop {
            let tr = database.create_transaction();
            match layer.append(&tr, "x host=a", taken, 1.0).await {
                Ok(()) => tr.commit().await.unwrap(),
                Err(Error::Database(why)) if why == plinth::Error::process_behind() => break,
                Err(why) => panic!("{why}"),
            }
            taken += 1;
        }
        // A row of one point has some 35 bytes.
        assert!((15..=50).contains(&taken), "{taken}");
    });
}

/// A server that died every few seconds drew its share each time, and its parts were nobody's until
/// they were taken over again.
#[test]
fn parts_are_handed_over_to_members_that_have_lived_for_some_time() {
    run(11, |env| async move {
        let database = database(&env, "/db").await;
        let division = Division::of(&database, settings(PARTS)).await.unwrap();
        let (mut one, mut other) = (division.member("one"), division.member("other"));
        let beats = async |count: usize, one: &mut Members, other: Option<&mut Members>| {
            let mut other = other;
            for _ in 0..count {
                env.sleep(Duration::from_millis(500)).await;
                if let Some(other) = &mut other {
                    other.beat().await.unwrap();
                }
                one.beat().await.unwrap();
            }
            let live = one.beat().await.unwrap();
            (live.members.len(), live.settled.len())
        };
        assert_eq!(beats(10, &mut one, Some(&mut other)).await, (2, 1));
        assert_eq!(beats(15, &mut one, Some(&mut other)).await, (2, 2));
        assert_eq!(beats(8, &mut one, None).await, (1, 1), "it is dead");
        assert_eq!(beats(10, &mut one, Some(&mut other)).await, (2, 1), "and alive again");
        other.leave().await.unwrap();
        assert_eq!(beats(1, &mut one, None).await, (1, 1), "at once");
    });
}

/// Programs from before there were parts look at nothing but how much waits in the inbox.
#[test]
fn the_inbox_of_a_divided_place_is_full_for_programs_that_know_of_no_parts() {
    run(8, |env| async move {
        let database = database(&env, "/db").await;
        let prefix = b"series/".to_vec();
        let settings = Settings { prefix: Some(prefix.clone()), ..settings(PARTS) };
        Division::of(&database, settings).await.unwrap();
        let key = [prefix, plinth::tuple::pack(&(12,))].concat();
        let row = database.transact(|tr| tr.get(&key)).await.unwrap().expect("it is there");
        assert!(i64::from_le_bytes(row[..].try_into().unwrap()) > i64::MAX / 4);
    });
}

/// As `migrate` brings them from a FoundationDB: they were taken for none, and a new place was
/// begun beside them.
#[test]
fn series_in_parts_among_users_keys_are_not_moved_and_that_is_said() {
    run(4, |env| async move {
        let database = database(&env, "/db").await;
        let prefix = Some(b"\x02plinth.series\0".to_vec());
        let there = Settings { prefix, ..settings(PARTS) };
        let store = SeriesStore::open_with(&database, there).await.unwrap();
        store.series("x host=a").await.unwrap().append(1, 1.0).unwrap();
        store.sync().await.unwrap();
        let why = SeriesStore::open(&database).await.unwrap_err().to_string();
        assert!(why.contains("are divided in parts"), "{why}");
    });
}

/// A server that posted to a part, and took it over, counted each of its series twice, and refused
/// points of series that there are from half of their memory on.
#[test]
fn series_of_a_part_that_comes_over_are_not_counted_twice() {
    run(9, async |env| {
        let database = database(&env, "/db").await;
        let limits = SeriesLimits { memory: 300_000, ..SeriesLimits::default() };
        let settings = Settings { limits, ..settings(2) };
        let [former, division] = [
            Division::of(&database, settings.clone()).await,
            Division::of(&database, settings).await,
        ]
        .map(Result::unwrap);
        // As many as there may be, of names that belong to the part.
        let owner = taken(&former, 0, 0).await;
        let (mut names, mut host) = (Vec::new(), 0);
        loop {
            let name = format!("m host={host}");
            host += 1;
            match owner.series(&name).await {
                Ok(series) => {
                    series.append(1, 1.0).unwrap();
                    names.push(name);
                }
                Err(Error::NotOwner) => {}
                Err(Error::TooMany { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        names.truncate(names.len() * 3 / 4);
        owner.hand_over().await.unwrap();
        let poster = division.elsewhere(0, Arc::new(Way { part: 0, owners: Owners::default() }));
        let owner = taken(&division, 0, 1).await;
        let mut known = Vec::new();
        for store in [&poster, &owner] {
            for name in &names {
                let series = store.series(name).await.unwrap_or_else(|why| panic!("{name}: {why}"));
                series.append(2, 1.0).unwrap();
                known.push(series);
            }
        }
    });
}
