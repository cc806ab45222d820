"""Atomic operations against their definitions, read before commit and after."""
import random

import fdb
from support import api, fails, in_threads, le, number


def _padded(a, b):
    return a[: len(b)].ljust(len(b), b"\0"), b


def _bitwise(f):
    def apply(old, operand):
        if old is None:
            old = b""
        a, b = _padded(old, operand)
        return bytes(f(x, y) for x, y in zip(a, b))

    return apply


def _add(old, operand):
    a, b = _padded(old or b"", operand)
    return le(int.from_bytes(a, "little") + int.from_bytes(b, "little"), len(b)) if b else b""


def _and(old, operand):
    if old is None:
        return operand if fdb._version >= 510 else bytes(len(operand))
    return _bitwise(lambda x, y: x & y)(old, operand)


def _max(old, operand):
    a, b = _padded(old or b"", operand)
    return a if old is not None and a[::-1] > b[::-1] else b


def _min(old, operand):
    if old is None:
        return operand
    a, b = _padded(old, operand)
    return a if a[::-1] < b[::-1] else b


OPERATIONS = {
    "add": _add,
    "bit_and": _and,
    "bit_or": _bitwise(lambda x, y: x | y),
    "bit_xor": _bitwise(lambda x, y: x ^ y),
    "max": _max,
    "min": _min,
    "byte_max": lambda old, new: new if old is None else max(old, new),
    "byte_min": lambda old, new: new if old is None else min(old, new),
    "append_if_fits": lambda old, new: (old or b"") + new,
    "compare_and_clear": lambda old, new: None if old == new else old,
}


def _random_bytes():
    return bytes(random.choices([0, 1, 2, 255], k=random.randint(1, 5)))


def test_each_operation_is_its_definition(db):
    for round in range(60):
        for name, definition in OPERATIONS.items():
            old = random.choice([None, _random_bytes()])
            operand = old if old and random.random() < 0.2 else _random_bytes()
            want = definition(old, operand)
            key = name.encode()
            del db[key]
            if old is not None:
                db[key] = old
            tr = db.create_transaction()
            getattr(tr, name)(key, operand)
            seen = tr[key].wait()
            seen = bytes(seen) if tr[key].present() else None
            tr.commit().wait()
            kept = db[key]
            assert seen == want and kept == want, (name, old, operand, seen, kept, want)


def test_counters_lose_nothing(db):
    @fdb.transactional
    def increment(tr):
        tr.add(b"n", le(1))

    in_threads(8, lambda i: [increment(db) for _ in range(50)])
    assert number(db[b"n"]) == 400


@api(520)
def test_versionstamps(db):
    tr = db.create_transaction()
    tr.set_versionstamped_key(b"k/" + b"\0" * 10 + b"/end" + (2).to_bytes(4, "little"), b"1")
    tr.set_versionstamped_value(b"v", b"<" + b"\0" * 10 + b">" + (1).to_bytes(4, "little"))
    with fails(1036):
        tr[b"v"].wait()
    tr.reset()
    tr.set_versionstamped_key(b"k/" + b"\0" * 10 + b"/end" + (2).to_bytes(4, "little"), b"1")
    tr.set_versionstamped_value(b"v", b"<" + b"\0" * 10 + b">" + (1).to_bytes(4, "little"))
    stamp = tr.get_versionstamp()
    tr.commit().wait()
    stamp = bytes(stamp.wait())
    assert db[b"k/" + stamp + b"/end"] == b"1"
    assert db[b"v"] == b"<" + stamp + b">"


@api(520)
def test_versionstamps_with_bad_offsets(db):
    for operand in (b"", b"abc", b"\0" * 10 + (1).to_bytes(4, "little"), b"\0" * 14 + b"\xff" * 4):
        tr = db.create_transaction()
        tr.set_versionstamped_key(b"" + operand, b"1")
        with fails(2000):
            tr.commit().wait()


@api(520)
def test_versionstamps_rise_and_are_unique(db):
    def write(i):
        for _ in range(20):
            @fdb.transactional
            def append(tr):
                tr.set_versionstamped_key(b"log/" + b"\0" * 10 + (4).to_bytes(4, "little"), b"%d" % i)

            append(db)

    in_threads(6, write)
    keys = [bytes(row.key) for row in db.get_range_startswith(b"log/")]
    assert len(keys) == 120 and keys == sorted(set(keys))
