package main

import (
	"cmp"

	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// addService defines the flags that configure requests to a service, for every command that makes
// any.
func addService(f *pflag.FlagSet, r *spec.Remote) {
	f.StringVar(&r.Region, "region", r.Region, "s3: `region` of the bucket (default: from the environment, or as the service reports it)")
	f.StringVar(&r.Endpoint, "endpoint", r.Endpoint, "s3: `URL` of an S3-compatible service, instead of Amazon's")
	r.Addressing = cmp.Or(r.Addressing, spec.AddressingAuto) // commands without a dataset start with an empty value
	f.Var(enumValue[spec.Addressing]{&r.Addressing, []string{"auto", "path", "virtual"}}, "addressing", "s3: where requests name the bucket: in the path, or in the host (virtual), such as https://BUCKET.HOST; auto follows the profile, otherwise it uses virtual for Amazon and path elsewhere")
	f.BoolVar(&r.Anonymous, "anonymous", r.Anonymous, "s3: send no credentials, for public buckets")
	f.BoolVar(&r.RequesterPays, "requester-pays", r.RequesterPays, "s3: agree to pay for requests to a requester-pays bucket")
	f.StringVar(&r.AuthFile, "auth-file", r.AuthFile, "https: `file` with lines HOST TOKEN or HOST HEADER: VALUE, each sent only to that host; LSIOFS_HTTP_TOKEN in the environment and ~/.netrc are used, too")
	f.StringVar(&r.CAFile, "ca-file", r.CAFile, "PEM `file` of certificates to trust in addition to the system's")
	f.BoolVar(&r.Unversioned, "unversioned", r.Unversioned, "https: accept files without ETag and Last-Modified; then only a change of size is detected")
}

// probed returns the flags for commands that query a service without reading a dataset.
func probed(r spec.Remote) probe.Options {
	return probe.Options{
		Region: r.Region, Endpoint: r.Endpoint, Addressing: string(r.Addressing), Anonymous: r.Anonymous, RequesterPays: r.RequesterPays, CAFile: r.CAFile, AuthFile: r.AuthFile, Unversioned: r.Unversioned,
	}
}
