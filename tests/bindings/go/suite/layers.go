package main

import (
	"bytes"
	"fmt"
	"math/big"
	"sort"
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"
	"github.com/apple/foundationdb/bindings/go/src/fdb/tuple"
)

func (t test) element(depth int) tuple.TupleElement {
	switch kind := t.chance.Intn(9); {
	case kind == 0:
		return nil
	case kind == 1:
		return t.chance.Int63() - t.chance.Int63()
	case kind == 2:
		return int64(t.chance.Intn(600) - 300)
	case kind == 3:
		return t.chance.NormFloat64()
	case kind == 4:
		return []byte(t.text(0, 5, "\x00\x01a\xff"))
	case kind == 5:
		return t.text(0, 5, "ab\x00")
	case kind == 6:
		return t.chance.Intn(2) == 0
	case kind == 7:
		return new(big.Int).Lsh(big.NewInt(t.chance.Int63()), uint(t.chance.Intn(100)))
	case depth > 1:
		return "deep"
	}
	return t.tuple(depth+1, 3)
}

func (t test) tuple(depth, most int) tuple.Tuple {
	made := tuple.Tuple{}
	for n := t.chance.Intn(most + 1); n > 0; n-- {
		made = append(made, t.element(depth))
	}
	return made
}

func tuplesComeBackAndSort(t test) {
	var keys []string
	space := subspace.Sub("t")
	transact(t.db, func(tr fdb.Transaction) {
		for i := 0; i < 300; i++ {
			key := space.Pack(t.tuple(0, 4))
			unpacked, err := space.Unpack(key)
			must(err)
			check(bytes.Equal(space.Pack(unpacked), key), "%v", unpacked)
			tr.Set(key, nil)
			if len(unpacked) > 0 {
				keys = append(keys, string(key))
			}
		}
	})
	sort.Strings(keys)
	var want []string
	for at, key := range keys {
		if at == 0 || keys[at-1] != key {
			want = append(want, fmt.Sprintf("%x=", key))
		}
	}
	same(rows(begin(t.db).GetRange(space, fdb.RangeOptions{}).GetSliceOrPanic()), want, "order")
}

func stampedTuples(t test) {
	space := subspace.Sub("stamped")
	transact(t.db, func(tr fdb.Transaction) {
		for i := 0; i < 3; i++ {
			key, err := space.PackWithVersionstamp(tuple.Tuple{tuple.IncompleteVersionstamp(uint16(i)), "x"})
			must(err)
			tr.SetVersionstampedKey(key, []byte{byte(i)})
		}
	})
	found := begin(t.db).GetRange(space, fdb.RangeOptions{}).GetSliceOrPanic()
	check(len(found) == 3, "%v", found)
	for at, row := range found {
		unpacked, err := space.Unpack(row.Key)
		must(err)
		stamp := unpacked[0].(tuple.Versionstamp)
		check(int(stamp.UserVersion) == at && row.Value[0] == byte(at), "%v", unpacked)
	}
}

func directories(t test) {
	users, err := directory.CreateOrOpen(t.db, []string{"app", "users"}, nil)
	must(err)
	key := users.Pack(tuple.Tuple{"ada"})
	set(t.db, string(key), "1815")
	moved, err := directory.Move(t.db, []string{"app", "users"}, []string{"app", "people"})
	must(err)
	check(bytes.Equal(moved.Bytes(), users.Bytes()), "a move keeps the prefix")
	names, err := directory.List(t.db, []string{"app"})
	must(err)
	same(names, []string{"people"}, "names")
	_, err = directory.Create(t.db, []string{"app", "people"}, nil)
	check(err != nil, "made twice")
	_, err = directory.Open(t.db, []string{"nothing"}, nil)
	check(err != nil, "opened nothing")
	_, err = directory.Root().Remove(t.db, []string{"app"})
	must(err)
	equalBytes(get(t.db, string(key)), nil, "removed")
	part, err := directory.Create(t.db, []string{"part"}, []byte("partition"))
	must(err)
	inner, err := part.CreateOrOpen(t.db, []string{"a", "b"}, nil)
	must(err)
	same(inner.GetPath(), []string{"part", "a", "b"}, "path")
	_, err = directory.Root().Remove(t.db, []string{"part"})
	must(err)
}

func directoriesAreAllocatedAtOnceWithoutClashes(t test) {
	var lock sync.Mutex
	made := map[string]bool{}
	together(8, func(i int) {
		for n := 0; n < 12; n++ {
			one, err := directory.Create(t.db, []string{"many", fmt.Sprint(i), fmt.Sprint(n)}, nil)
			must(err)
			lock.Lock()
			made[string(one.Bytes())] = true
			lock.Unlock()
		}
	})
	check(len(made) == 96, "%d prefixes", len(made))
}
