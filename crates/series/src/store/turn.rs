//! The turn: whoever has it saves, takes in or deletes; nobody else does meanwhile.
//!
//! It can be waited for without blocking a thread, and is given back whatever becomes of the future
//! that had it.

use plinth_env::sync::Signal;

/// Who may save.
pub(super) struct Turns(Signal);

impl Turns {
    /// Nobody may, until [`Turns::open`].
    pub(super) fn closed() -> Self {
        Self(Signal::new())
    }

    /// Lets the first one have the turn. Called once.
    pub(super) fn open(&self) {
        self.0.notify();
    }

    /// Waits for the turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        self.0.wait().await;
        Turn(&self.0)
    }

    /// Waits until nobody has the turn.
    pub(super) async fn pass(&self) {
        drop(self.take().await);
    }
}

/// The turn, which goes to the next one when this is dropped.
pub(super) struct Turn<'a>(&'a Signal);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.notify();
    }
}
