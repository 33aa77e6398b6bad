// Package hunt looks for wrong bytes. It changes, cuts, replaces and stalls shards while programs
// read a mount of them, and compares every reply with the reference. It only has tests:
//
//	go test -v ./integration/hunt                              a minute
//	go test -v ./integration/hunt -hunt 8h -timeout 0          as long as you like
//	go test -v ./integration/hunt -hunt-seed 7 -hunt-only 31   one schedule again
//
// # The rule
//
// Right bytes or an error. A dataset is made in version A, mounted, and read. A read() has one of
// two outcomes:
//
//   - all requested bytes, up to the end of the stream, from version A;
//   - EIO, or ESTALE after a restore.
//
// Anything else is a failure: EINTR, a short read, zeros, a byte of a later version. Five
// consequences of the rule are checked too:
//
//   - A read that only needs untouched shards returns its bytes, even while others stall or are
//     gone.
//   - No read hangs: while a shard stalls, readers of healthy ones make progress.
//   - After a fault that has changed no file (a stall, EIO, a signal, a file that was temporarily
//     renamed), all reads return their bytes again.
//   - A new mount returns what the reference computes from the dataset as it is then.
//   - The server ends with exit code 0. It leaves no mount, process or file behind, and holds
//     no more goroutines, descriptors and memory than it should.
//
// # A schedule
//
// A schedule is one mount. It consists of:
//
//   - a path that bytes take through the program (ways_test.go); status.json shows whether it was
//     really taken;
//   - a file system that holds the dataset (sources_test.go);
//   - an order, and readers (readers_test.go);
//   - steps, each of which acts on one or several shards (changes_test.go), on the storage
//     (faults_test.go), or on the server and its clients (nuisances_test.go).
//
// The first schedules are enumerated: each way with each change. Random ones follow. All random
// choices of a schedule derive from the seed and the schedule's number, so these two identify it.
// Only the timing of its steps and readers depends on the machine.
//
// # How wrong bytes are recognised
//
// Each 16 bytes of a shard's content encode their place and version (words_test.go). So the message
// about a wrong byte names the shard, place and version that came instead, and lists what was done
// to that shard and when.
//
// # What is not tested
//
// Changes that no file system reports are not tested:
//
//   - a store through a mapping on tmpfs, which changes no attribute;
//   - a change that restores size, mtime and inode;
//   - on a FUSE file system that works with paths, another file of the same size and time, which
//     has the inode number of the first one there.
//
// A file system that answers a read only in part is considered broken, unless the read was direct.
package hunt
