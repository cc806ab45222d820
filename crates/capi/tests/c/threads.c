/* Many threads on one library: databases opened and closed at once, futures cancelled while they complete and are waited for,
 * callbacks that make new operations, and no thread that all of it waits for. */
#include "check.h"

#define THREADS 6
#define ROUNDS 40

static const char* target;

static void* open_and_close(void* number) {
    for (int i = 0; i < ROUNDS; i++) {
        FDBDatabase* db = open_database(target);
        FDBTransaction* tr = transaction(db);
        uint8_t key[2] = {(uint8_t)(intptr_t)number, (uint8_t)i};
        fdb_transaction_set(tr, key, 2, BYTES("v"));
        EQUAL(outcome(fdb_transaction_commit(tr)), 0);
        if (i % 2)
            fdb_database_destroy(db);
        fdb_transaction_destroy(tr);
        if (i % 2 == 0)
            fdb_database_destroy(db);
    }
    return NULL;
}

static FDBDatabase* shared;

static void* cancel_and_wait(void* number) {
    (void)number;
    for (int i = 0; i < ROUNDS * 5; i++) {
        FDBTransaction* tr = transaction(shared);
        FDBFuture* watch = fdb_transaction_watch(tr, BYTES("w"));
        EQUAL(outcome(fdb_transaction_commit(tr)), 0);
        fdb_transaction_reset(tr);
        fdb_transaction_set(tr, BYTES("w"), (const uint8_t*)&i, sizeof i);
        FDBFuture* commit = fdb_transaction_commit(tr);
        if (i % 3 == 0)
            fdb_future_cancel(watch);
        else if (i % 3 == 1)
            fdb_transaction_cancel(tr);
        fdb_error_t error = outcome(commit);
        EQUAL(error == 0 || error == 1025, 1);
        fdb_future_destroy(watch);
        fdb_transaction_destroy(tr);
    }
    return NULL;
}

/* A chain of transactions, each begun by the callback of the one before. */
typedef struct {
    FDBTransaction* tr;
    int left;
    pthread_mutex_t lock;
    pthread_cond_t done;
} Chain;

static void next(FDBFuture* f, void* parameter) {
    Chain* chain = parameter;
    if (f) {
        EQUAL(fdb_future_get_error(f), 0);
        fdb_future_destroy(f);
    }
    pthread_mutex_lock(&chain->lock);
    int left = chain->left--;
    if (left == 0)
        pthread_cond_broadcast(&chain->done);
    pthread_mutex_unlock(&chain->lock);
    if (left <= 0)
        return;
    fdb_transaction_reset(chain->tr);
    fdb_transaction_set(chain->tr, (const uint8_t*)&chain, sizeof chain, (const uint8_t*)&left, sizeof left);
    EQUAL(fdb_future_set_callback(fdb_transaction_commit(chain->tr), next, chain), 0);
}

static void chains(void) {
    static Chain chain[THREADS];
    for (int i = 0; i < THREADS; i++) {
        chain[i] = (Chain){transaction(shared), 200, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
        next(NULL, &chain[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_mutex_lock(&chain[i].lock);
        while (chain[i].left >= 0)
            pthread_cond_wait(&chain[i].done, &chain[i].lock);
        pthread_mutex_unlock(&chain[i].lock);
        fdb_transaction_destroy(chain[i].tr);
    }
}

static void in_threads(void* (*body)(void*)) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&threads[i], NULL, body, (void*)i), 0);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
}

int main(int argc, char** argv) {
    target = argc > 1 ? argv[1] : ":memory:threads";
    begin();
    in_threads(open_and_close);
    shared = open_database(target);
    in_threads(cancel_and_wait);
    chains();
    FDBTransaction* tr = transaction(shared);
    FDBFuture* last = fdb_transaction_get(tr, BYTES("w"), 0);
    EQUAL(outcome(last), 0);
    fdb_transaction_destroy(tr);
    fdb_database_destroy(shared);
    end();
    puts("ok");
    return 0;
}
