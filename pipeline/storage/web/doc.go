// Package web reads files at web servers, by http:// and https://, for package remote. Web
// servers list nothing, so the user names each file. The package also has the Transport that
// other sources make their requests with.
//
// A server has to serve ranges of bytes, and has to say which version of a file it gives: by
// a strong ETag, or, where it has none, by Last-Modified, the time of the last modification.
// Such a time is in whole seconds, and the ETags of many servers are made of it, so a file
// that is written twice within a second may look the same both times. Files are therefore
// not trusted before that second is over (remote.Unsettled).
package web
