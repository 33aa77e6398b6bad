// Package service is what datasets on a network are measured with: a web server that
// answers as late as a bucket far away, and a bare client, which reads what it is told
// to and does nothing else. Each is a process of its own, so that its processor time is
// counted apart from that of lsiofs.
//
//	bench ──asks──► Serve: objects of a directory, first bytes after 20 ± 5 ms; what was asked for
//	      ──asks──► Loop:  N goroutines, one request at a time each, by net/http
package service
