// Package tune does the work of the verb tune. It measures which reads are fast on a storage (with
// pipeline/tune), stores the result for mounts, and shows it as tables.
package tune
