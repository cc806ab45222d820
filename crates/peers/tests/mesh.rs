//! Frames between the nodes of a cluster, over a simulated network: they arrive, from whom they say
//! they are, and nobody else's do.
//!
//! What is lost is lost; what may not happen is that a node waits for ever, holds more and more, or
//! believes a stranger.

mod world;

use plinth_env::Stream;
use plinth_env::simulated::{NetworkPlan, Simulation};
use plinth_peers::hello::{Hello, Purpose, Stage, Welcome, Word};
use plinth_peers::packet::{self, Kind};
use plinth_peers::{Charter, PeerResult, Secret};
use plinth_replication::{Frame, Members, Message, MessageKind, Peers, Spoken};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};
use std::time::Duration;
use world::{Machine, PORT, Received, charter, frame, names, start, start_with};

fn three(sim: &Simulation) -> (Charter, Vec<Machine>) {
    let names = names(3);
    let charter = charter(sim, &names);
    let machines = names
        .iter()
        .zip(1..)
        .map(|(name, node)| start(&sim.process(name), &charter, node))
        .collect();
    (charter, machines)
}

#[test]
fn frames_arrive_in_order_at_the_node_that_they_are_for() {
    for seed in 0..20 {
        let sim = Simulation::new(seed);
        let (_, machines) = three(&sim);
        sim.run_for(Duration::from_secs(2));
        for number in 1..=50 {
            machines[0].send(2, number, (number % 2 == 0).then_some(1000 * number as usize));
            machines[2].send(1, number, None);
        }
        sim.run_for(Duration::from_secs(2));
        let mut numbers = machines[1].numbers();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=50).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(machines[0].numbers(), (1..=50).collect::<Vec<_>>());
        assert_eq!(machines[2].numbers(), [0; 0]);
        let status = &machines[0].mesh.status()[0];
        assert!(status.figures.connected && status.figures.sent == 50 && status.failure.is_none());
        assert_eq!(machines[1].mesh.status()[0].figures.received, 50);
    }
}

#[test]
fn a_heartbeat_does_not_wait_for_ten_megabytes() {
    let sim = Simulation::new(4);
    let (_, machines) = three(&sim);
    sim.run_for(Duration::from_secs(2));
    machines[0].send(2, 1, Some(10 << 20));
    sim.run_for(Duration::from_millis(5));
    machines[0].send(2, 2, None);
    sim.run_for(Duration::from_secs(30));
    assert_eq!(machines[1].numbers(), [2, 1], "the one without entries has overtaken the other");
    let received = machines[1].received.lock().unwrap();
    assert_eq!(received[1], frame(1, 2, 1, Some(10 << 20)));
}

#[test]
fn a_node_that_is_cut_off_costs_a_bounded_amount_and_is_reached_again() {
    for seed in 0..10 {
        let sim = Simulation::new(seed);
        let (_, machines) = three(&sim);
        sim.run_for(Duration::from_secs(2));
        let (one, two) = (machines[0].env.clone(), machines[1].env.clone());
        sim.partition(&one, &two);
        for number in 1..=2000 {
            machines[0].send(2, number, Some(100_000));
            machines[0].send(2, number, None);
            let waiting = machines[0].mesh.status()[0].figures.waiting_bytes;
            assert!(waiting < 17 << 20, "{waiting} bytes wait for a node that is cut off");
        }
        sim.run_for(Duration::from_secs(10));
        let figures = machines[0].mesh.status()[0].figures;
        assert!(!figures.connected && figures.dropped > 3000, "{figures:?}");
        sim.heal(&one, &two);
        sim.run_for(Duration::from_secs(15));
        assert!(machines[0].mesh.status()[0].figures.connected, "seed {seed}");
        machines[1].received.lock().unwrap().clear();
        machines[0].send(2, 7000, Some(10));
        sim.run_for(Duration::from_secs(1));
        assert_eq!(machines[1].numbers().last(), Some(&7000), "seed {seed}");
    }
}

#[test]
fn connections_that_break_are_made_again_as_often_as_it_takes() {
    for seed in 0..10 {
        let sim = Simulation::new(seed);
        let (_, machines) = three(&sim);
        sim.set_network(NetworkPlan { close: 0.02, clog: 0.02, ..NetworkPlan::default() });
        for number in 1..=400 {
            machines[0].send(2, number, (number % 3 == 0).then_some(200_000));
            sim.run_for(Duration::from_millis(100));
        }
        let figures = machines[0].mesh.status()[0].figures;
        let numbers = machines[1].numbers();
        assert!(
            figures.connections > 3 && numbers.len() > 100,
            "seed {seed}: {figures:?}, {}",
            numbers.len()
        );
        let refused: u64 =
            machines.iter().flat_map(|m| m.mesh.status()).map(|s| s.figures.refused).sum();
        assert_eq!(refused, 0, "a connection that breaks is no reason to suspect anybody");
    }
}

#[test]
fn a_node_that_lost_its_power_is_called_until_it_is_back() {
    let sim = Simulation::new(8);
    let (charter, mut machines) = three(&sim);
    sim.run_for(Duration::from_secs(2));
    let env = machines[1].env.clone();
    sim.crash(&env);
    machines.remove(1);
    sim.run_for(Duration::from_secs(20));
    assert!(!machines[0].mesh.status()[0].figures.connected);
    let back = start(&sim.process("node-2"), &charter, 2);
    sim.run_for(Duration::from_secs(12));
    machines[0].send(2, 5, Some(10));
    back.send(1, 6, None);
    sim.run_for(Duration::from_secs(1));
    assert_eq!((back.numbers(), machines[0].numbers()), (vec![5], vec![6]));
}

/// A server has another address, and calls the others before anybody leads: nobody could have the
/// members say where it is, and nobody answered it there, so nobody came to lead.
#[test]
fn a_node_that_has_moved_is_answered_where_it_says_it_is() {
    for seed in 0..10 {
        let sim = Simulation::new(seed);
        let names = names(3);
        let charter = charter(&sim, &names);
        let one = start(&sim.process("node-1"), &charter, 1);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let theirs = heard.clone();
        one.mesh.when_moved(move |node, address| {
            theirs.lock().unwrap().push((node, address.to_owned()))
        });
        let elsewhere = SocketAddr::new(sim.ip(&sim.process("elsewhere")), PORT).to_string();
        let mut moved = charter.clone();
        moved.members[1].address = elsewhere.clone();
        let two = start(&sim.process("elsewhere"), &moved, 2);
        two.mesh.is_at(&elsewhere);
        sim.run_for(Duration::from_secs(5));
        one.send(2, 5, None);
        two.send(1, 6, None);
        sim.run_for(Duration::from_secs(1));
        assert_eq!((two.numbers(), one.numbers()), (vec![5], vec![6]), "seed {seed}");
        assert_eq!(heard.lock().unwrap().first(), Some(&(2, elsewhere.clone())));
        // Back where it was, it is found there.
        sim.crash(&sim.process("elsewhere"));
        let back = start(&sim.process("node-2"), &charter, 2);
        sim.run_for(Duration::from_secs(8));
        one.send(2, 7, None);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(back.numbers(), [7], "seed {seed}");
        assert_eq!(heard.lock().unwrap().last(), Some(&(2, charter.members[1].address.clone())));
    }
}

/// What a node says of the first other one when something about node 2 is not as it should be.
fn failure(change: impl Fn(&mut Charter) -> u64) -> String {
    let sim = Simulation::new(6);
    let names = names(2);
    let charter = charter(&sim, &names);
    let mut theirs = charter.clone();
    let node = change(&mut theirs);
    let one = start(&sim.process("node-1"), &charter, 1);
    let two = start(&sim.process("node-2"), &theirs, node);
    sim.run_for(Duration::from_secs(3));
    one.send(2, 1, None);
    two.send(1, 2, None);
    sim.run_for(Duration::from_secs(3));
    assert_eq!((one.numbers(), two.numbers()), (vec![], vec![]));
    assert!(!one.mesh.status()[0].figures.connected);
    one.mesh.status()[0].failure.clone().expect("it was called")
}

#[test]
fn a_node_that_is_not_what_it_should_be_is_no_peer() {
    let secret = failure(|charter| {
        charter.secret = Secret::from_bytes([6; 32]);
        2
    });
    assert!(secret.contains("secret"), "{secret}");
    let cluster = failure(|charter| {
        (charter.cluster_id, charter.cluster) = ([8; 16], "test:other".into());
        2
    });
    assert!(cluster.contains("another cluster, test:other"), "{cluster}");
    let same = failure(|charter| {
        (charter.cluster_id, charter.secret) = ([8; 16], Secret::from_bytes([6; 32]));
        2
    });
    assert!(same.contains("two clusters have that description and id"), "{same}");
    let id = failure(|charter| {
        charter.members[1].node = 3;
        3
    });
    assert!(id.contains("this is node 3, not node 2"), "{id}");
}

/// Somebody who knows the protocol and calls a node.
struct Stranger {
    stream: Stream,
    input: Vec<u8>,
}

impl Stranger {
    async fn call(sim: &Simulation, machine: &Machine) -> Self {
        let address = SocketAddr::new(sim.ip(&machine.env), PORT);
        let stream = sim.process("stranger").sockets().connect(address).await.expect("it listens");
        Self { stream, input: Vec::new() }
    }

    /// False once the other side has closed.
    async fn say(&mut self, bytes: &[u8]) -> bool {
        let mut sent = 0;
        poll_fn(|context| {
            while sent < bytes.len() {
                match ready!(self.stream.poll_send(context, &bytes[sent..])) {
                    Ok(more) => sent += more,
                    Err(_) => return Poll::Ready(false),
                }
            }
            Poll::Ready(true)
        })
        .await
    }

    async fn hear<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> PeerResult<Option<(T, usize)>>,
    ) -> Option<T> {
        loop {
            if let Some((heard, len)) = decode(&self.input).expect("a node says what it should") {
                self.input.drain(..len);
                return Some(heard);
            }
            let mut buffer = [0; 4096];
            let len = poll_fn(|context| self.stream.poll_receive(context, &mut buffer))
                .await
                .unwrap_or(0);
            if len == 0 {
                return None;
            }
            self.input.extend_from_slice(&buffer[..len]);
        }
    }

    /// Waits for the end of the connection.
    async fn is_closed(&mut self) -> bool {
        self.hear::<()>(|_| Ok(None)).await.is_none()
    }
}

fn hello(charter: &Charter) -> Hello {
    Hello {
        spoken: Spoken { oldest: 1, newest: 1 },
        purpose: Purpose::Frames,
        cluster: charter.cluster.clone(),
        cluster_id: charter.cluster_id,
        from: 2,
        to: 1,
        nonce: [1; 32],
        address: charter.members[1].address.clone(),
        addresses: String::new(),
        window: 0,
    }
}

/// Says hello as node 2, and proves by `secret` that it is a member. Gives the verdict.
async fn introduce(stranger: &mut Stranger, charter: &Charter, secret: &Secret) -> Word {
    introduce_as(stranger, hello(charter), secret).await
}

async fn introduce_as(stranger: &mut Stranger, hello: Hello, secret: &Secret) -> Word {
    let mut said = Vec::new();
    hello.encode(&mut said);
    assert!(stranger.say(&said).await);
    let welcome = stranger.hear(Welcome::decode).await.expect("a welcome");
    assert_eq!(welcome.refused, None);
    let mut answered = Vec::new();
    Welcome { proof: [0; 32], ..welcome }.encode(&mut answered);
    let mut proof = Vec::new();
    Word::Proof(secret.prove("caller", &[&said, &answered])).encode(&mut proof);
    assert!(stranger.say(&proof).await);
    stranger.hear(Word::decode).await.expect("a verdict")
}

#[test]
fn who_does_not_know_the_secret_is_not_listened_to() {
    let sim = Simulation::new(3);
    let (charter, machines) = three(&sim);
    sim.run_until(async {
        let mut stranger = Stranger::call(&sim, &machines[0]).await;
        let verdict = introduce(&mut stranger, &charter, &Secret::from_bytes([0; 32])).await;
        assert!(matches!(verdict, Word::Verdict(Err(error)) if error.code() == 6000));
        let mut packet = Vec::new();
        packet::put(&mut packet, Kind::Whole, &frame(2, 1, 9, None).encode().unwrap());
        stranger.say(&packet).await;
        assert!(stranger.is_closed().await);
    });
    sim.run_for(Duration::from_secs(1));
    assert_eq!(machines[0].numbers(), [0; 0]);
}

#[test]
fn a_later_version_alone_is_refused_with_both_ranges() {
    let sim = Simulation::new(3);
    let (charter, machines) = three(&sim);
    sim.run_until(async {
        let mut stranger = Stranger::call(&sim, &machines[0]).await;
        let mut said = Vec::new();
        Hello { spoken: Spoken { oldest: 6, newest: 7 }, ..hello(&charter) }.encode(&mut said);
        stranger.say(&said).await;
        let refused =
            stranger.hear(Welcome::decode).await.expect("a welcome").refused.expect("a refusal");
        assert!(
            refused.code() == 2100 && refused.detail().unwrap().contains("6 to 7"),
            "{refused}"
        );
    });
}

/// An older program is served as long as the cluster's protocol is one that it reads, and is known
/// to be there for as long as it is; then it is told to be replaced, as a member and as one that
/// wants to be.
#[test]
fn an_older_program_takes_part_until_the_protocol_of_the_cluster_rises() {
    let sim = Simulation::new(6);
    let names = names(3);
    let charter = charter(&sim, &names);
    let machine = start(&sim.process(&names[0]), &charter, 1);
    let old = hello(&charter).spoken;
    sim.run_until(async {
        let mut stranger = Stranger::call(&sim, &machine).await;
        assert_eq!(
            introduce(&mut stranger, &charter, &charter.secret).await,
            Word::Verdict(Ok(()))
        );
        assert_eq!((machine.mesh.spoken(2), machine.mesh.spoken(3)), (Some(old), None));
        assert_eq!(machine.mesh.status()[0].spoken, Some(old));
    });
    sim.run_for(Duration::from_secs(1));
    assert_eq!(
        machine.mesh.spoken(2),
        None,
        "it has gone, and another program may come in its place"
    );
    let voters = charter.members.iter().map(|peer| (peer.node, peer.address.clone()));
    machine.mesh.members(&Arc::new(Members::of_voters(voters).with_protocol(old.newest + 1)));
    sim.run_until(async {
        for purpose in [Purpose::Frames, Purpose::Joining] {
            let mut stranger = Stranger::call(&sim, &machine).await;
            let mut said = Vec::new();
            Hello { purpose, ..hello(&charter) }.encode(&mut said);
            stranger.say(&said).await;
            let refused = stranger
                .hear(Welcome::decode)
                .await
                .expect("a welcome")
                .refused
                .expect("a refusal");
            let told = refused.detail().unwrap();
            assert!(
                refused.code() == 2100 && told.contains("newer Plinth"),
                "{purpose:?}: {refused}"
            );
        }
    });
}

/// Answers each heartbeat that it gets.
fn answering(sim: &Simulation, charter: &Charter, node: u64, received: &Received) -> Machine {
    let (theirs, name) = (received.clone(), format!("node-{node}"));
    start_with(&sim.process(&name), charter, node, received.clone(), move |frame| {
        let Message { kind, from, to, term, .. } = frame.message;
        theirs.lock().unwrap().push(frame);
        let mut answer = world::frame(to, from, term, None);
        answer.message.kind = MessageKind::HeartbeatReply;
        (kind == MessageKind::Heartbeat).then_some(answer)
    })
}

#[test]
fn an_answer_that_is_known_at_once_comes_back_to_whoever_asked() {
    for seed in 0..10 {
        let sim = Simulation::new(seed);
        let charter = charter(&sim, &names(2));
        let asker = start(&sim.process("node-1"), &charter, 1);
        let received = Received::default();
        let answerer = answering(&sim, &charter, 2, &received);
        sim.run_for(Duration::from_secs(2));
        for number in 1..=20 {
            asker.send(2, number, None);
        }
        sim.run_for(Duration::from_secs(1));
        assert_eq!(answerer.numbers(), (1..=20).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(asker.numbers(), (1..=20).collect::<Vec<_>>(), "seed {seed}");
        let figures = [&asker, &answerer].map(|machine| machine.mesh.status()[0].figures);
        assert!(
            figures.iter().all(|figures| (figures.sent, figures.received) == (20, 20)),
            "{figures:?}"
        );
    }
}

/// A program of version 1 takes nothing but answers to its pings on the connection that it calls
/// by: it would hang up.
#[test]
fn an_older_program_is_answered_by_a_connection_of_the_answering_node() {
    for (newest, is_here) in [(1, false), (2, true)] {
        let sim = Simulation::new(3);
        let charter = charter(&sim, &names(2));
        let received = Received::default();
        let answerer = answering(&sim, &charter, 1, &received);
        sim.run_until(async {
            let mut stranger = Stranger::call(&sim, &answerer).await;
            let hello = Hello { spoken: Spoken { oldest: 1, newest }, ..hello(&charter) };
            let verdict = introduce_as(&mut stranger, hello, &charter.secret).await;
            assert_eq!(verdict, Word::Verdict(Ok(())));
            let mut packets = Vec::new();
            packet::put(&mut packets, Kind::Whole, &frame(2, 1, 9, None).encode().unwrap());
            packet::put(&mut packets, Kind::Ping, b"x");
            stranger.say(&packets).await;
            let mut kinds = Vec::new();
            while kinds.last() != Some(&Kind::Pong) {
                let next = |bytes: &[u8]| {
                    Ok(packet::split(bytes)?
                        .map(|(kind, payload)| (kind, packet::HEAD + payload.len())))
                };
                kinds.push(stranger.hear(next).await.expect("the connection stays"));
            }
            let answers = kinds.iter().filter(|kind| **kind == Kind::Whole).count();
            assert_eq!(answers, usize::from(is_here), "version {newest}: {kinds:?}");
        });
        // The other one waits until node 2 can be called.
        let asker = start(&sim.process("node-2"), &charter, 2);
        answerer.send(2, 10, None);
        sim.run_for(Duration::from_secs(3));
        assert_eq!(asker.numbers().last(), Some(&10), "version {newest}");
    }
}

/// It was told to be replaced by a newer program, which would have told it that there is no place
/// for it: so it is told that at once.
#[test]
fn a_removed_node_with_an_older_program_hears_that_it_was_removed() {
    let sim = Simulation::new(7);
    let names = names(3);
    let charter = charter(&sim, &names);
    let machine = start(&sim.process(&names[0]), &charter, 1);
    let left = charter.members.iter().filter(|peer| peer.node != 2);
    let members = Members::of_voters(left.map(|peer| (peer.node, peer.address.clone())));
    machine.mesh.members(&Arc::new(members.with_protocol(hello(&charter).spoken.newest + 1)));
    sim.run_until(async {
        let mut stranger = Stranger::call(&sim, &machine).await;
        assert_eq!(introduce(&mut stranger, &charter, &charter.secret).await, Word::Removed);
        // One that speaks nothing that this one speaks can't be told by proof.
        let mut stranger = Stranger::call(&sim, &machine).await;
        let mut said = Vec::new();
        Hello { spoken: Spoken { oldest: 6, newest: 7 }, ..hello(&charter) }.encode(&mut said);
        stranger.say(&said).await;
        let refused =
            stranger.hear(Welcome::decode).await.expect("a welcome").refused.expect("a refusal");
        let told = refused.detail().unwrap();
        assert!(refused.code() == 2104 && told.contains("node 2 was removed"), "{refused}");
    });
}

/// A node that lagged behind refused whoever had come since, as none of the cluster's: if that one
/// led, it never learned of it, and got no entry.
#[test]
fn a_member_that_has_come_since_is_listened_to_and_answered() {
    let sim = Simulation::new(8);
    let names = names(3);
    let charter = charter(&sim, &names);
    let founders = &charter.members[..2];
    let known = Members::of_voters(founders.iter().map(|peer| (peer.node, peer.address.clone())));
    let all =
        Members::of_voters(charter.members.iter().map(|peer| (peer.node, peer.address.clone())));
    let late = Charter { members: founders.to_vec(), ..charter.clone() };
    let one = start(&sim.process(&names[0]), &late, 1);
    one.mesh.members(&Arc::new(known.clone()));
    let three = start(&sim.process(&names[2]), &charter, 3);
    three.mesh.members(&Arc::new(all.clone()));
    sim.run_for(Duration::from_secs(3));
    three.send(1, 5, None);
    one.send(3, 6, None);
    sim.run_for(Duration::from_secs(1));
    assert_eq!((one.numbers(), three.numbers()), (vec![5], vec![6]));
    // It stays so until the members say so, or that it has gone again.
    one.mesh.members(&Arc::new(known));
    one.mesh.members(&Arc::new(all.clone()));
    three.send(1, 7, None);
    one.send(3, 8, None);
    sim.run_for(Duration::from_secs(1));
    assert_eq!((one.numbers(), three.numbers()), (vec![5, 7], vec![6, 8]));
    let mut without = all;
    without.nodes.retain(|node| node.id != 3);
    one.mesh.members(&Arc::new(without));
    sim.run_for(Duration::from_secs(3));
    three.send(1, 9, None);
    one.send(3, 10, None);
    sim.run_for(Duration::from_secs(3));
    assert_eq!((one.numbers(), three.numbers()), (vec![5, 7], vec![6, 8]));
}

/// A member that has gone mad, or whose memory is broken.
#[test]
fn the_first_nonsense_of_a_member_ends_its_connection_and_is_counted() {
    let mut foreign = Vec::new();
    packet::put(&mut foreign, Kind::Whole, &frame(3, 1, 9, None).encode().unwrap());
    let mut other = Vec::new();
    packet::put(&mut other, Kind::Whole, &frame(2, 3, 9, None).encode().unwrap());
    let mut damaged = Vec::new();
    packet::put(&mut damaged, Kind::Whole, &frame(2, 1, 9, Some(100)).encode().unwrap());
    *damaged.last_mut().unwrap() ^= 1;
    let mut pong = Vec::new();
    packet::put(&mut pong, Kind::Pong, b"x");
    let endless = [0xff; 64].to_vec();
    for nonsense in [foreign, other, damaged, pong, endless] {
        let sim = Simulation::new(5);
        let (charter, machines) = three(&sim);
        sim.run_until(async {
            let mut stranger = Stranger::call(&sim, &machines[0]).await;
            assert_eq!(
                introduce(&mut stranger, &charter, &charter.secret).await,
                Word::Verdict(Ok(()))
            );
            let mut good = Vec::new();
            packet::put(&mut good, Kind::Whole, &frame(2, 1, 8, Some(10)).encode().unwrap());
            stranger.say(&good).await;
            stranger.say(&nonsense).await;
            assert!(stranger.is_closed().await);
        });
        sim.run_for(Duration::from_secs(5));
        assert_eq!(machines[0].numbers(), [8]);
        assert_eq!(machines[0].mesh.status()[0].figures.refused, 1);
        machines[1].send(1, 10, None);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(machines[0].numbers(), [8, 10], "the real node 2 goes on");
    }
}

/// Takes a node's call as node 2 would.
async fn be_called(sim: &Simulation, charter: &Charter) -> Stranger {
    be_called_by(sim, charter, u16::MAX).await
}

/// As node 2 would with a program that speaks no later version than this.
async fn be_called_by(sim: &Simulation, charter: &Charter, newest: u16) -> Stranger {
    let address = charter.members[1].address.parse().unwrap();
    let listener =
        sim.process("node-2").sockets().listen(address).await.expect("the address is free");
    let mut caller =
        Stranger { stream: listener.accept().await.expect("a call"), input: Vec::new() };
    let hello = |bytes: &[u8]| {
        Ok(Hello::decode(bytes)?.map(|(hello, len)| ((hello, bytes[..len].to_vec()), len)))
    };
    let (hello, said) = caller.hear(hello).await.expect("a hello");
    let mut welcome = Welcome {
        version: hello.spoken.newest.min(newest),
        refused: None,
        cluster_id: charter.cluster_id,
        node: 2,
        stage: Stage::Begun,
        nonce: [7; 32],
        proof: [0; 32],
    };
    let mut answered = Vec::new();
    welcome.encode(&mut answered);
    welcome.proof = charter.secret.prove("welcome", &[&said, &answered]);
    let mut bytes = Vec::new();
    welcome.encode(&mut bytes);
    assert!(caller.say(&bytes).await);
    assert!(matches!(caller.hear(Word::decode).await, Some(Word::Proof(_))));
    let mut verdict = Vec::new();
    Word::Verdict(Ok(())).encode(&mut verdict);
    assert!(caller.say(&verdict).await);
    caller
}

/// A program of version 4 takes no frame with a checksum of the entry before: it would hang up.
#[test]
fn an_older_program_is_sent_no_checksum() {
    for (newest, comes) in [(4, None), (5, Some(7))] {
        let sim = Simulation::new(3);
        let charter = charter(&sim, &names(2));
        let machine = start(&sim.process("node-1"), &charter, 1);
        let mut called = sim.run_until(be_called_by(&sim, &charter, newest));
        sim.run_for(Duration::from_millis(100));
        let bare = Message::bare(MessageKind::Append, 1, 2, 9);
        let message = Message { index: 8, log_term: 9, ..bare };
        machine.mesh.send(Frame { message, entries: Vec::new(), before: Some(7) });
        let next = |bytes: &[u8]| {
            let Some((kind, payload)) = packet::split(bytes)? else { return Ok(None) };
            let frame = (kind == Kind::Whole).then(|| Frame::decode(&payload.to_vec().into()));
            Ok(Some((frame, packet::HEAD + payload.len())))
        };
        let frame = loop {
            // Pings come too.
            if let Some(frame) = sim.run_until(called.hear(next)).expect("the connection stays") {
                break frame;
            }
        };
        assert_eq!(frame.map(|frame| frame.before), Ok(comes), "version {newest}");
    }
}

/// What a node that was called may say besides answers to pings is an answer of its own, to the
/// caller, without entries.
#[test]
fn nonsense_of_a_node_that_was_called_ends_the_connection() {
    let packet = |kind, payload: &[u8]| {
        let mut packet = Vec::new();
        packet::put(&mut packet, kind, payload);
        packet
    };
    let whole = |frame: Frame| packet(Kind::Whole, &frame.encode().unwrap());
    let nonsense = [
        whole(frame(3, 1, 9, None)),
        whole(frame(2, 3, 9, None)),
        whole(frame(2, 1, 9, Some(10))),
        packet(Kind::Whole, b"no frame"),
        packet(Kind::Piece, b"x"),
        packet(Kind::Ping, b"x"),
    ];
    for (at, nonsense) in nonsense.into_iter().enumerate() {
        let sim = Simulation::new(5);
        let charter = charter(&sim, &names(2));
        let machine = start(&sim.process("node-1"), &charter, 1);
        sim.run_until(async {
            let mut caller = be_called(&sim, &charter).await;
            caller.say(&whole(frame(2, 1, 8, None))).await;
            caller.say(&nonsense).await;
            assert!(caller.is_closed().await, "{at}");
        });
        assert_eq!(
            machine.numbers(),
            [8],
            "{at}: what was right before it counts, and nothing else"
        );
        assert!(machine.mesh.status()[0].failure.is_some(), "{at}");
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let sim = Simulation::new(12);
    let (charter, machines) = three(&sim);
    let mut random = sim.random();
    let mut good = Vec::new();
    hello(&charter).encode(&mut good);
    for _ in 0..200 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        let tail = random.below(300);
        bytes.extend((0..tail).map(|_| random.below(256) as u8));
        sim.run_until(async {
            let mut stranger = Stranger::call(&sim, &machines[0]).await;
            stranger.say(&bytes).await;
        });
    }
    sim.run_for(Duration::from_secs(5));
    machines[1].send(1, 10, None);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(machines[0].numbers(), [10]);
}
