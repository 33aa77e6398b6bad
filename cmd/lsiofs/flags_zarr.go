package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/pipeline/spec"
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
