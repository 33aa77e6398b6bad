package identity

// Way is a directory on the way down from the root of a listing, and those above it; nil is the
// way to the root. It is immutable.
type Way struct {
	device, inode uint64
	above         *Way
}

// Down is the way on into a directory.
func (w *Way) Down(device, inode uint64) *Way { return &Way{device, inode, w} }

// Has reports whether a directory is on the way: a link to it leads back.
func (w *Way) Has(device, inode uint64) bool {
	for ; w != nil; w = w.above {
		if w.device == device && w.inode == inode {
			return true
		}
	}
	return false
}
