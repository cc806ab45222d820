package plinth;

import static plinth.Support.bytes;
import static plinth.Support.check;
import static plinth.Support.code;
import static plinth.Support.get;
import static plinth.Support.same;
import static plinth.Support.some;
import static plinth.Support.text;
import static plinth.Support.together;
import static plinth.Support.write;

import com.apple.foundationdb.Database;
import com.apple.foundationdb.KeyValue;
import com.apple.foundationdb.MutationType;
import com.apple.foundationdb.directory.DirectoryLayer;
import com.apple.foundationdb.directory.DirectorySubspace;
import com.apple.foundationdb.subspace.Subspace;
import com.apple.foundationdb.tuple.Tuple;
import com.apple.foundationdb.tuple.Versionstamp;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

/** The binding's layers on this database: tuples, subspaces, directories. */
final class Layers {
    private Layers() {}

    static void list(Map<String, Suite.Body> tests) {
        tests.put("tuples_come_back_and_sort", Layers::tuples);
        tests.put("tuples_with_versionstamps", Layers::stamped);
        tests.put("directories", Layers::directories);
        tests.put("directories_are_allocated_at_once_without_clashes", Layers::allocation);
    }

    private static Object element(Random chance, int depth) {
        switch (chance.nextInt(depth < 2 ? 10 : 9)) {
            case 0: return null;
            case 1: return chance.nextLong();
            case 2: return (long) chance.nextInt(600) - 300;
            case 3: return chance.nextGaussian();
            case 4: return (float) chance.nextGaussian();
            case 5: return bytes(some(chance, 0, 5, "\0\u0001a\u00ff"));
            case 6: return some(chance, 0, 5, "a\u00e9\0\u6f22");
            case 7: return chance.nextBoolean();
            case 8: return chance.nextBoolean() ? new UUID(chance.nextLong(), chance.nextLong()) : new BigInteger(100, chance);
            default: return tuple(chance, depth + 1, 3);
        }
    }

    private static Tuple tuple(Random chance, int depth, int most) {
        List<Object> elements = new ArrayList<>();
        for (int n = chance.nextInt(most + 1); n > 0; n--) {
            elements.add(element(chance, depth));
        }
        return Tuple.fromList(elements);
    }

    private static void tuples(Database db, Random chance) {
        Subspace space = new Subspace(Tuple.from("t"));
        List<Tuple> made = new ArrayList<>();
        TreeSet<String> keys = new TreeSet<>();
        for (int i = 0; i < 300; i++) {
            Tuple each = tuple(chance, 0, 4);
            check(Tuple.fromBytes(each.pack()).equals(each), each);
            made.add(each);
            if (each.size() > 0) {
                keys.add(text(space.pack(each)));
            }
        }
        write(db, tr -> made.forEach(each -> tr.set(space.pack(each), bytes(""))));
        List<String> stored = new ArrayList<>();
        for (KeyValue row : db.read(tr -> tr.getRange(space.range()).asList().join())) {
            stored.add(text(row.getKey()));
        }
        same(stored, new ArrayList<>(keys), "order");
    }

    private static void stamped(Database db, Random chance) {
        Subspace space = new Subspace(Tuple.from("stamped"));
        write(db, tr -> {
            for (int i = 0; i < 3; i++) {
                byte[] key = space.packWithVersionstamp(Tuple.from(Versionstamp.incomplete(i), "x"));
                tr.mutate(MutationType.SET_VERSIONSTAMPED_KEY, key, bytes("" + i));
            }
        });
        List<KeyValue> found = db.read(tr -> tr.getRange(space.range()).asList().join());
        same(found.size(), 3, "rows");
        for (int at = 0; at < 3; at++) {
            Versionstamp stamp = space.unpack(found.get(at).getKey()).getVersionstamp(0);
            check(stamp.isComplete() && stamp.getUserVersion() == at, stamp);
        }
    }

    private static void directories(Database db, Random chance) {
        DirectoryLayer layer = DirectoryLayer.getDefault();
        DirectorySubspace users = layer.createOrOpen(db, Arrays.asList("app", "users")).join();
        String key = text(users.pack("ada"));
        Support.set(db, key, "1815");
        DirectorySubspace moved = layer.move(db, Arrays.asList("app", "users"), Arrays.asList("app", "people")).join();
        check(Arrays.equals(moved.getKey(), users.getKey()), "a move keeps the prefix");
        same(layer.list(db, List.of("app")).join(), List.of("people"), "names");
        refused(() -> layer.create(db, Arrays.asList("app", "people")).join());
        refused(() -> layer.open(db, List.of("nothing")).join());
        layer.remove(db, List.of("app")).join();
        same(get(db, key), null, "removed");
        DirectorySubspace part = layer.create(db, List.of("part"), bytes("partition")).join();
        same(part.createOrOpen(db, Arrays.asList("a", "b")).join().getPath(), List.of("part", "a", "b"), "path");
        layer.remove(db, List.of("part")).join();
    }

    private static void refused(Runnable body) {
        try {
            code(body);
        } catch (RuntimeException told) {
            return;
        }
        throw new AssertionError("not refused");
    }

    private static void allocation(Database db, Random chance) throws Exception {
        Set<String> prefixes = ConcurrentHashMap.newKeySet();
        together(8, i -> {
            for (int n = 0; n < 12; n++) {
                List<String> path = Arrays.asList("many", "" + i, "" + n);
                prefixes.add(text(DirectoryLayer.getDefault().create(db, path).join().getKey()));
            }
        });
        same(prefixes.size(), 96, "prefixes");
    }
}
