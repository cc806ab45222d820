"""A stack machine with a random program, run on the binding and on a model of it; both must leave the same stack and database.

A program is a list of instructions (name, argument). Instructions take what they need from the stack, where keys and
values are bytes and small numbers are pushed as instructions' arguments, and leave their result there; an error leaves its
number. The model holds a transaction as a copy of the committed data with the transaction's writes in it. Using a
transaction after its commit is an error, after which not even `on_error` revives it.
"""
import random

import fdb

MODES = [-2, -1, 1, 2, 3, 4]


class Model:
    def __init__(self):
        self.data = {}

    def begin(self):
        return ModelTransaction(self)


class ModelTransaction:
    def __init__(self, model):
        self.model = model
        self.reset()

    def reset(self):
        self.view, self.writes, self.committed = None, [], False
        self.misused = False

    def _start(self):
        if self.view is None:
            self.view = dict(self.model.data)
            for write in self.writes:
                _apply(self.view, write)

    def check(self):
        if self.committed:
            self.misused = True
            raise fdb.FDBError(2017)

    def write(self, *write):
        if self.committed:
            self.misused = True
            return  # an error that the next read tells, which fails anyway
        self.writes.append(write)
        if self.view is not None:
            _apply(self.view, write)

    def get(self, key):
        self.check()
        self._start()
        return self.view.get(key)

    def keys(self):
        self._start()
        return sorted(self.view)

    def commit(self):
        self.check()
        self.committed = True
        for write in self.writes:
            _apply(self.model.data, write)


def _apply(data, write):
    name, key, operand = write
    if name == "set":
        data[key] = operand
    elif name == "clear":
        data.pop(key, None)
    elif name == "clear_range":
        for other in [other for other in data if key <= other < operand]:
            del data[other]
    else:
        from atomics import OPERATIONS

        value = OPERATIONS[name](data.get(key), operand)
        if value is None:
            data.pop(key, None)
        else:
            data[key] = value


class Machine:
    """Runs a program; `real` says on what."""

    def __init__(self, database, real):
        self.database, self.real, self.stack = database, real, []
        self.new()

    def new(self):
        self.tr = self.database.create_transaction() if self.real else self.database.begin()

    def run(self, program):
        for name, argument in program:
            try:
                getattr(self, "do_" + name)(argument)
            except fdb.FDBError as error:
                self.stack.append(b"ERROR %d" % error.code)

    def pop(self):
        return self.stack.pop() if self.stack else b""

    def do_push(self, argument):
        self.stack.append(argument)

    def do_dup(self, _):
        self.stack.append(self.stack[-1] if self.stack else b"")

    def do_swap(self, depth):
        if depth < len(self.stack):
            at = len(self.stack) - 1 - depth
            self.stack[at], self.stack[-1] = self.stack[-1], self.stack[at]

    def do_concat(self, _):
        self.stack.append((self.pop() + self.pop())[:40])

    def do_set(self, _):
        key, value = self.pop(), self.pop()
        self.tr.set(key, value) if self.real else self.tr.write("set", key, value)

    def do_clear(self, _):
        key = self.pop()
        self.tr.clear(key) if self.real else self.tr.write("clear", key, None)

    def do_clear_range(self, _):
        begin, end = sorted((self.pop(), self.pop()))
        self.tr.clear_range(begin, end) if self.real else self.tr.write("clear_range", begin, end)

    def do_atomic(self, name):
        key, operand = self.pop(), self.pop()
        getattr(self.tr, name)(key, operand) if self.real else self.tr.write(name, key, operand)

    def do_get(self, snapshot):
        key = self.pop()
        if self.real:
            value = (self.tr.snapshot if snapshot else self.tr)[key]
            value = bytes(value) if value.present() else None
        else:
            value = self.tr.get(key)
        self.stack.append(b"NONE" if value is None else value)

    def do_get_key(self, argument):
        or_equal, offset, snapshot = argument
        key = self.pop()
        if self.real:
            reader = self.tr.snapshot if snapshot else self.tr
            found = bytes(reader.get_key(fdb.KeySelector(key, or_equal, offset)))
        else:
            self.tr.check()
            keys = self.tr.keys()
            before = sum(1 for other in keys if (other <= key if or_equal else other < key))
            at = before + offset - 1
            found = b"" if at < 0 else b"\xff" if at >= len(keys) else keys[at]
        self.stack.append(found)

    def do_get_range(self, argument):
        limit, reverse, mode, snapshot = argument
        begin, end = sorted((self.pop(), self.pop()))
        if self.real:
            reader = self.tr.snapshot if snapshot else self.tr
            found = [(bytes(r.key), bytes(r.value)) for r in reader.get_range(begin, end, limit, reverse, mode)]
        else:
            self.tr.check()
            self.tr._start()
            found = [(key, self.tr.view[key]) for key in self.tr.keys() if begin <= key < end]
            found = (found[::-1] if reverse else found)[: limit or None]
        self.stack.append(fdb.tuple.pack(tuple(part for row in found for part in row)))

    def do_commit(self, _):
        if self.real:
            self.tr.commit().wait()
        else:
            self.tr.commit()

    def do_reset(self, _):
        self.tr.reset()

    def do_new(self, _):
        self.new()

    def do_on_error(self, code):
        if self.real:
            self.tr.options.set_max_retry_delay(0)
            self.tr.on_error(code).wait()
        elif self.tr.misused:
            raise fdb.FDBError(2017)
        else:
            self.tr.reset()


def _random_key():
    return bytes(random.choices(b"\x00ab\xfe", k=random.randint(0, 3)))


def _program(length):
    from atomics import OPERATIONS

    steps = {
        "push": (10, lambda: _random_key()),
        "dup": (1, lambda: None),
        "swap": (1, lambda: random.randint(0, 5)),
        "concat": (1, lambda: None),
        "set": (8, lambda: None),
        "clear": (2, lambda: None),
        "clear_range": (1, lambda: None),
        "atomic": (4, lambda: random.choice(sorted(OPERATIONS))),
        "get": (5, lambda: random.random() < 0.4),
        "get_key": (4, lambda: (random.random() < 0.5, random.randint(-6, 6), random.random() < 0.4)),
        "get_range": (
            4,
            lambda: (random.choice([0, 0, 1, 2, 5]), random.random() < 0.5, random.choice(MODES), random.random() < 0.4),
        ),
        "commit": (1.5, lambda: None),
        "reset": (1, lambda: None),
        "new": (0.7, lambda: None),
        "on_error": (0.5, lambda: random.choice([1007, 1020, 1021])),
    }
    names = list(steps)
    for name in random.choices(names, [steps[name][0] for name in names], k=length):
        if name in ("set", "clear_range", "atomic", "get_range"):
            yield "push", _random_key()
            # An operand of an atomic operation must not be empty where an empty one means another thing.
            yield "push", _random_key() or b"a"
        if name in ("get", "get_key", "clear"):
            yield "push", _random_key()
        yield name, steps[name][1]()


def test_random_programs(db):
    for _ in range(30):
        del db[b"":b"\xff"]
        program = list(_program(300))
        real, model = Machine(db, True), Machine(Model(), False)
        for at, step in enumerate(program):
            real.run([step])
            model.run([step])
            assert real.stack[-3:] == model.stack[-3:], f"step {at}, {step}: {real.stack[-3:]}, not {model.stack[-3:]}"
        kept = [(bytes(row.key), bytes(row.value)) for row in db.get_range(b"", b"\xff")]
        assert kept == sorted(model.database.data.items())
