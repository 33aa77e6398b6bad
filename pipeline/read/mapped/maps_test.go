package mapped

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestPieceOfMappedShardIsMappedAtOnce(t *testing.T) {
	s := new(files)
	m, o := newMaps(t, s, nil)
	first := o.ask(11)
	require.Len(t, first.Bytes, int(block))
	require.EqualValues(t, 1, first.Bytes[0])
	o.answers = nil
	var w Work
	require.True(t, m.Request(&w, request(13)))
	require.Nil(t, o.tables[13], "not before it is done")
	m.Do(&w)
	require.EqualValues(t, 3, o.tables[13].Bytes[block-1], "by who does it")
	require.Equal(t, Work{shards: w.shards[:0], pieces: w.pieces[:0]}, w)
	require.Len(t, s.mappings, 1)
	require.Equal(t, Stats{Bytes: 2 * block, TableBytes: 200, Leases: s.LeaseStats()}, m.Stats())
}

func TestUnmappablePieceIsRejectedAtOnce(t *testing.T) {
	m, o := newMaps(t, new(files), func(c *Config) { c.LimitBytes, c.LeastBytes = 2*block, 4096 })
	no := func(why string, change func(q *Request)) {
		q := request(11)
		change(&q)
		var w Work
		require.False(t, m.Request(&w, q), why)
		require.Equal(t, Work{}, w)
	}
	no("it is small", func(q *Request) { q.SizeBytes = 4095 })
	no("it is larger than all that may be mapped", func(q *Request) { q.OffsetBytes, q.SizeBytes = 100, 2*block })
	no("its table is larger than all that there may be", func(q *Request) { q.TableBytes = 1<<20 + 1 })
	require.NotNil(t, o.ask(11))
	m.Stop()
	no("nothing is mapped any more", func(*Request) {})

	none := New(Config{Object: object, LimitBytes: 1 << 30, TableLimitBytes: 1 << 20}, o)
	require.False(t, none.Request(new(Work), request(11)), "there is no mapper")
	require.Zero(t, none.Evictions())
	require.Zero(t, none.Stats())
	require.NoError(t, none.Close())
}

func TestSlowOpenIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &files{hangs: make(chan struct{})}
		m, o := newMaps(t, s, func(c *Config) { c.Patience = Patience })
		var w Work
		for piece := 10; piece < 13; piece++ {
			require.True(t, m.Request(&w, request(piece)))
		}
		m.Do(&w)
		time.Sleep(Patience - 1)
		synctest.Wait()
		unlock := o.lock()
		require.Empty(t, o.refused)
		unlock()
		time.Sleep(1 * time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []int{10, 11, 12}, o.refused, "all together")
		require.False(t, m.Request(&w, request(13)), "it is still being opened")
		close(s.hangs)
		synctest.Wait()
		o.answers = make(chan int, 1)
		require.NotNil(t, o.ask(10), "it is mapped now")
		require.Len(t, s.mappings, 1)
	})
}

func TestCancelledRequestsAreNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &files{hangs: make(chan struct{})}
		m, o := newMaps(t, s, nil)
		var w Work
		require.True(t, m.Request(&w, request(10)))
		require.True(t, m.Request(&w, request(11)))
		require.True(t, m.Cancel(1, 10), "before it is done")
		m.Do(&w)
		require.True(t, m.Request(&w, request(12)))
		require.True(t, m.Cancel(1, 12), "while its shard is opened")
		require.False(t, m.Cancel(1, 12), "once")
		require.False(t, m.Cancel(2, 12))
		close(s.hangs)
		synctest.Wait()
		require.Len(t, o.tables, 1)
		require.NotNil(t, o.tables[11])
		require.Empty(t, o.refused)
		require.False(t, m.Cancel(1, 11), "it was answered")
	})
}

func TestStopWaitsForAllAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &files{hangs: make(chan struct{})}
		m, o := newMaps(t, s, func(c *Config) { c.Patience = Patience })
		var w Work
		require.True(t, m.Request(&w, request(10)))
		m.Do(&w)
		stopped := false
		go func() {
			m.Stop()
			stopped = true
		}()
		time.Sleep(2 * Patience)
		synctest.Wait()
		require.False(t, stopped, "the opening may still call")
		require.Equal(t, []int{10}, o.refused)
		close(s.hangs)
		synctest.Wait()
		require.True(t, stopped)
	})
}

func TestUnopenableShardIsReadAndRetriedUnlessPermanent(t *testing.T) {
	for err, again := range map[error]int{storage.ErrNotMapped: 0, storage.ErrChanged: fewSkips} {
		s := &files{fails: err}
		m, o := newMaps(t, s, nil)
		require.Nil(t, o.ask(10))
		require.Equal(t, []int{10}, o.refused)
		s.fails = nil
		var w Work
		for range again {
			require.False(t, m.Request(&w, request(10)), "not at once")
		}
		if again == 0 {
			for range 3 * fewSkips {
				require.Nil(t, o.ask(10))
			}
		} else {
			require.NotNil(t, o.ask(10))
		}
	}
}

func TestColdPageCacheReducesMappingAttempts(t *testing.T) {
	s := new(files)
	s.cold.Store(true)
	m, o := newMaps(t, s, nil)
	tried := 0
	for range 1000 {
		var w Work
		if m.Request(&w, request(10)) {
			m.Do(&w)
			<-o.answers
			tried++
		}
	}
	require.InDelta(t, 7+1000/maxSkips, tried, 8)
	require.Len(t, o.refused, tried)
	s.cold.Store(false)
	for range maxSkips {
		o.ask(10)
	}
	require.NotNil(t, o.tables[10], "it has become hot")
}

// Many goroutines ask, read, and make each other's pieces be unmapped. One that finds a table has
// the right bytes, or can't pin.
func TestReadersNeverTouchUnmappedMemory(t *testing.T) {
	s := &files{most: 3}
	m, o := newMaps(t, s, func(c *Config) { c.LimitBytes, c.TableLimitBytes = 5*block, 450 })
	o.answers = nil
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			var l Lent
			for range 800 {
				piece := 10*(1+rng.IntN(4)) + rng.IntN(4)
				o.mu.Lock()
				r := o.tables[piece]
				var w Work
				if r == nil {
					m.Request(&w, request(piece)) // the owner's lock is held
				}
				o.mu.Unlock()
				m.Do(&w)
				if r != nil && r.PinResident(m.Evictions()) {
					l.Add(r, 0)
					if r.Bytes[rng.IntN(len(r.Bytes))] != byte(piece%10) {
						t.Errorf("piece %d shows %d", piece, r.Bytes[0])
					}
					r.Live.Add(-int64(rng.IntN(2 * len(r.Bytes))))
				}
				if rng.IntN(3) == 0 {
					if l.Check() != nil {
						t.Error("no file has changed")
					}
					l.Release()
				}
				if rng.IntN(100) == 0 {
					s.evictions.Add(1)
				}
			}
			l.Release()
		})
	}
	wg.Wait()
	m.Stop()
	require.NotEmpty(t, o.forgotten, "some had to go")
	require.LessOrEqual(t, m.Stats().Bytes, 5*block)
}
