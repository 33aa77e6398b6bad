package gate

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// makeZarr is the value of --make that makes an array.
const makeZarr = "zarr"

// makeShards makes the dataset that the flags describe.
func (o *options) makeShards(ctx context.Context) error {
	switch {
	case len(o.paths) != 1:
		return exit.Usagef("--make takes the directory where the dataset is to be made (see --help)")
	case o.gz && o.zst || o.gz && o.lz4 || o.zst && o.lz4:
		return exit.Usagef("--gz, --zst and --lz4: choose one")
	case o.tar:
		o.shape.Codec = "tar"
	case o.make == "lc0" && !o.zst && !o.lz4:
		o.shape.Codec = "gz"
	case o.gz:
		o.shape.Codec = "gz"
	case o.zst:
		o.shape.Codec = "zst"
	case o.lz4:
		o.shape.Codec = "lz4"
	}
	if o.make == "lc0" && !o.given("bytes") {
		o.shape.RecordBytes = synthetic.FrameBytes
	}
	o.shape.Format, o.shape.Seed = o.make, o.seed
	return o.command().Make(ctx, bench.Make{Dir: o.paths[0], Shape: o.shape, Records: o.count, Shards: o.shards})
}

// edges are the flags of --make zarr.
type edges struct {
	shape, shard, chunk []int64
	plain               bool
}

func (e *edges) add(f *pflag.FlagSet) {
	f.Int64SliceVar(&e.shape, "shape", bench.ZarrShape, "with --make zarr: `edges` of the array")
	f.Int64SliceVar(&e.shard, "shard", bench.ZarrObject, "with --make zarr: `edges` of its shards; those of chunks for none")
	f.Int64SliceVar(&e.chunk, "chunk", bench.ZarrChunk, "with --make zarr: `edges` of its chunks")
	f.BoolVar(&e.plain, "plain", false, "with --make zarr --zst: without blosc")
}

// makeZarr makes the array that the flags describe.
func (o *options) makeZarr(ctx context.Context) error {
	codec := encode.None
	switch {
	case len(o.paths) != 1:
		return exit.Usagef("--make takes the directory where the dataset is to be made (see --help)")
	case o.gz || o.tar || o.given("records") || o.given("bytes") || o.given("shards"):
		return exit.Usagef("--make zarr has --shape, --shard, --chunk, --zst and --lz4; --gz, --tar, --records, --bytes and --shards are for other formats")
	case o.zst && o.lz4, o.array.plain && !o.zst:
		return exit.Usagef("--zst, --lz4 and --plain --zst: choose one")
	case o.array.plain:
		codec = encode.Zstd
	case o.zst:
		codec = encode.BloscZstd
	case o.lz4:
		codec = encode.BloscLZ4
	}
	return o.command().MakeZarr(ctx, bench.MakeZarr{
		Dir: o.paths[0], Shape: o.array.shape, Object: o.array.shard, Chunk: o.array.chunk, Codec: codec, DataType: "int16", Seed: o.seed,
	})
}
