"""Retry loops, while one server of a cluster after the other is killed: what was acknowledged is there, and nothing takes effect twice.

What is judged is in loops of retries alone: outside of them a commit may end with 1021.
"""
import time

import fdb
from support import in_threads, le, number, rows

CLIENTS = 4
SECONDS = 8


@fdb.transactional
def _count(tr, name):
    """Counts, unless this has been counted: an attempt of unknown fate may have."""
    if tr[name].present():
        return
    tr[name] = b""
    tr[b"count"] = le(number(tr[b"count"]) + 1 if tr[b"count"].present() else 1)


def test_counts_survive_kills(db):
    acknowledged = [0] * CLIENTS
    end = time.monotonic() + SECONDS

    def client(i):
        while time.monotonic() < end:
            _count(db, b"row/%d/%d" % (i, acknowledged[i]))
            acknowledged[i] += 1

    in_threads(CLIENTS, client)
    found = rows(db.get_range(b"row/", b"row0"))
    assert len(found) == sum(acknowledged) == number(db[b"count"]), (len(found), acknowledged, number(db[b"count"]))
    assert min(acknowledged) > 0


def test_watches_tell_of_changes_through_kills(db):
    end = time.monotonic() + SECONDS / 2
    turn = 0
    while time.monotonic() < end:
        db[b"watched"] = b"%d" % turn

        @fdb.transactional
        def watch(tr):
            return None if tr[b"watched"] != b"%d" % turn else tr.watch(b"watched")

        watched = watch(db)
        turn += 1
        db[b"watched"] = b"%d" % turn
        if watched is not None:
            try:
                watched.wait()
            except fdb.FDBError as error:
                assert error.code in (1009, 1026, 1100, 1101), error
