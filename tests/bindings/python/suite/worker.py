"""Runs the tests of one module at one API version on one target: worker.py MODULE API TARGET [NAME...].

A test is a function whose name begins with `test_`; it is given the database, empty. A test for other API versions says
so by `@api(lowest, highest)` of `support`.
"""
import importlib
import os
import random
import sys
import traceback

import fdb


# What transactions outside of loops of retries meet with when somebody else leads: versions have gone on.
PASSING = {1007, 1021}


def fresh(test, db, seed):
    random.seed(seed)
    del db[b"":b"\xff"]
    test(db)


def again(attempt):
    """A loop of retries around a whole test, where servers are killed."""
    for _ in range(5 if os.environ.get("PLINTH_KILL_SECONDS") else 0):
        try:
            return attempt()
        except fdb.FDBError as error:
            if error.code not in PASSING:
                raise
    return attempt()


def main():
    module, api, target, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    fdb.api_version(api)
    db = fdb.open(target)
    if os.environ.get("PLINTH_KILL_SECONDS"):
        # Outside of loops of retries a commit ends with 1021, unless it can be found out what became of it.
        db.options.set_transaction_automatic_idempotency()
    seed = int(os.environ.get("PLINTH_SEED", random.randrange(1 << 32)))
    tests = importlib.import_module(module)
    passed = failed = 0
    for name, test in list(vars(tests).items()):
        if not name.startswith("test_") or not callable(test):
            continue
        low, high = getattr(test, "api", (0, 10_000))
        if not low <= api <= high or (wanted and not any(part in name for part in wanted)):
            continue
        label = f"test {module}::{name} (api {api}, {'memory' if target == ':memory:' else 'server' if target.endswith('.cluster') else 'directory'})"
        try:
            again(lambda: fresh(test, db, seed))
        except Exception:
            traceback.print_exc()
            print(f"{label} ... FAILED, PLINTH_SEED={seed}", flush=True)
            failed += 1
        else:
            print(f"{label} ... ok", flush=True)
            passed += 1
    print(f"counts {passed} {failed}", flush=True)


main()
