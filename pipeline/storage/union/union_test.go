package union_test

import (
	"context"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local/localtest"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/pipeline/storage/union"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hinted is a storage that records hints.
type hinted struct {
	storage.Storage
	use    storage.HintUse
	wants  map[uint64][]storage.Block
	passed []string
	share  int64
}

func newHinted(s storage.Storage, use storage.HintUse) *hinted {
	return &hinted{Storage: s, use: use, wants: map[uint64][]storage.Block{}}
}

func (h *hinted) Caps() storage.Caps                         { return storage.Caps{Hints: h} }
func (h *hinted) Want(reader uint64, blocks []storage.Block) { h.wants[reader] = blocks }
func (h *hinted) Drop(reader uint64)                         { delete(h.wants, reader) }
func (h *hinted) Use() storage.HintUse                       { return h.use }
func (h *hinted) SetShare(bytes int64)                       { h.share = bytes }

func (h *hinted) Passed(_ uint64, blocks []storage.Block) {
	for _, b := range blocks {
		h.passed = append(h.passed, b.Object.Path)
	}
}

func files(t *testing.T, files ...string) storage.Storage {
	of := map[string][]byte{}
	for i := 0; i < len(files); i += 2 {
		of[files[i]] = []byte(files[i+1])
	}
	return localtest.Open(t, of)
}

func over(t *testing.T, a, b storage.Storage) storage.Storage {
	s := union.Wrap([]union.Source{{Name: "b-1", Storage: b}, {Name: "a", Storage: a}})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func objects(t *testing.T, s storage.Storage) map[string]storage.Object {
	all := map[string]storage.Object{}
	require.NoError(t, s.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error {
		all[o.Path] = o
		return nil
	}))
	return all
}

// What a source can do, a union of it can do for the source's objects. Sources join arrays
// themselves.
func TestAUnionPassesCapabilitiesOn(t *testing.T) {
	storagetest.RunWrapper(t, func(_ *testing.T, below storage.Storage) storage.Storage {
		return union.Wrap([]union.Source{{Name: "a", Storage: below}})
	}, map[string]storagetest.Passing{
		"StatStable":     storagetest.Passed,
		"Omitted":        storagetest.Passed,
		"Parts":          storagetest.Passed,
		"Outline":        storagetest.Passed,
		"Check":          storagetest.Passed,
		"Verifier":       storagetest.Passed,
		"Mapper":         storagetest.Passed,
		"OpenResident":   storagetest.Passed,
		"OpenSequential": storagetest.Passed,
		"Uncached":       storagetest.Passed,
		"Fill":           storagetest.Passed,
		"Hints":          storagetest.Passed,
		"Status":         storagetest.Passed,
		"AdjustProfile":  storagetest.Passed,
		"HeldBytes":      storagetest.Passed,
	})
}

// streaming is a storage with streams.
type streaming struct{ storage.Storage }

func (s streaming) Caps() storage.Caps {
	return storage.Caps{OpenSequential: func(ctx context.Context, o storage.Object, off int64) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(storage.NewReader(ctx, s, o, 0), off, o.SizeBytes-off)), nil
	}}
}

func TestObjectsAreReadFromTheirSources(t *testing.T) {
	s := over(t, streaming{files(t, "x", "a's x", "sub/y", "a's y")}, files(t, "x", "b's x"))
	all := objects(t, s)
	require.Len(t, all, 3)
	for path, want := range map[string]string{"a/x": "a's x", "a/sub/y": "a's y", "b-1/x": "b's x"} {
		b := make([]byte, len(want))
		require.NoError(t, storage.ReadAt(t.Context(), s, all[path], b, 0))
		require.Equal(t, want, string(b))
		o, err := s.Stat(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, all[path].SizeBytes, o.SizeBytes)
		require.Equal(t, path, o.Path)
		r, err := s.Caps().OpenSequential(t.Context(), all[path], 2)
		require.NoError(t, err)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, want[2:], string(rest))
	}
}

// One call has reads of several sources: each is completed exactly once.
func TestReadsOfSeveralSourcesAreSubmittedTogether(t *testing.T) {
	s := over(t, files(t, "x", "0123"), files(t, "x", "abcd"))
	all := objects(t, s)
	done := make(chan error, 100)
	var reads []*storage.Read
	for i := range 9 {
		path := []string{"a/x", "b-1/x", "none/x"}[i%3]
		reads = append(reads, &storage.Read{Object: storage.Object{Path: path, SizeBytes: 4, Version: all[path].Version}, Buf: make([]byte, 4), Done: func(err error) { done <- err }})
	}
	s.Submit(reads)
	failed := 0
	for range reads {
		if err := <-done; err != nil {
			require.ErrorIs(t, err, storage.ErrChanged)
			require.ErrorContains(t, err, "none/x")
			failed++
		}
	}
	require.Equal(t, 3, failed)
	for i, r := range reads {
		if i%3 < 2 {
			require.Equal(t, []string{"0123", "abcd"}[i%3], string(r.Buf))
		}
	}
}

func TestErrorsNameSource(t *testing.T) {
	s := over(t, files(t, "x", "0123"), files(t, "x", "abcd"))
	o := objects(t, s)["b-1/x"]
	o.Version.ModTimeNanos++
	err := storage.ReadAt(t.Context(), s, o, make([]byte, 4), 0)
	require.ErrorIs(t, err, storage.ErrChanged)
	require.ErrorContains(t, err, "b-1/x")
	_, err = s.Stat(t.Context(), "b-1/none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = s.Stat(t.Context(), "c/x")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestUnionTakesHintsIfAnySourceDoes(t *testing.T) {
	below := newHinted(files(t, "x", "b"), storage.HintUse{})
	s := over(t, files(t, "x", "a"), below)
	h := s.Caps().Hints
	require.Equal(t, storage.HintUse{}, h.Use())
	all := objects(t, s)
	h.Want(7, []storage.Block{{Object: all["a/x"], SizeBytes: 1}, {Object: all["b-1/x"], SizeBytes: 1, Epoch: 3, DueBytes: 5}})
	require.Len(t, below.wants[7], 1)
	require.Equal(t, "x", below.wants[7][0].Object.Path)
	require.EqualValues(t, 5, below.wants[7][0].DueBytes)
	require.EqualValues(t, 3, below.wants[7][0].Epoch)
	h.Want(7, []storage.Block{{Object: all["a/x"], SizeBytes: 1}})
	require.Empty(t, below.wants[7], "a list replaces the last one, also with nothing")
	h.Passed(7, []storage.Block{{Object: all["a/x"], SizeBytes: 1}, {Object: all["b-1/x"], SizeBytes: 1}})
	require.Equal(t, []string{"x"}, below.passed)
	h.Drop(7)
	require.NotContains(t, below.wants, uint64(7))

	require.Nil(t, over(t, files(t), files(t)).Caps().Hints, "files alone take no hints")
}

func TestUnionOfCachesHasSpaceOfSmallest(t *testing.T) {
	a := newHinted(files(t), storage.HintUse{Keeps: true, RoomBytes: 100})
	b := newHinted(files(t), storage.HintUse{Keeps: true, RoomBytes: 60})
	h := over(t, a, b).Caps().Hints
	require.Equal(t, storage.HintUse{Keeps: true, RoomBytes: 60}, h.Use())
	h.SetShare(40)
	require.EqualValues(t, 40, a.share)
	require.EqualValues(t, 40, b.share)
	require.Equal(t, storage.HintUse{}, over(t, a, newHinted(files(t), storage.HintUse{})).Caps().Hints.Use(), "one of the two keeps nothing")
	require.Equal(t, storage.HintUse{Exact: true}, over(t, files(t), newHinted(files(t), storage.HintUse{Exact: true})).Caps().Hints.Use())
}

// holding is a storage that holds memory.
type holding struct {
	storage.Storage
	bytes int64
}

func (h holding) Caps() storage.Caps {
	return storage.Caps{HeldBytes: func() int64 { return h.bytes }}
}

func TestUnionHoldsWhatItsSourcesHoldTogether(t *testing.T) {
	require.EqualValues(t, 70, over(t, holding{files(t), 30}, holding{files(t), 40}).Caps().HeldBytes())
	require.EqualValues(t, 30, over(t, holding{files(t), 30}, files(t)).Caps().HeldBytes(), "files hold nothing")
}

// Exact blocks are records, which a source that fetches blocks must not be told of.
func TestSourcesWithOtherBlocksGetNoHints(t *testing.T) {
	exact := newHinted(files(t, "x", "a"), storage.HintUse{Exact: true})
	keeps := newHinted(files(t, "x", "b"), storage.HintUse{Keeps: true, RoomBytes: 100})
	s := over(t, exact, keeps)
	h, all := s.Caps().Hints, objects(t, s)
	require.Equal(t, storage.HintUse{Exact: true}, h.Use())
	blocks := []storage.Block{{Object: all["a/x"], SizeBytes: 1}, {Object: all["b-1/x"], SizeBytes: 1}}
	h.Want(7, blocks)
	require.Len(t, exact.wants[7], 1)
	require.Empty(t, keeps.wants)
	h.Passed(7, blocks)
	require.Equal(t, []string{"x"}, exact.passed)
	require.Empty(t, keeps.passed)
	h.SetShare(40)
	require.Zero(t, keeps.share)
}

// unmapped is a storage that does not map.
type unmapped struct{ storage.Storage }

func (unmapped) Caps() storage.Caps { return storage.Caps{} }

func TestObjectsOfMappingSourcesAreMapped(t *testing.T) {
	s := over(t, files(t, "x", "0123"), unmapped{files(t, "x", "abcd")})
	m := s.Caps().Mapper
	if m == nil {
		t.Skip("files are not mapped here")
	}
	all := objects(t, s)
	mapping := func(o storage.Object) (storage.Mapping, error) {
		type answer struct {
			m   storage.Mapping
			err error
		}
		c := make(chan answer, 1)
		m.Map(o, func(m storage.Mapping, err error) { c <- answer{m, err} })
		a := <-c
		return a.m, a.err
	}
	x, err := mapping(all["a/x"])
	require.NoError(t, err)
	require.Len(t, x.Bytes(), 4)
	require.NoError(t, x.Check())
	require.NoError(t, x.Close())
	_, err = mapping(all["b-1/x"])
	require.ErrorIs(t, err, storage.ErrNotMapped)
	require.True(t, m.Unbroken(m.Breaks()))
	require.False(t, m.Unbroken(m.Breaks()+1))
}
