// Package verification does the work of the verb verify. It shows what pipeline/verify
// finds: damaged shards, and whether the order keeps its promises.
package verification
