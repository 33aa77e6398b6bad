//go:build (!amd64 && !arm64) || inflate_checked

package inflate

// unsafeLoop is whether loop is implemented.
const unsafeLoop = false

// loop is never called.
func (d *Decoder) loop(b *bitReader) Status { return d.loopChecked(b) }
