// Package kernelbench measures the ways in which a FUSE server may talk to the kernel, by a server that does
// nothing else: it mounts one file of constant bytes and answers READ with them. It shows what there is to
// gain before anything is built; lsiofs itself does not use it.
//
//	client ──pread──► kernel ──┬─ read, writev: /dev/fuse, one descriptor or a clone a thread ──► device.go
//	                           └─ io_uring, as package rings does it ────────────────────────────► serve.go
//
// The benchmark needs root, since it mounts by itself and changes two settings of the kernel:
// fs.fuse.max_pages_limit, for requests above 1 MiB, which it sets back, and fuse.enable_uring, which stays on.
//
//	go test -run - -bench Ways -benchtime 1x ./fs/kernelbench
//
// # What it found
//
// GiB/s, medians (least to greatest) of 5 rounds in turn, 2 cores, Linux 6.18, a virtual machine with nothing
// else to do. By io_uring each reply is copied once before it goes out.
//
//	a read    1 reader /dev/fuse   io_uring            4 readers /dev/fuse  io_uring
//	4 KiB     0.17 (0.16–0.20)     0.47 (0.46–0.48)    0.45 (0.42–0.51)     0.64 (0.58–0.70)
//	16 KiB    0.61 (0.57–0.71)     1.44 (1.34–1.48)    1.48 (1.25–1.59)     2.05 (1.87–2.11)
//	128 KiB   2.02 (1.78–2.60)     4.30 (4.13–4.53)    5.05 (4.53–5.27)     6.83 (5.67–7.07)
//	1 MiB     3.89 (3.55–3.93)     3.84 (3.63–3.99)    8.64 (7.74–9.24)     6.80 (6.71–7.23)
//
// A clone of the descriptor for each thread gains nothing: of 1 MiB 3.55 beside 3.89 for 1 reader, 8.67 beside 8.64 for
// 4. Requests of 4 MiB: 4.09 beside 3.89, and 8.32 beside 8.64.
//
// So io_uring is worth a transport of its own where reads are small: it saves a system call and a change of threads for
// each request. Where they are large the copy costs more than that.
package kernelbench
