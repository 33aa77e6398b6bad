package storagetest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// submit submits reads, waits for them, and returns their errors.
func submit(t require.TestingT, s storage.Storage, reads []*storage.Read) []error {
	errs := make([]error, len(reads))
	calls := make([]atomic.Int32, len(reads))
	var all sync.WaitGroup
	all.Add(len(reads))
	for i, r := range reads {
		r.Done = func(err error) {
			errs[i] = err
			if calls[i].Add(1) == 1 {
				all.Done()
			}
		}
	}
	s.Submit(append([]*storage.Read(nil), reads...))
	all.Wait()
	for i := range calls {
		require.EqualValues(t, 1, calls[i].Load(), "Done is called once")
	}
	return errs
}

func testConcurrent(t *testing.T, newStorage New) {
	files := contents()
	s := open(t, newStorage, files)
	objects := list(t, s, everything)
	var all sync.WaitGroup
	var failed atomic.Int64
	for seed := range uint64(8) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, 1))
			for range 20 {
				r := randomRead(random, objects["deep/ünï cøde 数据.bin"], 5000)
				err := storage.ReadAt(t.Context(), s, r.Object, r.Buf, r.OffsetBytes)
				if err != nil || !bytes.Equal(files[r.Object.Path][r.OffsetBytes:][:len(r.Buf)], r.Buf) {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, failed.Load())
}

func testDoneSubmits(t *testing.T, newStorage New) {
	files := contents()
	s := open(t, newStorage, files)
	o := list(t, s, everything)["large.tar"]
	const links = 50
	r := &storage.Read{Object: o, Buf: make([]byte, 100)}
	end := make(chan error)
	r.Done = func(err error) {
		if err == nil && !bytes.Equal(files[o.Path][r.OffsetBytes:][:100], r.Buf) {
			err = errors.New("wrong bytes")
		}
		if err != nil || r.OffsetBytes == links*1000 {
			go func() { end <- err }()
			return
		}
		r.OffsetBytes += 1000
		s.Submit([]*storage.Read{r})
	}
	s.Submit([]*storage.Read{r})
	require.NoError(t, <-end)
}

// testDoneOutsideSubmit holds a lock during Submit that Done takes, for reads that succeed and for
// those that can't.
func testDoneOutsideSubmit(t *testing.T, newStorage New) {
	s := open(t, newStorage, contents())
	o := list(t, s, everything)["train-001.tar"] // 1 byte
	missing := o
	missing.Path = "nothing"
	reads := []*storage.Read{
		{Object: o, Buf: make([]byte, 1)},
		{Object: o, Buf: make([]byte, 2)},
		{Object: o},
		{Object: missing, Buf: make([]byte, 1)},
	}
	var mu sync.Mutex
	var done sync.WaitGroup
	for _, r := range reads {
		r.Done = func(error) {
			mu.Lock()
			defer mu.Unlock()
			done.Done()
		}
	}
	submit := func() {
		done.Add(len(reads))
		mu.Lock()
		s.Submit(reads)
		mu.Unlock()
		done.Wait()
	}
	submit()
	submit() // the object is open now, in storages that keep objects open
	require.NoError(t, s.Close())
	submit()
}

// testUnwanted checks that cancelled reads are not made, each independently, whether the object is
// open or not.
func testUnwanted(t *testing.T, newStorage New) {
	files := contents()
	s := open(t, newStorage, files)
	o := list(t, s, everything)["large.tar"]
	for range 3 {
		var reads []*storage.Read
		for i := range 40 {
			r := &storage.Read{Object: o, OffsetBytes: int64(i) * 5000, Buf: bytes.Repeat([]byte{7}, 5000)}
			if i%2 == 0 {
				r.Wanted = func() bool { return i%4 == 0 }
			}
			reads = append(reads, r)
		}
		for i, err := range submit(t, s, reads) {
			r := reads[i]
			if i%4 != 2 {
				require.NoError(t, err)
				require.True(t, bytes.Equal(files[o.Path][r.OffsetBytes:][:5000], r.Buf))
				continue
			}
			require.Equal(t, storage.ErrUnwanted, err)
			require.True(t, bytes.Equal(bytes.Repeat([]byte{7}, 5000), r.Buf), "nothing was read")
		}
	}
}

func testClose(t *testing.T, newStorage New) {
	files := contents()
	s := open(t, newStorage, files)
	var objects []storage.Object
	for _, o := range list(t, s, everything) {
		if o.SizeBytes > 0 {
			objects = append(objects, o)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var done, failed atomic.Int64
	reads := make([]*storage.Read, 300)
	for i := range reads {
		reads[i] = randomRead(random, objects[i%len(objects)], 10_000)
		reads[i].Done = func(err error) {
			if err != nil {
				failed.Add(1)
			}
			done.Add(1)
		}
	}
	s.Submit(reads)
	require.NoError(t, s.Close())
	require.EqualValues(t, len(reads), done.Load())
	require.Zero(t, failed.Load())
	for _, r := range reads {
		requireBytes(t, files, r)
	}
	require.NoError(t, s.Close(), "closing again does nothing")

	late := &storage.Read{Object: objects[0], Buf: make([]byte, 1)}
	requireError(t, submit(t, s, []*storage.Read{late})[0], late)
}
