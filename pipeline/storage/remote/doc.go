// Package remote reads datasets from services on the network: buckets and web servers. It makes
// many requests at a time, retries failed ones, and checks each answer, so that a reader gets the
// right bytes or an error.
//
//	diskcache, read ──Submit, Hints, Fill──► Storage ──Open──► Source: web, s3
//	                                      │ rank    which read is next: what a reader waits for,
//	                                      │         what it will need, what is only filled
//	                                      │ slots   how many requests are running
//	                                      │ race    a second request if an answer is late
//	                                      │ watch   ends requests without or with slow answers
//	                                      │ check   is the answer right?
//	                                      └ next    what to do if it is not: wait, renew, fail
//
// Storage is the engine, a storage.Storage. It uses a Source, which makes single requests in its
// service's protocol.
//
// Every answer is compared with the request (check). Each request names the version of the object
// that was listed, so bytes of two versions never mix. Failures that are likely to pass are retried
// for as long as a reader waits and Config.ReadTimeout allows. A body that broke is resumed where
// it broke. Errors that the engine returns are final: no other layer retries them. They contain no
// user name, query or signature of a URL.
//
// check, history.next, backoff, pace, slots, budget, plans and fingerprint work on values alone: they
// make no requests. Only exchange and ask make them.
package remote
