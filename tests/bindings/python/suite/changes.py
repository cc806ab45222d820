"""Change data capture of FoundationDB 8: streams, consumers, positions."""
import fdb
from support import api, fails, fill, le


def fold(store, result):
    """Applies what was consumed to a dictionary."""
    kinds = fdb.CdcMutationType
    for group in result.mutations:
        assert group.version <= result.last_consumed_version
        for kind, param1, param2 in group.mutations:
            if kind == kinds.SET_VALUE:
                store[param1] = param2
            elif kind == kinds.CLEAR_RANGE:
                for key in [key for key in store if param1 <= key < param2]:
                    del store[key]
            elif kind == kinds.ADD:
                old = int.from_bytes(store.get(param1, b""), "little")
                store[param1] = le(old + int.from_bytes(param2, "little"), len(param2))
            else:
                raise AssertionError(f"mutation {kind}")


def consume_until(consumer, store, done):
    while not done(store):
        fold(store, consumer.consume().wait())


@api(800)
def test_a_stream_is_the_database(db):
    stream = db.register_cdc_stream(b"all", b"order/", b"order0").wait()
    assert stream == db.register_cdc_stream(b"all", b"order/", b"order0").wait()
    with fails(2000):
        db.register_cdc_stream(b"all", b"order/", b"orderx").wait()
    with db.create_cdc_consumer(b"all").wait() as consumer:
        store = {}
        fill(db, [(b"order/%d" % n, b"%d" % n) for n in range(20)] + [(b"other", b"1")])
        db.add(b"order/sum", le(5))
        db.add(b"order/sum", le(7))
        db.clear_range(b"order/1", b"p")
        db.add(b"order/sum", le(9))

        @fdb.transactional
        def stamp(tr):
            tr.set_versionstamped_key(b"order/" + b"\0" * 10 + le(6, 4), b"stamped")

        stamp(db)
        consume_until(consumer, store, lambda store: b"stamped" in store.values())
        assert store == {bytes(key): bytes(value) for key, value in db[b"order/":b"order0"]}
        position = consumer.get_position()
        assert position.stream_id == stream and position.last_consumed_version > 0
        consumer.acknowledge().wait()
    listed = {info.name: info for info in db.list_cdc_streams().wait()}
    assert listed[b"all"].min_version == position.last_consumed_version + 1
    assert (listed[b"all"].begin_key, listed[b"all"].end_key) == (b"order/", b"order0")
    db.remove_cdc_stream(b"all").wait()
    with fails(2000):
        db.create_cdc_consumer(b"all").wait()


@api(800)
def test_a_consumer_goes_on_from_its_position(db):
    ranges = [(b"c", b"d"), (b"a", b"b"), (b"c5", b"e")]
    stream = db.register_cdc_stream(b"parts", ranges=ranges).wait()
    parts = [info for info in db.list_cdc_streams().wait() if info.name == b"parts"][0]
    assert [tuple(part) for part in parts.ranges] == [(b"a", b"b"), (b"c", b"e")]
    consumer = db.create_cdc_consumer(b"parts").wait()
    store = {}
    fill(db, [(b"a1", b"1"), (b"b1", b"no"), (b"d1", b"2")])
    consume_until(consumer, store, lambda store: b"d1" in store)
    assert store == {b"a1": b"1", b"d1": b"2"}
    position = consumer.get_position()
    fill(db, [(b"c1", b"3")])
    with db.resume_cdc_consumer(position).wait() as resumed:
        consume_until(resumed, store, lambda store: b"c1" in store)
        resumed.acknowledge().wait()
    with db.resume_cdc_consumer(position).wait() as behind, fails(1007):
        behind.consume().wait()
    ordered = db.register_cdc_stream(b"ordered", b"", b"\xff", split_points=[b"m"]).wait()
    assert ordered > stream
    for name in (b"parts", b"ordered"):
        db.remove_cdc_stream(name).wait()
    with fails(2000):
        consumer.consume().wait()
    consumer.close()
