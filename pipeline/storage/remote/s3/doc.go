// Package s3 reads objects in buckets of Amazon S3 and compatible services, for package remote. It
// lists a folder of a bucket, and requests ranges of objects in the version that was listed.
//
// minio-go finds the credentials and signs the requests. The package makes the requests itself, one
// at a time, so that remote sees each answer unchanged.
package s3
