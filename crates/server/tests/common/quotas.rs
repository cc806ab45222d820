//! Quotas in the words of the shell, and their rows.
#![allow(dead_code, reason = "each test file uses a part")]

use plinth_client::{Database, Transaction, TransactionOption};
use plinth_types::quotas::{Bounds, Quota};
use plinth_types::{Error, Result};

/// What these words say.
pub fn quota(text: &str) -> Quota {
    let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    Quota::parse(&words).unwrap()
}

/// Has a transaction write the row of a quota, as for somebody who had none.
pub fn put_quota(tr: &Transaction, text: &str) -> Result<()> {
    let quota = quota(text);
    tr.set_option(TransactionOption::AccessSystemKeys)?;
    tr.set(quota.whom.key(), quota.change(Bounds::default()).value(0));
    Ok(())
}

/// Writes the rows of quotas.
pub fn write_quotas(db: &Database, texts: &[&str]) {
    let written = db.transact_blocking(|tr| {
        texts.iter().try_for_each(|text| put_quota(tr, text))?;
        Ok::<_, Error>(())
    });
    written.unwrap();
}
