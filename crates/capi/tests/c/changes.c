/* Change data capture as FoundationDB 8 has it: register, list, consume, acknowledge, resume, remove. */
#include "check.h"

static void set(FDBDatabase* db, const char* key, const char* value) {
    FDBTransaction* tr = transaction(db);
    fdb_transaction_set(tr, (const uint8_t*)key, (int)strlen(key), (const uint8_t*)value, (int)strlen(value));
    EQUAL(outcome(fdb_transaction_commit(tr)), 0);
    fdb_transaction_destroy(tr);
}

static void clear(FDBDatabase* db, const char* begin, const char* end) {
    FDBTransaction* tr = transaction(db);
    fdb_transaction_clear_range(tr, (const uint8_t*)begin, (int)strlen(begin), (const uint8_t*)end, (int)strlen(end));
    EQUAL(outcome(fdb_transaction_commit(tr)), 0);
    fdb_transaction_destroy(tr);
}

static FDBCdcConsumer* consumer_of(FDBFuture* f) {
    FDBCdcConsumer* consumer = NULL;
    EQUAL(fdb_future_block_until_ready(f), 0);
    EQUAL(fdb_future_get_cdc_consumer(f, &consumer), 0);
    fdb_future_destroy(f);
    return consumer;
}

/* Consumes until there is something; checks that it is one mutation of this kind. */
static int64_t consume(FDBCdcConsumer* consumer, int kind, const char* param1, const char* param2) {
    for (;;) {
        FDBFuture* f = fdb_cdc_consumer_consume(consumer);
        const FDBCdcVersionedMutations* groups = NULL;
        int count = 0;
        int64_t upto = 0;
        EQUAL(fdb_future_block_until_ready(f), 0);
        EQUAL(fdb_future_get_cdc_versioned_mutations(f, &groups, &count, &upto), 0);
        if (count == 0) {
            fdb_future_destroy(f);
            continue;
        }
        EQUAL(count, 1);
        EQUAL(groups[0].mutation_count, 1);
        EQUAL(groups[0].version <= upto, 1);
        const FDBCdcMutation* mutation = groups[0].mutations;
        EQUAL(mutation->type, kind);
        EQUAL(mutation->param1_length, strlen(param1));
        EQUAL(memcmp(mutation->param1, param1, strlen(param1)), 0);
        EQUAL(mutation->param2_length, strlen(param2));
        EQUAL(memcmp(mutation->param2, param2, strlen(param2)), 0);
        int64_t position = 0;
        uint64_t id = 0;
        EQUAL(fdb_cdc_consumer_get_position(consumer, &id, &position), 0);
        EQUAL(position, upto);
        fdb_future_destroy(f);
        return upto;
    }
}

int main(int argc, char** argv) {
    begin();
    FDBDatabase* db = open_database(argc > 1 ? argv[1] : ":memory:");
    FDBKeyRange ranges[2] = {{(const uint8_t*)"m", 1, (const uint8_t*)"n", 1}, {(const uint8_t*)"b", 1, (const uint8_t*)"d", 1}};
    FDBFuture* f = fdb_database_register_cdc_stream(db, BYTES("orders"), ranges, 2);
    uint64_t id = 0;
    EQUAL(fdb_future_block_until_ready(f), 0);
    EQUAL(fdb_future_get_uint64(f, &id), 0);
    fdb_future_destroy(f);
    /* Once more it is the same; an ordered one is as good. */
    EQUAL(outcome(fdb_database_register_cdc_ordered_stream(db, BYTES("orders"), ranges, 2, NULL, 0)), 0);
    EQUAL(outcome(fdb_database_register_cdc_stream(db, BYTES("orders"), ranges, 1)), 2000);

    f = fdb_database_list_cdc_streams(db);
    const FDBCdcStreamInfo* streams = NULL;
    int count = 0;
    EQUAL(fdb_future_block_until_ready(f), 0);
    EQUAL(fdb_future_get_cdc_stream_info_array(f, &streams, &count), 0);
    EQUAL(count, 1);
    EQUAL(streams[0].stream_id, id);
    EQUAL(streams[0].range_count, 2);
    EQUAL(streams[0].ranges[0].begin_key[0], 'b');
    EQUAL(streams[0].ranges[1].end_key[0], 'n');
    EQUAL(memcmp(streams[0].name.key, "orders", 6), 0);
    EQUAL(streams[0].min_version > 0, 1);
    fdb_future_destroy(f);

    FDBCdcConsumer* consumer = consumer_of(fdb_database_create_cdc_consumer(db, BYTES("orders")));
    set(db, "elsewhere", "0");
    set(db, "b1", "1");
    consume(consumer, FDB_CDC_MUTATION_TYPE_SET_VALUE, "b1", "1");
    clear(db, "a", "c");
    int64_t position = consume(consumer, FDB_CDC_MUTATION_TYPE_CLEAR_RANGE, "b", "c");

    /* One operation at a time; what is given up changes nothing. */
    f = fdb_cdc_consumer_consume(consumer);
    EQUAL(outcome(fdb_cdc_consumer_consume(consumer)), 2000);
    fdb_future_destroy(f);
    set(db, "m", "2");
    consume(consumer, FDB_CDC_MUTATION_TYPE_SET_VALUE, "m", "2");

    /* From a position of one's own, and from what was acknowledged. */
    FDBCdcConsumer* resumed = consumer_of(fdb_database_resume_cdc_consumer(db, id, position));
    consume(resumed, FDB_CDC_MUTATION_TYPE_SET_VALUE, "m", "2");
    EQUAL(outcome(fdb_cdc_consumer_acknowledge(resumed)), 0);
    fdb_cdc_consumer_destroy(resumed);
    FDBCdcConsumer* late = consumer_of(fdb_database_resume_cdc_consumer(db, id, position));
    EQUAL(outcome(fdb_cdc_consumer_consume(late)), 1007);
    fdb_cdc_consumer_destroy(late);
    FDBCdcConsumer* anew = consumer_of(fdb_database_resume_cdc_consumer(db, id, -1));
    set(db, "c", "3");
    consume(anew, FDB_CDC_MUTATION_TYPE_SET_VALUE, "c", "3");

    EQUAL(outcome(fdb_database_remove_cdc_stream(db, BYTES("orders"))), 0);
    EQUAL(outcome(fdb_cdc_consumer_consume(anew)), 2000);
    EQUAL(outcome(fdb_cdc_consumer_acknowledge(anew)), 2000);
    fdb_cdc_consumer_destroy(anew);
    fdb_cdc_consumer_destroy(consumer);
    fdb_database_destroy(db);
    end();
    puts("ok");
    return 0;
}
