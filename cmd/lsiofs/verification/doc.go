// Package verification shows what pipeline/verify finds: damaged shards, and whether
// the order is what it claims to be. It is the work of the verb verify.
package verification
