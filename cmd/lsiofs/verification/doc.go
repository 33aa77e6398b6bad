// Package verification does the work of the verb verify. It shows the findings of pipeline/verify:
// damaged shards, and whether the order keeps its promises.
package verification
