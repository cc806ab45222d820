//! The same log on the operating system's files, with threads: simulation has only one.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use plinth_env::{Env, block_on};
use plinth_format::Keys;
use plinth_log::{LocalLog, verify};
use plinth_types::Version;
use support::{IDENTITY, body, check, small};

/// How far the consumer's pops stay behind what it has read: nothing of that may go, whenever the
/// pops become durable.
const KEPT: Version = 6;

#[test]
fn a_writer_two_syncing_threads_a_reader_and_restarts() {
    let env = Env::real();
    block_on(async {
        let scratch = env.files().temporary_dir("plinth-log-test").await.unwrap();
        let dir = scratch.path().join("log");
        let config = small(8192, 65_536);
        let (mut log, _) = LocalLog::create(&env, &dir, IDENTITY, config.clone()).await.unwrap();
        log.register("storage", 1, None).unwrap();
        let mut last: Version = 0;
        for _ in 0..4 {
            let position = log.extend_lease(last + 1000).await.unwrap();
            log.syncer().sync(position).await.unwrap();
            let end = last + 300;
            let view = log.view();
            let reader = env.spawn("reader", async move {
                let (mut reader, mut next) = (view.reader(last + 1), last + 1);
                while next <= end {
                    match reader.next().await.unwrap() {
                        Some(entry) => {
                            assert_eq!(entry.version, next);
                            assert_eq!(entry.body, body(next, entry.body.len()));
                            view.pop("storage", next - KEPT).unwrap();
                            next += 1;
                        }
                        None => std::hint::spin_loop(),
                    }
                }
            });
            let synced = Arc::new(AtomicI64::new(last));
            while last < end {
                let mut syncs = Vec::new();
                for _ in 0..3.min(end - last) {
                    last += 1;
                    let version = last;
                    let position = log
                        .append(version, &[&body(version, version as usize % 2000)])
                        .await
                        .unwrap();
                    let (syncer, synced) = (log.syncer(), synced.clone());
                    syncs.push(env.spawn("sync", async move {
                        syncer.sync(position).await.unwrap();
                        synced.fetch_max(version, Ordering::Relaxed);
                    }));
                }
                for sync in syncs {
                    sync.await.unwrap();
                }
                log.check_invariants();
                assert!(log.known_durable() >= synced.load(Ordering::Relaxed));
            }
            reader.await.unwrap();
            log.close().await.unwrap();
            assert_eq!(verify(&env, &dir, &Keys::none()).await.unwrap().problems, []);
            let (next, recovery) =
                LocalLog::open(&env, &dir, IDENTITY, config.clone()).await.unwrap();
            assert_eq!((recovery.last_version, recovery.known_committed), (last, last));
            log = next;
        }
        let mut reader = log.reader(last - KEPT + 1);
        let mut entries = Vec::new();
        while let Some(entry) = reader.next().await.unwrap() {
            entries.push(entry);
        }
        check(&entries).unwrap();
        assert_eq!(entries.len(), KEPT as usize);
        drop(reader);
        log.close().await.unwrap();
    });
}
