// Package tune measures which reads a storage likes, stores the result for mounts to
// use, and shows it as tables. It is the work of the verb tune; the measurement itself
// is pipeline/storage/tune.
package tune
