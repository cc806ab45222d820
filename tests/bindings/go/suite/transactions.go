package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	_ "unsafe" // go:linkname

	"github.com/apple/foundationdb/bindings/go/src/fdb"
)

func aTransactionSeesItsWritesAndOthersAfterCommit(t test) {
	one := begin(t.db)
	one.Set(fdb.Key("k"), []byte("v"))
	equalBytes(one.Get(fdb.Key("k")).MustGet(), []byte("v"), "own")
	equalBytes(get(t.db, "k"), nil, "others")
	must(one.Commit().Get())
	version, err := one.GetCommittedVersion()
	must(err)
	check(version > 0, "version %d", version)
	_, err = one.Get(fdb.Key("k")).Get()
	fails(2017, err)
	one.Reset()
	equalBytes(one.Get(fdb.Key("k")).MustGet(), []byte("v"), "after commit")
}

// The package has names for FoundationDB's options alone.
//
//go:linkname setOpt github.com/apple/foundationdb/bindings/go/src/fdb.TransactionOptions.setOpt
func setOpt(options fdb.TransactionOptions, code int, param []byte) error

// pinnedWith begins a transaction on a pinned snapshot that has this row: with the engine ssd one has it some seconds after
// its commit.
func pinnedWith(t test, key, value string) fdb.Transaction {
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		pinned := begin(t.db)
		must(setOpt(pinned.Options(), 3000, nil))
		found := pinned.Get(fdb.Key(key)).MustGet()
		if string(found) == value {
			return pinned
		}
		pinned.Reset()
		check(time.Now().Before(until), "after a minute %q is pinned", found)
	}
}

func aPinnedSnapshotIsReadBeyondTheWindow(t test) {
	engine := os.Getenv("PLINTH_ENGINE")
	if engine == "" {
		engine = "memory"
	}
	told := string(get(t.db, "\xff\xff/status/json"))
	check(strings.Contains(told, fmt.Sprintf(`"storage_engine":%q`, engine)), "not on the engine %s", engine)
	set(t.db, "k", "before")
	pinned, other, mover := pinnedWith(t, "k", "before"), begin(t.db), begin(t.db)
	// Ten seconds on, at once.
	version := other.GetReadVersion().MustGet() + 10_000_000
	must(mover.Options().SetSpecialKeySpaceEnableWrites())
	mover.Set(fdb.Key("\xff\xff/management/min_required_commit_version"), []byte(strconv.FormatInt(version, 10)))
	must(mover.Commit().Get())
	set(t.db, "k", "after")
	_, err := other.Get(fdb.Key("k")).Get()
	fails(1007, err)
	equalBytes(pinned.Get(fdb.Key("k")).MustGet(), []byte("before"), "beyond the window")
	pinned.Set(fdb.Key("k"), []byte("mine"))
	fails(2023, pinned.Commit().Get())
	equalBytes(get(t.db, "k"), []byte("after"), "now")
}

func aNameSaysHowADirectoryIsOpened(test) {
	// The words of an error are those of the thread that has it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	around, err := os.MkdirTemp("", "plinth-places-")
	must(err)
	defer os.RemoveAll(around)
	name, nearly := filepath.Join(around, "db"), filepath.Join(around, "fdb.clustr")
	cases := []struct {
		name  string
		code  int
		words string
	}{
		{name + "?create=false&engine=ssd", 1511, name},
		{nearly, 1511, nearly + ": is a cluster file meant?"},
		{name + "?engine=disk", 2006, `"disk"`},
	}
	for _, c := range cases {
		_, err := fdb.OpenDatabase(c.name)
		fails(c.code, err)
		check(strings.Contains(err.Error(), c.words), "%s: %v", c.name, err)
	}
	there, err := os.ReadDir(around)
	must(err)
	check(len(there) == 0, "what was made: %v", there)
	made := fdb.MustOpenDatabase(name + "?engine=ssd&memory=64MiB")
	set(made, "k", "v")
	made.Close()
	_, err = os.Stat(filepath.Join(name, "gen-1", "tables"))
	must(err)
	again := fdb.MustOpenDatabase(name + "?create=false&engine=ssd")
	equalBytes(get(again, "k"), []byte("v"), "opened again")
	again.Close()
}

func conflictsAreRetriedUntilNothingIsLost(t test) {
	together(8, func(int) {
		for i := 0; i < 40; i++ {
			transact(t.db, func(tr fdb.Transaction) {
				old, _ := strconv.Atoi(string(tr.Get(fdb.Key("n")).MustGet()))
				tr.Set(fdb.Key("n"), []byte(strconv.Itoa(old+1)))
			})
		}
	})
	equalBytes(get(t.db, "n"), []byte("320"), "sum")
}

func whatConflicts(t test) {
	key := func(name string) fdb.Key { return fdb.Key(name) }
	span := func(from, to string) fdb.KeyRange { return fdb.KeyRange{Begin: key(from), End: key(to)} }
	write := func(name string) func(fdb.Transaction) {
		return func(tr fdb.Transaction) { tr.Set(key(name), []byte("new")) }
	}
	read := func(from, to string, limit int, reverse bool) func(fdb.Transaction) {
		return func(tr fdb.Transaction) {
			tr.GetRange(span(from, to), fdb.RangeOptions{Limit: limit, Reverse: reverse}).GetSliceOrPanic()
		}
	}
	one := func(name string) func(fdb.Transaction) {
		return func(tr fdb.Transaction) { tr.Get(key(name)).MustGet() }
	}
	cases := []struct {
		first, meanwhile func(fdb.Transaction)
		conflicts        bool
	}{
		{one("a"), write("a"), true},
		{one("a"), write("b"), false},
		{func(tr fdb.Transaction) { tr.Snapshot().Get(key("a")).MustGet() }, write("a"), false},
		{read("a", "d", 0, false), write("b"), true},
		{read("a", "d", 0, false), write("d"), false},
		{read("a", "f", 1, false), write("d"), false},
		{read("a", "f", 1, true), write("b"), false},
		{func(tr fdb.Transaction) { tr.GetKey(fdb.FirstGreaterThan(key("a"))).MustGet() }, write("b"), true},
		{func(tr fdb.Transaction) { tr.GetKey(fdb.FirstGreaterThan(key("a"))).MustGet() }, write("d"), false},
		{func(tr fdb.Transaction) { must(tr.AddReadConflictRange(span("x", "z"))) }, write("y"), true},
		{func(tr fdb.Transaction) { must(tr.AddReadConflictKey(key("x"))) }, write("xx"), false},
		{func(tr fdb.Transaction) { tr.Add(key("a"), []byte{1}) }, write("a"), false},
		{one("a"), func(tr fdb.Transaction) { tr.ClearRange(span("", "b")) }, true},
		{one("q"), func(tr fdb.Transaction) { must(tr.AddWriteConflictKey(key("q"))) }, true},
		{one("q"), func(tr fdb.Transaction) {
			must(tr.Options().SetNextWriteNoWriteConflictRange())
			tr.Set(key("q"), nil)
		}, false},
	}
	set(t.db, "a", "1", "c", "3", "e", "5")
	for at, each := range cases {
		tr := begin(t.db)
		tr.GetReadVersion().MustGet()
		each.first(tr)
		other := begin(t.db)
		each.meanwhile(other)
		must(other.Commit().Get())
		tr.Set(key("out"), nil)
		want := 0
		if each.conflicts {
			want = 1020
		}
		found := code(tr.Commit().Get())
		check(found == want, "case %d: %d, not %d", at, found, want)
	}
}

func aCancelledTransactionStaysSoUntilReset(t test) {
	tr := begin(t.db)
	watch := tr.Watch(fdb.Key("w"))
	tr.Cancel()
	fails(1025, watch.Get())
	_, err := tr.Get(fdb.Key("k")).Get()
	fails(1025, err)
	fails(1025, tr.Commit().Get())
	tr.Reset()
	equalBytes(tr.Get(fdb.Key("k")).MustGet(), nil, "after reset")
}

func timeoutsEndWhatWaits(t test) {
	tr := begin(t.db)
	must(tr.Options().SetTimeout(100))
	tr.SetReadVersion(1 << 60)
	_, err := tr.Get(fdb.Key("k")).Get()
	fails(1031, err)
	fails(1031, tr.Commit().Get())
	fails(1031, tr.OnError(fdb.Error{Code: 1020}).Get())
	tr.Reset()
	equalBytes(tr.Get(fdb.Key("k")).MustGet(), nil, "after reset")
}

func onErrorRetriesWhatMayBeRetried(t test) {
	for _, each := range []int{1007, 1009, 1020, 1021, 1037, 1038, 1051, 1213} {
		tr := begin(t.db)
		must(tr.Options().SetMaxRetryDelay(5))
		tr.Set(fdb.Key("k"), nil)
		must(tr.OnError(fdb.Error{Code: each}).Get())
		equalBytes(tr.Get(fdb.Key("k")).MustGet(), nil, "a retry begins with nothing")
	}
	for _, each := range []int{1025, 1031, 2000, 2017, 4100} {
		fails(each, begin(t.db).OnError(fdb.Error{Code: each}).Get())
	}
	tr := begin(t.db)
	must(tr.Options().SetMaxRetryDelay(5))
	must(tr.Options().SetRetryLimit(1))
	must(tr.OnError(fdb.Error{Code: 1020}).Get())
	fails(1020, tr.OnError(fdb.Error{Code: 1020}).Get())
	check(fdb.Error{Code: 1020}.Error() != fdb.Error{Code: 2017}.Error(), "errors have texts of their own")
}

func watchesTellOfChanges(t test) {
	set(t.db, "w", "0")
	watch := func(key string) fdb.FutureNil {
		future, err := t.db.Transact(func(tr fdb.Transaction) (interface{}, error) {
			return tr.Watch(fdb.Key(key)), nil
		})
		must(err)
		return future.(fdb.FutureNil)
	}
	for _, value := range []string{"1", "2", "3"} {
		changed := watch("w")
		check(!changed.IsReady(), "too early")
		set(t.db, "other", value, "w", value)
		must(changed.Get())
	}
	cancelled := watch("w")
	cancelled.Cancel()
	fails(1101, cancelled.Get())
	many := make([]fdb.FutureNil, 200)
	for i := range many {
		many[i] = watch(fmt.Sprint("many", i))
	}
	together(200, func(i int) {
		if i%2 == 0 {
			set(t.db, fmt.Sprint("many", i), "x")
			set(t.db, fmt.Sprint("many", i+1), "x")
		}
		must(many[i].Get())
	})
}

func versionsOfThePastAndTheFuture(t test) {
	tr := begin(t.db)
	version := tr.GetReadVersion().MustGet()
	set(t.db, "k", "later")
	past := begin(t.db)
	past.SetReadVersion(version)
	equalBytes(past.Get(fdb.Key("k")).MustGet(), nil, "the past")
	wrong := begin(t.db)
	wrong.SetReadVersion(-1)
	_, err := wrong.Get(fdb.Key("k")).Get()
	fails(2011, err)
}

func errorsAreDeferredToTheNextOperation(t test) {
	misuses := map[int]func(fdb.Transaction){
		2004: func(tr fdb.Transaction) { tr.Set(fdb.Key("\xff"), nil) },
		2102: func(tr fdb.Transaction) { tr.Set(fdb.Key(make([]byte, 10_001)), nil) },
		2103: func(tr fdb.Transaction) { tr.Set(fdb.Key("k"), make([]byte, 100_001)) },
		2005: func(tr fdb.Transaction) { tr.ClearRange(fdb.KeyRange{Begin: fdb.Key("b"), End: fdb.Key("a")}) },
		2006: func(tr fdb.Transaction) { must(tr.Options().SetSizeLimit(1)) },
	}
	for want, misuse := range misuses {
		tr := begin(t.db)
		misuse(tr)
		_, err := tr.Get(fdb.Key("a")).Get()
		fails(want, err)
		fails(want, tr.Commit().Get())
	}
}

func optionsAreAccepted(t test) {
	tr := begin(t.db)
	o := tr.Options()
	for _, option := range []func() error{
		o.SetCausalWriteRisky, o.SetCausalReadRisky, o.SetCausalReadDisable, o.SetIncludePortInAddress, o.SetReadAheadDisable,
		o.SetReadServerSideCacheEnable, o.SetReadPriorityHigh, o.SetPriorityBatch, o.SetAccessSystemKeys, o.SetReadSystemKeys,
		o.SetServerRequestTracing, o.SetAutomaticIdempotency, o.SetSnapshotRywDisable, o.SetSnapshotRywEnable,
		o.SetLockAware, o.SetUsedDuringCommitProtectionDisable, o.SetReportConflictingKeys, o.SetSpecialKeySpaceRelaxed,
		o.SetExpensiveClearCostEstimationEnable, o.SetBypassUnreadable, o.SetUseProvisionalProxies,
		func() error { return o.SetTimeout(60_000) }, func() error { return o.SetRetryLimit(10) },
		func() error { return o.SetTag("tag") }, func() error { return o.SetDebugTransactionIdentifier("name") },
		o.SetLogTransaction, func() error { return o.SetSpanParent(make([]byte, 33)) },
	} {
		must(option())
	}
	tr.Set(fdb.Key("k"), nil)
	must(tr.Commit().Get())
	must(t.db.Options().SetLocationCacheSize(100_000))
	must(t.db.Options().SetDatacenterId("dc"))
	fails(2006, t.db.Options().SetMaxWatches(1_000_001))
	small := begin(t.db)
	must(small.Options().SetSizeLimit(100))
	small.Set(fdb.Key("k"), make([]byte, 200))
	fails(2101, small.Commit().Get())
	unlimited := begin(t.db)
	must(unlimited.Options().SetReadYourWritesDisable())
	unlimited.Set(fdb.Key("own"), nil)
	equalBytes(unlimited.Get(fdb.Key("own")).MustGet(), nil, "read-your-writes is disabled")
	fails(1034, unlimited.Watch(fdb.Key("k")).Get())
}

func futuresMayBeAskedByManyAndLeftToTheCollector(t test) {
	set(t.db, "k", "v")
	tr := begin(t.db)
	future := tr.Get(fdb.Key("k"))
	together(50, func(int) { equalBytes(future.MustGet(), []byte("v"), "shared") })
	together(8, func(i int) {
		for n := 0; n < 500; n++ {
			abandoned := begin(t.db)
			abandoned.Get(fdb.Key("k"))
			if n%7 == 0 {
				abandoned.Watch(fdb.Key("k"))
			}
			if n%50 == i {
				abandoned.Cancel()
			}
		}
	})
	deadline := time.Now().Add(20 * time.Second)
	for get(t.db, "k") == nil && time.Now().Before(deadline) {
	}
}
