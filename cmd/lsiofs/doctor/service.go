package doctor

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// RunService examines a bucket or web server, and the directory of its disk cache ("" for the
// user's default). It prints each finding as soon as it is made, and returns an error if mounting a
// dataset from there will not work.
func RunService(ctx context.Context, name, cacheDir string, o probe.Options, u *terminal.UI) error {
	if _, err := target.Parse(name); err != nil {
		return exit.With(exit.Dataset, fmt.Errorf("dataset: %w", err))
	}
	o.Trouble = func(t remote.Trouble) { u.Notef("%s", t) }
	told := &teller{ui: u}
	told.tell(checkRoom(lookAtCache(ctx, cacheDir, name)))
	s, err := probe.Open(ctx, name, o)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			_ = s.Close()
		}
		return ctx.Err()
	case err != nil:
		told.tell(Finding{Check: "service", Level: levelFail, Detail: err.Error(), Do: nextStep(err)})
		return told.end()
	}
	s.Look(ctx, func(p probe.Part, f probe.Facts) { told.tell(examinePart(p, f, time.Now())...) })
	err = s.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(told.end(), err)
}

// examinePart judges one part of the facts. It is a pure function.
func examinePart(p probe.Part, f probe.Facts, now time.Time) []Finding {
	switch p {
	case probe.Credentials:
		return []Finding{checkCredentials(f, now)}
	case probe.Objects:
		if f.Bucket {
			return []Finding{checkRegion(f), checkObjects(f)}
		}
		return []Finding{checkObjects(f)}
	case probe.Addresses:
		return []Finding{checkAddresses(f)}
	case probe.Heads:
		return []Finding{checkLatency(f)}
	case probe.Gets:
		return []Finding{checkTransfer(f)}
	case probe.Ranges:
		return []Finding{checkRanges(f)}
	case probe.Versions:
		return []Finding{checkCondition(f)}
	}
	return []Finding{checkClock(f)}
}

// nextStep returns advice about a failed request.
func nextStep(err error) string {
	status, _ := errors.AsType[*remote.StatusError](err)
	switch {
	case errors.As(err, new(*remote.Refusal)) && status == nil:
		return "fix this, then run doctor again"
	case errors.Is(err, iofs.ErrNotExist), errors.Is(err, probe.ErrNothing):
		return "check the names of the bucket or host and of the folder"
	case status != nil && status.Advice != "":
		return status.Advice
	case status != nil && (status.Status == 401 || status.Status == 403):
		return "use credentials that may list and read it (s3:ListBucket, s3:GetObject), or --anonymous for a public bucket"
	case status != nil && (status.Status == 429 || status.Status >= 500):
		return "the service is failing or overloaded: try again later, with fewer --connections"
	case status != nil && status.Status == 200:
		return "see the line about ranges"
	case status != nil && status.Status/100 == 3:
		return "give the bucket's region with --region, or its service with --endpoint"
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
		return "check the host name and DNS (/etc/resolv.conf)"
	}
	return "check the network, HTTPS_PROXY and NO_PROXY"
}

const addressesShown = 8

func checkAddresses(f probe.Facts) Finding {
	found := Finding{Check: "DNS", Level: levelOK}
	switch {
	case f.Host == "":
		found.Level, found.Detail, found.Do = levelWarn, "no request was made", "fix the problems above first"
	case f.LookupErr != nil && f.Answers:
		found.Detail = f.Host + " does not resolve here but answers, through a proxy"
	case f.LookupErr != nil:
		found.Level, found.Detail = levelFail, f.LookupErr.Error()
		found.Do = "check the host name and DNS (/etc/resolv.conf)"
	case net.ParseIP(f.Host) != nil:
		found.Detail = f.Host + " is an address: no lookup needed"
	default:
		shown := f.Addresses[:min(len(f.Addresses), addressesShown)]
		found.Detail = fmt.Sprintf("%s: %s: %s", f.Host, addresses(len(f.Addresses)), strings.Join(shown, ", "))
	}
	return found
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}

// soon is the remaining validity below which credentials get a warning: an epoch takes longer.
const soon = 15 * time.Minute

func checkCredentials(f probe.Facts, now time.Time) Finding {
	found := Finding{Check: "credentials", Level: levelOK, Detail: "from " + f.Identity.From}
	left := f.Identity.Expires.Sub(now)
	switch {
	case f.IdentityErr != nil:
		found.Level, found.Detail = levelFail, f.IdentityErr.Error()
		found.Do = "fix their source (lsiofs help remote)"
		if errors.Is(f.IdentityErr, s3.ErrNoCredentials) {
			found.Do = "set up one of these; for a public bucket give --anonymous"
		}
	case f.Identity.From == "":
		found.Detail = "none: requests are not signed (--anonymous)"
	case f.Identity.Expires.IsZero():
		found.Detail += "; they state no expiry"
	case left <= 0:
		found.Level, found.Do = levelFail, "renew them (aws sso login, or at their source)"
		found.Detail += "; they have expired"
	case left < soon:
		found.Level, found.Do = levelWarn, "make sure that this source renews them: lsiofs asks it again before they expire"
		found.Detail += fmt.Sprintf("; they expire in %s", terminal.Round(left))
	default:
		found.Detail += fmt.Sprintf("; they expire in %s and are renewed before that", terminal.Round(left))
	}
	return found
}

func checkRegion(f probe.Facts) Finding {
	if f.Region == "" {
		return Finding{Check: "region", Level: levelWarn, Detail: "it is not known", Do: "give it with --region"}
	}
	return Finding{Check: "region", Level: levelOK, Detail: f.Region + ": readers in another region pay for transfer and wait longer"}
}

func checkObjects(f probe.Facts) Finding {
	if f.ObjectErr != nil {
		return Finding{Check: "objects", Level: levelFail, Detail: f.ObjectErr.Error(), Do: nextStep(f.ObjectErr)}
	}
	return Finding{Check: "objects", Level: levelOK, Detail: fmt.Sprintf("asked for %s, %s", f.Object.Path, terminal.Bytes(f.Object.SizeBytes))}
}

// slowHead is the latency above which a service is far away or busy. Within a region it is 10 to 30
// ms.
const slowHead = 200 * time.Millisecond

func checkLatency(f probe.Facts) Finding {
	found := Finding{Check: "latency", Level: levelOK}
	if len(f.Heads) > 0 {
		sorted := slices.Sorted(slices.Values(f.Heads))
		half := sorted[len(sorted)/2]
		found.Detail = fmt.Sprintf("%d HEAD requests took %s to %s, median %s", len(sorted), short(sorted[0]), short(sorted[len(sorted)-1]), short(half))
		if half >= slowHead {
			found.Level, found.Do = levelWarn, "read from a machine near the service (in its region) or use a disk cache; larger --chunk-bytes need fewer requests"
		}
	}
	if f.HeadErr != nil {
		found.Level, found.Do = levelWarn, nextStep(f.HeadErr)
		found.Detail = strings.TrimPrefix(found.Detail+"; then one failed: "+f.HeadErr.Error(), "; then one failed: ")
	}
	return found
}

// slowGet, in bytes per second, is less than a connection to a nearby service delivers; S3 delivers
// 85 to 90 MB/s. Objects smaller than judgedGet bytes are no evidence.
const (
	slowGet   = 10e6
	judgedGet = 1 << 20
)

func checkTransfer(f probe.Facts) Finding {
	found := Finding{Check: "transfer", Level: levelOK}
	if f.GetErr != nil {
		return Finding{Check: "transfer", Level: levelFail, Detail: f.GetErr.Error(), Do: nextStep(f.GetErr)}
	}
	var texts []string
	best := 0.0
	for _, g := range f.Gets {
		rate := float64(g.Bytes) / max(g.Whole.Seconds(), 1e-6)
		best = max(best, rate)
		texts = append(texts, fmt.Sprintf("%s/s (first byte after %s)", terminal.Bytes(int64(rate)), short(g.FirstByte)))
	}
	if len(f.Gets) > 0 {
		found.Detail = fmt.Sprintf("sequential GETs of %s: %s", terminal.Bytes(f.Gets[0].Bytes), strings.Join(texts, ", "))
		if best < slowGet && f.Gets[0].Bytes >= judgedGet {
			found.Level, found.Do = levelWarn, "lsiofs tune URL measures many connections together; a disk cache helps from the second epoch on"
		}
	}
	return found
}

// Clock skews. S3 refuses requests whose signatures are 15 minutes off.
const (
	refusedSkew = 15 * time.Minute
	badSkew     = time.Minute
)

func checkClock(f probe.Facts) Finding {
	found := Finding{Check: "clock", Level: levelOK, Detail: "agrees with the service's to the second"}
	if !f.Skewed {
		found.Detail = "the service does not report its time"
		return found
	}
	off := f.Skew.Abs()
	if off > 0 {
		way := "behind"
		if f.Skew < 0 {
			way = "ahead of"
		}
		found.Detail = fmt.Sprintf("%s %s the service's", terminal.Round(off), way)
	}
	if off >= badSkew {
		found.Level, found.Do = levelWarn, "set this machine's clock (timedatectl set-ntp true)"
		if off >= refusedSkew && f.Bucket {
			found.Level = levelFail
			found.Detail += ": the service refuses signatures that are so far off"
		}
	}
	return found
}

func checkRanges(f probe.Facts) Finding {
	a := f.Ranges
	switch {
	case a.Err != nil:
		return Finding{Check: "ranges", Level: levelFail, Detail: a.Err.Error(), Do: nextStep(a.Err)}
	case a.Right:
		return Finding{Check: "ranges", Level: levelOK, Detail: "parts of objects are served as requested"}
	case a.Status == 200:
		return Finding{Check: "ranges", Level: levelFail, Detail: "asked for a part of an object, the service sends all of it",
			Do: "enable ranges (nginx: max_ranges, and no compression of shards), or serve the files with another server"}
	}
	return Finding{Check: "ranges", Level: levelFail, Detail: fmt.Sprintf("asked for one byte, the service answered with status %d and something else", a.Status),
		Do: "remove whatever changes requests between here and the service"}
}

func checkCondition(f probe.Facts) Finding {
	c := f.Version
	found := Finding{Check: "versions", Level: levelOK}
	switch {
	case c.Header == "":
		found.Level, found.Detail = levelWarn, "the service does not identify versions: an overwritten shard is noticed only if its size changes"
		found.Do = "configure it to send ETag or Last-Modified; do not overwrite shards"
	case c.Err != nil:
		found.Level, found.Detail, found.Do = levelFail, c.Err.Error(), nextStep(c.Err)
	case c.Status == 412 && c.Header == "If-Match":
		found.Detail = "If-Match is honoured: bytes of an overwritten shard are never mixed with the old ones"
	case c.Status == 412:
		found.Detail = c.Header + " is honoured: an overwritten shard is noticed, unless it was overwritten within a second of the last time"
	default:
		found.Level, found.Do = levelWarn, "do not overwrite shards: write new shards under new names"
		found.Detail = fmt.Sprintf("the service ignores %s (status %d for another version): lsiofs compares the versions in the answers instead", c.Header, c.Status)
	}
	return found
}

// short formats a latency for people.
func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
}
