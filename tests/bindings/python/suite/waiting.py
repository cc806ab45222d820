"""Futures that take time: watches, timeouts, cancelling, callbacks on the network thread."""
import threading
import time

import fdb
from support import api, fails


def test_watches_tell_of_changes(db):
    db[b"w"] = b"0"
    for value in (b"1", b"2", b"3"):
        watch = _watch(db, b"w")
        assert not watch.is_ready()
        db[b"other"] = value
        db[b"w"] = value
        watch.wait()
    watch = _watch(db, b"w")
    del db[b"w"]
    watch.wait()


@fdb.transactional
def _watch(tr, key):
    return tr.watch(key)


def test_watches_end_with_their_transaction_until_it_commits(db):
    tr = db.create_transaction()
    watch = tr.watch(b"w")
    tr.reset()
    with fails(1025):
        watch.wait()
    watch = _watch(db, b"w")
    watch.cancel()
    with fails(1101):
        watch.wait()
    tr.options.set_read_your_writes_disable()
    with fails(1034):
        tr.watch(b"w").wait()


def test_own_writes_fire_watches(db):
    db[b"w"] = b"0"
    tr = db.create_transaction()
    same, other = tr.watch(b"w"), tr.watch(b"w")
    tr[b"w"] = b"0"
    tr.get_read_version().wait()
    assert not same.is_ready()
    tr[b"w"] = b"1"
    same.wait()
    other.wait()


def test_too_many_watches(db):
    db.options.set_max_watches(2)
    kept = [_watch(db, b"1"), _watch(db, b"2")]
    tr = db.create_transaction()
    watch = tr.watch(b"3")
    with fails(1032):
        watch.wait()
    db.options.set_max_watches(10_000)
    for watch in kept:
        watch.cancel()


def test_timeouts(db):
    tr = db.create_transaction()
    tr.options.set_timeout(100)
    tr.set_read_version(1 << 60)
    with fails(1031):
        tr[b"a"].wait()
    for operation in (lambda: tr[b"a"], tr.commit, lambda: tr.on_error(1020)):
        with fails(1031):
            operation().wait()
    tr.reset()
    assert not tr[b"a"].present()


@api(610)
def test_timeouts_survive_retries(db):
    tr = db.create_transaction()
    tr.options.set_timeout(300)
    tr.on_error(1020).wait()
    time.sleep(0.4)
    with fails(1031):
        tr[b"a"].wait()


def test_an_unreachable_cluster_times_out(db):
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "fdb.cluster")
        with open(path, "w") as file:
            file.write("some:where@127.0.0.1:1\n")
        tr = fdb.open(path).create_transaction()
        tr.options.set_timeout(100)
        with fails(1031):
            tr[b"a"].wait()
    tr = fdb.open("/nowhere/fdb.cluster").create_transaction()
    with fails(1515):
        tr[b"a"].wait()


def test_callbacks_run_on_the_network_thread_or_at_once(db):
    db[b"w"] = b"0"
    watch = _watch(db, b"w")
    seen, made, done = [], [], threading.Event()

    def called(future):
        seen.append(threading.current_thread().name)
        # Futures that aren't ready may not be waited for here, but callbacks may make new ones.
        tr = db.create_transaction()
        made.append((tr, tr[b"w"]))
        done.set()

    watch.on_ready(called)
    assert not seen
    db[b"w"] = b"1"
    assert done.wait(30)
    assert seen[0] != threading.current_thread().name
    assert made[0][1].present()
    seen.clear()
    watch.on_ready(called)
    assert seen == [threading.current_thread().name]


def test_waiting_on_the_network_thread_is_an_error(db):
    watch, never = _watch(db, b"w"), _watch(db, b"never")
    result, done = [], threading.Event()

    def called(future):
        result.append(fdb.impl._capi.fdb_future_is_ready(never.fpointer))
        try:
            never.capi.fdb_future_block_until_ready(never.fpointer)
        except fdb.FDBError as error:
            result.append(error.code)
        done.set()

    watch.on_ready(called)
    db[b"w"] = b"1"
    assert done.wait(30)
    assert result == [0, 2026], result
    never.cancel()


def test_many_futures_at_once(db):
    count = 2000
    watches = []
    tr = db.create_transaction()
    for i in range(count):
        watches.append(tr.watch(b"%d" % i))
    tr.commit().wait()
    called = []
    for watch in watches:
        watch.on_ready(called.append)

    @fdb.transactional
    def write(tr):
        for i in range(count):
            tr[b"%d" % i] = b"x"

    write(db)
    for watch in watches:
        watch.wait()
    deadline = time.time() + 30
    while len(called) < count and time.time() < deadline:
        time.sleep(0.01)
    assert len(called) == count
