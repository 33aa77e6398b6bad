package meter

import "testing"

// BenchmarkReply is what counting adds to a request of a reader that waits for
// nothing: some hundred nanoseconds, of 20 µs and more.
func BenchmarkReply(b *testing.B) {
	var m Meter
	b.ReportAllocs()
	for b.Loop() {
		began := Now()
		m.Queued[FUSE].Add(1)
		answered := Now()
		m.Copied.Add(answered - began)
		m.Queued[FUSE].Add(-1)
		m.Replied.Add(Now() - answered)
	}
}

// BenchmarkWait is what it adds to one that waits.
func BenchmarkWait(b *testing.B) {
	var m Meter
	var via Ledger
	w := Waiter{Ledger: &m.Readers}
	b.ReportAllocs()
	for b.Loop() {
		w.End(w.Begin(Decompress, &via, nil, 0))
	}
}
