//! Errors, with FoundationDB's numbers, in one table.
//!
//! A number exists only where a caller can react to it, and [`Error::kind`] says how: there are few
//! kinds, and a program that looks at them needs no numbers. What went wrong in particular (which
//! key, which file, which limit) stands in the error's detail; what people can do about it in
//! [`Error::advice`].

use std::fmt;
use std::sync::Arc;

/// The result of everything that can fail with one of these errors.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with FoundationDB's number.
///
/// Equality is by number alone: the detail is for people. What to do about an error is its
/// [`kind`](Error::kind); where that isn't enough, [`codes`] has the numbers.
///
/// ```
/// use plinth_types::{Error, ErrorKind, codes};
///
/// let error = Error::not_committed();
/// assert!(matches!(error.kind(), ErrorKind::Retry | ErrorKind::Locked));
/// assert!(matches!(error.code(), codes::NOT_COMMITTED | codes::TRANSACTION_TOO_OLD));
/// ```
#[derive(Clone)]
pub struct Error {
    code: u16,
    exhausted: Option<Resource>,
    detail: Option<Arc<str>>,
    /// Whether the detail says what to do, in place of the number's advice.
    detail_advises: bool,
}

/// What the machine has no more of. Whoever met with it can go on when there is some again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Space on a disk, or in the quota on it.
    DiskSpace,
    /// File descriptors, of the process or of the machine.
    FileDescriptors,
}

/// What a program does about an error. See [`Error::kind`].
///
/// ```
/// use plinth_types::{Error, ErrorKind};
///
/// fn answer(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::NotFound => 404,
///         ErrorKind::TooLarge => 413,
///         ErrorKind::Retry | ErrorKind::Locked | ErrorKind::Unreachable => 503,
///         _ => 500,
///     }
/// }
/// assert_eq!(answer(&Error::value_too_large()), 413);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Run the transaction again: it was certainly not committed. `transact` and `on_error` do so
    /// by themselves, after a wait where the database is busy.
    Retry,
    /// The transaction may have been committed. Run it again if that does no harm twice, or find
    /// out: read what it should have written, or give it an idempotency id. `transact` runs it
    /// again.
    MaybeCommitted,
    /// The database, or a range of keys that was used, is locked: wait, unlock it, or make the
    /// transaction lock-aware. `transact` waits.
    Locked,
    /// It took longer than it was allowed to: do less at a time, or allow more. A commit that this
    /// ended may have taken effect.
    TimedOut,
    /// Whoever asked gave it up, or closed what it was asked of.
    Cancelled,
    /// Nobody answers: a connection failed, a server is away, the database was closed. Try again
    /// later; a commit that this ended may have taken effect.
    Unreachable,
    /// Something exceeds a limit: make it smaller, or split it.
    TooLarge,
    /// What was named isn't there: a file, a directory, a key, a tenant.
    NotFound,
    /// What should be made is there already.
    AlreadyExists,
    /// Another process, or another handle in this one, has it: a directory that is open, an
    /// address.
    InUse,
    /// What was read isn't what was written: run a check, then salvage or restore.
    Damaged,
    /// A disk is full, or a quota on it is used up: make room. Commits go on by themselves then. A
    /// server's full disk is [`Permission`](Self::Permission) to its clients, whose number
    /// (`file_not_writable`) both share.
    DiskFull,
    /// The machine has no more of something else: memory, file descriptors.
    Exhausted,
    /// Permission was denied: by the operating system, or by a server. Or the key of an encrypted
    /// directory was not given.
    Permission,
    /// The operating system failed at a file or an address: look at the detail, then at the
    /// machine.
    Io,
    /// This database, this version or this build can't do it.
    Unsupported,
    /// Text or bytes that were given, or read, don't have the form that they must: a tuple, a
    /// cluster file, a URL.
    Malformed,
    /// The call makes no sense as it is, here or now: the program has to be changed.
    Usage,
    /// A mistake of the database's own: please report it.
    Internal,
    /// It failed for a reason that only the detail tells, or has a number that isn't known here.
    Other,
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
        Self { code, exhausted: None, detail: None, detail_advises: false }
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

    /// What a program does about it.
    pub fn kind(&self) -> ErrorKind {
        match self.exhausted {
            Some(Resource::DiskSpace) => ErrorKind::DiskFull,
            Some(Resource::FileDescriptors) => ErrorKind::Exhausted,
            None => self.entry().map_or(ErrorKind::Other, |entry| entry.kind),
        }
    }

    /// FoundationDB's name, `unknown_error` for a number without one.
    pub fn name(&self) -> &'static str {
        self.entry().map_or("unknown_error", |entry| entry.name)
    }

    /// The same error, whose detail says what to do in place of what one does mostly. Whoever hears
    /// of it from elsewhere has both.
    #[must_use]
    pub fn without_advice(self) -> Self {
        Self { detail_advises: true, ..self }
    }

    /// What the number means, in a sentence.
    pub fn description(&self) -> &'static str {
        self.entry().map_or("UNKNOWN_ERROR", |entry| entry.description)
    }

    /// What the caller can do about it; empty where the description, or the detail, says it all.
    pub fn advice(&self) -> &'static str {
        if self.detail_advises {
            return "";
        }
        self.entry().map_or("", |entry| entry.advice)
    }

    /// What happened in particular, if that was known.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// What happened in particular, or what the number means if that says it all: what stands in
    /// a sentence about it.
    pub fn summary(&self) -> &str {
        self.detail().unwrap_or(self.description())
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
    kind: ErrorKind,
    description: &'static str,
    advice: &'static str,
}

macro_rules! errors {
    ($($code:literal $constant:ident $name:ident $kind:ident $description:literal $advice:literal;)*) => {
        impl Error {
            $(
                #[doc = concat!("Number ", stringify!($code), ": ", $description, ".")]
                pub const fn $name() -> Self {
                    Self { code: $code, exhausted: None, detail: None, detail_advises: false }
                }
            )*
        }

        /// FoundationDB's numbers by name, to be compared with [`Error::code`], in patterns too.
        ///
        /// ```
        /// use plinth_types::{Error, codes};
        ///
        /// fn is_missing(error: &Error) -> bool {
        ///     matches!(error.code(), codes::FILE_NOT_FOUND | codes::DIRECTORY_DOES_NOT_EXIST)
        /// }
        /// assert!(is_missing(&Error::file_not_found()));
        /// ```
        pub mod codes {
            $(
                #[doc = concat!($description, ": `", stringify!($name), "`.")]
                pub const $constant: i32 = $code;
            )*
        }

        /// Sorted by number.
        static TABLE: &[Entry] = &[
            $(Entry {
                code: $code,
                name: stringify!($name),
                kind: ErrorKind::$kind,
                description: $description,
                advice: $advice,
            },)*
        ];

        #[cfg(test)]
        const CONSTANTS: &[(&str, i32)] = &[$((stringify!($constant), codes::$constant),)*];
    };
}

errors! {
    1 END_OF_STREAM end_of_stream Other "End of stream" "";
    1000 OPERATION_FAILED operation_failed Other "The operation failed" "";
    1001 WRONG_SHARD_SERVER wrong_shard_server Unreachable "This server does not hold that part of the key space" "";
    1004 TIMED_OUT timed_out TimedOut "The operation took too long" "";
    1006 ALL_ALTERNATIVES_FAILED all_alternatives_failed Unreachable "No server that holds the data can be reached" "";
    1007 TRANSACTION_TOO_OLD transaction_too_old Retry "The transaction's read version has left the window of five seconds" "do less in one transaction, or retry";
    1009 FUTURE_VERSION future_version Retry "The read version is newer than anything the database has reached" "retry";
    1020 NOT_COMMITTED not_committed Retry "Another transaction wrote something that this one had read" "retry";
    1021 COMMIT_UNKNOWN_RESULT commit_unknown_result MaybeCommitted "The commit may or may not have taken effect" "retry if applying it twice does no harm, or use an idempotency id";
    1022 COMMIT_UNKNOWN_RESULT_FATAL commit_unknown_result_fatal MaybeCommitted "The commit may or may not have taken effect, and its record has expired" "read the data to find out";
    1025 TRANSACTION_CANCELLED transaction_cancelled Cancelled "The operation was cancelled together with its transaction" "";
    1026 CONNECTION_FAILED connection_failed Unreachable "The network connection failed" "";
    1027 COORDINATORS_CHANGED coordinators_changed Unreachable "The coordinators have changed" "";
    1029 WATCH_CANCELLED watch_cancelled Cancelled "The server gave the watch up" "";
    1031 TRANSACTION_TIMED_OUT transaction_timed_out TimedOut "The transaction's timeout has passed" "raise the timeout or do less";
    1032 TOO_MANY_WATCHES too_many_watches TooLarge "The database handle has as many watches as it may" "raise max_watches or drop some";
    1033 LOCALITY_INFORMATION_UNAVAILABLE locality_information_unavailable Unreachable "It is not known where the key is stored" "";
    1034 WATCHES_DISABLED watches_disabled Usage "Watches need read-your-writes" "";
    1036 ACCESSED_UNREADABLE accessed_unreadable Usage "The read touches a key that gets its versionstamp only at commit" "read it in the next transaction";
    1037 PROCESS_BEHIND process_behind Retry "The storage lags too far behind" "retry";
    1038 DATABASE_LOCKED database_locked Locked "The database is locked" "wait for whoever locked it, or make the transaction lock-aware";
    1039 CLUSTER_VERSION_CHANGED cluster_version_changed MaybeCommitted "The cluster has changed to another version of the protocol" "retry";
    1040 EXTERNAL_CLIENT_ALREADY_LOADED external_client_already_loaded Usage "The external client library is loaded already" "";
    1041 LOOKUP_FAILED lookup_failed Unreachable "A host name could not be resolved" "";
    1042 COMMIT_PROXY_MEMORY_LIMIT_EXCEEDED commit_proxy_memory_limit_exceeded Retry "The commit pipeline holds as much as it may" "retry later";
    1043 SHUTDOWN_IN_PROGRESS shutdown_in_progress Unreachable "The database is shutting down" "";
    1051 BATCH_TRANSACTION_THROTTLED batch_transaction_throttled Retry "Transactions of batch priority are held back" "retry later";
    1078 GRV_PROXY_MEMORY_LIMIT_EXCEEDED grv_proxy_memory_limit_exceeded Retry "Too many transactions wait for a read version" "retry later";
    1079 BLOB_GRANULE_REQUEST_FAILED blob_granule_request_failed Other "A blob granule request failed" "";
    1100 BROKEN_PROMISE broken_promise Unreachable "Whoever should have answered has gone" "";
    1101 OPERATION_CANCELLED operation_cancelled Cancelled "The operation was cancelled" "";
    1102 FUTURE_RELEASED future_released Cancelled "The future's memory has been released" "";
    1213 TAG_THROTTLED tag_throttled Retry "Transactions with this tag are held back" "retry later";
    1223 PROXY_TAG_THROTTLED proxy_tag_throttled Retry "Transactions with this tag waited too long for a read version" "retry later";
    1235 TRANSACTION_THROTTLED_HOT_SHARD transaction_throttled_hot_shard Retry "The keys written are under too much load" "retry later";
    1242 TRANSACTION_REJECTED_RANGE_LOCKED transaction_rejected_range_locked Locked "A key range that the transaction uses is locked" "retry later: it may be under restore";
    1500 PLATFORM_ERROR platform_error Io "The operating system refused" "";
    1501 LARGE_ALLOC_FAILED large_alloc_failed Exhausted "There is not enough memory" "";
    1510 IO_ERROR io_error Io "Reading or writing a file failed" "";
    1511 FILE_NOT_FOUND file_not_found NotFound "The file does not exist" "";
    1512 BIND_FAILED bind_failed Io "The address cannot be listened on" "";
    1513 FILE_NOT_READABLE file_not_readable Permission "The file cannot be read" "check its permissions";
    1514 FILE_NOT_WRITABLE file_not_writable Permission "The file cannot be written" "check its permissions, and whether the disk is full";
    1515 NO_CLUSTER_FILE_FOUND no_cluster_file_found NotFound "There is no cluster file" "name one, or set FDB_CLUSTER_FILE";
    1516 FILE_TOO_LARGE file_too_large TooLarge "The file is too large" "";
    1520 CHECKSUM_FAILED checksum_failed Damaged "The data read does not have the checksum it was written with" "";
    1521 IO_TIMEOUT io_timeout Io "A disk operation did not end in time" "";
    1522 FILE_CORRUPT file_corrupt Damaged "A file's structure is damaged" "run `plinth check`, then `plinth salvage` or restore a backup";
    1529 LOCK_FILE_FAILURE lock_file_failure InUse "The lock file cannot be taken" "another process has the database open";
    2000 CLIENT_INVALID_OPERATION client_invalid_operation Usage "The operation is not allowed here" "";
    2002 COMMIT_READ_INCOMPLETE commit_read_incomplete Usage "Reads were outstanding when the transaction was committed" "";
    2003 TEST_SPECIFICATION_INVALID test_specification_invalid Usage "The test specification is invalid" "";
    2004 KEY_OUTSIDE_LEGAL_RANGE key_outside_legal_range Usage "The key lies outside the part of the key space that the transaction may use" "keys that begin with \\xff need an option";
    2005 INVERTED_RANGE inverted_range Usage "The range ends before it begins" "";
    2006 INVALID_OPTION_VALUE invalid_option_value Usage "The option does not take this value" "";
    2007 INVALID_OPTION invalid_option Usage "There is no such option here" "";
    2008 NETWORK_NOT_SETUP network_not_setup Usage "The network has not been set up" "call the set-up function first";
    2009 NETWORK_ALREADY_SETUP network_already_setup Usage "The network has been set up already" "";
    2010 READ_VERSION_ALREADY_SET read_version_already_set Usage "The transaction has a read version already" "";
    2011 VERSION_INVALID version_invalid Usage "The version is not valid" "";
    2012 RANGE_LIMITS_INVALID range_limits_invalid Usage "The limits of the range read are not valid" "";
    2013 INVALID_DATABASE_NAME invalid_database_name Usage "The database must be named DB" "";
    2014 ATTRIBUTE_NOT_FOUND attribute_not_found NotFound "The attribute was not found" "";
    2015 FUTURE_NOT_SET future_not_set Usage "The future has no value yet" "";
    2016 FUTURE_NOT_ERROR future_not_error Usage "The future holds no error" "";
    2017 USED_DURING_COMMIT used_during_commit Usage "The transaction was used while, or after, it was committed" "reset it or make a new one";
    2018 INVALID_MUTATION_TYPE invalid_mutation_type Usage "There is no such atomic operation" "";
    2019 ATTRIBUTE_TOO_LARGE attribute_too_large TooLarge "The attribute is too large" "";
    2020 TRANSACTION_INVALID_VERSION transaction_invalid_version Usage "The transaction has no version because its commit failed" "";
    2021 NO_COMMIT_VERSION no_commit_version Usage "The transaction has no version because it wrote nothing" "";
    2022 ENVIRONMENT_VARIABLE_NETWORK_OPTION_FAILED environment_variable_network_option_failed Usage "A network option in the environment could not be set" "";
    2023 TRANSACTION_READ_ONLY transaction_read_only Usage "The transaction is read-only but has writes" "";
    2025 NETWORK_CANNOT_BE_RESTARTED network_cannot_be_restarted Usage "The network was stopped and cannot be started again" "";
    2026 BLOCKED_FROM_NETWORK_THREAD blocked_from_network_thread Usage "Waiting for a future on the network thread would never end" "";
    2030 MAPPER_BAD_INDEX mapper_bad_index Usage "The mapper names a tuple element that is not there" "";
    2031 MAPPER_NO_SUCH_KEY mapper_no_such_key NotFound "A key that the mapper leads to does not exist" "";
    2032 MAPPER_BAD_RANGE_DECRIPTOR mapper_bad_range_decriptor Usage "The mapper's {...} may only stand at its end" "";
    2033 QUICK_GET_KEY_VALUES_HAS_MORE quick_get_key_values_has_more TooLarge "A mapped range has more rows than one reply takes" "";
    2034 QUICK_GET_VALUE_MISS quick_get_value_miss Usage "A mapped value is stored elsewhere" "";
    2035 QUICK_GET_KEY_VALUES_MISS quick_get_key_values_miss Usage "A mapped range is stored elsewhere" "";
    2036 BLOB_GRANULE_NO_RYW blob_granule_no_ryw Usage "Blob granules cannot be read with read-your-writes" "";
    2037 BLOB_GRANULE_NOT_MATERIALIZED blob_granule_not_materialized Usage "The blob granule is not materialized" "";
    2038 GET_MAPPED_KEY_VALUES_HAS_MORE get_mapped_key_values_has_more TooLarge "A mapped range has more rows than one reply takes" "";
    2039 GET_MAPPED_RANGE_READS_YOUR_WRITES get_mapped_range_reads_your_writes Usage "A mapped range read may not touch the transaction's own writes" "";
    2041 KEY_NOT_TUPLE key_not_tuple Malformed "The key is not an encoded tuple" "";
    2042 VALUE_NOT_TUPLE value_not_tuple Malformed "The value is not an encoded tuple" "";
    2043 MAPPER_NOT_TUPLE mapper_not_tuple Malformed "The mapper is not an encoded tuple" "";
    2049 ADDRESS_PARSE_ERROR address_parse_error Malformed "The network address cannot be read" "";
    2100 INCOMPATIBLE_PROTOCOL_VERSION incompatible_protocol_version Unsupported "Client and server speak different versions of the protocol" "";
    2101 TRANSACTION_TOO_LARGE transaction_too_large TooLarge "The transaction exceeds its size limit" "split it";
    2102 KEY_TOO_LARGE key_too_large TooLarge "The key is longer than a key may be" "";
    2103 VALUE_TOO_LARGE value_too_large TooLarge "The value is longer than a value may be" "";
    2104 CONNECTION_STRING_INVALID connection_string_invalid Malformed "The cluster file or connection string cannot be used" "";
    2105 ADDRESS_IN_USE address_in_use InUse "The address is in use" "";
    2106 INVALID_LOCAL_ADDRESS invalid_local_address Malformed "The local address is not valid" "";
    2107 TLS_ERROR tls_error Unreachable "TLS failed" "";
    2108 UNSUPPORTED_OPERATION unsupported_operation Unsupported "The operation is not supported" "";
    2109 TOO_MANY_TAGS too_many_tags TooLarge "The transaction has as many tags as it may" "";
    2110 TAG_TOO_LONG tag_too_long TooLarge "The tag is longer than a tag may be" "";
    2112 SPECIAL_KEYS_CROSS_MODULE_READ special_keys_cross_module_read Usage "The read spans several modules of the special keys" "read them one by one, or relax the special key space";
    2113 SPECIAL_KEYS_NO_MODULE_FOUND special_keys_no_module_found NotFound "No module of the special keys has this key" "";
    2114 SPECIAL_KEYS_WRITE_DISABLED special_keys_write_disabled Usage "Writing special keys needs an option" "";
    2115 SPECIAL_KEYS_NO_WRITE_MODULE_FOUND special_keys_no_write_module_found NotFound "No module of the special keys takes writes to this key" "";
    2116 SPECIAL_KEYS_CROSS_MODULE_CLEAR special_keys_cross_module_clear Usage "The clear spans several modules of the special keys" "";
    2117 SPECIAL_KEYS_API_FAILURE special_keys_api_failure Other "Writing special keys failed" "read \\xff\\xff/error_message";
    2123 NO_EXTERNAL_CLIENT_PROVIDED no_external_client_provided Usage "The local client is disabled and no external one is given" "";
    2124 ALL_EXTERNAL_CLIENTS_FAILED all_external_clients_failed Unreachable "No external client could be loaded" "";
    2125 INCOMPATIBLE_CLIENT incompatible_client Unsupported "No client speaks the cluster's protocol version" "";
    2130 TENANT_NAME_REQUIRED tenant_name_required Usage "A tenant must be named" "";
    2131 TENANT_NOT_FOUND tenant_not_found NotFound "There is no such tenant" "";
    2132 TENANT_ALREADY_EXISTS tenant_already_exists AlreadyExists "There is a tenant of that name already" "";
    2133 TENANT_NOT_EMPTY tenant_not_empty AlreadyExists "The tenant has data" "";
    2134 INVALID_TENANT_NAME invalid_tenant_name Usage "A tenant's name may not begin with \\xff" "";
    2135 TENANT_PREFIX_ALLOCATOR_CONFLICT tenant_prefix_allocator_conflict AlreadyExists "The tenant's prefix is in use" "";
    2136 TENANTS_DISABLED tenants_disabled Usage "Tenants are disabled" "";
    2138 ILLEGAL_TENANT_ACCESS illegal_tenant_access Permission "The transaction may not use this tenant" "";
    2200 API_VERSION_UNSET api_version_unset Usage "No API version has been selected" "";
    2201 API_VERSION_ALREADY_SET api_version_already_set Usage "An API version has been selected already" "";
    2202 API_VERSION_INVALID api_version_invalid Unsupported "The API version is newer than the binding" "";
    2203 API_VERSION_NOT_SUPPORTED api_version_not_supported Unsupported "The API version is not supported" "";
    2204 API_FUNCTION_MISSING api_function_missing Unsupported "A function that the API version needs is missing" "";
    2210 EXACT_MODE_WITHOUT_LIMITS exact_mode_without_limits Usage "The streaming mode EXACT needs a limit" "";
    2250 INVALID_TUPLE_DATA_TYPE invalid_tuple_data_type Malformed "The bytes are not an encoded tuple of the types asked for" "";
    2251 INVALID_TUPLE_INDEX invalid_tuple_index Malformed "The tuple has no such element" "";
    2252 KEY_NOT_IN_SUBSPACE key_not_in_subspace Malformed "The key does not begin with the subspace's prefix" "";
    2253 MANUAL_PREFIXES_NOT_ENABLED manual_prefixes_not_enabled Usage "The directory layer chooses prefixes itself" "open it with manual prefixes allowed";
    2254 PREFIX_IN_PARTITION prefix_in_partition Usage "A directory in a partition cannot be given a prefix" "";
    2255 CANNOT_OPEN_ROOT_DIRECTORY cannot_open_root_directory Usage "The root directory has no contents of its own" "name a directory below it";
    2256 DIRECTORY_ALREADY_EXISTS directory_already_exists AlreadyExists "There is a directory at this path already" "";
    2257 DIRECTORY_DOES_NOT_EXIST directory_does_not_exist NotFound "There is no directory at this path" "";
    2258 PARENT_DIRECTORY_DOES_NOT_EXIST parent_directory_does_not_exist NotFound "There is no directory to move it into" "create the parent first";
    2259 MISMATCHED_LAYER mismatched_layer Usage "The directory belongs to another layer" "";
    2260 INVALID_DIRECTORY_LAYER_METADATA invalid_directory_layer_metadata Damaged "The directory layer's own keys do not hold what they should" "";
    2261 CANNOT_MOVE_DIRECTORY_BETWEEN_PARTITIONS cannot_move_directory_between_partitions Usage "A directory cannot be moved to another partition" "";
    2262 CANNOT_USE_PARTITION_AS_SUBSPACE cannot_use_partition_as_subspace Usage "A partition's own prefix cannot hold data" "create a directory in the partition";
    2263 INCOMPATIBLE_DIRECTORY_VERSION incompatible_directory_version Unsupported "The directories were written by a newer version of the directory layer" "use that version";
    2264 DIRECTORY_PREFIX_NOT_EMPTY directory_prefix_not_empty AlreadyExists "There is data at the prefix chosen for the directory" "";
    2265 DIRECTORY_PREFIX_IN_USE directory_prefix_in_use AlreadyExists "The prefix intersects one that is in use" "choose another";
    2266 INVALID_DESTINATION_DIRECTORY invalid_destination_directory Usage "A directory cannot be moved into itself" "";
    2267 CANNOT_MODIFY_ROOT_DIRECTORY cannot_modify_root_directory Usage "The root directory cannot be moved or removed" "";
    2268 INVALID_UUID_SIZE invalid_uuid_size Malformed "A UUID has 16 bytes" "";
    2269 INVALID_VERSIONSTAMP_SIZE invalid_versionstamp_size Malformed "A versionstamp in a tuple has 12 bytes" "";
    2300 BACKUP_ERROR backup_error Other "The backup failed" "";
    2301 RESTORE_ERROR restore_error Other "The restore failed" "";
    2311 BACKUP_DUPLICATE backup_duplicate AlreadyExists "A backup runs at this place, or under this tag, already" "";
    2314 BACKUP_INVALID_URL backup_invalid_url Malformed "The URL of the backup makes no sense" "";
    2316 BACKUP_CANNOT_EXPIRE backup_cannot_expire Usage "What is to be removed is needed" "";
    2361 RESTORE_INVALID_VERSION restore_invalid_version Usage "The backup does not reach the version that is to be restored" "";
    2363 RESTORE_MISSING_DATA restore_missing_data Damaged "A file of the backup is missing" "";
    2370 RESTORE_DESTINATION_NOT_EMPTY restore_destination_not_empty AlreadyExists "There are rows where some are to be restored" "";
    2400 KEY_NOT_FOUND key_not_found NotFound "The key does not exist" "";
    2401 JSON_MALFORMED json_malformed Malformed "The JSON text is malformed" "";
    2402 JSON_EOF_EXPECTED json_eof_expected Malformed "Something follows the JSON text" "";
    2505 SNAP_PATH_NOT_WHITELISTED snap_path_not_whitelisted Usage "The snapshot command is not on the list of allowed ones" "";
    2509 SNAP_INVALID_UID_STRING snap_invalid_uid_string Usage "The snapshot id is not a 32-digit hexadecimal number" "";
    2702 ENCRYPT_KEY_NOT_FOUND encrypt_key_not_found Permission "The key of what is encrypted was not given" "give it: PLINTH_ENCRYPTION_KEY_FILE, a server's --encryption-key-file, or Builder::encryption";
    4000 UNKNOWN_ERROR unknown_error Internal "An unknown error" "";
    4100 INTERNAL_ERROR internal_error Internal "An internal invariant does not hold" "please report it";
    4200 NOT_IMPLEMENTED not_implemented Unsupported "Not implemented" "";
    6000 PERMISSION_DENIED permission_denied Permission "Permission denied" "";
    6001 UNAUTHORIZED_ATTEMPT unauthorized_attempt Permission "The attempt was not authorized" "";
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
        assert_eq!(error.summary(), "10001 bytes, at most 10000");
        assert!(Error::not_committed().to_string().ends_with("; retry"));
        let advises = Error::not_committed().without_advice().with_detail("wait for the others");
        assert!(advises.to_string().ends_with("(wait for the others)"), "{advises}");
        assert_eq!(Error::not_committed().summary(), Error::not_committed().description());
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
    fn every_constant_has_the_name_of_its_error() {
        for (entry, (name, code)) in TABLE.iter().zip(CONSTANTS) {
            assert_eq!((entry.name.to_uppercase(), i32::from(entry.code)), ((*name).into(), *code));
        }
    }

    #[test]
    fn kinds_say_what_the_predicates_say() {
        for entry in TABLE {
            let error = Error::from_code(entry.code.into());
            let (kind, may_be) = (error.kind(), error.is_maybe_committed());
            let again = error.is(ErrorPredicate::RetryableNotCommitted);
            assert_eq!(matches!(kind, ErrorKind::Retry | ErrorKind::Locked), again, "{error}");
            assert!(!may_be || kind == ErrorKind::MaybeCommitted, "{error}");
        }
    }

    #[test]
    fn what_was_exhausted_decides_what_to_do() {
        let full = Error::io_error().for_want_of(Resource::DiskSpace);
        assert_eq!(full.kind(), ErrorKind::DiskFull);
        assert_eq!(Error::io_error().kind(), ErrorKind::Io);
        let none_left = Error::connection_failed().for_want_of(Resource::FileDescriptors);
        assert_eq!(none_left.kind(), ErrorKind::Exhausted);
        assert_eq!(Error::from_code(3333).kind(), ErrorKind::Other);
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
