// Package web reads files from web servers, over http:// and https://, for package remote. Web
// servers can't list files, so the user names each file. The package also contains the Transport
// that other sources make their requests with.
//
// A server must support range requests, and must return the version of a file: a strong ETag or,
// without one, Last-Modified. This time is in whole seconds, and many servers make ETags from it,
// so a file that is written twice within a second may look the same both times. So files are not
// trusted until that second is over (remote.Unsettled).
package web
