// Package remote reads objects of services over a network: buckets and web servers. Its
// engine is a storage.Storage; a Source below it makes single requests.
//
//	fetch ──Submit──► remote: slots, deadlines, retries, checks ──► Source: web, s3
package remote
