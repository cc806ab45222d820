//! Tenants see their part of the key space as the whole; mapped range reads follow an index.
//!
//! Each test runs on a database that answers at once and on one that answers later, in random
//! order: a tenant may be known before its transaction's first read, or long after.

mod support;

use plinth_client::{
    Database, Error, KeySelector, Mapped, RangeOptions, Tenant, Transaction, TransactionOption,
};
use support::{StandIn, stand_in};

fn tenant_key(name: &str) -> Vec<u8> {
    [b"\xff\xff/management/tenant/map/", name.as_bytes()].concat()
}

/// Writes to the special keys by which tenants are managed.
fn manage(db: &Database, f: &dyn Fn(&Transaction)) -> Result<(), Error> {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    f(&tr);
    tr.commit().wait()
}

/// Three keys, and one with a versionstamp.
fn fill(tenant: &Tenant, value: &str) {
    tenant
        .transact_blocking(|tr| {
            for key in ["k1", "k2", "k3"] {
                tr.set(key, value);
            }
            tr.set_versionstamped_key([&b"v"[..], &[0; 10], &1u32.to_le_bytes()].concat(), value);
            Ok(())
        })
        .unwrap();
}

#[test]
fn tenants_are_made_used_renamed_and_removed() {
    for delayed in [false, true] {
        let (endpoint, db) = StandIn::new(delayed, 8);
        let manage = |f: &dyn Fn(&Transaction)| manage(&db, f);
        manage(&|tr| {
            tr.set(tenant_key("a"), "");
            tr.set(tenant_key("b"), "");
        })
        .unwrap();
        let (a, b) = (db.open_tenant("a").wait().unwrap(), db.open_tenant("b").wait().unwrap());
        assert_ne!(a.id(), b.id());
        assert_eq!(db.open_tenant("c").wait().unwrap_err(), Error::tenant_not_found());
        assert_eq!(db.open_tenant(b"\xff").wait().unwrap_err(), Error::invalid_tenant_name());
        for (tenant, value) in [(&a, "of a"), (&b, "of b")] {
            fill(tenant, value);
        }
        let tr = a.create_transaction();
        tr.set("k15", "own");
        tr.clear("k3");
        let found = tr.range(..).collect_blocking().unwrap();
        let keys: Vec<&[u8]> = found.iter().map(|row| &row.key[..row.key.len().min(3)]).collect();
        assert_eq!(keys[..3], [&b"k1"[..], b"k15", b"k2"]);
        assert!(keys[3].starts_with(b"v") && keys.len() == 4);
        assert_eq!(tr.get("k1").wait().unwrap().unwrap(), "of a");
        // Selectors don't lead out of the tenant.
        assert_eq!(tr.get_key(KeySelector::last_less_than("k1")).wait().unwrap(), "");
        assert_eq!(
            tr.get_key(KeySelector::first_greater_than("w").shifted(3)).wait().unwrap(),
            &b"\xff"[..]
        );
        tr.commit().wait().unwrap();
        let last = endpoint.lock().commits.last().unwrap().clone();
        let prefix = a.id().to_be_bytes();
        assert!(last.mutations.iter().all(|mutation| mutation.param1.starts_with(&prefix)));
        assert!(last.conflicts.writes.iter().all(|range| range.begin.starts_with(&prefix)));
        let tr = a.create_transaction();
        assert_eq!(
            tr.set_option(TransactionOption::AccessSystemKeys).unwrap_err(),
            Error::invalid_option()
        );
        // A tenant that has data is not removed.
        assert_eq!(manage(&|tr| tr.clear(tenant_key("a"))).unwrap_err(), Error::tenant_not_empty());
        a.transact_blocking(|tr| {
            tr.clear_range("", b"\xff");
            Ok(())
        })
        .unwrap();
        manage(&|tr| tr.clear(tenant_key("a"))).unwrap();
        manage(&|tr| tr.set([&b"\xff\xff/management/tenant/rename/"[..], b"b"].concat(), "bb"))
            .unwrap();
        let tr = db.create_transaction();
        let found =
            tr.get_range(RangeOptions::prefix(b"\xff\xff/management/tenant/map/")).wait().unwrap();
        let (key, json) = found.rows.row(0).unwrap();
        assert_eq!((found.rows.len(), key), (1, &tenant_key("bb")[..]));
        assert!(json.starts_with(br#"{"id":1,"#), "{json:?}");
        // A clear of all names is what bindings' tests begin with.
        let all = (tenant_key(""), b"\xff\xff/management/tenant/map0".to_vec());
        assert_eq!(
            manage(&|tr| tr.clear_range(&all.0, &all.1)).unwrap_err(),
            Error::tenant_not_empty()
        );
    }
}

/// Where a part of a database was restored, there may be rows under ids that no tenant has: a new
/// one got them for its own.
#[test]
fn a_tenant_gets_no_keys_that_somebody_has() {
    for delayed in [false, true] {
        let (_, db) = StandIn::new(delayed, 10);
        let own = |ids: std::ops::Range<i64>| {
            db.transact_blocking(|tr| {
                ids.clone()
                    .for_each(|id| tr.set([&id.to_be_bytes()[..], b"k"].concat(), "another's"));
                Ok(())
            })
        };
        own(0..2).unwrap();
        own(3..4).unwrap();
        manage(&db, &|tr| {
            tr.set(tenant_key("a"), "");
            tr.set(tenant_key("b"), "");
        })
        .unwrap();
        for (name, id) in [("a", 2), ("b", 4)] {
            let tenant = db.open_tenant(name).wait().unwrap();
            assert_eq!(tenant.id(), id);
            assert_eq!(tenant.create_transaction().get("k").wait(), Ok(None));
        }
        // Whoever writes there meanwhile has one of the two tried again.
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        tr.set(tenant_key("c"), "");
        tr.get_read_version().wait().unwrap();
        own(5..6).unwrap();
        assert_eq!(tr.commit().wait(), Err(Error::not_committed()));
        own(6..1005).unwrap();
        let refused = manage(&db, &|tr| tr.set(tenant_key("c"), "")).unwrap_err();
        assert_eq!(refused, Error::tenant_prefix_allocator_conflict());
        assert_eq!(db.open_tenant("c").wait().unwrap_err(), Error::tenant_not_found());
    }
}

#[test]
fn a_tenants_transaction_waits_until_the_tenant_is_looked_up() {
    for delayed in [false, true] {
        let (endpoint, db) = StandIn::new(delayed, 9);
        let absent = db.create_tenant_transaction("late");
        assert_eq!(absent.get("k").wait().unwrap_err(), Error::tenant_not_found());
        assert_eq!(absent.range(..).collect_blocking().unwrap_err(), Error::tenant_not_found());
        assert_eq!(
            absent.estimated_range_size("a", "b").wait().unwrap_err(),
            Error::tenant_not_found()
        );
        let absent = db.create_tenant_transaction("late");
        absent.commit().wait().unwrap(); // nothing that a tenant would be needed for
        let absent = db.create_tenant_transaction("late");
        absent.set("k", "lost");
        assert_eq!(absent.commit().wait().unwrap_err(), Error::tenant_not_found());
        assert_eq!(
            absent.on_error(Error::tenant_not_found()).wait().unwrap_err(),
            Error::tenant_not_found()
        );
        let commits = endpoint.lock().commits.len();
        assert_eq!(commits, 0);

        let tr = db.create_transaction();
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        tr.set(tenant_key("late"), "");
        tr.commit().wait().unwrap();
        let version = db.create_transaction().get_read_version().wait().unwrap();
        let tr = db.create_tenant_transaction("late");
        tr.set("k", "v");
        tr.commit().wait().unwrap();
        let prefix = db.open_tenant("late").wait().unwrap().id().to_be_bytes();
        let last = endpoint.lock().commits.last().unwrap().clone();
        assert!(last.mutations.iter().all(|mutation| mutation.param1.starts_with(&prefix)));
        // A version that is set doesn't make the reads any earlier.
        let tr = db.create_tenant_transaction("late");
        tr.set_read_version(version);
        assert_eq!(tr.get("k").wait().unwrap(), None);
        let tr = db.create_tenant_transaction("late");
        assert_eq!(tr.get("k").wait().unwrap().unwrap(), "v");
        let stored = db.create_transaction().get([&prefix[..], b"k"].concat()).wait().unwrap();
        assert_eq!(stored.unwrap(), "v");
    }
}

/// An encoded tuple of byte strings and small numbers.
fn tuple(parts: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part.parse::<u8>() {
            Ok(number) => out.extend([0x15, number]),
            Err(_) => {
                out.push(1);
                out.extend(part.as_bytes());
                out.push(0);
            }
        }
    }
    out
}

#[test]
fn mapped_ranges_follow_the_index() {
    let (_endpoint, db) = stand_in();
    db.transact_blocking(|tr| {
        for n in 1..=4u8 {
            let n = n.to_string();
            tr.set(tuple(&["index", &n, "id"]), tuple(&["from value", &n]));
            for field in ["1", "2"] {
                tr.set(tuple(&["record", &n, field]), field);
            }
        }
        tr.set(tuple(&["bad"]), "\u{fe}");
        Ok(())
    })
    .unwrap();
    let index = RangeOptions::prefix(tuple(&["index"]));
    let tr = db.create_transaction();
    let mapper = tuple(&["record", "{K[1]}", "{...}"]);
    let result = tr.get_mapped_range(index.clone().limit(3), &mapper).wait().unwrap();
    assert_eq!((result.rows.len(), result.more), (3, true));
    assert_eq!(result.rows[0].key, tuple(&["index", "1", "id"]));
    assert_eq!((result.rows[1].key.len(), result.rows[1].value.len()), (0, 0));
    for (row, n) in result.rows.iter().zip(1..) {
        let Mapped::Range { begin, result, .. } = &row.mapped else { panic!("{row:?}") };
        assert_eq!(begin.key, tuple(&["record", &n.to_string()]));
        assert_eq!(result.rows.iter().map(|(_, value)| value).collect::<Vec<_>>(), [b"1", b"2"]);
    }
    // What was read conflicts: the index up to the third row, and the records, which touch.
    let conflicts = tr
        .get_range(RangeOptions::prefix(b"\xff\xff/transaction/read_conflict_range/"))
        .wait()
        .unwrap();
    assert_eq!(conflicts.rows.len(), 2 * (1 + 1));
    let single = tuple(&["record", "{V[1]}", "2"]);
    let result = tr.get_mapped_range(index.clone().reverse(true), &single).wait().unwrap();
    let Mapped::Key { key, value } = &result.rows[0].mapped else { panic!("{result:?}") };
    assert_eq!((&key[..], value.as_deref()), (&tuple(&["record", "4", "2"])[..], Some(&b"2"[..])));
    let escaped = tuple(&["{{K[0]}}", "x"]);
    let result = tr.get_mapped_range(index.clone().limit(1), &escaped).wait().unwrap();
    let Mapped::Key { key, value } = &result.rows[0].mapped else { panic!("{result:?}") };
    assert_eq!((&key[..], value), (&tuple(&["{K[0]}", "x"])[..], &None));
    let code = |range: RangeOptions, mapper: &[u8]| {
        tr.get_mapped_range(range, mapper).wait().unwrap_err().code()
    };
    assert_eq!(code(index.clone(), &tuple(&["{K[9]}"])), 2030);
    assert_eq!(code(index.clone(), &tuple(&["{...}", "a"])), 2032);
    assert_eq!(code(index.clone(), b"\xfe"), 2043);
    assert_eq!(code(RangeOptions::prefix(tuple(&["bad"])), &tuple(&["{V[0]}"])), 2042);
    assert_eq!(
        tr.snapshot().get_mapped_range(index.clone(), &mapper).wait().unwrap_err().code(),
        2108
    );
    tr.set(tuple(&["record", "2", "1"]), "own");
    assert_eq!(code(index, &mapper), 2039);
}
