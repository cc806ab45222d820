//! TLS: who is let in, who is not and is told why, and that the server serves on whatever others
//! try.
//!
//! The certificates are those of `crates/tls/tests/certificates`: of an authority that is trusted,
//! of another one, expired, of the future, made for the other side, signed by nobody. Each refusal
//! is looked at from both sides: the client's words, and the server's count of failures.
#![cfg(feature = "tls")]

mod common;

use common::peer::Peer;
use common::quotas::{quota, write_quotas};
use common::*;
use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_client::{Database, TransactionOption};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_series::SeriesStore;
use plinth_server::{Limits, SeriesConfig, Server, ServerConfig, Source, TlsOptions};
use plinth_types::rights::Grant;
use plinth_types::{Error, Result};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn file(name: &str) -> Option<Source> {
    let place = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/certificates"));
    Some(Source::File(place.join(name)))
}

/// A certificate, a key and the authority, by their names.
fn options(certificate: &str, key: &str, authority: &str) -> TlsOptions {
    let some = |name: &str| if name.is_empty() { None } else { file(name) };
    TlsOptions {
        certificate: some(certificate),
        key: some(key),
        authorities: some(authority),
        ..TlsOptions::default()
    }
}

fn server_options() -> TlsOptions {
    options("server.crt", "server.key", "ca.crt")
}

fn client_options() -> TlsOptions {
    options("client.crt", "client.key", "ca.crt")
}

fn config(tls: TlsOptions) -> ServerConfig {
    ServerConfig { listen: vec![loopback()], tls: Some(tls), ..ServerConfig::default() }
}

fn start(config: ServerConfig) -> Result<Server> {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default()))?;
    block_on(Server::start(Arc::new(node.endpoint()), config))
}

fn connect(server: &Server, tls: TlsOptions) -> Database {
    let file = ClusterFile::parse(server.connection_string()).unwrap();
    let env = Env::real();
    let options = RemoteOptions { tls, connections: 1, ..RemoteOptions::new(&env) };
    Database::new(Arc::new(RemoteEndpoint::with_options(&env, file, &options)))
}

fn write(db: &Database) -> Result<()> {
    db.transact_blocking(|tr| {
        tr.set("k", "v");
        Ok(())
    })
    .map_err(|error: Error| error)
}

/// What a client with these options is told.
fn refusal(server: &Server, tls: TlsOptions) -> String {
    let error = write(&connect(server, tls)).unwrap_err();
    assert_eq!(error.code(), 2107, "{error}");
    error.detail().unwrap_or_default().to_owned()
}

fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
}

#[test]
fn clients_with_the_right_certificate_are_served_and_the_cluster_file_says_tls() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("tls")).unwrap();
    let cluster_file = dir.path().join("fdb.cluster");
    let server = start(ServerConfig {
        cluster_file: Some(cluster_file.clone()),
        ..config(server_options())
    })
    .unwrap();
    let written = block_on(ClusterFile::read(&env, &cluster_file)).unwrap();
    assert!(written.is_tls() && server.connection_string().ends_with(":tls"));
    let db = connect(&server, client_options());
    let large = vec![7; 90_000];
    db.transact_blocking(|tr| {
        (0..40_u8).for_each(|number| tr.set([number], &large));
        Ok(())
    })
    .unwrap();
    for number in 0..40_u8 {
        let value = db.transact_blocking(|tr| tr.get([number]).wait()).unwrap();
        assert!(value.is_some_and(|value| value[..] == large[..]));
    }
    assert_eq!(server.figures().tls_failures, 0);
    // A key may lie in the certificate's file.
    let one = start(config(options("server.pem", "", "ca.crt"))).unwrap();
    write(&connect(&one, client_options())).unwrap();
}

#[test]
fn clients_without_the_right_certificate_are_told_what_is_wrong_with_it() {
    let server = start(config(server_options())).unwrap();
    let cases = [
        ("", "", "wants our certificate"),
        ("expired-client.crt", "client.key", "has expired"),
        ("future-client.crt", "client.key", "is not valid yet"),
        ("server-only.crt", "server.key", "does not accept our certificate"),
        ("stranger-client.crt", "client.key", "knows no authority"),
        ("self-signed.crt", "client.key", "certificate"),
    ];
    for (count, (certificate, key, words)) in (1..).zip(cases) {
        let told = refusal(&server, options(certificate, key, "ca.crt"));
        assert!(told.contains("the server") && told.contains(words), "{certificate}: {told}");
        wait_until(|| server.figures().tls_failures == count);
        write(&connect(&server, client_options())).unwrap();
    }
}

#[test]
fn servers_without_the_right_certificate_are_not_trusted() {
    for (certificate, key, words) in [
        ("expired-server.crt", "server.key", "the server's certificate has expired"),
        ("future-server.crt", "server.key", "the server's certificate is not valid yet"),
        ("client-only.crt", "client.key", "was not made for this side of a connection"),
        ("stranger-server.crt", "server.key", "not signed by any of the authorities"),
    ] {
        let server = start(config(options(certificate, key, "ca.crt"))).unwrap();
        let told = refusal(&server, client_options());
        assert!(told.contains(words), "{certificate}: {told}");
        wait_until(|| server.figures().tls_failures == 1);
        let trusting =
            TlsOptions { verify_peers: vec!["Check.Valid=0".into()], ..client_options() };
        write(&connect(&server, trusting)).unwrap();
    }
}

#[test]
fn certificates_that_were_made_for_their_side_alone_are_good_there() {
    let server = start(config(options("server-only.crt", "server.key", "ca.crt"))).unwrap();
    write(&connect(&server, options("client-only.crt", "client.key", "ca.crt"))).unwrap();
}

#[test]
fn both_sides_can_want_more_than_the_right_authority() {
    let wants = |words: &str, of: TlsOptions| TlsOptions { verify_peers: vec![words.into()], ..of };
    let server = start(config(wants("S.O=Shop,S.CN>till-|CN=nobody", server_options()))).unwrap();
    let good = "I.CN=Authority,S.subjectAltName=DNS:localhost,S.subjectAltName=IP:127.0.0.1,CN<-1";
    write(&connect(&server, wants(good, client_options()))).unwrap();
    let told = refusal(&server, wants("S.CN=db-2", client_options()));
    assert!(
        told.contains("the server's certificate is not wanted: verify_peers wants S.CN=db-2"),
        "{told}"
    );

    let picky = start(config(wants("S.CN=till-8", server_options()))).unwrap();
    let told = refusal(&picky, client_options());
    assert!(told.contains("does not accept our certificate"), "{told}");
    let told = refusal(&picky, wants("Root.CN=x", client_options()));
    assert!(told.contains("Root.CN=x"), "{told}");
}

/// Who somebody is whom a quota means is what he has proven.
#[test]
fn a_quota_of_a_certificate_is_for_whoever_shows_it() {
    let server = start(config(server_options())).unwrap();
    let [till, other] = [client_options(), server_options()].map(|tls| connect(&server, tls));
    let quotas = ["cert S.CN=till-7 write=1kB/s", "cert S.CN=till-8 write=2kB/s"];
    write_quotas(&other, &quotas);
    let of = |number: usize, what: &str| {
        // Whoever asks more often is told what he was told before.
        block_on(Env::real().sleep(Duration::from_millis(60)));
        let status: Value = serde_json::from_str(&other.status_json().wait().unwrap()).unwrap();
        let budgets = &status["cluster"]["plinth"]["server"]["quotas"]["budgets"];
        let whose = quota(quotas[number]).whom.to_string();
        let mine = budgets.as_array().unwrap().iter().find(|budget| budget["whose"] == *whose);
        mine.map_or(Value::Null, |budget| budget["write"][what].clone())
    };
    wait_until(|| of(1, "bytes_per_second_max") == 2_000);
    let commit = |db: &Database| {
        let tr = db.create_transaction();
        tr.set("k", vec![7; 50_000]);
        tr.commit()
    };
    commit(&till).wait().unwrap();
    let waits = commit(&till);
    wait_until(|| of(0, "waiting") == 1);
    (0..3).for_each(|_| commit(&other).wait().unwrap());
    assert!(!waits.is_ready());
    assert_eq!([0, 1].map(|number| of(number, "bytes")), [50_001, 0]);
}

/// Points on lines come from whoever a grant is for, and that is told by certificates.
#[test]
fn a_grant_of_series_to_a_certificate_lets_it_send_lines_and_no_other() {
    let env = Env::real();
    let node = block_on(Node::in_memory(&env, NodeConfig::default())).unwrap();
    let inside = Database::new(Arc::new(node.endpoint()));
    let grants =
        ["operator cert S.CN=nobody", "writer cert S.CN=till-7 series", "reader cert S.O=Shop"];
    inside
        .transact_blocking(|tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            for text in grants {
                let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
                tr.set(Grant::parse(&words)?.key(), b"\x01");
            }
            Ok(())
        })
        .unwrap_or_else(|error: Error| panic!("{error}"));
    // Beyond the machine, since within it points are sent in the clear.
    let at = Some(SocketAddr::from(([0, 0, 0, 0], 0)));
    let series = SeriesConfig { resp: at, opentsdb: at, graphite: at, ..SeriesConfig::default() };
    let config = ServerConfig { series, ..config(server_options()) };
    let server = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap();
    let at = server.series_addresses();
    let send = |to: Option<SocketAddr>, tls: &TlsOptions, text: &str| {
        let here = SocketAddr::new(loopback().ip(), to.unwrap().port());
        let below = block_on(env.sockets().connect(here)).unwrap();
        let mut peer = Peer(block_on(plinth_tls::connect(&env, tls, below)).unwrap());
        peer.send(text);
        peer
    };
    wait_until(|| server.rights() == grants.len());
    for (name, tls) in [("yes", client_options()), ("no", server_options())] {
        let text = format!("+r.{name} a=1\r\n:1\r\n:1\r\n+SYNC\r\n");
        let resp = send(at.resp, &tls, &text).until("\n");
        // What makes no sense is answered, as nothing else is there.
        let text = format!("put o.{name} 1 1 a=1\nnonsense\n");
        let mut opentsdb = send(at.opentsdb, &tls, &text);
        // Another certificate of the same authority's is another sender.
        let is_taken = name == "yes";
        let opentsdb = if is_taken { opentsdb.until("\n") } else { opentsdb.all() };
        assert_eq!(resp.starts_with("+OK"), is_taken, "{resp}");
        assert_eq!(resp.contains("permission_denied"), !is_taken, "{resp}");
        assert_eq!(opentsdb.contains("permission_denied"), !is_taken, "{opentsdb}");
    }
    // It is told, and broken off behind that.
    send(at.graphite, &server_options(), "g.no;a=1 1 1\n").until("permission_denied");
    block_on(server.stop());
    let store = block_on(SeriesStore::open(&inside)).unwrap();
    for (name, is_there) in [("yes", true), ("no", false)] {
        for door in ["r", "o"] {
            let series = block_on(store.existing(&format!("{door}.{name} a=1"))).unwrap();
            assert_eq!(series.is_some(), is_there, "{door}.{name}");
        }
    }
}

#[test]
fn what_this_side_lacks_is_said_before_anything_is_sent() {
    let server = start(config(server_options())).unwrap();
    for (tls, words) in [
        (TlsOptions::default(), "FDB_TLS_CA_FILE"),
        (options("missing.crt", "", "ca.crt"), "missing.crt"),
        (options("client.crt", "", "ca.crt"), "no private key"),
        (options("", "client.key", "ca.crt"), "no certificate for it"),
        (options("client.crt", "encrypted.key", "ca.crt"), "encrypted"),
        (options("client.crt", "server.key", "ca.crt"), "can't be used together"),
        (options("client.crt", "client.key", "client.key"), "no certificate in it"),
    ] {
        let told = refusal(&server, tls);
        assert!(told.contains(words), "{told}");
    }
    for (tls, words) in [
        (options("", "", "ca.crt"), "--tls-cert"),
        (options("server.crt", "client.key", ""), "can't be used together"),
        (options("server.crt", "missing.key", ""), "missing.key"),
    ] {
        let error = start(config(tls)).unwrap_err();
        assert!(error.code() == 2107 && error.detail().unwrap().contains(words), "{error}");
    }
}

#[test]
fn who_speaks_tls_where_there_is_none_and_the_other_way_round_is_told_so() {
    let secure = start(config(server_options())).unwrap();
    let plain = serve(Limits::default());
    let to = |server: &Server, tls: bool| {
        let file = ClusterFile::parse(server.connection_string()).unwrap();
        let file = ClusterFile::new(
            "plinth",
            file.key().split(':').nth(1).unwrap(),
            server.addresses()[0],
        );
        let file = if tls { file.with_tls() } else { file };
        let env = Env::real();
        let options =
            RemoteOptions { tls: client_options(), connections: 1, ..RemoteOptions::new(&env) };
        write(&Database::new(Arc::new(RemoteEndpoint::with_options(&env, file, &options))))
            .unwrap_err()
    };
    let error = to(&secure, false);
    assert!(
        error.code() == 2107 && error.detail().unwrap().contains("must end in :tls"),
        "{error}"
    );
    wait_until(|| secure.figures().tls_failures == 1);
    let error = to(&plain, true);
    assert!(
        error.code() == 2107 && error.detail().unwrap().contains("must not end in :tls"),
        "{error}"
    );
    wait_until(|| plain.figures().refused == 1);
    write(&connect(&secure, client_options())).unwrap();
    write(&database(&plain)).unwrap();
}

#[test]
fn a_handshake_that_does_not_end_is_cut_off_and_nonsense_in_it_harms_nobody() {
    let limits = Limits { greeting: Duration::from_millis(300), ..Limits::default() };
    let server = start(ServerConfig { limits, ..config(server_options()) }).unwrap();
    let silent = Raw::connect(&server);
    let mut half = Raw::connect(&server);
    // The head of a record that never comes.
    half.send(&[0x16, 3, 1, 0x40, 0]).unwrap();
    for raw in [silent, half] {
        let farewell = raw.all();
        assert!(
            farewell.is_empty() || farewell.starts_with(&[0x15, 3]),
            "{farewell:?} is no alert"
        );
    }
    for seed in 1..60 {
        let mut random = Random(seed);
        let mut raw = Raw::connect(&server);
        let mut bytes: Vec<_> = (0..random.below(3000)).map(|_| random.next() as u8).collect();
        bytes.splice(0..0, [0x16, 3, 1, 0, random.next() as u8]);
        let _ = raw.send(&bytes);
        while seed % 4 == 0 && raw.receive() > 0 {}
    }
    write(&connect(&server, client_options())).unwrap();
    wait_until(|| server.figures().connections <= 1);
}

#[test]
fn other_machines_are_let_in_if_they_must_show_certificates_or_in_so_many_words() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let open = |tls: Option<TlsOptions>, without: bool| ServerConfig {
        listen: vec![everywhere],
        public: Some("127.0.0.1:1".parse().unwrap()),
        tls,
        without_client_certificates: without,
        ..ServerConfig::default()
    };
    let anybody = options("server.crt", "server.key", "");
    for (config, words) in
        [(open(None, true), "--without-tls"), (open(Some(anybody.clone()), false), "--tls-ca")]
    {
        let error = start(config).unwrap_err();
        assert!(error.detail().unwrap().contains(words), "{error}");
    }
    start(open(Some(server_options()), false)).unwrap();
    let server = start(open(Some(anybody.clone()), true)).unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.addresses()[0].port()));
    let key = server.connection_string().split('@').next().unwrap();
    let file = ClusterFile::parse(&format!("{key}@{address}:tls")).unwrap();
    let env = Env::real();
    let tls = options("", "", "ca.crt");
    let options = RemoteOptions { tls, ..RemoteOptions::new(&env) };
    write(&Database::new(Arc::new(RemoteEndpoint::with_options(&env, file, &options)))).unwrap();
    let both = ServerConfig { without_tls: true, ..config(anybody) };
    assert!(start(both).unwrap_err().detail().unwrap().contains("--without-tls"));
}

/// The cookie that the answer to a request sets.
fn cookie(mut raw: Raw, request: &str) -> String {
    raw.send(request.as_bytes()).unwrap();
    let answer = String::from_utf8(raw.all()).unwrap();
    let line = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    line.unwrap_or_else(|| panic!("no cookie in {answer}")).to_owned()
}

#[test]
fn http_is_https_where_other_machines_can_reach_it_and_asks_for_no_certificate() {
    let everywhere = Some("0.0.0.0:0".parse().unwrap());
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("https")).unwrap();
    let mut config = ServerConfig { http: everywhere, ..config(server_options()) };
    config.console.token_file = Some(dir.path().join("token"));
    let server = start(config).unwrap();
    assert!(server.is_http_secure());
    let address =
        std::net::SocketAddr::from(([127, 0, 0, 1], server.http_address().unwrap().port()));
    let request = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut plain = Raw::to(address);
    plain.send(request).unwrap();
    let answer = String::from_utf8(plain.all()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https://"), "{answer}");

    let below = block_on(env.sockets().connect(address)).unwrap();
    let mut secure =
        Raw::over(block_on(plinth_tls::connect(&env, &options("", "", "ca.crt"), below)).unwrap());
    secure.send(request).unwrap();
    let answer = String::from_utf8(secure.all()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 401"), "{answer}");

    let token = block_on(env.files().read(dir.path().join("token"))).unwrap();
    let token = String::from_utf8(token).unwrap();
    let login = |name: &str| {
        let body = format!("{{\"token\": \"{}\"}}", token.trim());
        let head = "Connection: close\r\nX-Plinth-Console: 1";
        let length = body.len();
        format!(
            "POST /api/{name} HTTP/1.1\r\nHost: a\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    for name in ["login", "logout"] {
        let below = block_on(env.sockets().connect(address)).unwrap();
        let stream =
            block_on(plinth_tls::connect(&env, &options("", "", "ca.crt"), below)).unwrap();
        let cookie = cookie(Raw::over(stream), &login(name));
        assert!(cookie.ends_with("; Secure"), "a browser would send it in the clear: {cookie}");
    }

    let mut near = ServerConfig { http: Some(loopback()), ..self::config(server_options()) };
    near.console.token_file = Some(dir.path().join("token"));
    let near = start(near).unwrap();
    assert!(!near.is_http_secure());
    let mut plain = Raw::to(near.http_address().unwrap());
    plain.send(request).unwrap();
    assert!(plain.all().starts_with(b"HTTP/1.1 200"));
    let cookie = cookie(Raw::to(near.http_address().unwrap()), &login("login"));
    assert!(!cookie.contains("Secure"), "a browser would not send it at all: {cookie}");
}

#[test]
fn certificates_are_exchanged_while_the_server_runs() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("rotation")).unwrap();
    let copy = |from: &str, to: &str| {
        let Some(Source::File(from)) = file(from) else { unreachable!("it is a file") };
        let bytes = block_on(env.files().read(from)).unwrap();
        block_on(env.files().replace(dir.path().join(to), &bytes)).unwrap();
    };
    copy("expired-server.crt", "now.crt");
    let now = TlsOptions {
        certificate: Some(Source::File(dir.path().join("now.crt"))),
        ..server_options()
    };
    let server = start(config(now)).unwrap();
    assert!(refusal(&server, client_options()).contains("expired"));
    assert_eq!(block_on(server.reload_certificates()), Ok(false));
    copy("server.key", "now.crt");
    assert_eq!(block_on(server.reload_certificates()).unwrap_err().code(), 2107);
    assert!(refusal(&server, client_options()).contains("expired"));
    copy("server.crt", "now.crt");
    assert_eq!(block_on(server.reload_certificates()), Ok(true));
    write(&connect(&server, client_options())).unwrap();
}

#[test]
fn an_existing_cluster_file_must_say_what_the_server_speaks() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("said")).unwrap();
    let cluster_file = dir.path().join("fdb.cluster");
    let server = start(ServerConfig {
        cluster_file: Some(cluster_file.clone()),
        ..config(server_options())
    })
    .unwrap();
    let listen = server.addresses().to_vec();
    block_on(server.stop());
    let plain =
        ServerConfig { listen, cluster_file: Some(cluster_file), ..ServerConfig::default() };
    let error = start(plain).unwrap_err();
    assert!(error.code() == 2104 && error.detail().unwrap().contains("there is no TLS"), "{error}");
}
