"""System keys, special keys, locality, tenants."""
import json

import fdb
from support import api, fails, rows


def test_system_keys_need_access(db):
    tr = db.create_transaction()
    with fails(2004):
        tr[b"\xff/conf/x"].wait()
    tr.reset()
    tr.options.set_read_system_keys()
    tr[b"\xff/conf/x"].wait()
    tr[b"\xff/mine"] = b"1"
    with fails(2004):
        tr.commit().wait()
    tr.reset()
    tr.options.set_access_system_keys()
    tr[b"\xff/mine"] = b"1"
    tr.commit().wait()
    tr.reset()
    tr.options.set_read_system_keys()
    assert tr[b"\xff/mine"] == b"1"


def test_metadata_version(db):
    @fdb.transactional
    def change(tr):
        tr.set_versionstamped_value(b"\xff/metadataVersion", b"\0" * 14)

    change(db)
    first = bytes(db[b"\xff/metadataVersion"])
    change(db)
    assert len(first) == 10 and bytes(db[b"\xff/metadataVersion"]) > first


def test_special_keys(db):
    status = json.loads(bytes(db[b"\xff\xff/status/json"]))
    assert "cluster" in status and "client" in status
    assert db[b"\xff\xff/cluster_file_path"] is not None
    assert db[b"\xff\xff/connection_string"] is not None
    tr = db.create_transaction()
    tr[b"r"].wait()
    tr[b"w"] = b""
    for kind, key in ((b"read", b"r"), (b"write", b"w")):
        prefix = b"\xff\xff/transaction/" + kind + b"_conflict_range/"
        found = [(k[len(prefix):], v) for k, v in rows(tr.get_range(prefix, prefix + b"\xff"))]
        assert found == [(key, b"1"), (key + b"\0", b"0")], found
    with fails(2113):
        tr[b"\xff\xff/no/such/module"].wait()
    with fails(2112):
        list(tr.get_range(b"\xff\xff/metrics/", b"\xff\xff/transaction0"))
    tr[b"\xff\xff/management/tenant/map/x"] = b""
    with fails(2114):
        tr.commit().wait()


def test_locality(db):
    keys = list(fdb.locality.get_boundary_keys(db, b"", b"\xff"))
    assert keys and keys[0] == b""
    tr = db.create_transaction()
    addresses = fdb.locality.get_addresses_for_key(tr, b"k").wait()
    assert len(addresses) >= 1 and b":" in addresses[0]


@api(0, 740)
def test_tenants(db):
    with fails(2131):
        db.open_tenant(b"none")[b"k"].wait()
    for name in (b"one", b"two"):
        fdb.tenant_management.create_tenant(db, name)
    one, two = db.open_tenant(b"one"), db.open_tenant(b"two")
    one[b"k"] = b"1"
    two[b"k"] = b"2"
    assert one[b"k"] == b"1" and two[b"k"] == b"2" and db[b"k"] is None
    assert [key for key, _ in rows(one.get_range(b"", b"\xff"))] == [b"k"]
    assert one.get_id().wait() != two.get_id().wait()
    with fails(2132):
        fdb.tenant_management.create_tenant(db, b"one")
    with fails(2133):
        fdb.tenant_management.delete_tenant(db, b"one")
    for name, tenant in ((b"one", one), (b"two", two)):
        del tenant[b"k"]
        fdb.tenant_management.delete_tenant(db, name)
    with fails(2134):
        db.open_tenant(b"\xff")
