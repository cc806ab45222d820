//! Why a step of a flush was not committed, and whose rows were to be written then.

use super::{Cell, retry};
use crate::error::Error;
use plinth_client::Transaction;
use plinth_types::codes;
use std::sync::Arc;

/// Why a step was not committed.
pub(super) struct Fault {
    pub(super) why: Error,
    /// The series whose rows were to be written then.
    pub(super) of: Option<Arc<Cell>>,
}

impl Fault {
    pub(super) fn of(cell: &Arc<Cell>) -> impl Fn(Error) -> Self {
        move |why| Self { why, of: Some(cell.clone()) }
    }

    /// Whether less in one transaction may help.
    pub(super) fn is_too_much(&self) -> bool {
        let Error::Database(why) = &self.why else { return false };
        [codes::TRANSACTION_TOO_LARGE, codes::TRANSACTION_TOO_OLD].contains(&why.code())
    }

    /// Prepares a transaction for another try, if that can help.
    pub(super) async fn again(self, tr: &Transaction) -> Result<(), Self> {
        let of = self.of;
        retry::again(tr, self.why).await.map_err(|why| Self { why, of })
    }
}

impl From<Error> for Fault {
    fn from(why: Error) -> Self {
        Self { why, of: None }
    }
}

impl From<plinth_types::Error> for Fault {
    fn from(why: plinth_types::Error) -> Self {
        Error::from(why).into()
    }
}
