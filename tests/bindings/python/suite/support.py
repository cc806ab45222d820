"""What tests share: expecting an error by number, waiting for something to happen."""
import contextlib
import struct
import threading

import fdb


def api(lowest, highest=10_000):
    """The API versions that a test is for."""

    def mark(test):
        test.api = (lowest, highest)
        return test

    return mark


def another(target=":memory:"):
    """Another handle on a database; `fdb.open` gives the same one for the same name."""
    return fdb.impl.create_database(target)


@contextlib.contextmanager
def fails(*codes):
    """The body must fail with one of these of FoundationDB's numbers."""
    try:
        yield
    except fdb.FDBError as error:
        assert error.code in codes, f"error {error.code}, expected {codes}"
        return
    raise AssertionError(f"no error, expected {codes}")


def le(number, size=8):
    """A little-endian integer, as atomic operations have it."""
    return (number % (1 << (8 * size))).to_bytes(size, "little")


def number(value):
    return struct.unpack("<q", bytes(value).ljust(8, b"\0"))[0]


def rows(found):
    return [(bytes(row.key), bytes(row.value)) for row in found]


def fill(db, pairs):
    @fdb.transactional
    def write(tr):
        for key, value in pairs:
            tr[key] = value

    write(db)


def in_threads(count, body):
    """Runs body(i) in threads; the first exception of any is raised here."""
    failures = []

    def run(i):
        try:
            body(i)
        except BaseException as error:  # told by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
