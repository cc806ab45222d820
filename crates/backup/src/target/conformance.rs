//! What every target does, as a suite that all of them run.

use super::{Object, Target};
use bytes::Bytes;
use plinth_types::Error;

/// What the suite calls on, which has to work.
const WORKS: &str = "a target that nobody disturbs does what it is asked";

fn names(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(|object| &*object.name).collect()
}

/// Runs all of it on an empty target.
///
/// # Panics
/// If the target doesn't do what it has to.
pub async fn all(target: &dyn Target) {
    nothing_is_there_that_was_not_put(target).await;
    what_was_put_is_there_whole(target).await;
    listings_are_sorted_and_by_prefix(target).await;
    one_of_several_creates(target).await;
    what_is_deleted_is_gone(target).await;
    what_is_settled_is_as_it_was(target).await;
}

async fn nothing_is_there_that_was_not_put(target: &dyn Target) {
    assert_eq!(target.get("no/such.file").await, Err(Error::file_not_found()));
    assert_eq!(target.get_begin("no.file", 5).await, Err(Error::file_not_found()));
    assert_eq!(target.list("").await.expect(WORKS), []);
    assert_eq!(target.list("no/").await.expect(WORKS), []);
    target.delete("no/such.file").await.expect(WORKS);
}

async fn what_was_put_is_there_whole(target: &dyn Target) {
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    for contents in [Bytes::new(), Bytes::from_static(b"abc"), Bytes::from(large)] {
        target.put("deep/er/one.file", contents.clone()).await.expect(WORKS);
        assert!(target.get("deep/er/one.file").await.expect(WORKS) == contents);
        let begin = target.get_begin("deep/er/one.file", 2).await.expect(WORKS);
        assert_eq!(begin, contents.slice(..2.min(contents.len())));
        let listed = target.list("deep/").await.expect(WORKS);
        assert_eq!(
            listed,
            [Object { name: "deep/er/one.file".into(), len: contents.len() as u64 }]
        );
    }
    target.delete("deep/er/one.file").await.expect(WORKS);
}

async fn listings_are_sorted_and_by_prefix(target: &dyn Target) {
    for name in ["b/2.x", "a.x", "b/10.x", "c/d/1.x", "b/1.x"] {
        target.put(name, Bytes::from_static(b"x")).await.expect(WORKS);
    }
    let all = target.list("").await.expect(WORKS);
    assert_eq!(names(&all), ["a.x", "b/1.x", "b/10.x", "b/2.x", "c/d/1.x"]);
    assert_eq!(names(&target.list("b/").await.expect(WORKS)), ["b/1.x", "b/10.x", "b/2.x"]);
    assert_eq!(names(&target.list("c/").await.expect(WORKS)), ["c/d/1.x"]);
    for object in all {
        target.delete(&object.name).await.expect(WORKS);
    }
}

async fn one_of_several_creates(target: &dyn Target) {
    assert!(target.create("lease/1.x", Bytes::from_static(b"first")).await.expect(WORKS));
    assert!(!target.create("lease/1.x", Bytes::from_static(b"second")).await.expect(WORKS));
    assert_eq!(target.get("lease/1.x").await.expect(WORKS), "first");
    // Whoever has it may write it again.
    target.put("lease/1.x", Bytes::from_static(b"third")).await.expect(WORKS);
    assert_eq!(target.get("lease/1.x").await.expect(WORKS), "third");
    target.delete("lease/1.x").await.expect(WORKS);
    assert!(target.create("lease/1.x", Bytes::from_static(b"fourth")).await.expect(WORKS));
    target.delete("lease/1.x").await.expect(WORKS);
}

async fn what_is_deleted_is_gone(target: &dyn Target) {
    target.put("a/gone.x", Bytes::from_static(b"x")).await.expect(WORKS);
    target.delete("a/gone.x").await.expect(WORKS);
    target.delete("a/gone.x").await.expect(WORKS);
    assert_eq!(target.get("a/gone.x").await, Err(Error::file_not_found()));
    assert_eq!(target.list("").await.expect(WORKS), []);
}

/// Whether there is anything below it or not.
async fn what_is_settled_is_as_it_was(target: &dyn Target) {
    target.put("settled/one.x", Bytes::from_static(b"one")).await.expect(WORKS);
    for prefix in ["", "settled/", "no/such/"] {
        target.settle(prefix).await.expect(WORKS);
    }
    assert_eq!(names(&target.list("").await.expect(WORKS)), ["settled/one.x"]);
    target.delete("settled/one.x").await.expect(WORKS);
}
