package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestBadInputIsRefusedInWordsOrSkipped(t *testing.T) {
	whole := tarOf(20, "s")
	badSum := append([]byte(nil), whole...)
	badSum[whole40(whole)+150] ^= 1
	frames := framesOf(20)
	badCRC := append([]byte(nil), frames...)
	at := 0
	for range 10 {
		at += 16 + int(badCRC[at])
	}
	badCRC[at+8] ^= 1
	zipped := gz(linesOf(20, "a"), linesOf(3000, "b"))
	tests := []struct {
		name string
		file string
		data []byte
		form spec.Format
		want []string
		left uint64 // with skip, of this shard
	}{
		{"a truncated tar", "b.tar", whole[:len(whole)-1024-600], spec.Format{Name: "auto"}, []string{"b.tar", "record 19", "offset"}, 19},
		{"a wrong checksum", "b.tar", badSum, spec.Format{Name: "auto"}, []string{"b.tar", "record", "offset", "checksum"}, 9},
		{"another kind of file", "b.tfrecord", []byte("some text, and no frame of a length"), spec.Format{Name: "auto"}, []string{"b.tfrecord", "offset 0", "leave it out with --exclude if it is not a shard"}, 0},
		{"a gz cut in the middle", "b.jsonl.gz", zipped[:len(zipped)-30], spec.Format{Name: "auto"}, []string{"b.jsonl.gz", "offset", "member at byte"}, 20},
		{"a bad length CRC", "b.tfrecord", badCRC, spec.Format{Name: "auto"}, []string{"b.tfrecord", "record 10 at offset"}, 10},
		{"no multiple of the record size", "b.bin", make([]byte, 1005), spec.Format{Name: "fixed", RecordBytes: 10}, []string{"b.bin", "offset 1000"}, 100},
		{"an empty file", "b.tar", nil, spec.Format{Name: "auto"}, []string{"b.tar", "empty"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.write(tt.file, tt.data)
			good := strings.Replace(tt.file, "b.", "a.", 1)
			content := map[string][]byte{".tar": tarOf(4, "g"), ".gz": gz(linesOf(4, "g")), ".tfrecord": framesOf(4), ".bin": make([]byte, 40)}
			w.write(good, content[filepath.Ext(good)])
			set := func(c *Config) { c.Format = tt.form }
			_, err := w.open(set)
			require.Error(t, err)
			for _, part := range append(tt.want, "--on-corrupt skip leaves") {
				require.ErrorContains(t, err, part)
			}
			c := w.mustOpen(set, skipping)
			require.Equal(t, 4+tt.left, c.Records())
			require.Len(t, c.Damaged(), 1)
			require.Equal(t, tt.file, c.Damaged()[0].Path)
			require.Zero(t, w.readsOf(func() {
				require.Equal(t, c.Damaged(), w.mustOpen(set, skipping).Damaged())
			}))
		})
	}
}

// whole40 returns the offset of the first header of sample 10.
func whole40(archive []byte) int { return strings.Index(string(archive), "s0010.") }

// TestUnreadableFileIsNamedAndNeverSkipped makes each read of each kind of shard fail, including
// those that a decoder would take for the end of the data, or for damage.
func TestUnreadableFileIsNamedAndNeverSkipped(t *testing.T) {
	kinds := map[string]func() []byte{
		"b.tar": func() []byte { return tarOf(400, "s") }, "b.tar.gz": func() []byte { return gz(tarOf(400, "s")) },
		"b.json.gz": func() []byte { return gz(linesOf(40, "b"), linesOf(90_000, "c")) }, "b.jsonl": func() []byte { return linesOf(90_000, "b") },
		"b.tfrecord": func() []byte { return framesOf(4000) },
	}
	denied := errors.New("permission denied")
	for name, content := range kinds {
		t.Run(name, func(t *testing.T) {
			for _, policy := range []func(*Config){func(*Config) {}, skipping} {
				w := newWorld(t)
				w.write(strings.Replace(name, "b.", "a.", 1), content())
				w.write(name, content())
				for fails := int64(0); ; fails++ {
					var reads atomic.Int64
					w.onRead = func(o storage.Object) error {
						if o.Path == name && reads.Add(1) > fails {
							return denied
						}
						return nil
					}
					_, err := w.open(policy, func(c *Config) { c.Rebuild = true })
					if reads.Load() <= fails {
						require.NoError(t, err)
						require.Positive(t, fails)
						break
					}
					require.ErrorIs(t, err, denied)
					require.ErrorContains(t, err, name)
					require.NotContains(t, err.Error(), "--on-corrupt")
					require.NotContains(t, err.Error(), "--format")
				}
				w.onRead = nil
				require.Empty(t, w.mustOpen(policy).Damaged())
			}
		})
	}
}

func TestShardChangedDuringIndexingIsAnError(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(50, "a"))
	w.onRead = func(o storage.Object) error {
		later := time.Now().Add(time.Hour)
		return os.Chtimes(filepath.Join(w.data, "a.jsonl"), later, later)
	}
	for _, policy := range []func(*Config){func(*Config) {}, skipping} {
		_, err := w.open(policy)
		require.ErrorIs(t, err, storage.ErrChanged)
		require.ErrorContains(t, err, "a.jsonl")
		require.NoError(t, os.Chtimes(filepath.Join(w.data, "a.jsonl"), time.Unix(1, 0), time.Unix(1, 0)))
	}
}

func TestIntactShardsAreKeptWhenPolicyChanges(t *testing.T) {
	w := newWorld(t)
	w.write("0-bad.tar", tarOf(20, "s")[:9000])
	for i := range 10 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(9, "s"))
	}
	var mu sync.Mutex
	read := map[string]bool{}
	w.onRead = func(o storage.Object) error {
		mu.Lock()
		defer mu.Unlock()
		read[o.Path] = true
		return nil
	}
	w.mustOpen(skipping)
	require.Len(t, read, 11)
	for range 2 { // refused each time, and the index stays
		clear(read)
		_, err := w.open()
		require.ErrorContains(t, err, "0-bad.tar: record")
		require.Equal(t, map[string]bool{"0-bad.tar": true}, read)
		clear(read)
		w.mustOpen(skipping)
		require.Empty(t, read)
	}
}

func TestDatasetWithoutRecordsIsRefused(t *testing.T) {
	w := newWorld(t)
	_, err := w.open()
	require.ErrorContains(t, err, "holds no files")
	w.write("a.jsonl", []byte("\n \n"))
	_, err = w.open()
	require.ErrorContains(t, err, "holds no records")
	_, err = w.open(dataset(filepath.Join(w.data, "nothing")))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "nothing: file does not exist: name a directory, a file or a quoted pattern")
	w.write("b.jsonl.gz", nil)
	_, err = w.open(skipping)
	require.ErrorContains(t, err, "2 files: --on-corrupt skip left out what is damaged, such as b.jsonl.gz: ")
}

// If no record is left, the error lists what is damaged, and its text names the first.
func TestDatasetOfDamagedShardsIsRefusedNamingDamage(t *testing.T) {
	w := newWorld(t)
	w.write("a.tar", bytes.Repeat([]byte("garbage!"), 100))
	w.write("b.tar", tarOf(1, "s")[:700])
	_, err := w.open(skipping)
	require.ErrorContains(t, err, "2 files: --on-corrupt skip left out what is damaged, such as a.tar: record 0 at offset 0: the header's checksum does not match")
	d, ok := errors.AsType[*storage.DamagedError](err)
	require.True(t, ok)
	require.Equal(t, w.data, d.Dataset)
	require.Equal(t, "tar", d.Format)
	require.Equal(t, 2, d.Shards)
	require.EqualValues(t, 2, d.Total)
	require.Len(t, d.Damages, 2)
	require.Equal(t, storage.Damage{Shard: "a.tar", RawOffset: -1, Reason: "the header's checksum does not match"}, d.Damages[0])
	require.Equal(t, "b.tar", d.Damages[1].Shard)
}
