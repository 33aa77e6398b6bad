// Package codec decodes the stored bytes of a chunk, following the steps of a zarr.Chain. It knows
// nothing about arrays: package zarr copies elements out of the decoded chunk.
//
// Usage:
//
//	d := codec.NewDecoder()
//	defer d.Close()
//	err := d.Decode(chunk, stored, chain)     // chunk has Array.BrickBytes()
//
// The size of each step's output is known or bounded in advance, and no step writes beyond it: a
// chunk that claims more is damaged. Between steps the decoder uses two buffers, as large as needed
// so far.
package codec
