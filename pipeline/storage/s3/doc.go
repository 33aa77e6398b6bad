// Package s3 is objects in buckets of S3, and of services that answer as it does, as a
// remote.Source. Requests are signed, and credentials found, by minio-go; they are made
// one at a time by this package, so that each answer comes as it is.
package s3
