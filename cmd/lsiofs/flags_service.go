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
	f.StringVar(&r.Region, "region", r.Region, "s3: the `region` of the bucket (default: of the environment, or as the service says)")
	f.StringVar(&r.Endpoint, "endpoint", r.Endpoint, "s3: the `URL` of a service that answers as S3 does, instead of Amazon's")
	r.Addressing = cmp.Or(r.Addressing, spec.AddressingAuto) // commands without a dataset start with an empty value
	f.Var(enumValue[spec.Addressing]{&r.Addressing, []string{"auto", "path", "virtual"}}, "addressing", "s3: where requests name the bucket: virtual is in the host, as https://BUCKET.HOST; auto is as the profile says, else virtual at Amazon's and path elsewhere")
	f.BoolVar(&r.Anonymous, "anonymous", r.Anonymous, "s3: send no credentials, for a public bucket")
	f.BoolVar(&r.RequesterPays, "requester-pays", r.RequesterPays, "s3: requests are at your own expense")
	f.StringVar(&r.AuthFile, "auth-file", r.AuthFile, "https: a `file` of tokens: lines HOST TOKEN or HOST HEADER: VALUE, each for that host alone; also LSIOFS_HTTP_TOKEN in the environment, and ~/.netrc")
	f.StringVar(&r.CAFile, "ca-file", r.CAFile, "a `file` of certificates, in PEM, that are trusted beside the system's")
	f.BoolVar(&r.Unversioned, "unversioned", r.Unversioned, "https: accept files without ETag and Last-Modified, of which only a change of size is seen")
}

// probed returns the flags for commands that query a service without reading a dataset.
func probed(r spec.Remote) probe.Options {
	return probe.Options{
		Region: r.Region, Endpoint: r.Endpoint, Addressing: string(r.Addressing), Anonymous: r.Anonymous, RequesterPays: r.RequesterPays, CAFile: r.CAFile, AuthFile: r.AuthFile, Unversioned: r.Unversioned,
	}
}
