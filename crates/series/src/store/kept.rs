//! What a layer above keeps beside the series: texts under names, which are the owner's as all else
//! is.
//!
//! Who evaluates rules over the series keeps there how far it is, and whoever owns the series next
//! goes on with that. A text is divided into rows, since a value has a limit, and all of them are
//! written by one transaction, which has the owner's row among its read conflicts: what somebody
//! writes who has lost the series meanwhile is never there.

use super::{Part, nodes, retry};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Bytes of a row.
const PART: usize = 90_000;
/// Bytes of a text: what one transaction writes without being in anybody's way.
const MAX_KEPT_BYTES: usize = 4 << 20;

impl Part {
    /// Keeps a text under a name, in place of what was kept there.
    pub(super) async fn keep(&self, name: &str, text: &[u8]) -> Result<()> {
        if text.len() > MAX_KEPT_BYTES {
            let why = format!("{} bytes under {name}, and {MAX_KEPT_BYTES} may be", text.len());
            return Err(plinth_types::Error::transaction_too_large().with_detail(why).into());
        }
        let shared = &self.shared;
        shared.check()?;
        let tr = shared.database.create_transaction();
        loop {
            let written = async {
                shared.check_owner(&tr).await?;
                tr.clear_prefix(shared.keys.kept(name));
                for (part, bytes) in (0..).zip(text.chunks(PART)) {
                    tr.set(shared.keys.kept_part(name, part), bytes);
                }
                Ok::<_, Error>(tr.commit().await?)
            };
            match written.await {
                Ok(_) => return Ok(()),
                Err(error) => retry::again(&tr, error).await?,
            }
        }
    }

    /// All that is kept, by its names.
    pub(super) async fn kept(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let shared = &self.shared;
        let prefix = &shared.keys.all_kept();
        let rows =
            retry::transact(&shared.database, |tr| async move { nodes::rows(&tr, prefix).await });
        let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        // Rows come by name and part.
        for row in rows.await? {
            let name = shared.keys.name_of_kept(&row.key)?;
            all.entry(name).or_default().extend_from_slice(&row.value);
        }
        Ok(all)
    }
}
