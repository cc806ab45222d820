package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
)

// countsSurviveKills has clients count in loops of retries, with a row for each count, while one server of a cluster after the other may be
// killed (PLINTH_KILL_SECONDS): what was acknowledged is there, and nothing took effect twice.
func countsSurviveKills(t test) {
	const clients = 4
	lasts := 200 * time.Millisecond
	if os.Getenv("PLINTH_KILL_SECONDS") != "" {
		lasts = 8 * time.Second
	}
	end := time.Now().Add(lasts)
	count := fdb.Key("count")
	var all sync.WaitGroup
	var acknowledged [clients]int
	var failures [clients]error
	for client := range acknowledged {
		all.Add(1)
		go func(client int) {
			defer all.Done()
			for time.Now().Before(end) {
				row := fdb.Key(fmt.Sprintf("row/%d/%d", client, acknowledged[client]))
				_, failures[client] = t.db.Transact(func(tr fdb.Transaction) (interface{}, error) {
					// An attempt of unknown fate may have counted it.
					if tr.Get(row).MustGet() != nil {
						return nil, nil
					}
					value := make([]byte, 8)
					copy(value, tr.Get(count).MustGet())
					binary.LittleEndian.PutUint64(value, binary.LittleEndian.Uint64(value)+1)
					tr.Set(row, []byte{})
					tr.Set(count, value)
					return nil, nil
				})
				if failures[client] != nil {
					return
				}
				acknowledged[client]++
			}
		}(client)
	}
	all.Wait()
	sum := 0
	for client, counts := range acknowledged {
		must(failures[client])
		sum += counts
	}
	found, err := t.db.ReadTransact(func(tr fdb.ReadTransaction) (interface{}, error) {
		rows := tr.GetRange(fdb.KeyRange{Begin: fdb.Key("row/"), End: fdb.Key("row0")}, fdb.RangeOptions{}).GetSliceOrPanic()
		return [2]int{len(rows), int(binary.LittleEndian.Uint64(tr.Get(count).MustGet()))}, nil
	})
	must(err)
	check(found == [2]int{sum, sum} && sum > 0, "rows and count %v, acknowledged %d", found, sum)
}
