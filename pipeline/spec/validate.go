package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Validate reports every problem of s at once, one error per line, each naming the flag, the value
// and the bound. It does no I/O. Whether there is a format of that name is not known here: callers
// use formats.Validate, which checks it in addition.
func (s Spec) Validate() error {
	var p problems
	if s.Dataset == "" && !s.Mix.Asked() {
		p.addf("no dataset given: name a directory, a file or a quoted pattern")
	}
	s.validateMix(&p)
	s.Format.validate(&p)
	s.Order.validate(&p)
	s.Deal.validate(&p)
	if s.Order.Groups > 1 && s.Order.Batch != s.Deal.Batch {
		p.addf("--batch (%d) must be the order's batch (%d) when --groups is above 1", s.Deal.Batch, s.Order.Batch)
	}
	if s.Order.Groups > 1 && s.Deal.Dealing == DealContiguous && s.Deal.Tail != TailKeep {
		// An entry of a checkpoint can't represent what workers took of such a deal: the tail moves
		// the borders between them, and with groups every entry has the order's batch.
		p.addf("--deal contiguous with --tail %s can't be combined with --groups (%d) above 1: use --tail keep", s.Deal.Tail, s.Order.Groups)
	}
	oneOf(&p, "--on-corrupt", s.OnCorrupt, CorruptFail, CorruptSkip)
	oneOf(&p, "--io", s.IO, IOAuto, IOUring, IOPread)
	oneOf(&p, "--direct", s.Direct, DirectAuto, DirectOn, DirectOff)
	oneOf(&p, "--read", s.Read, ReadAuto, ReadScan, ReadGather, ReadSpool)
	if s.SpoolMaxBytes < 0 {
		p.addf("--spool-max (%d bytes) must be at least 0, which stands for what the order needs", s.SpoolMaxBytes)
	}
	if n := s.Lookahead; n < 0 || n > MaxLookahead {
		p.addf("--lookahead (%d bytes) must be between 0, which stands for what the readers' rates ask for, and 1TiB", n)
	}
	if s.MemoryBytes < 1<<20 {
		p.addf("--memory (%d bytes) must be at least 1MiB", s.MemoryBytes)
	}
	if s.MaxRecordBytes < 0 {
		p.addf("--max-record (%d bytes) must be at least 0, which stands for no bound", s.MaxRecordBytes)
	}
	if n := s.Remote.Connections; n < 1 || n > MaxConnections {
		p.addf("--connections (%d) must be between 1 and %d", n, MaxConnections)
	}
	oneOf(&p, "--addressing", cmp.Or(s.Remote.Addressing, AddressingAuto), AddressingAuto, AddressingPath, AddressingVirtual)
	oneOf(&p, "--hedge", s.Remote.Hedge, HedgeAuto, HedgeOff)
	oneOf(&p, "--cache-fill", s.Cache.Fill, FillAuto, FillOff)
	if c := s.Cache; c.SizeBytes < 0 || c.SizePercent < 0 || c.SizePercent > 100 {
		p.addf("--cache-size (%d bytes, %v %%) must be auto, off, a number of bytes, or at most 100%% of the file system", c.SizeBytes, c.SizePercent)
	}
	if s.Cache.Off && s.Cache.Warm {
		p.addf("--warm fills the cache, and --cache-size off turns it off: leave one of them out")
	}
	s.validateGrow(&p)
	if s.ReadTimeout <= 0 {
		p.addf("--read-timeout (%v) must be above 0", s.ReadTimeout)
	}
	return errors.Join(p...)
}

func (f Format) validate(p *problems) {
	f.validateZarr(p)
	if f.Lc0Check && f.Name != "lc0" && f.Name != "auto" {
		p.addf("--lc0-check needs --format lc0, not %q", f.Name)
	}
	f.validateAs(p)
	f.validateArrays(p)
	oneOf(p, "--remainder", f.Remainder, RemainderCorrupt, RemainderDrop)
	if f.Name != "fixed" {
		if f.RecordBytes != 0 || f.StrideBytes != 0 || f.HeaderBytes != 0 {
			p.addf("--record-bytes, --stride-bytes and --header-bytes need --format fixed, not %q", f.Name)
		}
		return
	}
	if f.RecordBytes <= 0 {
		p.addf("--record-bytes (%d) must be at least 1 for --format fixed", f.RecordBytes)
	}
	if f.StrideBytes < 0 {
		p.addf("--stride-bytes (%d) must be at least 1", f.StrideBytes)
	}
	if f.HeaderBytes < 0 {
		p.addf("--header-bytes (%d) must be at least 0", f.HeaderBytes)
	}
}

func (o Order) validate(p *problems) {
	oneOf(p, "--shuffle", o.Shuffle, ShuffleReservoir, ShuffleBlock, ShuffleFull, ShuffleNone)
	bounds(p, "--lanes", o.Lanes, 1, MaxLanes)
	bounds(p, "--groups", o.Groups, 1, MaxLanes)
	if o.Groups >= 1 && o.Lanes%o.Groups != 0 {
		p.addf("--groups (%d) must divide --lanes (%d)", o.Groups, o.Lanes)
	}
	bounds(p, "--chunk-bytes", o.ChunkBytes, 1, 1<<40)
	bounds(p, "--chunk-records", o.ChunkRecords, 1, 1<<32)
	bounds(p, "--shuffle-size", o.SizeRecords, 0, 1<<40)
	if o.Groups <= 1 && o.Batch != 1 {
		p.addf("the order's batch (%d) must be 1 when --groups is 1", o.Batch)
	}
	if o.Groups > 1 {
		bounds(p, "--batch", o.Batch, 1, 1<<32)
	}
	o.Split.validate(p)
	o.Sample.validate(p)
}

func (d Assignment) validate(p *problems) {
	bounds(p, "--workers", d.Workers, 1, MaxWorkers)
	bounds(p, "--batch", d.Batch, 1, 1<<32)
	oneOf(p, "--deal", d.Dealing, DealInterleaved, DealContiguous)
	oneOf(p, "--tail", d.Tail, TailKeep, TailDrop, TailPad)
}

type problems []error

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func bounds(p *problems, flag string, v, low, high uint64) {
	if v < low || v > high {
		p.addf("%s (%d) must be between %d and %d", flag, v, low, high)
	}
}

func oneOf[T ~string](p *problems, flag string, v T, allowed ...T) {
	if slices.Contains(allowed, v) {
		return
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	p.addf("%s (%q) must be one of %s", flag, v, strings.Join(names, ", "))
}
