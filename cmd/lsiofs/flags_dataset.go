package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// zarrFlags are the flags that define which crops of Zarr arrays are the records.
type zarrFlags struct {
	crop, stride, step, edge string
	selected, wrap           []string
	jitter, stack            bool
	list, scale, offset      string
	missing                  spec.Missing
}

// The values of --edge.
const (
	edgeDrop  = "drop"
	edgeCover = "cover"
)

func (z *zarrFlags) add(c *cobra.Command) {
	f := c.Flags()
	z.edge, z.missing = edgeDrop, spec.MissingFill
	f.StringVar(&z.crop, "crop", "", "format zarr: size of a crop in each dimension: `time=24,y=128,x=128`; crops span all of the other dimensions, or what --select selects of them")
	f.StringVar(&z.stride, "stride", "", "format zarr: distance between the origins of crops, such as `time=12,y=64,x=64` (default: the size of a crop)")
	f.StringVar(&z.step, "step", "", "format zarr: take every n-th element, such as `time=2`")
	f.BoolVar(&z.jitter, "jitter", false, "format zarr: move each origin at random within its stride, differently in each epoch")
	f.StringArrayVar(&z.selected, "select", nil, "format zarr: a region, such as `time=0:70000`, or indices in a dimension that --crop doesn't name, such as channel=3,5,7; separate several by commas, or repeat the flag")
	f.StringSliceVar(&z.wrap, "wrap", nil, "format zarr: periodic `dimensions`, such as longitude, in which crops continue from the end at the beginning")
	enumFlag(c, "edge", "format zarr: what to do with elements that the stride leaves at the end of a region: drop them, or cover them with another crop that ends there", &z.edge, edgeDrop, edgeCover)
	f.BoolVar(&z.stack, "stack", false, "format zarr: stack crops of equal shape from several arrays into one array with an extra dimension")
	f.StringVar(&z.list, "crops", "", "format zarr: npy `file` with the origins of crops, int64, one row per crop, instead of a grid")
	f.StringVar(&z.scale, "scale", "", "format zarr, --as float32: multiply elements by this `number`, or by one number per array, such as t=0.01,wind=0.1 (default: attribute scale_factor)")
	f.StringVar(&z.offset, "offset", "", "format zarr, --as float32: add this `number` after scaling, or one number per array (default: attribute add_offset)")
	enumFlag(c, "missing", "format zarr: for chunks that are not stored, use the fill value, or skip the crops that need them", &z.missing, spec.MissingFill, spec.MissingSkip)
}

// resolveZarr adds the flags to the spec. Crops have other good defaults for the order than records
// stored one after another.
func (d *datasetFlags) resolveZarr(s *spec.Spec) error {
	x, z := &s.Format.Zarr, &d.zarr
	var errs []error
	for _, f := range []struct {
		flag, text string
		to         *[]spec.DimValue
	}{{"--crop", z.crop, &x.Crop}, {"--stride", z.stride, &x.Stride}, {"--step", z.step, &x.Step}} {
		if f.text == "" {
			continue
		}
		var err error
		if *f.to, err = spec.ParseDims(f.text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.flag, err))
		}
	}
	for _, text := range z.selected {
		list, err := spec.ParseSelections(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--select: %w", err))
		}
		x.Select = append(x.Select, list...)
	}
	for _, f := range []struct {
		flag, text string
		to         *[]spec.FieldNumber
	}{{"--scale", z.scale, &x.Scale}, {"--offset", z.offset, &x.Offset}} {
		if f.text == "" {
			continue
		}
		var err error
		if *f.to, err = spec.ParseFieldNumbers(f.text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.flag, err))
		}
	}
	x.Wrap, x.Jitter, x.Stack, x.List = z.wrap, z.jitter, z.stack, z.list
	x.Cover = z.edge == edgeCover
	if d.given("missing") {
		x.Missing = z.missing
	}
	if s.Format.Name == "zarr" {
		x.As, s.Format.As = s.Format.As, ""
		errs = append(errs, d.zarrArrays(s))
		if d.given("read") && s.Read != spec.ReadAuto && s.Read != spec.ReadGather {
			errs = append(errs, fmt.Errorf("--read %s can't be combined with --format zarr, which always cuts crops from decoded chunks in memory: leave it out", s.Read))
		}
		d.zarrOrder(&s.Order)
	} else {
		for _, a := range s.Format.Arrays {
			if a.Name == "" {
				errs = append(errs, fmt.Errorf("--array: %q is not NAME=PATTERN, such as 'x=x-*.npy'; an array of a Zarr store is named with --format zarr --crop … (lsiofs help zarr)", a.Pattern))
			}
		}
	}
	return errors.Join(errs...)
}

// zarrArrays parses --array as paths of arrays.
func (d *datasetFlags) zarrArrays(s *spec.Spec) error {
	var texts []string
	for _, a := range s.Format.Arrays {
		text := a.Pattern
		if a.Name != "" {
			text = a.Name + "=" + text
		}
		texts = append(texts, text)
	}
	s.Format.Arrays = nil
	if len(texts) == 0 {
		return nil
	}
	var err error
	if s.Format.Zarr.Fields, err = spec.ParseFields(strings.Join(texts, ",")); err != nil {
		return fmt.Errorf("--array: %w", err)
	}
	return nil
}

// zarrOrder fills in the settings of the order that were not given. Crops close to each other share
// chunks of the array, so runs of them are shuffled in blocks.
func (d *datasetFlags) zarrOrder(o *spec.Order) {
	good := spec.ZarrOrder(*o)
	for name, set := range map[string]func(){
		"shuffle":       func() { o.Shuffle = good.Shuffle },
		"shuffle-size":  func() { o.SizeRecords = good.SizeRecords },
		"chunk-records": func() { o.ChunkRecords = good.ChunkRecords },
		"chunk-bytes":   func() { o.ChunkBytes = good.ChunkBytes },
	} {
		if !d.given(name) {
			set()
		}
	}
}

// arraysValue is the value of --array, which may be repeated, once for each array.
type arraysValue struct{ p *[]spec.Array }

func (v arraysValue) String() string {
	if v.p == nil {
		return ""
	}
	var texts []string
	for _, a := range *v.p {
		texts = append(texts, a.Name+"="+a.Pattern)
	}
	return strings.Join(texts, " ")
}

func (v arraysValue) Set(s string) error {
	name, pattern, is := strings.Cut(s, "=") // without a name it is an array of format zarr
	if !is {
		name, pattern = "", s
	}
	*v.p = append(*v.p, spec.Array{Name: name, Pattern: pattern})
	return nil
}

func (v arraysValue) Type() string { return "NAME=PATTERN" }

// excludeValue is the value of --exclude, which may be repeated, once for each pattern.
type excludeValue struct{ p *[]string }

func addExclude(f *pflag.FlagSet, p *[]string) {
	f.Var(excludeValue{p}, "exclude", "leave out files that match this `pattern`, relative to DATASET: --exclude 'val*' (at any depth), --exclude 'old/**'; may be repeated")
}

func (v excludeValue) String() string {
	if v.p == nil {
		return ""
	}
	return strings.Join(*v.p, " ")
}

func (v excludeValue) Set(s string) error {
	if err := discover.ExcludeError(s); err != nil {
		return err
	}
	*v.p = append(*v.p, s)
	return nil
}

func (v excludeValue) Type() string { return "pattern" }

// cutValue is the value of --cut: rows, or groups.
type cutValue struct{ groups *bool }

func (v cutValue) String() string {
	if v.groups != nil && *v.groups {
		return "groups"
	}
	return "rows"
}

func (v cutValue) Set(text string) error {
	if text != "rows" && text != "groups" {
		return fmt.Errorf("must be rows or groups")
	}
	*v.groups = text == "groups"
	return nil
}

func (v cutValue) Type() string { return "place" }

// asValue is the value of --as.
type asValue struct{ p *spec.As }

func (v asValue) String() string {
	if v.p == nil {
		return ""
	}
	return string(*v.p)
}

func (v asValue) Set(text string) (err error) {
	*v.p, err = spec.ParseAs(text)
	return err
}

func (v asValue) Type() string { return "type" }

// addService defines the flags that configure requests to a service, for every command that makes
// any.
func addService(f *pflag.FlagSet, r *spec.Remote) {
	f.StringVar(&r.Region, "region", r.Region, "s3: `region` of the bucket (default: from the environment, or as the service reports it)")
	f.StringVar(&r.Endpoint, "endpoint", r.Endpoint, "s3: `URL` of an S3-compatible service, instead of Amazon's")
	r.Addressing = cmp.Or(r.Addressing, spec.AddressingAuto) // commands without a dataset start with an empty value
	f.Var(enumValue[spec.Addressing]{&r.Addressing, []string{"auto", "path", "virtual"}}, "addressing", "s3: where requests name the bucket: in the path, or in the host (virtual), such as https://BUCKET.HOST; auto follows the profile, otherwise it uses virtual for Amazon and path elsewhere")
	f.BoolVar(&r.Anonymous, "anonymous", r.Anonymous, "s3: send no credentials, for public buckets")
	f.BoolVar(&r.RequesterPays, "requester-pays", r.RequesterPays, "s3: agree to pay for requests to a requester-pays bucket")
	f.StringVar(&r.AuthFile, "auth-file", r.AuthFile, "https: `file` with lines HOST TOKEN or HOST HEADER: VALUE, each sent only to that host; LSIOFS_HTTP_TOKEN in the environment and ~/.netrc are used, too")
	f.StringVar(&r.CAFile, "ca-file", r.CAFile, "PEM `file` of certificates to trust in addition to the system's")
	f.BoolVar(&r.Unversioned, "unversioned", r.Unversioned, "https: accept files without ETag and Last-Modified; then only a change of size is detected")
}

// checkService refuses flags of a service if the dataset is at none, where they would have no
// effect.
func (d *datasetFlags) checkService(s spec.Spec) error {
	remote := pipeline.IsRemote(s.Dataset)
	for _, x := range s.Mix.Sources {
		remote = remote || pipeline.IsRemote(x.Dataset)
	}
	for _, name := range []string{"endpoint", "region"} {
		if !remote && d.given(name) {
			return exit.Usagef("--%s is for datasets in buckets: write s3://BUCKET/PREFIX instead of a path, or leave --%s out", name, name)
		}
	}
	return nil
}

// probed returns the flags for commands that query a service without reading a dataset.
func probed(r spec.Remote) probe.Options {
	return probe.Options{
		Region: r.Region, Endpoint: r.Endpoint, Addressing: string(r.Addressing), Anonymous: r.Anonymous, RequesterPays: r.RequesterPays, CAFile: r.CAFile, AuthFile: r.AuthFile, Unversioned: r.Unversioned,
	}
}

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
