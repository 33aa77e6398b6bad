// Package remote reads datasets that lie at a service on the network: in a bucket, or at a
// web server. It makes many requests at a time, asks again for what fails, and checks each
// answer, so that a reader gets the right bytes or an error.
//
//	cached, fetch ──Submit, Plan, Fill──► Storage ──Open──► Source: web, s3
//	                                      │ rank    which read goes next: what a reader waits for,
//	                                      │         what it is going to want, what nobody asked for
//	                                      │ slots   how many requests are under way
//	                                      │ race    a second request for what is late
//	                                      │ watch   ends answers that don't come, or too slowly
//	                                      │ check   is the answer right?
//	                                      └ next    what is done if it is not: wait, renew, fail
//
// Storage is the engine, a storage.Storage. A Source below it makes single requests, in the
// way of its service.
//
// What a service answers is compared to what was asked for (check). Each request names the
// version of the object that was listed, so that bytes of two versions never mix. What is
// likely to pass is tried again, for as long as somebody waits for it and
// Config.ReadTimeout. A body that broke goes on at the byte that came. Errors that come out
// are final: no other layer tries them again. They hold no user name, query or signature of
// a URL.
//
// check, history.next, backoff, pace, slots, budget, plans and fingerprint are plain
// functions of values. Requests are made in exchange and ask alone.
package remote
