//! Bytes come out as they went in, whatever the pieces in which they are sent and received.
//!
//! Seeded; a failure prints the seed. One side sends pieces of all sizes and ends, the other
//! receives with buffers of all sizes and sends everything back.

use plinth_env::{Env, Stream, block_on};
use plinth_tls::{Acceptor, Purpose, Source, Terms, TlsOptions, connect};
use plinth_types::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};

fn options(name: &str) -> TlsOptions {
    let place = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates"));
    let file = |name: String| Some(Source::File(place.join(name)));
    TlsOptions {
        certificate: file(format!("{name}.crt")),
        key: file(format!("{name}.key")),
        authorities: file("ca.crt".into()),
        ..TlsOptions::default()
    }
}

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize
}

/// A size between 1 and about a quarter of a megabyte, the small ones as likely as the large.
fn size(state: &mut u64) -> usize {
    let bits = random(state) % 19;
    1 + random(state) % (1 << bits)
}

async fn send(stream: &mut Stream, bytes: &[u8], state: &mut u64) -> std::io::Result<()> {
    let mut sent = 0;
    poll_fn(|context| {
        while sent < bytes.len() {
            let end = bytes.len().min(sent + size(state));
            sent += ready!(stream.poll_send(context, &bytes[sent..end]))?;
        }
        stream.poll_flush(context)
    })
    .await
}

async fn receive(stream: &mut Stream, state: &mut u64) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; size(state)];
    let len = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await?;
    buffer.truncate(len);
    Ok(buffer)
}

/// Sends back what it receives, and ends when the other side has.
async fn echo(mut stream: Stream, mut state: u64) {
    while let Ok(bytes) = receive(&mut stream, &mut state).await {
        if bytes.is_empty() {
            break;
        }
        send(&mut stream, &bytes, &mut state).await.unwrap();
    }
    let _ = poll_fn(|context| stream.poll_finish(context)).await;
}

/// An acceptor, and what it is told of failures.
fn terms() -> (Terms, Arc<Mutex<Vec<Error>>>) {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let theirs = failures.clone();
    let on_failure = Arc::new(move |error: &Error| theirs.lock().unwrap().push(error.clone()));
    (
        Terms {
            purpose: Purpose::Clients,
            plain_answer: b"speak TLS".as_slice().into(),
            on_failure,
        },
        failures,
    )
}

#[test]
fn bytes_come_out_as_they_went_in() {
    let env = Env::real();
    block_on(async {
        let acceptor = Acceptor::load(&env, options("server")).await.unwrap();
        assert!(acceptor.asks_clients());
        let listener = env.sockets().listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let (terms, failures) = terms();
        for seed in 1..12_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let plain = env.sockets().connect(listener.local_address()).await.unwrap();
            let mut client = connect(&env, &options("client"), plain).await.unwrap();
            let accepted = acceptor.accept(listener.accept().await.unwrap(), &terms).unwrap();
            drop(env.spawn_network("echo", echo(accepted, state ^ 0xff)));
            for round in 0..6 {
                let bytes: Vec<u8> =
                    (0..size(&mut state)).map(|_| random(&mut state) as u8).collect();
                send(&mut client, &bytes, &mut state).await.unwrap();
                let mut back = Vec::new();
                while back.len() < bytes.len() {
                    let more = receive(&mut client, &mut state).await.unwrap();
                    assert!(!more.is_empty(), "seed {seed}, round {round}: the stream ended early");
                    back.extend(more);
                }
                assert!(back == bytes, "seed {seed}, round {round}: other bytes came back");
            }
            poll_fn(|context| client.poll_finish(context)).await.unwrap();
            assert!(
                receive(&mut client, &mut state).await.unwrap().is_empty(),
                "seed {seed}: no end"
            );
        }
        assert!(failures.lock().unwrap().is_empty());
    });
}

#[test]
fn who_does_not_speak_tls_is_answered_in_the_clear() {
    let env = Env::real();
    block_on(async {
        let acceptor = Acceptor::load(&env, options("server")).await.unwrap();
        let listener = env.sockets().listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let (terms, failures) = terms();
        let mut plain = env.sockets().connect(listener.local_address()).await.unwrap();
        let accepted = acceptor.accept(listener.accept().await.unwrap(), &terms).unwrap();
        drop(env.spawn_network("echo", echo(accepted, 1)));
        let mut state = 7;
        send(&mut plain, b"GET / HTTP/1.1\r\n\r\n", &mut state).await.unwrap();
        let mut answer = Vec::new();
        loop {
            let more = receive(&mut plain, &mut state).await.unwrap();
            if more.is_empty() {
                break;
            }
            answer.extend(more);
        }
        assert_eq!(answer, b"speak TLS");
        assert_eq!(failures.lock().unwrap()[..], [Error::tls_error()]);
    });
}

#[test]
fn a_stream_that_was_tampered_with_ends() {
    let env = Env::real();
    block_on(async {
        let acceptor = Acceptor::load(&env, options("server")).await.unwrap();
        let listener = env.sockets().listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let between = env.sockets().listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let (terms, _) = terms();
        let plain = env.sockets().connect(between.local_address()).await.unwrap();
        let mut client = connect(&env, &options("client"), plain).await.unwrap();
        let mut near = between.accept().await.unwrap();
        let mut far = env.sockets().connect(listener.local_address()).await.unwrap();
        let accepted = acceptor.accept(listener.accept().await.unwrap(), &terms).unwrap();
        drop(env.spawn_network("echo", echo(accepted, 1)));
        // Passes everything on, and changes a bit of the first data that the server sends.
        let meddle = async move {
            let (mut buffer, mut state) = ([0; 4096], 3);
            poll_fn(|context| {
                while let Poll::Ready(Ok(len @ 1..)) = near.poll_receive(context, &mut buffer) {
                    let Poll::Ready(Ok(_)) = far.poll_send(context, &buffer[..len]) else { break };
                }
                loop {
                    match far.poll_receive(context, &mut buffer) {
                        Poll::Ready(Ok(len @ 1..)) => {
                            // Data, and neither the handshake's clear beginning nor its records.
                            state += 1;
                            if state > 4 {
                                buffer[len - 1] ^= 1;
                            }
                            let _ = near.poll_send(context, &buffer[..len]);
                        }
                        Poll::Ready(_) => return Poll::Ready(()),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            })
            .await;
        };
        drop(env.spawn_network("between", meddle));
        let mut state = 9;
        let mut ended = false;
        for _ in 0..4 {
            let mut buffer = [0; 64];
            let received = match send(&mut client, b"hello", &mut state).await {
                Ok(()) => poll_fn(|context| client.poll_receive(context, &mut buffer)).await,
                Err(error) => Err(error),
            };
            match received {
                Ok(len) if len > 0 => assert!(b"hellohellohellohello".starts_with(&buffer[..len])),
                other => {
                    let error = other.expect_err("an end is no answer to tampering");
                    assert!(error.get_ref().is_some_and(|why| why.is::<Error>()), "{error}");
                    ended = true;
                    break;
                }
            }
        }
        assert!(ended, "a changed bit went unnoticed");
    });
}
