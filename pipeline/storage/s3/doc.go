// Package s3 reads objects in buckets of Amazon S3, and of services that answer as it does,
// for package remote. It lists a folder of a bucket, and asks for ranges of objects in the
// version that was listed.
//
// minio-go finds the credentials and signs the requests. The package makes the requests
// itself, one at a time, so that remote sees each answer as it came.
package s3
