"""Nanoseconds of processor time of a `get` in a warm transaction through the official package: get.py ROUNDS, on the library that the loader finds."""
import sys
import time

import fdb

fdb.api_version(730)
db = fdb.open(":memory:")
KEYS = [b"key%013d" % i for i in range(1000)]
for begin in range(0, 1000, 100):
    tr = db.create_transaction()
    for key in KEYS[begin : begin + 100]:
        tr[key] = b"v" * 100
    tr.commit().wait()
best = float("inf")
for _ in range(int(sys.argv[1])):
    tr = db.create_transaction()
    bytes(tr.snapshot[KEYS[0]])
    begun = time.thread_time_ns()
    for key in KEYS:
        bytes(tr.snapshot[key])
    best = min(best, (time.thread_time_ns() - begun) / len(KEYS))
print(f"{best:.0f}")
