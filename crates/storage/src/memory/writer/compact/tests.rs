use super::super::Writer;
use super::super::window::COMPACTION_SHARE;
use crate::memory::record::{Record, RecordRef};
use crate::memory::tree::Cursor;
use plinth_types::{LogPosition, MutationList, MutationType, Version};
use std::ptr::NonNull;

const ROWS: u32 = 100_000;
const BUDGET: usize = 512 * COMPACTION_SHARE;

fn apply(writer: &mut Writer, version: Version, mut fill: impl FnMut(&mut MutationList)) {
    let mut list = MutationList::new();
    fill(&mut list);
    writer.apply(LogPosition::without_log(version), &mut list.iter(), None);
    writer.core().publish(version);
}

/// Where each row lies, in the order of the keys.
fn places(writer: &Writer) -> Vec<NonNull<Record>> {
    let mut cursor = Cursor::seek(writer.root(), b"");
    std::iter::from_fn(|| cursor.next()).map(RecordRef::as_ptr).collect()
}

/// Compaction once took all of a call's budget that cleaning up had left: half a million writes a
/// second became 130,000 for as long as a round took, because each commit moved some thousands of
/// rows beside its own.
#[test]
fn a_call_moves_no_more_rows_than_compactions_share() {
    let mut writer = Writer::new(LogPosition::without_log(0));
    apply(&mut writer, 1, |list| {
        (0..ROWS).for_each(|row| list.push(MutationType::Set, &row.to_be_bytes(), &[1; 100]));
    });
    // Three rows in four go, here and there: much memory is free, and no chunk of it is empty.
    apply(&mut writer, 2, |list| {
        let gone = (0..ROWS).filter(|row| row % 4 != 0);
        gone.for_each(|row| {
            list.push(MutationType::ClearRange, &row.to_be_bytes(), &(row + 1).to_be_bytes())
        });
    });
    let mut now = 2;
    while writer.forget_before(now, BUDGET) && !writer.compaction.running {}
    let (mut before, mut moved_in_all, mut calls) = (places(&writer), 0, 0);
    assert_eq!(before.len(), ROWS as usize / 4);
    // The next round begins a second of versions later.
    now += super::PAUSE;
    writer.core().publish(now);
    while writer.forget_before(now, BUDGET) || calls == 0 {
        let after = places(&writer);
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        assert!(moved <= BUDGET / COMPACTION_SHARE, "{moved} rows in one call");
        (before, moved_in_all, calls) = (after, moved_in_all + moved, calls + 1);
    }
    assert!(calls > 5 && moved_in_all > ROWS as usize / 20, "{moved_in_all} rows in {calls} calls");
}
