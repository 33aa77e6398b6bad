// Package inspect does the work of the verb inspect. It reports what a dataset holds (shards,
// records, sizes, damage) and how well its shuffle mixes shards. The HTML page, the doctor's report
// and the warnings of a mount use it too.
//
//	index ──► sizes, damage ────────────────────┐
//	order ──record numbers──► quality: mixing ──┴──► Report
//
// It reads only the index, no shards. The order of the records is computed.
package inspect
