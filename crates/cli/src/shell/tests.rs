//! The shell's commands on a database in memory, some with a server between: what each prints, and
//! how each fails.
//!
//! They go through the session that `--exec`, pipes and terminals share; the program's own tests
//! run those.

use super::editor::propose;
use super::session::{Next, Session};
use plinth::{ClusterFile, Database, Env, Local, RemoteOptions, TransactionOption, block_on};
use plinth_server::{Server, ServerConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

fn file(server: &Server) -> ClusterFile {
    ClusterFile::parse(server.connection_string()).unwrap()
}

struct Shell {
    session: Session<Vec<u8>>,
    _database: Database,
    /// The server between, if there is one.
    server: Option<Server>,
}

impl Shell {
    fn new() -> Self {
        let database = Local::in_memory().unwrap().into_database();
        Self {
            session: Session::new(database.clone(), Vec::new()),
            _database: database,
            server: None,
        }
    }

    /// A shell on a database that a server serves.
    fn over_network() -> Self {
        let database = Local::in_memory().unwrap().into_database();
        let listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
        let config = ServerConfig { listen, ..ServerConfig::default() };
        let server = block_on(Server::start(database.endpoint().clone(), config)).unwrap();
        let far = Database::connect_to(&Env::real(), file(&server));
        Self { session: Session::new(far, Vec::new()), _database: database, server: Some(server) }
    }

    /// Another client of the server, with one connection, called `other`.
    fn another_client(&self) -> Database {
        let env = Env::real();
        let options =
            RemoteOptions { connections: 1, name: "other".to_owned(), ..RemoteOptions::new(&env) };
        Database::connect_with(&env, file(self.server.as_ref().unwrap()), &options)
    }

    fn with_rows() -> Self {
        let mut shell = Self::new();
        shell.does("writemode on; set a 1; set b 2; set c 3; set ab \"x y\"; set \\x00\\xff \\\\");
        shell
    }

    #[track_caller]
    fn does(&mut self, line: &str) -> String {
        let next = self.session.run_line(line).unwrap_or_else(|failed| panic!("{line}: {failed}"));
        assert_eq!(next, Next::GoOn);
        self.printed()
    }

    fn printed(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.session.out)).unwrap()
    }

    #[track_caller]
    fn refuses(&mut self, line: &str) -> String {
        match self.session.run_line(line) {
            Ok(_) => panic!("{line} was done: {}", self.printed()),
            Err(failed) => failed.to_string(),
        }
    }
}

#[test]
fn keys_are_set_shown_and_cleared() {
    let mut shell = Shell::with_rows();
    assert_eq!(shell.does("get a"), "`a' is `1'\n");
    assert_eq!(shell.does("get ab"), "`ab' is `x y'\n");
    assert_eq!(shell.does("get \"\\x00\\xFF\""), "`\\x00\\xff' is `\\\\'\n");
    assert_eq!(shell.does("get nobody"), "`nobody': not found\n");
    let committed = shell.does("clear a");
    assert!(committed.starts_with("Committed (") && committed.ends_with(")\n"), "{committed}");
    assert_eq!(shell.does("get a"), "`a': not found\n");
    shell.does("clearrange ab c");
    assert_eq!(shell.does("getrangekeys a"), "\nRange limited to 25 keys\n\n");
    assert_eq!(shell.does("get c"), "`c' is `3'\n");
}

#[test]
fn ranges_end_where_asked_or_with_their_prefix() {
    let mut shell = Shell::with_rows();
    let head = |count: u32| format!("\nRange limited to {count} keys\n");
    assert_eq!(shell.does("getrange a"), head(25) + "`a' is `1'\n`ab' is `x y'\n\n");
    assert_eq!(shell.does("getrange a c"), head(25) + "`a' is `1'\n`ab' is `x y'\n`b' is `2'\n\n");
    assert_eq!(shell.does("getrangekeys \"\" \\xff 2"), head(2) + "`\\x00\\xff'\n`a'\n\n");
    assert_eq!(shell.does("getrangekeys \"\" \\xff -2"), head(2) + "`c'\n`b'\n\n");
    assert_eq!(shell.does("getrangekeys a b 0"), head(0) + "\n");
    assert!(
        shell.refuses("getrange a b many").contains("getrange: LIMIT must be a number, not many")
    );
    assert_eq!(shell.does("getrange b a"), head(25) + "\n", "as a range of selectors has it");
}

#[test]
fn a_range_longer_than_a_batch_is_shown_whole() {
    let mut shell = Shell::new();
    shell.does("writemode on; begin");
    for number in 0..3_000 {
        shell.does(&format!("set key{number:05} {}", "v".repeat(100)));
    }
    shell.does("commit");
    let shown = shell.does("getrange key \"\\xff\" 2500");
    assert_eq!(shown.lines().filter(|line| line.starts_with("`key")).count(), 2_500);
    assert!(shown.contains("`key02499'") && !shown.contains("`key02500'"));
}

#[test]
fn selectors_find_keys() {
    let mut shell = Shell::with_rows();
    for (line, found) in [
        ("getkey aa", "`ab'\n"),
        ("getkey >= ab", "`ab'\n"),
        ("getkey > ab", "`b'\n"),
        ("getkey <= b", "`b'\n"),
        ("getkey < b", "`ab'\n"),
        ("getkey a 2", "`b'\n"),
        ("getkey < b -1", "`a'\n"),
        ("getkey < \"\"", "before the first key\n"),
        ("getkey d", "after the last key: `\\xff'\n"),
    ] {
        assert_eq!(shell.does(line), found, "{line}");
    }
    assert!(shell.refuses("getkey ~ a 2").contains("getkey"));
    assert!(shell.refuses("getkey a far").contains("OFFSET must be a number, not far"));
}

#[test]
fn nothing_is_written_before_write_mode_is_on() {
    let mut shell = Shell::new();
    for line in ["set a 1", "clear a", "clearrange a b"] {
        assert!(shell.refuses(line).contains("writemode on"), "{line}");
    }
    shell.does("writemode on; set a 1; writemode off");
    assert!(shell.refuses("clear a").starts_with("clear: write mode is off"));
    assert!(shell.refuses("writemode perhaps").contains("on or off, not perhaps"));
}

#[test]
fn a_transaction_of_several_commands_is_committed_or_leaves_no_trace() {
    let mut shell = Shell::with_rows();
    assert_eq!(shell.does("begin"), "Transaction started\n");
    assert_eq!(shell.does("set a 10; get a"), "`a' is `10'\n", "it sees its own writes");
    let other = shell.session.database.clone();
    let seen = || other.transact_blocking(|tr| tr.get("a").wait()).unwrap().unwrap();
    assert_eq!(&seen()[..], b"1", "and nobody else does");
    assert!(shell.refuses("begin").contains("begun already"));
    assert_eq!(shell.does("rollback"), "Transaction rolled back\n");
    assert_eq!(shell.does("get a"), "`a' is `1'\n");
    let committed = shell.does("begin; set a 11; reset; set b 12; commit");
    assert!(committed.contains("Transaction reset\nCommitted ("), "{committed}");
    assert_eq!(shell.does("get a; get b"), "`a' is `1'\n`b' is `12'\n");
    assert_eq!(
        shell.does("begin; get a; commit").lines().last(),
        Some("Committed (nothing was written)")
    );
    for line in ["commit", "rollback", "reset"] {
        assert!(shell.refuses(line).contains("no transaction has been begun"), "{line}");
    }
}

#[test]
fn a_conflict_names_the_command_and_rolls_the_transaction_back() {
    let mut shell = Shell::with_rows();
    shell.does("begin; get a; set b 20");
    let other = shell.session.database.clone();
    other
        .transact_blocking(|tr| {
            tr.set("a", "someone else's");
            Ok(())
        })
        .unwrap();
    let refusal = shell.refuses("commit");
    assert!(refusal.starts_with("commit: not_committed (1020)"), "{refusal}");
    assert!(refusal.ends_with("Rolling back current transaction"), "{refusal}");
    assert_eq!(shell.does("get b"), "`b' is `2'\n");
    assert!(shell.refuses("commit").contains("no transaction has been begun"));
}

#[test]
fn options_hold_for_all_transactions_or_for_the_one_that_was_begun() {
    let mut shell = Shell::new();
    assert!(shell.refuses("get \\xff/x").starts_with("get: key_outside_legal_range (2004)"));
    assert_eq!(shell.does("option on READ_SYSTEM_KEYS"), "Option enabled for all transactions\n");
    assert_eq!(shell.does("get \\xff/x"), "`\\xff/x': not found\n");
    assert_eq!(shell.does("option"), "READ_SYSTEM_KEYS\n");
    shell.does("begin; option on timeout 60000");
    assert_eq!(shell.does("option"), "READ_SYSTEM_KEYS\nTIMEOUT 60000\n");
    assert_eq!(shell.does("reset; get \\xff/x"), "Transaction reset\n`\\xff/x': not found\n");
    shell.does("rollback; option off read_system_keys");
    assert!(shell.refuses("get \\xff/x").contains("2004"));
    assert!(shell.does("option").contains("No options are enabled"));
    assert!(shell.refuses("option off timeout").contains("TIMEOUT is not on"));
    assert!(shell.refuses("option on tmeout 5").contains("no option `tmeout`"));
    assert!(shell.refuses("option on timeout").contains("TIMEOUT needs an argument"));
    assert!(shell.refuses("option on timeout soon").contains("must be a number, not soon"));
    assert!(shell.refuses("option on timeout -5").contains("2006"));
    assert!(shell.refuses("option on read_system_keys 1").contains("takes no argument"));
    assert!(shell.refuses("option perhaps timeout").contains("on or off, not perhaps"));
}

#[test]
fn versions_grow_and_hold_still_in_a_transaction() {
    let mut shell = Shell::new();
    let mut version = |line: &str| shell.does(line).lines().last().unwrap().parse::<i64>().unwrap();
    let first = version("getversion");
    assert!(version("writemode on; set a 1; getversion") > first);
    assert_eq!(version("begin; getversion"), version("getversion"));
}

#[test]
fn status_speaks_in_words_and_in_json() {
    let mut shell = Shell::new();
    assert_eq!(shell.does("status minimal"), "The database is available.\n");
    let words = shell.does("status");
    assert!(words.contains("Storage engine") && words.contains("memory"), "{words}");
    let details = shell.does("status details");
    assert!(details.starts_with(&words[..20]) && details.contains("Committed"), "{details}");
    let document: plinth_bench::Value = shell.does("status json").parse().unwrap();
    assert_eq!(document["client"]["database_status"]["available"], true);
    assert!(shell.refuses("status of things").contains("usage: status"));
    assert!(shell.refuses("status loud").contains("not loud"));
}

#[test]
fn help_tells_all_and_wrong_words_are_named() {
    let mut shell = Shell::new();
    let help = shell.does("help");
    assert!(super::commands::ALL.iter().all(|command| help.contains(command.usage)), "{help}");
    assert!(shell.does("help getrange").contains("25 unless given"));
    assert!(shell.does("help escaping").contains("\\xHH"));
    assert!(shell.does("help options").contains("READ_SYSTEM_KEYS"));
    assert!(shell.refuses("help me").contains("help: there is no command `me`"));
    assert!(shell.refuses("help profile").contains("`profile` does nothing here: use perf"));
    assert!(shell.refuses("gte a").contains("gte: there is no such command; did you mean get?"));
    assert!(shell.refuses("get").contains("get: does not take 0 arguments; usage: get KEY"));
    assert!(shell.refuses("get a b").contains("2 arguments"));
    assert!(shell.refuses("get \\q").contains("character 5"));
    assert_eq!(shell.does("GET a"), "`a': not found\n", "names in any case");
    assert!(shell.refuses("sleep long").contains("SECONDS must be a number"));
    shell.does("sleep 0.001; ; ");
}

#[test]
fn a_failure_keeps_the_rest_of_its_line_from_running() {
    let mut shell = Shell::new();
    shell.refuses("writemode on; get; set a 1");
    assert_eq!(shell.does("get a"), "`a': not found\n");
    assert_eq!(shell.session.run_line("exit; set a 1").unwrap(), Next::Exit);
    assert_eq!(shell.does("get a"), "`a': not found\n");
}

#[test]
fn half_a_word_is_completed_from_commands_options_and_keys() {
    let mut shell = Shell::with_rows();
    shell.does("set \"a key\" 5");
    let database = shell.session.database.clone();
    let proposed = |typed: &str| propose(&database, typed);
    assert_eq!(proposed("getr"), (0, vec!["getrange".to_owned(), "getrangekeys".to_owned()]));
    assert_eq!(
        proposed("get a"),
        (4, vec!["a".to_owned(), "\"a key\"".to_owned(), "ab".to_owned()])
    );
    assert_eq!(proposed("get \"a "), (4, vec!["\"a key\"".to_owned()]));
    assert_eq!(proposed("get \\x00"), (4, vec!["\\x00\\xff".to_owned()]));
    assert_eq!(proposed("set a; cle"), (7, vec!["clear".to_owned(), "clearrange".to_owned()]));
    assert_eq!(proposed("writemode o").1, ["on", "off"]);
    assert_eq!(proposed("option on read_sys").1, ["READ_SYSTEM_KEYS"]);
    assert_eq!(proposed("help esc").1, ["escaping"]);
    shell.does("changes register orders order/; changes register \"other ones\"");
    assert_eq!(proposed("changes re").1, ["register", "remove"]);
    assert_eq!(proposed("changes tail o").1, ["orders", "\"other ones\""]);
    assert_eq!(proposed("changes tail orders once j").1, ["json"]);
    assert!(proposed("changes register o").1.is_empty());
    assert!(proposed("frobnicate x").1.is_empty() && proposed("get \\q").1.is_empty());
}

#[test]
fn tags_are_throttled_listed_and_let_go() {
    let mut shell = Shell::new();
    assert_eq!(shell.does("throttle list"), "No tag is throttled by hand\n");
    shell.does("throttle on tag web 25.5 90; throttle on tag batch-job 1 60 batch");
    let listed = shell.does("throttle list");
    let lines: Vec<_> = listed.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].contains("batch-job") && lines[0].contains("priority batch"),
        "{listed}"
    );
    assert!(lines[1].contains("web") && lines[1].contains("25.5 a second, 90 seconds"), "{listed}");
    // The database has understood it.
    let throttled = |shell: &mut Shell| {
        let status: plinth_bench::Value = shell.does("status json").parse().unwrap();
        status
            .pointer("/cluster/qos/throttled_tags/manual/count")
            .and_then(plinth_bench::Value::as_u64)
    };
    while throttled(&mut shell) != Some(2) {
        shell.does("sleep 0.05");
    }
    shell.does("throttle off tag web; throttle off tag batch-job");
    assert_eq!(shell.does("throttle list"), "No tag is throttled by hand\n");
    for wrong in [
        "on tag web",
        "on tag web -1",
        "on tag web many",
        "on tag web 1 0",
        "on tag web 1 9 urgent",
        "on web 1",
        "x",
    ] {
        shell.refuses(&format!("throttle {wrong}"));
    }
    assert!(shell.refuses("throttle off tag longer-than-sixteen").contains("16 bytes"));
}

/// Ctrl-C ended the shell.
#[test]
fn an_interrupt_ends_the_command_and_not_the_shell() {
    let mut shell = Shell::over_network();
    shell.does("writemode on; set a 1");
    block_on(shell.server.take().unwrap().stop());
    for (command, told) in [
        ("get a", "get: interrupted"),
        ("begin; get a", "get: interrupted\nRolling back current transaction"),
        ("getversion", "getversion: interrupted"),
    ] {
        let (interrupts, env) = (shell.session.interrupts.clone(), Env::real());
        drop(Env::real().spawn("ctrl-c", async move {
            env.sleep(Duration::from_millis(100)).await;
            interrupts.raise();
        }));
        assert_eq!(shell.refuses(command), told);
    }
    assert!(shell.does("help").contains("getrange"), "the shell goes on");
}

/// Of a server that hangs: what no transaction asks for went on, and another Ctrl-C ended the
/// shell.
#[test]
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it accepts nothing, as no server of ours does"
)]
fn an_interrupt_ends_whatever_is_waited_for() {
    let silent = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let line = format!("d:i@{}", silent.local_addr().unwrap());
    let env = Env::real();
    let far = Database::connect_to(&env, ClusterFile::parse(&line).unwrap());
    let mut session = Session::new(far, Vec::new());
    session.run_line("writemode on").unwrap();
    for line in [
        "status",
        "status details",
        "status json",
        "hotrange",
        "kill",
        "kill all",
        "changes list",
        "changes register s a",
        "changes remove s",
        "changes tail s",
        "configure single",
        "usetenant t",
        "get a",
        "coordinators",
        "exclude",
        "lock",
        "tenant list",
        "throttle list",
        "sleep 60",
    ] {
        let (interrupts, clock) = (session.interrupts.clone(), env.clone());
        drop(env.spawn("ctrl-c", async move {
            clock.sleep(Duration::from_millis(100)).await;
            interrupts.raise();
        }));
        let began = env.now();
        let failed = session.run_line(line).map(|_| ()).unwrap_err();
        assert!(failed.to_string().ends_with(": interrupted"), "{line}: {failed}");
        let took = env.now() - began;
        assert!(took < Duration::from_secs(3), "{line}: {took:?}");
    }
}

#[test]
fn streams_of_changes_are_registered_followed_acknowledged_and_removed() {
    for mut shell in [Shell::new(), Shell::over_network()] {
        assert!(shell.refuses("changes register orders order/").contains("writemode on"));
        shell.does("writemode on");
        let registered = shell.does("changes register orders order/ \"a b\"");
        assert!(registered.starts_with("Stream 1 of `orders': everything"), "{registered}");
        let listed = shell.does("changes list");
        assert!(
            listed.starts_with("orders: id 1, acknowledged ") && listed.contains("a b"),
            "{listed}"
        );
        shell.does("set order/1 v; set elsewhere v; clearrange \"a b1\" b");
        let lines = shell.does("changes tail orders once");
        let ends: Vec<_> = lines.lines().filter_map(|line| line.split_once(' ')).collect();
        assert_eq!(
            (ends[0].1, ends[1].1, ends.len()),
            ("set `order/1' `v'", "clear_range `a b1' `a c'", 2)
        );
        assert_eq!(
            shell.does(&format!("changes tail orders {} once json", ends[0].0)),
            format!(
                "{{\"end\":\"a c\",\"key\":\"a b1\",\"type\":\"clear_range\",\"version\":{}}}\n",
                ends[1].0
            )
        );
        shell.does("changes tail orders once acknowledge");
        assert_eq!(shell.does("changes tail orders once"), "");
        // Ctrl-C is how it ends well.
        let (interrupts, env) = (shell.session.interrupts.clone(), Env::real());
        drop(Env::real().spawn("ctrl-c", async move {
            env.sleep(Duration::from_millis(100)).await;
            interrupts.raise();
        }));
        assert_eq!(shell.does("changes tail orders"), "");
        assert!(shell.refuses("changes tail orders soon").contains("soon is none of json, once"));
        assert!(shell.refuses("changes tail others once").contains("no stream of the name others"));
        assert!(shell.refuses("changes forget orders").contains("usage: changes register"));
        assert_eq!(shell.does("changes remove orders"), "The stream `orders' has been removed\n");
        assert_eq!(shell.does("changes list"), "");
    }
}

/// Where it couldn't be told whether a restore had locked the database, `unlock` unlocked it.
#[test]
fn a_lock_of_which_nobody_can_tell_whose_it_is_stays_unless_somebody_insists() {
    for mut shell in [Shell::new(), Shell::over_network()] {
        let told = shell.does("lock");
        let id = told.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
        // What a later version notes of a restore.
        let tr = shell.session.database.create_transaction();
        tr.set_option(TransactionOption::LockAware).unwrap();
        tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
        tr.set(b"\xff\x02/plinth/restore/head", b"\x63");
        tr.commit().wait().unwrap();
        let told = shell.refuses(&format!("unlock {id}"));
        assert!(
            told.contains("can't be told") && told.contains(&format!("unlock {id} force")),
            "{told}"
        );
        assert!(shell.refuses("get a").contains("1038"), "it is still locked");
        assert!(shell.refuses(&format!("unlock {id} now")).contains("only force goes behind"));
        let other = format!("unlock {} force", "0".repeat(32));
        assert!(shell.refuses(&other).contains("another UID; it stays locked"));
        assert!(shell.does(&format!("unlock {id} force")).ends_with("Database unlocked.\n"));
        assert_eq!(shell.does("get a"), "`a': not found\n");
    }
}

#[test]
fn a_locked_database_keeps_others_out_until_it_is_unlocked_with_its_uid() {
    for mut shell in [Shell::with_rows(), Shell::over_network()] {
        shell.does("writemode on; set a 1");
        let told = shell.does("lock");
        let id = told
            .lines()
            .next()
            .unwrap()
            .strip_prefix("Locking database with lockUID: ")
            .unwrap()
            .to_owned();
        assert!(told.contains("Database locked.") && id.len() == 32, "{told}");
        for command in ["begin; get a", "get a", "getrange a b", "set a 2", "clear a", "getversion"]
        {
            let told = shell.refuses(command);
            assert!(told.contains(": database_locked (1038)") && told.contains("unlock"), "{told}");
        }
        assert!(shell.does("status").contains("Locked             yes"));
        assert!(shell.refuses("lock").contains(&format!(
            "locked already; whoever did it has the id that unlock asks for, {id}"
        )));
        assert!(
            shell
                .refuses(&format!("unlock {}", "0".repeat(32)))
                .contains("another UID; it stays locked")
        );
        assert!(shell.refuses("unlock me").contains("32 hexadecimal digits"));
        assert!(shell.refuses("begin; get a").contains("1038"), "it is still locked");
        let told = shell.does(&format!("unlock {}", id.to_uppercase()));
        assert!(told.ends_with("Database unlocked.\n"), "{told}");
        assert_eq!(shell.does("get a"), "`a' is `1'\n");
        assert_eq!(shell.does(&format!("unlock {id}")), "The database is not locked.\n");
        assert!(shell.refuses("begin; lock").contains("a transaction has been begun"));
    }
}

#[test]
fn clients_are_listed_and_their_connections_closed() {
    let mut shell = Shell::over_network();
    let listed = |shell: &mut Shell| -> Vec<String> {
        shell
            .does("kill list")
            .lines()
            .filter(|line| !line.ends_with(" server"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(shell.does("kill").lines().filter(|line| line.ends_with(" server")).count(), 1);
    let own = listed(&mut shell);
    assert!(
        !own.is_empty()
            && own
                .iter()
                .all(|line| line.starts_with("127.0.0.1:") && line.contains(" plinth-client "))
    );
    let details = shell.does("status details");
    let is_listed = details.contains("from 127.0.0.1 (plinth-client ");
    assert!(is_listed && details.contains("Clients"), "{details}");
    // Another client, which waits for something.
    let other = shell.another_client();
    let watch = other.transact_blocking(|tr| Ok(tr.watch("k"))).unwrap();
    let theirs = loop {
        let new: Vec<_> =
            listed(&mut shell).into_iter().filter(|line| !own.contains(line)).collect();
        if let Some(line) = new.into_iter().find(|line| line.contains(" other")) {
            break line.split(' ').next().unwrap().to_owned();
        }
    };
    assert!(shell.does(&format!("kill {theirs}")).starts_with("Closed 1 connection\n"));
    // It is gone, and the client comes back by itself over another, with its watch.
    while listed(&mut shell).iter().any(|line| line.starts_with(&format!("{theirs} "))) {}
    shell.does("writemode on; set k v");
    watch.wait().unwrap();
    let refused = shell.refuses(&format!("kill 127.0.0.1 {theirs}"));
    assert!(refused.contains("no client from") && shell.printed().is_empty(), "{refused}");
    // All but the one that asks: the shell goes on.
    let closed = shell.does("kill clients");
    assert!(closed.starts_with("Closed "), "{closed}");
    assert_eq!(
        other.transact_blocking(|tr| tr.get("k").wait()).unwrap().as_deref(),
        Some(&b"v"[..])
    );
    assert_eq!(shell.does("get k"), "`k' is `v'\n");
    for wrong in [
        "kill everyone",
        "kill 127.0.0.1:x",
        "kill all 127.0.0.1",
        "kill clients 127.0.0.1",
        "kill \\xff",
    ] {
        shell.refuses(wrong);
    }
    let refused = Shell::new().refuses("kill all");
    assert!(
        refused.contains("unsupported_operation") && refused.contains("only a server"),
        "{refused}"
    );
}

#[test]
fn what_is_configured_is_confirmed_and_what_cannot_be_is_named() {
    for mut shell in [Shell::new(), Shell::over_network()] {
        let same = shell.does("configure single memory logs=1 tenant_mode=optional_experimental");
        assert_eq!(same, "The database is configured so: nothing to change\n");
        let shown = shell.does("configure");
        assert!(shown.contains("redundancy_mode = single\n"), "{shown}");
        for (words, told) in [
            ("double", "redundancy mode is single"),
            ("ssd", "plinth migrate"),
            ("new single memory", "new directory"),
            ("commit_proxies=5", "commit_proxies is 1"),
            ("tenant_mode=disabled", "tenant_mode is optional_experimental"),
            ("speed=11", "nothing called speed"),
            ("faster", "help configure"),
        ] {
            let refused = shell.refuses(&format!("configure {words}"));
            assert!(
                refused.starts_with("configure: ") && refused.contains(told),
                "{words}: {refused}"
            );
        }
    }
}

#[test]
fn keys_may_be_written_as_tuples() {
    let mut shell = Shell::new();
    shell.does(
        r#"writemode on; set ("app", 1) one; set ("app", 2) ("x; y", -1); set ("apple", 1) other"#,
    );
    assert_eq!(shell.does(r#"get ("app",1)"#), "`\\x02app\\x00\\x15\\x01' is `one'\n");
    let shown = shell.does(r#"getrangekeys ("app")"#);
    assert_eq!(shown.matches("\\x02app\\x00\\x15").count(), 2, "{shown}");
    assert!(!shown.contains("apple"), "{shown}");
    let told = shell.refuses("get (app)");
    assert!(told.contains("no tuple at character 6: an element is \"text\""), "{told}");
    shell.does(r"set \x28app) plain; get \x28app)");
}

#[test]
fn tenants_are_parts_of_the_keys_with_names() {
    for mut shell in [Shell::new(), Shell::over_network()] {
        assert_eq!(
            shell.does("tenant list"),
            "The cluster has no tenants in the specified range\n"
        );
        assert_eq!(shell.does("tenant create shop"), "The tenant `shop' has been created\n");
        shell.does("tenant create attic; tenant rename attic loft");
        assert!(shell.refuses("tenant create shop").contains("2132"));
        assert_eq!(shell.does("tenant list"), "  1. loft\n  2. shop\n");
        assert_eq!(shell.does("tenant list m"), "  1. shop\n");
        assert_eq!(shell.does("tenant list a z 1"), "  1. loft\n");
        assert!(shell.does("tenant get shop").contains("id: "));
        assert!(shell.does("tenant get shop JSON").contains("\"tenant_state\": \"ready\""));
        assert!(shell.refuses("tenant get cellar").contains("2131"));

        assert!(shell.refuses("usetenant cellar").contains("`tenant create cellar` makes it"));
        assert_eq!(shell.does("usetenant shop"), "Using tenant `shop'\n");
        assert_eq!(shell.does("usetenant"), "Using tenant `shop'\n");
        shell.does("writemode on; set apple 1; begin; set pear 2; commit");
        assert_eq!(shell.does("get pear"), "`pear' is `2'\n");
        assert!(shell.refuses("tenant delete shop").contains("in use here"));
        shell.does("defaulttenant");
        assert_eq!(shell.does("get apple"), "`apple': not found\n");
        assert!(shell.refuses("tenant delete shop").contains("2133"));
        shell.does(
            "usetenant shop; clearrange \"\" \\xff; defaulttenant; tenant delete shop; tenant delete loft",
        );
        assert_eq!(
            shell.does("tenant list"),
            "The cluster has no tenants in the specified range\n"
        );
        shell.does("begin");
        assert!(shell.refuses("defaulttenant").contains("a transaction has been begun"));
    }
}

#[test]
fn what_foundationdbs_shell_does_and_this_one_does_not_is_told() {
    let mut shell = Shell::new();
    for line in
        ["consistencycheck", "profile client get", "suspend 1 127.0.0.1:4500", "maintenance on z 1"]
    {
        let told = shell.refuses(line);
        assert!(told.contains("does nothing here: "), "{line}: {told}");
    }
    let told = shell.refuses("tenant configure shop tenant_group=g");
    assert!(told.contains("nothing to configure"), "{told}");
    shell.does("waitconnected; waitopen");
    assert_eq!(shell.does("getlocation a"), "  127.0.0.1:4500\n");
    let mut far = Shell::over_network();
    let told = far.does("getlocation a");
    assert!(told.starts_with("  127.0.0.1:"), "{told}");
}

#[test]
fn hot_ranges_are_shown() {
    for mut shell in [Shell::new(), Shell::over_network()] {
        assert_eq!(shell.does("hotrange"), "No range is used more than the others.\n");
        for n in 0..8 {
            shell.does(&format!("writemode on; set user/{n} x; set user/{n} y"));
        }
        let told = shell.does("hotrange");
        assert!(told.starts_with("  Hot writes         user/"), "{told}");
        assert!(shell.does("status details").contains(&told));
        assert!(shell.refuses("hotrange 127.0.0.1:4500").contains("hotrange"));
    }
}

#[test]
fn rights_are_given_shown_and_taken_back() {
    let mut shell = Shell::over_network();
    assert!(shell.does("roles").contains("There are no rights"));
    let refused = shell.refuses("grant reader anybody");
    assert!(refused.contains("the first grant has to be an operator's"), "{refused}");
    // Whoever nobody is would be the only operator.
    let refused = shell.refuses("grant operator cert S.CN=admin");
    assert!(refused.contains("nobody can show a certificate here"), "{refused}");
    let refused = shell.refuses("grant operator token sub=admin");
    assert!(refused.contains("nobody can show a token here"), "{refused}");
    let first = shell.does("grant operator address 127.0.0.1");
    assert!(first.starts_with("Granted: operator address 127.0.0.1 all\nIt is the first one"));
    assert_eq!(
        shell.does("grant writer cert S.CN=till,S.O=Shop prefix (\"app\")"),
        "Granted: writer cert S.CN=till,S.O=Shop prefix \\x02app\\x00\n"
    );
    shell.does("grant reader cert \"S.O=A Shop\" range a\\x20b c; grant reader anybody tenant t");
    if cfg!(target_os = "linux") {
        let told = shell
            .does("grant writer user postgres prefix pg/; revoke writer user postgres prefix pg/");
        assert!(told.starts_with("Granted: writer user postgres prefix pg/\n"), "{told}");
    } else {
        assert!(shell.refuses("grant writer user postgres").contains("can't tell which user"));
    }
    let roles = shell.does("roles");
    assert_eq!(
        roles,
        "  operator address 127.0.0.1 all\n  reader anybody tenant t\n  reader cert \"S.O=A Shop\" range \"a b\" c\n  \
         writer cert S.CN=till,S.O=Shop prefix \\x02app\\x00\n"
    );
    // What is shown can be said.
    for line in roles.lines().skip(1) {
        assert_eq!(shell.does(&format!("revoke {line}")), format!("Revoked: {}\n", line.trim()));
    }
    assert_eq!(shell.does("roles"), "  operator address 127.0.0.1 all\n");
    let refused = shell.refuses("revoke operator address 127.0.0.1");
    assert!(refused.contains("the last operator stays"), "{refused}");
    assert!(shell.refuses("revoke reader anybody").contains("no such grant"));
    for wrong in [
        "grant king anybody",
        "grant reader cert Check.Valid=0",
        "grant reader cert Check.Valid=1",
        "grant reader cert S.XX=1",
        "grant operator cert \"S.CN=admin|\"",
        "grant operator cert ,",
        "grant operator address ::ffff:10.0.0.1",
        "grant reader user 01",
    ] {
        shell.refuses(wrong);
    }
    shell.does("grant operator address ::1; revoke operator address 127.0.0.1");
    // It has shut itself out, and whoever has the files can let it in again.
    let env = Env::real();
    while shell.session.run_line("getversion").is_ok() {
        block_on(env.sleep(Duration::from_millis(10)));
    }
    assert!(shell.refuses("roles").contains("permission_denied"));
    let mut inside = Session::new(shell._database.clone(), Vec::new());
    inside.run_line("revoke everything").unwrap_or_else(|failed| panic!("{failed}"));
    while shell.session.run_line("getversion").is_err() {
        block_on(env.sleep(Duration::from_millis(10)));
    }
    shell.printed();
    assert!(shell.does("roles").contains("There are no rights"));
}

#[test]
fn quotas_are_set_shown_and_taken_away() {
    let mut shell = Shell::over_network();
    assert_eq!(shell.does("quota get"), "There are no quotas\n");
    assert_eq!(
        shell.does("quota set address 127.0.0.1 read=10MB/s connections=100"),
        "address 127.0.0.1 has read=10MB/s connections=100, at each server, within a second\n"
    );
    shell.does("quota set address 127.0.0.1 write=1MiB read=none");
    shell.does("quota set * watches=5; quota set cert \"S.O=A Shop\" read=2MB; quota set tenant t read=1MB");
    let quotas = shell.does("quota get");
    assert_eq!(
        quotas,
        "  * watches=5\n  address 127.0.0.1 write=1MiB/s connections=100\n  cert \"S.O=A Shop\" read=2MB/s\n  \
         tenant t read=1MB/s\n"
    );
    assert_eq!(shell.does("quota get tenant t"), "  tenant t read=1MB/s\n");
    let env = Env::real();
    while !shell.does("status details").contains("address 127.0.0.1: write") {
        block_on(env.sleep(Duration::from_millis(10)));
    }
    let details = shell.does("status details");
    assert!(
        details.contains("of 1 MiB a second, 2 of 100 connections")
            || details.contains(" of 100 connections"),
        "{details}"
    );
    // What is shown can be said.
    for line in quotas.lines() {
        shell.does(&format!("quota set {line}"));
    }
    assert_eq!(shell.does("quota get"), quotas);
    for wrong in [
        "quota",
        "quota set",
        "quota set tag total_throughput 1000",
        "quota set *",
        "quota set * read=1",
        "quota set cert S.XX=1 read=1MB",
        "quota set cert Check.Valid=0 read=1MB",
        "quota clear",
        "quota clear tenant u",
        "quota clear * watches=5",
        "quota get tenant",
    ] {
        shell.refuses(wrong);
    }
    assert_eq!(shell.does("quota get"), quotas);
    assert_eq!(shell.does("quota set * watches=none"), "* has no quota\n");
    shell.does(
        "quota clear tenant t; quota clear address 127.0.0.1; quota clear cert \"S.O=A Shop\"",
    );
    assert_eq!(shell.does("quota get"), "There are no quotas\n");
}
