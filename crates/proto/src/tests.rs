//! Messages go there and back, damaged ones are refused, and the bytes of each version stay what
//! they are.
//!
//! Random messages come from a seed, which a failure prints. Damage is made in two ways: bits
//! flipped in a whole frame, which the checksum must notice, and lies under a right checksum, which
//! the decoders must survive.

use crate::frame::{self, HEADER, Kind, MAX_REPLY, MAX_REQUEST, NO_ID};
use crate::hello::{Hello, NEWEST, Welcome};
use crate::reply;
use crate::request::{self, MAX_KEYS, MAX_TOKEN, ReadVersion, Request, SnapshotId};
use plinth_types::{
    Bytes, ChangeBatch, Changes, ChangesRequest, CommitReply, CommitRequest, Conflicts, Error,
    KeyList, KeyRange, KeySelector, KeySpace, Located, LocatedMember, MutationList, MutationType,
    Quorum, RangeList, RangeLock, RangeLocks, RangeRead, RangeResult, Rows, Standing,
};

/// Small random numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 11) % n as u64) as usize
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    fn bytes(&mut self, most: usize) -> Bytes {
        let len = self.below(most + 1);
        (0..len).map(|_| self.next() as u8).collect::<Vec<_>>().into()
    }

    fn number(&mut self) -> i64 {
        let number = self.next() as i64;
        *[0, 1, -1, i64::MAX, i64::MIN, number].get(self.below(6)).unwrap()
    }

    fn space(&mut self) -> KeySpace {
        if self.chance() { KeySpace::Normal } else { KeySpace::System }
    }

    fn selector(&mut self) -> KeySelector {
        KeySelector::new(self.bytes(9), self.chance(), self.number() as i32)
    }

    fn limit(&mut self) -> usize {
        [0, 1, 1000, usize::MAX][self.below(4)]
    }

    fn ranges(&mut self) -> RangeList {
        let mut list = RangeList::new();
        for _ in 0..self.below(4) {
            match self.chance() {
                true => list.push_single(&self.bytes(5)),
                false => list.push(&self.bytes(5), &self.bytes(5)),
            }
        }
        list
    }

    fn range_locks(&mut self) -> RangeLocks {
        let lock = |random: &mut Self| RangeLock {
            range: KeyRange::new(random.bytes(9), random.bytes(9)),
            owner: random.snapshot(),
        };
        RangeLocks::new((0..self.below(4)).map(|_| lock(self)).collect())
    }

    fn commit(&mut self) -> CommitRequest {
        let mut mutations = MutationList::new();
        for _ in 0..self.below(4) {
            let kind =
                [MutationType::Set, MutationType::Add, MutationType::ClearRange][self.below(3)];
            mutations.push(kind, &self.bytes(9), &self.bytes(30));
        }
        CommitRequest {
            conflicts: Conflicts {
                read_version: self.number(),
                reads: self.ranges(),
                writes: self.ranges(),
            },
            mutations,
            lock_aware: self.chance(),
            report_conflicting_keys: self.chance(),
            idempotency_id: self.chance().then(|| self.bytes(16)),
        }
    }

    fn request(&mut self) -> Request {
        match self.below(24) {
            19 => Request::Reboot(self.bytes(20)),
            20 => Request::CountedVersion(self.read_version()),
            21 => Request::Standing,
            23 => Request::Token(self.bytes(300)),
            22 => {
                let keys = self.keys(11);
                Request::GetNewest { lock_aware: self.chance(), space: self.space(), keys }
            }
            18 => Request::Changes(self.changes_request()),
            11 => Request::Pin { lease_ms: self.next() as u32 },
            12 => Request::Renew { snapshot: self.snapshot(), lease_ms: self.next() as u32 },
            13 => Request::Release(self.snapshot()),
            14 => Request::Clients,
            17 => Request::Locate,
            15 => Request::Disconnect(self.bytes(20)),
            16 => loop {
                let read = Box::new(self.request());
                let snapshot = self.snapshot();
                if let Request::GetMany { .. }
                | Request::GetKey { .. }
                | Request::GetRange { .. }
                | Request::RangeSize(_)
                | Request::SplitPoints { .. } = *read
                {
                    break Request::InSnapshot { snapshot, read };
                }
            },
            0 => Request::Ping,
            1 => Request::ReadVersion(self.read_version()),
            2 => {
                let keys = self.keys(12);
                Request::GetMany { version: self.number(), space: self.space(), keys }
            }
            3 => Request::GetKey {
                version: self.number(),
                space: self.space(),
                selector: self.selector(),
            },
            4 => Request::GetRange {
                version: self.number(),
                space: self.space(),
                read: RangeRead {
                    begin: self.selector(),
                    end: self.selector(),
                    limit: self.limit(),
                    target_bytes: self.limit(),
                    reverse: self.chance(),
                },
            },
            5 => Request::Commit(Box::new(self.commit())),
            6 => {
                let value = self.chance().then(|| self.bytes(9));
                Request::Watch { key: self.bytes(9), value, version: self.number() }
            }
            7 => Request::Cancel,
            8 => Request::RangeSize(KeyRange::new(self.bytes(4), self.bytes(4))),
            9 => {
                let range = KeyRange::new(self.bytes(4), self.bytes(4));
                Request::SplitPoints { range, chunk: self.number() }
            }
            10 => Request::Addresses(self.bytes(9)),
            _ => Request::Status,
        }
    }

    /// Fewer than `most`.
    fn keys(&mut self, most: usize) -> KeyList {
        let mut keys = KeyList::new();
        for _ in 0..self.below(most) {
            keys.push(&self.bytes(20));
        }
        keys
    }

    fn values(&mut self) -> Vec<Option<Bytes>> {
        (0..self.below(9)).map(|_| self.chance().then(|| self.bytes(30))).collect()
    }

    fn read_version(&mut self) -> ReadVersion {
        ReadVersion {
            priority: self.below(3) as u8,
            lock_aware: self.chance(),
            causal_risky: self.chance(),
            count: self.next() as u32,
            tags: (0..self.below(3)).map(|_| self.bytes(8)).collect(),
        }
    }

    fn changes_request(&mut self) -> ChangesRequest {
        ChangesRequest {
            stream: self.next(),
            from: self.number(),
            bytes: self.next() as u32 as usize,
            wait: self.chance(),
        }
    }

    fn snapshot(&mut self) -> SnapshotId {
        std::array::from_fn(|_| self.next() as u8)
    }

    fn changes(&mut self) -> Changes {
        let batch = |version: i64| {
            let mut mutations = MutationList::new();
            mutations.push(MutationType::Set, b"k", &version.to_string().into_bytes());
            ChangeBatch { version, mutations }
        };
        let batches: Vec<_> = (0..self.below(4) as i64).map(|at| batch(at * 7)).collect();
        Changes { batches, upto: 30 + self.below(9) as i64, newest: self.number() }
    }

    fn rows(&mut self) -> RangeResult {
        let mut rows = Rows::builder();
        for _ in 0..self.below(5) {
            rows.push(&self.bytes(5), &self.bytes(9));
        }
        RangeResult {
            rows: rows.finish(),
            more: self.chance(),
            read_to_begin: self.chance(),
            read_through_end: self.chance(),
        }
    }
}

fn body(bytes: &[u8], kind: Kind) -> Bytes {
    let frame = frame::split(bytes, MAX_REPLY).unwrap().unwrap();
    assert_eq!((frame.id, frame.kind, frame.len()), (7, kind as u8, bytes.len()));
    Bytes::copy_from_slice(frame.body)
}

fn encoded(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out);
    out
}

#[test]
fn requests_go_there_and_back_however_the_stream_is_cut() {
    for seed in 1..200 {
        let mut random = Random(seed);
        let requests: Vec<_> = (0..20).map(|_| random.request()).collect();
        let mut stream = Vec::new();
        requests
            .iter()
            .enumerate()
            .for_each(|(id, request)| request.encode(&mut stream, id as u32));
        let (mut received, mut at, mut decoded) = (Vec::new(), 0, Vec::new());
        while at < stream.len() {
            let end = (at + 1 + random.below(40)).min(stream.len());
            received.extend_from_slice(&stream[at..end]);
            at = end;
            while let Some(frame) = frame::split(&received, MAX_REQUEST).unwrap() {
                assert_eq!(frame.id as usize, decoded.len(), "seed {seed}");
                decoded.push(Request::decode(&frame).unwrap());
                let len = frame.len();
                received.drain(..len);
            }
        }
        assert_eq!(decoded, requests, "seed {seed}");
    }
}

/// What versions come with, in each of the replies that bring one.
#[test]
fn versions_go_there_and_back() {
    for seed in 1..200 {
        let mut random = Random(seed);
        let expected = reply::ReadVersion {
            version: random.number(),
            metadata_version: random.chance().then(|| random.bytes(10)),
            range_locks: random.chance().then(|| random.range_locks()),
        };
        let (version, metadata) = (expected.version, expected.metadata_version.as_deref());
        let locks = expected.range_locks.as_ref();
        let out = encoded(|out| reply::put_read_version(out, 7, version, metadata, locks));
        let answer = reply::read_version(&body(&out, Kind::ReadVersionReply)).unwrap();
        assert_eq!(answer, expected);

        let voters = (0..1 + random.below(5)).map(|_| random.next()).collect();
        let quorum =
            random.chance().then(|| Quorum { term: random.next(), leader: random.next(), voters });
        let out = encoded(|out| {
            reply::put_counted_version(out, 7, quorum.as_ref(), version, metadata, locks);
        });
        let answer = reply::counted_version(&body(&out, Kind::CountedVersionReply)).unwrap();
        assert_eq!(answer, (expected.clone(), quorum));
        let standing = Standing {
            node: random.next(),
            term: random.next(),
            follows: random.chance().then(|| random.next() | 1),
        };
        let out = encoded(|out| reply::put_standing(out, 7, &standing));
        assert_eq!(reply::standing(&body(&out, Kind::StandingReply)).unwrap(), standing);

        let values = random.values();
        let out = encoded(|out| reply::put_get_newest(out, 7, &values, version, metadata, locks));
        let answer = reply::get_newest(&body(&out, Kind::GetNewestReply)).unwrap();
        assert_eq!(answer, (expected, values));
    }
}

#[test]
fn replies_go_there_and_back() {
    for seed in 1..200 {
        let mut random = Random(seed);
        let (values, version) = (random.values(), random.number());
        let out = encoded(|out| reply::put_get_many(out, 7, &values));
        assert_eq!(reply::get_many(&body(&out, Kind::GetManyReply)).unwrap(), values);
        let rows = random.rows();
        let out = encoded(|out| reply::put_get_range(out, 7, &rows));
        assert_eq!(reply::get_range(&body(&out, Kind::GetRangeReply)).unwrap(), rows);

        let committed = CommitReply::Committed { version, batch_index: random.next() as u16 };
        let conflict = CommitReply::Conflict { conflicting_reads: vec![0, random.below(99)] };
        for answer in [committed, conflict] {
            let out = encoded(|out| reply::put_commit(out, 7, &answer));
            assert_eq!(reply::commit(&body(&out, Kind::CommitReply)).unwrap(), answer);
        }
        let out = encoded(|out| reply::put_number(out, 7, Kind::WatchReply, version));
        assert_eq!(reply::number(&body(&out, Kind::WatchReply)).unwrap(), version);
        let pinned = reply::Pinned {
            snapshot: random.snapshot(),
            version,
            metadata_version: random.chance().then(|| random.bytes(10)),
            lease_ms: random.next() as u32,
            range_locks: random.chance().then(|| random.range_locks()),
        };
        let out = encoded(|out| reply::put_pin(out, 7, &pinned));
        assert_eq!(reply::pin(&body(&out, Kind::PinReply)).unwrap(), pinned);
        let changes = random.changes();
        let out = encoded(|out| reply::put_changes(out, 7, &changes).expect("they fit"));
        assert_eq!(reply::changes(&body(&out, Kind::ChangesReply)).unwrap(), changes);
        let list = vec![random.bytes(5), random.bytes(5)];
        let member = |random: &mut Random| LocatedMember {
            node: random.next(),
            address: format!("h:{}", random.below(99)),
            votes: random.chance(),
        };
        let located = Located {
            term: random.next(),
            node: random.next(),
            leader: random.chance().then(|| random.next() | 1),
            members: (0..random.below(5)).map(|_| member(&mut random)).collect(),
        };
        let out = encoded(|out| reply::put_located(out, 7, &located));
        assert_eq!(reply::located(&body(&out, Kind::LocateReply)).unwrap(), located);

        let out = encoded(|out| reply::put_list(out, 7, Kind::SplitPointsReply, &list));
        assert_eq!(reply::list(&body(&out, Kind::SplitPointsReply)).unwrap(), list);
        let error = Error::not_committed().with_detail("why");
        let out = encoded(|out| reply::put_failure(out, 7, &error));
        let back = reply::failure(&body(&out, Kind::Failure));
        assert_eq!((back.code(), back.detail()), (1020, Some("why")));
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let mut random = Random(3);
    let frame = encoded(|out| Request::Commit(Box::new(random.commit())).encode(out, 1));
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // A length that grew makes the frame incomplete; everything else is an error.
        if let Ok(Some(_)) = frame::split(&damaged, MAX_REQUEST) {
            panic!("bit {bit} flipped and nobody noticed");
        }
    }
}

#[test]
fn lies_in_a_frame_that_is_whole_end_in_an_error_or_in_a_message() {
    let mut refused = 0;
    for seed in 1..3000 {
        let mut random = Random(seed);
        let mut frame = encoded(|out| random.request().encode(out, 1));
        for _ in 0..=random.below(3) {
            let (len, at) = (frame.len() - HEADER, random.below(frame.len()));
            match random.below(4) {
                0 if at > 12 => frame[at] = *[0, 1, 0x7f, 0xff].get(random.below(4)).unwrap(),
                1 if len > 4 => {
                    let at = HEADER + random.below(len - 3);
                    frame[at..at + 4].copy_from_slice(&(random.number() as u32).to_le_bytes());
                }
                2 if len > 0 => frame.truncate(HEADER + random.below(len)),
                _ => frame.extend_from_slice(&random.bytes(9)),
            }
        }
        let kind = if random.below(4) == 0 { random.next() as u8 } else { frame[12] };
        frame[12] = kind;
        frame::finish(&mut frame, 0);
        let split = frame::split(&frame, MAX_REQUEST).unwrap().expect("its length is right");
        refused += usize::from(Request::decode(&split).is_err());
        let body = Bytes::copy_from_slice(split.body);
        let _ = (reply::read_version(&body), reply::get_many(&body), reply::get_range(&body));
        let _ =
            (reply::commit(&body), reply::number(&body), reply::list(&body), reply::failure(&body));
        let _ = (reply::pin(&body), reply::changes(&body));
        let _ = (Hello::decode(&body), Welcome::decode(&body));
    }
    assert!(refused > 1000, "only {refused} of the lies were told apart");
}

#[test]
fn a_frame_that_claims_four_gigabytes_is_refused_by_its_header() {
    let mut header = encoded(|out| Request::Ping.encode(out, 1));
    header[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = frame::split(&header, MAX_REQUEST).unwrap_err();
    assert!(error.detail().unwrap().contains("4294967295 bytes"), "{error}");
    assert_eq!(frame::wanted(&header), HEADER + u32::MAX as usize);
    header[4..8].copy_from_slice(&(MAX_REQUEST as u32).to_le_bytes());
    assert_eq!(frame::split(&header, MAX_REQUEST).unwrap(), None);
}

#[test]
fn counts_that_no_body_can_hold_allocate_nothing() {
    let mut frame = encoded(|out| {
        Request::GetMany { version: 1, space: KeySpace::Normal, keys: KeyList::new() }
            .encode(out, 1)
    });
    let end = frame.len();
    frame[end - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
    frame::finish(&mut frame, 0);
    let split = frame::split(&frame, MAX_REQUEST).unwrap().unwrap();
    assert!(Request::decode(&split).unwrap_err().detail().unwrap().contains("claimed"));
    let keys = encoded(|out| {
        let keys = vec![&b""[..]; MAX_KEYS + 1];
        crate::request::put_get_many(out, 1, 1, KeySpace::Normal, keys.into_iter());
    });
    assert!(Request::decode(&frame::split(&keys, MAX_REQUEST).unwrap().unwrap()).is_err());
}

#[test]
fn hellos_find_the_newest_common_version_or_say_why_not() {
    let mut hello = Hello::new("shop:abc", "test");
    let out = encoded(|out| hello.encode(out));
    for len in 0..out.len() {
        assert_eq!(Hello::decode(&out[..len]).unwrap(), None);
    }
    assert_eq!(Hello::decode(&out).unwrap(), Some((hello.clone(), out.len())));
    (hello.oldest, hello.newest) = (0, NEWEST + 2);
    let welcome = Welcome::accept(&hello, hello.choose().unwrap(), "id");
    let out = encoded(|out| welcome.encode(out));
    assert_eq!(Welcome::decode(&out).unwrap(), Some((welcome, out.len())));
    (hello.oldest, hello.newest) = (NEWEST + 1, NEWEST + 2);
    let refusal = hello.choose().unwrap_err();
    let theirs = format!("{} to {}", NEWEST + 1, NEWEST + 2);
    assert!(refusal.detail().unwrap().contains(&theirs), "{refusal}");
    let out = encoded(|out| Welcome::refuse(refusal).encode(out));
    let (welcome, _) = Welcome::decode(&out).unwrap().unwrap();
    assert_eq!(welcome.refused.unwrap().code(), 2100);
    assert!(Hello::decode(b"GET / HTTP/1.1\r\n").is_err());
    assert!(Hello::decode(b"\x89P").unwrap().is_none());
}

#[test]
fn version_one_keeps_its_bytes() {
    let hello = encoded(|out| Hello { newest: 1, ..Hello::new("a:b", "c") }.encode(out));
    assert_eq!(
        hello,
        b"\x89PLNTH\r\n\x18\0\0\0\x4f\x50\xdf\x4a\x01\0\x01\0\0\0\0\0\0\0\0\0\x03\0\0\0a:b\x01\0\0\0c"
    );
    let mut keys = KeyList::new();
    keys.push(b"k");
    let request = Request::GetMany { version: 0x0102, space: KeySpace::System, keys };
    let frame = encoded(|out| request.encode(out, 5));
    assert_eq!(
        frame,
        b"\x70\xdd\x08\x5c\x12\0\0\0\x05\0\0\0\x03\0\0\0\x02\x01\0\0\0\0\0\0\x01\x01\0\0\0\x01\0\0\0k"
    );
}

#[test]
fn version_three_keeps_its_bytes() {
    let hello = encoded(|out| Hello { newest: 3, ..Hello::new("a:b", "c") }.encode(out));
    assert_eq!(
        hello,
        b"\x89PLNTH\r\n\x18\0\0\0\x27\x8d\xf4\xf2\x01\0\x03\0\0\0\0\0\0\0\0\0\x03\0\0\0a:b\x01\0\0\0c"
    );
}

#[test]
fn version_two_keeps_its_bytes() {
    let hello = encoded(|out| Hello { newest: 2, ..Hello::new("a:b", "c") }.encode(out));
    assert_eq!(
        hello,
        b"\x89PLNTH\r\n\x18\0\0\0\x93\x63\xe1\xae\x01\0\x02\0\0\0\0\0\0\0\0\0\x03\0\0\0a:b\x01\0\0\0c"
    );
    let mut keys = KeyList::new();
    keys.push(b"k");
    let read = Box::new(Request::GetMany { version: 0x0102, space: KeySpace::System, keys });
    let request = Request::InSnapshot { snapshot: std::array::from_fn(|at| at as u8), read };
    let frame = encoded(|out| request.encode(out, 5));
    assert_eq!(
        frame,
        b"\xcb\xfe\x3c\xd4\x23\0\0\0\x05\0\0\0\x10\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\
          \x03\x02\x01\0\0\0\0\0\0\x01\x01\0\0\0\x01\0\0\0k"
    );
    for kind in (0..=255).filter_map(Kind::from_code) {
        let since = match kind as u8 & 0x7f {
            13..=18 => 2,
            19 => 3,
            20 => 4,
            21 => 5,
            22..=24 => 7,
            25 => 8,
            26 => 9,
            _ => 1,
        };
        assert_eq!(kind.since(), since, "{kind:?}");
    }
}

#[test]
fn version_eight_keeps_its_bytes() {
    let hello = encoded(|out| Hello { newest: 8, ..Hello::new("a:b", "c") }.encode(out));
    assert_eq!(hello[16..20], *b"\x01\0\x08\0");
    let frame = encoded(|out| Request::Token(Bytes::from_static(b"a.b.c")).encode(out, 5));
    assert_eq!((frame[12], &frame[HEADER..]), (25, &b"\x05\0\0\0a.b.c"[..]));
    let long = encoded(|out| request::put_token(out, 5, &[b'x'; MAX_TOKEN + 1]));
    assert!(Request::decode(&frame::split(&long, MAX_REQUEST).unwrap().unwrap()).is_err());
}

#[test]
fn version_nine_keeps_its_bytes() {
    for is_unread in [false, true] {
        let waits = encoded(|out| reply::put_waits(out, NO_ID, is_unread));
        assert_eq!(
            (waits[12], &waits[8..12], &waits[16..]),
            (0x9a, &[0xff; 4][..], &[u8::from(is_unread)][..])
        );
        assert_eq!(reply::waits(&waits[16..]), Ok(is_unread));
    }
    assert!([&b""[..], b"\x02", b"\0\0"].iter().all(|body| reply::waits(body).is_err()));
}

#[test]
fn version_seven_keeps_its_bytes() {
    let quorum = Quorum { term: 9, leader: 2, voters: vec![1, 2, 3] };
    let counted =
        encoded(|out| reply::put_counted_version(out, 5, Some(&quorum), 0x0102, None, None));
    let mut body = vec![3, 0, 0, 0];
    [9, 2, 1, 2, 3, 0x0102].iter().for_each(|number| body.extend(u64::to_le_bytes(*number)));
    body.extend([0xff; 4]);
    assert_eq!(counted[16..], body);
    let proven = encoded(|out| reply::put_counted_version(out, 5, None, 0x0102, None, None));
    assert_eq!(proven[16..], [0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    let standing = Standing { node: 3, term: 9, follows: None };
    let standing = encoded(|out| reply::put_standing(out, 5, &standing));
    assert_eq!(
        standing[16..],
        [[3, 0, 0, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat()
    );
    assert_eq!((counted[12], standing[12]), (0x96, 0x97));
}

#[test]
fn version_four_keeps_its_bytes() {
    let request =
        Request::Changes(ChangesRequest { stream: 3, from: 0x0102, bytes: 1 << 20, wait: true });
    let frame = encoded(|out| request.encode(out, 5));
    let body = [3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 1];
    assert_eq!((frame[12], &frame[HEADER..]), (20, &body[..]));
    let mut mutations = MutationList::new();
    mutations.push(MutationType::Set, b"k", b"v");
    let changes = Changes {
        batches: vec![ChangeBatch { version: 0x0102, mutations }],
        upto: 0x0103,
        newest: 0x0104,
    };
    let frame = encoded(|out| reply::put_changes(out, 5, &changes).expect("they fit"));
    let versions =
        [3, 1, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
    let mutations = [11, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, b'k', b'v'];
    assert_eq!((frame[12], &frame[HEADER..]), (0x94, &[&versions[..], &mutations].concat()[..]));
}

#[test]
fn version_five_keeps_its_bytes() {
    let frame = encoded(|out| Request::Reboot(Bytes::from_static(b"h:1")).encode(out, 5));
    assert_eq!((frame[12], &frame[HEADER..]), (21, &[3, 0, 0, 0, b'h', b':', b'1'][..]));
    let frame = encoded(|out| reply::put_number(out, 5, Kind::RebootReply, 1));
    assert_eq!((frame[12], &frame[HEADER..]), (0x95, &[1, 0, 0, 0, 0, 0, 0, 0][..]));
}

#[test]
fn changes_that_one_reply_has_no_room_for_are_left_out_whole() {
    let batch = |version, bytes: usize| {
        let mut mutations = MutationList::new();
        mutations.push(MutationType::Set, b"k", &vec![0; bytes]);
        ChangeBatch { version, mutations }
    };
    let changes = |batches| Changes { batches, upto: 50, newest: 60 };
    let third = reply::CHANGES_BYTES / 3;
    let out = encoded(|out| {
        let batches = vec![batch(1, third), batch(2, third), batch(3, third), batch(4, 1)];
        reply::put_changes(out, 7, &changes(batches)).expect("the first ones fit");
    });
    let back = reply::changes(&body(&out, Kind::ChangesReply)).unwrap();
    assert_eq!((back.batches.len(), back.upto), (2, 2));
    let mut out = Vec::new();
    let too_large = reply::put_changes(&mut out, 7, &changes(vec![batch(1, 3 * third)]));
    assert_eq!((too_large.unwrap_err().code(), out.len()), (2103, 0));
}
