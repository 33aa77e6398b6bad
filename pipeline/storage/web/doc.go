// Package web is files at web servers, by http:// and https://, as a remote.Source: each
// is named by the user, since web servers list nothing. It also has the Transport that
// other sources make their requests with.
//
// A server has to serve ranges of bytes, and to say by which a version of a file is told
// from others: a strong ETag, or, where it has none, the time of the last modification.
// This has a grain of one second: what is written twice within it looks the same.
package web
