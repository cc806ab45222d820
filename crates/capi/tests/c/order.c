/* Calls before their precondition: each gives its number, and none crashes. */
#include "check.h"

static int hooks = 0;

static void hook(void* parameter) {
    hooks += *(int*)parameter;
}

int main(void) {
    FDBDatabase* db = NULL;
    int one = 1;
    EQUAL(fdb_get_max_api_version() >= 740, 1);
    EQUAL(strlen(fdb_get_client_version()) > 60, 1);
    EQUAL(fdb_error_predicate(FDB_ERROR_PREDICATE_RETRYABLE, 1020), 1);
    EQUAL(fdb_error_predicate(12345, 1020), 0);
    EQUAL(strcmp(fdb_get_error(29999), "UNKNOWN_ERROR"), 0);
    EQUAL(fdb_get_error(-5) != NULL && fdb_get_error(1 << 30) != NULL && fdb_get_error(0) != NULL, 1);
    EQUAL(fdb_setup_network(), 2200);
    EQUAL(fdb_run_network(), 2008);
    EQUAL(fdb_stop_network(), 2008);
    EQUAL(fdb_add_network_thread_completion_hook(hook, &one), 2008);
    EQUAL(fdb_create_database(":memory:", &db), 2008);
    EQUAL(fdb_select_api_version_impl(731, 730), 2202);
    EQUAL(fdb_select_api_version_impl(730, 9000), 2203);
    EQUAL(fdb_select_api_version_impl(12, 730), 2203);
    EQUAL(fdb_select_api_version(730), 0);
    EQUAL(fdb_select_api_version(730), 2201);
    EQUAL(fdb_network_set_option((FDBNetworkOption)12345, NULL, 0), 2007);
    EQUAL(fdb_network_set_option(FDB_NET_OPTION_TRACE_FORMAT, BYTES("xml")), 0);
    EQUAL(fdb_network_set_option(FDB_NET_OPTION_TRACE_FORMAT, BYTES("csv")), 2006);
    EQUAL(fdb_network_set_option(FDB_NET_OPTION_TRACE_ROLL_SIZE, BYTES("1234567")), 2006);
    EQUAL(fdb_network_set_option(FDB_NET_OPTION_KNOB, BYTES("none")), 2006);
    EQUAL(fdb_setup_network(), 0);
    EQUAL(fdb_setup_network(), 2009);
    EQUAL(fdb_add_network_thread_completion_hook(hook, &one), 0);
    EQUAL(fdb_create_database(":memory:", &db), 0); /* the network needn't run yet */
    fdb_database_destroy(db);
    EQUAL(fdb_create_database_from_connection_string("not@valid", &db), 2104);
    EQUAL(fdb_create_database_from_connection_string(":memory:", &db), 0);
    fdb_database_destroy(db);
    EQUAL(pthread_create(&network_thread, NULL, run_network, NULL), 0);
    end();
    EQUAL(hooks, 1);
    EQUAL(fdb_run_network(), 2025);
    EQUAL(fdb_setup_network(), 2009);
    puts("ok");
    return 0;
}
