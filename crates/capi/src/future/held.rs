//! Counts of a future: who has one keeps it alive.
//!
//! As an `Arc` without weak counts, whose last count is given back without a write: C destroys
//! nearly every future when nobody else has anything to do with it any more, and a write that other
//! processors must see costs as much as the rest of the call. As a waker, a count polls its future.
//!
//! A thread keeps the memory of some futures that ended on it for those that begin on it: programs
//! have dozens of reads under way, more of one size than the allocator keeps at hand.

use super::FutureCore;
use std::cell::RefCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;
use std::task::{RawWaker, RawWakerVTable, Waker};

/// Of how many futures a thread keeps the memory.
const KEPT: usize = 128;

/// Memory for a future; it comes and goes by itself, so each piece is a box of its own.
type Place = Box<MaybeUninit<FutureCore>>;

thread_local! {
    static SPARE: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// One count of a future.
pub(crate) struct Held(NonNull<FutureCore>);

// SAFETY: a count gives shared access to the future, which is `Sync`, and the last one drops it,
// which is `Send`.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Held {
    /// The first count.
    #[inline]
    pub(super) fn new(future: FutureCore) -> Self {
        // While the thread ends there is no spare memory any more.
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let place = spare.unwrap_or_else(Box::new_uninit);
        Self(NonNull::from(Box::leak(Box::write(place, future))))
    }

    /// The handle that C has from now on; `fdb_future_destroy` takes it back.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut FutureCore {
        let future = self.0.as_ptr();
        std::mem::forget(self);
        future
    }

    /// The count behind a pointer.
    ///
    /// # Safety
    /// The pointer must be of [`Held::into_raw`], with its count not given back yet.
    #[inline]
    pub(crate) unsafe fn from_raw(future: *const FutureCore) -> Self {
        // SAFETY: such a pointer is not null.
        Self(unsafe { NonNull::new_unchecked(future.cast_mut()) })
    }

    pub(super) fn into_waker(self) -> Waker {
        let future = self.into_raw().cast_const().cast();
        // SAFETY: the functions of the table do with a count what their contract asks for, and may
        // be called on any thread.
        unsafe { Waker::from_raw(RawWaker::new(future, &WAKING)) }
    }
}

impl Deref for Held {
    type Target = FutureCore;

    #[inline]
    fn deref(&self) -> &FutureCore {
        // SAFETY: the future lives while there is a count.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        self.holders.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        // Alone: nobody is left who could count up or down.
        if self.holders.load(Acquire) != 1 {
            if self.holders.fetch_sub(1, Release) != 1 {
                return;
            }
            fence(Acquire);
        }
        // SAFETY: this was the last count, so nobody else uses the future.
        unsafe { self.0.drop_in_place() };
        // SAFETY: the pointer came from a box, and what remains there is memory without a value.
        let place = unsafe { Box::from_raw(self.0.as_ptr().cast::<MaybeUninit<FutureCore>>()) };
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT {
                spare.push(place);
            }
        });
    }
}

const WAKING: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, give_back);

unsafe fn clone(future: *const ()) -> RawWaker {
    // SAFETY: the waker has a count, which it keeps.
    let held = ManuallyDrop::new(unsafe { Held::from_raw(future.cast()) });
    RawWaker::new((*held).clone().into_raw().cast_const().cast(), &WAKING)
}

unsafe fn wake(future: *const ()) {
    // SAFETY: the waker has a count, which it gives here.
    unsafe { Held::from_raw(future.cast()) }.poll();
}

unsafe fn wake_by_ref(future: *const ()) {
    // SAFETY: the waker has a count, which it keeps.
    ManuallyDrop::new(unsafe { Held::from_raw(future.cast()) }).poll();
}

unsafe fn give_back(future: *const ()) {
    // SAFETY: the waker has a count, which it gives back here.
    drop(unsafe { Held::from_raw(future.cast()) });
}
