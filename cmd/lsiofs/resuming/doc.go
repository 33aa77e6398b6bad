// Package resuming reads the checkpoint of --resume. It applies the checkpoint's order and workers
// to the spec, and turns its position into a position in the dataset.
package resuming
