// Package inspect finds out what a dataset holds (shards, records, sizes, damage) and
// how well its shuffle mixes shards. It is the work of the verb inspect; the page,
// the doctor's report and the warnings of a mount use it, too.
//
// Nothing is read but the index: sizes come from it, and the order of records is
// computed.
package inspect
