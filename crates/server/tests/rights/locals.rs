//! Users of the server's machine: whoever connects over loopback may what is granted to the user
//! whose process it is, by every door, and nobody else may it.
//!
//! All that a test does is one user's. As root it is another one's too: the socket is given to him,
//! as if he had made it.

#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "who runs this, and a socket that is given away"
)]

use super::common::peer::{Peer, ask_at};
use super::common::quotas::write_quotas;
use super::common::*;
use super::{
    DENIED, HOST, Place, ask, code, get, points, put, put_points, query, wait_until, with_series,
};
use plinth_client::TransactionOption;
use plinth_env::{Env, block_on};
use plinth_server::{RightsConfig, ServerConfig};
use plinth_types::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::time::Duration;

/// A user who is not the one that runs the test.
const OTHER: u32 = 4242;

/// The number of the user who runs this.
fn me() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// His name, if he has one.
fn my_name() -> Option<String> {
    let names = block_on(Env::real().files().read("/etc/passwd")).unwrap_or_default();
    let names = String::from_utf8_lossy(&names).into_owned();
    let mut lines = names.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mine = lines.find(|fields| fields.get(2).is_some_and(|uid| *uid == me().to_string()));
    mine.map(|fields| fields[0].to_owned())
}

/// A connection that is another user's, where this one may give it away.
fn of_other(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    fchown(&stream, Some(OTHER), None).ok().map(|()| stream)
}

/// The status that a connection which stays open is answered.
fn asked_over(stream: &mut TcpStream, path: &str) -> u32 {
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{HOST}\r\n").as_bytes()).unwrap();
    let (mut all, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "it ends behind {all:?}");
        all += &String::from_utf8_lossy(&buffer[..len]);
        let Some((head, body)) = all.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
        });
        if body.len() >= length.unwrap_or(0) {
            return head.split(' ').nth(1).unwrap().parse().unwrap();
        }
    }
}

#[test]
fn a_user_of_the_machine_may_what_is_granted_to_him_by_every_door() {
    let place = Place::new(with_series());
    let before = place.user(0);
    put(&before, "shop/a").unwrap();
    let http = place.server.series_addresses().http.unwrap();
    let mut other = of_other(http);
    if let Some(other) = &mut other {
        assert_eq!(asked_over(other, "/api/v1/labels"), 200);
    }
    place.grant("operator address ::1");
    place.grant(&format!("reader user {OTHER} series"));
    place.grant(&format!("writer user {OTHER}"));
    place.grant("operator user nobody-of-this-name");
    place.until_heeded();
    assert_eq!(code(get(&before, "shop/a")), DENIED);
    assert_eq!(code(get(&place.user(0), "shop/a")), DENIED);
    assert_eq!((query(&place.server, ""), put_points(&place.server)), (401, 401));
    if let Some(other) = &mut other {
        // Looked up although it was open before anybody had a right.
        assert_eq!(asked_over(other, "/api/v1/labels"), 200);
        assert_eq!(asked_over(other, "/metrics"), 404);
    }
    place.grant(&format!("reader user {} prefix shop/", me()));
    place.grant(&format!("writer user {} series", me()));
    place.until_heeded();
    for user in [&before, &place.user(0), &place.user(1)] {
        assert_eq!(get(user, "shop/a"), Ok(Some("x".to_owned())));
    }
    assert_eq!(code(put(&before, "shop/a")), DENIED);
    assert_eq!((query(&place.server, ""), put_points(&place.server)), (200, 204));
    assert!(points(&place.server).starts_with("+OK"));
    assert_eq!(ask(&place.server, "/metrics", ""), 401);
    place.grant(&format!("operator user {}", me()));
    place.until_heeded();
    assert_eq!(ask(&place.server, "/metrics", ""), 200);
    put(&before, "log/a").unwrap();
    for grant in ["operator user", "writer user"] {
        let scope = if grant == "writer user" { " series" } else { "" };
        place.revoke(&format!("{grant} {}{scope}", me()));
    }
    place.until_heeded();
    assert_eq!(code(put(&before, "log/a")), DENIED);
    assert_eq!((ask(&place.server, "/metrics", ""), query(&place.server, "")), (401, 401));
    assert!(points(&place.server).contains("permission_denied"));
}

#[test]
fn users_have_names_and_what_they_do_as_operators_is_told_with_them() {
    let name = my_name().unwrap_or_else(|| me().to_string());
    // Of the server's own: it is known before anybody comes.
    let rights = RightsConfig { operators: vec![format!("user {name}")], ..Default::default() };
    let place = Place::new(ServerConfig { rights, http: Some(loopback()), ..Default::default() });
    place.grant("reader address 10.0.0.0/8");
    place.until_heeded();
    let user = place.user(0);
    let done = user.transact_blocking(|tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set(b"\xff/conf/excluded/10.0.0.1", b"");
        Ok(())
    });
    done.unwrap_or_else(|error: Error| panic!("{error}"));
    let told = ask_at(place.server.http_address().unwrap(), "GET", "/api/audit", HOST, "").1;
    assert!(told.contains(&format!("as user {name} of this machine")), "{told}");
    let status = ask_at(place.server.http_address().unwrap(), "GET", "/status/json", HOST, "").1;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["cluster"]["plinth"]["server"]["rights"]["users"], true);
}

#[test]
fn connections_that_come_at_once_are_all_looked_up() {
    let place = Place::with(&["operator address ::1", &format!("reader user {} prefix a", me())]);
    let users: Vec<_> = (0..40).map(|_| place.user(0)).collect();
    std::thread::scope(|scope| {
        for user in &users {
            scope.spawn(move || {
                assert_eq!(get(user, "a"), Ok(None));
                assert_eq!(code(get(user, "b")), DENIED);
            });
        }
    });
}

#[test]
fn a_user_has_quotas_of_his_own() {
    let place = Place::new(ServerConfig::default());
    let user = place.user(0);
    put(&user, "k").unwrap();
    let set = |whom: u32| {
        let text = format!("user {whom} snapshots=1");
        write_quotas(&place.inside, &[&text]);
    };
    let second_fails = || {
        let first = user.pin_snapshot().wait();
        let second = user.pin_snapshot().wait();
        assert_eq!(first.err(), None);
        second.is_err()
    };
    set(OTHER);
    // As long as it takes to be read.
    block_on(Env::real().sleep(Duration::from_millis(1_500)));
    assert!(!second_fails());
    set(me());
    wait_until(second_fails);
}

/// Bytes come from a port before the connection is looked up, and are answered behind that.
#[test]
fn what_is_sent_at_once_is_judged_too() {
    let place = Place::new(with_series());
    place.grant("operator address ::1");
    place.grant(&format!("writer user {} series", me()));
    place.until_heeded();
    let mut peer = Peer::to(place.server.series_addresses().resp.unwrap());
    peer.send("+a b=c\r\n:5\r\n:1\r\n+SYNC\r\n");
    assert!(peer.until("\r\n").starts_with("+OK"));
}
