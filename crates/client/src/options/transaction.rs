//! Transaction options.
//!
//! They hold until the transaction is reset or retried (`on_error`), when they fall back to the
//! database's defaults; those marked *persistent* survive a retry.
//!
//! What stands without a variant does nothing for a program in Rust: C's callers may set it.

use std::time::Duration;

/// Bytes of an option.
type Blob = Vec<u8>;

super::options! {
    /// An option of one transaction.
    ///
    /// ```
    /// use plinth_client::TransactionOption;
    /// use std::time::Duration;
    ///
    /// # fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
    /// let tr = db.create_transaction();
    /// tr.set_option(TransactionOption::Timeout(Some(Duration::from_secs(2))))?;
    /// tr.set_option(TransactionOption::RetryLimit(None))?;
    /// # Ok(()) }
    /// ```
    TransactionOption;
    10 "causal_write_risky" None =>
        /// Don't guard against committing twice after a fault: without the guard a retry after
        /// `commit_unknown_result` may find the first attempt still on its way.
        CausalWriteRisky;
    20 "causal_read_risky" None =>
        /// The read version may miss commits acknowledged a moment before.
        CausalReadRisky;
    21 "causal_read_disable" None;
    23 "include_port_in_address" None;
    30 "next_write_no_write_conflict_range" None =>
        /// The next write adds no write conflict range.
        NextWriteNoWriteConflictRange;
    40 "commit_on_first_proxy" None;
    50 "check_writes_enable" None;
    51 "read_your_writes_disable" None =>
        /// Reads see the database alone, not this transaction's writes. Only before the first read
        /// or write.
        ReadYourWritesDisable;
    52 "read_ahead_disable" None;
    507 "read_server_side_cache_enable" None;
    508 "read_server_side_cache_disable" None;
    509 "read_priority_normal" None;
    510 "read_priority_low" None;
    511 "read_priority_high" None;
    110 "durability_datacenter" None;
    120 "durability_risky" None;
    130 "durability_dev_null_is_web_scale" None;
    200 "priority_system_immediate" None =>
        /// Never held back. For the system's own work.
        PrioritySystemImmediate;
    201 "priority_batch" None =>
        /// Held back before other transactions; may fail with `batch_transaction_throttled`.
        PriorityBatch;
    300 "initialize_new_database" None =>
        /// Reads at version 0. For tools that fill an empty database.
        InitializeNewDatabase;
    301 "access_system_keys" None =>
        /// Keys that begin with `\xff` may be read and written.
        AccessSystemKeys;
    302 "read_system_keys" None =>
        /// Keys that begin with `\xff` may be read.
        ReadSystemKeys;
    303 "raw_access" None =>
        /// The whole key space may be used even where tenants are required.
        RawAccess;
    304 "bypass_storage_quota" None;
    400 "debug_dump" None;
    401 "debug_retry_logging" String;
    402 "transaction_logging_enable" String;
    403 "debug_transaction_identifier" String;
    404 "log_transaction" None;
    405 "transaction_logging_max_field_length" Int;
    406 "server_request_tracing" None;
    500 "timeout" Int =>
        /// From the transaction's creation or last reset on: after this it fails with
        /// `transaction_timed_out`; `None`: never. Whole milliseconds, rounded up, at most some 24
        /// days. Persistent.
        Timeout(Option<Duration>);
    501 "retry_limit" Int =>
        /// How often `on_error` may retry; `None`: without limit. Persistent.
        RetryLimit(Option<usize>);
    502 "max_retry_delay" Int =>
        /// How long `on_error` waits at most; a second unless set. Persistent.
        MaxRetryDelay(Duration);
    503 "size_limit" Int =>
        /// Largest size in bytes that may be committed: 32 to 10,000,000.
        SizeLimit(usize);
    504 "idempotency_id" Bytes =>
        /// The commit leaves a record under this id: 16 to 255 bytes. The record is for the caller
        /// to remove.
        IdempotencyId(Blob);
    505 "automatic_idempotency" None =>
        /// The commit leaves a record under a random id, and the client finds out by itself what
        /// became of a commit whose answer was lost.
        AutomaticIdempotency;
    600 "snapshot_ryw_enable" None =>
        /// Snapshot reads see this transaction's writes (they do, unless this was disabled more
        /// often than enabled).
        SnapshotRywEnable;
    601 "snapshot_ryw_disable" None =>
        /// Snapshot reads see the database alone.
        SnapshotRywDisable;
    700 "lock_aware" None =>
        /// Reads and commits although the database is locked.
        LockAware;
    701 "used_during_commit_protection_disable" None =>
        /// Using the transaction while it commits fails that use alone, and not the commit.
        UsedDuringCommitProtectionDisable;
    702 "read_lock_aware" None =>
        /// Reads although the database is locked; the transaction may not write.
        ReadLockAware;
    710 "first_in_batch" None;
    711 "use_provisional_proxies" None;
    712 "report_conflicting_keys" None =>
        /// After a conflict, `\xff\xff/transaction/conflicting_keys/` says which reads conflicted.
        ReportConflictingKeys;
    713 "special_key_space_relaxed" None =>
        /// A read of special keys may span several modules, or none.
        SpecialKeySpaceRelaxed;
    714 "special_key_space_enable_writes" None =>
        /// Special keys may be written.
        SpecialKeySpaceEnableWrites;
    800 "tag" String =>
        /// Counts the transaction towards a tag; up to five tags.
        Tag(String);
    801 "auto_throttle_tag" String =>
        /// A tag that may be throttled automatically.
        AutoThrottleTag(String);
    900 "span_parent" Bytes;
    1000 "expensive_clear_cost_estimation_enable" None;
    1100 "bypass_unreadable" None =>
        /// Reads may see versionstamped keys and values before their stamp is filled in.
        BypassUnreadable;
    1101 "use_grv_cache" None;
    1102 "skip_grv_cache" None;
    2000 "authorization_token" String =>
        /// Shows a token to the servers, for the transaction's retries too; an empty one is none.
        AuthorizationToken(String);
    3000 "pinned_snapshot" None =>
        /// Plinth's own: reads a version that is kept for as long as the transaction is, however
        /// long that takes. Only before the first read; the transaction can't write. The version
        /// may be some seconds behind the newest commits.
        PinnedSnapshot;
}

impl TransactionOption {
    /// Whether an option with this code exists.
    pub fn exists(code: i32) -> bool {
        Self::ALL.iter().any(|(known, ..)| *known == code)
    }

    /// Whether an option with this code survives `on_error`.
    pub(crate) fn is_persistent(code: i32) -> bool {
        matches!(code, 500..=502 | 2000)
    }
}
