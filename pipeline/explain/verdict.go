package explain

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// Kind is what readers wait for most.
type Kind string

const (
	KindIdle       Kind = "idle"       // there are no readers
	KindReaders    Kind = "readers"    // lsiofs waits for the readers
	KindStorage    Kind = "storage"    // readers wait for the storage
	KindDecompress Kind = "decompress" // readers wait for decoders
	KindGather     Kind = "gather"     // readers wait for read bytes to be copied into place and checked
	KindOrder      Kind = "order"      // readers wait for the order to be computed
	KindCopy       Kind = "copy"       // readers wait for lsiofs and the kernel to deliver records
	KindStalled    Kind = "stalled"    // readers wait for something that has not responded for long
)

// Verdict is the answer to "is the loader the bottleneck?".
type Verdict struct {
	Kind Kind `json:"kind"`
	// Share is the share of the readers' time that the verdict refers to.
	Share float64 `json:"share"`
	// Seconds is the length of the period that the verdict covers.
	Seconds float64 `json:"seconds"`
	// Cause is why readers wait for a service; "" for other verdicts.
	Cause Cause  `json:"cause,omitempty"`
	Text  string `json:"text"`
}

// Facts are the inputs of a verdict besides the counters.
type Facts struct {
	Cores int
	// Storage is the storage's name for people: "the disk", "s3://bucket/train".
	Storage string
	// Service returns the statistics for that many of the last seconds; nil if the storage is not a
	// service.
	Service func(seconds float64) Service
	// Possible returns how many bytes per second the storage can deliver in reads of a size, 0 if
	// unknown for that size; it is nil if unknown for all sizes.
	Possible func(readBytes float64) float64
	// Waiting is the longest-waiting request of a reader, if any.
	Waiting Waiting
}

// Waiting is a waiting request.
type Waiting struct {
	Seconds float64 `json:"seconds"`
	Stage   string  `json:"stage"`
	Object  string  `json:"object,omitempty"`
}

const (
	// stalledSeconds is the duration from which a wait is more important than the shares.
	stalledSeconds = 5
	// notTheBottleneck is the share of the time from which the loader is reported not to be the
	// bottleneck.
	notTheBottleneck = 0.8
	// saturated is the share of the capacity of a storage, or of the cores, from which only more of
	// them helps.
	saturated = 0.8
)

// Judge returns the current verdict: for the last minute, or for the last second if there were no
// readers in the minute. A request that has waited for long takes precedence.
func Judge(second, minute Window, f Facts) Verdict {
	if f.Waiting.Seconds >= stalledSeconds {
		return f.stalled(minute)
	}
	if minute.Idle() {
		return second.Judge(f)
	}
	v := minute.Judge(f)
	if second.Idle() {
		v.Text = "no reader is active now; before that: " + v.Text
	}
	return v
}

func (f *Facts) stalled(w Window) Verdict {
	at := ""
	if f.Waiting.Object != "" {
		at = ": shard " + f.Waiting.Object
	}
	return Verdict{
		Kind: KindStalled, Share: 1, Seconds: w.Seconds,
		Text: fmt.Sprintf("a reader waits for %s, which has not answered for %.0f s%s", f.name(f.Waiting.Stage), f.Waiting.Seconds, at),
	}
}

// name returns the name for people of a stage that is waited for.
func (f *Facts) name(stage string) string {
	switch stage {
	case meter.Storage.String():
		return f.storage()
	case meter.Decompress.String():
		return "decompression"
	case meter.Order.String():
		return "the order of an epoch"
	}
	return "lsiofs"
}

func (f *Facts) storage() string {
	if f.Storage == "" {
		return "storage"
	}
	return f.Storage
}

// Judge returns the verdict on a window.
func (w Window) Judge(f Facts) Verdict {
	if w.Idle() {
		return Verdict{Kind: KindIdle, Seconds: w.Seconds, Text: "no reader is active"}
	}
	s := w.Shares
	v := Verdict{Kind: KindReaders, Share: s.Themselves, Seconds: w.Seconds}
	waits := Verdict{Share: -1, Seconds: w.Seconds}
	for _, x := range []struct {
		kind  Kind
		share float64
	}{
		{KindStorage, s.Storage}, {KindDecompress, s.Decompress}, {KindGather, s.Gather}, {KindOrder, s.Order}, {KindCopy, s.Copy + s.FUSE},
	} {
		if x.share > waits.Share {
			waits.Kind, waits.Share = x.kind, x.share
		}
	}
	waits.Text = w.sentence(&waits, f)
	switch {
	case v.Share >= notTheBottleneck:
		v.Text = fmt.Sprintf("lsiofs waits for its readers %s of the time: the loader is not the bottleneck", percent(v.Share))
		return v
	case v.Share >= waits.Share:
		v.Text, v.Cause = fmt.Sprintf("lsiofs waits for its readers %s of the time; otherwise %s", percent(v.Share), waits.Text), waits.Cause
		return v
	case waits.Kind == KindCopy && w.Readers < float64(f.Cores)*saturated:
		waits.Text += "; more workers read faster"
	}
	return waits
}

// sentence returns text about what readers wait for, and sets the cause if there is one.
func (w Window) sentence(v *Verdict, f Facts) string {
	share := percent(v.Share)
	switch v.Kind {
	case KindStorage:
		if f.Service != nil && v.Share > 0 {
			var why string
			v.Cause, why = f.Service(w.Seconds).Why(w.row(meter.Storage).BytesPerSecond, w.Seconds)
			return fmt.Sprintf("readers wait for %s %s of the time: %s", f.storage(), share, why)
		}
		return fmt.Sprintf("readers wait for %s %s of the time: %s", f.storage(), share, w.storageRate(f))
	case KindDecompress:
		cores := w.row(meter.Decompress).Busy
		text := fmt.Sprintf("readers wait for decompression %s of the time: ", share)
		if n := float64(f.Cores); cores >= saturated*n {
			return text + allCores(f.Cores)
		}
		return text + fmt.Sprintf("%.1f of %d cores are busy with it", cores, f.Cores)
	case KindGather:
		return fmt.Sprintf("readers wait %s of the time for records to be checked and assembled", share)
	case KindOrder:
		return fmt.Sprintf("readers wait %s of the time for the order of an epoch to be computed", share)
	default:
		return fmt.Sprintf("lsiofs and the kernel copy records to readers %s of the time: %s", share, rate(w.row(meter.FUSE).BytesPerSecond))
	}
}

func allCores(n int) string {
	switch n {
	case 1:
		return "the only core is busy with it"
	case 2:
		return "both cores are busy with it"
	}
	return fmt.Sprintf("all %d cores are busy with it", n)
}

// storageRate returns text with the rate of the storage, and the possible rate if known.
func (w Window) storageRate(f Facts) string {
	r := w.row(meter.Storage)
	text := rate(r.BytesPerSecond)
	if f.Possible == nil {
		return text
	}
	possible := f.Possible(r.ReadBytes)
	// A higher rate than possible comes from a cache.
	if possible <= 0 || r.BytesPerSecond > possible*1.25 {
		return text
	}
	text += " of about " + rate(possible) + " possible"
	if r.BytesPerSecond >= saturated*possible {
		text += "; more workers won't help"
	}
	return text
}

func rate(bytesPerSecond float64) string {
	return humanize.IBytes(uint64(math.Max(bytesPerSecond, 0))) + "/s"
}

// percent never rounds to 0 or 100 percent.
func percent(share float64) string {
	switch p := share * 100; {
	case p > 99 && p < 100:
		return "99 %"
	case p > 0 && p < 1:
		return "under 1 %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

// Service has the statistics of a bucket or a web server that a verdict needs.
type Service struct {
	Throttled uint64 // "slow down" responses in the window
	Requests  uint64 // responses in the window
	// FirstByteP50 and FirstByteP95 are the times to first byte of the latest responses, in
	// seconds.
	FirstByteP50, FirstByteP95 float64
	Slots, InUse               int // allowed concurrent requests now, and those in use
	Most                       int // upper limit of Slots (--connections)
}

// Cause is why readers wait for a service.
type Cause string

const (
	CauseThrottled  Cause = "throttled"   // the service rejects requests
	CauseFirstBytes Cause = "first_bytes" // responses start late
	CauseLink       Cause = "link"        // responses start in time: the transfer itself is slow
)

const (
	// slowFirstBytes is the median time to first byte, in seconds, from which it is slow. For S3,
	// 25 to 30 ms are usual, and fewer than one in 20 take more than 200 ms.
	slowFirstBytes = 0.2
	// lateFirstBytes is the same for the slowest in 20: a reader that needs the responses in order
	// waits for those.
	lateFirstBytes = 1.0
	// connectionRate is the usual transfer rate of a connection, in bytes per second: S3 reaches 85
	// to 90 MB/s, web servers less. If the time to first byte is longer than the transfer at that
	// rate, requests are so small that the link does not matter.
	connectionRate = 50e6
)

// Why returns why readers wait for a service, and text that includes what helps. A service that
// throttles also responds late, so throttling is checked first. bytesPerSecond is the rate at which
// data arrives.
func (s Service) Why(bytesPerSecond, seconds float64) (Cause, string) {
	switch {
	case s.Throttled > 0:
		return CauseThrottled, fmt.Sprintf("throttled, %s of %s requests in %.0f s were rejected; larger --chunk-bytes need fewer requests, and a disk cache saves them from the second epoch on",
			humanize.Comma(int64(s.Throttled)), humanize.Comma(int64(max(s.Requests, s.Throttled))), seconds)
	case s.FirstByteP50 >= slowFirstBytes || s.FirstByteP95 >= lateFirstBytes:
		text := fmt.Sprintf("slow first bytes, median %.0f ms, 95th percentile %.0f ms", 1e3*s.FirstByteP50, 1e3*s.FirstByteP95)
		if s.most() {
			return CauseFirstBytes, text + s.more()
		}
		return CauseFirstBytes, text + "; lsiofs doctor URL checks the service alone"
	}
	if s.full() && s.Requests > 0 {
		if bytes := bytesPerSecond * seconds / float64(s.Requests); s.FirstByteP50 >= bytes/connectionRate {
			text := fmt.Sprintf("slow first bytes, %.0f ms for requests of %s on average; larger --chunk-bytes make fewer and larger requests, if --memory or a disk cache can hold the chunks",
				1e3*s.FirstByteP50, humanize.IBytes(uint64(max(bytes, 0))))
			if s.most() {
				text += s.more()
			}
			return CauseFirstBytes, text
		}
	}
	text := "the network, at " + rate(bytesPerSecond)
	if s.most() {
		return CauseLink, text + s.more()
	}
	return CauseLink, text + fmt.Sprintf("; %d of %d possible requests are in flight", s.InUse, s.Slots)
}

// full reports whether no more requests may be in flight now, and most whether no more ever may.
func (s Service) full() bool { return s.Slots > 0 && s.InUse >= s.Slots }
func (s Service) most() bool { return s.full() && s.Slots >= s.Most }

func (s Service) more() string {
	return fmt.Sprintf("; all %d possible requests are in flight: more --connections may help", s.Slots)
}
