/* Objects used when they or their parents are gone or done: cancelled, released, failed, reset; databases and transactions
 * destroyed before what they gave; handles that are null. */
#include "check.h"

static FDBFuture* waiting(FDBDatabase* db) {
    FDBTransaction* tr = transaction(db);
    FDBFuture* f = fdb_transaction_watch(tr, BYTES("never"));
    EQUAL(outcome(fdb_transaction_commit(tr)), 0);
    fdb_transaction_destroy(tr);
    return f;
}

static void after_cancel(FDBDatabase* db) {
    int64_t number = 7;
    const uint8_t* bytes = NULL;
    int length = 0;
    FDBFuture* f = waiting(db);
    EQUAL(fdb_future_get_int64(f, &number), 2015);
    fdb_future_cancel(f);
    EQUAL(fdb_future_is_ready(f), 1);
    EQUAL(fdb_future_get_error(f), 1101);
    EQUAL(fdb_future_get_int64(f, &number), 1101);
    EQUAL(fdb_future_get_key(f, &bytes, &length), 1101);
    fdb_future_cancel(f);
    fdb_future_release_memory(f);
    EQUAL(fdb_future_get_error(f), 1101);
    EQUAL(number, 7);
    EQUAL(fdb_future_block_until_ready(f), 0);
    fdb_future_destroy(f);
}

static void after_release(FDBDatabase* db) {
    FDBTransaction* tr = transaction(db);
    int64_t version = 0;
    FDBFuture* f = fdb_transaction_get_read_version(tr);
    EQUAL(fdb_future_block_until_ready(f), 0);
    fdb_future_release_memory(f); /* nothing was taken yet: nothing is dropped */
    EQUAL(fdb_future_get_int64(f, &version), 0);
    EQUAL(version > 0, 1);
    fdb_future_release_memory(f);
    EQUAL(fdb_future_get_int64(f, &version), 1102);
    EQUAL(fdb_future_is_ready(f), 1);
    fdb_future_cancel(f);
    EQUAL(fdb_future_get_error(f), 1102);
    fdb_future_destroy(f);
    fdb_transaction_destroy(tr);
}

static void destroyed_parents(void) {
    FDBDatabase* db = open_database(":memory:");
    FDBTransaction* tr = transaction(db);
    FDBFuture* watch = waiting(db);
    fdb_database_destroy(db);
    fdb_transaction_set(tr, BYTES("k"), BYTES("v"));
    FDBFuture* read = fdb_transaction_get(tr, BYTES("k"), 0);
    FDBFuture* size = fdb_transaction_get_approximate_size(tr);
    fdb_transaction_destroy(tr);
    fdb_bool_t present = 0;
    const uint8_t* value = NULL;
    int length = 0;
    EQUAL(fdb_future_block_until_ready(read), 0);
    EQUAL(fdb_future_get_value(read, &present, &value, &length), 0);
    EQUAL(length, 1);
    fdb_future_destroy(read);
    EQUAL(outcome(size), 0);
    EQUAL(fdb_future_is_ready(watch), 0);
    fdb_future_destroy(watch);
}

static void cancelled_transactions(FDBDatabase* db) {
    FDBTransaction* tr = transaction(db);
    fdb_transaction_set_read_version(tr, INT64_C(1) << 60);
    FDBFuture* read = fdb_transaction_get(tr, BYTES("k"), 0);
    FDBFuture* range = fdb_transaction_get_range(tr, FDB_KEYSEL_FIRST_GREATER_OR_EQUAL(NULL, 0),
                                                 FDB_KEYSEL_LAST_LESS_THAN((const uint8_t*)"\xff", 1), 0, 0,
                                                 FDB_STREAMING_MODE_WANT_ALL, 1, 0, 1);
    fdb_transaction_reset(tr);
    EQUAL(outcome(read), 1025);
    EQUAL(outcome(range), 1025);
    EQUAL(outcome(fdb_transaction_get(tr, BYTES("k"), 0)), 0);
    fdb_transaction_set_read_version(tr, 5);
    EQUAL(outcome(fdb_transaction_get(tr, BYTES("k"), 0)), 2010);
    fdb_transaction_cancel(tr);
    fdb_transaction_cancel(tr);
    EQUAL(outcome(fdb_transaction_on_error(tr, 1020)), 1025);
    EQUAL(outcome(fdb_transaction_commit(tr)), 2010); /* the first error is kept until a reset */
    fdb_transaction_reset(tr);
    fdb_transaction_cancel(tr);
    EQUAL(outcome(fdb_transaction_commit(tr)), 1025);
    fdb_transaction_destroy(tr);
}

static void null_handles(void) {
    FDBTransaction* tr = NULL;
    FDBTenant* tenant = NULL;
    int64_t number = 0;
    fdb_future_cancel(NULL);
    fdb_future_release_memory(NULL);
    fdb_future_destroy(NULL);
    fdb_database_destroy(NULL);
    fdb_tenant_destroy(NULL);
    fdb_transaction_destroy(NULL);
    fdb_result_destroy(NULL);
    EQUAL(fdb_future_block_until_ready(NULL), 2000);
    EQUAL(fdb_future_get_error(NULL), 2000);
    EQUAL(fdb_future_get_int64(NULL, &number), 2000);
    EQUAL(fdb_database_create_transaction(NULL, &tr), 2000);
    EQUAL(fdb_database_open_tenant(NULL, BYTES("t"), &tenant), 2000);
    EQUAL(fdb_database_set_option(NULL, FDB_DB_OPTION_MAX_WATCHES, NULL, 0), 2000);
    EQUAL(fdb_transaction_set_option(NULL, FDB_TR_OPTION_TIMEOUT, NULL, 0), 2000);
    EQUAL(fdb_transaction_get_committed_version(NULL, &number), 2000);
    EQUAL(outcome(fdb_transaction_commit(NULL)), 2000);
    EQUAL(outcome(fdb_transaction_get_read_version(NULL)), 2000);
    EQUAL(outcome(fdb_database_get_client_status(NULL)), 2000);
    fdb_transaction_set(NULL, BYTES("k"), BYTES("v"));
    fdb_transaction_clear(NULL, BYTES("k"));
    fdb_transaction_cancel(NULL);
    fdb_transaction_reset(NULL);
}

/* A tenant's handle outlives its database's, and one that doesn't exist tells so at each use. */
static void tenants(void) {
    FDBDatabase* db = open_database(":memory:");
    FDBTenant* tenant = NULL;
    FDBTransaction* tr = NULL;
    EQUAL(fdb_database_open_tenant(db, BYTES("\xffx"), &tenant), 2134);
    EQUAL(fdb_database_open_tenant(db, BYTES("none"), &tenant), 0);
    fdb_database_destroy(db);
    EQUAL(outcome(fdb_tenant_get_id(tenant)), 2131);
    EQUAL(fdb_tenant_create_transaction(tenant, &tr), 0);
    fdb_tenant_destroy(tenant);
    EQUAL(outcome(fdb_transaction_get(tr, BYTES("k"), 0)), 2131);
    fdb_transaction_destroy(tr);
}

static void retired(FDBDatabase* db) {
    FDBTransaction* tr = transaction(db);
    FDBReadBlobGranuleContext context = {0};
    const FDBKeyValue* rows = NULL;
    int count = 0;
    fdb_bool_t more = 0;
    FDBResult* result = fdb_transaction_read_blob_granules(tr, BYTES("a"), BYTES("b"), 0, 1, context);
    EQUAL(fdb_result_get_keyvalue_array(result, &rows, &count, &more), 2108);
    fdb_result_destroy(result);
    result = fdb_readbg_parse_snapshot_file((const uint8_t*)"", 0, NULL, NULL);
    EQUAL(fdb_result_get_keyvalue_array(result, &rows, &count, &more), 2108);
    fdb_result_destroy(result);
    EQUAL(outcome(fdb_transaction_summarize_blob_granules(tr, BYTES("a"), BYTES("b"), 1, 1)), 2108);
    fdb_transaction_destroy(tr);
}

static void changes(FDBDatabase* db) {
    FDBKeyRange inverted = {(const uint8_t*)"b", 1, (const uint8_t*)"a", 1};
    EQUAL(outcome(fdb_database_register_cdc_stream(db, BYTES("s"), NULL, 1)), 2000);
    EQUAL(outcome(fdb_database_register_cdc_stream(db, BYTES("s"), NULL, -1)), 2000);
    EQUAL(outcome(fdb_database_register_cdc_stream(db, BYTES("s"), NULL, 0)), 2000);
    EQUAL(outcome(fdb_database_register_cdc_stream(db, BYTES("s"), &inverted, 1)), 2005);
    EQUAL(outcome(fdb_database_register_cdc_stream(NULL, BYTES("s"), &inverted, 1)), 2000);
    EQUAL(outcome(fdb_database_remove_cdc_stream(db, BYTES("nobody"))), 2000);
    EQUAL(outcome(fdb_database_create_cdc_consumer(db, BYTES("nobody"))), 2000);
    EQUAL(outcome(fdb_cdc_consumer_consume(NULL)), 2000);
    fdb_cdc_consumer_destroy(NULL);
    FDBFuture* f = fdb_database_list_cdc_streams(db);
    FDBCdcConsumer* consumer = NULL;
    EQUAL(fdb_future_block_until_ready(f), 0);
    EQUAL(fdb_future_get_cdc_consumer(f, &consumer), 2000);
    fdb_future_destroy(f);
    f = fdb_database_resume_cdc_consumer(db, 77, 5);
    EQUAL(fdb_future_block_until_ready(f), 0);
    EQUAL(fdb_future_get_cdc_consumer(f, &consumer), 0);
    fdb_future_destroy(f);
    EQUAL(outcome(fdb_cdc_consumer_consume(consumer)), 2000);
    fdb_cdc_consumer_destroy(consumer);
}

int main(void) {
    begin();
    FDBDatabase* db = open_database(":memory:");
    after_cancel(db);
    after_release(db);
    destroyed_parents();
    cancelled_transactions(db);
    null_handles();
    tenants();
    retired(db);
    changes(db);
    fdb_database_destroy(db);
    end();
    puts("ok");
    return 0;
}
