/* A library with the interface of libfdb_c that ends as FoundationDB's does: what belongs to its network thread is torn down
   when that thread ends, later than fdb_run_network has returned, and needs what the library itself tears down when the
   process ends. A process that does not join the thread in between ends with a segmentation fault.

   With WRAPPED it is linked with a library that works, does all of its work by that, and ends in the same way. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_key_t of_thread;
static volatile char *shared;

static void end_of_thread(void *unused) {
    (void)unused;
    usleep(300 * 1000);
    shared[0] = 1;
}

static void end_of_library(void) {
    munmap((void *)shared, 4096);
    /* What other static objects take meanwhile. */
    usleep(600 * 1000);
}

__attribute__((constructor)) static void load(void) {
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_key_create(&of_thread, end_of_thread);
    atexit(end_of_library);
}

#ifdef WRAPPED

int fdb_run_network(void) {
    int (*run)(void) = (int (*)(void))dlsym(RTLD_NEXT, "fdb_run_network");
    pthread_setspecific(of_thread, (void *)1);
    return run();
}

#else

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int stopped;

int fdb_get_max_api_version(void) { return 730; }
int fdb_select_api_version_impl(int runtime, int header) { (void)runtime; (void)header; return 0; }
const char *fdb_get_client_version(void) { return "7.3.0,stub,0"; }
int fdb_setup_network(void) { return 0; }

int fdb_run_network(void) {
    pthread_setspecific(of_thread, (void *)1);
    pthread_mutex_lock(&lock);
    while (!stopped) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fdb_stop_network(void) {
    pthread_mutex_lock(&lock);
    stopped = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fdb_create_database(const char *path, void **database) {
    (void)path;
    *database = (void *)&lock;
    return 0;
}

int fdb_database_create_transaction(void *database, void **transaction) {
    (void)database;
    *transaction = (void *)&lock;
    return 0;
}

/* Every future is ready at once, with an error, unless a library that can be opened is asked for. */
#ifndef FUTURE_ERROR
#define FUTURE_ERROR 2000
#endif
int fdb_future_set_callback(void *future, void (*callback)(void *, void *), void *parameter) {
    callback(future, parameter);
    return 0;
}
int fdb_future_get_error(void *future) { (void)future; return FUTURE_ERROR; }
#define FUTURE(name) void *name(void) { return (void *)&lock; }
#define NOTHING(name) int name(void) { return 0; }
NOTHING(fdb_future_cancel)
NOTHING(fdb_future_destroy)
NOTHING(fdb_future_get_int64)
NOTHING(fdb_future_get_key)
NOTHING(fdb_future_get_value)
NOTHING(fdb_future_get_keyvalue_array)
NOTHING(fdb_future_get_key_array)
NOTHING(fdb_future_get_string_array)
NOTHING(fdb_database_destroy)
NOTHING(fdb_database_set_option)
NOTHING(fdb_transaction_destroy)
NOTHING(fdb_transaction_cancel)
NOTHING(fdb_transaction_set_option)
NOTHING(fdb_transaction_set_read_version)
FUTURE(fdb_transaction_get_read_version)
FUTURE(fdb_transaction_get)
FUTURE(fdb_transaction_get_key)
FUTURE(fdb_transaction_get_range)
FUTURE(fdb_transaction_get_addresses_for_key)
FUTURE(fdb_transaction_get_estimated_range_size_bytes)
FUTURE(fdb_transaction_get_range_split_points)
NOTHING(fdb_transaction_set)
NOTHING(fdb_transaction_clear_range)
NOTHING(fdb_transaction_atomic_op)
NOTHING(fdb_transaction_add_conflict_range)
FUTURE(fdb_transaction_watch)
FUTURE(fdb_transaction_get_versionstamp)
FUTURE(fdb_transaction_commit)
NOTHING(fdb_transaction_get_committed_version)

#endif
