// Package probe examines a bucket or a web server with single requests, without the engine that
// reads datasets, for the commands doctor and tune.
//
//	name ──Open──► Service ──Look──► Facts: addresses, latency, clocks, conditions …
//	                       └─Rates─► Cells ──Derive──► storage.Profile
//
// Requests go straight to the Source, once each: nothing is retried or requested twice, so
// measurements and findings are those of the service itself. No fact contains a secret.
package probe
