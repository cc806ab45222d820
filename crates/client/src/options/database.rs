//! Database options: limits of the handle, and defaults for its transactions.
//!
//! A default holds for transactions created afterwards, and for older ones once they are reset.

super::options! {
    /// An option of a database handle.
    DatabaseOption;
    /// No effect.
    10 LocationCacheSize "location_cache_size" (i64 Int);
    /// How many watches may be outstanding: up to 1,000,000; 10,000 unless set.
    20 MaxWatches "max_watches" (i64 Int);
    /// No effect.
    21 MachineId "machine_id" (String String);
    /// No effect.
    22 DatacenterId "datacenter_id" (String String);
    /// Snapshot reads of new transactions see those transactions' writes.
    26 SnapshotRywEnable "snapshot_ryw_enable";
    /// Snapshot reads of new transactions see the database alone.
    27 SnapshotRywDisable "snapshot_ryw_disable";
    /// Default of the transaction option of that name.
    405 TransactionLoggingMaxFieldLength "transaction_logging_max_field_length" (i64 Int);
    /// Default timeout in milliseconds.
    500 TransactionTimeout "transaction_timeout" (i64 Int);
    /// Default retry limit.
    501 TransactionRetryLimit "transaction_retry_limit" (i64 Int);
    /// Default of the longest wait of `on_error`, in milliseconds.
    502 TransactionMaxRetryDelay "transaction_max_retry_delay" (i64 Int);
    /// Default size limit in bytes.
    503 TransactionSizeLimit "transaction_size_limit" (i64 Int);
    /// Transactions take risky read versions.
    504 TransactionCausalReadRisky "transaction_causal_read_risky";
    /// Addresses of keys come with ports.
    505 TransactionIncludePortInAddress "transaction_include_port_in_address";
    /// Transactions have automatic idempotency.
    506 TransactionAutomaticIdempotency "transaction_automatic_idempotency";
    /// Transactions may read versionstamped data before the stamp is filled in.
    700 TransactionBypassUnreadable "transaction_bypass_unreadable";
    /// Using a transaction while it commits fails that use alone.
    701 TransactionUsedDuringCommitProtectionDisable "transaction_used_during_commit_protection_disable";
    /// Transactions report the keys they conflicted on.
    702 TransactionReportConflictingKeys "transaction_report_conflicting_keys";
    /// No effect.
    800 UseConfigDatabase "use_config_database";
    /// No effect.
    900 TestCausalReadRisky "test_causal_read_risky" (i64 Int);
}

impl DatabaseOption {
    /// Whether an option with this code exists.
    pub fn exists(code: i32) -> bool {
        Self::ALL.iter().any(|(known, ..)| *known == code)
    }

    /// The transaction option that this one is the default for, by codes.
    pub(crate) fn default_for(code: i32) -> Option<i32> {
        Some(match code {
            405 => 405,
            500..=503 => code,
            504 => 20,
            505 => 23,
            506 => 505,
            700 => 1100,
            701 => 701,
            702 => 712,
            _ => return None,
        })
    }
}
