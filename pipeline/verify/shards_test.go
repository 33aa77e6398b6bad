package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

func TestIntactShardsHaveNoFindings(t *testing.T) {
	for _, format := range []string{"tar", "jsonl", "tfrecord", "fixed", "npy"} {
		for _, codec := range []string{"", "gz", "zst"} {
			t.Run(format+codec, func(t *testing.T) {
				size := 5000
				d := makeDataset(t, format, codec, 3, 40, size)
				r := d.verify(t)
				require.Empty(t, r.Findings)
				require.Zero(t, r.Total)
				require.Equal(t, d.catalog.Records(), r.Records)
				require.Equal(t, 3, r.Shards)
				var files int64
				for _, f := range d.files {
					s, err := os.Stat(f)
					require.NoError(t, err)
					files += s.Size()
				}
				require.Equal(t, files, r.Bytes, "every byte is read once")
				require.GreaterOrEqual(t, r.DecodedBytes, d.catalog.StreamBytes())
			})
		}
	}
}

// TestEveryFlippedByteIsFoundWhereThereAreChecksums accepts a flipped bit if the shard still
// decodes to the same bytes: a zstd frame can encode the same in two ways.
func TestEveryFlippedByteIsFoundWhereThereAreChecksums(t *testing.T) {
	for _, c := range []struct {
		format, codec string
		// unchecked reports bytes that no checksum covers.
		unchecked func(shard []byte, at int) bool
	}{
		{"tfrecord", "", func([]byte, int) bool { return false }},
		{"jsonl", "zst", func([]byte, int) bool { return false }},
		// RFC 1952: flags without effect, time, extra flags, system.
		{"jsonl", "gz", func(_ []byte, at int) bool { return at >= 3 && at < 10 }},
		// In a tar the headers have checksums; the contents of members have none, nor has the byte
		// after a checksum.
		{"tar", "", func(b []byte, at int) bool {
			if at%512 == 155 {
				return true
			}
			block := b[at-at%512:]
			return !bytes.Equal(block[257:262], []byte("ustar")) && !bytes.Equal(block[:257], make([]byte, 257))
		}},
	} {
		t.Run(c.format+c.codec, func(t *testing.T) {
			size := 100
			if c.format == "tar" {
				size = 4096
			}
			d := makeDataset(t, c.format, c.codec, 1, 4, size)
			whole, err := os.ReadFile(d.files[0])
			require.NoError(t, err)
			decoded, unseen := d.decode(t), 0
			for at := range whole {
				if testing.Short() && at%3 > 0 {
					continue // tried without -short
				}
				if c.unchecked(whole, at) || c.format == "tar" && at >= len(whole)-1024 {
					continue
				}
				change(t, d.files[0], func(b []byte) { b[at] ^= 1 })
				if r := d.verify(t); r.Total > 0 {
					require.Equal(t, filepath.Base(d.files[0]), r.Findings[0].Shard)
				} else {
					require.Equal(t, "zst", c.codec, "byte %d", at)
					require.Equal(t, decoded, d.decode(t), "byte %d", at)
					unseen++
				}
				change(t, d.files[0], func(b []byte) { copy(b, whole) })
			}
			require.Zero(t, d.verify(t).Total)
			require.Less(t, unseen, 5)
		})
	}
}

func TestFindingNamesRecordAndOffset(t *testing.T) {
	d := makeDataset(t, "tfrecord", "", 2, 30, 1000)
	places := make([]catalog.Extent, 2)
	d.catalog.Extents([]uint64{30 + 7, 30 + 20}, places)
	change(t, d.files[1], func(b []byte) {
		b[places[0].OffsetBytes+100] ^= 1
		b[places[1].OffsetBytes+100] ^= 1
	})
	r := d.verify(t)
	require.Equal(t, uint64(2), r.Total)
	for i, record := range []int64{7, 20} {
		require.Equal(t, Finding{
			Shard: "s1.tfrecord", Record: record, OffsetBytes: places[i].OffsetBytes, RawOffset: -1,
			Reason: "the data's crc32c does not match",
		}, r.Findings[i])
	}
}

func TestParseableDifferenceFromIndexIsFound(t *testing.T) {
	d := makeDataset(t, "jsonl", "", 1, 30, 1000)
	whole := must(os.ReadFile(d.files[0]))
	end := bytes.IndexByte(whole, '\n') + 1
	end += bytes.IndexByte(whole[end:], '\n') // in the second line: a first line that is not JSON is rejected
	change(t, d.files[0], func(b []byte) { b[end], b[end+5] = ' ', '\n' })
	r := d.verify(t)
	require.Equal(t, uint64(1), r.Total)
	require.Equal(t, int64(1), r.Findings[0].Record)
	require.Contains(t, r.Findings[0].Reason, "according to the index: the contents changed although size and time did not; lsiofs index --rebuild")

	change(t, d.files[0], func(b []byte) { b[end], b[end+5] = ' ', ' ' })
	r = d.verify(t)
	require.Equal(t, uint64(1), r.Total)

	// The last record absorbs the one before it: the others are unchanged.
	d = makeDataset(t, "jsonl", "", 1, 3, 1000)
	b := must(os.ReadFile(d.files[0]))
	last := bytes.LastIndexByte(b[:len(b)-1], '\n')
	change(t, d.files[0], func(b []byte) { copy(b[last:], bytes.Repeat([]byte{' '}, len(b)-last-1)) })
	r = d.verify(t)
	require.Equal(t, uint64(1), r.Total)
	require.Equal(t, int64(1), r.Findings[0].Record)
}

func TestKindDifferingFromIndexIsFound(t *testing.T) {
	d := makeDataset(t, "npy", "", 2, 30, 1000)
	change(t, d.files[1], func(b []byte) { copy(b[bytes.Index(b, []byte("|u1")):], "|i1") })
	r := d.verify(t)
	require.Equal(t, uint64(1), r.Total)
	require.Contains(t, r.Findings[0].Reason, "|i1")
}

func TestDamageOmittedByIndexIsListed(t *testing.T) {
	d := makeDataset(t, "tfrecord", "", 2, 30, 1000)
	b := must(os.ReadFile(d.files[0]))
	require.NoError(t, os.WriteFile(d.files[0], b[:len(b)/2], 0o644))
	again := dataset{dir: d.dir, files: d.files}
	again.open(t, "tfrecord", 0)
	require.Len(t, again.catalog.Damaged(), 1)
	r := again.verify(t)
	require.Equal(t, uint64(1), r.Total)
	require.Equal(t, again.catalog.Damaged()[0].Errors[0].OffsetBytes, r.Findings[0].OffsetBytes)
	require.Equal(t, again.catalog.Damaged()[0].Errors[0].Record, r.Findings[0].Record)
}

func TestDamagedGamesAreListedByNameAndOthersAreRead(t *testing.T) {
	d := makeDataset(t, "lc0", "tar", 2, 3*synthetic.GameFrames, synthetic.FrameBytes)
	require.Zero(t, d.verify(t).Total)
	b := must(os.ReadFile(d.files[0]))
	b[d.catalog.Part(0, 0).EndRawBytes-600] ^= 1 // in the first game, or after it
	b[d.catalog.Part(0, 0).EndRawBytes+2000] ^= 1
	require.NoError(t, os.WriteFile(d.files[0], b, 0o644))
	again := dataset{dir: d.dir, files: d.files}
	again.open(t, "lc0", 0)
	r := again.verify(t)
	require.Equal(t, again.catalog.Damaged()[0].Count(), r.Total)
	require.NotZero(t, r.Total)
	require.Contains(t, r.Findings[len(r.Findings)-1].Reason, "000000001.gz: the gzip member")
	require.Equal(t, again.catalog.Records(), r.Records)
}

func TestChangedOrMissingShardIsNotDamageAndOthersAreRead(t *testing.T) {
	d := makeDataset(t, "jsonl", "zst", 4, 30, 1000)
	require.NoError(t, os.Remove(d.files[0]))
	require.NoError(t, os.WriteFile(d.files[2], []byte("{}\n"), 0o644))
	// As in a separate process: no file is open yet.
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	files, err := local.Open(d.dir, engine)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, files.Close())
		require.NoError(t, engine.Close())
	})
	r, err := Shards(context.Background(), Config{Catalog: d.catalog, Storage: files, Profile: small})
	require.NoError(t, err)
	require.Zero(t, r.Total)
	require.Len(t, r.Unread, 2)
	for i, shard := range []string{"s0.jsonl.zst", "s2.jsonl.zst"} {
		require.Equal(t, shard, r.Unread[i].Shard)
		require.Contains(t, r.Unread[i].Reason, "changed since it was indexed: run verify again")
		require.NotContains(t, r.Unread[i].Reason, "mount")
	}
	require.Equal(t, uint64(60), r.Records)
}

// TestNthFailedReadIsNotDamage includes records that are longer than reads, so that some reads
// return only bytes that the scan does not need.
func TestNthFailedReadIsNotDamage(t *testing.T) {
	for _, c := range []struct {
		format, codec        string
		records, recordBytes int
	}{{"jsonl", "", 60, 1000}, {"jsonl", "gz", 60, 1000}, {"tar", "", 6, 40_000}, {"npy", "", 6, 40_000}} {
		d := makeDataset(t, c.format, c.codec, 3, c.records, c.recordBytes)
		d.verify(t)
		for n := int64(0); ; n++ {
			var reads atomic.Int64
			d.storage.Before = func(*storage.Read) error {
				if reads.Add(1)-1 == n {
					return errors.New("the disk is on fire")
				}
				return nil
			}
			r := d.verify(t)
			if reads.Load() <= n {
				require.Empty(t, r.Unread)
				break
			}
			require.Zero(t, r.Total, "%s%s: read %d of %d", c.format, c.codec, n, reads.Load())
			require.Len(t, r.Unread, 1)
			require.Equal(t, "the disk is on fire", r.Unread[0].Reason)
		}
	}
}

func TestVerifyStopsIfManyShardsAreUnreadable(t *testing.T) {
	d := makeDataset(t, "jsonl", "", 10*maxUnread, 3, 100)
	d.storage.Before = func(*storage.Read) error { return errors.New("nothing answers") }
	r := d.verify(t)
	require.Zero(t, r.Total)
	require.GreaterOrEqual(t, len(r.Unread), maxUnread)
	require.Less(t, len(r.Unread), 10*maxUnread)
}

func TestFindingsOfShardAndDatasetAreBounded(t *testing.T) {
	d := makeDataset(t, "tfrecord", "", 12, 150, 100)
	for _, f := range d.files {
		change(t, f, func(b []byte) {
			for at := 0; at < len(b); {
				n := int(b[at]) | int(b[at+1])<<8
				b[at+12] ^= 1
				at += n + 16
			}
		})
	}
	r := d.verify(t)
	require.Equal(t, uint64(12*150), r.Total)
	require.Len(t, r.Findings, MaxFindings)
	require.Equal(t, "s0.tfrecord", r.Findings[maxShardFindings-1].Shard)
	require.Equal(t, "s1.tfrecord", r.Findings[maxShardFindings].Shard)
}

func TestCancellingStopsVerifyOnUnresponsiveStorage(t *testing.T) {
	d := makeDataset(t, "jsonl", "", 3, 60, 1000)
	d.storage.Hold()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := Shards(ctx, Config{Catalog: d.catalog, Storage: d.storage, Profile: small})
		ended <- err
	}()
	d.storage.WaitHeld(1)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	d.storage.Release()
}

func TestProgressReachesEnd(t *testing.T) {
	d := makeDataset(t, "jsonl", "gz", 3, 60, 1000)
	var last catalog.Progress
	r, err := Shards(context.Background(), Config{Catalog: d.catalog, Storage: d.storage, Profile: small, Progress: func(p catalog.Progress) {
		require.LessOrEqual(t, p.Bytes, p.BytesTotal)
		last = p
	}})
	require.NoError(t, err)
	require.True(t, last.Done)
	require.Equal(t, last.BytesTotal, last.Bytes)
	require.Equal(t, r.Bytes, last.Bytes)
	require.Equal(t, 3, last.Shards)
	require.Equal(t, uint64(180), last.Records)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return v
}

// However large a record is, its checksum is computed as its bytes pass: little heap is allocated.
func TestRecordsAreNotBuffered(t *testing.T) {
	const recordBytes = 16 << 20
	for _, codec := range []string{"", "gz"} {
		t.Run("tfrecord"+codec, func(t *testing.T) {
			d := makeDataset(t, "tfrecord", codec, 1, 2, recordBytes)
			require.EqualValues(t, 2, d.catalog.Records())
			e := make([]catalog.Extent, 1)
			d.catalog.Extents([]uint64{1}, e)
			require.Greater(t, e[0].SizeBytes, int64(recordBytes/2))
			if codec == "" {
				change(t, d.files[0], func(b []byte) { b[e[0].OffsetBytes+100] ^= 1 })
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := d.verify(t)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(recordBytes/4))
			if codec == "" {
				require.Len(t, r.Findings, 1)
				require.EqualValues(t, 1, r.Findings[0].Record)
				require.Equal(t, "the data's crc32c does not match", r.Findings[0].Reason)
			} else {
				require.Empty(t, r.Findings)
			}
		})
	}
}
