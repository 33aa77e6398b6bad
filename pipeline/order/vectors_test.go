package order

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

type vectorOrder struct {
	Seed    uint64
	Epoch   uint64
	Shuffle spec.Shuffle
	Size    uint64
	Lanes   uint64
	Groups  uint64
	Batch   uint64
}

func (v vectorOrder) order() spec.Order {
	return spec.Order{Seed: v.Seed, Shuffle: v.Shuffle, SizeRecords: v.Size, Lanes: v.Lanes, Groups: v.Groups, Batch: v.Batch}
}

type vectorDone struct {
	Batch    uint64
	Deal     spec.Dealing
	Consumed []uint64
}

type vectorView struct {
	Order       int
	Done        []vectorDone
	ResumeAfter uint64 `json:"resume_after"`
	Workers     uint64
	Worker      uint64
	Batch       uint64
	Tail        spec.Tail
	Records     []uint64
	Remaining   []uint64
}

type vectors struct {
	Key []struct {
		Domain             string
		Seed, Epoch, Index uint64
		Key                string
	}
	Draw []struct {
		Key, Draw string
		I         uint64
		Below1000 uint64 `json:"below_1000"`
	}
	Permute []struct {
		N      int
		Key    string
		Base   uint64
		Result []uint64
	}
	ID []struct {
		Path    string
		Ordinal uint64
		ID      string
	}
	Order []struct {
		vectorOrder
		ChunkRecords []uint64 `json:"chunk_records"`
		G            []uint64
	}
	Resume, Contiguous, Tail []vectorView
	Split                    []struct {
		Path        string
		UnitOrdinal uint64 `json:"unit_ordinal"`
		SplitSeed   uint64 `json:"split_seed"`
		Part        string
		In          bool
	}
	SplitCount []struct {
		Path         string
		UnitOrdinals string `json:"unit_ordinals"`
		SplitSeed    uint64 `json:"split_seed"`
		Part         string
		In           uint64
	} `json:"split_count"`
	Large []struct {
		vectorOrder
		Records uint64
		First   []uint64
		Sum     string `json:"sha256_of_G_as_u64le"`
	}
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("testdata/order-vectors.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}

func startsOf(chunks []uint64) []uint64 {
	starts := []uint64{0}
	for _, n := range chunks {
		starts = append(starts, starts[len(starts)-1]+n)
	}
	return starts
}

func newEpoch(t require.TestingT, o spec.Order, epoch uint64, chunks []uint64) *Epoch {
	e, err := NewEpoch(o, epoch, startsOf(chunks), nil)
	require.NoError(t, err)
	return e
}

func allOf(e *Epoch) []uint64 {
	g := make([]uint64, e.Len())
	g = g[:e.Cursor(0).Next(g)]
	return g
}

func TestDrawVectors(t *testing.T) {
	v := readVectors(t)
	require.NotEmpty(t, v.Key)
	for _, c := range v.Key {
		require.Equal(t, number(t, c.Key), key(c.Domain, c.Seed, c.Epoch, c.Index), "%+v", c)
	}
	require.NotEmpty(t, v.Draw)
	for _, c := range v.Draw {
		require.Equal(t, number(t, c.Draw), draw(number(t, c.Key), c.I), "%+v", c)
		require.Equal(t, c.Below1000, below(number(t, c.Key), c.I, 1000), "%+v", c)
	}
	require.NotEmpty(t, v.Permute)
	for _, c := range v.Permute {
		a := make([]uint64, c.N)
		for i := range a {
			a[i] = uint64(i)
		}
		permute(a, number(t, c.Key), c.Base)
		require.Equal(t, c.Result, a, "%+v", c)
	}
	require.NotEmpty(t, v.ID)
	for _, c := range v.ID {
		id := binary.BigEndian.AppendUint64(nil, ID(c.Path))
		id = binary.BigEndian.AppendUint64(id, c.Ordinal)
		require.Equal(t, c.ID, hex.EncodeToString(id), "%+v", c)
	}
}

func TestGVectors(t *testing.T) {
	v := readVectors(t)
	require.NotEmpty(t, v.Order)
	for i, c := range v.Order {
		e := newEpoch(t, c.order(), c.Epoch, c.ChunkRecords)
		require.Equal(t, c.G, allOf(e), "order %d", i)
		require.Equal(t, c.G, naiveG(c.order(), c.Epoch, c.ChunkRecords), "order %d, the naive implementation", i)
	}
}

func TestLargeGVectors(t *testing.T) {
	v := readVectors(t)
	require.NotEmpty(t, v.Large)
	chunks := make([]uint64, 1000)
	for i := range chunks {
		chunks[i] = uint64(i)*7919%200 + 1
	}
	for i, c := range v.Large {
		e := newEpoch(t, c.order(), c.Epoch, chunks)
		require.Equal(t, c.Records, e.Len())
		g := allOf(e)
		require.Equal(t, c.First, g[:len(c.First)])
		h := sha256.New()
		require.NoError(t, binary.Write(h, binary.LittleEndian, g))
		require.Equal(t, c.Sum, hex.EncodeToString(h.Sum(nil)), "large %d", i)
	}
}

func TestViewVectors(t *testing.T) {
	v := readVectors(t)
	groups := map[string][]vectorView{"resume": v.Resume, "contiguous": v.Contiguous, "tail": v.Tail}
	for name, cases := range groups {
		require.NotEmpty(t, cases)
		for i, c := range cases {
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				o := v.Order[c.Order]
				e := newEpoch(t, o.order(), o.Epoch, o.ChunkRecords)
				deal := spec.Assignment{Workers: max(1, c.Workers), Batch: max(1, c.Batch), Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
				if c.Tail != "" {
					deal.Tail = c.Tail
				}
				if name == "contiguous" {
					deal.Dealing = spec.DealContiguous
				}
				var done []Done
				for _, d := range c.Done {
					done = append(done, Done{Batch: d.Batch, Dealing: d.Deal, Consumed: d.Consumed})
				}
				if c.ResumeAfter > 0 {
					done = append(done, Done{Batch: 1, Consumed: []uint64{c.ResumeAfter}})
				}
				if name == "contiguous" && len(done) > 0 {
					// In this vector worker 2 takes 11 of the 10 records that it was dealt, which
					// is rejected. It stands for all 10.
					_, err := NewView(e, done, deal)
					require.ErrorContains(t, err, "worker 2 of 4 took 11 records, but was dealt 10")
					require.Equal(t, uint64(11), done[0].Consumed[2])
					done[0].Consumed[2] = 10
				}
				view, err := NewView(e, done, deal)
				require.NoError(t, err)
				want := c.Records
				if c.Remaining != nil {
					want = c.Remaining
				}
				got := make([]uint64, len(o.G)+100)
				got = got[:view.Records(c.Worker, 0, got)]
				require.Equal(t, want, got)
			})
		}
	}
}
