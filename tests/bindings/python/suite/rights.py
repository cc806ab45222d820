"""Two users with rights of their own, each with what he may and may not, against a model: a token's bearer, and whoever has none.

A server of its own has the rows; an operator fills them, changes the grants between programs, and looks at the end of each
whether what is there is what the model says. What isn't covered has to fail with 6000, whole, and change nothing.
"""
import contextlib
import os
import random
import subprocess
import tempfile
import time

import fdb
from support import another, api, le, number

TOKENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../rights")
PROGRAM = os.path.join(os.environ["PLINTH_LIBRARY"], "plinth")
DENIED = 6000
LETTERS = "abcd"
KEYS = [(one + two).encode() for one in LETTERS for two in LETTERS]


def _token(user):
    with open(os.path.join(TOKENS, user + ".token")) as file:
        return file.read().strip().encode()


def _until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


@contextlib.contextmanager
def _server():
    with tempfile.TemporaryDirectory(prefix="plinth-rights-") as directory:
        cluster = os.path.join(directory, "fdb.cluster")
        server = subprocess.Popen(
            [PROGRAM, "server", "--listen", "127.0.0.1:0", "--dir", os.path.join(directory, "data"), "--cluster-file", cluster,
             "--authorization-public-key-file", os.path.join(TOKENS, "keys.json"), "--operator", "token sub=admin"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            line = server.stdout.readline()
            assert line.startswith("ready"), line
            yield cluster
        finally:
            server.terminate()
            server.wait(30)


def _shell(cluster, line):
    line = f"option on authorization_token {_token('admin').decode()}; {line}"
    ended = subprocess.run([PROGRAM, "shell", "--cluster-file", cluster, "--exec", line], capture_output=True, text=True, timeout=60)
    told = ended.stdout + ended.stderr
    assert ended.returncode == 0, told
    return told


def _transaction(db, user):
    tr = db.create_transaction()
    if user != "anybody":
        tr.options.set_authorization_token(_token(user))
    return tr


def _retrying(db, user, body):
    """Runs body(tr) and commits; gives the error's number, or what the body gave."""
    tr = _transaction(db, user)
    while True:
        try:
            result = body(tr)
            tr.commit().wait()
            return None, result
        except fdb.FDBError as error:
            if error.code == DENIED:
                return DENIED, None
            tr.on_error(error).wait()


class Rights:
    """What somebody may: intervals of keys, each as a pair."""

    def __init__(self, intervals):
        self.intervals = intervals

    def covers(self, begin, end):
        """Whether all keys of a range are covered, by one interval or several in a row."""
        while begin < end:
            further = [high for low, high in self.intervals if low <= begin < high]
            if not further:
                return False
            begin = max(further)
        return True

    def has(self, key):
        return self.covers(key, key + b"\0")


def _grants():
    """Grants for both users: the shell's words, and what they come to."""
    words, may = {}, {}
    for user, subject in [("till", "token sub=till"), ("anybody", "anybody")]:
        reads, writes = [], []
        for _ in range(random.randrange(4)):
            if random.random() < 0.5:
                prefix = random.choice(LETTERS) + random.choice(["", *LETTERS])
                words_of, low = f"prefix {prefix}", prefix.encode()
                high = low[:-1] + bytes([low[-1] + 1])
            else:
                low, high = sorted(random.sample(KEYS, 2))
                words_of = f"range {low.decode()} {high.decode()}"
            role = random.choice(["reader", "writer"])
            # The same grant in other words is one.
            words.setdefault((role, subject, low, high), f"{role} {subject} {words_of}")
            reads.append((low, high))
            if role == "writer":
                writes.append((low, high))
        may[user] = Rights(reads), Rights(writes)
    return list(words.values()), may


def _value(future):
    return bytes(future) if future.present() else None


def _read(db, user, reads, model):
    kind = random.randrange(4)
    begin, end = sorted(random.choices(KEYS, k=2))
    if kind == 0:
        failed, value = _retrying(db, user, lambda tr: _value(tr[begin]))
        assert (failed is None) == reads.has(begin), (user, begin, failed)
        if failed is None:
            assert value == model.get(begin), (begin, value)
    elif kind == 1:
        reverse, limit = random.random() < 0.5, random.choice([0, 0, 2])
        failed, found = _retrying(
            db, user, lambda tr: [(bytes(row.key), bytes(row.value)) for row in tr.get_range(begin, end, limit=limit, reverse=reverse)])
        if begin == end:
            return
        rows = [(key, model[key]) for key in sorted(model) if begin <= key < end]
        rows = (rows[::-1] if reverse else rows)[: limit or None]
        # With a limit, what is read may be covered where the rest isn't.
        if reads.covers(begin, end):
            assert failed is None and found == rows, (user, begin, end, failed)
        elif not limit:
            assert failed == DENIED, (user, begin, end, found)
        for key, value in found or []:
            assert reads.has(key) and model[key] == value, (user, key)
    elif kind == 2:
        _follow(db, user, reads, model, begin)
    else:
        failed, watch = _retrying(db, user, lambda tr: tr.watch(begin))
        if failed is None and not reads.has(begin):
            try:
                watch.wait()
                raise AssertionError(f"{user} watches {begin}")
            except fdb.FDBError as error:
                assert error.code == DENIED, error
        elif failed is None:
            watch.cancel()
        else:
            assert not reads.has(begin), (user, begin)


def _follow(db, user, reads, model, begin):
    """A selector leads through keys that are covered, to the one that the model says, or is denied."""
    kind = random.choice(["first_greater_or_equal", "first_greater_than", "last_less_or_equal", "last_less_than"])
    # Between which keys it begins: before this one.
    place = begin + b"\0" if kind in ("first_greater_than", "last_less_or_equal") else begin
    if kind.startswith("first"):
        leads_to = min((key for key in model if key >= place), default=b"\xff")
        may = reads.covers(place, leads_to + b"\0")
    else:
        leads_to = max((key for key in model if key < place), default=b"")
        may = reads.covers(leads_to, place)
    selector = getattr(fdb.KeySelector, kind)(begin)
    failed, key = _retrying(db, user, lambda tr: bytes(tr.get_key(selector)))
    assert (failed is None) == may, (user, kind, begin, leads_to, failed)
    assert failed is not None or key == leads_to, (user, kind, begin, key, leads_to)


def _write(db, user, writes, reads, model):
    """A transaction of some writes: all of them, or none."""
    steps, after, is_covered = [], dict(model), True
    for _ in range(random.randrange(1, 4)):
        key, end = sorted(random.choices(KEYS, k=2))
        kind = random.choice(["set", "clear", "range", "add", "conflict"])
        value = le(random.randrange(1000))
        steps.append((kind, key, end, value))
        if kind == "range":
            is_covered &= writes.covers(key, end)
            for one in [one for one in after if key <= one < end]:
                del after[one]
        elif kind == "conflict":
            is_covered &= reads.has(key)
        else:
            is_covered &= writes.has(key)
            if kind == "set":
                after[key] = value
            elif kind == "clear":
                after.pop(key, None)
            else:
                after[key] = le(number(after.get(key, b"")) + number(value))

    def body(tr):
        for kind, key, end, value in steps:
            if kind == "set":
                tr[key] = value
            elif kind == "clear":
                del tr[key]
            elif kind == "range":
                del tr[key:end]
            elif kind == "add":
                tr.add(key, value)
            else:
                tr.add_read_conflict_key(key)

    failed, _ = _retrying(db, user, body)
    if all(kind == "conflict" or (kind == "range" and key == end) for kind, key, end, _ in steps):
        # Nothing was written, so nothing was sent.
        return model
    assert (failed is None) == is_covered, (user, steps, failed)
    return after if failed is None else model


@api(740)
def test_two_users_see_and_change_what_they_may_and_nothing_else(_):
    with _server() as cluster:
        db = another(cluster)
        _shell(cluster, "grant operator token sub=admin")
        # Until a server has heard that there are rights, everybody may everything.
        _until(lambda: _retrying(db, "anybody", lambda tr: _value(tr[b"a"]))[0] == DENIED)
        before, model, denied = [], {}, 0
        for program in range(6):
            words, may = _grants()
            changes = [f"revoke {one}" for one in before] + [f"grant {one}" for one in words]
            before = words
            # The newest grant shows that all are known: one after the other, they are rows of one version each.
            mark = f"m{program}"
            _shell(cluster, "; ".join(changes + [f"grant reader anybody prefix {mark}"]))
            _until(lambda: _retrying(db, "anybody", lambda tr: _value(tr[mark.encode()]))[0] is None)
            for _ in range(300):
                user = random.choice(["till", "anybody"])
                reads, writes = may[user]
                if user == "till":
                    # What anybody may a token's bearer may as well.
                    both = may["anybody"]
                    reads, writes = Rights(reads.intervals + both[0].intervals), Rights(writes.intervals + both[1].intervals)
                if random.random() < 0.5:
                    _read(db, user, reads, model)
                else:
                    steps = _write(db, user, writes, reads, model)
                    denied += steps is model
                    model = steps
            failed, found = _retrying(
                db, "admin", lambda tr: {bytes(row.key): bytes(row.value) for row in tr.get_range(b"", b"\xff")})
            assert failed is None and found == model
            # The operator's own rows, so that there is something to be seen everywhere.
            rows = {key: le(random.randrange(1000)) for key in random.sample(KEYS, 8)}

            def fill(tr):
                for key, value in rows.items():
                    tr[key] = value

            assert _retrying(db, "admin", fill)[0] is None
            model.update(rows)
        assert denied > 50, denied
