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

// planning is a storage that records plans; keeping is also a Keeper.
type planning struct {
	storage.Storage
	planned map[uint64][]storage.Want
	done    []string
}

func (p *planning) Caps() storage.Caps { return storage.Caps{Planner: p} }

func (p *planning) Plan(reader uint64, wants []storage.Want) { p.planned[reader] = wants }
func (p *planning) Forget(reader uint64)                     { delete(p.planned, reader) }
func (p *planning) Done(_ uint64, o storage.Object, _, _ int64) {
	p.done = append(p.done, o.Path)
}

type keeping struct {
	planning
	room, share int64
}

func (k *keeping) Caps() storage.Caps { return storage.Caps{Planner: k, Keeper: k} }

func (k *keeping) RoomBytes() int64     { return k.room }
func (k *keeping) SetShare(bytes int64) { k.share = bytes }

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

// What a source can do, a union of it can do for the source's objects. Sources join arrays themselves.
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
		"Planner":        storagetest.Passed,
		"Keeper":         storagetest.Passed,
		"Expecter":       storagetest.Passed,
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

func TestUnionPlansIfAnySourcePlans(t *testing.T) {
	plain := files(t, "x", "a")
	planner := &planning{Storage: files(t, "x", "b"), planned: map[uint64][]storage.Want{}}
	s := over(t, plain, planner)
	require.Nil(t, s.Caps().Keeper)
	p := s.Caps().Planner
	all := objects(t, s)
	p.Plan(7, []storage.Want{{Object: all["a/x"], SizeBytes: 1}, {Object: all["b-1/x"], SizeBytes: 1, DueBytes: 5}})
	require.Len(t, planner.planned[7], 1)
	require.Equal(t, "x", planner.planned[7][0].Object.Path)
	require.EqualValues(t, 5, planner.planned[7][0].DueBytes)
	p.Plan(7, []storage.Want{{Object: all["a/x"], SizeBytes: 1}})
	require.Empty(t, planner.planned[7], "a plan replaces the last one, also with nothing")
	p.Done(7, all["a/x"], 0, 1)
	p.Done(7, all["b-1/x"], 0, 1)
	require.Equal(t, []string{"x"}, planner.done)
	p.Forget(7)
	require.NotContains(t, planner.planned, uint64(7))

	require.Nil(t, over(t, files(t), files(t)).Caps().Planner, "files alone want no plan")
}

func TestUnionOfCachesHasSpaceOfSmallest(t *testing.T) {
	a := &keeping{planning: planning{Storage: files(t)}, room: 100}
	b := &keeping{planning: planning{Storage: files(t)}, room: 60}
	k := over(t, a, b).Caps().Keeper
	require.EqualValues(t, 60, k.RoomBytes())
	k.SetShare(40)
	require.EqualValues(t, 40, a.share)
	require.EqualValues(t, 40, b.share)
	require.Nil(t, over(t, a, &planning{Storage: files(t)}).Caps().Keeper, "one of the two plans and keeps nothing")
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
