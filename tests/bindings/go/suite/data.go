package main

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
)

func everyStreamingModeGivesTheSameRows(t test) {
	var pairs, want []string
	for i := 0; i < 2500; i++ {
		key, value := fmt.Sprintf("k%05d", i), strings.Repeat("v", i%300)
		pairs = append(pairs, key, value)
		want = append(want, fmt.Sprintf("%x=%x", key, value))
	}
	set(t.db, pairs...)
	backwards := make([]string, len(want))
	for at, row := range want {
		backwards[len(want)-1-at] = row
	}
	span := fdb.KeyRange{Begin: fdb.Key("k"), End: fdb.Key("l")}
	for mode := fdb.StreamingModeWantAll; mode <= fdb.StreamingModeSerial; mode++ {
		tr := begin(t.db)
		options := fdb.RangeOptions{Mode: mode}
		if mode == fdb.StreamingModeExact {
			options.Limit = 10_000
		}
		same(rows(tr.GetRange(span, options).GetSliceOrPanic()), want, "mode %d", mode)
		options.Reverse = true
		var found []fdb.KeyValue
		for iterator := tr.GetRange(span, options).Iterator(); iterator.Advance(); {
			found = append(found, iterator.MustGet())
		}
		same(rows(found), backwards, "mode %d, backwards", mode)
	}
}

// sel is the key that a selector finds in sorted keys: "" before all, "\xff" past them.
func sel(keys []string, key string, orEqual bool, offset int) string {
	before := 0
	for _, other := range keys {
		if other < key || orEqual && other == key {
			before++
		}
	}
	at := before + offset - 1
	switch {
	case at < 0:
		return ""
	case at >= len(keys):
		return "\xff"
	}
	return keys[at]
}

func selectorsFindWhatAListSays(t test) {
	visible := map[string]bool{}
	tr := begin(t.db)
	for i := 0; i < 80; i++ {
		key := t.text(1, 4, "abc")
		visible[key] = true
		if i < 60 {
			set(t.db, key, "db")
		} else {
			tr.Set(fdb.Key(key), []byte("own"))
		}
	}
	tr.ClearRange(fdb.KeyRange{Begin: fdb.Key("b"), End: fdb.Key("bb")})
	var keys []string
	for key := range visible {
		if key < "b" || key >= "bb" {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	for i := 0; i < 500; i++ {
		key, orEqual, offset := t.text(0, 4, "abcd"), t.chance.Intn(2) == 0, t.chance.Intn(31)-15
		found := tr.GetKey(fdb.KeySelector{Key: fdb.Key(key), OrEqual: orEqual, Offset: offset}).MustGet()
		want := sel(keys, key, orEqual, offset)
		check(string(found) == want, "%q %v %d: %q, not %q", key, orEqual, offset, found, want)
	}
	span := fdb.SelectorRange{Begin: fdb.FirstGreaterOrEqual(fdb.Key(keys[2])), End: fdb.LastLessOrEqual(fdb.Key(keys[9]))}
	found := tr.GetRange(span, fdb.RangeOptions{}).GetSliceOrPanic()
	check(len(found) == 7 && string(found[0].Key) == keys[2], "%v", found)
}

// operations are atomic operations as functions of the old value (nil if there is none) and the operand.
var operations = map[string]func(old, operand []byte) []byte{
	"add": func(old, operand []byte) []byte {
		carry := 0
		return each(old, operand, func(a, b byte) byte {
			carry += int(a) + int(b)
			digit := byte(carry)
			carry >>= 8
			return digit
		})
	},
	"and": func(old, operand []byte) []byte {
		if old == nil {
			return operand
		}
		return each(old, operand, func(a, b byte) byte { return a & b })
	},
	"or":  func(old, operand []byte) []byte { return each(old, operand, func(a, b byte) byte { return a | b }) },
	"xor": func(old, operand []byte) []byte { return each(old, operand, func(a, b byte) byte { return a ^ b }) },
	"max": func(old, operand []byte) []byte { return pick(old, operand, false) },
	"min": func(old, operand []byte) []byte { return pick(old, operand, true) },
	"byteMax": func(old, operand []byte) []byte {
		if old != nil && string(old) > string(operand) {
			return old
		}
		return operand
	},
	"byteMin": func(old, operand []byte) []byte {
		if old != nil && string(old) < string(operand) {
			return old
		}
		return operand
	},
	"append": func(old, operand []byte) []byte { return append(append([]byte{}, old...), operand...) },
	"compareAndClear": func(old, operand []byte) []byte {
		if old != nil && string(old) == string(operand) {
			return nil
		}
		return old
	},
}

var apply = map[string]func(fdb.Transaction, fdb.KeyConvertible, []byte){
	"add": fdb.Transaction.Add, "and": fdb.Transaction.BitAnd, "or": fdb.Transaction.BitOr, "xor": fdb.Transaction.BitXor,
	"max": fdb.Transaction.Max, "min": fdb.Transaction.Min, "byteMax": fdb.Transaction.ByteMax,
	"byteMin": fdb.Transaction.ByteMin, "append": fdb.Transaction.AppendIfFits,
	"compareAndClear": fdb.Transaction.CompareAndClear,
}

func each(old, operand []byte, f func(a, b byte) byte) []byte {
	made := make([]byte, len(operand))
	for at := range operand {
		var a byte
		if at < len(old) {
			a = old[at]
		}
		made[at] = f(a, operand[at])
	}
	return made
}

// pick takes the smaller or the bigger of two little-endian numbers.
func pick(old, operand []byte, smaller bool) []byte {
	if old == nil {
		return operand
	}
	cut := each(old, operand, func(a, _ byte) byte { return a })
	for at := len(operand) - 1; at >= 0; at-- {
		if cut[at] != operand[at] {
			if (cut[at] < operand[at]) == smaller {
				return cut
			}
			break
		}
	}
	return operand
}

func atomicOperationsAreTheirDefinitions(t test) {
	for round := 0; round < 60; round++ {
		for name, definition := range operations {
			var old []byte
			operand := []byte(t.text(1, 5, "\x00\x01\x02\xff"))
			if t.chance.Intn(5) > 1 {
				old = []byte(t.text(1, 5, "\x00\x01\x02\xff"))
			} else if t.chance.Intn(4) == 0 {
				old = operand
			}
			want := definition(old, operand)
			tr := begin(t.db)
			tr.Clear(fdb.Key("k"))
			if old != nil {
				tr.Set(fdb.Key("k"), old)
			}
			must(tr.Commit().Get())
			tr.Reset()
			apply[name](tr, fdb.Key("k"), operand)
			equalBytes(tr.Get(fdb.Key("k")).MustGet(), want, "%s of %x and %x", name, old, operand)
			must(tr.Commit().Get())
			equalBytes(get(t.db, "k"), want, "%s of %x and %x, kept", name, old, operand)
		}
	}
}

func additionsAtOnceLoseNothing(t test) {
	together(8, func(int) {
		for i := 0; i < 60; i++ {
			transact(t.db, func(tr fdb.Transaction) { tr.Add(fdb.Key("n"), []byte{1, 0, 0, 0}) })
		}
	})
	equalBytes(get(t.db, "n"), []byte{480 & 255, 480 >> 8, 0, 0}, "sum")
}

func versionstamps(t test) {
	tr := begin(t.db)
	tr.SetVersionstampedKey(fdb.Key("k/0123456789/end\x02\x00\x00\x00"), []byte("v"))
	tr.SetVersionstampedValue(fdb.Key("value"), []byte("<0123456789>\x01\x00\x00\x00"))
	stamp := tr.GetVersionstamp()
	must(tr.Commit().Get())
	text := string(stamp.MustGet())
	check(len(text) == 10, "%q", text)
	equalBytes(get(t.db, "k/"+text+"/end"), []byte("v"), "key")
	equalBytes(get(t.db, "value"), []byte("<"+text+">"), "value")
	together(4, func(int) {
		for i := 0; i < 25; i++ {
			transact(t.db, func(tr fdb.Transaction) { tr.SetVersionstampedKey(fdb.Key("log/0123456789\x04\x00\x00\x00"), nil) })
		}
	})
	span, err := fdb.PrefixRange([]byte("log/"))
	must(err)
	check(len(begin(t.db).GetRange(span, fdb.RangeOptions{}).GetSliceOrPanic()) == 100, "each stamp is its own")
	unread := begin(t.db)
	unread.SetVersionstampedValue(fdb.Key("value"), make([]byte, 14))
	_, err = unread.Get(fdb.Key("value")).Get()
	fails(1036, err)
	bad := begin(t.db)
	bad.SetVersionstampedKey(fdb.Key("abc"), nil)
	fails(2000, bad.Commit().Get())
	read := begin(t.db)
	none := read.GetVersionstamp()
	must(read.Commit().Get())
	_, err = none.Get()
	fails(2021, err)
}

func specialKeys(t test) {
	status := map[string]interface{}{}
	must(json.Unmarshal(get(t.db, "\xff\xff/status/json"), &status))
	check(status["cluster"] != nil && status["client"] != nil, "%v", status)
	tr := begin(t.db)
	tr.Get(fdb.Key("r")).MustGet()
	tr.Set(fdb.Key("w"), nil)
	for kind, key := range map[string]string{"read": "r", "write": "w"} {
		prefix := "\xff\xff/transaction/" + kind + "_conflict_range/"
		span := fdb.KeyRange{Begin: fdb.Key(prefix), End: fdb.Key(prefix + "\xff")}
		want := []string{fmt.Sprintf("%x=%x", prefix+key, "1"), fmt.Sprintf("%x=%x", prefix+key+"\x00", "0")}
		same(rows(tr.GetRange(span, fdb.RangeOptions{}).GetSliceOrPanic()), want, kind)
	}
	_, err := tr.Get(fdb.Key("\xff\xff/no/such/module")).Get()
	fails(2113, err)
	_, err = tr.Get(fdb.Key("\xff/conf")).Get()
	fails(2004, err)
	client := map[string]interface{}{}
	document, err := t.db.GetClientStatus()
	must(err)
	must(json.Unmarshal(document, &client))
	check(client["Healthy"] == true, "%v", client)
}

func whereRowsAreAndHowManyBytes(t test) {
	for i := 0; i < 20; i++ {
		transact(t.db, func(tr fdb.Transaction) {
			for j := 0; j < 50; j++ {
				tr.Set(fdb.Key(fmt.Sprintf("e%02d%02d", i, j)), make([]byte, 1000))
			}
		})
	}
	tr := begin(t.db)
	span := fdb.KeyRange{Begin: fdb.Key("e"), End: fdb.Key("f")}
	check(tr.GetEstimatedRangeSizeBytes(span).MustGet() >= 0, "size")
	points := tr.GetRangeSplitPoints(span, 100_000).MustGet()
	check(string(points[0]) == "e" && string(points[len(points)-1]) == "f", "%v", points)
	keys, err := t.db.LocalityGetBoundaryKeys(everything, 0, 0)
	must(err)
	check(len(keys) > 0, "no shard")
	addresses := tr.LocalityGetAddressesForKey(fdb.Key("e")).MustGet()
	check(len(addresses) > 0, "no address")
	small := tr.GetApproximateSize().MustGet()
	tr.Set(fdb.Key("k"), make([]byte, 1000))
	check(tr.GetApproximateSize().MustGet() >= small+1000, "size of a transaction")
}
