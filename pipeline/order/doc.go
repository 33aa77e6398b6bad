// Package order is ORDER.md: which record comes when, and for whom. It is pure:
// no I/O, no goroutines, no clock. Records are named by their number in dataset
// order, of all records of the dataset, whatever a split leaves of them.
//
// A Part is what a split leaves. Everything inside of an epoch counts in ranks,
// places among the records that are left; cursors turn these into records.
//
// An Epoch is G, and a Cursor walks it. A View is what is left of G after a
// number of resumes, dealt to workers: the sequence of records of each worker's
// file.
//
//	dataset ──split──► Part ──► chunks
//	chunks ──permute──► S ──cut──► groups ──cut──► lanes ──shuffle──► rota ──► G
//	G ──Done, Done, …──► G′ ──Deal──► worker 0, worker 1, …
//
// G is never stored. What is kept instead are the permuted chunks, and states of
// the reservoirs every so many positions, from which any position is reached by
// a short replay. Of what views have computed a Memory keeps a bounded part, for
// all views together: however many there are, and wherever they are read, what is
// dropped is computed again.
package order
