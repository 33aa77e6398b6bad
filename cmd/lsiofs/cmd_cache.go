package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/cache"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newCacheCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "Show, check, fill and clean the disk cache of buckets and web servers",
		Long: `Data that was read from a bucket or a web server is kept on a disk (--cache-dir), so
that the next epoch, or the next run, does not fetch it again. Mounts manage the cache
by themselves. Use these commands to inspect it, to fill it ahead of time, or to free
its space. They are safe while mounts use the cache.`,
		Example: `  lsiofs cache show
  lsiofs cache warm s3://bucket/train
  lsiofs cache clean --unused 30d`,
		Args: cobra.ArbitraryArgs,
		RunE: runParent,
	}
	c.AddCommand(newCacheShowCommand(g), newCacheVerifyCommand(g), newCacheCleanCommand(g), newCacheWarmCommand(g))
	return c
}

func newCacheShowCommand(g *globals) *cobra.Command {
	dir := ""
	c := &cobra.Command{
		Use:   "show",
		Short: "List the contents of the cache by folder",
		Long: `Lists the folders of buckets and web servers that have data in the cache: the number of
objects, how many of their bytes are cached, the disk space used, when they were last
used, and whether a mount uses them now. Compressed shards that a mount has decoded
have a line of their own, marked (decoded), including those of local datasets.`,
		Example: `  lsiofs cache show
  lsiofs cache show --cache-dir /nvme/lsiofs --json | jq .cached_bytes`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			return cache.Use(dir, g.ui, g.log(), func(d *diskcache.Directory) error {
				return cache.Show(c.Context(), d, time.Now(), g.ui)
			})
		},
	}
	addCacheDir(c.Flags(), &dir)
	return c
}

func newCacheVerifyCommand(g *globals) *cobra.Command {
	dir, repair, compare := "", false, false
	var service spec.Remote
	c := &cobra.Command{
		Use:   "verify",
		Short: "Check every page in the cache against its checksum",
		Long: `Reads the whole cache and lists corrupt data by object. If there is any, the command
exits with code ` + fmt.Sprint(int(exit.Verify)) + `. Readers check each page anyway, and fetch corrupt pages again; this
command finds a failing disk before they do.

--remote also compares completely cached objects with the checksums that their buckets
and web servers report: CRC32C, CRC64NVME, SHA and MD5 from S3 and Google Cloud Storage,
an ETag that is an MD5, Repr-Digest, Digest and Content-MD5. It fetches no data. It
reports objects of which the service now has another version, which is not damage, and
objects without a checksum, which it can't check. lsiofs verify URL reads the bucket
itself.`,
		Example: `  lsiofs cache verify
  lsiofs cache verify --repair
  lsiofs cache verify --remote --anonymous`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			return cache.Use(dir, g.ui, g.log(), func(d *diskcache.Directory) error {
				err := cache.Verify(c.Context(), d, repair, g.ui)
				if !compare || err != nil && exit.CodeOf(err) != exit.Verify {
					return err
				}
				return errors.Join(err, cache.CompareRemote(c.Context(), d, repair, probed(service), g.ui))
			})
		},
	}
	addCacheDir(c.Flags(), &dir)
	addService(c.Flags(), &service)
	c.Flags().BoolVar(&compare, "remote", false, "also compare completely cached objects with the checksums that the services report")
	c.Flags().BoolVar(&repair, "repair", false, "remove corrupt data from the cache; it is fetched again when it is read")
	return c
}

func newCacheCleanCommand(g *globals) *cobra.Command {
	dir, all := "", false
	var unused cache.Unused
	c := &cobra.Command{
		Use:   "clean [URL]",
		Short: "Remove data that no mount uses from the cache",
		Long: `Removes objects from the cache: the object URL and all objects below it, objects that
have not been used for some time (--unused), objects that match both, or all objects
(--all). Objects that a mount uses are kept.`,
		Example: `  lsiofs cache clean s3://bucket/old
  lsiofs cache clean --unused 30d
  lsiofs cache clean --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			which := diskcache.Which{UnusedFor: time.Duration(unused), Now: time.Now()}
			switch {
			case all && (len(args) > 0 || unused > 0):
				return exit.Usagef("--all removes everything: leave it out, or leave out URL and --unused")
			case !all && len(args) == 0 && unused == 0:
				return exit.Usagef("nothing to remove is named: give a URL, --unused 30d, or --all")
			case len(args) > 0:
				if which.URL = cache.Canonical(args[0]); which.URL == "" {
					return exit.Usagef("%q is not a URL: name one that lsiofs cache show lists, or --all", args[0])
				}
			}
			return cache.Use(dir, g.ui, g.log(), func(d *diskcache.Directory) error {
				return cache.Clean(c.Context(), d, which, g.ui)
			})
		},
	}
	addCacheDir(c.Flags(), &dir)
	c.Flags().Var(&unused, "unused", "only objects that have not been used for this long")
	c.Flags().BoolVar(&all, "all", false, "remove all objects")
	return c
}

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
