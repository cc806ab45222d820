package plinth;

import static plinth.Support.bytes;
import static plinth.Support.rows;
import static plinth.Support.same;
import static plinth.Support.some;
import static plinth.Support.text;

import com.apple.foundationdb.Database;
import com.apple.foundationdb.KeySelector;
import com.apple.foundationdb.MutationType;
import com.apple.foundationdb.ReadTransaction;
import com.apple.foundationdb.StreamingMode;
import com.apple.foundationdb.Transaction;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

/** Random transactions on the database and on a model of it, a map: each read, and all rows at the end, must be the same. */
final class Model {
    private final Random chance;
    private final List<MutationType> types = new ArrayList<>(Data.OPERATIONS.keySet());

    private Model(Random chance) {
        this.chance = chance;
    }

    static void list(Map<String, Suite.Body> tests) {
        tests.put("random_transactions_follow_a_model", (db, chance) -> new Model(chance).run(db));
    }

    private void run(Database db) {
        TreeMap<String, String> committed = new TreeMap<>();
        for (int round = 0; round < 300; round++) {
            TreeMap<String, String> view = new TreeMap<>(committed);
            try (Transaction tr = db.createTransaction()) {
                for (int step = 1 + chance.nextInt(40); step > 0; step--) {
                    step(tr, view);
                }
                if (chance.nextInt(5) > 0) {
                    tr.commit().join();
                    committed = view;
                }
            }
        }
        List<String> want = shown(committed);
        same(rows(db.read(tr -> tr.getRange(bytes(""), bytes("\u00ff")).asList().join())), want, "all rows");
    }

    private static List<String> shown(Map<String, String> rows) {
        List<String> shown = new ArrayList<>();
        rows.forEach((key, value) -> shown.add(key + "=" + value));
        return shown;
    }

    private String key() {
        return some(chance, 0, 3, "\0ab\u00fe");
    }

    private void step(Transaction tr, TreeMap<String, String> view) {
        ReadTransaction reader = chance.nextInt(3) == 0 ? tr.snapshot() : tr;
        String one = key();
        String two = key();
        String begin = one.compareTo(two) < 0 ? one : two;
        String end = one.compareTo(two) < 0 ? two : one;
        int kind = chance.nextInt(11);
        if (kind < 3) {
            String value = some(chance, 0, 4, "xyz");
            tr.set(bytes(one), bytes(value));
            view.put(one, value);
        } else if (kind == 3) {
            tr.clear(bytes(one));
            view.remove(one);
        } else if (kind == 4) {
            tr.clear(bytes(begin), bytes(end));
            view.subMap(begin, end).clear();
        } else if (kind < 7) {
            MutationType type = types.get(chance.nextInt(types.size()));
            String operand = some(chance, 1, 4, "\0\u0001\u00ff");
            tr.mutate(type, bytes(one), bytes(operand));
            String value = Data.OPERATIONS.get(type).apply(view.get(one), operand);
            if (value == null) {
                view.remove(one);
            } else {
                view.put(one, value);
            }
        } else if (kind < 8) {
            same(text(reader.get(bytes(one)).join()), view.get(one), "get " + one);
        } else if (kind < 9) {
            boolean orEqual = chance.nextBoolean();
            int offset = chance.nextInt(11) - 5;
            String found = text(reader.getKey(new KeySelector(bytes(one), orEqual, offset)).join());
            same(found, Data.select(new ArrayList<>(view.keySet()), one, orEqual, offset), one + " " + orEqual + " " + offset);
        } else {
            range(reader, new TreeMap<>(view.subMap(begin, end)), begin, end);
        }
    }

    private void range(ReadTransaction reader, TreeMap<String, String> inside, String begin, String end) {
        StreamingMode[] modes = {StreamingMode.WANT_ALL, StreamingMode.ITERATOR, StreamingMode.SMALL, StreamingMode.SERIAL};
        int limit = new int[] {0, 0, 1, 2, 5}[chance.nextInt(5)];
        boolean reverse = chance.nextBoolean();
        List<String> want = shown(inside);
        if (reverse) {
            Collections.reverse(want);
        }
        want = limit == 0 ? want : want.subList(0, Math.min(limit, want.size()));
        StreamingMode mode = modes[chance.nextInt(modes.length)];
        List<String> found = rows(reader.getRange(bytes(begin), bytes(end), limit, reverse, mode).asList().join());
        same(found, want, "range " + begin + " to " + end + ", " + limit + " " + reverse + " " + mode);
    }
}
