package storage

import "context"

// Checker is implemented by storages whose objects are computed from files with a structure of
// their own, which an index pass does not see.
type Checker interface {
	// Check looks at all that reads of an object rely on beside the data: that files have the
	// sizes that they need, and indexes in them say what is possible. An error names the files
	// that are damaged, some of them if there are many.
	Check(ctx context.Context, o Object) error
}
