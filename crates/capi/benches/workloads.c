/* Workloads over the C API, for overhead.rs: workloads TARGET ROUNDS. Prints for each a name and nanoseconds of
 * processor time an operation.
 *
 *   get      100 point reads in flight in a warm transaction, of 100,000 rows
 *   range    1,000 rows in one range read, each row looked at
 *   set      20 blind writes and a commit, 64 commits in flight
 *   mixed    9 point reads, a write and a commit, 64 transactions in flight
 */
#define FDB_API_VERSION 730
#include <foundationdb/fdb_c.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS 100000
#define KEY 16
#define VALUE 100
#define IN_FLIGHT 64
/* The best of so many parts counts: whatever else the machine does can only add to one. */
#define PARTS 10

static void check(fdb_error_t error, const char* what) {
    if (error) {
        fprintf(stderr, "%s: %s\n", what, fdb_get_error(error));
        exit(1);
    }
}

#define CHECK(call) check(call, #call)

static uint64_t state = 1;

static unsigned chance(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % ROWS;
}

static void name_of(unsigned number, uint8_t* key) {
    memset(key, 'k', KEY);
    for (int at = KEY - 1; number; at--, number /= 10)
        key[at] = (uint8_t)('0' + number % 10);
}

/* The processor time of all threads: what the work costs, however busy the machine is. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void* run_network(void* unused) {
    CHECK(fdb_run_network());
    return unused;
}

static void finish(FDBFuture* f) {
    CHECK(fdb_future_block_until_ready(f));
    CHECK(fdb_future_get_error(f));
    fdb_future_destroy(f);
}

static uint8_t value[VALUE];

static void fill(FDBTransaction* tr) {
    uint8_t key[KEY];
    for (unsigned i = 0; i < ROWS;) {
        for (unsigned end = i + 1000; i < end; i++) {
            name_of(i, key);
            fdb_transaction_set(tr, key, KEY, value, VALUE);
        }
        finish(fdb_transaction_commit(tr));
        fdb_transaction_reset(tr);
    }
}

static unsigned look(FDBFuture* f) {
    fdb_bool_t present = 0;
    const uint8_t* found = NULL;
    int length = 0;
    CHECK(fdb_future_block_until_ready(f));
    CHECK(fdb_future_get_value(f, &present, &found, &length));
    unsigned seen = present ? found[0] + (unsigned)length : 0;
    fdb_future_destroy(f);
    return seen;
}

static unsigned seen;

static int get(FDBTransaction** trs, int round) {
    FDBFuture* reads[100];
    uint8_t key[KEY];
    if (round % 20 == 0)
        fdb_transaction_reset(trs[0]);
    for (int i = 0; i < 100; i++) {
        name_of(chance(), key);
        reads[i] = fdb_transaction_get(trs[0], key, KEY, 1);
    }
    for (int i = 0; i < 100; i++)
        seen += look(reads[i]);
    return 100;
}

static int set(FDBTransaction** trs, int round) {
    FDBFuture* commits[IN_FLIGHT];
    uint8_t key[KEY];
    (void)round;
    for (int i = 0; i < IN_FLIGHT; i++) {
        fdb_transaction_reset(trs[i]);
        for (int n = 0; n < 20; n++) {
            name_of(chance(), key);
            fdb_transaction_set(trs[i], key, KEY, value, VALUE);
        }
        commits[i] = fdb_transaction_commit(trs[i]);
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        finish(commits[i]);
    return IN_FLIGHT * 20;
}

static int mixed(FDBTransaction** trs, int round) {
    FDBFuture *reads[IN_FLIGHT][9], *commits[IN_FLIGHT];
    uint8_t key[KEY];
    (void)round;
    for (int i = 0; i < IN_FLIGHT; i++) {
        fdb_transaction_reset(trs[i]);
        for (int n = 0; n < 9; n++) {
            name_of(chance(), key);
            reads[i][n] = fdb_transaction_get(trs[i], key, KEY, 1);
        }
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        for (int n = 0; n < 9; n++)
            seen += look(reads[i][n]);
        name_of(chance(), key);
        fdb_transaction_set(trs[i], key, KEY, value, VALUE);
        commits[i] = fdb_transaction_commit(trs[i]);
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        finish(commits[i]);
    return IN_FLIGHT * 10;
}

static int range(FDBTransaction** trs, int round) {
    const FDBKeyValue* rows = NULL;
    int count = 0;
    fdb_bool_t more = 0;
    uint8_t begin[KEY];
    if (round % 20 == 0)
        fdb_transaction_reset(trs[0]);
    name_of(chance() / 2, begin);
    FDBFuture* f = fdb_transaction_get_range(
        trs[0], FDB_KEYSEL_FIRST_GREATER_OR_EQUAL(begin, KEY), FDB_KEYSEL_FIRST_GREATER_OR_EQUAL((const uint8_t*)"l", 1),
        1000, 0, FDB_STREAMING_MODE_EXACT, 1, 1, 0);
    CHECK(fdb_future_block_until_ready(f));
    CHECK(fdb_future_get_keyvalue_array(f, &rows, &count, &more));
    for (int i = 0; i < count; i++)
        seen += rows[i].key[KEY - 1] + (unsigned)rows[i].value_length;
    fdb_future_destroy(f);
    return count;
}

static void measure(const char* name, int (*body)(FDBTransaction**, int), FDBTransaction** trs, int rounds) {
    for (int i = 0; i < rounds / 10 + 1; i++)
        body(trs, i);
    double best = 0;
    for (int part = 0; part < PARTS; part++) {
        long operations = 0;
        double begun = now();
        for (int i = 0; i < rounds / PARTS + 1; i++)
            operations += body(trs, i);
        double each = (now() - begun) / (double)operations;
        if (part == 0 || each < best)
            best = each;
    }
    printf("%s %.1f\n", name, best);
}

int main(int argc, char** argv) {
    int rounds = argc > 2 ? atoi(argv[2]) : 100;
    pthread_t network;
    FDBDatabase* db = NULL;
    FDBTransaction* trs[IN_FLIGHT];
    memset(value, 'v', VALUE);
    CHECK(fdb_select_api_version(FDB_API_VERSION));
    CHECK(fdb_setup_network());
    pthread_create(&network, NULL, run_network, NULL);
    CHECK(fdb_create_database(argc > 1 ? argv[1] : ":memory:", &db));
    for (int i = 0; i < IN_FLIGHT; i++)
        CHECK(fdb_database_create_transaction(db, &trs[i]));
    fill(trs[0]);
    measure("get", get, trs, rounds * 20);
    measure("range", range, trs, rounds * 4);
    measure("set", set, trs, rounds);
    measure("mixed", mixed, trs, rounds);
    fprintf(stderr, "seen %u\n", seen);
    for (int i = 0; i < IN_FLIGHT; i++)
        fdb_transaction_destroy(trs[i]);
    fdb_database_destroy(db);
    CHECK(fdb_stop_network());
    pthread_join(network, NULL);
    return 0;
}
