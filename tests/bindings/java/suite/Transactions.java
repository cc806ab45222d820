package plinth;

import static plinth.Support.bytes;
import static plinth.Support.check;
import static plinth.Support.code;
import static plinth.Support.fails;
import static plinth.Support.get;
import static plinth.Support.same;
import static plinth.Support.set;
import static plinth.Support.text;
import static plinth.Support.together;
import static plinth.Support.write;

import com.apple.foundationdb.Database;
import com.apple.foundationdb.FDB;
import com.apple.foundationdb.FDBException;
import com.apple.foundationdb.KeySelector;
import com.apple.foundationdb.Transaction;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Stream;

/** Transactions: their life, conflicts, retries, timeouts, watches, options, errors. */
final class Transactions {
    private Transactions() {}

    static void list(Map<String, Suite.Body> tests) {
        tests.put("a_transaction_sees_its_writes_and_others_after_commit", Transactions::life);
        tests.put("conflicts_are_retried_until_nothing_is_lost", Transactions::retries);
        tests.put("what_conflicts", Transactions::conflicts);
        tests.put("a_cancelled_transaction_stays_so", Transactions::cancelling);
        tests.put("timeouts_end_what_waits", Transactions::timeouts);
        tests.put("on_error_retries_what_may_be_retried", Transactions::onError);
        tests.put("error_predicates", Transactions::predicates);
        tests.put("watches_tell_of_changes", Transactions::watches);
        tests.put("errors_are_deferred_to_the_next_operation", Transactions::deferred);
        tests.put("options_are_accepted_and_obeyed", Transactions::options);
        tests.put("a_name_says_how_a_directory_is_opened", Transactions::places);
        tests.put("a_pinned_snapshot_is_read_beyond_the_window", Transactions::pinned);
        tests.put("futures_complete_on_other_threads_and_make_new_ones", Transactions::chains);
    }

    private static void places(Database db, Random chance) throws Exception {
        Path around = Files.createTempDirectory("plinth-places-");
        try {
            FDB fdb = FDB.instance();
            String name = around.resolve("db").toString();
            told(1511, name, () -> fdb.open(name + "?create=false&engine=ssd").close());
            String nearly = around.resolve("fdb.clustr").toString();
            told(1511, nearly + ": is a cluster file meant?", () -> fdb.open(nearly).close());
            told(2006, "\"disk\"", () -> fdb.open(name + "?engine=disk").close());
            same(around.toFile().list().length, 0, "what was made");
            try (Database made = fdb.open(name + "?engine=ssd&memory=64MiB")) {
                set(made, "k", "v");
            }
            check(Files.exists(around.resolve("db/gen-1/tables")), "the engine");
            try (Database again = fdb.open(name + "?create=false&engine=ssd")) {
                same(get(again, "k"), "v", "opened again");
            }
        } finally {
            try (Stream<Path> made = Files.walk(around)) {
                made.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    /** What is opened must fail with this number, and with these words in its text. */
    private static void told(int want, String words, Runnable body) {
        try {
            body.run();
            check(false, "opened, and not " + want);
        } catch (FDBException error) {
            check(error.getCode() == want && error.getMessage().contains(words), error.getCode() + ": " + error.getMessage());
        }
    }

    /** A transaction on a pinned snapshot that has this row: with the engine `ssd` one has it some seconds after its commit. */
    private static Transaction pinnedWith(Database db, String key, String value) throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (true) {
            Transaction pinned = db.createTransaction();
            pinned.options().getOptionConsumer().setOption(3000, null);
            byte[] found = pinned.get(bytes(key)).join();
            if (found != null && text(found).equals(value)) {
                return pinned;
            }
            pinned.close();
            check(System.nanoTime() < until, "after a minute the row is not pinned");
            Thread.sleep(100);
        }
    }

    private static void pinned(Database db, Random chance) throws InterruptedException {
        String engine = System.getenv().getOrDefault("PLINTH_ENGINE", "memory");
        byte[] status = bytes("../status/json");
        status[0] = status[1] = (byte) 0xff;
        String told = text(db.read(tr -> tr.get(status).join()));
        check(told.contains("\"storage_engine\":\"" + engine + "\""), "not on this engine");
        set(db, "k", "before");
        try (Transaction pinned = pinnedWith(db, "k", "before");
                Transaction other = db.createTransaction();
                Transaction mover = db.createTransaction()) {
            // Ten seconds on, at once.
            long version = other.getReadVersion().join() + 10_000_000;
            mover.options().setSpecialKeySpaceEnableWrites();
            byte[] key = bytes("../management/min_required_commit_version");
            key[0] = key[1] = (byte) 0xff;
            mover.set(key, bytes(Long.toString(version)));
            mover.commit().join();
            set(db, "k", "after");
            fails(1007, () -> other.get(bytes("k")));
            same(text(pinned.get(bytes("k")).join()), "before", "beyond the window");
            pinned.set(bytes("k"), bytes("mine"));
            fails(2023, pinned::commit);
        }
        same(get(db, "k"), "after", "now");
    }

    private static void life(Database db, Random chance) {
        try (Transaction tr = db.createTransaction()) {
            tr.set(bytes("k"), bytes("v"));
            same(text(tr.get(bytes("k")).join()), "v", "own");
            same(get(db, "k"), null, "others");
            tr.commit().join();
            check(tr.getCommittedVersion() > 0, "version");
            fails(2017, () -> tr.get(bytes("k")));
        }
        same(get(db, "k"), "v", "after commit");
        try (Transaction past = db.createTransaction(); Transaction tr = db.createTransaction()) {
            long version = tr.getReadVersion().join();
            set(db, "k", "newer");
            past.setReadVersion(version);
            same(text(past.get(bytes("k")).join()), "v", "the past");
        }
    }

    private static void retries(Database db, Random chance) throws Exception {
        together(8, i -> {
            for (int n = 0; n < 40; n++) {
                write(db, tr -> {
                    byte[] old = tr.get(bytes("n")).join();
                    int number = old == null ? 0 : Integer.parseInt(text(old));
                    tr.set(bytes("n"), bytes(Integer.toString(number + 1)));
                });
            }
        });
        same(get(db, "n"), "320", "sum");
    }

    private static Consumer<Transaction> put(String key) {
        return tr -> tr.set(bytes(key), bytes("new"));
    }

    private static Consumer<Transaction> one(String key) {
        return tr -> tr.get(bytes(key)).join();
    }

    private static Consumer<Transaction> range(String begin, String end, int limit, boolean reverse) {
        return tr -> tr.getRange(bytes(begin), bytes(end), limit, reverse).asList().join();
    }

    private static void conflicts(Database db, Random chance) {
        List<Object[]> cases = new ArrayList<>();
        Consumer<Transaction> after = tr -> tr.getKey(KeySelector.firstGreaterThan(bytes("a"))).join();
        Consumer<Transaction> snapshot = tr -> tr.snapshot().get(bytes("a")).join();
        Consumer<Transaction> xz = tr -> tr.addReadConflictRange(bytes("x"), bytes("z"));
        Consumer<Transaction> x = tr -> tr.addReadConflictKey(bytes("x"));
        Consumer<Transaction> clear = tr -> tr.clear(bytes(""), bytes("b"));
        Consumer<Transaction> conflictKey = tr -> tr.addWriteConflictKey(bytes("q"));
        Consumer<Transaction> silently = tr -> {
            tr.options().setNextWriteNoWriteConflictRange();
            tr.set(bytes("q"), bytes(""));
        };
        cases.add(new Object[] {one("a"), put("a"), true});
        cases.add(new Object[] {one("a"), put("b"), false});
        cases.add(new Object[] {snapshot, put("a"), false});
        cases.add(new Object[] {range("a", "d", 0, false), put("b"), true});
        cases.add(new Object[] {range("a", "d", 0, false), put("d"), false});
        cases.add(new Object[] {range("a", "f", 1, false), put("d"), false});
        cases.add(new Object[] {range("a", "f", 1, true), put("b"), false});
        cases.add(new Object[] {after, put("b"), true});
        cases.add(new Object[] {after, put("d"), false});
        cases.add(new Object[] {xz, put("y"), true});
        cases.add(new Object[] {x, put("xx"), false});
        cases.add(new Object[] {one("a"), clear, true});
        cases.add(new Object[] {one("q"), conflictKey, true});
        cases.add(new Object[] {one("q"), silently, false});
        set(db, "a", "1", "c", "3", "e", "5");
        for (int at = 0; at < cases.size(); at++) {
            same(outcome(db, cases.get(at)), cases.get(at)[2].equals(true) ? 1020 : 0, "case " + at);
        }
    }

    @SuppressWarnings("unchecked")
    private static int outcome(Database db, Object[] each) {
        try (Transaction tr = db.createTransaction(); Transaction other = db.createTransaction()) {
            tr.getReadVersion().join();
            ((Consumer<Transaction>) each[0]).accept(tr);
            ((Consumer<Transaction>) each[1]).accept(other);
            other.commit().join();
            tr.set(bytes("out"), bytes(""));
            return code(() -> tr.commit().join());
        }
    }

    private static void cancelling(Database db, Random chance) {
        try (Transaction tr = db.createTransaction()) {
            CompletableFuture<Void> watch = tr.watch(bytes("w"));
            tr.cancel();
            fails(1025, () -> watch);
            fails(1025, () -> tr.get(bytes("k")));
            fails(1025, () -> tr.commit());
        }
    }

    private static void timeouts(Database db, Random chance) {
        try (Transaction tr = db.createTransaction()) {
            tr.options().setTimeout(100);
            tr.setReadVersion(1L << 60);
            fails(1031, () -> tr.get(bytes("k")));
            fails(1031, () -> tr.commit());
            fails(1031, () -> tr.onError(new FDBException("not committed", 1020)));
        }
    }

    private static void onError(Database db, Random chance) {
        for (int each : new int[] {1007, 1009, 1020, 1021, 1037, 1038, 1051, 1213}) {
            Transaction tr = db.createTransaction();
            tr.options().setMaxRetryDelay(5);
            tr.set(bytes("k"), bytes("v"));
            try (Transaction again = tr.onError(new FDBException("error", each)).join()) {
                same(again.get(bytes("k")).join(), null, "a retry begins with nothing");
            }
        }
        for (int each : new int[] {1025, 1031, 2000, 2017, 4100}) {
            try (Transaction tr = db.createTransaction()) {
                fails(each, () -> tr.onError(new FDBException("error", each)));
            }
        }
        Transaction tr = db.createTransaction();
        tr.options().setMaxRetryDelay(5);
        tr.options().setRetryLimit(1);
        try (Transaction again = tr.onError(new FDBException("error", 1020)).join()) {
            fails(1020, () -> again.onError(new FDBException("error", 1020)));
        }
    }

    private static void predicates(Database db, Random chance) {
        Object[][] table = {
            {1020, true, false, true}, {1021, true, true, false}, {1039, true, true, false}, {1007, true, false, true},
            {1025, false, false, false}, {2101, false, false, false}, {1031, false, false, false},
        };
        for (Object[] row : table) {
            FDBException error = new FDBException("error", (int) row[0]);
            same(error.isRetryable(), row[1], row[0]);
            same(error.isMaybeCommitted(), row[2], row[0]);
            same(error.isRetryableNotCommitted(), row[3], row[0]);
        }
    }

    private static void watches(Database db, Random chance) {
        set(db, "w", "0");
        for (String value : new String[] {"1", "2", "3"}) {
            CompletableFuture<Void> changed = db.run(tr -> tr.watch(bytes("w")));
            check(!changed.isDone(), "too early");
            set(db, "other", value, "w", value);
            changed.join();
        }
        CompletableFuture<Void> cancelled = db.run(tr -> tr.watch(bytes("w")));
        cancelled.cancel(true);
        check(cancelled.isCancelled(), "cancelled");
        List<CompletableFuture<Void>> many = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            String key = "many" + i;
            many.add(db.run(tr -> tr.watch(bytes(key))));
        }
        write(db, tr -> {
            for (int i = 0; i < 300; i++) {
                tr.set(bytes("many" + i), bytes("x"));
            }
        });
        many.forEach(CompletableFuture::join);
    }

    private static void deferred(Database db, Random chance) {
        Map<Integer, Consumer<Transaction>> misuses = Map.of(
            2004, tr -> tr.set(bytes("\u00ff"), bytes("")),
            2102, tr -> tr.set(new byte[10_001], bytes("")),
            2103, tr -> tr.set(bytes("k"), new byte[100_001]),
            2006, tr -> tr.options().setSizeLimit(1));
        misuses.forEach((want, misuse) -> {
            try (Transaction tr = db.createTransaction()) {
                misuse.accept(tr);
                fails(want, () -> tr.get(bytes("a")));
                fails(want, () -> tr.commit());
            }
        });
        try (Transaction tr = db.createTransaction()) {
            fails(2005, (Runnable) () -> tr.addReadConflictRange(bytes("b"), bytes("a")));
        }
    }

    private static void options(Database db, Random chance) {
        try (Transaction tr = db.createTransaction()) {
            tr.options().setCausalWriteRisky();
            tr.options().setCausalReadRisky();
            tr.options().setPriorityBatch();
            tr.options().setReadSystemKeys();
            tr.options().setAccessSystemKeys();
            tr.options().setLockAware();
            tr.options().setDebugTransactionIdentifier("name");
            tr.options().setLogTransaction();
            tr.options().setTransactionLoggingMaxFieldLength(100);
            tr.options().setTimeout(60_000);
            tr.options().setRetryLimit(10);
            tr.options().setTag("tag");
            tr.options().setAutoThrottleTag("other");
            tr.options().setSpecialKeySpaceRelaxed();
            tr.options().setBypassUnreadable();
            tr.options().setReportConflictingKeys();
            tr.set(bytes("k"), bytes("v"));
            tr.commit().join();
        }
        try (Transaction tr = db.createTransaction()) {
            tr.options().setSizeLimit(100);
            tr.set(bytes("k"), new byte[200]);
            fails(2101, () -> tr.commit());
        }
        try (Transaction tr = db.createTransaction()) {
            tr.options().setReadYourWritesDisable();
            tr.set(bytes("own"), bytes("v"));
            same(tr.get(bytes("own")).join(), null, "read-your-writes is disabled");
            fails(1034, () -> tr.watch(bytes("k")));
        }
        db.options().setLocationCacheSize(100_000);
        db.options().setDatacenterId("dc");
        fails(2006, (Runnable) () -> db.options().setMaxWatches(1_000_001));
    }

    private static void chains(Database db, Random chance) {
        set(db, "0", "1");
        List<CompletableFuture<Void>> running = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            String key = "chain" + i;
            running.add(db.runAsync(tr -> {
                tr.options().setMaxRetryDelay(20);
                return tr.get(bytes("0"))
                    .thenCompose(value -> tr.snapshot().getRange(bytes(""), bytes("z"), 3).asList())
                    .thenCompose(rows -> tr.get(bytes(key)))
                    .thenAccept(old -> tr.set(bytes(key), bytes("x")));
            }));
        }
        running.forEach(CompletableFuture::join);
        int count = db.read(tr -> tr.getRange(bytes("chain"), bytes("chaio")).asList().join()).size();
        same(count, 200, "written");
    }
}
