package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// sec is a second in nanoseconds.
const sec = 1_000_000_000

// of returns a window of ten seconds with some readers; grow sets what has grown meanwhile.
func of(readers int64, grow func(s *Snapshot)) Window {
	from := Snapshot{Times: meter.Times{At: 100 * sec}}
	from.Bytes[meter.Storage], from.Recent = 5000, 77*sec
	to := from
	to.At += 10 * sec
	to.Recent += readers * 10 * sec
	grow(&to)
	return Between(from, to, false)
}

func TestSharesAreFractionsOfReaderTime(t *testing.T) {
	w := of(2, func(s *Snapshot) {
		s.Waits[meter.Storage] = 5 * sec
		s.Waits[meter.Decompress] = 4 * sec
		s.Waits[meter.Copy] = sec
		s.Copied = 2 * sec
		s.Busy[meter.Copy] = 3 * sec
		s.Busy[meter.FUSE] = sec
		s.Busy[meter.Decompress] = 15 * sec
		s.Bytes[meter.Storage] += 1 << 20
		s.Reads = 4
		s.Fill[meter.Storage], s.Looked = 120*sec, 10*sec
	})
	require.Equal(t, Shares{Storage: 0.25, Decompress: 0.2, Copy: 0.15, FUSE: 0.05, Themselves: 0.35}, w.Shares)
	require.Equal(t, 2.0, w.Readers)
	require.Equal(t, 10.0, w.Seconds)
	require.Equal(t, Row{Stage: "storage", Waited: 0.25, Queued: 12, BytesPerSecond: 104858, ReadBytes: 262144}, w.row(meter.Storage))
	require.Equal(t, 1.5, w.row(meter.Decompress).Busy)
	require.Equal(t, 0.3, w.row(meter.Copy).Busy, "work ahead of readers too")
}

func TestConcurrentRequestsOfOneReaderCountAtMostOnce(t *testing.T) {
	w := of(1, func(s *Snapshot) { s.Waits[meter.Storage] = 40 * sec })
	require.Equal(t, Shares{Storage: 1}, w.Shares)
	require.Equal(t, 4.0, w.Readers)
}

// Listing a mount computes the sizes of its files.
func TestListingMountIsNotAReader(t *testing.T) {
	look := func(waited int64) Window {
		from := Snapshot{Times: meter.Times{At: 100 * sec}}
		to := from
		to.At += sec / 20
		to.Waits[meter.Order] = waited
		return Between(from, to, false)
	}
	glimpsed := look(glimpse - 1)
	require.True(t, glimpsed.Idle())
	require.Equal(t, "no reader is active", glimpsed.Judge(Facts{}).Text)
	require.Zero(t, glimpsed.Shares)
	waited := look(glimpse)
	require.False(t, waited.Idle())
	require.Equal(t, KindOrder, waited.Judge(Facts{}).Kind)
}

func TestZeroDurationIsNotAWindow(t *testing.T) {
	s := Snapshot{Times: meter.Times{At: 5}}
	w := Between(s, s, true)
	require.True(t, w.Idle())
	require.Equal(t, KindIdle, w.Judge(Facts{}).Kind)
}

func TestVerdicts(t *testing.T) {
	disk := Facts{Cores: 2, Storage: "the disk", Possible: func(float64) float64 { return 2 << 30 }}
	unmeasured := Facts{Cores: 2, Storage: "the disk", Possible: func(float64) float64 { return 0 }}
	storage := func(rate uint64) func(*Snapshot) {
		return func(s *Snapshot) {
			s.Waits[meter.Storage], s.Copied = 71*sec/10, sec
			s.Bytes[meter.Storage] += rate * 10
		}
	}
	for _, c := range []struct {
		name    string
		readers int64
		grow    func(*Snapshot)
		facts   Facts
		kind    Kind
		text    string
	}{
		{"no reader is active", 0, func(*Snapshot) {}, disk, KindIdle, "no reader is active"},
		{"the disk gives what it can", 1, storage(19 << 30 / 10), disk, KindStorage,
			"readers wait for the disk 71 % of the time: 1.9 GiB/s of about 2.0 GiB/s possible; more workers won't help"},
		{"the disk could give more", 1, storage(1 << 30), disk, KindStorage,
			"readers wait for the disk 71 % of the time: 1.0 GiB/s of about 2.0 GiB/s possible"},
		{"what the disk can give is not known", 1, storage(1 << 30), unmeasured, KindStorage,
			"readers wait for the disk 71 % of the time: 1.0 GiB/s"},
		{"a cache gives more than the disk could", 1, storage(9 << 30), disk, KindStorage,
			"readers wait for the disk 71 % of the time: 9.0 GiB/s"},
		{"a storage without a name", 1, storage(1 << 30), Facts{Cores: 1}, KindStorage,
			"readers wait for storage 71 % of the time: 1.0 GiB/s"},
		{"slow readers", 4, func(s *Snapshot) { s.Copied = 16 * sec / 10 }, disk, KindReaders,
			"lsiofs waits for its readers 96 % of the time: the loader is not the bottleneck"},
		{"readers that only idle", 1, func(s *Snapshot) { s.Copied = sec / 100 }, disk, KindReaders,
			"lsiofs waits for its readers 99 % of the time: the loader is not the bottleneck"},
		{"readers half the time", 1, func(s *Snapshot) { s.Waits[meter.Storage] = 4 * sec; s.Bytes[meter.Storage] += 10 << 30 }, disk, KindReaders,
			"lsiofs waits for its readers 60 % of the time; otherwise readers wait for the disk 40 % of the time: 1.0 GiB/s of about 2.0 GiB/s possible"},
		{"all cores decompress", 1, func(s *Snapshot) { s.Waits[meter.Decompress] = 8 * sec; s.Busy[meter.Decompress] = 19 * sec }, disk, KindDecompress,
			"readers wait for decompression 80 % of the time: both cores are busy with it"},
		{"few shards decompress", 1, func(s *Snapshot) { s.Waits[meter.Decompress] = 8 * sec; s.Busy[meter.Decompress] = 9 * sec }, Facts{Cores: 16}, KindDecompress,
			"readers wait for decompression 80 % of the time: 0.9 of 16 cores are busy with it"},
		{"many cores decompress", 1, func(s *Snapshot) { s.Waits[meter.Decompress] = 8 * sec; s.Busy[meter.Decompress] = 150 * sec }, Facts{Cores: 16}, KindDecompress,
			"readers wait for decompression 80 % of the time: all 16 cores are busy with it"},
		{"checks", 1, func(s *Snapshot) { s.Waits[meter.Gather] = 8 * sec }, disk, KindGather,
			"readers wait 80 % of the time for records to be checked and assembled"},
		{"an order of many records", 0, func(s *Snapshot) { s.Waits[meter.Order] = 9 * sec }, disk, KindOrder,
			"readers wait 100 % of the time for the order of an epoch to be computed"},
		{"hot data, one reader", 1, func(s *Snapshot) { s.Copied = 5 * sec; s.Busy[meter.FUSE] = 3 * sec; s.Bytes[meter.FUSE] = 30 << 30 }, disk, KindCopy,
			"lsiofs and the kernel copy records to readers 80 % of the time: 3.0 GiB/s; more workers read faster"},
		{"hot data, a reader a core", 2, func(s *Snapshot) { s.Copied = 10 * sec; s.Busy[meter.FUSE] = 6 * sec; s.Bytes[meter.FUSE] = 30 << 30 }, disk, KindCopy,
			"lsiofs and the kernel copy records to readers 80 % of the time: 3.0 GiB/s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := of(c.readers, c.grow).Judge(c.facts)
			require.Equal(t, c.kind, v.Kind)
			require.Equal(t, c.text, v.Text)
		})
	}
}

func TestLastMinuteIsJudgedUnlessIdle(t *testing.T) {
	idle := of(0, func(*Snapshot) {})
	slow := of(1, func(s *Snapshot) { s.Waits[meter.Storage] = 9 * sec })
	hungry := of(1, func(s *Snapshot) { s.Copied = sec / 10 })
	f := Facts{Cores: 2, Storage: "the disk"}
	require.Equal(t, KindStorage, Judge(hungry, slow, f).Kind)
	require.Equal(t, "no reader is active now; before that: readers wait for the disk 90 % of the time: 0 B/s", Judge(idle, slow, f).Text)
	require.Equal(t, KindReaders, Judge(hungry, idle, f).Kind)
	require.Equal(t, KindIdle, Judge(idle, idle, f).Kind)

	f.Waiting = Waiting{Seconds: 12.2, Stage: "storage", Object: "b/shard-7.tar"}
	v := Judge(idle, slow, f)
	require.Equal(t, KindStalled, v.Kind)
	require.Equal(t, "a reader waits for the disk, which has not answered for 12 s: shard b/shard-7.tar", v.Text)
	f.Waiting = Waiting{Seconds: 4, Stage: "storage"}
	require.Equal(t, KindStorage, Judge(slow, slow, f).Kind, "not that long yet")
	f.Waiting = Waiting{Seconds: 40, Stage: "order"}
	require.Equal(t, "a reader waits for the order of an epoch, which has not answered for 40 s", Judge(slow, slow, f).Text)
}

// Different things help: fewer requests, more concurrent requests, or only a faster link.
func TestSlowServiceHasOneOfThreeReasons(t *testing.T) {
	for _, c := range []struct {
		name    string
		service Service
		cause   Cause
		text    string
	}{
		{"it throttles, and so is slow too", Service{Throttled: 1200, Requests: 30000, FirstByteP50: 3, FirstByteP95: 9, Slots: 4, InUse: 4}, CauseThrottled,
			"throttled, 1,200 of 30,000 requests in 10 s were rejected; larger --chunk-bytes need fewer requests, and a disk cache saves them from the second epoch on"},
		{"all first bytes are slow", Service{Requests: 100, FirstByteP50: 0.25, FirstByteP95: 0.4, Slots: 128, InUse: 128}, CauseFirstBytes,
			"slow first bytes, median 250 ms, 95th percentile 400 ms; all 128 possible requests are in flight: more --connections may help"},
		{"some first bytes are slow", Service{Requests: 100, FirstByteP50: 0.02, FirstByteP95: 1, Slots: 128, InUse: 9}, CauseFirstBytes,
			"slow first bytes, median 20 ms, 95th percentile 1000 ms; lsiofs doctor URL checks the service alone"},
		{"the link is full", Service{Requests: 100, FirstByteP50: 0.02, FirstByteP95: 0.1, Slots: 128, InUse: 40, Most: 128}, CauseLink,
			"the network, at 100 MiB/s; 40 of 128 possible requests are in flight"},
		{"so are the connections", Service{Requests: 100, FirstByteP50: 0.199, FirstByteP95: 0.999, Slots: 128, InUse: 128, Most: 128}, CauseLink,
			"the network, at 100 MiB/s; all 128 possible requests are in flight: more --connections may help"},
		{"requests are small", Service{Requests: 60_000, FirstByteP50: 0.077, FirstByteP95: 0.2, Slots: 38, InUse: 38, Most: 128}, CauseFirstBytes,
			"slow first bytes, 77 ms for requests of 17 KiB on average; larger --chunk-bytes make fewer and larger requests, if --memory or a disk cache can hold the chunks"},
		{"and all connections are used", Service{Requests: 60_000, FirstByteP50: 0.077, FirstByteP95: 0.2, Slots: 128, InUse: 128, Most: 128}, CauseFirstBytes,
			"slow first bytes, 77 ms for requests of 17 KiB on average; larger --chunk-bytes make fewer and larger requests, if --memory or a disk cache can hold the chunks; all 128 possible requests are in flight: more --connections may help"},
		{"small requests that are few do not wait for each other", Service{Requests: 60_000, FirstByteP50: 0.077, Slots: 128, InUse: 3, Most: 128}, CauseLink,
			"the network, at 100 MiB/s; 3 of 128 possible requests are in flight"},
		{"nothing is known yet", Service{}, CauseLink, "the network, at 100 MiB/s; 0 of 0 possible requests are in flight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cause, text := c.service.Why(100<<20, 10)
			require.Equal(t, c.cause, cause)
			require.Equal(t, c.text, text)
			asked := 0.0
			f := Facts{Storage: "s3://bucket/train", Service: func(seconds float64) Service { asked = seconds; return c.service }}
			v := of(1, func(s *Snapshot) { s.Waits[meter.Storage] = 8 * sec; s.Bytes[meter.Storage] += 1000 << 20 }).Judge(f)
			require.Equal(t, KindStorage, v.Kind)
			require.Equal(t, c.cause, v.Cause)
			require.Equal(t, "readers wait for s3://bucket/train 80 % of the time: "+text, v.Text)
			require.Equal(t, 10.0, asked)
		})
	}
	f := Facts{Service: func(float64) Service { return Service{Throttled: 1} }}
	v := of(1, func(s *Snapshot) { s.Waits[meter.Decompress] = 8 * sec }).Judge(f)
	require.Empty(t, v.Cause, "it is not the service that is waited for")
	v = of(1, func(s *Snapshot) { s.Waits[meter.Storage] = 4 * sec }).Judge(f)
	require.Equal(t, CauseThrottled, v.Cause, "readers are what is waited for most, and the service next")
}
