/* Futures: getters, memory, cancelling, callbacks on which thread and how often; and the network stopped with work in flight. */
#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int calls = 0;
static pthread_t called_on;
static fdb_error_t block_result = -1;

static void count(FDBFuture* f, void* never) {
    if (never)
        block_result = fdb_future_block_until_ready((FDBFuture*)never);
    pthread_mutex_lock(&lock);
    calls++;
    called_on = pthread_self();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    (void)f;
}

static void destroy_itself(FDBFuture* f, void* unused) {
    fdb_future_destroy(f);
    count(NULL, unused);
}

static void wait_for_calls(int wanted) {
    pthread_mutex_lock(&lock);
    while (calls < wanted)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static FDBFuture* watch(FDBDatabase* db, const char* key) {
    FDBTransaction* tr = transaction(db);
    FDBFuture* f = fdb_transaction_watch(tr, (const uint8_t*)key, (int)strlen(key));
    EQUAL(outcome(fdb_transaction_commit(tr)), 0);
    fdb_transaction_destroy(tr);
    return f;
}

static void set(FDBDatabase* db, const char* key, const char* value) {
    FDBTransaction* tr = transaction(db);
    fdb_transaction_set(tr, (const uint8_t*)key, (int)strlen(key), (const uint8_t*)value, (int)strlen(value));
    EQUAL(outcome(fdb_transaction_commit(tr)), 0);
    fdb_transaction_destroy(tr);
}

static void getters(FDBDatabase* db) {
    set(db, "k", "value");
    FDBTransaction* tr = transaction(db);
    FDBFuture* f = fdb_transaction_get(tr, BYTES("k"), 0);
    fdb_bool_t present = 0;
    const uint8_t *value = NULL, *again = NULL;
    int length = 0;
    int64_t number = 0;
    EQUAL(fdb_future_block_until_ready(f), 0);
    EQUAL(fdb_future_get_value(f, &present, &value, &length), 0);
    EQUAL(present, 1);
    EQUAL(length, 5);
    EQUAL(memcmp(value, "value", 5), 0);
    EQUAL(fdb_future_get_int64(f, &number), 2000); /* of another kind */
    EQUAL(fdb_future_get_value(f, &present, &again, &length), 0);
    EQUAL(value == again, 1);
    fdb_future_release_memory(f);
    fdb_future_release_memory(f);
    EQUAL(fdb_future_get_value(f, &present, &value, &length), 1102);
    EQUAL(fdb_future_is_ready(f), 1);
    fdb_future_destroy(f);
    f = fdb_transaction_get(tr, NULL, 0, 0); /* the empty key */
    EQUAL(outcome(f), 0);
    EQUAL(outcome(fdb_transaction_get(tr, NULL, 5, 0)), 2000);
    EQUAL(outcome(fdb_transaction_get(tr, BYTES("k") - 2, 0)), 2000);
    EQUAL(outcome(fdb_transaction_get(NULL, BYTES("k"), 0)), 2000);
    f = fdb_transaction_get_range(tr, FDB_KEYSEL_FIRST_GREATER_OR_EQUAL(NULL, 0),
                                  FDB_KEYSEL_FIRST_GREATER_OR_EQUAL((const uint8_t*)"\xff", 1), 0, 0,
                                  FDB_STREAMING_MODE_WANT_ALL, 1, 0, 0);
    const FDBKeyValue* rows = NULL;
    int rows_count = 0;
    fdb_bool_t more = 1;
    EQUAL(fdb_future_block_until_ready(f), 0);
    EQUAL(fdb_future_get_keyvalue_array(f, &rows, &rows_count, &more), 0);
    EQUAL(rows_count, 1);
    EQUAL(more, 0);
    EQUAL(rows[0].key_length, 1);
    EQUAL(rows[0].value_length, 5);
    EQUAL(sizeof(FDBKeyValue), 24);
    EQUAL(sizeof(FDBMappedKeyValue), 112);
    fdb_future_destroy(f);
    EQUAL(outcome(fdb_transaction_get_range(tr, FDB_KEYSEL_FIRST_GREATER_OR_EQUAL(NULL, 0),
                                            FDB_KEYSEL_FIRST_GREATER_OR_EQUAL((const uint8_t*)"b", 1), 0, 0,
                                            (FDBStreamingMode)77, 1, 0, 0)),
          2000);
    EQUAL(outcome(fdb_database_blobbify_range(db, BYTES("a"), BYTES("b"))), 2108);
    EQUAL(fdb_transaction_add_conflict_range(tr, BYTES("b"), BYTES("a"), FDB_CONFLICT_RANGE_TYPE_READ), 2005);
    EQUAL(fdb_transaction_add_conflict_range(tr, BYTES("a"), BYTES("b"), (FDBConflictRangeType)7), 2000);
    fdb_transaction_destroy(tr);
}

static void callbacks(FDBDatabase* db) {
    FDBFuture* never = watch(db, "never");
    FDBFuture* f = watch(db, "w");
    EQUAL(fdb_future_get_error(f), 2015);
    EQUAL(fdb_future_set_callback(f, count, never), 0);
    EQUAL(calls, 0);
    set(db, "w", "1");
    wait_for_calls(1);
    EQUAL(pthread_equal(called_on, network_thread) != 0, 1);
    EQUAL(block_result, 2026);
    EQUAL(fdb_future_set_callback(f, count, NULL), 0); /* ready: at once, here */
    EQUAL(calls, 2);
    EQUAL(pthread_equal(called_on, pthread_self()) != 0, 1);
    fdb_future_destroy(f);
    EQUAL(fdb_future_set_callback(never, count, NULL), 0);
    EQUAL(fdb_future_set_callback(never, count, NULL), 0);
    fdb_future_cancel(never);
    fdb_future_cancel(never);
    wait_for_calls(4);
    EQUAL(fdb_future_get_error(never), 1101);
    fdb_future_destroy(never);
    f = watch(db, "w");
    EQUAL(fdb_future_set_callback(f, destroy_itself, NULL), 0);
    set(db, "w", "2");
    wait_for_calls(5);
    f = watch(db, "w");
    EQUAL(fdb_future_set_callback(f, count, NULL), 0);
    fdb_future_destroy(f); /* pending: the callback still comes, once */
    wait_for_calls(6);
}

static void transactions(FDBDatabase* db) {
    FDBTransaction* tr = transaction(db);
    FDBFuture* f = fdb_transaction_watch(tr, BYTES("w"));
    fdb_transaction_destroy(tr);
    EQUAL(outcome(f), 1025);
    tr = transaction(db);
    fdb_transaction_cancel(tr);
    EQUAL(outcome(fdb_transaction_get(tr, BYTES("k"), 0)), 1025);
    fdb_transaction_reset(tr);
    EQUAL(outcome(fdb_transaction_get(tr, BYTES("k"), 0)), 0);
    fdb_transaction_destroy(tr);
    /* a transaction keeps its database */
    FDBDatabase* other = open_database(":memory:");
    tr = transaction(other);
    fdb_database_destroy(other);
    fdb_transaction_set(tr, BYTES("k"), BYTES("v"));
    EQUAL(outcome(fdb_transaction_commit(tr)), 0);
    fdb_transaction_destroy(tr);
}

int main(int argc, char** argv) {
    begin();
    FDBDatabase* db = open_database(argc > 1 ? argv[1] : ":memory:");
    getters(db);
    callbacks(db);
    transactions(db);
    /* the network stops with callbacks outstanding and commits under way */
    FDBFuture* waiting[100];
    for (int i = 0; i < 100; i++) {
        waiting[i] = watch(db, "w");
        EQUAL(fdb_future_set_callback(waiting[i], count, NULL), 0);
    }
    FDBTransaction* tr = transaction(db);
    fdb_transaction_set(tr, BYTES("last"), BYTES("v"));
    FDBFuture* commit = fdb_transaction_commit(tr);
    end();
    EQUAL(outcome(commit), 0);
    for (int i = 0; i < 100; i++)
        fdb_future_destroy(waiting[i]);
    EQUAL(calls, 106);
    fdb_transaction_destroy(tr);
    fdb_database_destroy(db);
    puts("ok");
    return 0;
}
