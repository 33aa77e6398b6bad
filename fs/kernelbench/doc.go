// Package kernelbench measures the ways in which a FUSE server may talk to the kernel, by a server that does
// nothing else: it mounts one file of constant bytes and answers READ with them. It shows what there is to
// gain before anything is built; lsiofs itself does not use it.
//
//	client ──pread──► kernel ──┬─ read, writev: /dev/fuse, one descriptor or a clone a thread ──► device.go
//	                           └─ io_uring, as package rings does it ────────────────────────────► serve.go
//
// The benchmark needs root, since it mounts by itself and changes two settings of the kernel meanwhile:
// fs.fuse.max_pages_limit, for requests above 1 MiB, and fuse.enable_uring.
//
//	go test -run - -bench Ways -benchtime 1x ./fs/kernelbench
//
// # What it found
//
// GiB/s, medians (least to greatest) of 6 or 7 rounds in turn, 2 cores, Linux 6.18, a virtual machine beside
// other programs. Each reply is copied once before it goes out, as lsiofs puts records together.
//
//	a read            1 reader /dev/fuse   io_uring              4 readers /dev/fuse  io_uring
//	4 KiB             0.17 (0.09–0.23)     0.34 (0.26–0.40)      0.32 (0.26–0.37)     0.68 (0.34–0.74)
//	16 KiB            0.56 (0.42–0.87)     1.02 (0.60–1.24)      1.17 (0.85–1.31)     1.98 (1.06–2.36)
//	128 KiB, of cat   1.58 (1.26–2.87)     2.89 (1.72–3.57)      4.09 (3.02–4.51)     5.56 (4.09–6.91)
//	1 MiB             2.41 (1.71–3.04)     3.01 (2.58–3.38)      3.21 (1.81–4.11)     5.06 (3.75–6.11)
//
// Without the copy, of 1 MiB: a clone of the descriptor for each thread 2.65 beside 2.69 for 1 reader, 5.94 beside
// 5.78 for 4, no gain; requests of 4 MiB 2.53 beside 2.69, and 2.61 beside 5.78, a loss: what is copied
// has left the cores' caches before it is read.
//
// So io_uring is worth a transport of its own: it saves a system call and a change of threads for each request. A
// kernel that offers it has it switched off by default.
package kernelbench
