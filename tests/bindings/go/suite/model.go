package main

import (
	"fmt"
	"sort"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
)

// view is what a transaction sees, as a plain map.
type view map[string][]byte

func (v view) keys() []string {
	keys := make([]string, 0, len(v))
	for key := range v {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func (v view) copy() view {
	made := view{}
	for key, value := range v {
		made[key] = value
	}
	return made
}

// Random transactions on the database and on a model of it: each read, and all rows at the end, must be the same.
func randomTransactionsFollowAModel(t test) {
	committed := view{}
	var names []string
	for name := range operations {
		names = append(names, name)
	}
	sort.Strings(names)
	for round := 0; round < 300; round++ {
		tr, seen := begin(t.db), committed.copy()
		for step := 1 + t.chance.Intn(40); step > 0; step-- {
			t.step(tr, seen, names)
		}
		if t.chance.Intn(5) > 0 {
			must(tr.Commit().Get())
			committed = seen
		}
	}
	var want []string
	for _, key := range committed.keys() {
		want = append(want, fmt.Sprintf("%x=%x", key, committed[key]))
	}
	same(rows(begin(t.db).GetRange(everything, fdb.RangeOptions{}).GetSliceOrPanic()), want, "all rows")
}

func (t test) step(tr fdb.Transaction, seen view, names []string) {
	key := func() string { return t.text(0, 3, "\x00ab\xfe") }
	one, two := key(), key()
	if two < one {
		one, two = two, one
	}
	span := fdb.KeyRange{Begin: fdb.Key(one), End: fdb.Key(two)}
	var reader fdb.ReadTransaction = tr
	if t.chance.Intn(3) == 0 {
		reader = tr.Snapshot()
	}
	switch kind := t.chance.Intn(11); {
	case kind < 3:
		seen[one] = []byte(t.text(0, 4, "xyz"))
		tr.Set(fdb.Key(one), seen[one])
	case kind == 3:
		delete(seen, one)
		tr.Clear(fdb.Key(one))
	case kind == 4:
		tr.ClearRange(span)
		for other := range seen {
			if one <= other && other < two {
				delete(seen, other)
			}
		}
	case kind < 7:
		name, operand := names[t.chance.Intn(len(names))], []byte(t.text(1, 4, "\x00\x01\xff"))
		apply[name](tr, fdb.Key(one), operand)
		if value := operations[name](seen[one], operand); value != nil {
			seen[one] = value
		} else {
			delete(seen, one)
		}
	case kind < 8:
		found := reader.Get(fdb.Key(one)).MustGet()
		check((found == nil) == (seen[one] == nil) && string(found) == string(seen[one]), "%q: %x, not %x", one, found, seen[one])
	case kind < 9:
		orEqual, offset := t.chance.Intn(2) == 0, t.chance.Intn(11)-5
		found := reader.GetKey(fdb.KeySelector{Key: fdb.Key(one), OrEqual: orEqual, Offset: offset}).MustGet()
		want := sel(seen.keys(), one, orEqual, offset)
		check(string(found) == want, "%q %v %d: %q, not %q", one, orEqual, offset, found, want)
	default:
		t.rangeStep(reader, seen, span)
	}
}

func (t test) rangeStep(reader fdb.ReadTransaction, seen view, span fdb.KeyRange) {
	modes := []fdb.StreamingMode{fdb.StreamingModeWantAll, fdb.StreamingModeIterator, fdb.StreamingModeSmall, fdb.StreamingModeSerial}
	options := fdb.RangeOptions{Limit: []int{0, 0, 1, 2, 5}[t.chance.Intn(5)], Reverse: t.chance.Intn(2) == 0, Mode: modes[t.chance.Intn(4)]}
	var want []string
	for _, key := range seen.keys() {
		if string(span.Begin.FDBKey()) <= key && key < string(span.End.FDBKey()) {
			want = append(want, fmt.Sprintf("%x=%x", key, seen[key]))
		}
	}
	if options.Reverse {
		for a, b := 0, len(want)-1; a < b; a, b = a+1, b-1 {
			want[a], want[b] = want[b], want[a]
		}
	}
	if options.Limit > 0 && len(want) > options.Limit {
		want = want[:options.Limit]
	}
	same(rows(reader.GetRange(span, options).GetSliceOrPanic()), want, "range %v %v", span, options)
}
