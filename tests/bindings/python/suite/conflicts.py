"""Which transactions conflict: point reads against a model, and each kind of range by hand."""
import random

import fdb
from support import fails, fill


def _conflicts(db, first, between):
    """Whether a transaction that did `first` conflicts with one that did `between` and committed meanwhile."""
    tr = db.create_transaction()
    tr.get_read_version().wait()
    first(tr)
    other = db.create_transaction()
    between(other)
    other.commit().wait()
    tr[b"out"] = b""
    try:
        tr.commit().wait()
    except fdb.FDBError as error:
        assert error.code == 1020, error.code
        return True
    return False


def _set(*keys):
    def write(tr):
        for key in keys:
            tr[key] = b"new"

    return write


def test_kinds_of_conflicts(db):
    fill(db, [(b"a", b"1"), (b"c", b"3"), (b"e", b"5")])
    cases = [
        (lambda tr: tr[b"a"].wait(), _set(b"a"), True),
        (lambda tr: tr[b"a"].wait(), _set(b"b"), False),
        (lambda tr: tr.snapshot[b"a"].wait(), _set(b"a"), False),
        (lambda tr: list(tr.get_range(b"a", b"d")), _set(b"b"), True),
        (lambda tr: list(tr.get_range(b"a", b"d")), _set(b"d"), False),
        (lambda tr: list(tr.get_range(b"a", b"f", limit=1)), _set(b"d"), False),
        (lambda tr: list(tr.get_range(b"a", b"f", limit=1, reverse=True)), _set(b"b"), False),
        (lambda tr: list(tr.snapshot.get_range(b"a", b"d")), _set(b"b"), False),
        (lambda tr: bytes(tr.get_key(fdb.KeySelector.first_greater_than(b"a"))), _set(b"b"), True),
        (lambda tr: bytes(tr.get_key(fdb.KeySelector.first_greater_than(b"a"))), _set(b"d"), False),
        (lambda tr: tr.add_read_conflict_range(b"x", b"z"), _set(b"y"), True),
        (lambda tr: tr.add_read_conflict_key(b"x"), _set(b"xx"), False),
        (lambda tr: (_set(b"a")(tr), tr[b"a"].wait()), _set(b"a"), False),
        (lambda tr: (tr.add(b"a", b"\1"), tr[b"a"].wait()), _set(b"a"), True),
        (lambda tr: tr.add(b"a", b"\1"), _set(b"a"), False),
        (lambda tr: tr[b"a"].wait(), lambda tr: tr.clear_range(b"", b"b"), True),
        (lambda tr: tr[b"q"].wait(), lambda tr: tr.add_write_conflict_key(b"q"), True),
        (lambda tr: tr[b"q"].wait(), lambda tr: (tr.options.set_next_write_no_write_conflict_range(), _set(b"q")(tr)), False),
    ]
    for at, (first, between, want) in enumerate(cases):
        assert _conflicts(db, first, between) == want, f"case {at}"


def test_point_conflicts_follow_the_model(db):
    keys = [b"%d" % i for i in range(12)]
    version, written = 0, dict.fromkeys(keys, 0)
    running = []
    outcomes = {True: 0, False: 0}
    for _ in range(1500):
        if len(running) < 4:
            tr = db.create_transaction()
            tr.get_read_version().wait()
            running.append((tr, version, set(), set()))
            continue
        tr, began, read, wrote = random.choice(running)
        step = random.random()
        if step < 0.45:
            key = random.choice(keys)
            tr[key].wait()
            if key not in wrote:
                read.add(key)
        elif step < 0.75:
            key = random.choice(keys)
            tr[key] = b"x"
            wrote.add(key)
        else:
            running = [entry for entry in running if entry[0] is not tr]
            conflict = bool(wrote) and any(written[key] > began for key in read)
            if conflict:
                with fails(1020):
                    tr.commit().wait()
            else:
                tr.commit().wait()
                version += 1
                for key in wrote:
                    written[key] = version
            outcomes[conflict] += 1
    assert outcomes[True] > 10 and outcomes[False] > 10, outcomes


def test_transfers_keep_the_sum(db):
    from support import in_threads

    fill(db, [(b"acct%d" % i, b"100") for i in range(10)])

    @fdb.transactional
    def transfer(tr, a, b, amount):
        tr[a] = b"%d" % (int(bytes(tr[a])) - amount)
        tr[b] = b"%d" % (int(bytes(tr[b])) + amount)

    def work(i):
        chance = random.Random(i)
        for _ in range(40):
            a, b = chance.sample(range(10), 2)
            transfer(db, b"acct%d" % a, b"acct%d" % b, chance.randint(1, 9))

    in_threads(6, work)
    assert sum(int(bytes(row.value)) for row in db.get_range_startswith(b"acct")) == 1000


def test_conflicting_keys_are_reported(db):
    tr = db.create_transaction()
    tr.options.set_report_conflicting_keys()
    tr[b"a"].wait()
    tr[b"b"].wait()
    tr[b"out"] = b""
    db[b"b"] = b"new"
    with fails(1020):
        tr.commit().wait()
    prefix = b"\xff\xff/transaction/conflicting_keys/"
    found = [(bytes(row.key)[len(prefix):], bytes(row.value)) for row in tr.get_range(prefix, prefix + b"\xff")]
    assert found == [(b"b", b"1"), (b"b\0", b"0")], found
