"""Runs test_plinth.py with pytest, and prints what came of it as cargo does."""
import os
import sys
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


class Counts:
    """Counts and names tests as they end."""

    passed = failed = skipped = 0

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.rsplit("::", 1)[-1]
        if report.failed:
            self.failed += 1
            print(f"\n{report.longreprtext}\ntest {name} ... FAILED")
        elif report.skipped:
            self.skipped += 1
            print(f"\ntest {name} ... ignored")
        elif report.when == "call":
            self.passed += 1
            print(f"\ntest {name} ... ok")


def main():
    counts = Counts()
    arguments = ["-q", "-p", "no:cacheprovider", "--capture=no", "--no-summary", "--no-header"]
    if sys.argv[1:]:
        arguments += ["-k", " or ".join(sys.argv[1:])]
    status = pytest.main(arguments + [os.path.join(HERE, "test_plinth.py")], plugins=[counts])
    import plinth

    begun = time.perf_counter()
    kept = [plinth.open() for _ in range(50)]
    print(f"\nan empty database: {(time.perf_counter() - begun) / len(kept) * 1000:.2f} ms")
    failed = counts.failed or int(status != 0)
    verdict = "FAILED" if failed else "ok"
    print(f"test result: {verdict}. {counts.passed} passed; {failed} failed; {counts.skipped} ignored")
    sys.exit(1 if failed else 0)


main()
