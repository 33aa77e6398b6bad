package storage

import "context"

// Joiner is implemented by storages whose objects are put together from several
// files.
type Joiner interface {
	// Join makes an object of one file of each name, which List has listed. Errors
	// name the file that is no part of an object.
	Join(ctx context.Context, names []string, files []Object) (Object, error)
}
