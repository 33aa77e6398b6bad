package inflate

// unsafeLoop says whether loop is there.
const unsafeLoop = false

func (d *Decoder) loop(b *bitReader) Status { return d.loopChecked(b) }
