package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
)

// List prices of S3 in us-east-1, for one request each.
const (
	getDollars  = 0.0004 / 1000
	listDollars = 0.005 / 1000
)

// found is what a dataset's name refers to.
type found struct {
	target discover.Target
	name   string // of the dataset, as users write it, but without secrets; "": as given
	engine *remote.Storage
	// offline is set if the service can't be reached and the listing of an earlier run is used.
	offline *offline
	choice  discover.Choice // what target was made from
	close   func() error    // closes all that was opened
}

// IsRemote is discover.IsRemote.
func IsRemote(dataset string) bool { return discover.IsRemote(dataset) }

// findAtService is scheme.find for datasets at services: it opens the engine through which they are
// read.
func findAtService(ctx context.Context, m *mount) (f found, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("dataset: %w", err)
		}
	}()
	switch {
	case m.spec.Format.Name == "files":
		return f, errors.New("--format files is not for buckets and web servers, where it would take a request a file: pack the files as tar shards, with lsiofs cat DIRECTORY --format files --shuffle none > SHARD.tar where they lie on a disk")
	case len(m.spec.Format.Arrays) > 0:
		return f, errors.New("--array is not for buckets and web servers yet: copy the arrays to a disk")
	}
	parsed, err := target.Parse(m.spec.Dataset)
	if err != nil {
		return f, err
	}
	trust := web.Settings{CAFile: m.spec.Remote.CAFile}
	if parsed.Bucket != nil {
		if trust, err = s3.Trust(trust.CAFile); err != nil {
			return f, err
		}
	}
	c := m.remoteConfig()
	var at string
	if parsed.Web != nil {
		c.Service = parsed.Web.Host
	} else if c.Service, at, err = s3.Locate(*parsed.Bucket, m.bucketOptions()); err != nil {
		return f, err
	} else if !m.spec.Remote.Anonymous {
		c.Before = m.credentials.Waiting
	}
	transport, err := web.NewTransport(trust)
	if err != nil {
		return f, err
	}
	open := func(ctx context.Context) (remote.Source, discover.Choice, error) {
		if parsed.Bucket != nil {
			return m.openBucket(ctx, *parsed.Bucket, transport)
		}
		return m.openWeb(ctx, *parsed.Web, transport)
	}
	source, err := m.connect(ctx, c, m.earlierListing(parsed, at), open, &f)
	if err != nil {
		transport.Close()
		return f, err
	}
	if parsed.Web != nil {
		f.name = parsed.Web.Root() + "/" + parsed.Web.Written
	} else if strings.HasPrefix(source.Name(), "s3://") { // Amazon's own service
		c.GetDollars, c.ListDollars = getDollars, listDollars
	}
	if f.offline != nil {
		c.Known = &f.offline.listed.Known
	}
	f.engine, err = remote.New(source, c)
	if err == nil {
		f.target, err = discover.At(source.Name(), f.choice)
	}
	f.close = func() (err error) {
		if f.engine != nil {
			err = f.engine.Close()
		} else {
			err = source.Close()
		}
		transport.Close()
		return err
	}
	if err != nil {
		return found{}, errors.Join(err, f.close())
	}
	return f, nil
}

func (m *mount) remoteConfig() remote.Config {
	c := remote.DefaultConfig()
	c.Connections, c.ReadTimeout = m.spec.Remote.Connections, m.spec.ReadTimeout
	c.Unversioned, c.Log = m.spec.Remote.Unversioned, m.log
	c.Hedge = m.spec.Remote.Hedge != spec.HedgeOff
	c.Trouble = m.troubled
	return c
}

// troubled logs that requests to the service are waiting, or no longer are, and passes it on.
func (m *mount) troubled(t remote.Trouble) {
	args := []any{"dataset", remote.CleanText(m.spec.Dataset)}
	if t.Object != "" {
		args = append(args, "object", t.Object)
	}
	m.log.Warn(t.String(), args...)
	if m.options.Trouble != nil {
		m.options.Trouble(t.String())
	}
}

func (m *mount) bucketOptions() s3.Options {
	r := m.spec.Remote
	return s3.Options{Region: r.Region, Endpoint: r.Endpoint, Addressing: string(r.Addressing), Anonymous: r.Anonymous, RequesterPays: r.RequesterPays, Credentials: m.credentials, Await: true}
}

func (m *mount) openBucket(ctx context.Context, b target.Bucket, transport *web.Transport) (remote.Source, discover.Choice, error) {
	o := m.bucketOptions()
	o.Transport = transport
	s, object, err := s3.Open(ctx, b, o)
	if err != nil {
		return nil, discover.Choice{}, err
	}
	return s, discover.Choice{File: object, Pattern: b.Pattern}, nil
}

func (m *mount) openWeb(ctx context.Context, w target.Web, transport *web.Transport) (remote.Source, discover.Choice, error) {
	hierarchy := m.spec.Format.Name == "zarr"
	if hierarchy && len(w.Names) == 1 && refs.Is(w.Names[0].Path) {
		hierarchy, w.List = false, false // a single file that describes a hierarchy
	}
	if hierarchy {
		var err error
		if w, err = w.Folder(); err != nil {
			return nil, discover.Choice{}, &remote.Refusal{Err: err}
		}
	}
	s, err := web.Open(ctx, w, web.Options{Unversioned: m.spec.Remote.Unversioned, AuthFile: m.spec.Remote.AuthFile, NamedOnly: m.siblings > 1, Transport: transport})
	if err != nil {
		return nil, discover.Choice{}, err
	}
	if hierarchy {
		return s, discover.Choice{}, nil
	}
	if !w.List && len(w.Names) == 1 {
		return s, discover.Choice{File: w.Names[0].Path}, nil
	}
	return s, discover.Choice{Names: w.Written}, nil
}

// openService returns the engine that findAtService has opened, with the cache over it.
func openService(m *mount, _, _ string) (storage.Storage, error) {
	s, err := m.cacheOver(m.service, m.objectIdentity)
	if err == nil {
		if err = m.checkOffline(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if err != nil || m.spec.Format.Name != "zarr" {
		return s, err
	}
	return m.cubesOver(m.referencesOver(s), true), nil
}

// asItIs adds nothing to storages that retry themselves.
func asItIs(s storage.Storage) (storage.Storage, *retry.Storage) { return s, nil }

// objectProfile and webProfile are what lsiofs tune has measured of a service, or else the defaults
// for its kind.
func objectProfile(root string, o *Options) (profile.Profile, []profile.Cell) {
	return profileOf(profile.KindObject, root, o)
}

func webProfile(root string, o *Options) (profile.Profile, []profile.Cell) {
	return profileOf(profile.KindWeb, root, o)
}

func profileOf(k profile.Kind, root string, o *Options) (profile.Profile, []profile.Cell) {
	if o.Storage != nil {
		return *o.Storage, nil
	}
	f := profile.FindEndpoint(k, root)
	if f.Problem != nil {
		o.Log.Warn(f.Problem.Error())
	}
	return f.Profile, f.Cells
}
