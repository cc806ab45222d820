//! Certificates: what `plinth tls` makes, and the recipe in docs/operations.md, pasted into a
//! shell, give what a server and its clients take.
//!
//! The recipe is read from the page itself, so that the page can't go wrong unnoticed. Where there
//! is no OpenSSL 3, the tests that need it say so and do nothing.

mod common;

use common::{Running, scratch};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/operations.md");

/// The commands as they stand on the page.
fn recipe() -> &'static str {
    let begin = PAGE.find("```sh\nopenssl req -x509").expect("the page has the recipe") + 6;
    let length = PAGE[begin..].find("```").expect("it ends");
    &PAGE[begin..begin + length]
}

/// What a shell says, told to do this with these certificates, if any.
fn shell(server: &Running, line: &str, certificate: Option<&Path>) -> String {
    let mut shell = Command::new(env!("CARGO_BIN_EXE_plinth"));
    shell.args(["shell", "--exec", line, "--cluster-file"]).arg(server.cluster_file());
    if let Some(path) = certificate {
        let told = [("CERTIFICATE", "crt"), ("KEY", "key")];
        shell.envs(
            told.map(|(name, ending)| {
                (format!("FDB_TLS_{name}_FILE"), path.with_extension(ending))
            }),
        );
        shell.env("FDB_TLS_CA_FILE", path.with_file_name("ca.crt"));
    }
    let done = shell.output().unwrap();
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

/// A server with the certificate `server` of this directory, and a shell with another one of it,
/// talk over TLS.
fn they_talk(place: &Path, client: &str) {
    let file = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let (certificate, key, authority) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let tls = [
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
        "--tls-ca",
        &authority,
        "--listen",
        "127.0.0.1:0",
    ];
    let server = Running::start(&place.join(format!("db-{client}")), &tls);
    let told = shell(&server, "writemode on; set a 1; get a", Some(&place.join(client)));
    assert!(told.contains("`a' is `1'"), "{told}");
    assert_eq!(server.terminate(), Some(0));
}

/// `plinth tls ...` in this directory: its exit code, and what it said.
fn tls(place: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_plinth"));
    let done = program.arg("tls").args(arguments).current_dir(place).output().unwrap();
    (done.status.code(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

fn has_openssl() -> bool {
    let is_there = match Command::new("openssl").arg("version").output() {
        Ok(version) => version.stdout.starts_with(b"OpenSSL 3"),
        Err(_) => false,
    };
    if !is_there {
        println!("skipped: there is no OpenSSL 3 on this machine");
    }
    is_there
}

#[test]
fn the_recipe_works_when_pasted() {
    let place = scratch();
    if !has_openssl() {
        return;
    }
    let made =
        Command::new("sh").args(["-euc", recipe()]).current_dir(place.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    they_talk(place.path(), "client");
    // Its authority signs what `plinth tls` makes.
    let (code, told) = tls(place.path(), &["new-cert", "other"]);
    assert_eq!((code, &told[..]), (Some(0), "./other.crt\n./other.key\n"));
    they_talk(place.path(), "other");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what the program leaves on the machine's own disk")]
fn what_plinth_tls_makes_lets_a_server_and_a_client_talk() {
    let place = scratch();
    let place = place.path();
    let (code, told) = tls(place, &["new-cert", "server"]);
    assert!(code == Some(1) && told.contains("plinth tls new-ca makes one"), "{told}");
    let (code, told) =
        tls(place, &["new-ca", "--name", "Shop's authority", "--organisation", "Shop"]);
    assert!(code == Some(0) && told.contains("Keep ca.key where no server is"), "{told}");
    for name in ["server", "client"] {
        assert_eq!(tls(place, &["new-cert", name, "--host", "localhost,127.0.0.1"]).0, Some(0));
    }
    they_talk(place, "client");
    let mode = std::fs::metadata(place.join("client.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // Nothing is replaced, and no certificate is made that nobody would take.
    let before = std::fs::read(place.join("ca.crt")).unwrap();
    let (code, told) = tls(place, &["new-ca"]);
    assert!(code == Some(1) && told.contains("ca.crt is there already"), "{told}");
    assert_eq!(std::fs::read(place.join("ca.crt")).unwrap(), before);
    assert_eq!(tls(place, &["new-cert", "../x"]).0, Some(2));
    assert_eq!(tls(place, &["new-cert", "ca"]).0, Some(2));
    std::fs::copy(place.join("client.key"), place.join("ca.key")).unwrap();
    let (code, told) = tls(place, &["new-cert", "third"]);
    assert!(code == Some(1) && told.contains("do not belong together"), "{told}");
    assert!(!place.join("third.crt").exists());
}

#[test]
fn a_certificate_of_version_1_is_refused_with_what_to_do() {
    let place = scratch();
    let (place, db) = (place.path(), place.path().join("db"));
    if !has_openssl() {
        return;
    }
    assert_eq!(tls(place, &["new-ca"]).0, Some(0));
    let make = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=old -keyout old.key -out old.csr
        openssl x509 -req -in old.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 9 -out old.crt";
    let made = Command::new("sh").args(["-euc", make]).current_dir(place).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut server = Command::new(env!("CARGO_BIN_EXE_plinth"));
    let server = server
        .current_dir(place)
        .arg("server")
        .arg("--dir")
        .arg(db)
        .args([
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            "old.crt",
            "--tls-key",
            "old.key",
            "--tls-ca",
            "ca.crt",
        ])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&server.stderr);
    assert_eq!(server.status.code(), Some(1), "{told}");
    let to_do = "plinth tls new-cert";
    assert!(
        told.contains("version 1")
            && told.contains("-copy_extensions copy")
            && told.contains(to_do),
        "{told}"
    );
}

/// The first grant holds within a second.
fn until_refused(what: impl Fn() -> String) {
    until_told("permission_denied", what);
}

/// Does something until it tells this: a grant, or what is taken back, holds within a second.
fn until_told(words: &str, what: impl Fn() -> String) {
    let mut told = String::new();
    for _ in 0..200 {
        told = what();
        if told.contains(words) {
            return;
        }
    }
    panic!("{words:?} isn't told: {told}");
}

#[test]
fn whoever_has_a_certificate_may_what_it_was_granted() {
    let place = scratch();
    let place = place.path();
    assert_eq!(tls(place, &["new-ca"]).0, Some(0));
    for name in ["server", "admin", "till"] {
        assert_eq!(tls(place, &["new-cert", name, "--host", "localhost,127.0.0.1"]).0, Some(0));
    }
    let file = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let (certificate, key, authority) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let settings = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-ca", &authority];
    let mut more = settings.to_vec();
    more.extend(["--listen", "127.0.0.1:0", "--operator", "cert S.CN=admin"]);
    let server = Running::start(&place.join("db"), &more);
    let (admin, till) = (place.join("admin"), place.join("till"));
    let told = shell(
        &server,
        "grant operator cert S.CN=admin; grant writer cert S.CN=till prefix a; getversion",
        Some(&admin),
    );
    assert!(told.contains("Granted: writer cert S.CN=till prefix a"), "{told}");
    until_refused(|| shell(&server, "roles", Some(&till)));
    let told = shell(&server, "writemode on; set a1 2; get a1", Some(&till));
    assert!(told.contains("`a1' is `2'"), "{told}");
    let told = shell(&server, "writemode on; set b1 2", Some(&till));
    assert!(told.contains("permission_denied") && !told.contains("Committed"), "{told}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_shell_shows_the_token_it_is_given() {
    let place = scratch();
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rights/keys.json");
    let more = [
        "--listen",
        "127.0.0.1:0",
        "--authorization-public-key-file",
        keys.to_str().unwrap(),
        "--operator",
        "token sub=admin",
    ];
    let server = Running::start(&place.path().join("db"), &more);
    let with = |token: &str, line: &str| {
        let token = match token {
            "admin" => include_str!("../../../tests/rights/admin.token"),
            _ => include_str!("../../../tests/rights/till.token"),
        };
        let line = format!("option on authorization_token {}; {line}", token.trim());
        shell(&server, &line, None)
    };
    let told =
        with("admin", "grant operator token sub=admin; grant reader token sub=till prefix a");
    assert!(told.contains("Granted: reader token sub=till prefix a"), "{told}");
    let told = with("admin", "writemode on; set a1 2; get a1");
    assert!(told.contains("`a1' is `2'"), "{told}");
    until_refused(|| shell(&server, "get a1", None));
    until_told("`a1' is `2'", || with("till", "get a1"));
    let told = with("till", "get b");
    assert!(told.contains("permission_denied"), "{told}");
    // What goes through no transaction, too.
    let told = with(
        "admin",
        "grant writer token sub=till prefix b; revoke reader token sub=till prefix a; status minimal; \
         writemode on; changes register feed b; changes list; kill list",
    );
    for wanted in ["Granted: writer token", "is available", "Stream ", "server"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    assert!(!told.contains("permission_denied"), "{told}");
    for refused in ["status", "changes list", "kill list", "grant reader anybody"] {
        let told = with("till", refused);
        assert!(told.contains("permission_denied"), "{refused}: {told}");
    }
    commands_show_the_token_of_a_file(&server, place.path());
    assert_eq!(server.terminate(), Some(0));
}

/// What a grant costs whoever shows a token could not be told: that the benchmark shows it was said
/// nowhere, and neither was it in the report.
#[test]
fn a_benchmark_shows_the_token_it_is_given_and_says_so() {
    let place = scratch();
    let rights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rights");
    let keys = rights.join("keys.json");
    let keys = ["--authorization-public-key-file", keys.to_str().unwrap()];
    let [listen, operator] = [["--listen", "127.0.0.1:0"], ["--operator", "token sub=admin"]];
    let more = [keys, listen, operator].concat();
    let server = Running::start(&place.path().join("db"), &more);
    let bench = |token: Option<&str>| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_plinth"));
        program.args(["bench", "--workload", "write1", "--rows", "1000", "--seconds", "0.2"]);
        program.args(["--rest", "0.01", "--cluster-file"]).arg(server.cluster_file());
        program.env_remove("PLINTH_TOKEN_FILE");
        program.envs(token.map(|token| ("PLINTH_TOKEN_FILE", rights.join(token))));
        let done = program.output().unwrap();
        let told = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        (done.status.success(), told)
    };
    let admin = include_str!("../../../tests/rights/admin.token");
    let line = format!(
        "option on authorization_token {}; grant operator token sub=admin; grant writer token sub=till",
        admin.trim()
    );
    let told = shell(&server, &line, None);
    assert!(told.contains("Granted: writer token sub=till"), "{told}");
    until_told("permission_denied", || bench(None).1);
    let (done, told) = bench(Some("till.token"));
    assert!(done, "{told}");
    assert!(told.contains("command: PLINTH_TOKEN_FILE=") && told.contains("unknown (served)"));
    let (done, told) = bench(Some("admin.token"));
    assert!(done && told.contains("memory (served)"), "{told}");
    assert_eq!(server.terminate(), Some(0));
}

/// `admin` is an operator here, `till` writes what begins with `b`, and nobody else may do
/// anything.
fn commands_show_the_token_of_a_file(server: &Running, place: &Path) {
    let rights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rights");
    let plinth = |token: &Path, arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_plinth"));
        program.args(arguments).arg("--cluster-file").arg(server.cluster_file());
        let done = program.env("PLINTH_TOKEN_FILE", token).output().unwrap();
        let told = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        (done.status.success(), told)
    };
    let backup = format!("file://{}", place.join("backup").display());
    let commands: [&[&str]; 2] = [&["changes", "list"], &["backup", "now", &backup]];
    for command in commands {
        let (done, told) = plinth(&rights.join("till.token"), command);
        assert!(!done && told.contains("permission_denied"), "{command:?}: {told}");
        let (done, told) = plinth(&rights.join("admin.token"), command);
        assert!(done, "{command:?}: {told}");
    }
    let of_operators: [&[&str]; 4] = [
        &["backup", "now", &backup],
        &["backup", "start", "-d", &backup],
        &["backup", "status"],
        &["backup", "abort"],
    ];
    for command in of_operators {
        let (done, told) = plinth(&rights.join("till.token"), command);
        let says_who_may = told.contains("permission_denied") && told.contains("an operator's");
        assert!(!done && says_who_may, "{command:?}: {told}");
    }
    let set = ["shell", "--exec", "writemode on; set b2 3; get b2"];
    until_told("`b2' is `3'", || plinth(&rights.join("till.token"), &set).1);
    // One that is given by hand is shown in its place.
    let admin = include_str!("../../../tests/rights/admin.token");
    let line = format!("option on authorization_token {}; writemode on; set c 1", admin.trim());
    let (done, told) = plinth(&rights.join("till.token"), &["shell", "--exec", &line]);
    assert!(done, "{told}");
    for wrong in ["none.token", "../../LICENSE"] {
        let (done, told) = plinth(&rights.join(wrong), &["changes", "list"]);
        assert!(!done && told.contains("PLINTH_TOKEN_FILE names"), "{wrong}: {told}");
    }
}
