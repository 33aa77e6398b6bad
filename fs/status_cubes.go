package fs

import "github.com/dustin/go-humanize"

// DescribeCubes writes what was decoded of Zarr arrays: nothing if records are not crops.
func (r *statusReport) DescribeCubes(line func(label, format string, args ...any)) {
	c := r.Pipeline.Cubes
	if c == nil {
		return
	}
	line("chunks", "%s decoded (%s stored), %s times already decoded when needed; %s in memory",
		humanize.Comma(int64(c.Decoded)), size(int64(c.StoredBytes)), humanize.Comma(int64(c.Found)), size(c.HeldBytes))
	if c.Blocks > 0 {
		line("blosc", "%s blocks decoded without the rest of their chunks", humanize.Comma(int64(c.Blocks)))
	}
}
