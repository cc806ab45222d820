package plinth;

import com.apple.foundationdb.record.RecordCursor;
import com.apple.foundationdb.record.RecordMetaData;
import com.apple.foundationdb.record.RecordMetaDataBuilder;
import com.apple.foundationdb.record.metadata.Index;
import com.apple.foundationdb.record.metadata.IndexTypes;
import com.apple.foundationdb.record.metadata.Key;
import com.apple.foundationdb.record.provider.foundationdb.FDBDatabase;
import com.apple.foundationdb.record.provider.foundationdb.FDBDatabaseFactory;
import com.apple.foundationdb.record.provider.foundationdb.FDBQueriedRecord;
import com.apple.foundationdb.record.provider.foundationdb.FDBRecordContext;
import com.apple.foundationdb.record.provider.foundationdb.FDBRecordStore;
import com.apple.foundationdb.record.provider.foundationdb.FDBStoredRecord;
import com.apple.foundationdb.record.provider.foundationdb.OnlineIndexer;
import com.apple.foundationdb.record.query.RecordQuery;
import com.apple.foundationdb.record.query.expressions.Query;
import com.apple.foundationdb.record.query.expressions.QueryComponent;
import com.apple.foundationdb.subspace.Subspace;
import com.apple.foundationdb.tuple.Tuple;
import com.google.protobuf.DescriptorProtos.DescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto.Label;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto.Type;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * A library's catalogue in the Record Layer: books with an author and a year. The schema is put together here rather than
 * generated, so that no compiler of schemas is needed.
 */
public final class Library {
    private static final int BOOKS = 500;
    private static final String[] AUTHORS = {"Austen", "Borges", "Calvino", "Dickinson", "Eco"};

    private final Descriptor book;
    private final FileDescriptor file;
    private final FDBDatabase db;
    private final Subspace space = new Subspace(Tuple.from("library"));

    private Library(FDBDatabase db) throws Exception {
        this.db = db;
        DescriptorProto.Builder record = DescriptorProto.newBuilder().setName("Book")
            .addField(field("id", 1, Type.TYPE_INT64))
            .addField(field("title", 2, Type.TYPE_STRING))
            .addField(field("author", 3, Type.TYPE_STRING))
            .addField(field("year", 4, Type.TYPE_INT64));
        DescriptorProto.Builder union = DescriptorProto.newBuilder().setName("RecordTypeUnion")
            .addField(field("_Book", 1, Type.TYPE_MESSAGE).setTypeName("Book"));
        FileDescriptorProto proto = FileDescriptorProto.newBuilder().setName("library.proto")
            .addMessageType(record).addMessageType(union).build();
        file = FileDescriptor.buildFrom(proto, new FileDescriptor[0]);
        book = file.findMessageTypeByName("Book");
    }

    private static FieldDescriptorProto.Builder field(String name, int number, Type type) {
        return FieldDescriptorProto.newBuilder().setName(name).setNumber(number).setType(type).setLabel(Label.LABEL_OPTIONAL);
    }

    /** The schema: at first with an index by author and a count, later with one by year too. */
    private RecordMetaData schema(boolean byYear) {
        RecordMetaDataBuilder builder = RecordMetaData.newBuilder().setRecords(file);
        builder.getRecordType("Book").setPrimaryKey(Key.Expressions.field("id"));
        builder.addIndex("Book", new Index("by_author", Key.Expressions.field("author")));
        builder.addUniversalIndex(new Index("count",
            new com.apple.foundationdb.record.metadata.expressions.GroupingKeyExpression(
                com.apple.foundationdb.record.metadata.expressions.EmptyKeyExpression.EMPTY, 0), IndexTypes.COUNT));
        if (byYear) {
            builder.addIndex("Book", new Index("by_year", Key.Expressions.field("year")));
        }
        return builder.getRecordMetaData();
    }

    private FDBRecordStore.Builder store(RecordMetaData schema) {
        return FDBRecordStore.newBuilder().setMetaDataProvider(schema).setSubspace(space);
    }

    private <T> T with(RecordMetaData schema, Function<FDBRecordStore, T> body) {
        return db.run((FDBRecordContext context) -> body.apply(store(schema).setContext(context).createOrOpen()));
    }

    private Message made(long id) {
        return DynamicMessage.newBuilder(book)
            .setField(book.findFieldByName("id"), id)
            .setField(book.findFieldByName("title"), "Volume " + id)
            .setField(book.findFieldByName("author"), AUTHORS[(int) (id % AUTHORS.length)])
            .setField(book.findFieldByName("year"), 1800 + id % 100)
            .build();
    }

    private long id(Message message) {
        return (Long) message.getField(message.getDescriptorForType().findFieldByName("id"));
    }

    private Set<Long> found(RecordMetaData schema, QueryComponent filter) {
        RecordQuery query = RecordQuery.newBuilder().setRecordType("Book").setFilter(filter).build();
        return with(schema, store -> {
            Set<Long> ids = new TreeSet<>();
            RecordCursor<FDBQueriedRecord<Message>> cursor = store.executeQuery(query);
            cursor.asList().join().forEach(row -> ids.add(id(row.getRecord())));
            return ids;
        });
    }

    private static void same(Object found, Object want, String words) {
        if (!Objects.equals(found, want)) {
            throw new AssertionError(words + ": found " + found + ", expected " + want);
        }
    }

    private static Set<Long> all(Function<Long, Boolean> wanted) {
        Set<Long> ids = new TreeSet<>();
        for (long id = 0; id < BOOKS; id++) {
            if (wanted.apply(id)) {
                ids.add(id);
            }
        }
        return ids;
    }

    private void recordsAreSavedAndLoaded() {
        RecordMetaData schema = schema(false);
        for (int page = 0; page < BOOKS; page += 50) {
            int first = page;
            with(schema, store -> {
                for (long id = first; id < first + 50; id++) {
                    store.saveRecord(made(id));
                }
                return null;
            });
        }
        for (long id = 0; id < BOOKS; id += 37) {
            long wanted = id;
            FDBStoredRecord<Message> record = with(schema, store -> store.loadRecord(Tuple.from(wanted)));
            same(record.getRecord().toByteString(), made(id).toByteString(), "record " + id);
        }
        same(with(schema, store -> store.loadRecord(Tuple.from(-1))), null, "no record");
        same(with(schema, store -> store.getSnapshotRecordCount().join()), (long) BOOKS, "count");
    }

    private void queriesGoByTheIndex() {
        RecordMetaData schema = schema(false);
        QueryComponent filter = Query.field("author").equalsValue("Calvino");
        String plan = with(schema, store ->
            store.planQuery(RecordQuery.newBuilder().setRecordType("Book").setFilter(filter).build()).toString());
        if (!plan.contains("by_author")) {
            throw new AssertionError("the plan is " + plan);
        }
        same(found(schema, filter), all(id -> id % 5 == 2), "by author");
        same(found(schema, Query.and(filter, Query.field("year").lessThan(1810L))), all(id -> id % 5 == 2 && id % 100 < 10),
            "by author, then by year");
    }

    private void anIndexIsBuiltWhileTheStoreIsInUse() {
        RecordMetaData schema = schema(true);
        same(with(schema, store -> store.isIndexReadable("by_year")), false, "readable before it is built");
        try (OnlineIndexer indexer = OnlineIndexer.newBuilder().setDatabase(db).setMetaData(schema).setSubspace(space)
                .setIndex("by_year").setLimit(20).build()) {
            CompletableFuture<Void> built = indexer.buildIndexAsync();
            // Records that are written while the index is built are in it, however far the building was.
            for (long id = BOOKS - 10; id < BOOKS; id++) {
                long each = id;
                with(schema, store -> store.saveRecord(made(each)));
            }
            built.join();
        }
        same(with(schema, store -> store.isIndexReadable("by_year")), true, "readable once it is built");
        QueryComponent filter = Query.field("year").equalsValue(1842L);
        same(found(schema, filter), all(id -> id % 100 == 42), "by year");
        same(found(schema, Query.field("year").greaterThanOrEquals(1890L)), all(id -> id % 100 >= 90), "a range of years");
    }

    private void changesAndDeletionsReachTheIndexes() {
        RecordMetaData schema = schema(true);
        with(schema, store -> store.deleteRecord(Tuple.from(42L)));
        same(found(schema, Query.field("year").equalsValue(1842L)), all(id -> id % 100 == 42 && id != 42), "after deletion");
        with(schema, store -> store.saveRecord(made(142).toBuilder()
            .setField(book.findFieldByName("year"), 1999L).build()));
        same(found(schema, Query.field("year").equalsValue(1999L)), Set.of(142L), "after a change");
    }

    private void conflictsAreRetried() {
        RecordMetaData schema = schema(true);
        // Five at a time: the Record Layer gives up after ten attempts.
        for (int round = 0; round < 4; round++) {
            List<CompletableFuture<Void>> running = new ArrayList<>();
            for (int n = 0; n < 5; n++) {
                running.add(db.runAsync(context -> store(schema).setContext(context).createOrOpenAsync()
                    .thenCompose(this::publishAgain)));
            }
            running.forEach(CompletableFuture::join);
        }
        same(found(schema, Query.field("year").equalsValue(1827L)).contains(7L), true, "twenty changes of one record");
    }

    /** Moves a book's year on by one. */
    private CompletableFuture<Void> publishAgain(FDBRecordStore store) {
        return store.loadRecordAsync(Tuple.from(7L)).thenCompose(record -> {
            Message old = record.getRecord();
            long year = (Long) old.getField(old.getDescriptorForType().findFieldByName("year"));
            return store.saveRecordAsync(made(7).toBuilder().setField(book.findFieldByName("year"), year + 1).build());
        }).thenApply(saved -> null);
    }

    public static void main(String[] arguments) throws Exception {
        FDBDatabase db = FDBDatabaseFactory.instance().getDatabase(System.getenv().getOrDefault("PLINTH_TARGET", ":memory:"));
        try (FDBRecordContext context = db.openContext()) {
            context.ensureActive().clear(new byte[0], new byte[] {(byte) 0xff});
            context.commit();
        }
        Library library = new Library(db);
        String[] names = {
            "records_are_saved_and_loaded", "queries_go_by_the_index", "an_index_is_built_while_the_store_is_in_use",
            "changes_and_deletions_reach_the_indexes", "conflicts_are_retried",
        };
        // Each goes on from the one before.
        Runnable[] tests = {
            library::recordsAreSavedAndLoaded, library::queriesGoByTheIndex, library::anIndexIsBuiltWhileTheStoreIsInUse,
            library::changesAndDeletionsReachTheIndexes, library::conflictsAreRetried,
        };
        int passed = 0;
        int failed = 0;
        for (int at = 0; at < tests.length; at++) {
            try {
                tests[at].run();
                passed++;
                System.out.println("test " + names[at] + " ... ok");
            } catch (Throwable error) {
                failed++;
                error.printStackTrace(System.out);
                System.out.println("test " + names[at] + " ... FAILED");
            }
        }
        String verdict = failed == 0 ? "ok" : "FAILED";
        System.out.printf("test result: %s. %d passed; %d failed; 0 ignored%n", verdict, passed, failed);
        FDBDatabaseFactory.instance().shutdown();
        System.exit(failed == 0 ? 0 : 1);
    }
}
