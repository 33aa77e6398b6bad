// Package inflate decodes DEFLATE data (RFC 1951), the compressed bytes of gzip and zlib. It does
// not read files: its caller passes in input and takes decoded bytes out of its window.
//
//	var d inflate.Decoder
//	d.Reset()
//	for {
//		used, status := d.Decode(in)   // in: all input that is available and not used yet
//		in = in[used:]
//		out.Write(d.Window())
//		d.Take(len(d.Window()))
//		switch status {
//		case inflate.Input:  // append what follows to in; at the file's end the data is truncated
//		case inflate.Output: // there is more to come
//		case inflate.Block:  // at Position; only after StopAt
//		case inflate.End:    // in begins after the data
//		case inflate.Bad:    // invalid data
//		}
//	}
//
// # Data
//
// A stream is a sequence of blocks. Bits are taken from each byte lowest first.
//
//	block:   final (1 bit), type (2 bits), then
//	type 0:  up to the next byte, u16le n, u16le ^n, n bytes
//	type 1:  symbols in fixed codes
//	type 2:  symbols in codes whose lengths come first
//	symbol:  a literal byte 0…255, the block's end 256, or a length 257…285 and extra bits, then
//	         a distance 0…29 and extra bits: copy length bytes from distance bytes back
//
// It refuses the same data as Go's compress/flate: over-subscribed or incomplete codes, except for
// one with a single code of 1 bit and for an empty one, whose use is refused; more than 286 lengths
// or 30 distances; symbols without a meaning; a distance to before the first byte.
//
// # Technique
//
// A word holds up to 64 bits. It is filled by one load of 8 bytes, all of whose bits are or-ed in,
// including those beyond its count: or-ing them again later changes nothing. A symbol is looked up
// by its next 11 bits (9 for a distance) in a table whose entries contain everything needed: how
// many bits to drop, including extra ones, and the literal or the base of the length. Longer codes
// have a second table. After a length and its distance the next symbol is looked up before the
// match is copied. Matches are copied in pieces of 16 and 32 bytes, which may write beyond their
// end, into the slack after the window. This loop runs as long as slackIn bytes of input are
// available, without other checks of either end; the last bytes of an input are decoded symbol by
// symbol, each whole or not at all. So between calls a decoder holds less than a byte of input.
//
// In blocks of data that was already compressed, nearly all literals have 8 bits. There, four are
// looked up at once, at bits 0, 8, 16 and 24, without the dependency from symbol to symbol.
//
// The window is 32 KiB of history, 64 KiB of output and the slack. A stream begins at its first
// byte, so what is left of earlier streams is never read and need not be cleared.
//
// # Two implementations of the loop
//
// There are two versions of the loop. On amd64 and arm64 it reads and writes through unsafe
// pointers: its bounds are the two slacks, and the comment in loop_unsafe.go explains why they are
// enough. On other processors, and with the build tag inflate_checked, it uses slices, whose bounds
// the compiler checks. Tests and the fuzz target run both side by side, and put guard pages after
// window and input, which kill the program when they are accessed.
//
// # States
//
//	header ──► stored ──► header          a header is read whole or not at all
//	   │  └──► symbols ─► header          after the final block: End
//	   └─ Bad                             and it stays
//
// A Decoder entered at a block's first bit, with the bytes before it, continues like the one that
// was stopped there: see StopAt, Position, History and ResetAt.
package inflate
