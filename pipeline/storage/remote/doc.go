// Package remote reads objects of services over a network: buckets and web servers. Its
// engine is a storage.Storage; a Source below it makes single requests.
//
//	cached, fetch ──Submit, Plan, Fill──► Storage ──Open──► Source: web, s3
//	                                      │ rank    what waits for a slot: demanded, planned, fill
//	                                      │ slots   how many requests are under way
//	                                      │ watch   answers that don't come, or too slowly
//	                                      │ check   is the answer right?
//	                                      └ next    what is done if it is not: wait, renew, fail
//
// A read is right or an error. What a service answers is checked against what was asked
// for (check), and each request names the version that was listed, so bytes of two
// versions never mix. What is likely to pass is tried again, for as long as somebody
// waits for it and Config.ReadTimeout; a body that broke goes on at the byte that came.
// Errors that come out are final: no other layer tries them again.
//
// check, history.next, backoff, slots, budget, plans and fingerprint are plain functions of values; requests
// are made in exchange and ask alone. Errors, statistics and names hold no user, query
// or signature of a URL.
package remote
