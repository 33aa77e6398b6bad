// Package window walks the order ahead of each reader and says what is wanted: by piece,
// before anybody asks for a record of it.
//
//	Reader (one pass over a sequence)
//	   │ at each call of Read: records k … k+n-1
//	   ├──► windows: the places that it reads at. What follows one of them is
//	   │            brought (Loader.Start), more of it while the reader reads on
//	   └──► Counts: for each piece, how many records readers will come to soon.
//	                A decoder on its way through a shard keeps what is counted
//
// Where storage wants to know what comes (storage.Planner), there is also a Lookahead for each
// reader:
//
//	Lookahead ──► goes on through the sequence, up to --lookahead bytes
//	   │        names each chunk at its first record; one bit a chunk
//	   └──► Planner.Plan: the chunks that come, nearest first, with what of the stream
//	        is before each; again when a quarter of it has been read
//
// What has not been planned is not read ahead: a service takes it for what somebody waits
// for. A reader that waits for long has what comes told again (Hurry). A reader that jumps, or is
// closed, has its plan forgotten. A disk cache (Plan.Keeps) is told when a chunk is done: if
// chunks go to memory, when the first of its records has gone out, for it is in memory then; if
// records are read from the cache, when the last has. Readers that share an epoch count the
// records of a chunk together. A walker holds at most 16 Ki wants, less where there are many
// readers, and looks at the clock once a plan.
//
// It knows no bytes, no memory and no shard: whether a record is there, and how its
// piece is brought, is asked of a Loader. What it tells is the order of what comes next,
// which is what anything below can plan by.
//
// # Locks
//
// A Reader has one owner at a time: calls are made with the lock of the reader that it
// is of, which is taken before that of the Loader. Counts are atomic. A Lookahead calls its Planner
// with that lock held.
package window
