// Package codec carries out the steps by which the stored bytes of a brick are decoded: a
// zarr.Chain. It knows nothing of arrays, and copies nothing: package zarr does that from what
// it decodes.
//
// A use:
//
//	d := codec.NewDecoder()
//	defer d.Close()
//	err := d.Decode(brick, stored, chain)     // brick has Array.BrickBytes()
//
// Every size between two steps is known, or bounded, before the step is taken, and no step
// writes beyond it: a brick that says otherwise is damaged. Between steps the decoder keeps two
// buffers of the largest sizes met.
package codec
