/* The C API of FoundationDB as Plinth's libfdb_c gives it. Functions behave as docs/compatibility.md says.
 * Define FDB_API_VERSION before including this. Bytes are a pointer and a length; a null pointer has length 0. */
#ifndef FDB_C_H
#define FDB_C_H
#pragma once

#ifndef DLLEXPORT
#define DLLEXPORT
#endif

#include "fdb_c_apiversion.g.h"

#if defined(FDB_USE_LATEST_API_VERSION)
#undef FDB_API_VERSION
#define FDB_API_VERSION FDB_LATEST_API_VERSION
#elif defined(FDB_USE_LATEST_BINDINGS_API_VERSION)
#undef FDB_API_VERSION
#define FDB_API_VERSION FDB_LATEST_BINDINGS_API_VERSION
#endif

#ifndef FDB_API_VERSION
#error FDB_API_VERSION must be defined before fdb_c.h is included
#elif FDB_API_VERSION < 23
#error API versions below 23 are not supported
#elif FDB_API_VERSION > FDB_LATEST_API_VERSION
#error The API version is newer than this header
#endif

/* Results must be used in C++; C programs were never asked to. */
#ifndef WARN_UNUSED_RESULT
#ifdef __GNUG__
#define WARN_UNUSED_RESULT __attribute__((warn_unused_result))
#else
#define WARN_UNUSED_RESULT
#endif
#endif

#include <stdint.h>

#include "fdb_c_options.g.h"
#include "fdb_c_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define fdb_select_api_version(v) fdb_select_api_version_impl(v, FDB_API_VERSION)
#define fdb_select_api_version_capped(v) \
	fdb_select_api_version_impl(v, FDB_API_VERSION < fdb_get_max_api_version() ? FDB_API_VERSION : fdb_get_max_api_version())

#define FDB_KEYSEL_LAST_LESS_THAN(k, l) k, l, 0, 0
#define FDB_KEYSEL_LAST_LESS_OR_EQUAL(k, l) k, l, 1, 0
#define FDB_KEYSEL_FIRST_GREATER_THAN(k, l) k, l, 1, 1
#define FDB_KEYSEL_FIRST_GREATER_OR_EQUAL(k, l) k, l, 0, 1

/* The process and its network thread */
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_network_set_option(
    FDBNetworkOption option, uint8_t const* value, int value_length);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_setup_network(void);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_run_network(void);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_stop_network(void);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_add_network_thread_completion_hook(
    void (*hook)(void*), void* hook_parameter);
DLLEXPORT const char* fdb_get_error(fdb_error_t code);
DLLEXPORT fdb_bool_t fdb_error_predicate(int predicate_test, fdb_error_t code);
DLLEXPORT int fdb_get_max_api_version(void);
DLLEXPORT const char* fdb_get_client_version(void);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_select_api_version_impl(int runtime_version, int header_version);

/* Futures */
DLLEXPORT void fdb_future_cancel(FDBFuture* f);
DLLEXPORT void fdb_future_release_memory(FDBFuture* f);
DLLEXPORT void fdb_future_destroy(FDBFuture* f);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_block_until_ready(FDBFuture* f);
DLLEXPORT fdb_bool_t fdb_future_is_ready(FDBFuture* f);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_set_callback(
    FDBFuture* f, FDBCallback callback, void* callback_parameter);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_error(FDBFuture* f);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_bool(FDBFuture* f, fdb_bool_t* out);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_int64(FDBFuture* f, int64_t* out);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_uint64(FDBFuture* f, uint64_t* out);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_double(FDBFuture* f, double* out);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_key(
    FDBFuture* f, uint8_t const** out_key, int* out_key_length);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_value(
    FDBFuture* f, fdb_bool_t* out_present, uint8_t const** out_value, int* out_value_length);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_keyvalue_array(
    FDBFuture* f, FDBKeyValue const** out_kv, int* out_count, fdb_bool_t* out_more);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_mappedkeyvalue_array(
    FDBFuture* f, FDBMappedKeyValue const** out_kv, int* out_count, fdb_bool_t* out_more);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_key_array(
    FDBFuture* f, FDBKey const** out_keys, int* out_count);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_string_array(
    FDBFuture* f, const char*** out_strings, int* out_count);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_keyrange_array(
    FDBFuture* f, FDBKeyRange const** out_ranges, int* out_count);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_granule_summary_array(
    FDBFuture* f, FDBGranuleSummary const** out_summaries, int* out_count);
DLLEXPORT void fdb_result_destroy(FDBResult* r);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_result_get_keyvalue_array(
    FDBResult* r, FDBKeyValue const** out_kv, int* out_count, fdb_bool_t* out_more);

/* Databases */
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_create_database(
    const char* cluster_file_path, FDBDatabase** out_database);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_create_database_from_connection_string(
    const char* connection_string, FDBDatabase** out_database);
DLLEXPORT void fdb_database_destroy(FDBDatabase* db);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_database_set_option(
    FDBDatabase* db, FDBDatabaseOption option, uint8_t const* value, int value_length);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_database_create_transaction(
    FDBDatabase* db, FDBTransaction** out_transaction);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_database_open_tenant(
    FDBDatabase* db, uint8_t const* name, int name_length, FDBTenant** out_tenant);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_reboot_worker(
    FDBDatabase* db, uint8_t const* address, int address_length, fdb_bool_t check, int duration);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_force_recovery_with_data_loss(
    FDBDatabase* db, uint8_t const* dcid, int dcid_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_create_snapshot(
    FDBDatabase* db, uint8_t const* uid, int uid_length, uint8_t const* command, int command_length);
DLLEXPORT double fdb_database_get_main_thread_busyness(FDBDatabase* db);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_get_server_protocol(FDBDatabase* db, uint64_t expected_version);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_get_client_status(FDBDatabase* db);

/* Tenants */
DLLEXPORT void fdb_tenant_destroy(FDBTenant* tenant);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_tenant_create_transaction(
    FDBTenant* tenant, FDBTransaction** out_transaction);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_get_id(FDBTenant* tenant);

/* Transactions */
DLLEXPORT void fdb_transaction_destroy(FDBTransaction* tr);
DLLEXPORT void fdb_transaction_cancel(FDBTransaction* tr);
DLLEXPORT void fdb_transaction_reset(FDBTransaction* tr);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_transaction_set_option(
    FDBTransaction* tr, FDBTransactionOption option, uint8_t const* value, int value_length);
DLLEXPORT void fdb_transaction_set_read_version(FDBTransaction* tr, int64_t version);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_read_version(FDBTransaction* tr);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get(
    FDBTransaction* tr, uint8_t const* key, int key_length, fdb_bool_t snapshot);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_key(
    FDBTransaction* tr, uint8_t const* key, int key_length, fdb_bool_t or_equal, int offset, fdb_bool_t snapshot);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_addresses_for_key(
    FDBTransaction* tr, uint8_t const* key, int key_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_range(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, fdb_bool_t begin_or_equal, int begin_offset,
    uint8_t const* end, int end_length, fdb_bool_t end_or_equal, int end_offset, int limit, int target_bytes,
    FDBStreamingMode mode, int iteration, fdb_bool_t snapshot, fdb_bool_t reverse);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_mapped_range(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, fdb_bool_t begin_or_equal, int begin_offset,
    uint8_t const* end, int end_length, fdb_bool_t end_or_equal, int end_offset, uint8_t const* mapper,
    int mapper_length, int limit, int target_bytes, FDBStreamingMode mode, int iteration, fdb_bool_t snapshot,
    fdb_bool_t reverse);
DLLEXPORT void fdb_transaction_set(
    FDBTransaction* tr, uint8_t const* key, int key_length, uint8_t const* value, int value_length);
DLLEXPORT void fdb_transaction_atomic_op(
    FDBTransaction* tr, uint8_t const* key, int key_length, uint8_t const* param, int param_length,
    FDBMutationType operation_type);
DLLEXPORT void fdb_transaction_clear(FDBTransaction* tr, uint8_t const* key, int key_length);
DLLEXPORT void fdb_transaction_clear_range(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_watch(FDBTransaction* tr, uint8_t const* key, int key_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_commit(FDBTransaction* tr);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_transaction_get_committed_version(
    FDBTransaction* tr, int64_t* out_version);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_versionstamp(FDBTransaction* tr);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_approximate_size(FDBTransaction* tr);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_total_cost(FDBTransaction* tr);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_tag_throttled_duration(FDBTransaction* tr);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_on_error(FDBTransaction* tr, fdb_error_t error);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_transaction_add_conflict_range(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    FDBConflictRangeType type);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_estimated_range_size_bytes(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_range_split_points(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t chunk_size);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_range_split_points_with_limit(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t chunk_size, int limit);

/* Blob granules, which FoundationDB has retired: every future and result fails with 2108 */
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_blobbify_range(
    FDBDatabase* db, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_blobbify_range_blocking(
    FDBDatabase* db, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_unblobbify_range(
    FDBDatabase* db, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_list_blobbified_ranges(
    FDBDatabase* db, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length, int limit);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_verify_blob_range(
    FDBDatabase* db, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length, int64_t version);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_flush_blob_range(
    FDBDatabase* db, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length, fdb_bool_t compact,
    int64_t version);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_purge_blob_granules(
    FDBDatabase* db, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t purge_version, fdb_bool_t force);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_wait_purge_granules_complete(
    FDBDatabase* db, uint8_t const* purge_key, int purge_key_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_blobbify_range(
    FDBTenant* tenant, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_blobbify_range_blocking(
    FDBTenant* tenant, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_unblobbify_range(
    FDBTenant* tenant, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_list_blobbified_ranges(
    FDBTenant* tenant, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length, int limit);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_verify_blob_range(
    FDBTenant* tenant, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length, int64_t version);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_flush_blob_range(
    FDBTenant* tenant, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    fdb_bool_t compact, int64_t version);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_purge_blob_granules(
    FDBTenant* tenant, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t purge_version, fdb_bool_t force);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_tenant_wait_purge_granules_complete(
    FDBTenant* tenant, uint8_t const* purge_key, int purge_key_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_get_blob_granule_ranges(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length, int limit);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_summarize_blob_granules(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t summary_version, int limit);
DLLEXPORT WARN_UNUSED_RESULT FDBResult* fdb_transaction_read_blob_granules(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t begin_version, int64_t read_version, FDBReadBlobGranuleContext context);

DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_transaction_read_blob_granules_description(
    FDBTransaction* tr, uint8_t const* begin, int begin_length, uint8_t const* end, int end_length,
    int64_t begin_version, int64_t read_version, int64_t* out_read_version);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_readbg_get_descriptions(
    FDBFuture* f, FDBBGFileDescription** out_descriptions, int* out_count);
DLLEXPORT WARN_UNUSED_RESULT FDBResult* fdb_readbg_parse_snapshot_file(
    const uint8_t* file_data, int file_length, FDBBGTenantPrefix const* tenant_prefix,
    FDBBGEncryptionCtx const* encryption);
DLLEXPORT WARN_UNUSED_RESULT FDBResult* fdb_readbg_parse_delta_file(
    const uint8_t* file_data, int file_length, FDBBGTenantPrefix const* tenant_prefix,
    FDBBGEncryptionCtx const* encryption);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_result_get_bg_mutations_array(
    FDBResult* r, FDBBGMutation const** out_mutations, int* out_count);

/* Change data capture, as the packages of FoundationDB 8 call it */
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_register_cdc_stream(
    FDBDatabase* db, uint8_t const* name, int name_length, FDBKeyRange const* ranges, int range_count);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_register_cdc_ordered_stream(
    FDBDatabase* db, uint8_t const* name, int name_length, FDBKeyRange const* ranges, int range_count,
    FDBKey const* split_points, int split_point_count);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_remove_cdc_stream(
    FDBDatabase* db, uint8_t const* name, int name_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_list_cdc_streams(FDBDatabase* db);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_create_cdc_consumer(
    FDBDatabase* db, uint8_t const* name, int name_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_database_resume_cdc_consumer(
    FDBDatabase* db, uint64_t stream_id, int64_t last_consumed_version);
DLLEXPORT void fdb_cdc_consumer_destroy(FDBCdcConsumer* consumer);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_cdc_consumer_consume(FDBCdcConsumer* consumer);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_cdc_consumer_acknowledge(FDBCdcConsumer* consumer);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_cdc_consumer_get_position(
    FDBCdcConsumer* consumer, uint64_t* out_stream_id, int64_t* out_last_consumed_version);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_cdc_stream_info_array(
    FDBFuture* f, FDBCdcStreamInfo const** out_streams, int* out_count);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_cdc_consumer(FDBFuture* f, FDBCdcConsumer** out_consumer);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_cdc_versioned_mutations(
    FDBFuture* f, FDBCdcVersionedMutations const** out_mutations, int* out_count, int64_t* out_last_consumed_version);

/* Programs compiled for API versions below 620 */
#if FDB_API_VERSION < 620
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_version(FDBFuture* f, int64_t* out_version);
#endif

/* Programs compiled for API versions below 610 */
#if FDB_API_VERSION < 610
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_create_cluster(const char* cluster_file_path);
DLLEXPORT void fdb_cluster_destroy(FDBCluster* c);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_cluster_set_option(
    FDBCluster* c, FDBClusterOption option, uint8_t const* value, int value_length);
DLLEXPORT WARN_UNUSED_RESULT FDBFuture* fdb_cluster_create_database(
    FDBCluster* c, uint8_t const* db_name, int db_name_length);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_cluster(FDBFuture* f, FDBCluster** out_cluster);
DLLEXPORT WARN_UNUSED_RESULT fdb_error_t fdb_future_get_database(FDBFuture* f, FDBDatabase** out_database);
#endif

#ifdef __cplusplus
}
#endif

#endif
