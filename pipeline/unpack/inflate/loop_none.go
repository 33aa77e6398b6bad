//go:build (!amd64 && !arm64) || inflate_checked

package inflate

// unsafeLoop says whether loop is there.
const unsafeLoop = false

// loop is called by nobody.
func (d *Decoder) loop(b *bitReader) Status { return d.loopChecked(b) }
