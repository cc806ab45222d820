/* Where a store is made and how it is opened: the end of a name says it; mistyped names make none, and each is told in
   words by the thread that has its number. */
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

static int told(int code, const char* words) {
    int is_told = strstr(fdb_get_error(code), words) != NULL;
    if (!is_told) printf("%d is \"%s\", without \"%s\"\n", code, fdb_get_error(code), words);
    return is_told;
}

static void* of_another_thread(void* words) {
    return told(1511, words) ? words : NULL;
}

static void damage(const char* directory, const char* rest) {
    snprintf(name, sizeof name, "%s%s", directory, rest);
    FILE* file = fopen(name, "r+");
    fputs("not what was written", file);
    fclose(file);
}

int main(int argc, char** argv) {
    char made[] = "plinth-places-XXXXXX";
    const char* around = argc > 1 ? argv[1] : mkdtemp(made);
    begin();
    EQUAL(given(around, "/none/sub/db"), 1511);
    EQUAL(told(1511, "/none/sub/db: the directory above it"), 1);
    EQUAL(there(around, "/none"), 0);
    EQUAL(given(around, "/fdb.clustr"), 1511);
    EQUAL(told(1511, "/fdb.clustr: is a cluster file meant?"), 1);
    EQUAL(there(around, "/fdb.clustr"), 0);
    /* Words are of the thread's last failure, and of its number. */
    pthread_t other;
    void* heard;
    EQUAL(pthread_create(&other, NULL, of_another_thread, "is a cluster file meant?"), 0);
    EQUAL(pthread_join(other, &heard), 0);
    EQUAL(heard == NULL, 1);
    EQUAL(strstr(fdb_get_error(2007), "cluster file") == NULL, 1);
    EQUAL(given(around, "/db?create=false"), 1511);
    EQUAL(there(around, "/db"), 0);
    EQUAL(given(around, "/db?speed=high"), 2007);
    EQUAL(told(2007, "there is no option \"speed=high\" of a directory"), 1);
    EQUAL(told(1511, "is a cluster file meant?"), 0);
    EQUAL(given(around, "/db?engine=disk"), 2006);
    EQUAL(told(2006, "\"disk\""), 1);
    EQUAL(given(around, "/db?memory=4GB"), 2006);
    EQUAL(told(2006, "\"memory=4GB\": a number of bytes"), 1);
    EQUAL(there(around, "/db"), 0);
    EQUAL(given(around, "/db?engine=ssd&memory=64MiB"), 0);
    EQUAL(there(around, "/db/gen-1/tables"), 1);
    EQUAL(given(around, "/db?create=false"), 0);
    EQUAL(given(around, "/db"), 0);
    damage(around, "/db/IDENTITY");
    EQUAL(given(around, "/db"), 1522);
    EQUAL(told(1522, "/db/IDENTITY"), 1);
    end();
    if (argc < 2) {
        snprintf(name, sizeof name, "rm -r %s", around);
        EQUAL(system(name), 0);
    }
    puts("ok");
    return 0;
}
