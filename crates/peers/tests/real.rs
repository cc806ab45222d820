//! Two nodes over the system's sockets: small frames and large ones, and a node that goes and comes
//! back at its port.

mod world;

use plinth_env::{Env, block_on};
use plinth_peers::{Charter, Peer, Secret};
use std::time::Duration;
use world::{Machine, start};

fn until(env: &Env, what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        block_on(env.sleep(Duration::from_millis(10)));
    }
    panic!("still not: {what}");
}

fn connected(machine: &Machine) -> bool {
    machine.mesh.status().iter().all(|status| status.figures.connected)
}

#[test]
fn frames_of_every_size_arrive() {
    let env = Env::real();
    let addresses = block_on(env.unused_addresses(2)).unwrap();
    let charter = Charter {
        cluster: "test:real".into(),
        cluster_id: [9; 16],
        secret: Secret::random(&env),
        members: (1..)
            .zip(&addresses)
            .map(|(node, address)| Peer { node, address: address.to_string() })
            .collect(),
    };
    let one = start(&env, &charter, 1);
    let two = start(&env, &charter, 2);
    until(&env, "both reach each other", || connected(&one) && connected(&two));
    for number in 1..=20 {
        one.send(2, number, Some(1 << number.min(23)));
        two.send(1, number, None);
    }
    until(&env, "all has arrived", || one.numbers().len() == 20 && two.numbers().len() == 20);
    let received = two.received.lock().unwrap().clone();
    for frame in received {
        let number = frame.message.term;
        assert_eq!(frame, world::frame(1, 2, number, Some(1 << number.min(23))));
    }
}
