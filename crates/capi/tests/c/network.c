/* Every network option code there is, and some there aren't, each with values of many lengths, before the network is set up and
 * after: a number, never a crash; and the network runs all the same. */
#include "check.h"

static const int LENGTHS[] = {0, 1, 4, 7, 8, 9, 16, 50, 51, 300};

static int is_known(fdb_error_t error) {
    return error == 0 || error == 2006 || error == 2007 || error == 1511;
}

static void all_options(void) {
    uint8_t value[300];
    memset(value, 'a', sizeof value);
    for (int code = -1; code < 1100; code++) {
        if (code == FDB_NET_OPTION_DISABLE_LOCAL_CLIENT || code == FDB_NET_OPTION_CLIENT_THREADS_PER_VERSION)
            continue; /* either may leave no client at all */
        for (unsigned at = 0; at < sizeof LENGTHS / sizeof *LENGTHS; at++) {
            EQUAL(is_known(fdb_network_set_option((FDBNetworkOption)code, value, LENGTHS[at])), 1);
            EQUAL(is_known(fdb_network_set_option((FDBNetworkOption)code, NULL, LENGTHS[at])), 1);
        }
    }
}

int main(void) {
    EQUAL(fdb_select_api_version(FDB_API_VERSION), 0);
    all_options();
    EQUAL(fdb_setup_network(), 0);
    all_options();
    EQUAL(pthread_create(&network_thread, NULL, run_network, NULL), 0);
    FDBDatabase* db = open_database(":memory:");
    FDBTransaction* tr = transaction(db);
    EQUAL(outcome(fdb_transaction_get(tr, BYTES("k"), 0)), 0);
    fdb_transaction_destroy(tr);
    fdb_database_destroy(db);
    end();
    puts("ok");
    return 0;
}
