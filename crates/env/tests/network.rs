//! Sockets.
//!
//! What streams promise in every world that has them (the real one with the feature `net`), and
//! what partitions, clogs, breaks and crashes do to them in simulation.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use plinth_env::simulated::{NetworkPlan, Simulation};
use plinth_env::sync::{First, race};
use plinth_env::{Env, IoErrorKind, Listener, MAX_DATAGRAM, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

async fn read(stream: &mut Stream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut buffer = ReadBuf::new(buffer);
    poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut buffer)).await?;
    Ok(buffer.filled().len())
}

async fn read_all(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = [0; 1000];
    loop {
        match read(stream, &mut buffer).await? {
            0 => return Ok(all),
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

async fn write_all(stream: &mut Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|context| Pin::new(&mut *stream).poll_write(context, bytes)).await?;
        bytes = &bytes[written..];
    }
    Ok(())
}

async fn shut_down(stream: &mut Stream) -> io::Result<()> {
    poll_fn(|context| Pin::new(&mut *stream).poll_shutdown(context)).await
}

/// Runs a test with a server and a client, in simulated worlds and, if there are sockets, in the
/// real one.
fn everywhere<F: Future<Output = ()>>(test: impl Fn(Env, Env, SocketAddr) -> F) {
    for seed in 0..30 {
        let sim = Simulation::new(seed);
        let (server, client) = (sim.process("server"), sim.process("client"));
        let address = SocketAddr::new(sim.ip(&server), 0);
        sim.run_until(test(server, client, address));
    }
    if cfg!(feature = "net") {
        plinth_env::block_on(test(Env::real(), Env::real(), SocketAddr::from(([127, 0, 0, 1], 0))));
    }
}

/// Serves connections one after the other: gives back what it gets until the end.
async fn echo(listener: Listener) {
    while let Ok(mut stream) = listener.accept().await {
        let mut buffer = [0; 700];
        while let Ok(len @ 1..) = read(&mut stream, &mut buffer).await {
            if write_all(&mut stream, &buffer[..len]).await.is_err() {
                break;
            }
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
fn bytes_arrive_whole_and_in_order() {
    everywhere(|server, client, address| async move {
        let listener = server.sockets().listen(address).await.unwrap();
        let address = listener.local_address();
        drop(server.spawn("echo", echo(listener)));
        for len in [0, 1, 5_000, 200_000] {
            let mut stream = client.sockets().connect(address).await.unwrap();
            assert_eq!(stream.peer_address(), address);
            // More than the windows take, so that both sides must wait for one another.
            let sent = pattern(len);
            let (mut at, mut got) = (0, Vec::new());
            let mut buffer = [0; 900];
            while got.len() < len {
                let part = &sent[at..len.min(at + 20_000)];
                if got.len() + 20_000 > at && !part.is_empty() {
                    write_all(&mut stream, part).await.unwrap();
                    at += part.len();
                }
                let len = read(&mut stream, &mut buffer).await.unwrap();
                got.extend_from_slice(&buffer[..len]);
            }
            assert!(got == sent);
            shut_down(&mut stream).await.unwrap();
            assert_eq!(read_all(&mut stream).await.unwrap(), b"");
        }
    });
}

#[test]
fn a_connection_that_breaks_when_it_is_dropped_does_not_end_in_order() {
    everywhere(|server, client, address| async move {
        let listener = server.sockets().listen(address).await.unwrap();
        for (breaks, finishes) in [(true, false), (true, true), (false, false)] {
            let mut one = client.sockets().connect(listener.local_address()).await.unwrap();
            let mut two = listener.accept().await.unwrap();
            two.break_when_dropped(true);
            two.break_when_dropped(breaks);
            write_all(&mut one, b"all").await.unwrap();
            shut_down(&mut one).await.unwrap();
            assert_eq!(read_all(&mut two).await.unwrap(), b"all");
            if finishes {
                shut_down(&mut two).await.unwrap();
                assert_eq!(read_all(&mut one).await.unwrap(), b"");
            }
            drop(two);
            let end = read_all(&mut one).await.map_err(|error| error.kind());
            let is_broken = breaks && !finishes;
            let expected = if is_broken { Err(io::ErrorKind::ConnectionReset) } else { Ok(vec![]) };
            assert_eq!(end, expected, "{breaks} {finishes}");
        }
    });
}

#[test]
fn one_direction_can_end_before_the_other() {
    everywhere(|server, client, address| async move {
        let listener = server.sockets().listen(address).await.unwrap();
        let mut one = client.sockets().connect(listener.local_address()).await.unwrap();
        let mut two = listener.accept().await.unwrap();
        assert_eq!(two.peer_address(), one.local_address());
        write_all(&mut one, b"all I have to say").await.unwrap();
        shut_down(&mut one).await.unwrap();
        assert_eq!(read_all(&mut two).await.unwrap(), b"all I have to say");
        write_all(&mut two, b"well").await.unwrap();
        drop(two);
        assert_eq!(read_all(&mut one).await.unwrap(), b"well");
    });
}

#[test]
fn writing_to_a_closed_end_fails_sometime() {
    everywhere(|server, client, address| async move {
        let listener = server.sockets().listen(address).await.unwrap();
        let mut one = client.sockets().connect(listener.local_address()).await.unwrap();
        drop(listener.accept().await.unwrap());
        while write_all(&mut one, b"anybody?").await.is_ok() {
            client.sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn addresses_are_taken_once_and_nobody_answers_elsewhere() {
    everywhere(|server, client, address| async move {
        let listener = server.sockets().listen(address).await.unwrap();
        let address = listener.local_address();
        assert_ne!(address.port(), 0);
        assert_eq!(
            server.sockets().listen(address).await.unwrap_err(),
            IoErrorKind::AddressInUse.into()
        );
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 0));
        assert_eq!(
            server.sockets().listen(elsewhere).await.unwrap_err(),
            IoErrorKind::NotBound.into()
        );
        drop(listener);
        let error = client.sockets().connect(address).await.unwrap_err();
        assert_eq!(error, IoErrorKind::NotConnected.into());
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    });
}

#[cfg(not(feature = "net"))]
#[test]
fn real_sockets_need_the_feature() {
    let env = Env::real();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let error = plinth_env::block_on(env.sockets().listen(address)).unwrap_err();
    assert_eq!(error, IoErrorKind::NoSockets.into());
    let error = plinth_env::block_on(env.sockets().connect(address)).unwrap_err();
    assert_eq!(error, IoErrorKind::NoSockets.into());
    assert_eq!(env.sockets().datagrams(address).unwrap_err(), IoErrorKind::NoSockets.into());
}

/// A name may have an address that leads nowhere. It was waited for until whoever connected gave
/// up, again and again.
#[test]
fn an_address_that_leads_nowhere_does_not_keep_the_next_from_being_tried() {
    for seed in 0..30 {
        let sim = Simulation::new(seed);
        let (server, client) = (sim.process("server"), sim.process("client"));
        let at = |env: &Env| SocketAddr::new(sim.ip(env), 7);
        let (nowhere, nobody) = (sim.process("nowhere"), sim.process("nobody"));
        let _silent = sim.run_until(nowhere.sockets().listen(at(&nowhere))).unwrap();
        let _listener = sim.run_until(server.sockets().listen(at(&server))).unwrap();
        sim.partition(&client, &nowhere);
        for places in [
            vec![at(&nowhere), at(&server)],
            vec![at(&nobody), at(&nowhere), at(&server), at(&nobody)],
            vec![at(&server), at(&nowhere)],
        ] {
            let began = sim.now();
            let stream = sim.run_until(client.connect_to_any(&places)).unwrap();
            assert_eq!(stream.peer_address(), at(&server), "seed {seed}, {places:?}");
            assert!(sim.now() - began < Duration::from_secs(1), "seed {seed}, {places:?}");
        }
        let refused =
            sim.run_until(client.connect_to_any(&[at(&nobody), at(&nobody)])).unwrap_err();
        assert_eq!(refused, IoErrorKind::NotConnected.into());
        assert_eq!(
            sim.run_until(client.connect_to_any(&[])).unwrap_err(),
            IoErrorKind::UnknownHost.into()
        );
        // It heals, and the first one is taken.
        sim.heal(&client, &nowhere);
        let stream = sim.run_until(client.connect_to_any(&[at(&nowhere), at(&server)])).unwrap();
        assert_eq!(stream.peer_address(), at(&nowhere));
    }
}

/// A connected pair in a simulation.
fn connected(sim: &Simulation) -> (Env, Env, Stream, Stream) {
    let (one, two) = (sim.process("one"), sim.process("two"));
    let address = SocketAddr::new(sim.ip(&one), 4500);
    let (ours, theirs) = sim.run_until(async {
        let listener = one.sockets().listen(address).await.unwrap();
        let ours = two.sockets().connect(address).await.unwrap();
        (listener.accept().await.unwrap(), ours)
    });
    (one, two, ours, theirs)
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_partition_holds_bytes_back_until_it_is_healed() {
    for seed in 0..30 {
        let sim = Simulation::new(seed);
        let (one, two, mut ours, mut theirs) = connected(&sim);
        sim.run_until(write_all(&mut ours, b"before ")).unwrap();
        sim.partition(&one, &two);
        sim.run_until(write_all(&mut ours, b"during")).unwrap();
        let mut buffer = [0; 100];
        assert!(sim.run_until_within(LONG, read(&mut theirs, &mut buffer)).is_none());
        assert!(sim.run_until(two.sockets().connect(ours.local_address())).is_err());
        sim.heal(&one, &two);
        drop(ours);
        assert_eq!(sim.run_until(read_all(&mut theirs)).unwrap(), b"before during");
    }
}

#[test]
fn a_cut_holds_bytes_back_in_one_direction() {
    for seed in 0..30 {
        let sim = Simulation::new(seed);
        let (one, two, mut ours, mut theirs) = connected(&sim);
        sim.cut(&one, &two);
        sim.run_until(write_all(&mut ours, b"there")).unwrap();
        sim.run_until(write_all(&mut theirs, b"back")).unwrap();
        let mut buffer = [0; 100];
        assert!(sim.run_until_within(LONG, read(&mut theirs, &mut buffer)).is_none());
        assert!(sim.run_until_within(LONG, read(&mut ours, &mut buffer)).is_some());
        for (env, address) in [(&one, theirs.local_address()), (&two, ours.local_address())] {
            assert!(sim.run_until(env.sockets().connect(address)).is_err());
        }
        sim.heal(&one, &two);
        drop(ours);
        assert_eq!(sim.run_until(read_all(&mut theirs)).unwrap(), b"there");
    }
}

#[test]
fn a_waiting_reader_is_woken_by_healing() {
    let sim = Simulation::new(1);
    let (one, two, mut ours, mut theirs) = connected(&sim);
    sim.partition(&one, &two);
    let reading = two.spawn("reading", async move {
        assert_eq!(read(&mut theirs, &mut [0; 10]).await.unwrap(), 2);
    });
    sim.run_until(write_all(&mut ours, b"hi")).unwrap();
    sim.run_for(LONG);
    assert!(!reading.is_finished());
    sim.heal(&one, &two);
    assert_eq!(sim.run_until_within(LONG, reading), Some(Ok(())));
}

#[test]
fn a_clog_ends_by_itself() {
    let sim = Simulation::new(1);
    let (one, two, mut ours, mut theirs) = connected(&sim);
    sim.clog(&one, &two, LONG);
    let began = sim.now();
    sim.run_until(write_all(&mut ours, b"hi")).unwrap();
    assert_eq!(sim.run_until(read(&mut theirs, &mut [0; 10])).unwrap(), 2);
    assert!(sim.now() >= began + LONG);
}

#[test]
fn a_full_window_makes_the_writer_wait() {
    let sim = Simulation::new(1);
    let (_one, two, mut ours, mut theirs) = connected(&sim);
    let bytes = pattern(200_000);
    assert!(sim.run_until_within(LONG, write_all(&mut ours, &bytes)).is_none());
    let reading = two.spawn("reading", async move {
        assert!(read_all(&mut theirs).await.unwrap().len() >= 300_000 - 1);
    });
    // What was written before the first attempt was given up counts too.
    sim.run_until(write_all(&mut ours, &pattern(300_000))).unwrap();
    drop(ours);
    sim.run_until(reading).unwrap();
}

#[test]
fn broken_connections_and_dead_processes_are_noticed_on_both_ends() {
    for seed in 0..30 {
        let sim = Simulation::new(seed);
        let (one, two, mut ours, mut theirs) = connected(&sim);
        sim.close_connections(&one, &two);
        assert!(sim.run_until(read(&mut ours, &mut [0])).is_err());
        assert!(sim.run_until(write_all(&mut theirs, b"x")).is_err());

        let (one, two, ours, mut theirs) = connected(&sim);
        let reading = two.spawn("reading", async move {
            assert!(read(&mut theirs, &mut [0]).await.is_err());
        });
        if seed % 2 == 0 {
            sim.crash(&one)
        } else {
            sim.kill(&one)
        }
        assert_eq!(sim.run_until_within(LONG, reading), Some(Ok(())));
        drop(ours);
        let again = sim.process("one");
        let address = SocketAddr::new(sim.ip(&again), 4500);
        sim.run_until(again.sockets().listen(address)).unwrap();
    }
}

#[test]
fn a_bad_network_breaks_and_clogs_by_seed() {
    let run = |seed| {
        let sim = Simulation::new(seed);
        let (server, client) = (sim.process("server"), sim.process("client"));
        sim.set_network(NetworkPlan { clog: 0.05, close: 0.02, ..NetworkPlan::default() });
        let address = SocketAddr::new(sim.ip(&server), 4500);
        let listener = sim.run_until(server.sockets().listen(address)).unwrap();
        drop(server.spawn("echo", echo(listener)));
        let (mut broken, mut whole) = (0, 0);
        for _ in 0..50 {
            let sent = sim.run_until(async {
                let mut stream =
                    client.sockets().connect(address).await.map_err(|_| io::ErrorKind::Other)?;
                let bytes = pattern(3_000);
                write_all(&mut stream, &bytes).await?;
                shut_down(&mut stream).await?;
                match race(read_all(&mut stream), client.sleep(LONG)).await {
                    First::Left(got) => Ok::<_, io::Error>(got? == bytes),
                    First::Right(()) => panic!("seed {seed}: neither answer nor error"),
                }
            });
            match sent {
                Ok(same) => {
                    assert!(same, "seed {seed}: other bytes came back");
                    whole += 1;
                }
                Err(_) => broken += 1,
            }
        }
        (broken, whole, sim.trace_hash())
    };
    let (broken, whole, hash) = run(4);
    assert!(broken > 0 && whole > 0, "{broken} {whole}");
    assert_eq!(run(4).2, hash);
    assert_ne!(run(5).2, hash);
}

/// Any address of a machine.
const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

#[test]
fn datagrams_arrive_whole_and_tell_who_sent_them() {
    everywhere(|server, client, address| async move {
        let mut receiver = server.sockets().datagrams(address).unwrap();
        let to = receiver.local_address();
        assert_ne!(to.port(), 0);
        let mut sender = client.sockets().datagrams(ANYWHERE).unwrap();
        let mut buffer = vec![0; MAX_DATAGRAM];
        for len in [0, 1, 1400, MAX_DATAGRAM] {
            let sent = pattern(len);
            sender.send(to, &sent).await.unwrap();
            let (len, from) = receiver.receive(&mut buffer).await.unwrap();
            assert!(buffer[..len] == sent);
            assert_eq!(from.port(), sender.local_address().port());
        }
        assert!(sender.send(to, &vec![0; MAX_DATAGRAM + 1]).await.is_err());
        // What does not fit is cut off, and the next one is whole again.
        sender.send(to, b"too long").await.unwrap();
        assert_eq!(receiver.receive(&mut buffer[..3]).await.unwrap().0, 3);
        sender.send(to, b"next").await.unwrap();
        let (len, _) = receiver.receive(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..len], b"next");
    });
}

#[test]
fn ports_of_datagrams_are_taken_once_and_sending_to_nobody_is_no_error() {
    everywhere(|server, client, address| async move {
        let receiver = server.sockets().datagrams(address).unwrap();
        let taken = receiver.local_address();
        assert_eq!(
            server.sockets().datagrams(taken).unwrap_err(),
            IoErrorKind::AddressInUse.into()
        );
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 0));
        assert_eq!(
            server.sockets().datagrams(elsewhere).unwrap_err(),
            IoErrorKind::NotBound.into()
        );
        drop(receiver);
        let mut sender = client.sockets().datagrams(ANYWHERE).unwrap();
        for _ in 0..3 {
            sender.send(taken, b"anybody?").await.unwrap();
        }
        drop(server.sockets().datagrams(taken).unwrap());
    });
}

#[test]
fn simulated_datagrams_are_lost_repeated_and_overtaken_by_seed() {
    let run = |seed| {
        let sim = Simulation::new(seed);
        let (one, two) = (sim.process("one"), sim.process("two"));
        sim.set_network(NetworkPlan { lose: 0.2, repeat: 0.1, ..NetworkPlan::default() });
        let mut receiver = one.sockets().datagrams(ANYWHERE).unwrap();
        let mut sender = two.sockets().datagrams(ANYWHERE).unwrap();
        let to = receiver.local_address();
        let mut receive = |sim: &Simulation| {
            let mut buffer = [0; 8];
            let received = sim.run_until_within(LONG, receiver.receive(&mut buffer));
            received.map(|received| {
                assert_eq!(received.unwrap().0, 8);
                u64::from_le_bytes(buffer)
            })
        };
        for number in 0..300_u64 {
            sim.run_until(sender.send(to, &number.to_le_bytes())).unwrap();
        }
        let found: Vec<u64> = std::iter::from_fn(|| receive(&sim)).collect();
        let mut distinct = found.clone();
        distinct.sort_unstable();
        assert_ne!(found, distinct, "none overtook another");
        distinct.dedup();
        assert!((200..280).contains(&distinct.len()), "{} of 300", distinct.len());
        assert!(found.len() > distinct.len(), "none came twice");
        // Nobody keeps them for later.
        sim.partition(&one, &two);
        sim.run_until(sender.send(to, &[0; 8])).unwrap();
        sim.heal(&one, &two);
        assert_eq!(receive(&sim), None);
        // A mailbox has an end.
        for number in 0..20_000_u64 {
            sim.run_until(sender.send(to, &number.to_le_bytes())).unwrap();
        }
        let kept = std::iter::from_fn(|| receive(&sim)).count();
        assert_eq!(kept, NetworkPlan::default().window / 8);
        sim.trace_hash()
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

#[test]
fn who_waits_for_a_datagram_is_woken_and_a_crash_frees_the_port() {
    let sim = Simulation::new(3);
    let (one, two) = (sim.process("one"), sim.process("two"));
    let mut receiver = one.sockets().datagrams(ANYWHERE).unwrap();
    let to = receiver.local_address();
    let waiting = one.spawn("waiting", async move {
        let mut buffer = [0; 8];
        assert_eq!(receiver.receive(&mut buffer).await.unwrap().0, 2);
        assert!(receiver.receive(&mut buffer).await.is_err());
    });
    sim.run_for(LONG);
    let mut sender = two.sockets().datagrams(ANYWHERE).unwrap();
    sim.run_until(sender.send(to, b"hi")).unwrap();
    sim.run_for(LONG);
    assert!(!waiting.is_finished());
    sim.crash(&one);
    let again = sim.restart(&one);
    assert_eq!(again.sockets().datagrams(to).unwrap().local_address(), to);
}

/// One attempt in some tens of thousands was given the port that it was to reach, and reached
/// itself.
#[test]
#[cfg(feature = "net")]
fn nobody_reaches_itself_where_nobody_listens() {
    let env = Env::real();
    plinth_env::block_on(async {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = env.sockets().listen(address).await.unwrap().local_address();
        // Systems may give only odd ports, or only even ones, to those who connect.
        let other = SocketAddr::new(address.ip(), address.port() ^ 1);
        for _ in 0..40_000 {
            assert!(env.sockets().connect(address).await.is_err(), "{address} answers");
            if let Ok(stream) = env.sockets().connect(other).await {
                assert_ne!(stream.local_address(), other, "{other} reaches itself");
            }
        }
    });
}

#[test]
fn unused_addresses_can_be_listened_at() {
    everywhere(|server, _client, _address| async move {
        let addresses = server.unused_addresses(5).await.unwrap();
        let mut listeners = Vec::new();
        for address in addresses {
            assert!((10_000..32_768).contains(&address.port()), "{address}");
            listeners.push(server.sockets().listen(address).await.unwrap());
        }
        assert_eq!(listeners.len(), 5);
    });
}
