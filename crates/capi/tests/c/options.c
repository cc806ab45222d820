/* Every option code there is, and some there aren't, each with values of many lengths: a number, never a crash. */
#include "check.h"

static const int LENGTHS[] = {0, 1, 4, 7, 8, 9, 16, 33, 300};

static int is_known(fdb_error_t error) {
    return error == 0 || error == 2006 || error == 2007 || error == 2000 || error == 2010 || error == 2109 || error == 2110;
}

int main(void) {
    uint8_t value[300];
    memset(value, 1, sizeof value);
    begin();
    FDBDatabase* db = open_database(":memory:");
    for (int code = -1; code < 2100; code++) {
        for (unsigned at = 0; at < sizeof LENGTHS / sizeof *LENGTHS; at++) {
            FDBTransaction* tr = transaction(db);
            fdb_error_t now = fdb_transaction_set_option(tr, (FDBTransactionOption)code, value, LENGTHS[at]);
            EQUAL(now == 0 || now == 2007, 1);
            EQUAL(is_known(outcome(fdb_transaction_get_approximate_size(tr))), 1);
            EQUAL(is_known(fdb_transaction_set_option(tr, (FDBTransactionOption)code, NULL, LENGTHS[at])), 1);
            fdb_transaction_destroy(tr);
        }
    }
    for (int code = -1; code < 1100; code++) {
        for (unsigned at = 0; at < sizeof LENGTHS / sizeof *LENGTHS; at++) {
            FDBDatabase* other = at == 0 ? open_database(":memory:options") : NULL;
            FDBDatabase* of = other ? other : db;
            EQUAL(is_known(fdb_database_set_option(of, (FDBDatabaseOption)code, value, LENGTHS[at])), 1);
            EQUAL(is_known(fdb_database_set_option(of, (FDBDatabaseOption)code, NULL, LENGTHS[at])), 1);
            if (other)
                fdb_database_destroy(other);
        }
    }
    fdb_database_destroy(db);
    end();
    puts("ok");
    return 0;
}
