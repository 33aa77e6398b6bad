// Package ahead walks the order ahead of each reader and says what is wanted: by piece,
// before anybody asks for a record of it.
//
//	Reader (one pass over a sequence)
//	   │ at each call of Lend: records k … k+n-1
//	   ├──► windows: the places that it reads at. What follows one of them is
//	   │            brought (Stock.Start), more of it while the reader reads on
//	   └──► Counts: for each piece, how many records readers will come to soon.
//	                A decoder on its way through a shard keeps what is counted
//
// It knows no bytes, no memory and no shard: whether a record is there, and how its
// piece is brought, is asked of a Stock. What it tells is the order of what comes next,
// which is what anything below can plan by.
//
// # Locks
//
// A Reader has one owner at a time: calls are made with the lock of the reader that it
// is of, which is taken before that of the Stock. Counts are atomic.
package ahead
