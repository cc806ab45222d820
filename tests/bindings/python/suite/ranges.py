"""Range reads and key selectors: all modes, limits, directions, against a sorted list."""
import random

import fdb
from support import fails, fill, rows

MODES = ["want_all", "iterator", "exact", "small", "medium", "large", "serial"]


def test_every_mode_gives_the_same_rows(db):
    pairs = [(b"k%05d" % i, b"v" * (i % 300)) for i in range(2500)]
    fill(db, pairs)
    for mode in MODES:
        limit = 0 if mode != "exact" else 10_000
        mode = getattr(fdb.StreamingMode, mode)
        for reverse in (False, True):
            found = rows(db.get_range(b"k", b"l", limit=limit, reverse=reverse, streaming_mode=mode))
            assert found == (pairs[::-1] if reverse else pairs), mode


def test_limits_and_directions(db):
    pairs = [(b"%03d" % i, b"%d" % i) for i in range(300)]
    fill(db, pairs)
    for _ in range(200):
        begin, end = sorted(random.sample(range(301), 2))
        limit = random.choice([0, 1, 2, 7, 50, 1000])
        reverse = random.random() < 0.5
        want = pairs[begin:end]
        want = want[::-1] if reverse else want
        want = want[:limit] if limit else want
        found = rows(db.get_range(b"%03d" % begin, b"%03d" % end, limit=limit, reverse=reverse))
        assert found == want, (begin, end, limit, reverse)


def test_empty_and_inverted_ranges(db):
    fill(db, [(b"a", b""), (b"b", b"")])
    assert rows(db.get_range(b"b", b"a")) == []
    assert rows(db.get_range(b"a", b"a")) == []
    assert rows(db.get_range(b"x", b"y")) == []
    with fails(2004):
        list(db.get_range(b"", b"\xff\xff"))
    with fails(2210):
        list(db.get_range(b"a", b"b", limit=0, streaming_mode=fdb.StreamingMode.exact))


def test_selectors_find_what_a_list_says(db):
    keys = sorted({bytes(random.choices(b"abc", k=random.randint(1, 4))) for _ in range(60)})
    own = sorted({bytes(random.choices(b"abc", k=random.randint(1, 4))) for _ in range(20)})
    fill(db, [(key, b"db") for key in keys])
    tr = db.create_transaction()
    for key in own:
        tr[key] = b"own"
    del tr[b"b":b"bb"]
    visible = sorted(key for key in {*keys, *own} if not b"b" <= key < b"bb")
    for _ in range(500):
        key = bytes(random.choices(b"abcd", k=random.randint(0, 4)))
        or_equal, offset = random.random() < 0.5, random.randint(-15, 15)
        before = sum(1 for other in visible if (other <= key if or_equal else other < key))
        at = before + offset - 1
        want = b"" if at < 0 else b"\xff" if at >= len(visible) else visible[at]
        found = bytes(tr.get_key(fdb.KeySelector(key, or_equal, offset)))
        assert found == want, (key, or_equal, offset, found, want)


def test_ranges_between_selectors(db):
    keys = [b"%02d" % i for i in range(40)]
    fill(db, [(key, b"") for key in keys])
    begin = fdb.KeySelector.first_greater_or_equal(b"10") + 5
    end = fdb.KeySelector.last_less_than(b"30") - 2
    assert [key for key, _ in rows(db.get_range(begin, end))] == keys[15:27]
    assert [key for key, _ in rows(db.get_range_startswith(b"1"))] == keys[10:20]


def test_ranges_see_own_writes(db):
    fill(db, [(b"%02d" % i, b"db") for i in range(0, 40, 2)])
    tr = db.create_transaction()
    tr[b"01"] = b"own"
    tr[b"02"] = b"changed"
    del tr[b"10":b"20"]
    tr.add(b"22", b"\x01")
    found = dict(rows(tr.get_range(b"", b"\xff")))
    want = {b"%02d" % i: b"db" for i in range(0, 40, 2) if not 10 <= i < 20}
    want |= {b"01": b"own", b"02": b"changed", b"22": bytes([b"db"[0] + 1])}
    assert found == want
    assert len(rows(tr.snapshot.get_range(b"", b"\xff"))) == len(want)


def test_estimates(db):
    fill(db, [(b"%04d" % i, b"v" * 1000) for i in range(1000)])
    tr = db.create_transaction()
    assert tr.get_estimated_range_size_bytes(b"", b"\xff").wait() >= 0
    points = [bytes(key) for key in tr.get_range_split_points(b"0", b"1", 100_000).wait()]
    assert points[0] == b"0" and points[-1] == b"1" and points == sorted(points)
    with fails(2005):
        tr.get_estimated_range_size_bytes(b"b", b"a").wait()
    with fails(2005):
        tr.get_range_split_points(b"b", b"a", 1000).wait()
