// Package resuming reads the checkpoint of --resume: what it says of order and
// workers goes into the spec, and where it stands becomes a position in the dataset.
package resuming
