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


def main():
    module, api, target, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    fdb.api_version(api)
    db = fdb.open(target)
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
        random.seed(seed)
        del db[b"":b"\xff"]
        try:
            test(db)
        except Exception:
            traceback.print_exc()
            print(f"{label} ... FAILED, PLINTH_SEED={seed}", flush=True)
            failed += 1
        else:
            print(f"{label} ... ok", flush=True)
            passed += 1
    print(f"counts {passed} {failed}", flush=True)


main()
