// Package service is used to measure datasets on a network. It has a web server with the latency of
// a bucket, and a bare client, which reads given ranges and does nothing else. Each runs in a
// separate process, so that its processor time is counted apart from that of lsiofs.
//
//	bench ──asks──► Serve: objects of a directory, first bytes after 20 ± 5 ms; what was asked for
//	      ──asks──► Loop:  N goroutines, one request at a time each, by net/http
package service
