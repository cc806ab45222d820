"""Runs the suite: every test on a store in memory and on one in a directory, and those that need a process of their own.

An API version is selected once for a process, so each version gets its own; within one, tests share the database and find
it empty. The oldest package goes through all of it, newer ones through what their own API version may change. What is
printed has the form of cargo's tests, so that the same program adds both up. PLINTH_TARGET takes the place of the store in
memory; then what needs stores of its own is left out. On a cluster only what shows there is run; with PLINTH_ALL the rest too.
"""
import os
import subprocess
import sys
import tempfile

from fdb.apiversion import LATEST_API_VERSION

HERE = os.path.dirname(os.path.abspath(__file__))
GENERAL = ["transactions", "ranges", "atomics", "conflicts", "waiting", "keys", "layers", "machine"]
# By the package's newest API version: API version, target, modules.
PLANS = {
    730: [
        (730, ":memory:", GENERAL),
        (730, "directory", GENERAL),
        (710, ":memory:", ["transactions", "layers", "machine"]),
        (620, ":memory:", ["atomics", "layers", "machine"]),
        (510, ":memory:", ["atomics", "layers", "machine"]),
        (730, ":memory:", ["processes"]),
    ],
    740: [(740, ":memory:", GENERAL + ["processes"])],
    800: [(800, ":memory:", GENERAL + ["changes", "processes", "rights"]), (800, "directory", ["changes"])],
}


def plan():
    given = os.environ.get("PLINTH_TARGET", ":memory:")
    if os.environ.get("PLINTH_SERVERS"):
        # Of a cluster what only a cluster has, and, while its servers are killed, what only then shows.
        killed = os.environ.get("PLINTH_KILL_SECONDS")
        yield LATEST_API_VERSION, given, ["failovers"] if killed else ["members"]
        if not os.environ.get("PLINTH_ALL"):
            return
    for api, target, modules in PLANS[LATEST_API_VERSION]:
        if given == ":memory:":
            yield api, target, modules
        elif target == ":memory:":
            yield api, given, [module for module in modules if module != "processes"]


def main():
    sys.stdout.reconfigure(line_buffering=True)
    wanted = sys.argv[1:]
    passed = failed = 0
    for api, target, modules in plan():
        with tempfile.TemporaryDirectory(prefix="plinth-python-") as directory:
            where = os.path.join(directory, "data") if target == "directory" else target
            for module in modules:
                command = [sys.executable, os.path.join(HERE, "worker.py"), module, str(api), where, *wanted]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                ended = False
                for line in process.stdout:
                    if line.startswith("counts "):
                        ok, bad = map(int, line.split()[1:])
                        passed, failed, ended = passed + ok, failed + bad, True
                    else:
                        print(line, end="")
                status = process.wait()
                if not ended or status != 0:
                    print(f"test {module} (api {api}, {target}) ... FAILED: the process ended with {status}")
                    failed += 1
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored")
    sys.exit(1 if failed else 0)


main()
