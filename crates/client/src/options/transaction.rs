//! Transaction options.
//!
//! They hold until the transaction is reset or retried (`on_error`), when they fall back to the
//! database's defaults; those marked *persistent* survive a retry.

/// Bytes of an option.
type Blob = Vec<u8>;

super::options! {
    /// An option of one transaction.
    TransactionOption;
    /// Don't guard against committing twice after a fault: without the guard a retry after
    /// `commit_unknown_result` may find the first attempt still on its way.
    10 CausalWriteRisky "causal_write_risky";
    /// The read version may miss commits acknowledged a moment before.
    20 CausalReadRisky "causal_read_risky";
    /// No effect.
    21 CausalReadDisable "causal_read_disable";
    /// Addresses of keys come with ports (they do since API version 630).
    23 IncludePortInAddress "include_port_in_address";
    /// The next write adds no write conflict range.
    30 NextWriteNoWriteConflictRange "next_write_no_write_conflict_range";
    /// No effect.
    40 CommitOnFirstProxy "commit_on_first_proxy";
    /// No effect.
    50 CheckWritesEnable "check_writes_enable";
    /// Reads see the database alone, not this transaction's writes. Only before the first read or
    /// write.
    51 ReadYourWritesDisable "read_your_writes_disable";
    /// No effect.
    52 ReadAheadDisable "read_ahead_disable";
    /// No effect.
    507 ReadServerSideCacheEnable "read_server_side_cache_enable";
    /// No effect.
    508 ReadServerSideCacheDisable "read_server_side_cache_disable";
    /// No effect.
    509 ReadPriorityNormal "read_priority_normal";
    /// No effect.
    510 ReadPriorityLow "read_priority_low";
    /// No effect.
    511 ReadPriorityHigh "read_priority_high";
    /// No effect.
    110 DurabilityDatacenter "durability_datacenter";
    /// No effect.
    120 DurabilityRisky "durability_risky";
    /// No effect.
    130 DurabilityDevNullIsWebScale "durability_dev_null_is_web_scale";
    /// Never held back. For the system's own work.
    200 PrioritySystemImmediate "priority_system_immediate";
    /// Held back before other transactions; may fail with `batch_transaction_throttled`.
    201 PriorityBatch "priority_batch";
    /// Reads at version 0. For tools that fill an empty database.
    300 InitializeNewDatabase "initialize_new_database";
    /// Keys that begin with `\xff` may be read and written.
    301 AccessSystemKeys "access_system_keys";
    /// Keys that begin with `\xff` may be read.
    302 ReadSystemKeys "read_system_keys";
    /// The whole key space may be used even where tenants are required.
    303 RawAccess "raw_access";
    /// No effect.
    304 BypassStorageQuota "bypass_storage_quota";
    /// No effect.
    400 DebugDump "debug_dump";
    /// No effect; the name stands in log messages.
    401 DebugRetryLogging "debug_retry_logging" (String String);
    /// The two options `debug_transaction_identifier` and `log_transaction` in one.
    402 TransactionLoggingEnable "transaction_logging_enable" (String String);
    /// Names the transaction in logs: 1 to 100 bytes.
    403 DebugTransactionIdentifier "debug_transaction_identifier" (String String);
    /// Logs the transaction; it must have an identifier.
    404 LogTransaction "log_transaction";
    /// How long keys and values may be in logs; -1: whole.
    405 TransactionLoggingMaxFieldLength "transaction_logging_max_field_length" (i64 Int);
    /// No effect.
    406 ServerRequestTracing "server_request_tracing";
    /// Milliseconds from the transaction's creation or last reset after which it fails with
    /// `transaction_timed_out`; 0: never. Persistent.
    500 Timeout "timeout" (i64 Int);
    /// How often `on_error` may retry; -1: without limit. Persistent.
    501 RetryLimit "retry_limit" (i64 Int);
    /// Milliseconds that `on_error` waits at most; 1000 unless set. Persistent.
    502 MaxRetryDelay "max_retry_delay" (i64 Int);
    /// Largest size in bytes that may be committed: 32 to 10,000,000.
    503 SizeLimit "size_limit" (i64 Int);
    /// The commit leaves a record under this id: 16 to 255 bytes. The record is for the caller to
    /// remove.
    504 IdempotencyId "idempotency_id" (Blob Bytes);
    /// The commit leaves a record under a random id, and the client finds out by itself what became
    /// of a commit whose answer was lost.
    505 AutomaticIdempotency "automatic_idempotency";
    /// Snapshot reads see this transaction's writes (they do, unless this was disabled more often
    /// than enabled).
    600 SnapshotRywEnable "snapshot_ryw_enable";
    /// Snapshot reads see the database alone.
    601 SnapshotRywDisable "snapshot_ryw_disable";
    /// Reads and commits although the database is locked.
    700 LockAware "lock_aware";
    /// Using the transaction while it commits fails that use alone, and not the commit.
    701 UsedDuringCommitProtectionDisable "used_during_commit_protection_disable";
    /// Reads although the database is locked; the transaction may not write.
    702 ReadLockAware "read_lock_aware";
    /// No effect.
    710 FirstInBatch "first_in_batch";
    /// No effect.
    711 UseProvisionalProxies "use_provisional_proxies";
    /// After a conflict, `\xff\xff/transaction/conflicting_keys/` says which reads conflicted.
    712 ReportConflictingKeys "report_conflicting_keys";
    /// A read of special keys may span several modules, or none.
    713 SpecialKeySpaceRelaxed "special_key_space_relaxed";
    /// Special keys may be written.
    714 SpecialKeySpaceEnableWrites "special_key_space_enable_writes";
    /// Counts the transaction towards a tag; up to five tags.
    800 Tag "tag" (String String);
    /// A tag that may be throttled automatically.
    801 AutoThrottleTag "auto_throttle_tag" (String String);
    /// The 33 bytes of a span that this transaction is part of.
    900 SpanParent "span_parent" (Blob Bytes);
    /// No effect.
    1000 ExpensiveClearCostEstimationEnable "expensive_clear_cost_estimation_enable";
    /// Reads may see versionstamped keys and values before their stamp is filled in.
    1100 BypassUnreadable "bypass_unreadable";
    /// The read version may be a tenth of a second old.
    1101 UseGrvCache "use_grv_cache";
    /// No effect.
    1102 SkipGrvCache "skip_grv_cache";
    /// A token that authorizes access. Persistent.
    2000 AuthorizationToken "authorization_token" (String String);
    /// Plinth's own: reads a version that is kept for as long as the transaction is, however long
    /// that takes. Only before the first read; the transaction can't write. The version may be some
    /// seconds behind the newest commits.
    3000 PinnedSnapshot "pinned_snapshot";
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
