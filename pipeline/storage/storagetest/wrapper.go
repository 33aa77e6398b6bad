package storagetest

import (
	"context"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Passing is what a wrapper does with a capability of the storage below it.
type Passing int

const (
	// Lost is the zero value: the wrapper does not have the capability, whatever is below it.
	Lost Passing = iota
	// Passed means that the wrapper has the capability if the storage below it does, and uses it.
	Passed
	// Translated means that the wrapper has the capability if the storage below it does, for objects
	// of its own.
	Translated
	// Own means that the wrapper has the capability itself.
	Own
)

// RunWrapper checks which capabilities a wrapper has over a storage with all of them and over one
// with none. want has what the wrapper does with each capability that it does not lose, by the name
// of the field of storage.Caps. What is passed on has to arrive below.
func RunWrapper(t *testing.T, wrap func(t *testing.T, below storage.Storage) storage.Storage, want map[string]Passing) {
	open := func(t *testing.T, all bool) (*memory, storage.Storage) {
		m := newMemory(all)
		s := wrap(t, m)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return m, s
	}
	fields := reflect.VisibleFields(reflect.TypeFor[storage.Caps]())
	known := map[string]bool{}
	t.Run("HasTheCapabilitiesThatItShould", func(t *testing.T) {
		_, rich := open(t, true)
		_, bare := open(t, false)
		for _, f := range fields {
			known[f.Name] = true
			require.True(t, has(newMemory(true), f.Name), "a new capability: give %s to the suite's storage", f.Name)
			require.Contains(t, passed, f.Name, "a new capability: add a check that %s is passed on", f.Name)
			x := want[f.Name]
			require.Equal(t, x != Lost, has(rich, f.Name), "%s over a storage that has it", f.Name)
			require.Equal(t, x == Own, has(bare, f.Name), "%s over a storage that does not have it", f.Name)
		}
		for name := range want {
			require.True(t, known[name], "%s is a capability", name)
		}
	})
	t.Run("PassesOnWhatItShould", func(t *testing.T) {
		m, s := open(t, true)
		p := passing{t: t, below: m, s: s, caps: s.Caps(), objects: map[string]storage.Object{}}
		for name, x := range want {
			if x == Passed {
				check := passed[name]
				require.NotNil(t, check, "there is a check of %s", name)
				check(&p)
			}
		}
	})
}

// has reports whether a storage has a capability.
func has(s storage.Storage, name string) bool {
	return !reflect.ValueOf(s.Caps()).FieldByName(name).IsNil()
}

// passing is a check that a wrapper passes its capabilities on.
type passing struct {
	t       *testing.T
	below   *memory
	s       storage.Storage
	caps    storage.Caps
	objects map[string]storage.Object // of s, by path below
}

// object returns the wrapper's object for the larger of the files below.
func (p *passing) object() storage.Object {
	if len(p.objects) == 0 {
		for path, o := range list(p.t, p.s, everything) {
			p.objects[path[strings.LastIndexByte(path, '/')+1:]] = o
		}
	}
	o, ok := p.objects["x.bin"]
	require.True(p.t, ok)
	return o
}

// calls checks which calls arrived below.
func (p *passing) calls(want ...string) { require.Equal(p.t, want, p.below.take()) }

// passed has a check for each capability.
var passed = map[string]func(p *passing){
	"StatStable": func(p *passing) {
		o := p.object()
		got, err := p.caps.StatStable(p.t.Context(), o.Path)
		require.NoError(p.t, err)
		require.Equal(p.t, o, got)
		p.calls("stable x.bin")
	},
	"Omitted": func(p *passing) {
		list := p.caps.Omitted()
		require.Len(p.t, list, 1)
		require.True(p.t, strings.HasSuffix(list[0].Path, ".hidden"))
	},
	"Parts": func(p *passing) {
		o := p.object()
		require.Equal(p.t, []string{o.Path}, p.caps.Parts(o.Path))
	},
	"Join": func(p *passing) {
		o, err := p.caps.Join(p.t.Context(), []string{"x"}, []storage.Object{p.object()})
		require.NoError(p.t, err)
		require.Equal(p.t, p.object(), o)
	},
	"Outline": func(p *passing) {
		r, err := p.caps.Outline(p.object())
		require.NoError(p.t, err)
		b, err := io.ReadAll(io.NewSectionReader(r, 0, 100))
		require.NoError(p.t, err)
		require.Equal(p.t, make([]byte, 10), b)
	},
	"Check": func(p *passing) {
		require.NoError(p.t, p.caps.Check(p.t.Context(), p.object()))
		p.calls("check x.bin")
	},
	"Verifier": func(p *passing) {
		o := p.object()
		require.EqualValues(p.t, 10, p.caps.Verifier.AuditBytes(o))
		read := int64(0)
		n, err := p.caps.Verifier.Audit(p.t.Context(), o, func(string) {}, func(n int64) { read += n })
		require.NoError(p.t, err)
		require.EqualValues(p.t, 10, n)
		require.EqualValues(p.t, 10, read)
		p.calls("audit x.bin")
	},
	"Mapper": func(p *passing) {
		m, err := Map(p.caps.Mapper, p.object())
		require.NoError(p.t, err)
		require.Equal(p.t, "0123456789", string(m.Bytes()))
		require.NoError(p.t, m.Close())
	},
	"OpenResident": func(p *passing) {
		r, err := p.caps.OpenResident(p.object())
		require.NoError(p.t, err)
		b := make([]byte, 4)
		require.True(p.t, r.Holds(3, 4))
		require.True(p.t, r.ReadAt(b, 3))
		require.NoError(p.t, r.Unchanged())
		require.NoError(p.t, r.Close())
		require.Equal(p.t, "3456", string(b))
	},
	"OpenSequential": func(p *passing) {
		r, err := p.caps.OpenSequential(p.t.Context(), p.object(), 3)
		require.NoError(p.t, err)
		b, err := io.ReadAll(r)
		require.NoError(p.t, err)
		require.NoError(p.t, r.Close())
		require.Equal(p.t, "3456789", string(b))
	},
	"Uncached": func(p *passing) {
		s, err := p.caps.Uncached()
		require.NoError(p.t, err)
		require.NotNil(p.t, s)
		b := make([]byte, 10)
		require.NoError(p.t, storage.ReadAt(context.Background(), s, p.object(), b, 0))
		require.Equal(p.t, "0123456789", string(b))
		require.NoError(p.t, s.Close())
	},
	"Fill": func(p *passing) {
		done := make(chan error, 1)
		r := &storage.Read{Object: p.object(), OffsetBytes: 2, Buf: make([]byte, 2), Done: func(err error) { done <- err }}
		p.caps.Fill([]*storage.Read{r})
		require.NoError(p.t, <-done)
		require.Equal(p.t, "23", string(r.Buf))
		p.calls("fill x.bin")
	},
	"Hints": func(p *passing) {
		h, o := p.caps.Hints, p.object()
		blocks := []storage.Block{{Object: o, OffsetBytes: 1, SizeBytes: 3, Epoch: 2, DueBytes: 9}, {Object: o, SizeBytes: 1, DueBytes: 12}}
		h.Want(5, blocks)
		h.Passed(5, blocks[:1])
		h.Drop(5)
		p.calls("want 5: x.bin 1+3 epoch 2 due 9", "want 5: x.bin 0+1 epoch 0 due 12", "passed 5: x.bin 1+3", "drop 5")
		require.Equal(p.t, storage.HintUse{Keeps: true, RoomBytes: 2000, Exact: true}, h.Use())
		h.SetShare(30)
		p.calls("share 30")
	},
	"Status": func(p *passing) {
		require.Equal(p.t, "memory", p.caps.Status().Engine)
		require.EqualValues(p.t, 7, p.caps.Status().Reads)
	},
	"AdjustProfile": func(p *passing) {
		require.Zero(p.t, p.caps.AdjustProfile(storage.Profile{GapBytes: 5, Depth: 3}).GapBytes)
	},
	"HeldBytes": func(p *passing) { require.EqualValues(p.t, 1000, p.caps.HeldBytes()) },
}
