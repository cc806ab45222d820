//! Errors, with FoundationDB's numbers, in one table.
//!
//! A number exists only where a caller can react to it. What went wrong in particular (which key,
//! which file, which limit) stands in the error's detail; what to do about it in [`Error::advice`].

use std::fmt;
use std::sync::Arc;

/// The result of everything that can fail with one of these errors.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with FoundationDB's number.
///
/// Equality is by number alone: the detail is for people.
#[derive(Clone)]
pub struct Error {
    code: u16,
    exhausted: Option<Resource>,
    detail: Option<Arc<str>>,
}

/// What the machine has no more of. Whoever met with it can go on when there is some again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Space on a disk, or in the quota on it.
    DiskSpace,
    /// File descriptors, of the process or of the machine.
    FileDescriptors,
}

/// Questions that may be asked of an error's number (FoundationDB's error predicates).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum ErrorPredicate {
    /// Trying the transaction again may succeed.
    Retryable = 50_000,
    /// The transaction may have been committed, or may still be.
    MaybeCommitted = 50_001,
    /// Trying again may succeed, and the transaction was certainly not committed.
    RetryableNotCommitted = 50_002,
}

impl Error {
    /// The error with this number. Numbers that FoundationDB doesn't know are kept as they are;
    /// those that no error can have (below 1 or above 65535) become `internal_error`.
    pub fn from_code(code: i32) -> Self {
        let code = u16::try_from(code).ok().filter(|code| *code != 0).unwrap_or(4100);
        Self { code, exhausted: None, detail: None }
    }

    /// The same error, which comes of this resource's end. The number stays: this is for those in
    /// the process who react differently, and is not sent to a client behind a socket.
    #[must_use]
    pub fn for_want_of(self, resource: Resource) -> Self {
        Self { exhausted: Some(resource), ..self }
    }

    /// What the machine had no more of, if that is why.
    pub const fn exhausted(&self) -> Option<Resource> {
        self.exhausted
    }

    /// The same error with what happened in particular.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into().into()), ..self }
    }

    /// FoundationDB's number.
    pub fn code(&self) -> i32 {
        i32::from(self.code)
    }

    /// FoundationDB's name, `unknown_error` for a number without one.
    pub fn name(&self) -> &'static str {
        self.entry().map_or("unknown_error", |entry| entry.name)
    }

    /// What the number means, in a sentence.
    pub fn description(&self) -> &'static str {
        self.entry().map_or("UNKNOWN_ERROR", |entry| entry.description)
    }

    /// What the caller can do about it; empty where the description says it all.
    pub fn advice(&self) -> &'static str {
        self.entry().map_or("", |entry| entry.advice)
    }

    /// What happened in particular, if that was known.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// Whether `predicate` is true of this error.
    pub fn is(&self, predicate: ErrorPredicate) -> bool {
        let maybe_committed = matches!(self.code, 1021 | 1039);
        let not_committed = matches!(
            self.code,
            1007 | 1009 | 1020 | 1037 | 1038 | 1042 | 1051 | 1078 | 1213 | 1223 | 1235 | 1242
        );
        match predicate {
            ErrorPredicate::Retryable => maybe_committed || not_committed,
            ErrorPredicate::MaybeCommitted => maybe_committed,
            ErrorPredicate::RetryableNotCommitted => not_committed,
        }
    }

    /// Whether trying the transaction again may succeed.
    pub fn is_retryable(&self) -> bool {
        self.is(ErrorPredicate::Retryable)
    }

    /// Whether the transaction may have been committed.
    pub fn is_maybe_committed(&self) -> bool {
        self.is(ErrorPredicate::MaybeCommitted)
    }

    fn entry(&self) -> Option<&'static Entry> {
        TABLE.binary_search_by_key(&self.code, |entry| entry.code).ok().map(|at| &TABLE[at])
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

impl Eq for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.code, self.description())?;
        if let Some(detail) = &self.detail {
            write!(f, " ({detail})")?;
        }
        if !self.advice().is_empty() {
            write!(f, "; {}", self.advice())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({} {}", self.code, self.name())?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    /// File errors by kind: not found, not readable, everything else `io_error`; the text is kept.
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Self::file_not_found(),
            std::io::ErrorKind::PermissionDenied => Self::file_not_readable(),
            _ => Self::io_error(),
        };
        kind.with_detail(error.to_string())
    }
}

struct Entry {
    code: u16,
    name: &'static str,
    description: &'static str,
    advice: &'static str,
}

macro_rules! errors {
    ($($code:literal $name:ident $description:literal $advice:literal;)*) => {
        impl Error {
            $(
                #[doc = concat!("Number ", stringify!($code), ": ", $description, ".")]
                pub const fn $name() -> Self {
                    Self { code: $code, exhausted: None, detail: None }
                }
            )*
        }
        /// Sorted by number.
        static TABLE: &[Entry] = &[
            $(Entry { code: $code, name: stringify!($name), description: $description, advice: $advice },)*
        ];
    };
}

errors! {
    1 end_of_stream "End of stream" "";
    1000 operation_failed "The operation failed" "";
    1001 wrong_shard_server "This server does not hold that part of the key space" "";
    1004 timed_out "The operation took too long" "";
    1006 all_alternatives_failed "No server that holds the data can be reached" "";
    1007 transaction_too_old "The transaction's read version has left the window of five seconds" "do less in one transaction, or retry";
    1009 future_version "The read version is newer than anything the database has reached" "retry";
    1020 not_committed "Another transaction wrote something that this one had read" "retry";
    1021 commit_unknown_result "The commit may or may not have taken effect" "retry if applying it twice does no harm, or use an idempotency id";
    1022 commit_unknown_result_fatal "The commit may or may not have taken effect, and its record has expired" "read the data to find out";
    1025 transaction_cancelled "The operation was cancelled together with its transaction" "";
    1026 connection_failed "The network connection failed" "";
    1027 coordinators_changed "The coordinators have changed" "";
    1029 watch_cancelled "The server gave the watch up" "";
    1031 transaction_timed_out "The transaction's timeout has passed" "raise the timeout or do less";
    1032 too_many_watches "The database handle has as many watches as it may" "raise max_watches or drop some";
    1033 locality_information_unavailable "It is not known where the key is stored" "";
    1034 watches_disabled "Watches need read-your-writes" "";
    1036 accessed_unreadable "The read touches a key that gets its versionstamp only at commit" "read it in the next transaction";
    1037 process_behind "The storage lags too far behind" "retry";
    1038 database_locked "The database is locked" "unlock it, or make the transaction lock-aware";
    1039 cluster_version_changed "The cluster has changed to another version of the protocol" "retry";
    1040 external_client_already_loaded "The external client library is loaded already" "";
    1041 lookup_failed "A host name could not be resolved" "";
    1042 commit_proxy_memory_limit_exceeded "The commit pipeline holds as much as it may" "retry later";
    1043 shutdown_in_progress "The database is shutting down" "";
    1051 batch_transaction_throttled "Transactions of batch priority are held back" "retry later";
    1078 grv_proxy_memory_limit_exceeded "Too many transactions wait for a read version" "retry later";
    1079 blob_granule_request_failed "A blob granule request failed" "";
    1100 broken_promise "Whoever should have answered has gone" "";
    1101 operation_cancelled "The operation was cancelled" "";
    1102 future_released "The future's memory has been released" "";
    1213 tag_throttled "Transactions with this tag are held back" "retry later";
    1223 proxy_tag_throttled "Transactions with this tag waited too long for a read version" "retry later";
    1235 transaction_throttled_hot_shard "The keys written are under too much load" "retry later";
    1242 transaction_rejected_range_locked "A key range that the transaction uses is locked" "retry later: it may be under restore";
    1500 platform_error "The operating system refused" "";
    1501 large_alloc_failed "There is not enough memory" "";
    1510 io_error "Reading or writing a file failed" "";
    1511 file_not_found "The file does not exist" "";
    1512 bind_failed "The address cannot be listened on" "";
    1513 file_not_readable "The file cannot be read" "check its permissions";
    1514 file_not_writable "The file cannot be written" "check its permissions, and whether the disk is full";
    1515 no_cluster_file_found "There is no cluster file" "name one, or set FDB_CLUSTER_FILE";
    1516 file_too_large "The file is too large" "";
    1520 checksum_failed "The data read does not have the checksum it was written with" "";
    1521 io_timeout "A disk operation did not end in time" "";
    1522 file_corrupt "A file's structure is damaged" "run `plinth check`, then `plinth salvage` or restore a backup";
    1529 lock_file_failure "The lock file cannot be taken" "another process has the database open";
    2000 client_invalid_operation "The operation is not allowed here" "";
    2002 commit_read_incomplete "Reads were outstanding when the transaction was committed" "";
    2003 test_specification_invalid "The test specification is invalid" "";
    2004 key_outside_legal_range "The key lies outside the part of the key space that the transaction may use" "keys that begin with \\xff need an option";
    2005 inverted_range "The range ends before it begins" "";
    2006 invalid_option_value "The option does not take this value" "";
    2007 invalid_option "There is no such option here" "";
    2008 network_not_setup "The network has not been set up" "call the set-up function first";
    2009 network_already_setup "The network has been set up already" "";
    2010 read_version_already_set "The transaction has a read version already" "";
    2011 version_invalid "The version is not valid" "";
    2012 range_limits_invalid "The limits of the range read are not valid" "";
    2013 invalid_database_name "The database must be named DB" "";
    2014 attribute_not_found "The attribute was not found" "";
    2015 future_not_set "The future has no value yet" "";
    2016 future_not_error "The future holds no error" "";
    2017 used_during_commit "The transaction was used while, or after, it was committed" "reset it or make a new one";
    2018 invalid_mutation_type "There is no such atomic operation" "";
    2019 attribute_too_large "The attribute is too large" "";
    2020 transaction_invalid_version "The transaction has no version because its commit failed" "";
    2021 no_commit_version "The transaction has no version because it wrote nothing" "";
    2022 environment_variable_network_option_failed "A network option in the environment could not be set" "";
    2023 transaction_read_only "The transaction is read-only but has writes" "";
    2025 network_cannot_be_restarted "The network was stopped and cannot be started again" "";
    2026 blocked_from_network_thread "Waiting for a future on the network thread would never end" "";
    2030 mapper_bad_index "The mapper names a tuple element that is not there" "";
    2031 mapper_no_such_key "A key that the mapper leads to does not exist" "";
    2032 mapper_bad_range_decriptor "The mapper's {...} may only stand at its end" "";
    2033 quick_get_key_values_has_more "A mapped range has more rows than one reply takes" "";
    2034 quick_get_value_miss "A mapped value is stored elsewhere" "";
    2035 quick_get_key_values_miss "A mapped range is stored elsewhere" "";
    2036 blob_granule_no_ryw "Blob granules cannot be read with read-your-writes" "";
    2037 blob_granule_not_materialized "The blob granule is not materialized" "";
    2038 get_mapped_key_values_has_more "A mapped range has more rows than one reply takes" "";
    2039 get_mapped_range_reads_your_writes "A mapped range read may not touch the transaction's own writes" "";
    2041 key_not_tuple "The key is not an encoded tuple" "";
    2042 value_not_tuple "The value is not an encoded tuple" "";
    2043 mapper_not_tuple "The mapper is not an encoded tuple" "";
    2049 address_parse_error "The network address cannot be read" "";
    2100 incompatible_protocol_version "Client and server speak different versions of the protocol" "";
    2101 transaction_too_large "The transaction exceeds its size limit" "split it";
    2102 key_too_large "The key is longer than a key may be" "";
    2103 value_too_large "The value is longer than a value may be" "";
    2104 connection_string_invalid "The connection string cannot be read" "write description:id@ip:port,...";
    2105 address_in_use "The address is in use" "";
    2106 invalid_local_address "The local address is not valid" "";
    2107 tls_error "TLS failed" "";
    2108 unsupported_operation "The operation is not supported" "";
    2109 too_many_tags "The transaction has as many tags as it may" "";
    2110 tag_too_long "The tag is longer than a tag may be" "";
    2112 special_keys_cross_module_read "The read spans several modules of the special keys" "read them one by one, or relax the special key space";
    2113 special_keys_no_module_found "No module of the special keys has this key" "";
    2114 special_keys_write_disabled "Writing special keys needs an option" "";
    2115 special_keys_no_write_module_found "No module of the special keys takes writes to this key" "";
    2116 special_keys_cross_module_clear "The clear spans several modules of the special keys" "";
    2117 special_keys_api_failure "Writing special keys failed" "read \\xff\\xff/error_message";
    2123 no_external_client_provided "The local client is disabled and no external one is given" "";
    2124 all_external_clients_failed "No external client could be loaded" "";
    2125 incompatible_client "No client speaks the cluster's protocol version" "";
    2130 tenant_name_required "A tenant must be named" "";
    2131 tenant_not_found "There is no such tenant" "";
    2132 tenant_already_exists "There is a tenant of that name already" "";
    2133 tenant_not_empty "The tenant has data" "";
    2134 invalid_tenant_name "A tenant's name may not begin with \\xff" "";
    2135 tenant_prefix_allocator_conflict "The tenant's prefix is in use" "";
    2136 tenants_disabled "Tenants are disabled" "";
    2138 illegal_tenant_access "The transaction may not use this tenant" "";
    2200 api_version_unset "No API version has been selected" "";
    2201 api_version_already_set "An API version has been selected already" "";
    2202 api_version_invalid "The API version is newer than the binding" "";
    2203 api_version_not_supported "The API version is not supported" "";
    2204 api_function_missing "A function that the API version needs is missing" "";
    2210 exact_mode_without_limits "The streaming mode EXACT needs a limit" "";
    2250 invalid_tuple_data_type "The bytes are not an encoded tuple of the types asked for" "";
    2251 invalid_tuple_index "The tuple has no such element" "";
    2252 key_not_in_subspace "The key does not begin with the subspace's prefix" "";
    2253 manual_prefixes_not_enabled "The directory layer chooses prefixes itself" "open it with manual prefixes allowed";
    2254 prefix_in_partition "A directory in a partition cannot be given a prefix" "";
    2255 cannot_open_root_directory "The root directory has no contents of its own" "name a directory below it";
    2256 directory_already_exists "There is a directory at this path already" "";
    2257 directory_does_not_exist "There is no directory at this path" "";
    2258 parent_directory_does_not_exist "There is no directory to move it into" "create the parent first";
    2259 mismatched_layer "The directory belongs to another layer" "";
    2260 invalid_directory_layer_metadata "The directory layer's own keys do not hold what they should" "";
    2261 cannot_move_directory_between_partitions "A directory cannot be moved to another partition" "";
    2262 cannot_use_partition_as_subspace "A partition's own prefix cannot hold data" "create a directory in the partition";
    2263 incompatible_directory_version "The directories were written by a newer version of the directory layer" "use that version";
    2264 directory_prefix_not_empty "There is data at the prefix chosen for the directory" "";
    2265 directory_prefix_in_use "The prefix intersects one that is in use" "choose another";
    2266 invalid_destination_directory "A directory cannot be moved into itself" "";
    2267 cannot_modify_root_directory "The root directory cannot be moved or removed" "";
    2268 invalid_uuid_size "A UUID has 16 bytes" "";
    2269 invalid_versionstamp_size "A versionstamp in a tuple has 12 bytes" "";
    2300 backup_error "The backup failed" "";
    2301 restore_error "The restore failed" "";
    2311 backup_duplicate "A backup runs at this place, or under this tag, already" "";
    2314 backup_invalid_url "The URL of the backup makes no sense" "";
    2316 backup_cannot_expire "What is to be removed is needed" "";
    2361 restore_invalid_version "The backup does not reach the version that is to be restored" "";
    2363 restore_missing_data "A file of the backup is missing" "";
    2370 restore_destination_not_empty "There are rows where some are to be restored" "";
    2400 key_not_found "The key does not exist" "";
    2401 json_malformed "The JSON text is malformed" "";
    2402 json_eof_expected "Something follows the JSON text" "";
    2505 snap_path_not_whitelisted "The snapshot command is not on the list of allowed ones" "";
    2509 snap_invalid_uid_string "The snapshot id is not a 32-digit hexadecimal number" "";
    4000 unknown_error "An unknown error" "";
    4100 internal_error "An internal invariant does not hold" "please report it";
    4200 not_implemented "Not implemented" "";
    6000 permission_denied "Permission denied" "";
    6001 unauthorized_attempt "The attempt was not authorized" "";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_numbers_are_found() {
        assert!(TABLE.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert_eq!(Error::from_code(1020), Error::not_committed());
        assert_eq!(Error::not_committed().name(), "not_committed");
        assert_eq!(Error::from_code(3333).name(), "unknown_error");
        assert_eq!(Error::from_code(-5), Error::internal_error());
    }

    #[test]
    fn the_message_says_what_where_and_what_to_do() {
        let error = Error::key_too_large().with_detail("10001 bytes, at most 10000");
        assert_eq!(
            error.to_string(),
            "key_too_large (2102): The key is longer than a key may be (10001 bytes, at most 10000)"
        );
        assert!(Error::not_committed().to_string().ends_with("; retry"));
    }

    #[test]
    fn what_was_exhausted_stays_with_the_error_and_makes_it_no_larger() {
        let error =
            Error::file_not_writable().for_want_of(Resource::DiskSpace).with_detail("a disk");
        assert_eq!(error.clone().exhausted(), Some(Resource::DiskSpace));
        assert_eq!(Error::file_not_writable().exhausted(), None);
        assert_eq!(size_of::<Error>(), size_of::<(u64, Option<Arc<str>>)>());
    }

    #[test]
    fn predicates_are_foundationdbs() {
        let retryable: Vec<_> = TABLE
            .iter()
            .map(|e| Error::from_code(e.code.into()))
            .filter(Error::is_retryable)
            .collect();
        let codes: Vec<_> = retryable.iter().map(Error::code).collect();
        assert_eq!(
            codes,
            [1007, 1009, 1020, 1021, 1037, 1038, 1039, 1042, 1051, 1078, 1213, 1223, 1235, 1242]
        );
        assert!(Error::commit_unknown_result().is_maybe_committed());
        assert!(!Error::not_committed().is_maybe_committed());
    }
}
