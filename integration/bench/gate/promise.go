package gate

import (
	"fmt"
	"slices"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
)

// Section is a part of a check whose rows are measured together.
type Section string

// The sections. Each except the engine's has one dataset.
const (
	SectionEngine Section = "engine"
	SectionTar    Section = "tar"
	SectionJSONL  Section = "jsonl"
	SectionZstd   Section = "zst"
	SectionGzip   Section = "gz"
	SectionNpy    Section = "npy"
	SectionLc0    Section = "lc0"
	SectionFiles  Section = "files"
	// SectionZarr is about crops of arrays.
	SectionZarr Section = "zarr"
	// SectionNetwork is about datasets at services.
	SectionNetwork Section = "network"
	// SectionGrowing is about directories in which shards arrive while they are mounted.
	SectionGrowing Section = "growing"
)

// Sections are all sections, in the order in which they are checked.
var Sections = []Section{SectionEngine, SectionTar, SectionJSONL, SectionZstd, SectionGzip, SectionNpy, SectionLc0, SectionFiles, SectionZarr, SectionNetwork, SectionGrowing}

// Figure is the figure of a row that a promise refers to.
type Figure string

// The figures. They are medians over a row's rounds.
const (
	FigureRatio   Figure = "ratio"
	FigureRecords Figure = "records/s"
	FigureCPU     Figure = "CPU µs/record"
	FigureMallocs Figure = "allocations/record"
	FigureValue   Figure = "value" // in the row's unit
)

// of returns the figure of a row, or nil if it is not known.
func (f Figure) of(r bench.Row) *bench.Spread {
	switch f {
	case FigureRatio:
		return r.Ratio
	case FigureRecords:
		return r.RecordsPerSecond
	case FigureCPU:
		return r.CPUMicros
	case FigureMallocs:
		return r.Mallocs
	}
	return r.Value
}

// Promise is what a row has to reach in a check.
type Promise struct {
	Section Section
	What    string
	Row     string // ID
	Figure  Figure
	// One of them is set.
	AtLeast, AtMost float64
}

// none is the number of allocations per record up to which they count as none: one or two per reply
// of 1 MiB, and those of the runtime itself.
const none = 0.05

// nothing is a limit that only 0 meets.
const nothing = 1e-9

// Promises returns what lsiofs has to reach, except for the engine's promises, which are in
// uringbench.Rows.
func Promises() []Promise {
	return append(zarrPromises(), []Promise{
		{Section: SectionTar, What: "mount, hot, tar of 12 KiB samples, 1 reader, to the FUSE ceiling", Row: "mount-1", Figure: FigureRatio, AtLeast: 0.60},
		{Section: SectionTar, What: "mount, hot, tar of 12 KiB samples, 1 reader", Row: "mount-1", Figure: FigureRecords, AtLeast: 100_000},
		{Section: SectionTar, What: "mount, hot, tar of 12 KiB samples, 1 reader, server and reader", Row: "mount-1", Figure: FigureCPU, AtMost: 10},
		{Section: SectionTar, What: "mount, hot, tar of 12 KiB samples, 4 readers, to the ceiling of 4", Row: "mount-4", Figure: FigureRatio, AtLeast: 0.45},
		{Section: SectionTar, What: "mount, hot, two halves of the tar samples mixed, 1 reader, to one dataset", Row: bench.RowMixture, Figure: FigureRatio, AtLeast: 0.90},
		{Section: SectionTar, What: "mount, cold, tar of 12 KiB samples, to fio O_DIRECT 256 KiB", Row: bench.RowMountCold, Figure: FigureRatio, AtLeast: 0.75},
		{Section: SectionTar, What: "verify, cold, tar of 12 KiB samples, to fio O_DIRECT sequential", Row: bench.RowVerify, Figure: FigureRatio, AtLeast: 0.80},
		{Section: SectionTar, What: "mount to cat, tar of 12 KiB samples", Row: bench.RowMountFirst, Figure: FigureRatio, AtLeast: 0.80},
		{Section: SectionTar, What: "allocations in steady state, tar", Row: bench.RowFetch, Figure: FigureMallocs, AtMost: none},
		{Section: SectionTar, What: "index pass, tar samples of two members each", Row: bench.RowIndexPass, Figure: FigureValue, AtLeast: 350_000},
		{Section: SectionTar, What: "mount --resume to the first bytes, tar", Row: bench.RowResume, Figure: FigureValue, AtMost: 200},

		{Section: SectionJSONL, What: "mount, hot, JSONL of 1.2 KiB, 1 reader, to the FUSE ceiling", Row: "mount-1", Figure: FigureRatio, AtLeast: 0.35},
		{Section: SectionJSONL, What: "mount, cold, JSONL of 1.2 KiB, to fio O_DIRECT 256 KiB", Row: bench.RowMountCold, Figure: FigureRatio, AtLeast: 0.75},
		{Section: SectionJSONL, What: "mount to cat, JSONL of 1.2 KiB", Row: bench.RowMountFirst, Figure: FigureRatio, AtLeast: 0.80},
		{Section: SectionJSONL, What: "allocations in steady state, JSONL", Row: bench.RowFetch, Figure: FigureMallocs, AtMost: none},
		{Section: SectionJSONL, What: "mount --resume to the first bytes, JSONL", Row: bench.RowResume, Figure: FigureValue, AtMost: 200},

		{Section: SectionZstd, What: "mount to the end of an epoch, JSONL .zst, to zstd -dc", Row: bench.RowMountWhole, Figure: FigureRatio, AtLeast: 0.42},
		{Section: SectionZstd, What: "mount to the end of an epoch, JSONL .zst, memory for half of it, to zstd -dc", Row: bench.RowMountHalf, Figure: FigureRatio, AtLeast: 0.45},
		{Section: SectionZstd, What: "second mount, JSONL .zst, memory for half of it, shards kept decoded, to the same data uncompressed, per second of processor time", Row: bench.RowKept, Figure: FigureRatio, AtLeast: 0.90},
		{Section: SectionZstd, What: "mount to cat, JSONL .zst", Row: bench.RowMountFirst, Figure: FigureRatio, AtLeast: 0.80},
		{Section: SectionGzip, What: "mount to the end of an epoch, JSONL .gz, to gzip -dc", Row: bench.RowMountWhole, Figure: FigureRatio, AtLeast: 1.0},
		{Section: SectionGzip, What: "mount to the end of an epoch, JSONL .gz, memory for half of it, to gzip -dc", Row: bench.RowMountHalf, Figure: FigureRatio, AtLeast: 1.5},
		{Section: SectionGzip, What: "second mount, JSONL .gz, memory for half of it, shards kept decoded, to the same data uncompressed, per second of processor time", Row: bench.RowKept, Figure: FigureRatio, AtLeast: 0.90},
		{Section: SectionGzip, What: "mount to the first byte, JSONL .gz, to the time of gzip -dc of all of it", Row: bench.RowFirstByte, Figure: FigureRatio, AtLeast: 10},
		{Section: SectionGzip, What: "jump into the middle of a stream of JSONL .gz, minus reading there again", Row: bench.RowJump, Figure: FigureValue, AtMost: 100},
		{Section: SectionGzip, What: "index entries for places inside compressed members, of the decoded size", Row: bench.RowPoints, Figure: FigureValue, AtMost: 0.1},
		{Section: SectionGzip, What: "mount to cat, JSONL .gz", Row: bench.RowMountFirst, Figure: FigureRatio, AtLeast: 0.80},

		{Section: SectionNpy, What: "mount, hot, npy rows of 4 KiB, 1 reader, to the FUSE ceiling", Row: "mount-1", Figure: FigureRatio, AtLeast: 0.50},

		{Section: SectionLc0, What: "mount, first epoch, lc0 V6 frames of .gz games, 1 reader, to gzip -dc", Row: bench.RowMountEpoch, Figure: FigureRatio, AtLeast: 1.3},
		{Section: SectionLc0, What: "mount, first epoch, lc0 V6 frames that compress 10:1 or better", Row: bench.RowMountEpoch, Figure: FigureRecords, AtLeast: 180_000},
		{Section: SectionLc0, What: "mount --as tensors, first epoch, lc0 V6 frames of .gz games, 1 reader, to frames", Row: bench.RowTensorsEpoch, Figure: FigureRatio, AtLeast: 0.85},
		{Section: SectionLc0, What: "mount --as tensors, hot, lc0 V6 frames of decoded games, 2 readers", Row: bench.RowTensorsHot, Figure: FigureRecords, AtLeast: 350_000},
		{Section: SectionFiles, What: "mount, hot, files of 12 KiB, each opened and read, to tar c", Row: bench.RowMountOpened, Figure: FigureRatio, AtLeast: 2.0},
		{Section: SectionFiles, What: "mount to cat, files of 12 KiB", Row: bench.RowMountFirst, Figure: FigureRatio, AtLeast: 0.80},

		{Section: SectionNetwork, What: "cat of a web server, 20 ms, chunks of 256 KiB, to net/http", Row: rowNetCat + "256k", Figure: FigureRatio, AtLeast: 0.90},
		{Section: SectionNetwork, What: "cat of a web server, 20 ms, chunks of 1 MiB, to net/http", Row: rowNetCat + "1m", Figure: FigureRatio, AtLeast: 0.90},
		{Section: SectionNetwork, What: "cat of a web server, 20 ms, chunks of 8 MiB, to net/http", Row: rowNetCat + "8m", Figure: FigureRatio, AtLeast: 0.90},
		{Section: SectionNetwork, What: "processor time of cat above that of net/http, chunks of 256 KiB", Row: rowNetCPU + "256k", Figure: FigureValue, AtMost: 0.35},
		{Section: SectionNetwork, What: "processor time of cat above that of net/http, chunks of 1 MiB", Row: rowNetCPU + "1m", Figure: FigureValue, AtMost: 0.35},
		{Section: SectionNetwork, What: "processor time of cat above that of net/http, chunks of 8 MiB", Row: rowNetCPU + "8m", Figure: FigureValue, AtMost: 0.35},
		{Section: SectionNetwork, What: "memory of cat above --memory, of a web server", Row: rowNetMemory, Figure: FigureValue, AtMost: 150},
		{Section: SectionNetwork, What: "requests of an epoch per chunk", Row: rowNetRequests, Figure: FigureValue, AtMost: 1.02},
		{Section: SectionNetwork, What: "bytes requested in an epoch, per byte of its records", Row: rowNetBytes, Figure: FigureValue, AtMost: 1.03},
		{Section: SectionNetwork, What: "index of a web server's shards, to 32 streams of net/http", Row: rowNetPass, Figure: FigureRatio, AtLeast: 0.80},
		{Section: SectionNetwork, What: "requests of the index for each shard", Row: rowNetPassGets, Figure: FigureValue, AtMost: 1.01},
		{Section: SectionNetwork, What: "size of the program, without symbols", Row: rowNetProgram, Figure: FigureValue, AtMost: 21},
		{Section: SectionNetwork, What: "second epoch of a web server, all in the cache, to a mount of the files", Row: rowCached, Figure: FigureRatio, AtLeast: 0.50},
		{Section: SectionNetwork, What: "third epoch of a web server, all in the cache and checked, to a mount of the files", Row: rowSealed, Figure: FigureRatio, AtLeast: 0.95},
		{Section: SectionNetwork, What: "requests of the second epoch per chunk, all in the cache", Row: rowCacheAll, Figure: FigureValue, AtMost: nothing},
		{Section: SectionNetwork, What: "requests of the second epoch per chunk, cache of half the dataset", Row: rowCacheHalf, Figure: FigureValue, AtMost: 0.54},

		{Section: SectionGrowing, What: "first epoch that a mount of 500 000 single games takes", Row: rowTakingFirst, Figure: FigureValue, AtMost: 2},
		{Section: SectionGrowing, What: "next epoch of 500 000 single games", Row: rowTaking, Figure: FigureValue, AtMost: 2},
		{Section: SectionGrowing, What: "next epoch of 100 tars", Row: rowTakingTars, Figure: FigureValue, AtMost: 0.2},
		{Section: SectionGrowing, What: "memory of its own of a mount of 500 000 single games, after 3 epochs", Row: rowGrowMemory, Figure: FigureValue, AtMost: 800},
		{Section: SectionGrowing, What: "processor time of a growing mount that nobody reads", Row: rowIdle, Figure: FigureValue, AtMost: 1},
		{Section: SectionGrowing, What: "close of a file until it is indexed, at 1000 files a second", Row: rowArrivals, Figure: FigureValue, AtMost: 3},
	}...)
}

// Verdicts of checks.
const (
	VerdictOK          = "ok"
	VerdictShort       = "short"
	VerdictNotMeasured = "not measured"
)

// Check is the result of checking a promise.
type Check struct {
	Section  Section       `json:"section"`
	What     string        `json:"what"`
	Figure   Figure        `json:"figure"`
	Unit     string        `json:"unit,omitempty"` // if the figure is a value
	Measured *bench.Spread `json:"measured,omitempty"`
	AtLeast  float64       `json:"at_least,omitempty"`
	AtMost   float64       `json:"at_most,omitempty"`
	Verdict  string        `json:"verdict"`
	Why      string        `json:"why,omitempty"` // why it was not measured
}

// judge compares a report's rows with a promise.
func (p Promise) judge(rows []bench.Row) Check {
	c := Check{Section: p.Section, What: p.What, Figure: p.Figure, AtLeast: p.AtLeast, AtMost: p.AtMost, Verdict: VerdictNotMeasured}
	i := slices.IndexFunc(rows, func(r bench.Row) bool { return r.ID == p.Row })
	if i < 0 {
		c.Why = "it does not apply to this dataset"
		return c
	}
	row := rows[i]
	c.Unit = row.Unit
	if c.Measured = p.Figure.of(row); c.Measured == nil {
		c.Why = row.NotMeasured
		if k := slices.IndexFunc(rows, func(r bench.Row) bool { return r.ID == row.Against }); c.Why == "" && k >= 0 {
			c.Why = fmt.Sprintf("%s: %s", rows[k].Name, rows[k].NotMeasured)
		}
		return c
	}
	c.Verdict = verdict(c.Measured.Median, p.AtLeast, p.AtMost)
	return c
}

// verdict compares with the limits that are not 0.
func verdict(measured, atLeast, atMost float64) string {
	if measured < atLeast || atMost != 0 && measured > atMost {
		return VerdictShort
	}
	return VerdictOK
}

// rowsOf returns the rows that the promises of a section need.
func rowsOf(promises []Promise, s Section) []string {
	against := map[string][]string{
		bench.RowMountFirst: {bench.RowCat, bench.RowMountWhole}, bench.RowMountWhole: {bench.RowDecode, bench.RowDecodeOwn}, bench.RowMountEpoch: {bench.RowDecode}, bench.RowTensorsEpoch: {bench.RowMountEpoch, bench.RowDecode}, bench.RowMountCold: {bench.RowFioCold}, bench.RowEngineCold: {bench.RowFioCold}, bench.RowVerify: {bench.RowFioSequential},
		bench.RowKept: {bench.RowPlain}, bench.RowMountOpened: {bench.RowTar}, bench.RowMixture: {bench.RowMount + "1"}, rowNetPass: {rowNetStreams}, rowNetPassGets: {rowNetPass}, rowNetBytes: {rowNetRequests}, rowCached: {rowCacheLocal}, rowSealed: {rowCacheLocal}, rowCacheAll: {rowCached, rowCacheLocal},
	}
	var ids []string
	for _, p := range promises {
		if p.Section == s {
			ids = append(append(ids, p.Row), against[p.Row]...)
		}
	}
	for _, size := range chunkSizes { // measuring one of these needs the others
		if own := []string{rowNetCat + size.name, rowNetLoop + size.name, rowNetPiped + size.name, rowNetCPU + size.name}; slices.ContainsFunc(own, func(id string) bool { return slices.Contains(ids, id) }) {
			ids = append(ids, own...)
		}
	}
	for _, n := range []string{"1", "2", "4"} {
		if slices.Contains(ids, bench.RowMount+n) {
			ids = append(ids, bench.RowCeiling+n)
		}
	}
	return ids
}

// sectionOf returns the section that a dataset belongs to, or "".
func sectionOf(d bench.DatasetInfo) Section {
	near := func(bytes float64) bool { return d.RecordBytes > bytes*2/3 && d.RecordBytes < bytes*3/2 }
	lines := (d.Format == "jsonl" || d.Format == "lines") && near(1200)
	switch {
	case d.Format == "lc0" && near(8356):
		return SectionLc0
	case d.Format == "files" && near(12<<10):
		return SectionFiles
	case d.Format == "tar" && d.Compression == "" && near(12<<10):
		return SectionTar
	case d.Format == "npy" && d.Compression == "" && near(4<<10):
		return SectionNpy
	case lines && d.Compression == "":
		return SectionJSONL
	case lines && d.Compression == "zstd":
		return SectionZstd
	case lines && d.Compression == "gzip":
		return SectionGzip
	}
	return ""
}
