package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// parsed returns dataset flags, parsed from a command line.
func parsed(t *testing.T, args ...string) *datasetFlags {
	d := &datasetFlags{}
	c := &cobra.Command{Use: "x"}
	d.add(c)
	d.addResume()
	require.NoError(t, c.ParseFlags(args))
	return d
}

func TestFlagsProduceSpec(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want func(*spec.Spec)
	}{
		{"none: the defaults", nil, func(*spec.Spec) {}},
		{"order", []string{"--seed", "7", "--shuffle", "block", "--shuffle-size", "1000", "--lanes", "8", "--chunk-bytes", "1MiB", "--chunk-records", "64"},
			func(s *spec.Spec) {
				s.Order = spec.Order{Seed: 7, Shuffle: spec.ShuffleBlock, SizeRecords: 1000, Lanes: 8, Groups: 1, Batch: 1, ChunkBytes: 1 << 20, ChunkRecords: 64}
			}},
		{"split", []string{"--split", "0.10..0.9", "--split-seed", "7", "--split-by", "shard"},
			func(s *spec.Spec) {
				s.Order.Split = spec.Split{Part: spec.Part{From: 100_000_000, To: 900_000_000}, Seed: 7, By: spec.SplitByShard}
			}},
		{"sample", []string{"--sample-seed", "7", "--sample", "1/39"}, func(s *spec.Spec) { s.Order.Sample = spec.Subsample{Of: 39, Seed: 7} }},
		{"a sample that is all", []string{"--sample", "1/1", "--sample-seed", "7"}, func(*spec.Spec) {}},
		{"deal", []string{"--workers", "4", "--batch", "32", "--deal", "contiguous", "--tail", "pad", "--epoch", "3"},
			func(s *spec.Spec) {
				s.Deal = spec.Assignment{Workers: 4, Batch: 32, Dealing: spec.DealContiguous, Tail: spec.TailPad}
				s.Epoch = 3
			}},
		{"groups make the batch the order's", []string{"--groups", "4", "--batch", "16"},
			func(s *spec.Spec) { s.Order.Groups, s.Order.Batch, s.Deal.Batch = 4, 16, 16 }},
		{"format", []string{"--format", "fixed", "--record-bytes", "8356", "--stride-bytes", "9000", "--header-bytes", "1KiB", "--remainder", "drop"},
			func(s *spec.Spec) {
				s.Format = spec.Format{Name: "fixed", RecordBytes: 8356, StrideBytes: 9000, HeaderBytes: 1024, Remainder: spec.RemainderDrop}
			}},
		{"arrays", []string{"--array", "x=x-*.npy", "--array", "y=deep/y=*.npy"},
			func(s *spec.Spec) {
				s.Format.Arrays = []spec.Array{{Name: "x", Pattern: "x-*.npy"}, {Name: "y", Pattern: "deep/y=*.npy"}}
			}},
		{"machine", []string{"--memory", "512MB", "--io", "pread", "--direct", "on", "--read-timeout", "30s", "--on-corrupt", "skip", "--index-dir", "/x",
			"--read", "spool", "--spool-dir", "/y", "--spool-max", "10GiB"},
			func(s *spec.Spec) {
				s.MemoryBytes, s.IO, s.Direct, s.ReadTimeout, s.OnCorrupt, s.IndexDir = 512_000_000, spec.IOPread, spec.DirectOn, 30*time.Second, spec.CorruptSkip, "/x"
				s.Read, s.SpoolDir, s.SpoolMaxBytes = spec.ReadSpool, "/y", 10<<30
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := spec.Default()
			want.Dataset = "data"
			c.want(&want)
			got, resume, err := parsed(t, c.args...).resolve("data")
			require.NoError(t, err)
			require.Nil(t, resume)
			require.Equal(t, want, got)
		})
	}
}

func TestResumeUsesOrderAndDealOfCheckpoint(t *testing.T) {
	file := spec.Default().Order
	file.Seed, file.Lanes = 42, 16
	state := func(change func(*checkpoint.State)) *checkpoint.State {
		s := &checkpoint.State{Order: file, Epoch: 5, Done: []order.Done{
			{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{9}},
			{Batch: 8, Dealing: spec.DealInterleaved, Consumed: []uint64{16, 16, 8}}}}
		if change != nil {
			change(s)
		}
		return s
	}
	grouped := func(s *checkpoint.State) { s.Order.Groups, s.Order.Batch = 4, 8 }
	ninety := spec.Split{Part: spec.Part{To: 900_000_000}, By: spec.SplitByRecord}
	split := func(s *checkpoint.State) { s.Order.Split = ninety }
	sample := func(s *checkpoint.State) { s.Order.Sample = spec.Subsample{Of: 39, Seed: 1} }
	epoch := uint64(7)
	for _, c := range []struct {
		name  string
		args  []string
		r     opening.Checkpoint
		want  func(*spec.Spec)
		fails []string
	}{
		{name: "everything from the file", r: opening.Checkpoint{State: state(nil)},
			want: func(s *spec.Spec) { s.Deal.Workers, s.Deal.Batch = 3, 8 }},
		{name: "other workers, batch and deal", args: []string{"--workers", "5", "--batch", "2", "--deal", "contiguous", "--tail", "drop"}, r: opening.Checkpoint{State: state(nil)},
			want: func(s *spec.Spec) {
				s.Deal = spec.Assignment{Workers: 5, Batch: 2, Dealing: spec.DealContiguous, Tail: spec.TailDrop}
			}},
		{name: "flags of the order that say the same", args: []string{"--seed", "42", "--lanes", "16", "--epoch", "5"}, r: opening.Checkpoint{State: state(nil)},
			want: func(s *spec.Spec) { s.Deal.Workers, s.Deal.Batch = 3, 8 }},
		{name: "flags of the order that differ are all reported", args: []string{"--seed", "1", "--lanes", "32", "--epoch", "4"}, r: opening.Checkpoint{State: state(nil)},
			fails: []string{"--seed (1) differs from f, which has 42", "--lanes (32)", "--epoch (4)"}},
		{name: "the split comes from the file", args: []string{"--split", "0.0..0.9"}, r: opening.Checkpoint{State: state(split)},
			want: func(s *spec.Spec) {
				s.Order.Split = ninety
				s.Deal.Workers, s.Deal.Batch = 3, 8
			}},
		{name: "splits that differ are reported", args: []string{"--split", "0..0.8", "--split-seed", "1", "--split-by", "shard"}, r: opening.Checkpoint{State: state(split)},
			fails: []string{"--split (0..0.8) differs from f, which has 0..0.9", "--split-seed (1)", "--split-by (shard) differs from f, which has record"}},
		{name: "all of a dataset is no split", args: []string{"--split", "0..1", "--split-seed", "1", "--split-by", "shard"}, r: opening.Checkpoint{State: state(nil)},
			want: func(s *spec.Spec) { s.Deal.Workers, s.Deal.Batch = 3, 8 }},
		{name: "the sample comes from the file", args: []string{"--sample", "1/39", "--sample-seed", "1"}, r: opening.Checkpoint{State: state(sample)},
			want: func(s *spec.Spec) {
				s.Order.Sample = spec.Subsample{Of: 39, Seed: 1}
				s.Deal.Workers, s.Deal.Batch = 3, 8
			}},
		{name: "samples that differ are reported", args: []string{"--sample", "1/38", "--sample-seed", "2"}, r: opening.Checkpoint{State: state(sample)},
			fails: []string{"--sample (1/38) differs from f, which has 1/39", "--sample-seed (2) differs from f, which has 1"}},
		{name: "a sample of a file without one is reported", args: []string{"--sample", "1/38"}, r: opening.Checkpoint{State: state(nil)},
			fails: []string{"--sample (1/38) differs from f, which has 1/1"}},
		{name: "all records are no sample", args: []string{"--sample", "1/1"}, r: opening.Checkpoint{State: state(nil)},
			want: func(s *spec.Spec) { s.Deal.Workers, s.Deal.Batch = 3, 8 }},
		{name: "groups keep the order's batch", r: opening.Checkpoint{State: state(grouped)},
			want: func(s *spec.Spec) {
				s.Order.Groups, s.Order.Batch = 4, 8
				s.Deal.Workers, s.Deal.Batch = 3, 8
			}},
		{name: "with groups the batch can't change", args: []string{"--batch", "2"}, r: opening.Checkpoint{State: state(grouped)},
			fails: []string{"--batch (2) differs from f, which has 8"}},
		{name: "a contiguous deal", r: opening.Checkpoint{State: state(func(s *checkpoint.State) {
			s.Done[1].Dealing, s.Done[1].Batch = spec.DealContiguous, 1
		})},
			want: func(s *spec.Spec) { s.Deal.Workers, s.Deal.Dealing = 3, spec.DealContiguous }},
		{name: "the short form brings the epoch alone", args: []string{"--seed", "3"}, r: opening.Checkpoint{Short: opening.Short{Epoch: &epoch}},
			want: func(s *spec.Spec) { s.Order, s.Epoch = spec.Default().Order, 7; s.Order.Seed = 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := parsed(t, c.args...)
			c.r.Path = "f"
			got, err := c.r.Apply(d.spec, d.given)
			if c.fails != nil {
				for _, part := range c.fails {
					require.ErrorContains(t, err, part)
				}
				require.Equal(t, exit.Usage, exit.CodeOf(err))
				return
			}
			require.NoError(t, err)
			want := spec.Default()
			want.Order, want.Epoch = file, 5
			c.want(&want)
			require.Equal(t, want, got)
		})
	}
}

func TestCatWorkerFlags(t *testing.T) {
	for _, c := range []struct {
		args            []string
		worker, workers uint64
	}{
		{nil, 0, 1},
		{[]string{"--worker", "2/4"}, 2, 4},
		{[]string{"--workers", "4", "--worker", "3"}, 3, 4},
		{[]string{"--workers", "4", "--worker", "3/4"}, 3, 4},
	} {
		o := &streamFlags{}
		cmd := &cobra.Command{Use: "x"}
		o.add(cmd)
		require.NoError(t, cmd.ParseFlags(c.args))
		s, _, err := o.resolveStream("data")
		require.NoError(t, err)
		require.Equal(t, c.workers, s.Deal.Workers, c.args)
		require.Equal(t, c.worker, o.share.worker, c.args)
	}
}

func TestSizesRoundTrip(t *testing.T) {
	for text, n := range map[string]uint64{"0": 0, "1": 1, "1000": 1000, "256KiB": 256 << 10, "1GiB": 1 << 30, "1025KiB": 1025 << 10, "2TiB": 2 << 40, "1048577": 1<<20 + 1} {
		require.Equal(t, text, terminal.Size(n))
		var v uint64
		require.NoError(t, sizeValue[uint64]{&v}.Set(text))
		require.Equal(t, n, v)
	}
	var v int64
	require.NoError(t, sizeValue[int64]{&v}.Set("1.5 MiB"))
	require.EqualValues(t, 3<<19, v)
	for _, bad := range []string{"", "-1", "x", "1XB", "9EiB"} {
		require.Error(t, sizeValue[int64]{&v}.Set(bad), bad)
	}
}

func TestCounts(t *testing.T) {
	got, err := parseCounts("1, 20,3")
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 20, 3}, got)
	for _, bad := range []string{"", "1,", "-1", "1;2", "99999999999999999999"} {
		_, err := parseCounts(bad)
		require.Error(t, err, bad)
	}
}

func TestSplitFlagsRequirePart(t *testing.T) {
	for _, args := range [][]string{{"--split-seed", "3"}, {"--split-by", "shard"}} {
		_, _, err := parsed(t, args...).resolve("data")
		require.Equal(t, exit.Usage, exit.CodeOf(err))
		require.ErrorContains(t, err, "name a part, as in --split 0..0.9")
	}
	d := parsed(t, "--split", "0.5..1.0")
	require.Equal(t, "0.5..1", d.flags.Lookup("split").Value.String(), "as it is handed to other processes")
	require.Equal(t, "0..1", parsed(t, "--split", "0..1").flags.Lookup("split").Value.String())
	require.Empty(t, parsed(t).flags.Lookup("split").Value.String())
}

func TestFlagsOfBucketsRequireBucket(t *testing.T) {
	for _, args := range [][]string{{"--endpoint", "http://localhost:1"}, {"--region", "eu-west-1"}} {
		_, _, err := parsed(t, args...).resolve("data")
		require.Equal(t, exit.Usage, exit.CodeOf(err))
		require.ErrorContains(t, err, args[0]+" is for datasets in buckets")
		_, _, err = parsed(t, args...).resolve("s3://bucket/data")
		require.NoError(t, err)
		mixture := spec.Spec{Mix: spec.Mix{Sources: []spec.Source{{Dataset: "/data"}, {Dataset: "s3://bucket/data"}}}}
		require.NoError(t, parsed(t, args...).checkService(mixture))
	}
}

func TestSampleFlagRequiresOneOfN(t *testing.T) {
	for _, bad := range []string{"0/3", "2/3", "1/0", "1/65537", "1/03", "1/-2", "3", "", "0.5", "1/99999999999999999999"} {
		d := datasetFlags{}
		c := &cobra.Command{Use: "x"}
		d.add(c)
		require.ErrorContains(t, c.ParseFlags([]string{"--sample", bad}), "write 1/n with n between 1 and 65536, such as 1/39", bad)
	}
	_, _, err := parsed(t, "--sample-seed", "3").resolve("data")
	require.Equal(t, exit.Usage, exit.CodeOf(err))
	require.ErrorContains(t, err, "name a share, as in --sample 1/8")
	require.Equal(t, "1/39", parsed(t, "--sample", "1/39").flags.Lookup("sample").Value.String(), "as it is handed to other processes")
	require.Equal(t, "1/1", parsed(t, "--sample", "1/1").flags.Lookup("sample").Value.String())
	require.Empty(t, parsed(t).flags.Lookup("sample").Value.String())
}

func TestReadersFlagAcceptsUserNamesAndNumbers(t *testing.T) {
	var r readerUsers
	require.False(t, r.given())
	require.NoError(t, r.Set("root,1000"))
	require.NoError(t, r.Set("7"))
	require.Equal(t, fs.Readers{Users: []uint32{0, 1000, 7}}, r.Readers)
	require.Equal(t, "root,1000,7", r.String())
	require.NoError(t, r.Set("all"))
	require.True(t, r.All)
	for _, wrong := range []string{"", "no such user", "1,,2", "-1", "4294967296"} {
		require.ErrorContains(t, r.Set(wrong), "there is no user")
	}
}

func TestInvalidFlagsAreExplained(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"mount", "a", "b", "--worker", "4"}, "unknown flag: --worker: did you mean --workers? (see lsiofs mount --help)"},
		{[]string{"verify", "a", "--ordr"}, "unknown flag: --ordr: did you mean --order? (see lsiofs verify --help)"},
		{[]string{"cat", "a", "--jsn"}, "unknown flag: --jsn: did you mean --json? (see lsiofs cat --help)"},
		{[]string{"mount", "a", "b", "--nothing-like-it"}, "unknown flag: --nothing-like-it (see lsiofs mount --help)"},
		{[]string{"mount", "a", "b", "--epoch", "-1"}, "--epoch (-1) must be a whole number, 0 or more (see lsiofs mount --help)"},
		{[]string{"mount", "a", "b", "--read-timeout", "30"}, "--read-timeout (30) must be a time with its unit, such as 30s or 5m (see lsiofs mount --help)"},
		{[]string{"mount", "a", "b", "--log-level", "quiet"}, "--log-level (quiet) must be debug, info, warn or error (see lsiofs mount --help)"},
		{[]string{"mount", "a", "b", "--memory", "1x"}, `--memory: "1x" is not a size: write a number of bytes, or one with a unit, such as 256KiB or 1GiB (see lsiofs mount --help)`},
		{[]string{"cat", "a", "--exclude", "["}, `lsiofs: --exclude "[" is malformed: check its brackets and braces (see lsiofs cat --help)`},
		{[]string{"mount", "a", "b", "--restore", "some"}, `--restore ("some") must be one of owner, all`},
		{[]string{"mount", "a", "b", "--while-pid", "0"}, "--while-pid (0) must be the number of a process"},
		{[]string{"cat"}, "lsiofs cat takes DATASET, but there are none (see lsiofs cat --help)"},
		{[]string{"cat", "a.tar", "b.tar"}, "lsiofs cat takes DATASET, but there are 2 arguments; quote patterns, as in 'shard-*.tar', so that the shell does not expand them"},
		{[]string{"version", "a"}, "lsiofs version takes no arguments, but there is one argument (see lsiofs version --help)"},
		{[]string{"mount", "a", "b", "--log-file", "x"}, "--log-file needs --daemon: in the foreground the log goes to stderr"},
		{[]string{"cat", "a", "--array", "t", "--crop", "5,4"}, `"t" is not NAME=PATTERN, such as 'x=x-*.npy'; an array of a Zarr store is named with --format zarr`},
		{[]string{"status", "a"}, `unknown command "status" for "lsiofs": did you mean top?`},
		{[]string{"nope"}, `unknown command "nope" for "lsiofs" (see lsiofs --help)`},
	} {
		r := lsiofs(t, c.args...)
		require.Equal(t, exit.Usage, r.code, c.args)
		require.Contains(t, r.stderr, c.want)
	}
}

// A URL may contain a secret, so errors about --mix don't quote it.
func TestMixtureSourceErrorsQuoteNoURL(t *testing.T) {
	for text, words := range map[string]string{
		"https://host/x.tar?sig=secret":           `--mix: "https://…" is not a source of a mixture`,
		"web=https://user:secret@host/x.tar":      `--mix: source web: its weight ("https") must be`,
		"https://host/x.tar?sig=secret:more":      `is not a name of a source`,
		"web=0:https://user:secret@host/x.tar":    `--mix: source web: its weight ("0") must be`,
		"Web=1:https://user:secret@host/x.tar":    `--mix: "Web" is not a name of a source`,
		"web=1.2345678:s3://bucket?secret=secret": `--mix: source web: its weight`,
	} {
		r := lsiofs(t, "inspect", "--mix", text, "--mix", "b=1:/nowhere")
		require.Equal(t, exit.Usage, r.code, text)
		require.Contains(t, r.stderr, words)
		require.NotContains(t, r.stderr, "secret", text)
	}
}

// grown returns the flags of a growing dataset, parsed from a command line.
func grown(t *testing.T, args ...string) *datasetFlags {
	d := &datasetFlags{}
	c := &cobra.Command{Use: "x"}
	d.add(c)
	d.addMix(c)
	d.addGrow(c)
	d.addResume()
	require.NoError(t, c.ParseFlags(args))
	return d
}

func TestGrowingDatasetFlags(t *testing.T) {
	s, _, err := grown(t, "--grow", "--run", "/r", "--window", "500000units", "--newest", "mtime", "--min-new", "40000units",
		"--settle", "2s", "--poll", "5s", "--hold").resolve("data")
	require.NoError(t, err)
	require.Equal(t, spec.Grow{
		On: true, Run: "/r", Window: "500000units", Newest: spec.NewestMTime, MinNew: "40000units",
		Settle: 2 * time.Second, Poll: 5 * time.Second, Hold: true, Latest: true,
	}, s.Grow)
	s, _, err = grown(t, "--grow", "--epoch", "7").resolve("data")
	require.NoError(t, err)
	require.Equal(t, spec.Grow{On: true}, s.Grow, "an epoch that is named is not the latest")
	s, _, err = grown(t, "--snapshot", "f.gz").resolve("data")
	require.NoError(t, err)
	require.Equal(t, spec.Grow{Snapshot: "f.gz"}, s.Grow)
}

func TestFlagsIncompatibleWithGrowingAreRefused(t *testing.T) {
	for _, c := range []struct {
		args    []string
		dataset string
		says    string
	}{
		{[]string{"--grow", "--mix", "a=1:/a", "--mix", "b=1:/b"}, "", "--grow can't be combined with --mix"},
		{[]string{"--grow"}, "s3://bucket/games", "at a bucket or web server can't be followed"},
		{[]string{"--grow"}, "https://host/games/", "at a bucket or web server can't be followed"},
		{[]string{"--grow", "--array", "x=x.npy", "--array", "y=y.npy"}, "data", "--grow can't be combined with --array"},
		{[]string{"--grow", "--format", "files"}, "data", "--grow can't be combined with --format files"},
		{[]string{"--snapshot", "f.gz", "--format", "files"}, "data", "--snapshot can't be combined with --format files"},
		{[]string{"--window", "all"}, "data", "--window needs --grow"},
		{[]string{"--hold"}, "data", "--hold needs --grow"},
		{[]string{"--grow", "--window", "many"}, "data", `--window: "many" is not a window`},
		{[]string{"--grow", "--min-new", "5GiB"}, "data", `--min-new: "5GiB" is not an amount`},
		{[]string{"--grow", "--window", "4shards", "--min-new", "5shards"}, "data", "--min-new 5shards with --window 4shards would wait forever: an epoch never has more than 4 shards"},
		{[]string{"--grow", "--newest", "size"}, "data", "--newest"},
		{[]string{"--grow", "--poll", "0s"}, "data", "--poll must be above 0"},
		{[]string{"--grow", "--settle", "-1s"}, "data", "--settle must be above 0"},
		{[]string{"--grow", "--snapshot", "f.gz"}, "data", "--snapshot with --grow needs --resume"},
	} {
		_, _, err := grown(t, c.args...).resolve(c.dataset)
		require.ErrorContains(t, err, c.says, c.args)
		require.Equal(t, exit.Usage, exit.CodeOf(err), c.args)
	}
}

func TestCheckpointDeterminesRun(t *testing.T) {
	const run = "3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f"
	write := func(run string) string {
		s := checkpoint.State{Dataset: order64, Run: run, Order: spec.Default().Order, Epoch: 7,
			Done: []order.Done{{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{3}}}}
		path := filepath.Join(t.TempDir(), "ckpt.json")
		require.NoError(t, os.WriteFile(path, s.Marshal(100), 0o644))
		return path
	}
	s, _, err := grown(t, "--grow", "--resume", write(run), "--snapshot", "f.gz").resolve("data")
	require.NoError(t, err)
	require.Equal(t, spec.Grow{On: true, Of: run, Snapshot: "f.gz"}, s.Grow)
	require.EqualValues(t, 7, s.Epoch)
	_, _, err = grown(t, "--grow", "--resume", write("")).resolve("data")
	require.ErrorContains(t, err, "is a checkpoint of a dataset without --grow: leave --grow out")
	require.Equal(t, exit.Checkpoint, exit.CodeOf(err))
}

// order64 looks like a fingerprint.
const order64 = "8f296df5d33156eeca0e7e50ac078243a7b716c8098781a15423f056d317637d"
