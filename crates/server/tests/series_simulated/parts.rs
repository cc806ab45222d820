//! Three servers that own parts of the series: how parts are spread, and that each server takes and
//! answers everything, whoever owns what.
//!
//! What all of these tests hold on to is that a server is as good as any other for whoever sends
//! and asks.

use super::cluster::{SERVERS, World};
use super::{line, send_all};
use plinth_client::Database;
use plinth_env::{Env, Listener, Stream};
use plinth_series::{Claim, Division, Look, SeriesStore, Settings};
use plinth_types::system;
use std::fmt::Write;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

const PARTS: usize = 8;
const HOSTS: usize = 24;

/// Each server has its share, the others have that of one that died within five seconds, and one
/// that comes gets its own, one part after the other.
#[test]
fn parts_are_spread_evenly_over_the_servers_that_live() {
    let mut world = World::new(5, PARTS);
    let looker = world.sim().process("looker");
    let counts = |world: &World| {
        let owners = world.owners(&looker);
        let of = |server| owners.iter().filter(|owner| **owner == Some(server)).count();
        [0, 1, 2].map(of)
    };
    let is_even = |counts: [usize; SERVERS]| counts.iter().all(|count| (2..=3).contains(count));
    world.sim().run_for(Duration::from_secs(20));
    assert!(is_even(counts(&world)), "{:?}", counts(&world));
    world.crash(1);
    world.sim().run_for(Duration::from_secs(5));
    assert_eq!(counts(&world), [4, 0, 4], "of a dead server the others have everything");
    world.restart(1);
    world.sim().run_for(Duration::from_secs(20));
    assert!(is_even(counts(&world)), "{:?}", counts(&world));
    world.end(2);
    world.sim().run_for(Duration::from_millis(1500));
    assert_eq!(counts(&world), [4, 4, 0], "of one that ended, at once");
}

/// Sends points of all hosts to a server, and hears that they are durable.
async fn send(env: &Env, at: SocketAddr, time: u64) {
    let mut stream = env.sockets().connect(at).await.expect("it listens");
    send_more(&mut stream, time, 2 * HOSTS).await;
}

/// The same in a session, in which so many points are durable then.
async fn send_more(stream: &mut Stream, time: u64, durable: usize) {
    let mut text = String::new();
    for host in 0..HOSTS {
        write!(text, "+load|rate host=h{host}\n:{time}\n*2\n:{host}\n:1\n").unwrap();
    }
    send_all(stream, (text + "+SYNC\n").as_bytes()).await.expect("it reads");
    assert_eq!(line(stream).await.unwrap(), format!("+OK {durable}\r\n"));
}

/// The status and the body of what a server answers.
async fn ask(env: &Env, at: SocketAddr, head: &str, body: &str) -> (String, String) {
    let mut stream = env.sockets().connect(at).await.expect("it listens");
    let len = body.len();
    let head = format!("{head} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
    send_all(&mut stream, (head + body).as_bytes()).await.expect("it reads");
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let len = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await;
        match len.expect("it answers") {
            0 => break,
            len => answer.extend_from_slice(&buffer[..len]),
        }
    }
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("it is HTTP");
    (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned())
}

/// How many series a server knows the points of, and what all their points add up to: in Akumuli's
/// language, in PromQL, and what a join of metrics in different parts has.
async fn known(env: &Env, at: SocketAddr) -> (usize, String, usize) {
    let range = r#""range":{"from":0,"to":100000000000},"output":{"format":"csv"}"#;
    let query = format!(r#"{{"aggregate":{{"load":"count"}},{range}}}"#);
    let (_, rows) = ask(env, at, "POST /api/query", &query).await;
    let rows = rows.lines().filter(|row| !row.starts_with('-')).count();
    let expression = "sum(load%20*%20on(host)%20rate)";
    let path = format!("GET /api/v1/query?query={expression}&time=10");
    let (status, text) = ask(env, at, &path, "").await;
    assert_eq!(status, "200", "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sum = json["data"]["result"][0]["value"][1].as_str().unwrap_or_default().to_owned();
    let query = format!(r#"{{"join":["load","rate"],{range}}}"#);
    let (_, joined) = ask(env, at, "POST /api/query", &query).await;
    let joined = joined.lines().filter(|row| !row.starts_with('-')).count();
    (rows, sum, joined)
}

/// Where nobody wants series divided a server takes points before any database has answered: it
/// waited for that, and dropped what came meanwhile.
#[test]
fn a_server_takes_points_before_there_is_a_majority() {
    let mut world = World::new(8, 1);
    world.sim().run_for(Duration::from_secs(5));
    (0..SERVERS).for_each(|at| world.crash(at));
    world.restart(0);
    world.sim().run_for(Duration::from_secs(1));
    let env = world.sim().process("client");
    let [_, questions] = world.doors();
    let asked = ask(&env, questions[0], "GET /ping", "");
    let answer = world.sim().run_until_within(Duration::from_secs(3), asked);
    assert_eq!(answer.map(|(status, _)| status).as_deref(), Some("204"));
}

#[test]
fn any_server_takes_answers_and_deletes_whatever_part_it_lies_in() {
    let mut world = World::new(6, PARTS);
    let env = world.sim().process("client");
    world.sim().run_for(Duration::from_secs(20));
    let [lines, questions] = world.doors();
    let all = (0..HOSTS).sum::<usize>().to_string();
    world.sim().run_until(async {
        send(&env, lines[0], 7_000_000_000).await;
        send(&env, lines[1], 8_000_000_000).await;
        for at in &questions {
            let expected = (HOSTS, all.clone(), 2 * HOSTS);
            assert_eq!(known(&env, *at).await, expected, "{at}");
            let (status, text) = ask(&env, *at, "GET /api/v1/rules", "").await;
            assert!(status == "200" || text.contains("parse"), "{status}: {text}");
        }
        let path = "POST /api/v1/admin/tsdb/delete_series?match[]=load{host=~\"h.\"}";
        let (status, text) = ask(&env, questions[2], &path.replace('"', "%22"), "").await;
        assert_eq!((status.as_str(), text.as_str()), ("204", ""));
        let left = HOSTS - 10;
        let sum = (10..HOSTS).sum::<usize>().to_string();
        for at in &questions {
            assert_eq!(known(&env, *at).await, (left, sum.clone(), 2 * HOSTS), "{at}");
        }
    });
    // Who asks while a part has no owner waits for the next one.
    world.crash(0);
    let left = HOSTS - 10;
    let known = world.sim().run_until(known(&env, questions[1]));
    assert_eq!((known.0, known.2), (left, 2 * HOSTS));
}

/// A server that had found the series undivided, or in some parts, went on so for good: it was left
/// out when somebody had made them anew, and what it had taken for undivided ones nobody read.
#[test]
fn servers_follow_when_series_are_made_anew_in_other_parts() {
    let world = World::new(8, 1);
    let env = world.sim().process("client");
    world.sim().run_for(Duration::from_secs(5));
    let [lines, questions] = world.doors();
    let database = world.client(&env);
    let all = (0..HOSTS).sum::<usize>().to_string();
    for parts in [4, 8, 1, 2] {
        world.sim().run_until(async {
            let clear = |tr: plinth_client::Transaction| async move {
                tr.clear_range(system::SERIES_PREFIX, system::SERIES_END);
                Ok(())
            };
            database.clone().with_system_keys().transact(clear).await.unwrap();
            let settings = Settings { parts, ..Settings::default() };
            if parts == 1 {
                // Somebody who knows of no parts was there first.
                let posting = SeriesStore::post_undivided(&database, settings);
                posting.series("early host=h0").await.unwrap().append(1, 1.0).unwrap();
                posting.sync().await.unwrap();
            } else {
                assert_eq!(Division::of(&database, settings).await.unwrap().parts(), parts);
            }
        });
        world.sim().run_for(Duration::from_secs(10));
        let owners = world.owners(&env);
        assert!(owners.len() == parts && owners.iter().all(Option::is_some), "{owners:?}");
        world.sim().run_until(async {
            for at in &lines {
                send(&env, *at, 7_000_000_000).await;
            }
            for at in &questions {
                let expected = (HOSTS, all.clone(), HOSTS);
                assert_eq!(known(&env, *at).await, expected, "{at}, {parts} parts");
            }
        });
    }
}

/// A sender that was silent while parts changed hands has series of stores that nobody writes to
/// any more.
#[test]
fn a_session_outlives_parts_that_are_handed_over_while_it_is_silent() {
    let mut world = World::new(11, PARTS);
    let env = world.sim().process("client");
    let looker = world.sim().process("looker");
    world.sim().run_for(Duration::from_secs(20));
    world.end(1);
    world.sim().run_for(Duration::from_secs(3));
    let [lines, questions] = world.doors();
    let mut stream = world.sim().run_until(async {
        let mut stream = env.sockets().connect(lines[0]).await.unwrap();
        send_more(&mut stream, 7_000_000_000, 2 * HOSTS).await;
        stream
    });
    let before = world.owners(&looker);
    world.restart(1);
    world.sim().run_for(Duration::from_secs(30));
    let moved =
        |(before, now): &(&Option<usize>, &Option<usize>)| **before == Some(0) && **now == Some(1);
    assert!(before.iter().zip(&world.owners(&looker)).any(|both| moved(&both)), "{before:?}");
    let all = (0..HOSTS).sum::<usize>().to_string();
    world.sim().run_until(async {
        send_more(&mut stream, 8_000_000_000, 4 * HOSTS).await;
        assert_eq!(known(&env, questions[1]).await, (HOSTS, all, 2 * HOSTS));
    });
}

/// A server without a door for questions owned parts, and all others' questions about them failed
/// as long as it lived.
#[test]
fn a_server_that_answers_no_questions_owns_nothing_beside_others() {
    let mut world = World::new(10, PARTS);
    let env = world.sim().process("client");
    world.sim().run_for(Duration::from_secs(20));
    world.end(2);
    world.unhear(2);
    world.restart(2);
    world.sim().run_for(Duration::from_secs(20));
    let owners = world.owners(&env);
    let of = |server| owners.iter().filter(|owner| **owner == Some(server)).count();
    assert_eq!([0, 1, 2].map(of), [4, 4, 0]);
    let [lines, questions] = world.doors();
    world.sim().run_until(async {
        send(&env, lines[2], 7_000_000_000).await;
        assert_eq!(known(&env, questions[0]).await.0, HOSTS);
    });
}

/// Takes all parts from the servers, and leaves them all but the first, at the address of which
/// nobody is who answers a question to its end.
async fn steal_first(env: &Env, database: &Database, address: String) -> SeriesStore {
    // Whoever holds parts without a lease is relieved by a candidate.
    drop(SeriesStore::open(database).await.unwrap());
    let division = Division::of(database, Settings::default()).await.unwrap();
    let mut first = None;
    for part in 0..division.parts() {
        let claim = Claim::new("thief", address.clone());
        let Ok(Look::Ours(store)) = division.candidate(part, claim).look().await else {
            panic!("part {part} is there to be taken");
        };
        if part == 0 {
            first = Some(store);
        } else {
            store.give_up().await.unwrap();
        }
    }
    env.sleep(Duration::from_secs(3)).await;
    first.unwrap()
}

/// Says the beginning of an answer to whoever asks, and nothing more.
async fn stall(door: Listener) {
    let mut asked = Vec::new();
    loop {
        let mut stream = door.accept().await.unwrap();
        let beginning = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n\x01";
        send_all(&mut stream, beginning).await.unwrap();
        asked.push(stream);
    }
}

/// Whoever asked an owner that stood still in the middle of its answer, a machine that was stopped
/// or cut off, waited for ever: nobody looked for the next owner.
#[test]
fn whoever_asks_an_owner_that_falls_silent_is_answered_by_the_next_one() {
    let world = World::new(9, 4);
    let env = world.sim().process("client");
    let thief = world.sim().process("thief");
    world.sim().run_for(Duration::from_secs(10));
    let [lines, questions] = world.doors();
    let database = world.client(&thief);
    let answer = world.sim().run_until_within(Duration::from_secs(60), async {
        send(&env, lines[0], 7_000_000_000).await;
        let address = SocketAddr::new(world.sim().ip(&thief), 8181);
        let door = thief.sockets().listen(address).await.unwrap();
        drop(thief.spawn("stall", stall(door)));
        let stolen = steal_first(&env, &database, address.to_string()).await;
        let timer = thief.clone();
        drop(thief.spawn("give up", async move {
            timer.sleep(Duration::from_secs(2)).await;
            drop(stolen);
        }));
        known(&env, questions[1]).await
    });
    let answer = answer.expect("it doesn't wait for ever");
    assert_eq!((answer.0, answer.2), (HOSTS, HOSTS));
}

/// Nobody without the lease's secret has a part's points told, and none but the owner tells them.
#[test]
fn only_whoever_knows_the_lease_asks_about_a_part() {
    let world = World::new(7, PARTS);
    let env = world.sim().process("client");
    world.sim().run_for(Duration::from_secs(20));
    let [_, questions] = world.doors();
    let statuses = world.sim().run_until(async {
        let (without, _) = ask(&env, questions[0], "POST /api/part/0", "").await;
        let wrong =
            format!("POST /api/part/0 HTTP/1.0\r\nX-Plinth-Lease: {}\r\nX:", "00".repeat(16));
        let (wrong, _) = ask(&env, questions[0], &wrong, "").await;
        (without, wrong)
    });
    assert_eq!(statuses, ("404".to_owned(), "421".to_owned()));
}
