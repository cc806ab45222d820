"""The tuple, subspace and directory layers of the binding on this database."""
import random
import uuid

import fdb
from support import fails, in_threads


def _element(depth=0):
    kinds = [
        lambda: None,
        lambda: random.randint(-(1 << 64), 1 << 64),
        lambda: random.randint(-300, 300),
        lambda: random.random() * 10 ** random.randint(-10, 10),
        lambda: bytes(random.choices([0, 1, 97, 255], k=random.randint(0, 5))),
        lambda: "".join(random.choices("aé\u0000漢", k=random.randint(0, 5))),
        lambda: random.random() < 0.5,
        lambda: uuid.UUID(int=random.getrandbits(128)),
    ]
    if depth < 2:
        kinds.append(lambda: tuple(_element(depth + 1) for _ in range(random.randint(0, 3))))
    return random.choice(kinds)()


def test_tuples_come_back_and_sort(db):
    tuples = [tuple(_element() for _ in range(random.randint(0, 4))) for _ in range(300)]
    for item in tuples:
        assert fdb.tuple.unpack(fdb.tuple.pack(item)) == item
    tr = db.create_transaction()
    for item in tuples:
        tr[fdb.tuple.pack((b"t",) + item)] = b""
    tr.commit().wait()
    stored = [bytes(row.key) for row in db[fdb.tuple.range((b"t",))]]
    assert stored == sorted({fdb.tuple.pack((b"t",) + item) for item in tuples} - {fdb.tuple.pack((b"t",))})


def test_directories(db):
    layer = fdb.directory
    users = layer.create_or_open(db, ("app", "users"))
    assert layer.open(db, ("app", "users")).key() == users.key()
    db[users.pack(("ada",))] = b"1815"
    assert layer.list(db, ("app",)) == ["users"]
    moved = layer.move(db, ("app", "users"), ("app", "people"))
    assert db[moved.pack(("ada",))] == b"1815"
    assert not layer.exists(db, ("app", "users"))
    for misuse in (
        lambda: layer.create(db, ("app", "people")),
        lambda: layer.open(db, ("nothing",)),
        lambda: layer.move(db, ("app",), ("app", "people", "x")),
    ):
        try:
            misuse()
        except ValueError:
            continue
        raise AssertionError("no error")
    layer.remove(db, ("app",))
    assert not layer.exists(db, ("app",)) and db[moved.pack(("ada",))] is None


def test_partitions(db):
    partition = fdb.directory.create(db, ("part",), layer=b"partition")
    inner = partition.create_or_open(db, ("a", "b"))
    assert inner.get_path() == ("part", "a", "b")
    db[inner.pack((1,))] = b"x"
    fdb.directory.remove(db, ("part",))
    assert db[inner.pack((1,))] is None


def test_directories_are_allocated_concurrently_without_clashes(db):
    prefixes = []

    def work(i):
        for n in range(12):
            prefixes.append(bytes(fdb.directory.create(db, ("many", str(i), str(n))).key()))

    in_threads(8, work)
    assert len(prefixes) == 96 and len(set(prefixes)) == 96
    assert not any(a != b and b.startswith(a) for a in prefixes for b in prefixes)
    fdb.directory.remove(db, ("many",))


def test_the_documented_queue(db):
    queue = fdb.Subspace(("queue",))

    @fdb.transactional
    def push(tr, value):
        last = next(iter(tr.snapshot.get_range(queue.range().start, queue.range().stop, 1, True)), None)
        index = queue.unpack(last.key)[0] + 1 if last else 0
        tr.add_read_conflict_key(queue.pack((index,)))
        tr[queue.pack((index, uuid.uuid4().bytes))] = value

    @fdb.transactional
    def pop(tr):
        first = next(iter(tr.get_range(queue.range().start, queue.range().stop, 1)), None)
        if first is None:
            return None
        del tr[first.key]
        return bytes(first.value)

    for i in range(100):
        push(db, b"%d" % i)
    popped = []

    def drain(_):
        while (value := pop(db)) is not None:
            popped.append(value)

    in_threads(4, drain)
    assert sorted(map(int, popped)) == list(range(100))
