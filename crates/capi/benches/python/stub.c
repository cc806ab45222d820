/* A C library that answers at once: every future is ready and holds the same value. What remains is the binding's own cost. */
#include <stdint.h>

typedef int fdb_error_t;

static char thing;
static const uint8_t value[100] = "value";

#define ANSWERS(name) \
    fdb_error_t name() { return 0; }
#define GIVES(name) \
    void* name() { return &thing; }

ANSWERS(fdb_select_api_version_impl)
ANSWERS(fdb_get_max_api_version)
ANSWERS(fdb_error_predicate)
ANSWERS(fdb_setup_network)
ANSWERS(fdb_network_set_option)
ANSWERS(fdb_run_network)
ANSWERS(fdb_stop_network)
ANSWERS(fdb_future_destroy)
ANSWERS(fdb_future_release_memory)
ANSWERS(fdb_future_cancel)
ANSWERS(fdb_future_block_until_ready)
ANSWERS(fdb_future_set_callback)
ANSWERS(fdb_future_get_error)
ANSWERS(fdb_future_get_int64)
ANSWERS(fdb_future_get_uint64)
ANSWERS(fdb_future_get_key)
ANSWERS(fdb_future_get_keyvalue_array)
ANSWERS(fdb_future_get_key_array)
ANSWERS(fdb_future_get_string_array)
ANSWERS(fdb_database_destroy)
ANSWERS(fdb_database_open_tenant)
ANSWERS(fdb_database_set_option)
ANSWERS(fdb_tenant_destroy)
ANSWERS(fdb_tenant_create_transaction)
ANSWERS(fdb_transaction_destroy)
ANSWERS(fdb_transaction_cancel)
ANSWERS(fdb_transaction_set_read_version)
ANSWERS(fdb_transaction_add_conflict_range)
ANSWERS(fdb_transaction_set_option)
ANSWERS(fdb_transaction_atomic_op)
ANSWERS(fdb_transaction_set)
ANSWERS(fdb_transaction_clear)
ANSWERS(fdb_transaction_clear_range)
ANSWERS(fdb_transaction_get_committed_version)
ANSWERS(fdb_transaction_reset)
GIVES(fdb_database_get_client_status)
GIVES(fdb_tenant_get_id)
GIVES(fdb_transaction_get_read_version)
GIVES(fdb_transaction_get)
GIVES(fdb_transaction_get_key)
GIVES(fdb_transaction_get_range)
GIVES(fdb_transaction_get_estimated_range_size_bytes)
GIVES(fdb_transaction_get_range_split_points)
GIVES(fdb_transaction_get_addresses_for_key)
GIVES(fdb_transaction_watch)
GIVES(fdb_transaction_commit)
GIVES(fdb_transaction_get_approximate_size)
GIVES(fdb_transaction_get_versionstamp)
GIVES(fdb_transaction_on_error)

const char* fdb_get_error() { return ""; }

int fdb_future_is_ready() { return 1; }

fdb_error_t fdb_create_database(const char* path, void** out) {
    (void)path;
    *out = &thing;
    return 0;
}

fdb_error_t fdb_database_create_transaction(void* db, void** out) {
    (void)db;
    *out = &thing;
    return 0;
}

fdb_error_t fdb_future_get_value(void* f, int* present, const uint8_t** out, int* length) {
    (void)f;
    *present = 1;
    *out = value;
    *length = sizeof value;
    return 0;
}
