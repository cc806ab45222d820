/* Threads that end in a callback, as those of an interpreter do that shuts down: `pthread_exit` takes the library's frames along, and
 * neither ends the process nor leaves a lock held. */
#include "check.h"

/* Not on the stack: a thread that ends in a callback keeps its count of the future. */
static FDBFuture *ready, *cancelled, *destroyed, *last;
static FDBDatabase* db;
static int called = 0;

static void leaves(FDBFuture* future, void* parameter) {
    (void)future, (void)parameter;
    __atomic_add_fetch(&called, 1, __ATOMIC_SEQ_CST);
    pthread_exit(&called);
}

static void hook(void* parameter) {
    leaves(NULL, parameter);
}

/* A watch that nothing sets off. */
static FDBFuture* pending(void) {
    FDBTransaction* tr = transaction(db);
    FDBFuture* watch = fdb_transaction_watch(tr, BYTES("watched"));
    EQUAL(outcome(fdb_transaction_commit(tr)), 0);
    fdb_transaction_destroy(tr);
    EQUAL(fdb_future_is_ready(watch), 0);
    return watch;
}

static void* sets_a_callback(void* future) {
    fdb_future_set_callback(future, leaves, NULL);
    return NULL;
}

static void* cancels(void* future) {
    fdb_future_cancel(future);
    return NULL;
}

static void* destroys(void* future) {
    fdb_future_destroy(future);
    return NULL;
}

/* The thread must have ended in a callback. */
static void has_left(pthread_t thread, int times) {
    void* result = NULL;
    EQUAL(pthread_join(thread, &result), 0);
    EQUAL(result == &called, 1);
    EQUAL(called, times);
}

static void leaves_in(void* (*does)(void*), FDBFuture* future) {
    pthread_t thread;
    int before = called;
    EQUAL(pthread_create(&thread, NULL, does, future), 0);
    has_left(thread, before + 1);
}

/* The network's own threads: one ends in a callback, another one in the hook of its end. */
static void network_threads_leave(void) {
    last = pending();
    EQUAL(fdb_future_set_callback(last, leaves, NULL), 0);
    fdb_future_cancel(last);
    has_left(network_thread, 1);
    fdb_future_destroy(last);
    EQUAL(fdb_add_network_thread_completion_hook(hook, NULL), 0);
    EQUAL(fdb_stop_network(), 0);
    EQUAL(pthread_create(&network_thread, NULL, run_network, NULL), 0);
    has_left(network_thread, 2);
    /* Neither of them is waited for any more. */
    destroyed = pending();
    EQUAL(fdb_future_set_callback(destroyed, leaves, NULL), 0);
    leaves_in(destroys, destroyed);
}

static void programs_threads_leave(void) {
    ready = pending(), cancelled = pending(), destroyed = pending();
    fdb_future_cancel(ready);
    leaves_in(sets_a_callback, ready);
    EQUAL(fdb_future_get_error(ready), 1101);
    fdb_future_destroy(ready);

    /* Once the network has stopped, callbacks run where they become due. */
    EQUAL(fdb_future_set_callback(cancelled, leaves, NULL), 0);
    EQUAL(fdb_future_set_callback(destroyed, leaves, NULL), 0);
    end();
    leaves_in(cancels, cancelled);
    EQUAL(fdb_future_get_error(cancelled), 1101);
    fdb_future_destroy(cancelled);
    leaves_in(destroys, destroyed);
}

int main(int argc, char** argv) {
    begin();
    db = open_database(":memory:");
    if (argc > 1 && strcmp(argv[1], "network") == 0) {
        network_threads_leave();
    } else {
        programs_threads_leave();
    }
    fdb_database_destroy(db);
    puts("ok");
    return 0;
}
