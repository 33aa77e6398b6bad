// Package probe looks at a bucket or a web server with single requests, without the engine
// that reads datasets: what doctor and tune find out about it.
//
//	name ──Open──► Service ──Look──► Facts: addresses, latency, clocks, conditions …
//	                       └─Rates─► Cells ──Derive──► profile.Profile
//
// Requests go straight to the Source, once each: nothing is tried again or asked twice, so
// that what is measured and told is the service's own. No fact has a secret in it.
package probe
