//! The recipe for certificates in docs/operations.md: pasted into a shell, it gives what a server and its clients take.

mod common;

use common::{Running, scratch};
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/operations.md");

/// The commands as they stand on the page.
fn recipe() -> &'static str {
    let begin = PAGE.find("```sh\nopenssl req -x509").expect("the page has the recipe") + 6;
    let length = PAGE[begin..].find("```").expect("it ends");
    &PAGE[begin..begin + length]
}

#[test]
fn the_recipe_works_when_pasted() {
    let place = scratch();
    match Command::new("openssl").arg("version").output() {
        Ok(version) if version.stdout.starts_with(b"OpenSSL 3") => {}
        _ => return println!("skipped: there is no OpenSSL 3 on this machine"),
    }
    let made = Command::new("sh").args(["-euc", recipe()]).current_dir(place.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key, authority) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let tls =
        ["--tls-cert", &certificate, "--tls-key", &key, "--tls-ca", &authority, "--listen", "127.0.0.1:0"];
    let server = Running::start(&place.path().join("db"), &tls);
    let mut shell = Command::new(env!("CARGO_BIN_EXE_plinth"));
    shell
        .args(["shell", "--exec", "writemode on; set a 1; get a", "--cluster-file"])
        .arg(server.cluster_file());
    let shell = shell
        .env("FDB_TLS_CERTIFICATE_FILE", file("client.crt"))
        .env("FDB_TLS_KEY_FILE", file("client.key"))
        .env("FDB_TLS_CA_FILE", &authority)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&shell.stdout);
    assert!(told.contains("`a' is `1'"), "{told}{}", String::from_utf8_lossy(&shell.stderr));
    assert_eq!(server.terminate(), Some(0));
}
