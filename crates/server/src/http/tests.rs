//! A site that takes its time, in simulated time, and senders and readers that don't do their part.
//!
//! It answers each request after ten times what it lets others be idle, and has two slots, so that
//! both are full soon. Whoever is being answered has his time; everybody else has to hurry, and
//! makes room.

use super::*;
use plinth_env::simulated::Simulation;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

const IDLE: Duration = Duration::from_secs(10);

/// Answers each request after ten times what it lets others be idle.
struct Slow {
    env: Env,
    stop: Signal,
    stopping: AtomicBool,
}

impl Site for Slow {
    type Answer = Whole;
    const BOUNDS: Bounds = Bounds {
        connections: 2,
        probes: 0,
        buffer: 8192,
        idle: IDLE,
        half_close: false,
        asked_first: &[],
    };

    fn env(&self) -> &Env {
        &self.env
    }

    fn stop(&self) -> &Signal {
        &self.stop
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn rights(&self) -> Option<&Rights> {
        None
    }

    async fn answer(
        self: Arc<Self>,
        _: Request<Incoming>,
        patience: Arc<Patience>,
    ) -> Response<Whole> {
        patience.stop();
        self.env.sleep(10 * IDLE).await;
        patience.set(IDLE);
        Response::new(Whole(Bytes::from_static(b"at last")))
    }
}

async fn send(stream: &mut Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = poll_fn(|context| stream.poll_send(context, bytes))
            .await
            .expect("the other side takes it");
        bytes = &bytes[sent..];
    }
    poll_fn(|context| stream.poll_flush(context)).await.expect("the other side takes it");
}

/// What comes until the text ends with `end`, or the connection does.
async fn receive(stream: &mut Stream, end: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1000];
    while !text.ends_with(end) {
        match poll_fn(|context| stream.poll_receive(context, &mut buffer)).await {
            Ok(more @ 1..) => {
                text += std::str::from_utf8(&buffer[..more]).expect("answers are text")
            }
            Ok(0) | Err(_) => break,
        }
    }
    text
}

/// Serves the slow site; gives where it is, and it.
fn serve_slowly(sim: &Simulation) -> (SocketAddr, Arc<Slow>) {
    let env = sim.process("server");
    let address = SocketAddr::new(sim.ip(&env), 80);
    let site =
        Arc::new(Slow { env: env.clone(), stop: Signal::new(), stopping: AtomicBool::new(false) });
    let listener = sim.run_until(env.sockets().listen(address)).expect("the address is free");
    let theirs = site.clone();
    drop(env.clone().spawn("accept", async move {
        let open = Arc::new(Places::default());
        while let Ok(stream) = listener.accept().await {
            admit(&theirs, &open, stream, false);
        }
    }));
    (address, site)
}

/// A query of time series that took longer than a connection may be idle used to be cut off without
/// a word.
#[test]
fn time_that_an_answer_takes_is_not_the_readers() {
    let sim = Simulation::new(1);
    let (address, _site) = serve_slowly(&sim);
    let client = sim.process("client");
    let answers = sim.run_until(async {
        let mut stream = client.sockets().connect(address).await.expect("the server listens");
        let mut answers = Vec::new();
        for _ in 0..2 {
            send(&mut stream, b"GET / HTTP/1.1\r\nHost: slow\r\n\r\n").await;
            answers.push(receive(&mut stream, "at last").await);
        }
        answers
    });
    for answer in answers {
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("at last"), "{answer:?}");
    }
}

async fn half_a_request(client: &Env, address: SocketAddr) -> Stream {
    let mut stream = client.sockets().connect(address).await.expect("the server listens");
    send(&mut stream, b"GET / HTTP/1.1\r\nHost: ").await;
    stream
}

/// 128 half requests once kept a probe from `/health` for as long as somebody made new ones.
#[test]
fn half_requests_make_room_for_whoever_comes_and_who_is_being_answered_does_not() {
    let sim = Simulation::new(3);
    let (address, _site) = serve_slowly(&sim);
    let client = sim.process("client");
    sim.run_until(async {
        let mut streams = Vec::new();
        for _ in 0..10 * Slow::BOUNDS.connections {
            streams.push(half_a_request(&client, address).await);
            client.sleep(Duration::from_millis(1)).await;
        }
        let mut asking = Vec::new();
        for _ in 0..Slow::BOUNDS.connections {
            let mut stream = client.sockets().connect(address).await.expect("the server listens");
            send(&mut stream, b"GET / HTTP/1.1\r\nHost: slow\r\n\r\n").await;
            client.sleep(Duration::from_millis(1)).await;
            asking.push(stream);
        }
        for stream in &mut streams {
            assert_eq!(receive(stream, "never").await, "");
        }
        assert!(client.now() < IDLE / 2, "they have made room at once");
        let mut one_too_many = half_a_request(&client, address).await;
        assert_eq!(receive(&mut one_too_many, "never").await, "");
        assert!(client.now() < IDLE, "it is told at once");
        for stream in &mut asking {
            assert!(receive(stream, "at last").await.ends_with("at last"));
        }
    });
}

#[test]
fn who_sends_half_a_request_is_cut_off() {
    let sim = Simulation::new(2);
    let (address, site) = serve_slowly(&sim);
    let client = sim.process("client");
    let took = sim.run_until(async {
        let mut stream = half_a_request(&client, address).await;
        receive(&mut stream, "never").await;
        client.now()
    });
    assert!(took > IDLE - TICK && took < 2 * IDLE, "{took:?}");
    // A server that stops waits for nobody here.
    let (began, rest) = sim.run_until(async {
        let mut stream = client.sockets().connect(address).await.expect("the server listens");
        send(&mut stream, b"GET / HTTP/1.1\r\nHost: slow\r\n\r\n").await;
        client.sleep(IDLE).await;
        site.stopping.store(true, Ordering::Relaxed);
        (client.now(), receive(&mut stream, "at last").await)
    });
    assert_eq!(rest, "");
    assert!(sim.now() < began + IDLE);
}
