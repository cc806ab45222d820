//! Every malformed line that the protocols know, garbage, and streams in pieces: what is taken,
//! what is answered, and that the session goes on.
//!
//! A session here has no store; what it took is asked for by name. The seed is in each message.

mod http;

use super::*;
use crate::workload::Random;
use crate::{Name, Value, time};

/// What a session took and answered.
#[derive(Clone, PartialEq, Debug, Default)]
struct Outcome {
    points: Vec<(String, i64, Value)>,
    replies: String,
}

impl Outcome {
    /// The points, a text each.
    fn shown(&self) -> Vec<String> {
        let points = self.points.iter();
        points.map(|(name, time, value)| format!("{name} {time} {value:?}")).collect()
    }
}

/// Feeds bytes as a connection would, in pieces as long as `piece` says.
fn feed(protocol: Protocol, bytes: &[u8], mut piece: impl FnMut() -> usize) -> Outcome {
    let mut session = Session::new(protocol, 9, &Memory::default());
    let (mut held, mut rest, mut outcome) = (Vec::new(), bytes, Outcome::default());
    loop {
        let consumed = session.feed(&held);
        held.drain(..consumed);
        let points =
            session.points().map(|(name, point)| (name.to_string(), point.time, point.value));
        outcome.points.extend(points);
        let wants_save = session.wants_save();
        outcome.replies.push_str(&String::from_utf8_lossy(session.replies()));
        session.sent(session.replies().len());
        if session.wants_sync() {
            outcome.replies.push_str("SYNC\r\n");
        }
        session.discard();
        if wants_save {
            continue;
        }
        assert!(held.len() <= MAX_LINE_BYTES + 1, "it holds more than a line");
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
        held.extend_from_slice(now);
        rest = later;
    }
    session.finish(&held);
    let points = session.points().map(|(name, point)| (name.to_string(), point.time, point.value));
    outcome.points.extend(points);
    outcome.replies.push_str(&String::from_utf8_lossy(session.replies()));
    outcome
}

fn whole(protocol: Protocol, bytes: &[u8]) -> Outcome {
    feed(protocol, bytes, || usize::MAX)
}

const CLOCK: Clock = Clock { unit: 1, now: 99 };
const TIME: &str = "+20200101T000000";
const GOOD: &str = "+good host=a\r\n:1577836800000000001\r\n:1\r\n";

/// Messages of RESP that are wrong, and words of the answer.
fn malformed() -> Vec<(String, &'static str)> {
    let long = format!("+{}", "x".repeat(MAX_LINE_BYTES + 5));
    let many_tags = format!("+m{}", (0..200).map(|tag| format!(" t{tag}=1")).collect::<String>());
    let many_metrics = format!("+{}m a=1", "m|".repeat(300));
    let long_name = format!("+m a={}", "x".repeat(5000));
    let event = format!("+!ev a=1\r\n{TIME}\r\n+{}", "x".repeat(5000));
    let value = |value: &str| format!("+m a=1\r\n{TIME}\r\n{value}");
    let row = |values: &str| format!("+m|n a=1\r\n{TIME}\r\n{values}");
    vec![
        ("".to_string(), "a name, a number of the dictionary or SYNC is expected (line 1)"),
        ("hello".into(), "(line 1) - hello"),
        ("$5\r\nhello".into(), "(line 1) - $5"),
        ("-5".into(), "(line 1) - -5"),
        (":1".into(), "the dictionary has no such number"),
        ("*3".into(), "number of elements in the dictionary should be even"),
        ("*x".into(), "can't parse integer"),
        ("*-2".into(), "not negative"),
        ("*4000000".into(), "1048576 names at most"),
        (
            "*4\r\n+m a=1\r\n+n a=1\r\n:5\r\n+x a=1".into(),
            "unexpected parameter id format (line 3)",
        ),
        ("*2\r\n:5\r\n:5".into(), "a name of the dictionary is expected (line 2)"),
        ("*2\r\n+m a=1\r\n+x".into(), "unexpected parameter id format (line 3)"),
        ("*2\r\n+m a=1\r\n:x".into(), "can't parse integer"),
        ("*2\r\n+m\r\n:1".into(), "invalid series name format: it has no tag (line 2)"),
        (format!("+m\r\n{TIME}\r\n+1"), "invalid series name format: it has no tag (line 1)"),
        (format!("+m a\r\n{TIME}\r\n+1"), "not of the form key=value"),
        (format!("+m a=1 a=2\r\n{TIME}\r\n+1"), "a tag occurs twice"),
        (format!("+m|n\r\n{TIME}\r\n*2\r\n+1\r\n+2"), "it has no tag"),
        (format!("+m||n a=1\r\n{TIME}\r\n*3\r\n+1\r\n+2\r\n+3"), "a metric is empty"),
        (format!("{many_tags}\r\n{TIME}\r\n+1"), "more than 128 tags"),
        (format!("{many_metrics}\r\n{TIME}\r\n+1"), "more than 256 metrics"),
        (format!("{long_name}\r\n{TIME}\r\n+1"), "longer than 4096 bytes"),
        (long, "out of quota"),
        ("+m a=1\r\n+bad\r\n+1".into(), "unexpected parameter timestamp format"),
        ("+m a=1\r\n+20201301T000000\r\n+1".into(), "unexpected parameter timestamp format"),
        ("+m a=1\r\n+16000101T000000\r\n+1".into(), "from 1677"),
        ("+m a=1\r\n+23000101T000000\r\n+1".into(), "to 2262"),
        (
            "+m a=1\r\n:12x\r\n+1".into(),
            "can't parse integer (character value out of range) (line 2) - :12x",
        ),
        ("+m a=1\r\n:99999999999999999999\r\n+1".into(), "integer overflow"),
        ("+m a=1\r\n:20200101T000000\r\n+1".into(), "can't parse integer"),
        ("+m a=1\r\n*2\r\n+1\r\n+2".into(), "unexpected parameter timestamp format"),
        ("+m a=1".into(), "a time is expected, and a name found"),
        (value("+1.5x"), "can't parse double value (line 3) - +1.5x"),
        (value("+"), "can't parse double value"),
        (value(":1.5"), "can't parse integer"),
        (value(":9223372036854775808"), "integer overflow"),
        (value("$5"), "unexpected parameter value format"),
        (value("*2\r\n+1\r\n+2"), "wrong array size, less values expected"),
        (value("*x"), "a number of values is expected"),
        (value("*99999999"), "a number of values is expected"),
        (
            row("*1\r\n+1"),
            "wrong array size, more values expected: there are 2 metrics and 1 values",
        ),
        (row("*3\r\n+1\r\n+2\r\n+3"), "wrong array size, less values expected"),
        (row("*0"), "wrong array size, more values expected"),
        (row("+1\r\n+2"), "array expected (bulk format), string found"),
        (row("*2\r\n+x\r\n+2"), "can't parse double value (line 4) - +x"),
        (row("*2\r\n+1\r\n+x"), "can't parse double value (line 5) - +x"),
        (row("*2\r\n+x\r\n:y"), "(line 4) - +x"),
        (row("*2\r\n+1"), "a value is expected, and a name found (line 5) - +good host=a"),
        (event, "bytes in an event"),
        ("+!ev a=1\r\n+20200101T000000\r\n:5".into(), "unexpected parameter value format"),
    ]
}

/// What follows a wrong message must be taken.
#[test]
fn each_malformed_message_is_answered_once_and_the_next_is_taken() {
    for (wrong, words) in malformed() {
        let bytes = format!("{wrong}\r\n{GOOD}");
        // A time that was read before makes no wrong one right.
        let before = format!("+before a=1\r\n{TIME}\r\n+1\r\n{bytes}");
        let with_before = whole(Protocol::Resp, before.as_bytes());
        let dictionary = wrong.starts_with('*');
        assert!(dictionary || with_before.points.len() == 2, "{with_before:?}");
        let outcome = whole(Protocol::Resp, bytes.as_bytes());
        let shown: String = wrong.chars().take(80).collect();
        assert!(
            outcome.replies.starts_with("-PARSER ") && outcome.replies.contains(words),
            "{shown}: {outcome:?}"
        );
        assert_eq!(outcome.replies.matches("\r\n").count(), 1, "{shown}: {outcome:?}");
        let expected = ("good host=a".to_string(), 1_577_836_800_000_000_001, Value::Integer(1));
        assert_eq!(outcome.points, [expected], "{shown}");
    }
}

#[test]
fn names_times_and_values_in_all_their_forms() {
    let text = "+cpu.user  os=linux host=a\n+20200102T030405.5\n+0.25\n\
        +cpu.user host=a os=linux\r\n:1577934245500000001\r\n:-3\r\n\
        +a|b host=x\\ y\r\n+1577934245500000001\r\n*2\r\n+nan\r\n:9223372036854775807\r\n\
        +a host=z\r\n:7\r\n*1\r\n+-1e300\r\n";
    let outcome = whole(Protocol::Resp, text.as_bytes());
    assert_eq!(outcome.replies, "");
    let base = time::parse_iso(b"20200102T030405.5").unwrap();
    let expected = [
        ("cpu.user host=a os=linux", base, Value::Float(0.25)),
        ("cpu.user host=a os=linux", base + 1, Value::Integer(-3)),
        ("a host=x\\ y", base + 1, Value::Float(f64::NAN)),
        ("b host=x\\ y", base + 1, Value::Integer(i64::MAX)),
        ("a host=z", 7, Value::Float(-1e300)),
    ];
    assert_eq!(outcome.points, expected.map(|(name, time, value)| (name.to_string(), time, value)));
}

#[test]
fn a_dictionary_gives_numbers_to_names_and_rows() {
    let text = "*4\r\n+m a=1\r\n:7\r\n+x|y a=1\r\n:-8\r\n*2\r\n+m a=2\r\n:9\r\n:7\r\n:5\r\n+1\r\n:-8\r\n:6\r\n*2\r\n:1\r\n:2\r\n+m a=3\r\n:1\r\n+4\r\n";
    let outcome = whole(Protocol::Resp, text.as_bytes());
    assert_eq!(outcome.replies, "");
    let names: Vec<_> =
        outcome.points.iter().map(|(name, time, _)| format!("{name} {time}")).collect();
    assert_eq!(names, ["m a=1 5", "x a=1 6", "y a=1 6", "m a=3 1"]);
    // Behind a message there is none; and what looks like a number of it but has no time behind it
    // does not begin a message.
    let text = format!(
        "{text}*2\r\n+m a=4\r\n:5\r\n$\r\n:7\r\n:7\r\n:8\r\n:9\r\n:1577934245500000001\r\n:2\r\n"
    );
    let outcome = whole(Protocol::Resp, text.as_bytes());
    assert!(
        outcome.replies.contains("before the first message only (line 20) - *2"),
        "{outcome:?}"
    );
    assert_eq!(outcome.points.len(), 5, "{outcome:?}");
    assert_eq!(
        outcome.points.last(),
        Some(&("m a=2".to_string(), 1_577_934_245_500_000_001, Value::Integer(2)))
    );
}

#[test]
fn a_row_that_stops_in_the_middle_is_not_taken_and_told() {
    let text = format!("{GOOD}+a|b host=x\r\n{TIME}\r\n*2\r\n+1\r\n");
    for cut in 0..text.len() {
        let outcome = whole(Protocol::Resp, &text.as_bytes()[..cut]);
        assert_eq!(outcome.points.len(), usize::from(cut >= GOOD.len()), "{cut}");
        assert_eq!(outcome.replies.is_empty(), cut == 0 || cut == GOOD.len(), "{cut}: {outcome:?}");
    }
}

#[test]
fn each_line_of_opentsdb() {
    let text = "put m 1577836800 1.5 host=a\nput m 1577836800000 2 b=1 a=2\r\nput m 1577836800000000000 3 host=a\n\
        put m 20200101T000000 4  host=a \nput m 1577836800 5\nput m 1577836800 6 \n\
        put m 1577836800.000 7\nput m 2020-01-01 8\nput m 2020-01-01T00:00:00Z 9\n";
    let outcome = whole(Protocol::OpenTsdb, text.as_bytes());
    assert_eq!(outcome.replies, "");
    let time = time::parse_iso(b"20200101T000000").unwrap();
    assert!(outcome.points.iter().all(|point| point.1 == time), "{outcome:?}");
    let names: Vec<_> = outcome.points.iter().map(|point| point.0.as_str()).collect();
    assert_eq!(names[..4], ["m host=a", "m a=2 b=1", "m host=a", "m host=a"]);
    assert_eq!(names[4..], ["m"; 5]);
    for (wrong, words) in [
        ("put", "not enough arguments"),
        ("put m 1", "not enough arguments"),
        ("put m x 2 a=1", "put: invalid timestamp format"),
        // Thirteen digits are milliseconds, and these are too many of them.
        ("put m 9999999999999 2 a=1", "put: invalid timestamp format"),
        ("put m 1 2x a=1", "put: bad floating point value"),
        ("put m 1 2 a", "put: invalid series name format"),
        ("put m|n 1 2 a=1", "put: invalid series name format: rows"),
        ("put !m 1 2 a=1", "put: invalid series name format: rows"),
        ("foo bar", "unknown command: foo.  Try `help'. (line 1) - foo bar"),
        ("\0\u{1}\"", "unknown command: \\x00\\x01\\\""),
        (&"y".repeat(MAX_LINE_BYTES + 9), "longer than 16384 bytes"),
    ] {
        let outcome = whole(Protocol::OpenTsdb, format!("{wrong}\nput m 1 1 a=1\n").as_bytes());
        assert!(outcome.replies.contains(words), "{outcome:?}");
        assert_eq!(
            (outcome.points.len(), outcome.replies.matches('\n').count()),
            (1, 1),
            "{outcome:?}"
        );
    }
    let quiet =
        whole(Protocol::OpenTsdb, b"rollup x\nhist y\ndropcaches\n\nstats\nversion\nhelp\nsync\n");
    assert_eq!(quiet.replies.lines().count(), 3, "{quiet:?}");
}

/// Lines that messages are made of, good and bad.
fn stream(random: &mut Random, lines: usize) -> Vec<u8> {
    let words: [&[u8]; 24] = [
        b"+m a=1",
        b"+m|n a=1 b=2",
        b"+ m  b=2 a=1",
        b"+m",
        b":1",
        b":2",
        b":3",
        b"*2",
        b"*4",
        b"*1",
        b"*0",
        b"+1.5",
        b"+x",
        b"+20200101T000000",
        b"+20200101T000001.25",
        b":1577934245500000001",
        b":1577934245500000001",
        b"+SYNC",
        b"",
        b"$1",
        b"put m 5 1 a=1",
        b"put m 5 x a=1",
        b"sync",
        b"+!e|m a=1",
    ];
    let mut bytes = Vec::new();
    for _ in 0..lines {
        if random.below(200) == 0 {
            bytes.extend(
                (0..random.below(3 * MAX_LINE_BYTES as u64)).map(|_| b'a' + random.below(26) as u8),
            );
        }
        bytes.extend_from_slice(words[random.below(words.len() as u64) as usize]);
        bytes.extend_from_slice(if random.below(2) == 0 { b"\n" } else { b"\r\n" });
    }
    bytes
}

#[test]
fn pieces_make_no_difference_to_what_a_stream_means() {
    let mut points = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let bytes = stream(&mut random, 300);
        for protocol in [Protocol::Resp, Protocol::OpenTsdb] {
            let expected = whole(protocol, &bytes);
            points += expected.points.len();
            for most in [1, 7, 300, 5000] {
                let outcome = feed(protocol, &bytes, || 1 + random.below(most) as usize);
                assert!(outcome == expected, "seed {seed}, {protocol:?}, pieces up to {most}");
            }
        }
    }
    assert!(points > 500, "{points}");
}

/// A number as senders write it, or as they should not.
fn any_number(random: &mut Random) -> String {
    let digits = |random: &mut Random| {
        let count = 1 + random.below(21);
        (0..count).map(|_| char::from(b'0' + random.below(10) as u8)).collect::<String>()
    };
    let sign = ["", "", "", "-", "+"][random.below(5) as usize];
    match random.below(12) {
        0 => format!("+{sign}{}", digits(random)),
        1 => format!("+{sign}{}e{}", digits(random), random.below(400)),
        2 => format!(":{}.5", digits(random)),
        3 => format!(
            "+{}",
            ["nan", "-inf", "Infinity", "infinit", "", ".", "-", "1e", "0x1"]
                [random.below(9) as usize]
        ),
        4 => format!(
            ":{}",
            ["", "-", "--1", "9223372036854775808", "-9223372036854775808", "1 "]
                [random.below(6) as usize]
        ),
        5..8 => format!(":{sign}{}", digits(random)),
        _ => format!("+{sign}{}.{}", random.below(1000), digits(random)),
    }
}

/// Messages in their order, most of them good, in any of their forms; now and then a byte is
/// another.
fn messages(random: &mut Random, count: usize) -> Vec<u8> {
    let mut text = String::from(
        "*8\r\n+m d=1\r\n:1\r\n+m|n d=1\r\n:2\r\n+!e d=1\r\n:3\n+m d=2\r\n:1234567890123\r\n",
    );
    let names = [
        "+m a=1",
        "+m|n a=1",
        "+m|!e|n a=1",
        ":1",
        ":2",
        ":3",
        ":1234567890123",
        ":01",
        "+SYNC",
        "+m  a=2",
    ];
    let times = [
        "+20200101T000000",
        "+20200101T000000",
        ":1577836800000000001",
        "+20200101T000001.25",
        "+5",
        "++5",
        ":-7",
        "+",
    ];
    for _ in 0..count {
        let name = names[random.below(names.len() as u64) as usize];
        let end = |random: &mut Random| if random.below(4) == 0 { "\n" } else { "\r\n" };
        let metrics = if name == ":2" { 2 } else { 1 + name.matches('|').count() };
        text += &format!("{name}{}", end(random));
        if name == "+SYNC" {
            continue;
        }
        let time = times[random.below(times.len() as u64) as usize];
        text += &format!("{time}{}", end(random));
        if metrics > 1 || random.below(8) == 0 {
            let told = if random.below(16) == 0 { random.below(5) as usize } else { metrics };
            text += &format!("*{told}{}", end(random));
        }
        for _ in 0..metrics {
            text += &format!("{}{}", any_number(random), end(random));
        }
    }
    let mut bytes = text.into_bytes();
    for _ in 0..random.below(3) {
        let place = random.below(bytes.len() as u64) as usize;
        bytes[place] = random.next() as u8;
    }
    bytes
}

#[test]
fn messages_taken_at_once_mean_what_their_lines_mean() {
    let (mut points, mut refused) = (0, 0);
    for seed in 0..400 {
        let bytes = messages(&mut Random::new(seed), 60);
        // Byte by byte, no more than one line is ever there.
        let by_lines = feed(Protocol::Resp, &bytes, || 1);
        points += by_lines.points.len();
        refused += by_lines.replies.matches("-PARSER").count();
        assert_eq!(
            format!("{:?}", whole(Protocol::Resp, &bytes)),
            format!("{by_lines:?}"),
            "seed {seed}"
        );
    }
    assert!(points > 10_000 && refused > 1_000, "{points} {refused}");
}

#[test]
fn a_message_does_not_begin_in_the_middle_of_a_line_that_is_too_long() {
    let begin = format!("{GOOD}*2\r\nx\r\n{}", "x".repeat(2 * MAX_LINE_BYTES));
    let mut pieces = [begin.len(), usize::MAX].into_iter();
    let outcome =
        feed(Protocol::Resp, format!("{begin}{GOOD}").as_bytes(), || pieces.next().unwrap_or(1));
    assert_eq!(outcome.points.len(), 1, "{outcome:?}");
    assert!(outcome.replies.contains("no such number (line 7)"), "{outcome:?}");
}

/// A field of a message in protocol buffers' encoding.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    [out, bytes.to_vec()].concat()
}

fn series_message(labels: &[(&str, &str)], samples: &[(i64, f64)]) -> Vec<u8> {
    let labels = labels.iter().map(|(key, value)| {
        field(1, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    });
    let samples = samples.iter().map(|(time, value)| {
        let mut sample = vec![9];
        sample.extend_from_slice(&value.to_le_bytes());
        sample.push(16);
        let mut time = *time as u64;
        while time >= 0x80 {
            sample.push(time as u8 | 0x80);
            time >>= 7;
        }
        sample.push(time as u8);
        field(2, &sample)
    });
    field(1, &labels.chain(samples).collect::<Vec<_>>().concat())
}

fn compressed(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

/// Takes in a message that is saved at once.
fn take_message(session: &mut Session, body: &[u8]) -> Result<(), String> {
    let mut message = RemoteWrite::decode(body)?;
    while !session.take_remote_write(&mut message) {
        assert!(!session.wants_save(), "it has few samples");
    }
    Ok(())
}

#[test]
fn a_name_of_a_megabyte_and_a_million_tags_are_refused_in_each_protocol() {
    let name = "x".repeat(1 << 20);
    let tags = |between: &str| -> String {
        (0..1_000_000).map(|tag| format!("{between}t{tag}=1")).collect()
    };
    let clock = Clock { unit: 1, now: 5 };
    for (protocol, wrong, good, taken) in [
        (
            Protocol::Resp,
            [format!("+{name} a=1\n:1\n:1\n"), format!("+m{}\n:1\n:1\n", tags(" "))],
            GOOD,
            "good host=a",
        ),
        (
            Protocol::OpenTsdb,
            [format!("put {name} 1 1 a=1\n"), format!("put m 1 1{}\n", tags(" "))],
            "put good 1 1 host=a\n",
            "good host=a",
        ),
        (
            Protocol::Influx(clock),
            [format!("{name},a=1 v=1 1\n"), format!("m{} v=1 1\n", tags(","))],
            "good,host=a v=1 1\n",
            "good.v host=a",
        ),
        (
            Protocol::Csv(0),
            [format!("{name} a=1,1s,1\n"), format!("m{},1s,1\n", tags(" "))],
            "good host=a,1s,1\n",
            "good host=a",
        ),
    ] {
        for wrong in wrong {
            // What is held of it is looked at by `feed`.
            let outcome = feed(protocol, (wrong + good).as_bytes(), || 4096);
            let points: Vec<&str> = outcome.points.iter().map(|point| point.0.as_str()).collect();
            assert_eq!(points, [taken], "{protocol:?}");
            assert!(
                outcome.replies.contains("longer than 16384 bytes"),
                "{protocol:?}: {}",
                outcome.replies
            );
            assert_eq!(outcome.replies.lines().count(), 1, "{protocol:?}: {}", outcome.replies);
        }
    }
    let error = Name::parse(&format!("{name} a=1")).unwrap_err().to_string();
    assert!(error.contains("longer than 4096 bytes") && error.len() < 400, "{} bytes", error.len());
    let keys: Vec<String> = (0..1_000_000).map(|tag| format!("t{tag}")).collect();
    let many: Vec<(&str, &str)> = std::iter::once(("__name__", "m"))
        .chain(keys.iter().map(|key| (key.as_str(), "1")))
        .collect();
    let good = series_message(&[("__name__", "good"), ("host", "a")], &[(1, 1.0)]);
    for wrong in
        [&[("__name__", name.as_str()), ("a", "1")][..], &[("__name__", "m"), ("a", &name)], &many]
    {
        let mut session = Session::new(Protocol::Csv(0), 9, &Memory::default());
        let message = [series_message(wrong, &[(1, 1.0)]), good.clone()].concat();
        take_message(&mut session, &compressed(&message)).unwrap();
        let names: Vec<String> = session.points().map(|(name, _)| name.to_string()).collect();
        assert_eq!((&names[..], session.refused()), (&["good host=a".to_owned()][..], 1));
        assert!(session.replies().len() < 1000, "the answer to it is short");
    }
}

#[test]
fn times_that_there_are_not_are_refused_in_each_protocol_and_the_first_and_the_last_are_taken() {
    let clock = Clock { unit: 1_000_000_000, now: 5 };
    for (protocol, wrong) in [
        (
            Protocol::OpenTsdb,
            "put m 16000101T000000 1 a=1\nput m 23000101T000000 1 a=1\nput m 9223372036854775808 1 a=1\n"
                .to_owned(),
        ),
        (
            Protocol::Influx(clock),
            "m,a=1 v=1 9223372037\nm,a=1 v=1 -9223372037\nm,a=1 v=1 99999999999999999999\n".to_owned(),
        ),
        (
            Protocol::Csv(0),
            "m a=1,16000101T000000,1\nm a=1,23000101T000000,1\nm a=1,9223372036854775808,1\n".to_owned(),
        ),
    ] {
        let outcome = whole(protocol, wrong.as_bytes());
        assert_eq!(
            (outcome.points.len(), outcome.replies.lines().count()),
            (0, 3),
            "{protocol:?}: {outcome:?}"
        );
    }
    let late = series_message(&[("__name__", "m"), ("a", "1")], &[(9_223_372_036_855, 1.0)]);
    let mut session = Session::new(Protocol::Csv(0), 9, &Memory::default());
    let told = take_message(&mut session, &compressed(&late));
    let told =
        told.err().unwrap_or_else(|| String::from_utf8_lossy(session.replies()).into_owned());
    assert!(told.contains("between 1677 and 2262") && session.points().count() == 0, "{told}");
    for (protocol, taken) in [
        (Protocol::Resp, format!("+m a=1\n:{}\n:1\n+m a=1\n:{}\n:1\n", i64::MIN, i64::MAX)),
        (
            Protocol::Influx(Clock { unit: 1, now: 5 }),
            format!("m,a=1 v=1 {}\nm,a=1 v=1 {}\n", i64::MIN, i64::MAX),
        ),
        (Protocol::Csv(0), format!("m a=1,{},1\nm a=1,{},1\n", i64::MIN, i64::MAX)),
    ] {
        let outcome = whole(protocol, taken.as_bytes());
        let times: Vec<i64> = outcome.points.iter().map(|point| point.1).collect();
        assert_eq!(times, [i64::MIN, i64::MAX], "{protocol:?}: {outcome:?}");
    }
}

#[test]
fn garbage_is_refused_in_bounded_memory_and_the_session_goes_on() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut bytes: Vec<u8> = (0..100_000).map(|_| random.next() as u8).collect();
        // More marks and ends of lines than chance has.
        for _ in 0..20_000 {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = b"\n+:*|= 1T"[random.below(9) as usize];
        }
        bytes.push(b'\n');
        bytes.extend_from_slice(GOOD.as_bytes());
        let outcome = whole(Protocol::Resp, &bytes);
        assert_eq!(
            outcome.points.last().map(|point| point.0.as_str()),
            Some("good host=a"),
            "seed {seed}"
        );
        bytes.extend_from_slice(b"put m 1 1 a=1\n");
        let outcome = whole(Protocol::OpenTsdb, &bytes);
        assert_eq!(
            outcome.points.last().map(|point| point.0.as_str()),
            Some("m a=1"),
            "seed {seed}"
        );
    }
}

#[test]
fn errors_that_nobody_reads_are_counted_and_told_later() {
    let mut session = Session::new(Protocol::OpenTsdb, 1, &Memory::default());
    let bytes = "nonsense\n".repeat(100_000);
    assert_eq!(session.feed(bytes.as_bytes()), bytes.len());
    assert!(session.replies().len() < 80 << 10, "{}", session.replies().len());
    let told = session.replies().iter().filter(|byte| **byte == b'\n').count();
    session.sent(session.replies().len());
    let rest = String::from_utf8_lossy(session.replies()).into_owned();
    assert_eq!(rest, format!("{} more errors were not sent\n", 100_000 - told));
    assert_eq!(session.refused(), 100_000);
}

#[test]
fn numbers_of_a_dictionary_may_be_any() {
    let numbers = [5, 0, -1, i64::MAX, 900, 1_000_000, 2000, 1500, 5000, i64::MIN, 1024, 4000];
    let mut text = format!("*{}\n", 2 * numbers.len());
    numbers.iter().for_each(|number| text += &format!("+m a=n{number}\n:{number}\n"));
    numbers.iter().for_each(|number| text += &format!(":{number}\n:7\n:{number}\n"));
    let outcome = whole(Protocol::Resp, text.as_bytes());
    let expected = numbers.map(|number| (format!("m a=n{number}"), 7, Value::Integer(number)));
    assert_eq!((outcome.points, outcome.replies.as_str()), (expected.to_vec(), ""));
}
