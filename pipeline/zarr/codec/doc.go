// Package codec decodes the stored bytes of a brick, following the steps of a zarr.Chain. It knows
// nothing about arrays: package zarr copies elements out of the decoded brick.
//
// Usage:
//
//	d := codec.NewDecoder()
//	defer d.Close()
//	err := d.Decode(brick, stored, chain)     // brick has Array.BrickBytes()
//
// The size of each step's output is known or bounded in advance, and no step writes beyond it: a
// brick that claims more is damaged. Between steps the decoder uses two buffers, as large as needed
// so far.
package codec
