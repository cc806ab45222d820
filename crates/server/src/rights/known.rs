//! The rows of rights as they were read, and whom each is for.
//!
//! What was read is kept as it is, so that it is noticed when it changes; beside it stands what it
//! comes to: rules of certificates ready to be compared, tenants as the keys that they have.
//!
//! Always: a subject that can't be understood is nobody, and a scope that isn't there has no keys.

use super::token::Tenant;
use super::{Identity, Local};
use plinth_client::Endpoint;
use plinth_types::rights::{Coverage, Grant, Role, Scope, Subject};
use plinth_types::{
    Bytes, KeyList, KeyRange, KeySelector, KeySpace, Metrics, RangeRead, Result, key_after, strinc,
    system,
};
use std::collections::BTreeSet;

/// Bytes of rows that are read at a time.
const AT_A_TIME: usize = 1 << 20;

/// What was read: the keys of all rows, and what stands for each tenant's name that they have.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Found {
    rows: Vec<Bytes>,
    grants: Vec<Grant>,
    tenants: Vec<(Bytes, Option<Bytes>)>,
    last_id: Option<Bytes>,
}

impl Found {
    /// Reads what this process has, and of tenants those that grants name and these.
    ///
    /// # Errors
    /// Those of reading; `process_behind` where there is nothing yet.
    pub(super) async fn read(
        endpoint: &dyn Endpoint,
        wanted: impl IntoIterator<Item = Bytes>,
    ) -> Result<Self> {
        let version = endpoint.newest_here()?;
        let (mut found, mut begin) = (Self::default(), Bytes::from_static(system::RIGHTS.0));
        loop {
            let read = RangeRead {
                begin: KeySelector::first_greater_or_equal(begin.clone()),
                end: KeySelector::first_greater_or_equal(system::RIGHTS.1),
                limit: usize::MAX,
                target_bytes: AT_A_TIME,
                reverse: false,
            };
            let result = endpoint.get_range(version, KeySpace::System, &read).await?;
            let keys = result.rows.iter().map(|(key, _)| Bytes::copy_from_slice(key));
            found.rows.extend(keys);
            match found.rows.last() {
                Some(last) if result.more => begin = key_after(last),
                _ => break,
            }
        }
        found.grants = found.rows.iter().filter_map(|key| Grant::decode(key)).collect();
        if found.rows.is_empty() {
            return Ok(found);
        }
        let named = found.grants.iter().filter_map(|grant| match &grant.scope {
            Scope::Tenant(name) => Some(name.clone()),
            _ => None,
        });
        let names: BTreeSet<_> = named.chain(wanted).collect();
        let mut keys = KeyList::new();
        keys.push(system::TENANT_LAST_ID);
        for name in &names {
            keys.push(&[system::TENANT_NAMES, name].concat());
        }
        let mut values = endpoint.get_many(version, KeySpace::System, &keys).await?.into_iter();
        found.last_id = values.next().flatten();
        found.tenants = names.into_iter().zip(values).collect();
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The keys of a tenant: whether it was looked for, and is there.
    fn tenant(&self, name: &[u8]) -> Option<Option<KeyRange>> {
        let place = self.tenants.binary_search_by(|(known, _)| known[..].cmp(name)).ok()?;
        let id = self.tenants[place].1.as_deref().and_then(tenant_prefix);
        Some(id.and_then(keys_of))
    }

    /// Whether there is, or was, a tenant of this id.
    fn has_id(&self, id: [u8; 8]) -> bool {
        let last = self.last_id.as_deref().and_then(tenant_prefix);
        id[0] < 0x80 && last.is_some_and(|last| id <= last)
    }

    /// What a scope stands for, if there is any of it.
    fn part(&self, scope: &Scope) -> Option<Part> {
        match scope {
            Scope::Series => Some(Part::Series),
            Scope::Metric(metrics) => Some(Part::Metric(metrics.clone())),
            Scope::All => Some(Part::Keys(KeyRange::new(&b""[..], system::NORMAL_END))),
            Scope::Range(range) => Some(Part::Keys(range.clone())),
            Scope::Tenant(name) => self.tenant(name)?.map(Part::Keys),
        }
    }
}

/// The keys that begin with a tenant's id.
fn keys_of(id: [u8; 8]) -> Option<KeyRange> {
    Some(KeyRange::new(Bytes::copy_from_slice(&id), strinc(&id)?))
}

/// What a tenant's keys begin with, from what is stored under its name.
pub(crate) fn tenant_prefix(stored: &[u8]) -> Option<[u8; 8]> {
    // Ids are small numbers: one that began like the system's keys would be none.
    stored.first_chunk::<8>().copied().filter(|id| id[0] != 0xff)
}

/// The rows as they are judged by.
#[derive(Default)]
pub(super) struct Known {
    number: u64,
    found: Found,
    rights: Vec<(Meant, Role, Part)>,
}

/// What a grant is for.
enum Part {
    Keys(KeyRange),
    Series,
    Metric(Metrics),
}

impl Known {
    pub(super) fn new(number: u64, found: Found) -> Self {
        let right = |grant: &Grant| {
            let part = found.part(&grant.scope)?;
            Some((Meant::of(&grant.subject)?, grant.role, part))
        };
        let rights = found.grants.iter().filter_map(right).collect();
        Self { number, found, rights }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn found(&self) -> &Found {
        &self.found
    }

    /// What somebody may. Operators of the server's own may everything.
    ///
    /// # Errors
    /// The names of tenants that his token names and that have yet to be looked for.
    pub(super) fn coverage(
        &self,
        who: &Identity,
        operators: &[Subject],
    ) -> std::result::Result<Coverage, Vec<Bytes>> {
        if is_any(operators, who) {
            return Ok(Coverage::everything());
        }
        let given: Vec<_> = self.rights.iter().filter(|(whom, ..)| whom.is(who)).collect();
        let keys = given.iter().filter_map(|(_, role, part)| match part {
            Part::Keys(range) => Some((*role, range.clone())),
            Part::Series | Part::Metric(_) => None,
        });
        let (mut tenants, mut missing) = (Vec::new(), Vec::new());
        for tenant in who.claims.iter().flat_map(|claims| &claims.tenants) {
            match tenant {
                Tenant::Name(name) => match self.found.tenant(name) {
                    Some(keys) => tenants.extend(keys),
                    None => missing.push(name.clone()),
                },
                Tenant::Id(id) if self.found.has_id(*id) => tenants.extend(keys_of(*id)),
                Tenant::Id(_) => {}
            }
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        let keys = keys.chain(tenants.into_iter().map(|range| (Role::Writer, range)));
        let of_series = given.iter().filter(|(.., part)| matches!(part, Part::Series));
        let of_metrics = given.iter().filter_map(|(_, role, part)| match part {
            Part::Metric(metrics) => Some((*role, metrics.clone())),
            Part::Keys(_) | Part::Series => None,
        });
        let coverage = Coverage::of(keys).with_metrics(of_metrics);
        Ok(coverage.with_series(of_series.map(|(_, role, _)| *role).max()))
    }
}

/// Whom a grant, or a quota, is for, ready to be compared.
pub(crate) enum Meant {
    Anybody,
    Address(Subject),
    Token(String),
    User(String),
    #[cfg(feature = "tls")]
    Certificate(plinth_tls::Rule),
}

impl Meant {
    /// `None` for a rule that can't be read: nobody fulfils it.
    pub(crate) fn of(subject: &Subject) -> Option<Self> {
        match subject {
            Subject::Anybody => Some(Self::Anybody),
            Subject::Address(..) => Some(Self::Address(subject.clone())),
            Subject::Token(claims) => Some(Self::Token(claims.clone())),
            Subject::User(name) => Some(Self::User(name.clone())),
            #[cfg(feature = "tls")]
            Subject::Certificate(rule) => {
                let rule = plinth_tls::Rule::parse(std::slice::from_ref(rule)).ok()?;
                (!rule.is_unchecked()).then_some(Self::Certificate(rule))
            }
            #[cfg(not(feature = "tls"))]
            Subject::Certificate(_) => None,
        }
    }

    /// Whether that is somebody.
    pub(crate) fn is(&self, who: &Identity) -> bool {
        match self {
            Self::Anybody => true,
            Self::Address(subject) => subject.has_address(who.address),
            Self::User(name) => {
                let user = who.local.as_deref().and_then(Local::user);
                user.is_some_and(|user| user.is(name))
            }
            Self::Token(claims) => who.claims.as_ref().is_some_and(|shown| shown.fulfil(claims)),
            #[cfg(feature = "tls")]
            Self::Certificate(rule) => {
                let shown = who.certificate.as_deref();
                shown.is_some_and(|shown| rule.check(Some(shown)).is_ok())
            }
        }
    }
}

/// Whether somebody is one of these.
pub(super) fn is_any(subjects: &[Subject], who: &Identity) -> bool {
    subjects.iter().any(|subject| Meant::of(subject).is_some_and(|whom| whom.is(who)))
}

/// Whether somebody can be meant by that.
pub(super) fn check(subject: &Subject) -> std::result::Result<(), String> {
    match Meant::of(subject) {
        Some(_) => Ok(()),
        None => Err(format!("{subject} is a rule that no certificate can be compared with")),
    }
}
