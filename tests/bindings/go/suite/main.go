// The Go suite: every test on the database that PLINTH_TARGET names, which each finds empty.
// What is printed has the form of cargo's tests, so that the same program adds both up.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
)

// test is a test's arguments: a database, and a source of chance that is the same for the same seed.
type test struct {
	db     fdb.Database
	chance *rand.Rand
}

var tests = []func(test){
	aTransactionSeesItsWritesAndOthersAfterCommit, aPinnedSnapshotIsReadBeyondTheWindow, aNameSaysHowADirectoryIsOpened,
	conflictsAreRetriedUntilNothingIsLost, whatConflicts,
	aCancelledTransactionStaysSoUntilReset, timeoutsEndWhatWaits, onErrorRetriesWhatMayBeRetried, watchesTellOfChanges,
	versionsOfThePastAndTheFuture, errorsAreDeferredToTheNextOperation, optionsAreAccepted,
	futuresMayBeAskedByManyAndLeftToTheCollector, everyStreamingModeGivesTheSameRows, selectorsFindWhatAListSays,
	atomicOperationsAreTheirDefinitions, additionsAtOnceLoseNothing, versionstamps, specialKeys,
	whereRowsAreAndHowManyBytes, tuplesComeBackAndSort, directories, directoriesAreAllocatedAtOnceWithoutClashes,
	stampedTuples, randomTransactionsFollowAModel, countsSurviveKills,
}

var everything = fdb.KeyRange{Begin: fdb.Key(""), End: fdb.Key("\xff")}

var passing = regexp.MustCompile(`error code (1007|1021) `)

func main() {
	fdb.MustAPIVersion(730)
	target := os.Getenv("PLINTH_TARGET")
	if target == "" {
		target = ":memory:"
	}
	db := fdb.MustOpenDatabase(target)
	killed := os.Getenv("PLINTH_KILL_SECONDS") != ""
	if killed {
		// Outside of loops of retries a commit ends with 1021, unless it can be found out what became of it.
		if err := db.Options().SetTransactionAutomaticIdempotency(); err != nil {
			panic(err)
		}
	}
	seed := time.Now().UnixNano()
	if given, err := strconv.ParseInt(os.Getenv("PLINTH_SEED"), 10, 64); err == nil {
		seed = given
	}
	passed, failed := 0, 0
	for _, body := range tests {
		name := runtime.FuncForPC(reflect.ValueOf(body).Pointer()).Name()
		name = name[strings.LastIndex(name, ".")+1:]
		if !wanted(name) {
			continue
		}
		attempt := func() string {
			transact(db, func(tr fdb.Transaction) { tr.ClearRange(everything) })
			return run(body, test{db, rand.New(rand.NewSource(seed))})
		}
		err := attempt()
		// When somebody else leads versions have gone on: whoever was outside of a loop of retries meets with that, here too.
		for tries := 0; killed && tries < 5 && passing.MatchString(err); tries++ {
			err = attempt()
		}
		if err != "" {
			failed++
			fmt.Printf("%s\ntest %s ... FAILED, PLINTH_SEED=%d\n", err, name, seed)
		} else {
			passed++
			fmt.Printf("test %s ... ok\n", name)
		}
	}
	verdict := "ok"
	if failed > 0 {
		verdict = "FAILED"
	}
	fmt.Printf("test result: %s. %d passed; %d failed; 0 ignored\n", verdict, passed, failed)
	db.Close()
	if err := fdb.StopNetwork(); err != nil {
		fmt.Println(err)
		failed++
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func wanted(name string) bool {
	for _, part := range os.Args[1:] {
		if strings.Contains(name, part) {
			return true
		}
	}
	return len(os.Args) == 1
}

func run(body func(test), t test) (failure string) {
	defer func() {
		if cause := recover(); cause != nil {
			failure = fmt.Sprintf("%v\n%s", cause, debug.Stack())
		}
	}()
	body(t)
	return ""
}

// check panics with the words unless the condition holds.
func check(holds bool, words string, values ...interface{}) {
	if !holds {
		panic(fmt.Sprintf(words, values...))
	}
}

// must panics with an error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// code is FoundationDB's number for an error: 0 if there is none, -1 if it is no error of FoundationDB's.
func code(err error) int {
	var told fdb.Error
	if err == nil {
		return 0
	}
	if errors.As(err, &told) {
		return told.Code
	}
	return -1
}

// fails checks that an error has one of FoundationDB's numbers.
func fails(want int, err error) {
	check(code(err) == want, "error %v, expected %d", err, want)
}

func begin(db fdb.Database) fdb.Transaction {
	tr, err := db.CreateTransaction()
	must(err)
	return tr
}

// transact runs a function in a transaction until it commits.
func transact(db fdb.Database, f func(fdb.Transaction)) {
	_, err := db.Transact(func(tr fdb.Transaction) (interface{}, error) {
		must(tr.Options().SetMaxRetryDelay(20))
		f(tr)
		return nil, nil
	})
	must(err)
}

func get(db fdb.Database, key string) []byte {
	value, err := db.ReadTransact(func(tr fdb.ReadTransaction) (interface{}, error) {
		return tr.Get(fdb.Key(key)).Get()
	})
	must(err)
	return value.([]byte)
}

func set(db fdb.Database, rows ...string) {
	transact(db, func(tr fdb.Transaction) {
		for at := 0; at < len(rows); at += 2 {
			tr.Set(fdb.Key(rows[at]), []byte(rows[at+1]))
		}
	})
}

// together runs a function so many times at once, and passes on a panic of any.
func together(count int, f func(i int)) {
	var wait sync.WaitGroup
	failures := make([]string, count)
	for i := 0; i < count; i++ {
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			failures[i] = run(func(test) { f(i) }, test{})
		}(i)
	}
	wait.Wait()
	for _, failure := range failures {
		check(failure == "", "%s", failure)
	}
}

// text makes a random key of so many of these letters.
func (t test) text(low, high int, letters string) string {
	made := make([]byte, low+t.chance.Intn(high-low+1))
	for at := range made {
		made[at] = letters[t.chance.Intn(len(letters))]
	}
	return string(made)
}

// rows are rows as text, for comparing.
func rows(found []fdb.KeyValue) []string {
	shown := make([]string, 0, len(found))
	for _, row := range found {
		shown = append(shown, fmt.Sprintf("%x=%x", []byte(row.Key), row.Value))
	}
	return shown
}

// same checks that two lists are equal, and tells where they differ.
func same(found, want []string, words string, values ...interface{}) {
	at := 0
	for at < len(found) && at < len(want) && found[at] == want[at] {
		at++
	}
	check(at == len(found) && at == len(want), "%s: %d and not %d, differing at %d: %q, expected %q",
		fmt.Sprintf(words, values...), len(found), len(want), at, found[at:min(at+3, len(found))], want[at:min(at+3, len(want))])
}

func equalBytes(found, want []byte, words string, values ...interface{}) {
	check((found == nil) == (want == nil) && bytes.Equal(found, want),
		"%s: found %x, expected %x", fmt.Sprintf(words, values...), found, want)
}
