//! What comes as the body of a request: lines of InfluxDB, messages of Prometheus' remote write,
//! rows of CSV. Each form is taken in all its spellings, and each way to get it wrong is told.
//!
//! Always: what is malformed costs itself alone, and what follows it is taken.

use super::*;

#[test]
fn each_line_of_influx() {
    let text = "cpu,host=a,region=eu user=0.5,sys=7i 1\n\
        # a comment\n\n\
        cpu,region=eu,host=a user=1,up=true 2\r\n\
        my\\ cpu,host=a\\ b,x=y\\,z f\\ 1=-2.5e3\n\
        log,host=a text=\"a \\\"b\\\", c=d e\",n=3u 5000\n\
        last,host=a v=1";
    let outcome = whole(Protocol::Influx(CLOCK), text.as_bytes());
    assert_eq!(outcome.replies, "");
    let found = outcome.shown();
    assert_eq!(
        found[..5],
        [
            "cpu.user host=a region=eu 1 Float(0.5)",
            "cpu.sys host=a region=eu 1 Integer(7)",
            "cpu.user host=a region=eu 2 Float(1.0)",
            "cpu.up host=a region=eu 2 Integer(1)",
            "my\\ cpu.f\\ 1 host=a\\ b x=y,z 99 Float(-2500.0)",
        ]
    );
    assert!(
        found[5].starts_with("!log.text host=a 5000 ")
            && found[8] == "log.n host=a 5000 Integer(3)",
        "{found:?}"
    );
    let event = outcome.points[5..8].iter().fold(
        crate::event::Events::default(),
        |mut events, (_, time, value)| {
            if let Some(event) = events.push(crate::Point { time: *time, value: *value }) {
                assert_eq!(event, (5000, b"a \"b\", c=d e".to_vec()));
            }
            events
        },
    );
    drop(event);
    assert_eq!(found.last().map(String::as_str), Some("last.v host=a 99 Float(1.0)"));
}

#[test]
fn each_malformed_line_of_influx_is_told_and_the_next_is_taken() {
    for (wrong, words) in [
        ("cpu", "a field is expected"),
        ("cpu,host=a", "a field is expected"),
        ("cpu,host=a user", "not of the form key=value"),
        ("cpu,host=a =1", "not of the form key=value"),
        ("cpu,host=a user=", "can't parse double value"),
        ("cpu,host=a user=x", "can't parse double value"),
        ("cpu,host=a user=1.5i", "can't parse integer"),
        ("cpu,host=a user=99999999999999999999i", "integer overflow"),
        ("cpu,host=a user=1,", "a field is expected behind the comma"),
        ("cpu,host=a user=1,,sys=2", "not of the form key=value"),
        ("cpu,host=a user=\"x 1", "can't parse double value"),
        ("cpu,host=a user=1 x", "the time is no integer"),
        ("cpu,host=a user=1 1 1", "the time is no integer"),
        ("cpu,host user=1 1", "not of the form key=value"),
        (",host=a user=1 1", "a measurement is expected"),
        ("a|b,host=a user=1", "have no |"),
        ("cpu,host=a good=1,bad=x 1", "can't parse double value"),
        (&"y".repeat(MAX_LINE_BYTES + 9), "longer than 16384 bytes"),
    ] {
        let outcome =
            whole(Protocol::Influx(CLOCK), format!("{wrong}\ngood,a=1 v=1i 1\n").as_bytes());
        assert!(outcome.replies.contains(words), "{wrong}: {outcome:?}");
        let lines = outcome.replies.matches('\n').count();
        assert_eq!((outcome.points.len(), lines), (1, 1), "{wrong} {outcome:?}");
    }
    let seconds = Clock { unit: 1_000_000_000, now: 0 };
    let outcome = whole(Protocol::Influx(seconds), b"m,a=1 v=1 7\nm,a=1 v=1 9999999999999\n");
    assert!(
        outcome.points[0].1 == 7_000_000_000 && outcome.replies.contains("2262"),
        "{outcome:?}"
    );
}

#[test]
fn remote_write_of_prometheus() {
    let up = [("__name__", "up"), ("job", "node x"), ("instance", "a:1"), ("empty", "")];
    let message = [
        series_message(&up, &[(1000, 1.0), (-5, f64::NAN)]),
        series_message(&[("job", "nameless")], &[(1, 1.0)]),
        series_message(&[("__name__", "late"), ("a", "1")], &[(i64::MAX, 1.0)]),
        series_message(&[("__name__", "untagged")], &[(1, 1.0)]),
        series_message(&up, &[(2000, 2.0)]),
    ]
    .concat();
    let mut session = Session::new(Protocol::Influx(CLOCK), 1, &Memory::default());
    take_message(&mut session, &compressed(&message)).unwrap();
    let points: Vec<_> = session
        .points()
        .map(|(name, point)| format!("{name} {} {:?}", point.time, point.value))
        .collect();
    let name = "up instance=a:1 job=node\\ x";
    assert_eq!(
        points,
        [
            format!("{name} 1000000000 Float(1.0)"),
            format!("{name} -5000000 Float(NaN)"),
            "untagged 1000000 Float(1.0)".to_string(),
            format!("{name} 2000000000 Float(2.0)"),
        ]
    );
    let told = String::from_utf8_lossy(session.replies()).into_owned();
    let words = [
        "it has no label __name__:  job=nameless (series 2)",
        "not between 1677 and 2262 (series 3)",
    ];
    assert!(told.lines().count() == 2 && words.iter().all(|word| told.contains(word)), "{told}");
    session.restart(Protocol::Influx(CLOCK));
    assert_eq!((session.points().count(), session.replies().len(), session.refused()), (0, 0, 0));
    // A series that breaks off behind its first sample leaves none behind.
    let mut broken = series_message(&[("__name__", "broken"), ("a", "1")], &[(1, 1.0)]);
    broken.push(0x0a);
    broken[1] += 1;
    take_message(&mut session, &compressed(&broken)).unwrap();
    assert_eq!((session.points().count(), session.refused()), (0, 1));
    session.restart(Protocol::Influx(CLOCK));
    // Cut off anywhere, and damaged anywhere: an error or less points, never a panic.
    for cut in 0..message.len() {
        let result = take_message(&mut session, &compressed(&message[..cut]));
        assert!(result.is_err() || session.points().count() <= 4);
        session.restart(Protocol::Influx(CLOCK));
        let mut damaged = message.clone();
        damaged[cut] ^= 0x15;
        let _ = take_message(&mut session, &compressed(&damaged));
        session.restart(Protocol::Influx(CLOCK));
    }
    assert!(
        take_message(&mut session, b"").is_err()
            && take_message(&mut session, b"no snappy here").is_err()
    );
    // A header that promises four gigabytes.
    assert!(
        take_message(&mut session, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0])
            .unwrap_err()
            .contains("may be")
    );
}

#[test]
fn each_row_of_values_separated_by_commas() {
    let text = "series,time,value\n\
        cpu.user host=a,20200101T000000.000000001,0.5\r\n\
        \"m\"\"x host=a,b\",7ns,-3\n\
        m host=a,-1ns,5.0\n\n\
        !note who=me,2us,\"a, b\"";
    let outcome = whole(Protocol::Csv(0), text.as_bytes());
    assert_eq!(outcome.replies, "");
    let found = outcome.shown();
    assert_eq!(
        found[..4],
        [
            "cpu.user host=a 1577836800000000001 Float(0.5)",
            "m\"x host=a,b 7 Integer(-3)",
            "m host=a -1 Float(5.0)",
            "!note who=me 2000 Integer(4)",
        ]
    );
    for (wrong, words) in [
        ("m a=1", "three fields are expected"),
        ("m a=1,1", "three fields are expected"),
        ("m a=1,1,1,1", "there are more"),
        (",1s,1", "no name of a series"),
        ("m|n a=1,1s,1", "has no |"),
        ("m a=1,yesterday,1", "no time from 1677 to 2262: write 20260101T120000"),
        ("m a=1,99999999999,1", "write a unit"),
        ("m a=1,+-5,1", "no time"),
        // The unit of none of them is known: a date without its strokes, milliseconds of 1970,
        // what was counted from 0.
        ("m a=1,20260101,1", "write a unit"),
        ("m a=1,86400000,1", "write a unit"),
        ("m a=1,-8640000000,1", "write a unit"),
        ("m a=1,0,1", "write a unit"),
        ("m a=1,now-,1", "no time"),
        ("m a=1,1s,", "can't parse double value"),
        ("m a=1,1s,x", "can't parse double value"),
        ("m a=1,1s,99999999999999999999", "integer overflow"),
        ("\"m a=1,1,1", "a quotation mark is expected"),
        ("\"m a=1\"x,1,1", "a comma is expected"),
        (&"y".repeat(MAX_LINE_BYTES + 9), "longer than 16384 bytes"),
    ] {
        let outcome = whole(Protocol::Csv(0), format!("{wrong}\ngood a=1,1s,1\n").as_bytes());
        assert!(
            outcome.replies.contains(words) && outcome.replies.contains("(line 1)"),
            "{wrong}: {outcome:?}"
        );
        assert_eq!(
            (outcome.points.len(), outcome.replies.matches('\n').count()),
            (1, 1),
            "{wrong} {outcome:?}"
        );
    }
}

/// Seconds and milliseconds of today were refused, and so was what is told from now.
#[test]
fn times_in_rows_are_read_in_each_of_their_ways() {
    const NOW: i64 = 1_767_268_800_000_000_000;
    for (time, expected) in [
        ("1767268800", NOW),
        ("+1767268800", NOW),
        ("1767268800001", NOW + 1_000_000),
        ("1767268800000001", NOW + 1_000),
        ("1767268800000000001", NOW + 1),
        ("-1767268800000000001", -NOW - 1),
        ("-7s", -7_000_000_000),
        ("1767268800.5", NOW + 500_000_000),
        ("1767268800001ms", NOW + 1_000_000),
        ("20260101T120000", NOW),
        ("2026-01-01T13:00:00+01:00", NOW),
        ("2026-01-01", NOW - 43_200_000_000_000),
        ("now", NOW),
        ("now-1h30m", NOW - 5_400_000_000_000),
    ] {
        let outcome = whole(Protocol::Csv(NOW), format!("m a=1,{time},5\n").as_bytes());
        let times: Vec<i64> = outcome.points.iter().map(|point| point.1).collect();
        assert_eq!(times, [expected], "{time}: {}", outcome.replies);
    }
}

/// A field that was a number and a text in turns was put among the names anew with each line, all
/// of one hash.
#[test]
fn a_field_that_is_a_number_and_a_text_in_turns_is_two_names() {
    let mut session = Session::new(Protocol::Influx(CLOCK), 9, &Memory::default());
    for time in 0..50 {
        let lines = format!("m,a=b f=1 {time}\nm,a=b f=\"text\" {time}\n");
        assert_eq!(session.feed(lines.as_bytes()), lines.len());
        session.discard();
    }
    assert_eq!(session.names_remembered(), 2);
}

/// A name in an import could be, byte by byte, what labels of remote write are looked up as, so
/// that their points went to the series of that name.
#[test]
fn what_names_are_looked_up_as_is_not_the_same_in_two_protocols() {
    use crate::ingest::protobuf::put_bytes;
    let label = |name: &str, value: &str| {
        let mut label = Vec::new();
        put_bytes(1, name.as_bytes(), &mut label);
        put_bytes(2, value.as_bytes(), &mut label);
        label
    };
    let labels = [label(&"y".repeat(121), &"v".repeat(127)), label("__name__", "m")];
    assert_eq!(labels[0].len(), 0xfc);
    let mut key = Vec::new();
    for label in &labels {
        key.extend_from_slice(&(label.len() as u32).to_le_bytes());
        key.extend_from_slice(label);
    }
    let name = serde_json::json!(std::str::from_utf8(&key[1..]).unwrap());
    let line = format!(r#"{{"metric": {{"__name__": {name}}}, "values": [1], "timestamps": [1]}}"#);
    let mut session = Session::new(Protocol::Influx(CLOCK), 9, &Memory::default());
    assert!(session.take_import(&mut ImportLines::of(line.as_bytes())));
    assert_eq!(session.points().count(), 1);
    session.discard();
    let mut series = Vec::new();
    labels.iter().for_each(|label| put_bytes(1, label, &mut series));
    put_bytes(2, b"\x09\0\0\0\0\0\0\0\0\x10\x01", &mut series);
    let mut message = Vec::new();
    put_bytes(1, &series, &mut message);
    take_message(&mut session, &compressed(&message)).unwrap();
    let found: Vec<String> = session.points().map(|(name, _)| name.to_string()).collect();
    assert!(found.len() == 1 && found[0].starts_with("m yyy"), "{found:?}");
}

/// Of short lines a thousand were read at once, of up to four megabytes each.
#[test]
fn turns_of_an_import_are_bounded_by_bytes() {
    let line = |len: usize| {
        let values = vec!["1"; len / 4].join(",");
        let times = vec!["1"; len / 4].join(",");
        format!(
            r#"{{"metric": {{"__name__": "m"}}, "values": [{values}], "timestamps": [{times}]}}"#
        )
    };
    let text = [line(16), line(1 << 20), line(16), line(100_000), "x".repeat(100_000)].join("\n");
    let mut lines = ImportLines::of(text.as_bytes());
    let mut session = Session::new(Protocol::Influx(CLOCK), 9, &Memory::default());
    let mut turns = Vec::new();
    loop {
        if let Some(long) = lines.long() {
            let read = ReadLine::of(long);
            lines.put(read);
        }
        let is_done = session.take_import(&mut lines);
        turns.push(session.points().count());
        session.discard();
        if is_done {
            break;
        }
    }
    // The long line is read apart.
    assert_eq!(turns[..3], [4, (1 << 20) / 4, 4 + 25_000], "{turns:?}");
    assert_eq!(session.refused(), 1);
}

/// Of a message sixteen thousand series were read at once, whatever was in them.
#[test]
fn turns_of_remote_write_are_bounded_by_bytes() {
    use crate::ingest::protobuf::put_bytes;
    let mut exemplars = Vec::new();
    // Each is cut off.
    (0..1000).for_each(|_| put_bytes(3, b"\x08", &mut exemplars));
    let mut message = Vec::new();
    (0..1000).for_each(|_| put_bytes(1, &exemplars, &mut message));
    put_bytes(1, &vec![0; (1 << 20) + 1], &mut message);
    let mut rest = RemoteWrite::decode(&compressed(&message)).unwrap();
    let mut session = Session::new(Protocol::Influx(CLOCK), 9, &Memory::default());
    let mut turns = 1;
    while !session.take_remote_write(&mut rest) {
        turns += 1;
    }
    assert!((10..100).contains(&turns), "{turns}");
    assert_eq!(session.exemplars_not_kept(), 1_000_000);
    let told = String::from_utf8_lossy(session.replies()).into_owned();
    assert_eq!(told, "more than 1048576 bytes of one series in a message (series 1001)\n");
}
