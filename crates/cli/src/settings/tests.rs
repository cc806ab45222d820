//! Which source counts, what is refused and how, and that the shipped file and the page say what
//! the program does: each setting is in the table, the file and the page, with one default, and a
//! name that there isn't is refused wherever it stands, with the one that was meant.

use super::*;
use clap::Command;

const SHIPPED: &str = include_str!("../../../../packaging/plinth.toml");
const PAGE: &str = include_str!("../../../../docs/operations.md");
const UNIT: &str = include_str!("../../../../packaging/plinth.service");

fn matches(arguments: &[&str]) -> ArgMatches {
    let command = Command::new("server").args(args());
    command.try_get_matches_from([&["server"], arguments].concat()).unwrap()
}

fn refusal(text: &str) -> String {
    file::parse("F.toml", text).unwrap_err().to_string()
}

#[test]
fn the_command_line_counts_before_the_file_and_the_file_before_the_default() {
    let text = "connections = 5\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nwithout-tls = true\nengine = 'ssd'\n";
    let file = || file::parse("F.toml", text).unwrap();
    let settings = Settings::choose(&matches(&[]), file());
    assert_eq!((settings.count("connections"), settings.text("engine")), (Some(5), Some("ssd")));
    assert_eq!(settings.addresses("listen").len(), 2);
    assert!(settings.flag("without-tls") && !settings.flag("console-write"));
    let arguments =
        ["--connections", "7", "--listen", "[::1]:3", "--without-tls=false", "--console-write"];
    let settings = Settings::choose(&matches(&arguments), file());
    assert_eq!(settings.count("connections"), Some(7));
    assert_eq!(settings.addresses("listen"), ["[::1]:3".parse().unwrap()]);
    assert!(!settings.flag("without-tls") && settings.flag("console-write"));
    let settings = Settings::choose(&matches(&[]), BTreeMap::new());
    assert_eq!(
        (settings.count("connections"), settings.text("engine")),
        (Some(10_000), Some("memory"))
    );
    assert_eq!((settings.path("dir"), settings.address("http")), (None, None));
}

#[test]
fn what_makes_no_sense_is_told_with_its_line_and_what_is_allowed() {
    for (text, words) in [
        (
            "\n# x\nconections = 5",
            &[
                "F.toml:3: conections: there is no such setting (did you mean connections?); there are",
            ][..],
        ),
        (
            "engine = \"memory\"\nconnections = \"many\"",
            &["F.toml:2: connections:", "whole number", "\"many\""],
        ),
        ("connections = 0", &["F.toml:1: connections:", "from 1"]),
        ("without-tls = 1", &["F.toml:1: without-tls:", "true and false"]),
        ("listen = [\"127.0.0.1:1\",\n\"localhost\"]", &["F.toml:1: listen:", "IP:PORT"]),
        ("engine = \"disk\"", &["F.toml:1: engine:", "memory, ssd", "\"disk\""]),
        ("memory = \"4GB\"", &["F.toml:1: memory:", "512MiB", "\"4GB\""]),
        ("memory = 4", &["F.toml:1: memory:", "from 16MiB"]),
        ("log = \"xml\"", &["F.toml:1: log:", "json,debug", "\"xml\""]),
        ("dir = 7", &["F.toml:1: dir:", "path"]),
        ("\n[server]\ndir = 'x'", &["F.toml:2: server: there is no such setting"]),
        ("\ndir = ", &["F.toml: ", "line 2"]),
        ("dir = 'a'\ndir = 'b'", &["F.toml: ", "dir", "line 2"]),
    ] {
        let told = refusal(text);
        assert!(words.iter().all(|word| told.contains(word)), "{text:?}: {told}");
    }
    let given =
        Command::new("server").args(args()).try_get_matches_from(["server", "--listen", "here"]);
    assert!(given.unwrap_err().to_string().contains("IP:PORT is allowed"));
}

/// `PLINTH_LISTNE` was passed over in silence.
#[test]
fn a_variable_that_is_nearly_a_settings_is_told() {
    let found = |names: &[&str]| misspelt(names.iter().map(ToString::to_string));
    for (wrong, meant) in [
        ("PLINTH_LISTNE", "PLINTH_LISTEN"),
        ("PLINTH_ENCRYPTION_KEY_FILES", "PLINTH_ENCRYPTION_KEY_FILE"),
        ("PLINTH_CONFG", "PLINTH_CONFIG"),
    ] {
        assert_eq!(found(&[wrong]), [(wrong.to_owned(), meant.to_owned())]);
    }
    // Settings' own, and those that have nothing to do with them, as Kubernetes' for a service.
    let mut own: Vec<_> = ALL.iter().map(Setting::variable).collect();
    own.extend(
        ["PLINTH_CONFIG", "PLINTH_SERVICE_HOST", "PLINTH_PORT_4500_TCP", "PLINTH_DIRT", "LISTNE"]
            .map(String::from),
    );
    assert_eq!(misspelt(own.into_iter()), []);
}

#[test]
fn bytes_are_said_with_or_without_a_unit() {
    for (text, bytes) in [
        ("0", Some(0)),
        ("16777216", Some(16 << 20)),
        ("16KiB", Some(16 << 10)),
        ("512MiB", Some(512 << 20)),
        ("4GiB", Some(4 << 30)),
        ("2TiB", Some(2 << 40)),
        ("", None),
        ("GiB", None),
        ("+1GiB", None),
        ("4 GiB", None),
        ("4GB", None),
        ("1.5GiB", None),
        ("18446744073709551616", None),
        ("99999999999TiB", None),
    ] {
        assert_eq!(bytes_in(text), bytes, "{text:?}");
    }
    let file = |text| {
        Settings::choose(&matches(&[]), file::parse("F.toml", text).unwrap()).bytes("memory")
    };
    assert_eq!(
        (file("memory = 33554432"), file("memory = \"32MiB\""), file("")),
        (Some(32 << 20), Some(32 << 20), None)
    );
    let given = Settings::choose(&matches(&["--memory", "1GiB"]), BTreeMap::new());
    assert_eq!(given.bytes("memory"), Some(1 << 30));
}

/// The value of a default as TOML has it.
fn literal(setting: &Setting, value: &str) -> String {
    match setting.kind {
        Kind::Flag | Kind::Count => value.to_owned(),
        _ => format!("\"{value}\""),
    }
}

#[test]
fn the_shipped_file_has_each_setting_once_with_its_default() {
    let lines = || {
        SHIPPED.lines().filter(|line| !line.starts_with("# ") && !line.is_empty() && *line != "#")
    };
    for setting in ALL {
        let begin = format!("{} = ", setting.name);
        let found: Vec<_> =
            lines().filter(|line| line.trim_start_matches('#').starts_with(&begin)).collect();
        assert_eq!(found.len(), 1, "{}: {found:?}", setting.name);
        if let (Is(value), Some(line)) = (setting.default, found[0].strip_prefix('#')) {
            assert_eq!(line, format!("{begin}{}", literal(setting, value)));
        }
        let about = format!("# {}.", setting.about);
        assert!(SHIPPED.lines().any(|line| line == about), "it does not say: {about}");
    }
    assert_eq!(lines().count(), ALL.len());
    file::parse("plinth.toml", SHIPPED).unwrap();
    let uncommented: Vec<_> = lines().map(|line| line.trim_start_matches('#')).collect();
    assert_eq!(file::parse("plinth.toml", &uncommented.join("\n")).unwrap().len(), ALL.len());
    assert!(UNIT.contains("plinth server --config /etc/plinth/plinth.toml"));
}

#[test]
fn the_page_has_each_setting() {
    let row = |setting: &Setting| {
        let default = match setting.default {
            Is(value) => format!("`{value}`"),
            Otherwise(words) => words.to_owned(),
        };
        let value = setting.kind.placeholder().replace('|', "\\|");
        format!("| `{}` | `{value}` | {} | {default} |", setting.name, setting.about)
    };
    let expected: Vec<_> = ALL.iter().map(row).collect();
    let table = PAGE.lines().skip_while(|line| !line.starts_with("| setting |")).skip(2);
    let found: Vec<_> = table.take_while(|line| line.starts_with('|')).collect();
    assert!(found == expected, "docs/operations.md should have:\n{}", expected.join("\n"));
}
