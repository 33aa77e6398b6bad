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
