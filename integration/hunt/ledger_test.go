package hunt

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ledger records what was done to which shard and when. It is safe for concurrent use.
type ledger struct {
	start time.Time

	mu    sync.Mutex
	deeds []*deed
}

// deed is something that was done, or is being done.
type deed struct {
	what     string
	shards   []int
	from, to time.Duration // since start; to is forever until it has ended
	// lasts means that the shards are changed for good.
	lasts bool
	// fails means that reads of the shards may fail meanwhile; otherwise they wait.
	fails bool
}

const forever = time.Duration(1<<63 - 1)

// begin notes a deed before it is done.
func (l *ledger) begin(what string, lasts, fails bool, shards ...int) *deed {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &deed{what: what, shards: shards, from: time.Since(l.start), to: forever, lasts: lasts, fails: fails}
	l.deeds = append(l.deeds, d)
	return d
}

// end notes that it has been done.
func (l *ledger) end(d *deed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.to = time.Since(l.start)
}

// excuses reports whether a read that needed these shards, began at began and has just failed, may
// have failed because of what was done.
func (l *ledger) excuses(needs []int, began time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.deeds, func(d *deed) bool {
		return d.fails && (d.lasts || d.to >= began) && slices.ContainsFunc(d.shards, func(shard int) bool { return slices.Contains(needs, shard) })
	})
}

// touched reports whether a shard has changed.
func (l *ledger) touched(shard int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.deeds, func(d *deed) bool { return d.lasts && slices.Contains(d.shards, shard) })
}

// tell lists what has been done to these shards, or to none in particular.
func (l *ledger) tell(shards []int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.start)
	var b strings.Builder
	for _, d := range l.deeds {
		if len(d.shards) > 0 && !slices.ContainsFunc(d.shards, func(shard int) bool { return slices.Contains(shards, shard) }) {
			continue
		}
		fmt.Fprintf(&b, "\n    shards %v: %s, begun %v ago", d.shards, d.what, (now - d.from).Round(time.Microsecond))
		if d.to != forever {
			fmt.Fprintf(&b, ", ended %v ago", (now - d.to).Round(time.Microsecond))
		}
	}
	return b.String()
}

func TestLedgerExcusesOnlyReadersOfTouchedShards(t *testing.T) {
	l := &ledger{start: time.Now()}
	l.end(l.begin("cut", true, true, 3))
	require.True(t, l.excuses([]int{1, 3}, time.Hour), "whenever it began")
	require.False(t, l.excuses([]int{1, 2}, 0))
	require.True(t, l.touched(3))

	fault := l.begin("EIO", false, true, 2)
	require.True(t, l.excuses([]int{2}, time.Hour))
	l.end(fault)
	require.True(t, l.excuses([]int{2}, 0), "it was there while the read was under way")
	require.False(t, l.excuses([]int{2}, time.Since(l.start)), "it was over")
	require.False(t, l.touched(2))

	l.begin("stall", false, false, 4)
	require.False(t, l.excuses([]int{4}, 0))
	require.Contains(t, l.tell([]int{4}), "stall")
	require.NotContains(t, l.tell([]int{4}), "cut")
}
