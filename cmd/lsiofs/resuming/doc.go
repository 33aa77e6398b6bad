// Package resuming reads the checkpoint of --resume. Its order and workers go into the
// spec, and its position becomes a position in the dataset.
package resuming
