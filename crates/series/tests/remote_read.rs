//! Prometheus' remote read: what a client is answered, read by its bytes.
//!
//! Messages are taken apart by the reader of fields that senders' messages go through, and chunks
//! by the one that the writer of chunks is tested with. What a Prometheus makes of answers is
//! tested with one, in `tests/sources`.

#[allow(dead_code, reason = "the writer's own tests are run beside it")]
#[path = "../src/query/prometheus/read/chunk.rs"]
mod chunk;
#[allow(dead_code, reason = "what senders write needs more of it")]
#[path = "../src/protobuf.rs"]
mod protobuf;

use chunk::tests::samples;
use plinth::Local;
use plinth_env::block_on;
use plinth_series::{RemoteRead, SeriesStore};
use protobuf::{Fields, Payload, put_bytes, put_number};

const MILLISECOND: i64 = 1_000_000;

fn store() -> SeriesStore {
    block_on(SeriesStore::open(&Local::in_memory().unwrap().into_database())).unwrap()
}

fn put_field(field: u64, number: i64, out: &mut Vec<u8>) {
    put_number(field << 3, out);
    put_number(number as u64, out);
}

fn condition(kind: u64, label: &str, value: &str) -> Vec<u8> {
    let mut message = Vec::new();
    put_field(1, kind as i64, &mut message);
    put_bytes(2, label.as_bytes(), &mut message);
    put_bytes(3, value.as_bytes(), &mut message);
    message
}

fn asked(first: i64, last: i64, conditions: &[Vec<u8>]) -> Vec<u8> {
    let mut query = Vec::new();
    put_field(1, first, &mut query);
    put_field(2, last, &mut query);
    conditions.iter().for_each(|condition| put_bytes(3, condition, &mut query));
    query
}

fn request(queries: &[Vec<u8>], kinds: &[u64]) -> Vec<u8> {
    let mut message = Vec::new();
    queries.iter().for_each(|query| put_bytes(1, query, &mut message));
    kinds.iter().for_each(|kind| put_field(2, *kind as i64, &mut message));
    snap::raw::Encoder::new().compress_vec(&message).unwrap()
}

/// The bytes of the fields with this number.
fn fields(message: &[u8], number: u64) -> Vec<&[u8]> {
    let of = |field: Result<(u64, Payload<'_>), String>| match field.unwrap() {
        (found, Payload::Bytes(bytes)) if found == number => Some(bytes.to_vec().leak() as &[u8]),
        _ => None,
    };
    Fields::of(message).filter_map(of).collect()
}

fn number(message: &[u8], number: u64) -> i64 {
    let of = |field: Result<(u64, Payload<'_>), String>| match field.unwrap() {
        (found, Payload::Number(value)) if found == number => Some(value as i64),
        _ => None,
    };
    Fields::of(message).find_map(of).unwrap_or(0)
}

fn labels(series: &[u8]) -> String {
    let label = |label: &[u8]| {
        let text = |number| String::from_utf8(fields(label, number)[0].to_vec()).unwrap();
        format!("{}={}", text(1), text(2))
    };
    fields(series, 1).into_iter().map(label).collect::<Vec<_>>().join(",")
}

type Found = Vec<(String, Vec<(i64, f64)>)>;

/// The series of each result of an answer that is one message.
fn whole(answer: RemoteRead) -> Vec<Found> {
    let RemoteRead::Whole(bytes) = answer else { panic!("a stream") };
    let message = snap::raw::Decoder::new().decompress_vec(&bytes).unwrap();
    let sample = |sample: &[u8]| {
        let value = Fields::of(sample).find_map(|field| match field.unwrap() {
            (1, Payload::Eight(bits)) => Some(f64::from_bits(bits)),
            _ => None,
        });
        (number(sample, 2), value.unwrap())
    };
    let series = |series: &[u8]| {
        (labels(series), fields(series, 2).into_iter().map(sample).collect::<Vec<_>>())
    };
    let result = |result: &[u8]| fields(result, 1).into_iter().map(series).collect();
    fields(&message, 1).into_iter().map(result).collect()
}

/// The number of the query, the labels, the samples of each chunk.
type Frame = (i64, String, Vec<Vec<(i64, f64)>>);

/// The frames of a stream.
fn frames(answer: RemoteRead) -> Vec<Frame> {
    let RemoteRead::Stream(mut stream) = answer else { panic!("a message") };
    let mut bytes = Vec::new();
    while let Some(piece) = block_on(stream.next()).unwrap() {
        bytes.extend(piece);
    }
    let (mut rest, mut frames) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let digits = rest.iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let len =
            rest[..digits].iter().rev().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7f));
        let (crc, body) = rest[digits..].split_at(4);
        let (frame, behind) = body.split_at(len);
        assert_eq!(crc, crc32c::crc32c(frame).to_be_bytes());
        rest = behind;
        let series = fields(frame, 1)[0];
        let chunk = |chunk: &[u8]| {
            let all: Vec<_> = samples(fields(chunk, 4)[0])
                .into_iter()
                .map(|(time, bits)| (time, f64::from_bits(bits)))
                .collect();
            assert_eq!(number(chunk, 3), 1);
            assert_eq!((number(chunk, 1), number(chunk, 2)), (all[0].0, all[all.len() - 1].0));
            all
        };
        let chunks = fields(series, 2).into_iter().map(chunk).collect();
        frames.push((number(frame, 2), labels(series), chunks));
    }
    frames
}

fn answer(store: &SeriesStore, body: &[u8]) -> RemoteRead {
    block_on(RemoteRead::begin(store, body)).unwrap()
}

#[test]
fn samples_and_chunks_of_the_series_that_are_asked_for() {
    let store = store();
    for (name, points) in [
        (
            "up job=b",
            &[(-1, 9.0), (0, 1.0), (999_999, 1.5), (5_000_000, 2.0), (6_000_000, 3.0)][..],
        ),
        ("up job=a", &[(3_000_000, f64::INFINITY), (5_999_999, -2.5)]),
        ("up job=c", &[(7_000_000, 1.0)]),
        ("down job=b", &[(1_000_000, 4.0)]),
    ] {
        let series = block_on(store.series(name)).unwrap();
        points.iter().for_each(|(time, value)| series.append(*time, *value).unwrap());
    }
    let queries = [
        asked(0, 5, &[condition(0, "__name__", "up"), condition(3, "job", "c|d")]),
        asked(1, 1, &[condition(2, "__name__", "d.*"), condition(1, "job", "")]),
        asked(1, 1, &[condition(0, "__name__", "nothing")]),
    ];
    let up: Found = vec![
        ("__name__=up,job=a".to_owned(), vec![(3, f64::INFINITY), (5, -2.5)]),
        ("__name__=up,job=b".to_owned(), vec![(0, 1.5), (5, 2.0)]),
    ];
    let down: Found = vec![("__name__=down,job=b".to_owned(), vec![(1, 4.0)])];
    for kinds in [&[][..], &[0], &[0, 1], &[7, 0]] {
        let found = whole(answer(&store, &request(&queries, kinds)));
        assert_eq!(found, [up.clone(), down.clone(), Vec::new()]);
    }
    let expected: Vec<_> = [(0, up), (1, down)]
        .into_iter()
        .flat_map(|(at, all)| all.into_iter().map(move |(labels, all)| (at, labels, vec![all])))
        .collect();
    assert_eq!(frames(answer(&store, &request(&queries, &[1, 0]))), expected);
}

/// More than a chunk, a leaf, a piece and a frame.
#[test]
fn a_long_series_comes_in_frames_of_a_mebibyte() {
    let store = store();
    let series = block_on(store.series("m")).unwrap();
    let value = |n: i64| {
        f64::from_bits(0x4000_0000_0000_0000 | (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12)
    };
    let all: Vec<_> = (0..200_000).map(|n| (n * 7 + n % 3, value(n))).collect();
    for some in all.chunks(10_000) {
        some.iter().for_each(|(time, value)| series.append(time * MILLISECOND, *value).unwrap());
        block_on(store.sync()).unwrap();
    }
    let body =
        |kind| request(&[asked(i64::MIN, i64::MAX, &[condition(0, "__name__", "m")])], &[kind]);
    let frames = frames(answer(&store, &body(1)));
    assert_eq!(frames.len(), 2);
    let chunks = frames.into_iter().flat_map(|(_, _, chunks)| chunks).collect::<Vec<_>>();
    assert!(chunks.iter().rev().skip(1).all(|chunk| chunk.len() == 120));
    assert_eq!(chunks.concat(), all);
    assert_eq!(whole(answer(&store, &body(0)))[0][0].1, all);
}

#[test]
fn what_is_no_request_is_refused_with_the_reason() {
    let store = store();
    let fine = [condition(0, "__name__", "up")];
    let twice = vec![asked(0, 1, &fine); 65];
    for (body, words) in [
        (b"\xff\xff\xff\xff\xff\xff".to_vec(), "no block of snappy"),
        (
            snap::raw::Encoder::new().compress_vec(&vec![0; (1 << 20) + 1]).unwrap(),
            "1048576 may be",
        ),
        (request(&[b"\x08".to_vec()], &[]), "in the middle of a field"),
        (request(&[asked(0, 1, &[])], &[]), "no conditions"),
        (request(&[asked(0, 1, &[condition(4, "a", "b")])], &[]), "of kind 4"),
        (request(&[asked(0, 1, &[condition(2, "a", "(")])], &[]), "condition on a: "),
        (request(&[asked(0, 1, &fine)], &[2, 3]), "accepted types"),
        (request(&twice, &[]), "65 queries"),
    ] {
        let (status, text) = match block_on(RemoteRead::begin(&store, &body)) {
            Err(refused) => refused,
            Ok(_) => panic!("taken, though {words}"),
        };
        assert!(status == 400 && text.contains(words) && text.ends_with('\n'), "{status} {text}");
    }
}
