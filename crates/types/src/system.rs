//! Names in the system key space that the pipeline and the client both know.

/// End of the normal key space and begin of the system key space.
pub const NORMAL_END: &[u8] = b"\xff";
/// End of the system key space; special (virtual) keys begin here.
pub const SYSTEM_END: &[u8] = b"\xff\xff";
/// End of the special key space: no key lies at or beyond.
pub const SPECIAL_END: &[u8] = b"\xff\xff\xff";
/// Begin of the system keys that are stored like user data: `[\xff\x02, \xff\x03)`.
pub const NON_METADATA_BEGIN: &[u8] = b"\xff\x02";
/// End of the system keys that are stored like user data.
pub const NON_METADATA_END: &[u8] = b"\xff\x03";
/// Holds a 10-byte prefix and the 16-byte lock id while the database is locked.
pub const DATABASE_LOCKED: &[u8] = b"\xff/dbLocked";
/// The ranges that are locked while the rest of the database is in use, as
/// [`RangeLocks`](crate::RangeLocks) spells them.
pub const RANGE_LOCKS: &[u8] = b"\xff/plinth/rangeLocks";
/// Changes whenever a layer says that its metadata changed; readable by everybody.
pub const METADATA_VERSION: &[u8] = b"\xff/metadataVersion";
/// Commits below the version stored here are refused.
pub const MIN_REQUIRED_COMMIT_VERSION: &[u8] = b"\xff/minRequiredCommitVersion";
/// Prefix of the keys that name the storage of each shard, by shard begin.
pub const KEY_SERVERS_PREFIX: &[u8] = b"\xff/keyServers/";
/// Prefix of the database's configuration, as text values.
pub const CONFIGURATION_PREFIX: &[u8] = b"\xff/conf/";
/// Who is a member of the cluster; changed by the leader alone.
pub const MEMBERS: &[u8] = b"\xff/conf/members";
/// The addresses of the servers that are to vote, separated by commas, if an operator has named
/// them.
pub const COORDINATORS_WANTED: &[u8] = b"\xff/conf/coordinators";
/// How many servers are to vote, as decimal text.
pub const VOTER_COUNT: &[u8] = b"\xff/conf/voter_count";
/// Prefix of the addresses, or hosts, of servers that are not to vote.
pub const EXCLUDED_PREFIX: &[u8] = b"\xff/conf/excluded/";
/// Prefix of the addresses, or hosts, of servers that are lost for good.
pub const FAILED_PREFIX: &[u8] = b"\xff/conf/failed/";
/// Prefix of the keys that a transaction adds to both conflict sets to be able to conflict with
/// itself.
pub const SELF_CONFLICT_PREFIX: &[u8] = b"\xff/SC/";
/// Prefix of the records of idempotency ids: 8-byte big-endian commit version, then the high byte
/// of the batch index.
pub const IDEMPOTENCY_PREFIX: &[u8] = b"\xff\x02/idmp/";

/// Up to which version records of idempotency ids were removed.
pub const IDEMPOTENCY_EXPIRED: &[u8] = b"\xff\x02/idmpExpiredVersion";
/// There while a restore into the database is unfinished: what is restored.
pub const RESTORE_HEAD: &[u8] = b"\xff\x02/plinth/restore/head";
/// There while a migration into the database is unfinished: from where.
pub const MIGRATION_HEAD: &[u8] = b"\xff\x02/plinth/migrate/head";
/// There while the database is a second site: what it follows.
pub const SECOND_SITE_HEAD: &[u8] = b"\xff\x02/plinth/dr/to/head";
/// How far a second site is: a byte of format, then flags, as [`SECOND_SITE_IS_COPYING`].
pub const SECOND_SITE_PLACE: &[u8] = b"\xff\x02/plinth/dr/to/place";
/// The flag that says that its first copy isn't whole.
pub const SECOND_SITE_IS_COPYING: u8 = 1;
/// There while a second site has a part of what something is bringing into its first one: what is
/// noted of that there.
pub const SECOND_SITE_HALF: &[u8] = b"\xff\x02/plinth/dr/to/half";
/// Begin and end of the rows that say who may do what: while there is any, only they say so.
pub const RIGHTS: (&[u8], &[u8]) = (b"\xff/plinth/rights/", b"\xff/plinth/rights0");
/// Those of them that are [grants](crate::rights::Grant).
pub const GRANTS: (&[u8], &[u8]) = (b"\xff/plinth/rights/grant/", b"\xff/plinth/rights/grant0");
/// Begin and end of the rows that say how much somebody may: [quotas](crate::quotas).
pub const QUOTAS: (&[u8], &[u8]) = (b"\xff/plinth/quotas/", b"\xff/plinth/quotas0");

/// Prefix of the rows of time series: a place of their own, out of the way of whoever writes or
/// clears normal keys.
pub const SERIES_PREFIX: &[u8] = b"\xff\x02/plinth/series/";
/// The first key behind the rows of time series.
pub const SERIES_END: &[u8] = b"\xff\x02/plinth/series0";
/// Prefix of the rows of time series where they are an ordinary layer's, on a FoundationDB: the
/// tuple `("plinth.series",)`. In a database of Plinth's they lay there, too, before they had a
/// place of their own.
pub const SERIES_LAYER_PREFIX: &[u8] = b"\x02plinth.series\0";
/// Begin and end of the keys by which tenants are found: they are part of what users wrote.
pub const TENANTS: (&[u8], &[u8]) = (b"\xff/tenant/", b"\xff/tenant0");
/// The id that was given to a tenant last: none is given twice.
pub const TENANT_LAST_ID: &[u8] = b"\xff/tenant/lastId";
/// Prefix of the rows that have a tenant's id, by its name.
pub const TENANT_NAMES: &[u8] = b"\xff/tenant/nameIndex/";
/// All that users write, in order: the normal keys, time series, and what makes tenants of some of
/// the normal keys. Whoever copies a database, or saves it, takes these.
pub const USERS: [(&[u8], &[u8]); 3] = [(b"", NORMAL_END), (SERIES_PREFIX, SERIES_END), TENANTS];

/// Whether a mutation of this key changes the database's own metadata, which the pipeline must see.
pub fn is_metadata(key: &[u8]) -> bool {
    key >= NORMAL_END && key < SYSTEM_END && !(NON_METADATA_BEGIN..NON_METADATA_END).contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write_is_in_order_and_apart() {
        assert!(USERS.iter().all(|(begin, end)| begin < end));
        assert!(USERS.windows(2).all(|pair| pair[0].1 < pair[1].0));
        assert_eq!(crate::strinc(SERIES_PREFIX).as_deref(), Some(SERIES_END));
        assert_eq!(crate::strinc(TENANTS.0).as_deref(), Some(TENANTS.1));
        assert!(TENANT_NAMES.starts_with(TENANTS.0));
        for (begin, end) in [RIGHTS, GRANTS, QUOTAS] {
            assert_eq!(crate::strinc(begin).as_deref(), Some(end));
            assert!(is_metadata(begin));
        }
        assert!(GRANTS.0 > RIGHTS.0 && GRANTS.1 < RIGHTS.1);
        // A row of them alone would shut everybody out.
        assert!(QUOTAS.1 <= RIGHTS.0);
    }

    #[test]
    fn metadata_is_the_system_space_without_its_data_part() {
        assert!(
            is_metadata(DATABASE_LOCKED) && is_metadata(METADATA_VERSION) && is_metadata(b"\xff")
        );
        assert!(
            !is_metadata(b"a")
                && !is_metadata(b"\xff\x02/idmp/x")
                && !is_metadata(SERIES_PREFIX)
                && !is_metadata(b"\xff\xff/status")
        );
    }
}
