//! Database options: limits of the handle, and defaults for its transactions.
//!
//! A default holds for transactions created afterwards, and for older ones once they are reset.
//! What stands without a variant does nothing for a program in Rust: C's callers may set it.

use std::time::Duration;

super::options! {
    /// An option of a database handle.
    ///
    /// ```
    /// use plinth_client::DatabaseOption;
    /// use std::time::Duration;
    ///
    /// # fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
    /// db.set_option(DatabaseOption::TransactionTimeout(Some(Duration::from_secs(5))))?;
    /// db.set_option(DatabaseOption::MaxWatches(100))?;
    /// # Ok(()) }
    /// ```
    DatabaseOption;
    10 "location_cache_size" Int;
    20 "max_watches" Int =>
        /// How many watches may be outstanding: up to 1,000,000; 10,000 unless set.
        MaxWatches(usize);
    21 "machine_id" String;
    22 "datacenter_id" String;
    26 "snapshot_ryw_enable" None =>
        /// Snapshot reads of new transactions see those transactions' writes.
        SnapshotRywEnable;
    27 "snapshot_ryw_disable" None =>
        /// Snapshot reads of new transactions see the database alone.
        SnapshotRywDisable;
    405 "transaction_logging_max_field_length" Int;
    500 "transaction_timeout" Int =>
        /// Default timeout; `None`: never.
        TransactionTimeout(Option<Duration>);
    501 "transaction_retry_limit" Int =>
        /// Default retry limit; `None`: without.
        TransactionRetryLimit(Option<usize>);
    502 "transaction_max_retry_delay" Int =>
        /// Default of the longest wait of `on_error`.
        TransactionMaxRetryDelay(Duration);
    503 "transaction_size_limit" Int =>
        /// Default size limit in bytes.
        TransactionSizeLimit(usize);
    504 "transaction_causal_read_risky" None =>
        /// Transactions take risky read versions.
        TransactionCausalReadRisky;
    505 "transaction_include_port_in_address" None;
    506 "transaction_automatic_idempotency" None =>
        /// Transactions have automatic idempotency.
        TransactionAutomaticIdempotency;
    700 "transaction_bypass_unreadable" None =>
        /// Transactions may read versionstamped data before the stamp is filled in.
        TransactionBypassUnreadable;
    701 "transaction_used_during_commit_protection_disable" None =>
        /// Using a transaction while it commits fails that use alone.
        TransactionUsedDuringCommitProtectionDisable;
    702 "transaction_report_conflicting_keys" None =>
        /// Transactions report the keys they conflicted on.
        TransactionReportConflictingKeys;
    800 "use_config_database" None;
    900 "test_causal_read_risky" Int;
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
