// Package integration tests the whole program from outside: real mounts in
// child processes, real client programs, faults, and a second implementation of
// the order in Python (reference/) that streams are held against. It has no
// code of its own beside its tests; integration/check runs them. What it shares
// with the soak (soak/) and the hunt (hunt/) is in serve, reference and backing.
//
// Rules that keep a broken mount from hanging a test run for ever:
//
//   - the server is always another process than its readers, and a watchdog
//     kills it when a test takes too long: the kernel then wakes every reader;
//   - every client program runs with a time limit;
//   - a mount, a process or a temporary file that is left over when all tests
//     are done fails the run.
package integration
