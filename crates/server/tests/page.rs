//! `docs/format/protocol.md` is enough to write a client from: one in Python, which was, is served,
//! and its writes are seen by others.

mod common;

use common::*;
use plinth_server::Limits;
use std::io::ErrorKind;
use std::process::Command;

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/client.py");

#[test]
fn a_client_written_from_the_page_is_served() {
    let server = serve(Limits::default());
    let address = server.addresses()[0];
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let output = match Command::new("python3").args([CLIENT, &host, &port]).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: there is no python3 on this machine");
            return;
        }
        output => output.unwrap(),
    };
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.starts_with("spoke"), "{said}{complaint}");
    let value = database(&server).transact_blocking(|tr| tr.get("page/hello").wait()).unwrap();
    assert_eq!(value.as_deref(), Some(&b"world"[..]));
}
