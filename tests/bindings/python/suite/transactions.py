"""Life of a transaction: commit, reset, cancel, retries, sizes, versions, deferred errors."""
import os
import time

import fdb
from support import another, api, fails, fill, in_threads


def test_what_is_set_is_there(db):
    db[b"a"] = b"1"
    assert db[b"a"] == b"1"
    assert db[b"b"] is None
    del db[b"a"]
    assert db[b"a"] is None
    db[b"empty"] = b""
    assert db[b"empty"] is not None and db[b"empty"] == b""
    db[b""] = b"the empty key"
    assert db[b""] == b"the empty key"


def test_reads_see_own_writes_and_others_only_after_commit(db):
    tr, other = db.create_transaction(), db.create_transaction()
    tr[b"k"] = b"mine"
    assert tr[b"k"] == b"mine" and tr.snapshot[b"k"] == b"mine"
    assert not other[b"k"].present()
    tr.commit().wait()
    assert not other[b"k"].present(), "a transaction reads at one version"
    assert db[b"k"] == b"mine"


def test_retry_loop_counts_every_increment(db):
    @fdb.transactional
    def increment(tr):
        value = tr[b"n"]
        tr[b"n"] = b"%d" % (int(bytes(value)) + 1 if value.present() else 1)

    in_threads(8, lambda i: [increment(db) for _ in range(25)])
    assert db[b"n"] == b"200"


def test_committed_version_and_versionstamp(db):
    tr = db.create_transaction()
    tr[b"a"] = b"1"
    stamp = tr.get_versionstamp()
    tr.commit().wait()
    version = tr.get_committed_version()
    assert version > 0
    assert int.from_bytes(bytes(stamp.wait())[:8], "big") == version
    after = db.create_transaction()
    assert after.get_read_version().wait() >= version


def pinned_with(db, key, value):
    """A transaction on a pinned snapshot that has this row: with the engine `ssd` one has it some seconds after its commit."""
    until = time.monotonic() + 60
    while True:
        pinned = db.create_transaction()
        pinned._set_option(3000, None, 0)
        if pinned[key] == value:
            return pinned
        assert time.monotonic() < until, f"after a minute {pinned[key]} is pinned"
        pinned.reset()
        time.sleep(0.1)


@api(710)
def test_a_pinned_snapshot_is_read_beyond_the_window(db):
    engine = os.environ.get("PLINTH_ENGINE", "memory")
    assert f'"storage_engine":"{engine}"'.encode() in bytes(db[b"\xff\xff/status/json"]), "not on this engine"
    db[b"k"] = b"before"
    pinned = pinned_with(db, b"k", b"before")
    other = db.create_transaction()
    version = other.get_read_version().wait()
    # Ten seconds on, at once.
    mover = db.create_transaction()
    mover.options.set_special_key_space_enable_writes()
    mover[b"\xff\xff/management/min_required_commit_version"] = b"%d" % (version + 10_000_000)
    mover.commit().wait()
    db[b"k"] = b"after"
    with fails(1007):
        other[b"k"].wait()
    assert pinned[b"k"] == b"before" and [row.value for row in pinned[b"k":b"l"]] == [b"before"]
    assert db[b"k"] == b"after"
    pinned[b"k"] = b"mine"
    with fails(2023):
        pinned.commit().wait()
    pinned.reset()
    assert pinned[b"k"] == b"after"


def test_a_transaction_that_only_reads_has_no_version(db):
    tr = db.create_transaction()
    tr[b"a"].wait()
    stamp = tr.get_versionstamp()
    tr.commit().wait()
    assert tr.get_committed_version() == -1
    with fails(2021):
        stamp.wait()


def test_versions_of_the_past_and_the_future(db):
    tr = db.create_transaction()
    tr.set_read_version(1 << 60)
    with fails(1009):
        tr[b"a"].wait()
    tr.reset()
    tr.set_read_version(0)
    with fails(2011):
        tr[b"a"].wait()
    tr.reset()
    tr.set_read_version(5)
    tr.set_read_version(6)
    with fails(2010):
        tr[b"a"].wait()


def test_set_read_version_reads_the_past(db):
    db[b"a"] = b"old"
    tr = db.create_transaction()
    version = tr.get_read_version().wait()
    db[b"a"] = b"new"
    old = db.create_transaction()
    old.set_read_version(version)
    assert old[b"a"] == b"old"


def test_after_commit_only_reset_helps(db):
    tr = db.create_transaction()
    tr[b"a"] = b"1"
    tr.commit().wait()
    with fails(2017):
        tr[b"a"].wait()
    tr.reset()
    assert tr[b"a"] == b"1"


def test_cancel_ends_everything_until_reset(db):
    tr = db.create_transaction()
    tr[b"a"] = b"1"
    watch = tr.watch(b"a")
    tr.cancel()
    for operation in (lambda: tr[b"a"], tr.commit, tr.get_read_version, lambda: watch, lambda: tr.on_error(1020)):
        with fails(1025):
            operation().wait()
    tr.reset()
    assert not tr[b"a"].present()


def test_deferred_errors_come_with_the_next_operation(db):
    for misuse, code in (
        (lambda tr: tr.set(b"\xff/x", b""), 2004),
        (lambda tr: tr.set(b"k" * 10_001, b""), 2102),
        (lambda tr: tr.set(b"k", b"v" * 100_001), 2103),
        (lambda tr: tr.clear_range(b"b", b"a"), 2005),
        (lambda tr: tr.options.set_timeout(-1), 2006),
        (lambda tr: tr.options.set_size_limit(1), 2006),
    ):
        tr = db.create_transaction()
        misuse(tr)
        with fails(code):
            tr[b"a"].wait()
        with fails(code):
            tr.commit().wait()
        tr.reset()
        assert not tr[b"a"].present()


def test_sizes(db):
    tr = db.create_transaction()
    small = tr.get_approximate_size().wait()
    tr[b"k"] = b"v" * 1000
    assert tr.get_approximate_size().wait() >= small + 1000
    tr.options.set_size_limit(500)
    with fails(2101):
        tr.commit().wait()
    fill(db, [(b"k" * 10_000, b"v" * 100_000)])
    assert len(bytes(db[b"k" * 10_000])) == 100_000
    tr = db.create_transaction()
    for i in range(101):
        tr[b"%03d" % i] = b"v" * 100_000
    with fails(2101):
        tr.commit().wait()


def test_on_error_knows_what_to_retry(db):
    for code in (1007, 1009, 1020, 1021, 1037, 1038, 1051, 1213):
        tr = db.create_transaction()
        tr[b"a"] = b"1"
        tr.options.set_max_retry_delay(10)
        tr.on_error(code).wait()
        assert not tr[b"a"].present(), "a retry begins with nothing"
    for code in (1025, 1031, 2000, 2004, 2017, 4100, 1234):
        tr = db.create_transaction()
        with fails(code):
            tr.on_error(code).wait()
        with fails(1025):
            tr[b"a"].wait()
    with fails(2000):
        db.create_transaction().on_error(0).wait()


def test_retry_limit(db):
    tr = db.create_transaction()
    tr.options.set_retry_limit(2)
    tr.options.set_max_retry_delay(1)
    tr.on_error(1020).wait()
    tr.on_error(1020).wait()
    with fails(1020):
        tr.on_error(1020).wait()
    with fails(1025):
        tr[b"a"].wait()


def test_predicates(db):
    predicate = fdb.predicates
    for code, retryable, maybe, not_committed in (
        (1020, True, False, True),
        (1021, True, True, False),
        (1039, True, True, False),
        (1007, True, False, True),
        (1025, False, False, False),
        (1031, False, False, False),
        (2101, False, False, False),
        (0, False, False, False),
        (99_999, False, False, False),
    ):
        error = fdb.FDBError(code)
        assert bool(predicate.is_retryable(error)) == retryable, code
        assert bool(predicate.is_maybe_committed(error)) == maybe, code
        assert bool(predicate.is_retryable_not_committed(error)) == not_committed, code


def test_options_are_accepted(db):
    tr = db.create_transaction()
    for name in (
        "causal_read_risky causal_write_risky causal_read_disable priority_batch priority_system_immediate lock_aware "
        "read_lock_aware snapshot_ryw_disable snapshot_ryw_enable read_ahead_disable report_conflicting_keys "
        "special_key_space_relaxed first_in_batch used_during_commit_protection_disable include_port_in_address "
        "expensive_clear_cost_estimation_enable access_system_keys read_system_keys durability_risky"
    ).split():
        option = getattr(tr.options, "set_" + name, None)
        if option is not None:
            option()
    tr.options.set_retry_limit(50)
    tr.options.set_max_retry_delay(100)
    tr.options.set_timeout(60_000)
    tr.options.set_debug_transaction_identifier("name")
    tr.options.set_log_transaction()
    tr.options.set_transaction_logging_max_field_length(-1)
    tr[b"a"] = b"1"
    tr.commit().wait()
    db.options.set_location_cache_size(100_001)
    db.options.set_max_watches(100_001)
    db.options.set_datacenter_id("dc")
    db.options.set_machine_id("machine")
    db.options.set_snapshot_ryw_enable()
    db.options.set_snapshot_ryw_disable()


def test_unknown_options_and_bad_values(db):
    tr = db.create_transaction()
    with fails(2007):
        tr.options._parent._set_option(12_345, None, 0)
    with fails(2007):
        db.options._parent._set_option(12_345, None, 0)
    with fails(2006):
        db.options._parent._set_option(20, b"1234", 4)
    with fails(2006):
        db.options.set_max_watches(1_000_001)


@api(610)
def test_defaults_of_the_database_hold_for_its_transactions(db):
    db = another()
    db.options.set_transaction_size_limit(200)
    tr = db.create_transaction()
    tr[b"k"] = b"v" * 300
    with fails(2101):
        tr.commit().wait()
    tr = db.create_transaction()
    tr.options.set_size_limit(10_000)
    tr[b"k"] = b"v" * 300
    tr.commit().wait()
    db.options.set_transaction_retry_limit(0)
    tr = db.create_transaction()
    with fails(1020):
        tr.on_error(1020).wait()


def test_client_status(db):
    import json

    status = json.loads(db.get_client_status()) if hasattr(db, "get_client_status") else {"Healthy": True}
    assert status["Healthy"] is True
