package main

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// addCache defines the disk cache's flags of all commands that read a dataset.
func addCache(f *pflag.FlagSet, c *spec.Cache) {
	addCacheDir(f, &c.Dir)
	f.Var(cacheSizeValue{c}, "cache-size", "maximum size of the disk cache for all datasets: auto (enough for this dataset, or half of the free space), off, a size, or a percentage of the file system. If it is given, datasets on network file systems are cached, too")
	f.Var(cacheReserveValue{&c.ReserveBytes}, "cache-reserve", "free space that the cache leaves on its file system: auto (a tenth, at most 20GiB) or a size")
}

func addCacheDir(f *pflag.FlagSet, dir *string) {
	f.StringVar(dir, "cache-dir", *dir, "`directory` on a local disk for data that was read from buckets and web servers, and for decoded shards (default: lsiofs/data in the user's cache directory)")
}

// addFill defines the flags of commands that may fill a cache.
func addFill(c *cobra.Command, s *spec.Cache) {
	s.Fill = spec.FillAuto
	enumFlag(c, "cache-fill", "after the first read, fetch the rest of the dataset into the cache whenever no reader is waiting for the network", &s.Fill, spec.FillAuto, spec.FillOff)
	c.Flags().BoolVar(&s.Warm, "warm", false, "fetch the whole dataset into the cache before mounting it")
}

// cacheSizeValue is the value of --cache-size.
type cacheSizeValue struct{ c *spec.Cache }

func (v cacheSizeValue) String() string {
	if v.c == nil || !v.c.Off && v.c.SizeBytes == 0 && v.c.SizePercent == 0 {
		return "auto"
	}
	return diskcache.Size{Off: v.c.Off, Bytes: v.c.SizeBytes, Percent: v.c.SizePercent}.String()
}

func (v cacheSizeValue) Set(text string) error {
	s, err := diskcache.ParseSize(text)
	if err == nil {
		v.c.Off, v.c.SizeBytes, v.c.SizePercent = s.Off, s.Bytes, s.Percent
	}
	return err
}

func (v cacheSizeValue) Type() string { return "size|N%|auto|off" }

// cacheReserveValue is the value of --cache-reserve.
type cacheReserveValue struct{ p *int64 }

func (v cacheReserveValue) String() string {
	if v.p == nil || *v.p < 0 {
		return "auto"
	}
	return terminal.Size(uint64(*v.p))
}

func (v cacheReserveValue) Set(text string) error {
	if text == "auto" {
		*v.p = -1
		return nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("%q is neither auto nor a size, such as 20GiB", text)
	}
	*v.p = int64(n)
	return nil
}

func (v cacheReserveValue) Type() string { return "size|auto" }
