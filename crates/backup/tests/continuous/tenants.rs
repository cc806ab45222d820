//! Tenants made, renamed and removed behind a backup's last snapshot: a restore has them as they
//! were, and a tenant that is made afterwards gets no rows of theirs.
//!
//! The rows that make tenants lie among the system's, and a stream of a backup had those of users
//! alone.

use super::*;

async fn manage(db: &Database, work: impl Fn(&plinth::Transaction)) {
    let tr = db.create_transaction();
    tr.set_option(plinth::TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    work(&tr);
    tr.commit().await.unwrap();
}

fn map(name: &str) -> Vec<u8> {
    [b"\xff\xff/management/tenant/map/", name.as_bytes()].concat()
}

async fn put(db: &Database, tenant: &str, value: &str) {
    let tr = db.create_tenant_transaction(tenant);
    tr.set("row", value);
    tr.commit().await.unwrap();
}

/// The tenant came back without its name, and the next one that was made had its id and its rows.
#[test]
fn tenants_come_back_as_they_were() {
    let simulation = Simulation::new(21);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        manage(&db, |tr| ["early", "old", "gone"].iter().for_each(|name| tr.set(map(name), "")))
            .await;
        put(&db, "early", "of early").await;
        until(&db, "restorable", |tag| tag.is_restorable).await;
        manage(&db, |tr| tr.set(map("late"), "")).await;
        put(&db, "late", "of late").await;
        manage(&db, |tr| {
            tr.set(b"\xff\xff/management/tenant/rename/old", "new");
            tr.clear(map("gone"));
        })
        .await;
        agent::change(&db, "default", State::Discontinuing).await.unwrap();
        until(&db, "ended", |tag| tag.ended.is_some()).await;
        runs.stop().await.unwrap();
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        restore_dir(&machine, &backup, Goal::Newest, Mapping::default(), "/again", "memory")
            .await
            .unwrap();
        let again = open(&machine, "/again", "memory").await;
        for (name, row) in [("early", Some("of early")), ("late", Some("of late")), ("new", None)] {
            let id = again.open_tenant(name).await.unwrap().id();
            assert_eq!(id, db.open_tenant(name).await.unwrap().id(), "{name}");
            let found = again.create_tenant_transaction(name).get("row").await.unwrap();
            assert_eq!(found.as_deref(), row.map(str::as_bytes), "{name}");
        }
        for name in ["old", "gone"] {
            let missing = again.open_tenant(name).await.unwrap_err();
            assert_eq!(missing, Error::tenant_not_found(), "{name}");
        }
        manage(&again, |tr| tr.set(map("next"), "")).await;
        let next = again.create_tenant_transaction("next");
        assert_eq!(next.get("row").await, Ok(None));
        assert!(
            again.open_tenant("next").await.unwrap().id()
                > again.open_tenant("late").await.unwrap().id()
        );
    });
}
