/* A benchmark of threads that block, as FoundationDB's `mako` and most programs in C are: each has one transaction at a time, and each
 * operation is waited for before the next one begins. The library is loaded by its path, so one program measures any libfdb_c.
 *
 *   blocking LIBRARY CLUSTER_FILE [--threads N] [--seconds N] [--rows N] [--value BYTES] [--workloads g10,o10,...]
 *
 * A workload is written as mako writes transactions: `g10` is ten reads, `o10` ten rows written unseen, `u10` ten that are read and
 * then written, `g9u1` nine reads and one of those, `grv` a read version and no more. Keys have 16 bytes, and are drawn at random for
 * each operation. The rows are written first if they aren't there. A line for each workload: its transactions a second, the mean
 * time of one, and how many tries failed and were made again.
 *
 * Built with the headers of this library or of FoundationDB:
 *   cc -std=c11 -O2 -D_GNU_SOURCE -I PREFIX/include blocking.c -o blocking -ldl -lpthread
 */
#ifndef FDB_API_VERSION
#define FDB_API_VERSION 730
#endif
#include <foundationdb/fdb_c.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY 16
#define MAX_VALUE 100000
#define MAX_STEPS 8
/* Rows that one transaction loads, at most, and their bytes. */
#define BATCH 1000
#define BATCH_BYTES 1000000

/* The functions of the library, by their own names. */
#define FUNCTIONS(each)                                                                                              \
    each(fdb_select_api_version_impl) each(fdb_setup_network) each(fdb_run_network) each(fdb_stop_network)           \
        each(fdb_create_database) each(fdb_database_destroy) each(fdb_database_create_transaction)                   \
            each(fdb_transaction_destroy) each(fdb_transaction_reset) each(fdb_transaction_get)                      \
                each(fdb_transaction_set) each(fdb_transaction_commit) each(fdb_transaction_on_error)                \
                    each(fdb_transaction_get_read_version) each(fdb_future_block_until_ready)                        \
                        each(fdb_future_get_error) each(fdb_future_get_value) each(fdb_future_destroy) each(fdb_get_error)
#define FIELD(name) __typeof__(&name) name;
static struct {
    FUNCTIONS(FIELD)
} lib;

typedef struct {
    char operation; /* g, o, u */
    int times;
} Step;

typedef struct {
    char name[64];
    Step steps[MAX_STEPS];
    int count;
    int only_version;
} Workload;

static FDBDatabase* db;
static const Workload* workload;
static int64_t rows = 100000;
static int value_length = 100;
static uint8_t value[MAX_VALUE];
static atomic_int is_over;

typedef struct {
    pthread_t thread;
    uint64_t random;
    int64_t done, retried;
} Client;

static void fail(const char* what, const char* why) {
    fprintf(stderr, "blocking: %s: %s\n", what, why);
    exit(1);
}

static void check(fdb_error_t error, const char* what) {
    if (error)
        fail(what, lib.fdb_get_error(error));
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void load_library(const char* path) {
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail(path, dlerror());
#define LOAD(name)                         \
    *(void**)&lib.name = dlsym(handle, #name); \
    if (!lib.name)                         \
        fail(path, "it lacks " #name);
    FUNCTIONS(LOAD)
}

static void* run_network(void* unused) {
    (void)unused;
    check(lib.fdb_run_network(), "the network");
    return NULL;
}

static uint64_t draw(Client* client) {
    client->random ^= client->random << 13;
    client->random ^= client->random >> 7;
    client->random ^= client->random << 17;
    return client->random;
}

static void key_of(int64_t row, uint8_t* key) {
    char text[32];
    snprintf(text, sizeof text, "mako%012" PRId64, row);
    memcpy(key, text, KEY);
}

/* Waits for a future and destroys it. */
static fdb_error_t outcome(FDBFuture* future) {
    fdb_error_t error = lib.fdb_future_block_until_ready(future);
    if (!error)
        error = lib.fdb_future_get_error(future);
    lib.fdb_future_destroy(future);
    return error;
}

static FDBTransaction* begin(void) {
    FDBTransaction* tr = NULL;
    check(lib.fdb_database_create_transaction(db, &tr), "a transaction");
    return tr;
}

/* Reads one row, which has to be there. */
static fdb_error_t read_row(FDBTransaction* tr, const uint8_t* key, fdb_bool_t* is_there) {
    const uint8_t* found = NULL;
    int length = 0;
    FDBFuture* future = lib.fdb_transaction_get(tr, key, KEY, 0);
    fdb_error_t error = lib.fdb_future_block_until_ready(future);
    if (!error)
        error = lib.fdb_future_get_value(future, is_there, &found, &length);
    lib.fdb_future_destroy(future);
    return error;
}

/* One try of a transaction. */
static fdb_error_t attempt(Client* client, FDBTransaction* tr) {
    int writes = 0;
    fdb_error_t error = 0;
    if (workload->only_version)
        return outcome(lib.fdb_transaction_get_read_version(tr));
    for (int at = 0; at < workload->count; at++) {
        char operation = workload->steps[at].operation;
        for (int i = 0; i < workload->steps[at].times; i++) {
            uint8_t key[KEY];
            fdb_bool_t is_there = 1;
            key_of((int64_t)(draw(client) % (uint64_t)rows), key);
            if (operation != 'o' && (error = read_row(tr, key, &is_there)))
                return error;
            if (!is_there)
                fail(workload->name, "a row is missing that was loaded");
            if (operation != 'g') {
                lib.fdb_transaction_set(tr, key, KEY, value, value_length);
                writes = 1;
            }
        }
    }
    return writes ? outcome(lib.fdb_transaction_commit(tr)) : 0;
}

static void* run_client(void* argument) {
    Client* client = argument;
    FDBTransaction* tr = begin();
    /* At least one, however slow it is. */
    while (!client->done || !atomic_load_explicit(&is_over, memory_order_relaxed)) {
        fdb_error_t error = attempt(client, tr);
        if (error) {
            client->retried++;
            check(outcome(lib.fdb_transaction_on_error(tr, error)), workload->name);
        } else {
            client->done++;
            lib.fdb_transaction_reset(tr);
        }
    }
    lib.fdb_transaction_destroy(tr);
    return NULL;
}

static void measure(const Workload* next, Client* clients, int threads, double seconds) {
    int64_t done = 0, retried = 0;
    workload = next;
    atomic_store(&is_over, 0);
    double began = now();
    for (int i = 0; i < threads; i++) {
        clients[i] = (Client){.random = 0x9E3779B97F4A7C15u * (uint64_t)(i + 1)};
        if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i]))
            fail(next->name, "no more threads");
    }
    struct timespec nap = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&nap, NULL);
    atomic_store(&is_over, 1);
    for (int i = 0; i < threads; i++) {
        pthread_join(clients[i].thread, NULL);
        done += clients[i].done;
        retried += clients[i].retried;
    }
    double took = now() - began;
    printf("%-8s %10.0f transactions/s %10.3f ms each %8" PRId64 " tried again\n", next->name, (double)done / took,
           1000.0 * took * threads / (double)done, retried);
    fflush(stdout);
}

/* Writes the rows, if the last one isn't there. */
static void load_rows(void) {
    uint8_t key[KEY];
    fdb_bool_t is_there = 0;
    fdb_error_t error;
    FDBTransaction* tr = begin();
    key_of(rows - 1, key);
    while ((error = read_row(tr, key, &is_there)))
        check(outcome(lib.fdb_transaction_on_error(tr, error)), "the last row");
    int64_t batch = BATCH_BYTES / (KEY + value_length) + 1;
    batch = batch < BATCH ? batch : BATCH;
    for (int64_t from = is_there ? rows : 0; from < rows; from += batch) {
        do {
            lib.fdb_transaction_reset(tr);
            for (int64_t row = from; row < rows && row < from + batch; row++) {
                key_of(row, key);
                lib.fdb_transaction_set(tr, key, KEY, value, value_length);
            }
            error = outcome(lib.fdb_transaction_commit(tr));
            if (error)
                check(outcome(lib.fdb_transaction_on_error(tr, error)), "rows to be loaded");
        } while (error);
    }
    lib.fdb_transaction_destroy(tr);
}

/* `g9u1`, `grv`; gives where it ends. */
static const char* parse(const char* text, Workload* into) {
    const char* end = text + strcspn(text, ",");
    *into = (Workload){.count = 0};
    snprintf(into->name, sizeof into->name, "%.*s", (int)(end - text), text);
    into->only_version = !strcmp(into->name, "grv");
    for (const char* at = text; !into->only_version && at < end;) {
        Step* step = &into->steps[into->count];
        step->operation = *at;
        char* rest = NULL;
        long times = strtol(at + 1, &rest, 10);
        step->times = rest == at + 1 ? 1 : (int)times;
        if (!strchr("gou", *at) || step->times < 1 || step->times > 10000 || ++into->count == MAX_STEPS)
            fail(into->name, "a workload is grv, or some of g, o and u, each with how often: g9u1");
        at = rest;
    }
    if (!into->only_version && !into->count)
        fail("--workloads", "there is an empty one");
    return *end ? end + 1 : end;
}

static double number(const char* name, const char* text, double least, double most) {
    char* end = NULL;
    double found = text ? strtod(text, &end) : 0;
    if (!text || !*text || *end || found < least || found > most)
        fail(name, "it takes a number that makes sense");
    return found;
}

int main(int argc, char** argv) {
    const char* wanted = "g10,o10,u10,g9u1,o1,grv";
    double seconds = 8;
    int threads = 100;
    if (argc < 3)
        fail("usage", "blocking LIBRARY CLUSTER_FILE [--threads N] [--seconds N] [--rows N] [--value BYTES] [--workloads g10,...]");
    for (int at = 3; at < argc; at += 2) {
        const char* text = at + 1 < argc ? argv[at + 1] : NULL;
        if (!strcmp(argv[at], "--threads"))
            threads = (int)number(argv[at], text, 1, 10000);
        else if (!strcmp(argv[at], "--seconds"))
            seconds = number(argv[at], text, 0.01, 86400);
        else if (!strcmp(argv[at], "--rows"))
            rows = (int64_t)number(argv[at], text, 1, 1e12 - 1);
        else if (!strcmp(argv[at], "--value"))
            value_length = (int)number(argv[at], text, 0, MAX_VALUE);
        else if (!strcmp(argv[at], "--workloads") && text)
            wanted = text;
        else
            fail(argv[at], "there is no such option, or its value is missing");
    }
    memset(value, 'v', sizeof value);
    load_library(argv[1]);
    check(lib.fdb_select_api_version_impl(FDB_API_VERSION, FDB_API_VERSION), "the version of the interface");
    check(lib.fdb_setup_network(), "the network");
    pthread_t network;
    if (pthread_create(&network, NULL, run_network, NULL))
        fail("the network", "no thread for it");
    check(lib.fdb_create_database(argv[2], &db), argv[2]);
    Client* clients = calloc((size_t)threads, sizeof *clients);
    if (!clients)
        fail("threads", "no memory for so many");
    load_rows();
    for (const char* at = wanted; *at;) {
        Workload next;
        at = parse(at, &next);
        measure(&next, clients, threads, seconds);
    }
    free(clients);
    lib.fdb_database_destroy(db);
    check(lib.fdb_stop_network(), "the network");
    pthread_join(network, NULL);
    return 0;
}
