package stream

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// wholeSweep computes the layout in the plain way, in one pass from the first record to the last.
func wholeSweep(m *memory, v *order.View) *layout {
	l := newLayout(v.Deal().Workers)
	for w := range v.Deal().Workers {
		records := make([]uint64, v.Count(w))
		v.Records(w, 0, records)
		l.samples[w] = []int64{}
		for k, r := range records {
			if k%sampleRecords == 0 {
				l.samples[w] = append(l.samples[w], l.bytes[w])
			}
			if k > 0 && m.hashes[r] != 0 && m.hashes[r] == m.hashes[records[k-1]] {
				l.bytes[w] += m.Growth(r, uint64(k))
			}
			l.bytes[w] += int64(len(m.bytes[r]))
		}
	}
	return l
}

// plain formats a layout so that nil and empty samples compare equal.
func plain(l *layout) string { return fmt.Sprint(l.bytes, l.samples) }

func TestConcurrentSegmentsFormOneLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDataset(t)
		v := drawView(t, len(m.bytes))
		src := newSource(m, m.open)
		defer src.Close()
		src.segment = rapid.Uint64Range(1, 1000).Draw(t, "segment")
		got, err := computeLayout(src, v, nil, nil)
		require.NoError(t, err)
		require.Equal(t, plain(wholeSweep(m, v)), plain(got))
	})
}

// manyRecords returns records with several samples per worker, and equal keys in a row wherever
// segments begin.
func manyRecords(n int) *memory {
	m := &memory{shards: 1, lends: 100}
	for i := range n {
		m.bytes = append(m.bytes, make([]byte, i%3))
		m.hashes = append(m.hashes, 1+uint64(i%7/5))
	}
	return m
}

func viewOf(t require.TestingT, n int, shuffle spec.Shuffle, deal spec.Assignment) *order.View {
	o := spec.Default().Order
	o.Shuffle, o.SizeRecords, o.Lanes = shuffle, 1000, 5
	e, err := order.NewEpoch(o, 0, []uint64{0, uint64(n / 3), uint64(n)}, nil)
	require.NoError(t, err)
	v, err := order.NewView(e, nil, deal)
	require.NoError(t, err)
	return v
}

func TestSamplesShiftAfterChangedFirstRecordOfSegment(t *testing.T) {
	const n = 40_000
	m := manyRecords(n)
	for _, workers := range []uint64{1, 3} {
		for _, shuffle := range []spec.Shuffle{spec.ShuffleNone, spec.ShuffleReservoir} {
			deal := spec.Default().Deal
			deal.Workers = workers
			v := viewOf(t, n, shuffle, deal)
			want := plain(wholeSweep(m, v))
			for _, segment := range []uint64{100, 4096, 5000, 12_288, n - 1, n, n + 1} {
				src := newSource(m, m.open)
				src.segment = segment
				got, err := computeLayout(src, v, nil, nil)
				require.NoError(t, err)
				require.Equal(t, want, plain(got), "segments of %d", segment)
				src.Close()
			}
		}
	}
}

// largeRecords are records without bytes that claim the largest sizes.
type largeRecords struct{ *memory }

func (largeRecords) Sizes(records []uint64, dst []int64) {
	for i := range records {
		dst[i] = math.MaxInt64 / 5
	}
}

func TestStreamTooLargeForFileIsAnErrorWithAnySegments(t *testing.T) {
	m := manyRecords(10)
	for segment := uint64(1); segment <= 11; segment++ {
		src := newSource(largeRecords{m}, m.open)
		src.segment = segment
		_, err := computeLayout(src, viewOf(t, 10, spec.ShuffleNone, spec.Default().Deal), nil, nil)
		require.ErrorContains(t, err, "larger than a file can be: use more workers")
		src.Close()
	}
}

// keeping is a shelf in memory.
type keeping struct {
	mu            sync.Mutex
	content       []byte
	loads, stores int
}

func (k *keeping) shelf() *Shelf { return &Shelf{Load: k.Load, Save: k.Save} }

func (k *keeping) Load(size int) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loads++
	if len(k.content) != size {
		return nil
	}
	return slices.Clone(k.content)
}

func (k *keeping) Save(b []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stores++
	k.content = b
}

func TestStoredLayoutEqualsComputedOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDataset(t)
		v := drawView(t, len(m.bytes))
		shelf := &keeping{}
		sizes := func(r records, want int) (all []int64) {
			src := newSource(r, m.open)
			set := src.Set(v, shelf.shelf())
			for w := range v.Deal().Workers {
				size, err := set.SizeBytes(context.Background(), w, Data)
				require.NoError(t, err)
				all = append(all, size)
			}
			src.Close() // waits for Save
			require.Equal(t, want, shelf.stores)
			return all
		}
		computed := sizes(m, 1)
		require.Equal(t, computed, sizes(largeRecords{m}, 1), "nothing is looked at again")
		shelf.content = shelf.content[1:]
		require.Equal(t, computed, sizes(m, 2), "what is damaged is computed again")
		shelf.content[0]++
		require.Equal(t, computed, sizes(m, 3))
		require.Equal(t, 4, shelf.loads)
	})
}

func TestEncodedLayoutRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDataset(t)
		v := drawView(t, len(m.bytes))
		l := wholeSweep(m, v)
		b := l.encode()
		require.Len(t, b, encodedBytes(v))
		got, err := decodeLayout(b, v)
		require.NoError(t, err)
		require.Equal(t, plain(l), plain(got))
	})
}

func FuzzDecodeLayout(f *testing.F) {
	const n = 10_000
	m := manyRecords(n)
	deal := spec.Default().Deal
	deal.Workers = 2
	v := viewOf(f, n, spec.ShuffleNone, deal)
	good := wholeSweep(m, v).encode()
	f.Add(good)
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 0x81
		f.Add(bad)
	}
	f.Add(good[:8])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLayout(b, v)
		if err != nil {
			require.ErrorIs(t, err, errNotALayout)
			return
		}
		require.Equal(t, b, l.encode())
		for w := range l.bytes {
			last := int64(0)
			for _, s := range l.samples[w] {
				require.GreaterOrEqual(t, s, last)
				last = s
			}
			require.GreaterOrEqual(t, l.bytes[w], last)
		}
	})
}

func TestLayoutBeingComputedStopsWhenSourceCloses(t *testing.T) {
	const n = 40_000
	m := &closing{memory: manyRecords(n)}
	m.source = newSource(m, m.memory.open)
	m.source.segment = 1000
	_, err := computeLayout(m.source, viewOf(t, n, spec.ShuffleReservoir, spec.Default().Deal), nil, nil)
	require.ErrorIs(t, err, ErrClosed)
}

// closing closes its source when the first sizes are requested.
type closing struct {
	*memory
	source *Source
}

func (c *closing) Sizes(records []uint64, dst []int64) {
	c.source.once.Do(func() { close(c.source.stop) })
	c.memory.Sizes(records, dst)
}

func BenchmarkLayout(b *testing.B) {
	const n = 1 << 20
	m := manyRecords(n)
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleFull} {
		for _, segment := range []uint64{n, n / 16} {
			b.Run(fmt.Sprintf("shuffle=%s/segment=%d", shuffle, segment), func(b *testing.B) {
				src := newSource(m, m.open)
				defer src.Close()
				src.segment = segment
				for b.Loop() {
					_, err := computeLayout(src, viewOf(b, n, shuffle, spec.Default().Deal), nil, nil)
					require.NoError(b, err)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
			})
		}
	}
}
