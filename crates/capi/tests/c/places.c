/* Where a store is made and how it is opened: the end of a name says it; mistyped names make none. */
#include "check.h"

static char name[4096];

static int given(const char* directory, const char* rest) {
    FDBDatabase* db = NULL;
    snprintf(name, sizeof name, "%s%s", directory, rest);
    int code = fdb_create_database(name, &db);
    if (db) fdb_database_destroy(db);
    return code;
}

static int there(const char* directory, const char* rest) {
    snprintf(name, sizeof name, "%s%s", directory, rest);
    return access(name, F_OK) == 0;
}

int main(int argc, char** argv) {
    char made[] = "plinth-places-XXXXXX";
    const char* around = argc > 1 ? argv[1] : mkdtemp(made);
    begin();
    EQUAL(given(around, "/none/sub/db"), 1511);
    EQUAL(there(around, "/none"), 0);
    EQUAL(given(around, "/fdb.clustr"), 1511);
    EQUAL(there(around, "/fdb.clustr"), 0);
    EQUAL(given(around, "/db?create=false"), 1511);
    EQUAL(there(around, "/db"), 0);
    EQUAL(given(around, "/db?speed=high"), 2007);
    EQUAL(given(around, "/db?engine=disk"), 2006);
    EQUAL(given(around, "/db?memory=4GB"), 2006);
    EQUAL(there(around, "/db"), 0);
    EQUAL(given(around, "/db?engine=ssd&memory=64MiB"), 0);
    EQUAL(there(around, "/db/gen-1/tables"), 1);
    EQUAL(given(around, "/db?create=false"), 0);
    EQUAL(given(around, "/db"), 0);
    end();
    if (argc < 2) {
        snprintf(name, sizeof name, "rm -r %s", around);
        EQUAL(system(name), 0);
    }
    puts("ok");
    return 0;
}
