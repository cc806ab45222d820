//! What becomes of alerts on their way: which wait, which go first, which are dropped, and what an
//! Alertmanager's answers mean. It is played by a listener that answers with the statuses of a
//! list; the clock and the sockets are simulated.

use super::*;
use plinth_env::simulated::Simulation;
use plinth_env::{Listener, Stream};
use serde_json::Value as Json;
use std::future::poll_fn;
use std::net::SocketAddr;

/// One that fires until a time, or is resolved.
fn notice(number: usize, ends_at: i64, is_resolved: bool) -> Notice {
    let number = number.to_string();
    Notice {
        labels: [("alertname", "A"), ("n", number.as_str())].into_iter().collect(),
        annotations: Vec::new(),
        starts_at: 0,
        ends_at,
        is_resolved,
        generator: String::new(),
    }
}

fn firing(numbers: std::ops::Range<usize>) -> Vec<Notice> {
    numbers.map(|number| notice(number, i64::MAX, false)).collect()
}

/// Their numbers.
fn numbers(first: &[(u64, Notice)]) -> Vec<&str> {
    first.iter().map(|(_, notice)| notice.labels.get("n")).collect()
}

#[test]
fn of_too_many_alerts_the_oldest_go() {
    let mut queue = Queue::default();
    let gone: u64 = firing(0..MOST + 3).into_iter().map(|notice| queue.add(notice)).sum();
    assert_eq!((gone, queue.waiting.len(), queue.places.len()), (3, MOST, MOST));
    let (first, _) = queue.first(0);
    assert_eq!((first.len(), numbers(&first)[0]), (AT_ONCE, "3"));
    // A newer word of one that waits takes no room.
    assert_eq!(queue.add(notice(7, 1, true)), 0);
    // One that has gone waits anew, at the end.
    assert_eq!(queue.add(notice(0, i64::MAX, false)), 1);
    assert_eq!(numbers(&queue.first(0).0)[0], "4");
}

#[test]
fn one_that_nobody_would_believe_any_more_is_dropped_and_a_resolved_one_is_not() {
    let mut queue = Queue::default();
    for (number, ends_at, is_resolved) in [(1, 5, false), (2, 6, false), (3, 1, true)] {
        queue.add(notice(number, ends_at, is_resolved));
    }
    let (first, expired) = queue.first(5);
    assert_eq!((numbers(&first), expired), (vec!["2", "3"], 1));
    queue.add(notice(1, 9, false));
    assert_eq!(numbers(&queue.first(5).0), ["2", "3", "1"], "it waits anew");
}

#[test]
fn a_newer_word_that_comes_while_the_older_one_is_told_stays() {
    let mut queue = Queue::default();
    queue.add(notice(1, 9, false));
    queue.add(notice(2, 9, false));
    let (told, _) = queue.first(0);
    queue.add(notice(1, 3, true));
    queue.done(&told);
    let (first, _) = queue.first(0);
    assert_eq!(numbers(&first), ["1"]);
    assert!(first[0].1.is_resolved);
}

/// The body of a request.
async fn asked(stream: &mut Stream) -> Option<String> {
    let mut text = String::new();
    loop {
        let mut buffer = [0; 4096];
        let len = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.ok()?;
        text += std::str::from_utf8(&buffer[..len]).ok().filter(|text| !text.is_empty())?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        assert!(head.starts_with("POST /am/api/v2/alerts HTTP/1.1\r\n"), "{head}");
        let mut lengths = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= lengths.next()?.parse().ok()? {
            return Some(body.to_string());
        }
    }
}

/// Answers with a status each, and says how many alerts it was sent with each request.
async fn answer(listener: &Listener, statuses: &[u16]) -> Vec<usize> {
    let mut heard = Vec::new();
    for status in statuses {
        let mut stream = listener.accept().await.unwrap();
        let alerts: Vec<Json> = serde_json::from_str(&asked(&mut stream).await.unwrap()).unwrap();
        heard.push(alerts.len());
        let text = format!("HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n");
        let mut sent = 0;
        while sent < text.len() {
            let more = poll_fn(|context| stream.poll_send(context, &text.as_bytes()[sent..]));
            sent += more.await.unwrap();
        }
    }
    heard
}

async fn opened(env: &Env, at: SocketAddr) -> Arc<Notifier> {
    let notifier = Notifier::open(env, &format!("http://{at}/am/"), None).await.unwrap();
    assert_eq!(notifier.url(), format!("http://{at}/am/api/v2/alerts"));
    Arc::new(notifier)
}

/// Tells so many alerts to one who answers so: how many it was sent with each request, and what is
/// counted as sent, as errors, as dropped, and still waits.
fn told(alerts: usize, statuses: &[u16]) -> (Vec<usize>, [u64; 4]) {
    let sim = Simulation::new(1);
    let (env, theirs) = (sim.process("server"), sim.process("alertmanager"));
    let at = SocketAddr::new(sim.ip(&theirs), 9093);
    sim.run_until(async {
        let listener = theirs.sockets().listen(at).await.unwrap();
        let notifier = opened(&env, at).await;
        notifier.add(&firing(0..alerts));
        let running = env.spawn("tell", run(env.clone(), notifier.clone(), Outside::default()));
        let heard = answer(&listener, statuses).await;
        // Its last answer arrives, and nothing more is sent that would be counted.
        drop(listener);
        env.sleep(Duration::from_millis(900)).await;
        let n = &notifier;
        let counts = [n.sent(), n.errors(), n.dropped(), n.waiting()];
        notifier.stop();
        running.await.unwrap();
        (heard, counts)
    })
}

#[test]
fn alerts_are_told_some_at_a_time() {
    assert_eq!(told(600, &[200, 202, 200]), (vec![256, 256, 88], [600, 0, 0, 0]));
}

/// Statuses such as 404 were tried again for ever, and what came behind waited; none of those that
/// were refused counted as an error, which there is an alert on.
#[test]
fn what_is_refused_is_dropped_and_counts_as_an_error() {
    for status in [400, 401, 404, 405, 413, 422] {
        let wanted = (vec![256, 44], [44, 1, 256, 0]);
        assert_eq!(told(300, &[status, 200]), wanted, "{status}");
    }
}

#[test]
fn what_may_be_taken_later_is_told_again() {
    for status in [408, 429, 500, 502, 503] {
        let wanted = (vec![256, 256, 44], [300, 1, 0, 0]);
        assert_eq!(told(300, &[status, 200, 200]), wanted, "{status}");
    }
}

/// It slept for up to half a minute first, and held the database meanwhile.
#[test]
fn a_server_that_stops_does_not_wait_for_the_next_try() {
    let sim = Simulation::new(2);
    let env = sim.process("server");
    let at = SocketAddr::new(sim.ip(&env), 9093);
    let begun = sim.run_until(async {
        // Nobody listens.
        let notifier = opened(&env, at).await;
        notifier.add(&firing(0..1));
        let running = env.spawn("tell", run(env.clone(), notifier.clone(), Outside::default()));
        env.sleep(Duration::from_secs(100)).await;
        let begun = env.now();
        notifier.stop();
        running.await.unwrap();
        begun
    });
    assert!(sim.now() - begun <= FAREWELL, "{:?}", sim.now() - begun);
}
