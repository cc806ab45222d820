//! The rows of quotas as they were read, and the budgets that they come to.
//!
//! Always: a row that can't be read bounds nobody, and is counted; beyond so many rows none is
//! looked at, so that whoever writes them decides how little a server remembers, not how much.

use super::budget::{Budget, Tenants};
use crate::rights::{Identity, Meant, tenant_prefix};
use plinth_client::Endpoint;
use plinth_types::quotas::{Bounds, Whom};
use plinth_types::rights::Subject;
use plinth_types::{Bytes, KeyList, KeySelector, KeySpace, RangeRead, Result, system};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Rows that are looked at.
pub(super) const MOST_ROWS: usize = 1_000;
/// Bytes of them.
const MOST_BYTES: usize = 4 << 20;

/// What was read: rows, and what stands for each tenant's name that they have.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Found {
    quotas: Vec<(Whom, Bounds)>,
    /// Rows that can't be read.
    pub(super) unreadable: usize,
    /// There are more rows than are looked at.
    pub(super) has_more: bool,
    tenants: BTreeMap<Bytes, [u8; 8]>,
}

impl Found {
    /// Reads what this process has.
    ///
    /// # Errors
    /// Those of reading; `process_behind` where there is nothing yet.
    pub(super) async fn read(endpoint: &dyn Endpoint) -> Result<Self> {
        let version = endpoint.newest_here()?;
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(system::QUOTAS.0),
            end: KeySelector::first_greater_or_equal(system::QUOTAS.1),
            limit: MOST_ROWS,
            target_bytes: MOST_BYTES,
            reverse: false,
        };
        let result = endpoint.get_range(version, KeySpace::System, &read).await?;
        let mut found = Self { has_more: result.more, ..Self::default() };
        for (key, value) in result.rows.iter() {
            match (Whom::decode(key), Bounds::decode(value)) {
                (Some(whom), Some(bounds)) => found.quotas.push((whom, bounds)),
                _ => found.unreadable += 1,
            }
        }
        let names = found.quotas.iter().filter_map(|(whom, _)| match whom {
            Whom::Tenant(name) => Some(name.clone()),
            Whom::Each | Whom::User(_) => None,
        });
        let names: Vec<_> = names.collect();
        if names.is_empty() {
            return Ok(found);
        }
        let mut keys = KeyList::new();
        names.iter().for_each(|name| {
            keys.push(&[system::TENANT_NAMES, name].concat());
        });
        let ids = endpoint.get_many(version, KeySpace::System, &keys).await?;
        let ids = ids.into_iter().map(|id| id.as_deref().and_then(tenant_prefix));
        found.tenants =
            names.into_iter().zip(ids).filter_map(|(name, id)| Some((name, id?))).collect();
        Ok(found)
    }

    /// Whether there is nothing that anybody would have to keep to.
    pub(super) fn is_empty(&self) -> bool {
        self.quotas.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.quotas.len()
    }

    /// Whether users of this machine have any.
    pub(super) fn names_users(&self) -> bool {
        self.quotas.iter().any(|(whom, _)| matches!(whom, Whom::User(Subject::User(_))))
    }
}

/// The rows as people are held to them.
#[derive(Default)]
pub(super) struct Known {
    pub(super) number: u64,
    pub(super) found: Found,
    /// All but that for each, with their budgets, which go on from one change to the next.
    budgets: BTreeMap<Whom, Arc<Budget>>,
    users: Vec<(Meant, Arc<Budget>)>,
    pub(super) tenants: Arc<Tenants>,
    /// What each is held to who has none of his own.
    pub(super) each: Option<Bounds>,
}

impl Known {
    /// What comes after this.
    pub(super) fn next(&self, found: Found, now: Duration) -> Self {
        let mut known = Self { number: self.number + 1, ..Self::default() };
        let mut tenants = Tenants::new();
        for (whom, bounds) in &found.quotas {
            let budget = || match self.budgets.get(whom) {
                Some(budget) => {
                    budget.set(bounds, now);
                    budget.clone()
                }
                None => Budget::new(whom.to_string(), bounds, now),
            };
            let budget = match whom {
                Whom::Each => {
                    known.each = Some(*bounds);
                    continue;
                }
                Whom::User(subject) => {
                    let budget = budget();
                    known.users.extend(Meant::of(subject).map(|meant| (meant, budget.clone())));
                    budget
                }
                Whom::Tenant(name) => {
                    let budget = budget();
                    tenants.extend(found.tenants.get(name).map(|id| (*id, budget.clone())));
                    budget
                }
            };
            known.budgets.insert(whom.clone(), budget);
        }
        known.tenants = Arc::new(tenants);
        Self { found, ..known }
    }

    /// Those that mean somebody.
    pub(super) fn of(&self, who: &Identity) -> Vec<Arc<Budget>> {
        let meant = self.users.iter().filter(|(meant, _)| meant.is(who));
        meant.map(|(_, budget)| budget.clone()).collect()
    }

    /// All but those of each.
    pub(super) fn budgets(&self) -> impl Iterator<Item = &Arc<Budget>> {
        self.budgets.values()
    }
}
