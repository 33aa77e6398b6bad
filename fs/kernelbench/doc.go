// Package kernelbench compares the ways in which a FUSE server can talk to the kernel, with a
// server that does nothing else: it mounts one file of constant bytes and answers READ with them.
// It shows what there is to gain before anything is built; lsiofs itself does not use it.
//
//	client ──pread──► kernel ──┬─ read, writev: /dev/fuse, one descriptor or a clone per thread ─► device.go
//	                           └─ io_uring, through package rings ───────────────────────────────► serve.go
//
// The benchmark needs root, because it mounts without a helper and changes two kernel settings:
// fs.fuse.max_pages_limit, for requests above 1 MiB, which it restores, and fuse.enable_uring,
// which stays on.
//
//	go test -run - -bench Ways -benchtime 1x ./fs/kernelbench
//
// # Results
//
// GiB/s, medians (least to greatest) of 5 alternating rounds, 2 cores, Linux 6.18, an otherwise
// idle virtual machine. With io_uring each reply is copied once before it is sent.
//
//	a read    1 reader /dev/fuse   io_uring            4 readers /dev/fuse  io_uring
//	4 KiB     0.17 (0.16–0.20)     0.47 (0.46–0.48)    0.45 (0.42–0.51)     0.64 (0.58–0.70)
//	16 KiB    0.61 (0.57–0.71)     1.44 (1.34–1.48)    1.48 (1.25–1.59)     2.05 (1.87–2.11)
//	128 KiB   2.02 (1.78–2.60)     4.30 (4.13–4.53)    5.05 (4.53–5.27)     6.83 (5.67–7.07)
//	1 MiB     3.89 (3.55–3.93)     3.84 (3.63–3.99)    8.64 (7.74–9.24)     6.80 (6.71–7.23)
//
// A clone of the descriptor for each thread gains nothing: with 1 MiB, 3.55 instead of 3.89 for 1
// reader, and 8.67 instead of 8.64 for 4. Requests of 4 MiB reach 4.09 instead of 3.89, and 8.32
// instead of 8.64.
//
// So for small reads io_uring is worth a separate transport: it saves a system call and a switch of
// threads for each request. For large reads the copy costs more than that.
package kernelbench
