// Package inflate decodes DEFLATE data (RFC 1951), the compressed bytes of gzip and zlib. It
// reads no files: its caller gives it input and takes decoded bytes out of its window.
//
//	var d inflate.Decoder
//	d.Reset()
//	for {
//		used, status := d.Decode(in)   // in: all that is at hand and not used yet
//		in = in[used:]
//		out.Write(d.Window())
//		d.Take(len(d.Window()))
//		switch status {
//		case inflate.Input:  // in is to be longer, by what follows it; at the file's end it is cut
//		case inflate.Output: // there is more to come
//		case inflate.Block:  // where Position tells; only after StopAt
//		case inflate.End:    // in begins behind the data
//		case inflate.Bad:    // no such data
//		}
//	}
//
// # Data
//
// A stream is a row of blocks. Bits are taken from each byte lowest first.
//
//	block:   final (1 bit), type (2 bits), then
//	type 0:  up to the next byte, u16le n, u16le ^n, n bytes
//	type 1:  symbols in fixed codes
//	type 2:  symbols in codes whose lengths come first
//	symbol:  a literal byte 0…255, the block's end 256, or a length 257…285 and extra bits, then
//	         a distance 0…29 and extra bits: copy length bytes from distance bytes back
//
// What is refused is what Go's compress/flate refuses: codes that are over- or incomplete, but
// for one of a single code of 1 bit and an empty one, whose use is refused; more than 286 lengths
// or 30 distances; symbols that mean nothing; a distance to before the first byte.
//
// # Technique
//
// Up to 64 bits lie in a word, filled by one load of 8 bytes of which all bits are or-ed in,
// also those beyond its count: or-ing them again later changes nothing. A symbol is looked up by
// its next 11 bits (9 of a distance) in a table whose entries say all there is to do: how many
// bits to drop, extra ones included, and the literal or the length to start from. Longer codes
// have a second table. After a length and its distance the next symbol is looked up before the
// match is copied. Matches are copied in pieces of 16 and 32 bytes, which may write beyond their
// end: the slack behind the window takes it. This loop runs while slackIn bytes of input are at
// hand, without other checks of either end; the last bytes of an input are decoded symbol by
// symbol, each whole or not at all. So a decoder between calls holds less than a byte of input.
//
// In blocks of data that was compressed before, nearly all literals have 8 bits. There, four are
// looked up at once at bits 0, 8, 16 and 24, which does not wait from symbol to symbol.
//
// The window is 32 KiB of history, 64 KiB of output and the slack. A stream begins at its first
// byte, so that what is there from earlier streams is never looked at, nor cleared.
//
// # Forms
//
// The loop is there twice. On amd64 and arm64 it reads and writes through unsafe pointers: its
// bounds are the two slacks, and the comment in loop_unsafe.go says why they are enough. On other
// processors, and with the build tag inflate_checked, it uses slices, whose bounds the compiler
// checks. Tests and the fuzz target run both beside each other, and have pages behind window and
// input that end the program when they are touched.
//
// # States
//
//	header ──► stored ──► header          a header is read whole or not at all
//	   │  └──► symbols ─► header          behind the final block: End
//	   └─ Bad                             and it stays
//
// A Decoder entered at a block's first bit, with the bytes before it, goes on as the one that was
// stopped there: see StopAt, Position, History and ResetAt.
package inflate
