/* What the test programs share: checks that say where they failed, and the usual beginning of a program. */
#ifndef CHECK_H
#define CHECK_H

#define FDB_API_VERSION 730
#include <foundationdb/fdb_c.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES(text) ((const uint8_t*)(text)), (int)(sizeof(text) - 1)

#define EQUAL(got, want)                                                                            \
    do {                                                                                            \
        long long got_ = (long long)(got), want_ = (long long)(want);                               \
        if (got_ != want_) {                                                                        \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_, want_); \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

static void* run_network(void* unused) {
    (void)unused;
    EQUAL(fdb_run_network(), 0);
    return NULL;
}

static pthread_t network_thread;

static inline void begin(void) {
    EQUAL(fdb_select_api_version(FDB_API_VERSION), 0);
    EQUAL(fdb_setup_network(), 0);
    EQUAL(pthread_create(&network_thread, NULL, run_network, NULL), 0);
}

static inline void end(void) {
    EQUAL(fdb_stop_network(), 0);
    EQUAL(pthread_join(network_thread, NULL), 0);
}

static inline FDBDatabase* open_database(const char* target) {
    FDBDatabase* db = NULL;
    EQUAL(fdb_create_database(target, &db), 0);
    return db;
}

static inline FDBTransaction* transaction(FDBDatabase* db) {
    FDBTransaction* tr = NULL;
    EQUAL(fdb_database_create_transaction(db, &tr), 0);
    return tr;
}

/* Waits for a future, gives its error, and destroys it. */
static inline fdb_error_t outcome(FDBFuture* f) {
    EQUAL(fdb_future_block_until_ready(f), 0);
    fdb_error_t error = fdb_future_get_error(f);
    fdb_future_destroy(f);
    return error;
}

#endif
