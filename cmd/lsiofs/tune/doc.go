// Package tune does the work of the verb tune. It measures which reads a storage is fast
// at (with pipeline/storage/tune), stores the result for mounts, and shows it as tables.
package tune
