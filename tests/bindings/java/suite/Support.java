package plinth;

import com.apple.foundationdb.Database;
import com.apple.foundationdb.FDBException;
import com.apple.foundationdb.KeyValue;
import com.apple.foundationdb.Transaction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import java.util.function.IntConsumer;
import java.util.function.Supplier;

/** What tests share. Keys and values are texts of letters below 256 here, a letter a byte, so that they compare as bytes do. */
final class Support {
    private Support() {}

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.ISO_8859_1);
    }

    static void check(boolean holds, Object words) {
        if (!holds) {
            throw new AssertionError(words);
        }
    }

    static void same(Object found, Object want, Object words) {
        if (!Objects.equals(found, want)) {
            throw new AssertionError(words + ": found " + shown(found) + ", expected " + shown(want));
        }
    }

    private static String shown(Object value) {
        StringBuilder out = new StringBuilder();
        String.valueOf(value).chars().forEach(c -> out.append(c > 32 && c < 127 ? "" + (char) c : String.format("\\x%02x", c)));
        return out.toString();
    }

    /** FoundationDB's number for what goes wrong; 0 if nothing does. */
    static int code(Runnable body) {
        try {
            body.run();
            return 0;
        } catch (Throwable thrown) {
            for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
                if (cause instanceof FDBException) {
                    return ((FDBException) cause).getCode();
                }
            }
            throw thrown;
        }
    }

    static void fails(int want, Runnable body) {
        int found = code(body);
        check(found == want, "error " + found + ", expected " + want);
    }

    static void fails(int want, Supplier<CompletableFuture<?>> body) {
        fails(want, (Runnable) () -> body.get().join());
    }

    /** Runs a function in a transaction until it commits. */
    static void write(Database db, Consumer<Transaction> body) {
        db.run(tr -> {
            tr.options().setMaxRetryDelay(20);
            body.accept(tr);
            return null;
        });
    }

    static void set(Database db, String... rows) {
        write(db, tr -> {
            for (int at = 0; at < rows.length; at += 2) {
                tr.set(bytes(rows[at]), bytes(rows[at + 1]));
            }
        });
    }

    static String get(Database db, String key) {
        return text(db.read(tr -> tr.get(bytes(key)).join()));
    }

    static List<String> rows(List<KeyValue> found) {
        List<String> rows = new ArrayList<>();
        found.forEach(row -> rows.add(text(row.getKey()) + "=" + text(row.getValue())));
        return rows;
    }

    /** A random text of so many of these letters. */
    static String some(Random chance, int low, int high, String letters) {
        StringBuilder made = new StringBuilder();
        for (int n = low + chance.nextInt(high - low + 1); n > 0; n--) {
            made.append(letters.charAt(chance.nextInt(letters.length())));
        }
        return made.toString();
    }

    /** Runs a function in so many threads, and passes on what any throws. */
    static void together(int count, IntConsumer body) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(count);
        try {
            List<Future<?>> running = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                int number = i;
                running.add(pool.submit(() -> body.accept(number)));
            }
            for (Future<?> each : running) {
                each.get();
            }
        } catch (ExecutionException failure) {
            throw new AssertionError(failure.getCause());
        } finally {
            pool.shutdownNow();
        }
    }
}
