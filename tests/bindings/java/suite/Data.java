package plinth;

import static plinth.Support.bytes;
import static plinth.Support.check;
import static plinth.Support.fails;
import static plinth.Support.get;
import static plinth.Support.rows;
import static plinth.Support.same;
import static plinth.Support.set;
import static plinth.Support.some;
import static plinth.Support.text;
import static plinth.Support.together;
import static plinth.Support.write;

import com.apple.foundationdb.Database;
import com.apple.foundationdb.KeyArrayResult;
import com.apple.foundationdb.KeySelector;
import com.apple.foundationdb.LocalityUtil;
import com.apple.foundationdb.MappedKeyValue;
import com.apple.foundationdb.MutationType;
import com.apple.foundationdb.StreamingMode;
import com.apple.foundationdb.Transaction;
import com.apple.foundationdb.async.CloseableAsyncIterator;
import com.apple.foundationdb.tuple.Tuple;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.function.BinaryOperator;
import java.util.stream.Collectors;

/** What is read and written: ranges, selectors, atomic operations, versionstamps, mapped ranges, special keys, estimates. */
final class Data {
    private Data() {}

    static final Map<MutationType, BinaryOperator<String>> OPERATIONS = new EnumMap<>(MutationType.class);

    static void list(Map<String, Suite.Body> tests) {
        tests.put("every_streaming_mode_gives_the_same_rows", Data::modes);
        tests.put("limits_and_directions", Data::limits);
        tests.put("selectors_find_what_a_list_says", Data::selectors);
        tests.put("atomic_operations_are_their_definitions", Data::atomics);
        tests.put("additions_at_once_lose_nothing", Data::additions);
        tests.put("versionstamps", Data::versionstamps);
        tests.put("mapped_ranges", Data::mapped);
        tests.put("special_keys", Data::special);
        tests.put("where_rows_are_and_how_many_bytes", Data::places);
    }

    private static void modes(Database db, Random chance) {
        List<String> want = new ArrayList<>();
        write(db, tr -> {
            want.clear();
            for (int i = 0; i < 2500; i++) {
                String key = String.format("k%05d", i);
                String value = "v".repeat(i % 300);
                tr.set(bytes(key), bytes(value));
                want.add(key + "=" + value);
            }
        });
        List<String> backwards = new ArrayList<>(want);
        Collections.reverse(backwards);
        for (StreamingMode mode : StreamingMode.values()) {
            int limit = mode == StreamingMode.EXACT ? 10_000 : 0;
            for (boolean reverse : new boolean[] {false, true}) {
                db.read(tr -> {
                    List<String> found = rows(tr.getRange(bytes("k"), bytes("l"), limit, reverse, mode).asList().join());
                    check(found.equals(reverse ? backwards : want), mode + ", " + found.size());
                    List<String> one = new ArrayList<>();
                    tr.getRange(bytes("k"), bytes("l"), limit, reverse, mode)
                        .forEach(row -> one.add(text(row.getKey()) + "=" + text(row.getValue())));
                    check(one.equals(reverse ? backwards : want), mode + " by an iterator");
                    return null;
                });
            }
        }
    }

    private static void limits(Database db, Random chance) {
        write(db, tr -> {
            for (int i = 0; i < 300; i++) {
                tr.set(bytes(String.format("%03d", i)), bytes("" + i));
            }
        });
        for (int round = 0; round < 200; round++) {
            int a = chance.nextInt(300);
            int b = chance.nextInt(300);
            int begin = Math.min(a, b);
            int end = Math.max(a, b);
            int limit = new int[] {0, 1, 2, 7, 50, 1000}[chance.nextInt(6)];
            boolean reverse = chance.nextBoolean();
            List<String> want = new ArrayList<>();
            for (int i = begin; i < end; i++) {
                want.add(String.format("%03d=%d", i, i));
            }
            if (reverse) {
                Collections.reverse(want);
            }
            List<String> cut = limit == 0 ? want : want.subList(0, Math.min(limit, want.size()));
            List<String> found = db.read(tr -> rows(tr.getRange(
                bytes(String.format("%03d", begin)), bytes(String.format("%03d", end)), limit, reverse).asList().join()));
            same(found, cut, begin + " " + end + " " + limit + " " + reverse);
        }
    }

    /** The key that a selector finds in sorted keys: "" before all, \xff past them. */
    static String select(List<String> keys, String key, boolean orEqual, int offset) {
        long before = keys.stream().filter(other -> orEqual ? other.compareTo(key) <= 0 : other.compareTo(key) < 0).count();
        int at = (int) before + offset - 1;
        return at < 0 ? "" : at >= keys.size() ? "\u00ff" : keys.get(at);
    }

    private static void selectors(Database db, Random chance) {
        TreeSet<String> visible = new TreeSet<>();
        try (Transaction tr = db.createTransaction()) {
            for (int i = 0; i < 80; i++) {
                String key = some(chance, 1, 4, "abc");
                visible.add(key);
                if (i < 60) {
                    set(db, key, "db");
                } else {
                    tr.set(bytes(key), bytes("own"));
                }
            }
            tr.clear(bytes("b"), bytes("bb"));
            visible.subSet("b", "bb").clear();
            List<String> keys = new ArrayList<>(visible);
            for (int round = 0; round < 500; round++) {
                String key = some(chance, 0, 4, "abcd");
                boolean orEqual = chance.nextBoolean();
                int offset = chance.nextInt(31) - 15;
                String found = text(tr.getKey(new KeySelector(bytes(key), orEqual, offset)).join());
                same(found, select(keys, key, orEqual, offset), key + " " + orEqual + " " + offset);
            }
            KeySelector begin = KeySelector.firstGreaterOrEqual(bytes(keys.get(0))).add(3);
            KeySelector end = KeySelector.lastLessThan(bytes("z")).add(-1);
            List<String> found = tr.getRange(begin, end).asList().join().stream()
                .map(row -> text(row.getKey())).collect(Collectors.toList());
            same(found, keys.subList(3, keys.size() - 2), "between selectors");
        }
    }

    private static String cut(String old, int length) {
        String whole = old == null ? "" : old;
        return (whole + "\0".repeat(length)).substring(0, length);
    }

    private interface OfBytes {
        int apply(int a, int b);
    }

    private static BinaryOperator<String> bitwise(OfBytes f) {
        return (old, operand) -> {
            String cut = cut(old, operand.length());
            StringBuilder made = new StringBuilder();
            for (int at = 0; at < operand.length(); at++) {
                made.append((char) (f.apply(cut.charAt(at), operand.charAt(at)) & 255));
            }
            return made.toString();
        };
    }

    private static String turned(String text) {
        return new StringBuilder(text).reverse().toString();
    }

    private static String add(String old, String operand) {
        String cut = cut(old, operand.length());
        StringBuilder made = new StringBuilder();
        int carry = 0;
        for (int at = 0; at < operand.length(); at++) {
            carry += cut.charAt(at) + operand.charAt(at);
            made.append((char) (carry & 255));
            carry >>= 8;
        }
        return made.toString();
    }

    private static BinaryOperator<String> pick(int sign, boolean asNumbers) {
        return (old, operand) -> {
            if (old == null) {
                return operand;
            }
            String other = asNumbers ? cut(old, operand.length()) : old;
            int order = asNumbers ? turned(other).compareTo(turned(operand)) : other.compareTo(operand);
            return order * sign > 0 ? other : operand;
        };
    }

    static {
        BinaryOperator<String> and = bitwise((a, b) -> a & b);
        OPERATIONS.put(MutationType.ADD, Data::add);
        OPERATIONS.put(MutationType.BIT_AND, (old, operand) -> old == null ? operand : and.apply(old, operand));
        OPERATIONS.put(MutationType.BIT_OR, bitwise((a, b) -> a | b));
        OPERATIONS.put(MutationType.BIT_XOR, bitwise((a, b) -> a ^ b));
        OPERATIONS.put(MutationType.MAX, pick(1, true));
        OPERATIONS.put(MutationType.MIN, pick(-1, true));
        OPERATIONS.put(MutationType.BYTE_MAX, pick(1, false));
        OPERATIONS.put(MutationType.BYTE_MIN, pick(-1, false));
        OPERATIONS.put(MutationType.APPEND_IF_FITS, (old, operand) -> (old == null ? "" : old) + operand);
        OPERATIONS.put(MutationType.COMPARE_AND_CLEAR, (old, operand) -> operand.equals(old) ? null : old);
    }

    private static void atomics(Database db, Random chance) {
        String letters = "\0\u0001\u0002\u00ff";
        for (int round = 0; round < 60; round++) {
            OPERATIONS.forEach((type, definition) -> {
                String operand = some(chance, 1, 5, letters);
                String old = chance.nextInt(5) > 1 ? some(chance, 1, 5, letters) : chance.nextBoolean() ? operand : null;
                String want = definition.apply(old, operand);
                write(db, tr -> {
                    tr.clear(bytes("k"));
                    if (old != null) {
                        tr.set(bytes("k"), bytes(old));
                    }
                });
                write(db, tr -> {
                    tr.mutate(type, bytes("k"), bytes(operand));
                    same(text(tr.get(bytes("k")).join()), want, type + " " + old + " " + operand);
                });
                same(get(db, "k"), want, type + " " + old + " " + operand + ", kept");
            });
        }
    }

    private static void additions(Database db, Random chance) throws Exception {
        together(8, i -> {
            for (int n = 0; n < 50; n++) {
                write(db, tr -> tr.mutate(MutationType.ADD, bytes("n"), new byte[] {1, 0, 0, 0}));
            }
        });
        same(get(db, "n"), "\u0090\u0001\0\0", "sum");
    }

    private static void versionstamps(Database db, Random chance) throws Exception {
        String stamp;
        try (Transaction tr = db.createTransaction()) {
            tr.mutate(MutationType.SET_VERSIONSTAMPED_KEY, bytes("k/0123456789/end\2\0\0\0"), bytes("v"));
            tr.mutate(MutationType.SET_VERSIONSTAMPED_VALUE, bytes("value"), bytes("<0123456789>\1\0\0\0"));
            CompletableFuture<byte[]> made = tr.getVersionstamp();
            tr.commit().join();
            stamp = text(made.join());
        }
        same(get(db, "k/" + stamp + "/end"), "v", "key");
        same(get(db, "value"), "<" + stamp + ">", "value");
        together(4, i -> {
            for (int n = 0; n < 25; n++) {
                write(db, tr -> tr.mutate(MutationType.SET_VERSIONSTAMPED_KEY, bytes("log/0123456789\4\0\0\0"), bytes("")));
            }
        });
        same(db.read(tr -> tr.getRange(bytes("log/"), bytes("log0")).asList().join()).size(), 100, "each stamp is its own");
        try (Transaction tr = db.createTransaction()) {
            tr.mutate(MutationType.SET_VERSIONSTAMPED_VALUE, bytes("value"), new byte[14]);
            fails(1036, () -> tr.get(bytes("value")));
        }
        try (Transaction tr = db.createTransaction()) {
            tr.mutate(MutationType.SET_VERSIONSTAMPED_KEY, bytes("abc"), bytes(""));
            fails(2000, () -> tr.commit());
        }
    }

    private static void mapped(Database db, Random chance) {
        write(db, tr -> {
            for (int i = 0; i < 50; i++) {
                byte[] index = Tuple.from("index", String.format("%03d", i), "primary" + i).pack();
                tr.set(index, bytes(""));
                for (int part = 0; part < 3; part++) {
                    tr.set(Tuple.from("record", "primary" + i, part).pack(), bytes(i + "/" + part));
                }
            }
        });
        byte[] mapper = Tuple.from("record", "{K[2]}", "{...}").pack();
        KeySelector begin = KeySelector.firstGreaterOrEqual(Tuple.from("index", "010").pack());
        KeySelector end = KeySelector.firstGreaterOrEqual(Tuple.from("index", "030").pack());
        try (Transaction tr = db.createTransaction()) {
            List<MappedKeyValue> found = tr.getMappedRange(begin, end, mapper, 0, false, StreamingMode.WANT_ALL).asList().join();
            same(found.size(), 20, "rows of the index");
            for (int at = 0; at < found.size(); at++) {
                List<String> values = found.get(at).getRangeResult().stream()
                    .map(row -> text(row.getValue())).collect(Collectors.toList());
                same(values, List.of((at + 10) + "/0", (at + 10) + "/1", (at + 10) + "/2"), "row " + at);
            }
        }
    }

    private static void special(Database db, Random chance) {
        String status = get(db, "\u00ff\u00ff/status/json");
        check(status.contains("\"cluster\"") && status.contains("\"client\""), status);
        try (Transaction tr = db.createTransaction()) {
            tr.get(bytes("r")).join();
            tr.set(bytes("w"), bytes(""));
            for (String kind : new String[] {"read", "write"}) {
                String prefix = "\u00ff\u00ff/transaction/" + kind + "_conflict_range/";
                String key = kind.substring(0, 1);
                same(rows(tr.getRange(bytes(prefix), bytes(prefix + "\u00ff")).asList().join()),
                    List.of(prefix + key + "=1", prefix + key + "\0=0"), kind);
            }
            fails(2113, () -> tr.get(bytes("\u00ff\u00ff/no/such/module")));
            fails(2004, () -> tr.get(bytes("\u00ff/conf")));
        }
    }

    /** The keys of a result: the class has no public way to them in 7.1. */
    @SuppressWarnings("unchecked")
    private static List<byte[]> keys(KeyArrayResult result) throws ReflectiveOperationException {
        Field keys = KeyArrayResult.class.getDeclaredField("keys");
        keys.setAccessible(true);
        return (List<byte[]>) keys.get(result);
    }

    private static void places(Database db, Random chance) throws ReflectiveOperationException {
        for (int i = 0; i < 20; i++) {
            int page = i;
            write(db, tr -> {
                for (int n = 0; n < 50; n++) {
                    tr.set(bytes(String.format("e%02d%02d", page, n)), new byte[1000]);
                }
            });
        }
        try (Transaction tr = db.createTransaction()) {
            check(tr.getEstimatedRangeSizeBytes(bytes("e"), bytes("f")).join() >= 0, "size");
            List<byte[]> points = keys(tr.getRangeSplitPoints(bytes("e"), bytes("f"), 100_000).join());
            same(text(points.get(0)), "e", "first point");
            same(text(points.get(points.size() - 1)), "f", "last point");
            check(LocalityUtil.getAddressesForKey(tr, bytes("e")).join().length > 0, "no address");
            long small = tr.getApproximateSize().join();
            tr.set(bytes("k"), new byte[1000]);
            check(tr.getApproximateSize().join() >= small + 1000, "size of a transaction");
        }
        try (CloseableAsyncIterator<byte[]> keys = LocalityUtil.getBoundaryKeys(db, bytes(""), bytes("\u00ff"))) {
            check(keys.hasNext(), "no shard");
        }
        check(db.getMainThreadBusyness() >= 0, "busyness");
    }
}
