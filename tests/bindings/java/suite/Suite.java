package plinth;

import com.apple.foundationdb.Database;
import com.apple.foundationdb.FDB;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Runs the Java suite at one API version: every test on the database that PLINTH_TARGET names, which each finds empty. What
 * is printed has the form of cargo's tests, so that the same program adds both up.
 */
public final class Suite {
    /** What a test does with a database and a source of chance that is the same for the same seed. */
    interface Body {
        void run(Database db, Random chance) throws Exception;
    }

    public static void main(String[] arguments) {
        int api = Integer.parseInt(arguments[0]);
        List<String> wanted = List.of(arguments).subList(1, arguments.length);
        FDB fdb = FDB.selectAPIVersion(api);
        String target = System.getenv().getOrDefault("PLINTH_TARGET", ":memory:");
        String given = System.getenv("PLINTH_SEED");
        long seed = given == null ? System.nanoTime() : Long.parseLong(given);
        Map<String, Body> tests = new LinkedHashMap<>();
        Transactions.list(tests);
        Data.list(tests);
        Layers.list(tests);
        Model.list(tests);
        int passed = 0;
        int failed = 0;
        try (Database db = fdb.open(target)) {
            for (Map.Entry<String, Body> test : tests.entrySet()) {
                String name = test.getKey();
                if (!wanted.isEmpty() && wanted.stream().noneMatch(name::contains)) {
                    continue;
                }
                Support.write(db, tr -> tr.clear(new byte[0], new byte[] {(byte) 0xff}));
                try {
                    test.getValue().run(db, new Random(seed));
                    passed++;
                    System.out.printf("test %s (api %d) ... ok%n", name, api);
                } catch (Throwable error) {
                    failed++;
                    error.printStackTrace(System.out);
                    System.out.printf("test %s (api %d) ... FAILED, PLINTH_SEED=%d%n", name, api, seed);
                }
            }
        }
        fdb.stopNetwork();
        String verdict = failed == 0 ? "ok" : "FAILED";
        System.out.printf("test result: %s. %d passed; %d failed; 0 ignored%n", verdict, passed, failed);
        System.exit(failed == 0 ? 0 : 1);
    }
}
