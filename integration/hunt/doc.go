// Package hunt looks for wrong bytes: it changes, cuts, replaces and stalls shards
// while programs read a mount of them, and holds every reply against the reference.
// It has no code of its own beside its tests:
//
//	go test -v ./integration/hunt                              a minute
//	go test -v ./integration/hunt -hunt 8h -timeout 0          as long as you like
//	go test -v ./integration/hunt -hunt-seed 7 -hunt-only 31   one schedule again
//
// # The rule
//
// Right bytes or an error. A dataset is made in version A, mounted, and read. A
// reply to read() has all bytes that were asked for, up to the end of the stream,
// and they are those of version A; or it is EIO, or ESTALE after a restore, and
// nothing else: no EINTR, no short read, no zeros, no byte of a later version. Five
// things follow from that and are held, too:
//
//   - a read that needs no shard that was touched gives its bytes, also while
//     other shards stall or are gone;
//   - no read hangs: while a shard stalls, readers of healthy ones go on;
//   - after a fault that has changed no file (a stall, EIO, a signal, a file that
//     was away for a while), all reads give their bytes again;
//   - a new mount gives what the reference makes of the dataset as it is then;
//   - the server ends with exit code 0 and leaves no mount, process or file behind,
//     and holds no more goroutines, descriptors and memory than it should.
//
// # A schedule
//
// A schedule is one mount: a way that bytes take through the program (ways_test.go),
// a file system that the dataset lies on (sources_test.go), an order, readers
// (readers_test.go), and steps, each of which does something to one or several
// shards (changes_test.go), to the storage (faults_test.go) or to the server and
// its clients (nuisances_test.go). That a way was really taken is read from status.json.
// The first schedules are enumerated: each way with each change. Then come random
// ones. All that a schedule draws comes from the seed and its number, so both name
// it; when its steps meet its readers is the machine's affair.
//
// # How wrong bytes are recognised
//
// Each 16 bytes of a shard's content say where they belong and which version they
// are of (words_test.go). So the message about a wrong byte names the shard, place
// and version that came instead, and what had been done to that shard when.
//
// # What is not held
//
// What no file system tells is not tried: a store through a mapping on tmpfs, which
// changes no attribute; a change that puts size, mtime and inode back; and, on a FUSE
// that goes by paths, another file of the same size and time, which has the inode
// number of the first one there. A file system that answers a read in part is broken
// unless the read was direct.
package hunt
