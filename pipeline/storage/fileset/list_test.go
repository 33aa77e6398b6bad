package fileset

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// kept is a storage whose listing is in a file that the test can change.
type kept struct {
	*Storage
	file    *os.File
	objects map[string]storage.Object
	want    map[string][]byte // each object, complete
	hollow  map[string][]byte // each object's outline
}

// keep lists directories with many files and with one, with long names and short ones.
func keep(t *testing.T) *kept {
	root := t.TempDir()
	all := map[string]map[string][]byte{}
	add := func(dir, name string) {
		path := dir + "/" + name
		content := []byte(path)
		write(t, root, path, content)
		if all[dir] == nil {
			all[dir] = map[string][]byte{}
		}
		all[dir][path] = content
	}
	for i := range 60 {
		add("many", fmt.Sprintf("%03d", i))
	}
	for i := range 8 {
		add("long", fmt.Sprintf("%0200d", i))
	}
	for i := range 30 {
		add(fmt.Sprintf("single-%02d", i), "a")
	}
	k := &kept{Storage: open(t, root, tar.FileFraming{}), want: map[string][]byte{}, hollow: map[string][]byte{}}
	k.objects = list(t, k.Storage)
	for dir, contents := range all {
		k.want[dir], k.hollow[dir] = archive(contents, tar.FileFraming{})
	}
	require.Len(t, k.objects, len(all))
	require.NotEmpty(t, k.table.sums, "it is kept on a disk")

	file, err := os.Create(filepath.Join(t.TempDir(), "listing"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	_, err = file.Write(k.table.data)
	require.NoError(t, err)
	data, err := unix.Mmap(int(file.Fd()), 0, len(k.table.data), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, unix.Munmap(k.table.data))
	k.file, k.table.data = file, data
	return k
}

// tryAll reads everything in every way, and counts what failed. It checks that everything that did
// not fail is right.
func (k *kept) tryAll(t *testing.T) (failed int) {
	t.Helper()
	check := func(what string, want, got []byte, err error) {
		t.Helper()
		if err != nil {
			require.ErrorIs(t, err, errListing, what)
			failed++
			return
		}
		require.True(t, bytes.Equal(want, got), what)
	}
	for path, o := range k.objects {
		p := make([]byte, o.SizeBytes)
		err := storage.ReadAt(background(), k.Storage, o, p, 0)
		check(path, k.want[path], p, err)
		for off := int64(0); off < o.SizeBytes; off += 1700 {
			part := bytes.Repeat([]byte{0xAA}, int(min(1700, o.SizeBytes-off)))
			err := storage.ReadAt(background(), k.Storage, o, part, off)
			check(fmt.Sprint(path, " at ", off), k.want[path][off:off+int64(len(part))], part, err)
		}
		x, err := k.Outline(o)
		if err == nil {
			clear(p)
			_, err = x.ReadAt(p, 0)
		}
		check(path+", outline", k.hollow[path], p, err)
	}
	for i := range k.table.count {
		path, d, err := k.table.listed(i)
		if err != nil {
			require.ErrorIs(t, err, errListing)
			failed++
			continue
		}
		require.Equal(t, k.objects[path], d.object(path))
	}
	return failed
}

func TestAListingThatIsNotAsItWasWrittenIsAnErrorOfWhoNeedsIt(t *testing.T) {
	k := keep(t)
	require.Zero(t, k.tryAll(t))
	whole := bytes.Clone(k.table.data)
	damages := map[string]func(b []byte){
		"zeros": func(b []byte) { clear(b) },
		"ones": func(b []byte) {
			for i := range b {
				b[i] = 0xFF
			}
		},
		"a flipped bit": func(b []byte) { b[len(b)/2] ^= 4 },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			failed, some := 0, 0
			for at := 0; at < len(whole); at += 256 {
				b := bytes.Clone(whole[at:min(at+256, len(whole))])
				damage(b)
				_, err := k.file.WriteAt(b, int64(at))
				require.NoError(t, err)
				k.forget()
				n := k.tryAll(t)
				if failed += n; n > 0 {
					some++
				}
				_, err = k.file.WriteAt(whole[at:at+len(b)], int64(at))
				require.NoError(t, err)
			}
			require.Greater(t, some, len(whole)/256*9/10, "all but a few bytes are needed by somebody")
			k.forget()
			require.Zero(t, k.tryAll(t))
		})
	}
}

// forget makes all openers forget the last directory.
func (k *kept) forget() {
	for o, _ := k.openers.Get().(*opener); o != nil; o, _ = k.openers.Get().(*opener) {
	}
}

func TestAListingThatCanNotBeReadBackIsAnErrorAndNoCrash(t *testing.T) {
	k := keep(t)
	size := int64(len(k.table.data))
	require.NoError(t, k.file.Truncate(0)) // each page is SIGBUS now, as on a disk that fails
	k.forget()
	n := k.tryAll(t)
	require.GreaterOrEqual(t, n, 3*len(k.objects))
	o := k.objects["many"]
	err := storage.ReadAt(background(), k.Storage, o, make([]byte, 10), 0)
	var named *storage.Error
	require.True(t, errors.As(err, &named))
	require.ErrorContains(t, err, k.indexDir)
	require.ErrorContains(t, err, "--index-dir")
	require.NoError(t, k.file.Truncate(size))
}

// The kernel is asked to drop every other file from memory.
func TestFilesNotInMemoryAreRead(t *testing.T) {
	root := t.TempDir()
	contents := map[string][]byte{}
	for i := range 300 {
		path := fmt.Sprintf("d/%04d", i)
		contents[path] = bytes.Repeat([]byte{byte(i)}, 1+i*37%9000)
		write(t, root, path, contents[path])
	}
	for path := range contents {
		f, err := os.Open(filepath.Join(root, path))
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		if path[len(path)-1]%2 == 0 {
			require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		}
		require.NoError(t, f.Close())
	}
	s := open(t, root, tar.FileFraming{})
	s.most = 2
	o := list(t, s)["d"]
	whole, _ := archive(contents, tar.FileFraming{})
	p := make([]byte, o.SizeBytes)
	require.NoError(t, storage.ReadAt(background(), s, o, p, 0))
	require.True(t, bytes.Equal(whole, p))
	requireRanges(t, s, o, whole)
}

// The file was never looked up, and is missed.
func TestMissedFileIsLeftToWaiters(t *testing.T) {
	root := t.TempDir()
	write(t, root, "d/a", []byte("content"))
	s := open(t, root, bare{})
	o := list(t, s)["d"]
	done := make(chan error, 1)
	r := &storage.Read{Object: o, Buf: make([]byte, 7), Done: func(err error) { done <- err }}
	x := &reading{read: r, table: s.table}
	x.table.hold()
	var err error
	x.segment, err = s.table.find(o)
	require.NoError(t, err)
	require.True(t, s.inflight.Begin(1))
	x.pending.Store(1)
	s.miss(job{reading: x, from: 0, to: 1, missed: true})
	s.end(x) // the looker's part
	require.NoError(t, <-done)
	require.Equal(t, "content", string(r.Buf))
}
