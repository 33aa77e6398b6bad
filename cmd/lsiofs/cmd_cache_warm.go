package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
)

func newCacheWarmCommand(g *globals) *cobra.Command {
	d := &datasetFlags{}
	var records recordsValue
	c := &cobra.Command{
		Use:   "warm URL",
		Short: "Fetch a dataset, or the beginning of an epoch, into the cache",
		Long: `Fetches a dataset's shards into the cache, in large requests, and indexes the dataset
if necessary. Data that is already cached is not fetched again. Use it, for example,
before you rent machines with GPUs. It fails if the cache is too small for the whole
dataset; what was fetched stays in the cache. After an interruption, run it again to
continue.

With --records, it fetches only what an epoch (--epoch) reads for these records, over
all workers: 10000 for the first 10000, or 10000..20000. Which records these are depends
on --seed and on the shuffle, so give the same flags as for the mount. Compressed shards
are fetched whole. With --sample, the records are those of the epoch's sample.`,
		Example: `  lsiofs cache warm s3://bucket/train
  lsiofs cache warm s3://bucket/train --epoch 3 --records 100000
  lsiofs cache warm 's3://bucket/train/shard-{000..146}.tar' --cache-dir /nvme/lsiofs --cache-size 200GiB`,
		Args: exactArgs("URL"),
		RunE: func(c *cobra.Command, args []string) error {
			return runCacheWarm(c.Context(), d, args[0], records, g)
		},
	}
	d.add(c)
	c.Flags().Var(&records, "records", "fetch only the chunks that contain the epoch's first N records, or its records A to B-1: `N|A..B`")
	return c
}

// recordsValue is the value of --records: "N", which is 0..N, or "A..B". It is unset if to is 0.
type recordsValue struct{ from, to uint64 }

func (v *recordsValue) String() string {
	switch {
	case v.to == 0:
		return ""
	case v.from == 0:
		return strconv.FormatUint(v.to, 10)
	}
	return fmt.Sprintf("%d..%d", v.from, v.to)
}

func (v *recordsValue) Set(text string) (err error) {
	from, to, both := strings.Cut(text, "..")
	if !both {
		from, to = "0", text
	}
	var r recordsValue
	if r.from, err = strconv.ParseUint(from, 10, 64); err == nil {
		r.to, err = strconv.ParseUint(to, 10, 64)
	}
	if err != nil || r.from >= r.to {
		return fmt.Errorf("%q is neither a number of records, such as 10000, nor a range of them, such as 10000..20000", text)
	}
	*v = r
	return nil
}

func (v *recordsValue) Type() string { return "N|A..B" }

// warmed is the result of warm, printed with --json.
type warmed struct {
	Dataset string          `json:"dataset"`
	Bytes   int64           `json:"bytes"` // of the dataset's shards; with --records, of these records
	Cache   diskcache.Stats `json:"cache"`
}

func runCacheWarm(ctx context.Context, o *datasetFlags, dataset string, records recordsValue, g *globals) error {
	s, _, err := o.resolve(dataset)
	if err != nil {
		return err
	}
	s.Cache.Warm = true
	if err := formats.Validate(s); err != nil {
		return exit.With(exit.Usage, err)
	}
	d, err := opening.OpenShowing(ctx, g.ui, g.log(), s, pipeline.Options{})
	if err != nil {
		return err
	}
	return opening.Close(d, warm(ctx, d, records, g.ui), g.log())
}

func warm(ctx context.Context, d *pipeline.Dataset, records recordsValue, u *terminal.UI) error {
	view := opening.NewFilling(u)
	defer view.Clear()
	s := d.Spec()
	w := warmed{Dataset: s.Dataset}
	show := func(f opening.Filled) {
		w.Bytes = f.BytesTotal
		view.Show(f)
	}
	fill := func() error { return opening.Fill(ctx, d, show) }
	if records.to > 0 {
		if records.from >= d.Records() {
			return exit.Usagef("--records %s: an epoch has %s", &records, terminal.Plural(d.Records(), "record"))
		}
		to := min(records.to, d.Records())
		fill = func() error { return opening.FillRecords(ctx, d, s.Epoch, records.from, to, show) }
	}
	if err := fill(); err != nil {
		return err
	}
	w.Cache = *d.Status().Cache
	if u.JSON {
		return u.Emit(w)
	}
	return u.Printf("%s of %s in %s\n", terminal.Bytes(w.Bytes), w.Dataset, w.Cache.Dir)
}
