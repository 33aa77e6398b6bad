package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
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
		return f, errors.New("--format files does not support buckets and web servers, where each file would take a request: pack the files as tar shards where they are on a disk, with lsiofs cat DIRECTORY --format files --shuffle none > SHARD.tar")
	case len(m.spec.Format.Arrays) > 0:
		return f, errors.New("--array does not support buckets and web servers yet: copy the arrays to a disk")
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

// objectProfile and webProfile are what lsiofs tune has measured of a service, or else the defaults
// for its kind.
func objectProfile(root string, o *Options) (storage.Profile, []filesystem.Measurement) {
	return profileOf(storage.KindObject, root, o)
}

func webProfile(root string, o *Options) (storage.Profile, []filesystem.Measurement) {
	return profileOf(storage.KindWeb, root, o)
}

func profileOf(k storage.Kind, root string, o *Options) (storage.Profile, []filesystem.Measurement) {
	if o.Storage != nil {
		return *o.Storage, nil
	}
	f := filesystem.FindEndpointProfile(k, root)
	if f.Problem != nil {
		o.Log.Warn(f.Problem.Error())
	}
	return f.Profile, f.Cells
}

// A dataset whose shards are all in the disk cache can be read while its service can't be reached.
// For this, each run stores its listing next to the index. A later run uses that if the service
// does not answer at its start:
//
//	open, HEAD ──► an answer of any kind ──► listed, indexed as usual; the listing is stored
//	           └─► none ──► all that was listed is in the cache ──► the stored listing
//	                    └─► it is not ──► the service is tried for as long as without a listing
//
// Reads use the versions in the listing. So what the cache has lost is fetched once the service is
// back, if it is still the same, and is an error otherwise.

const (
	// offlinePatience is how long a service without a usable answer is tried before the stored
	// listing is used, and offlineContact how long one that can't be connected to.
	offlinePatience = 30 * time.Second
	offlineContact  = 5 * time.Second
	// mostListed bounds the objects of a stored listing, at about 200 bytes each.
	mostListed = 100_000
	// listingVersion is the version of the stored form.
	listingVersion = 1
)

// listed is the listing of a dataset at a service by one run.
type listed struct {
	Version int
	Root    string // the canonical URL
	Choice  discover.Choice
	remote.Known
}

// offline is set for a mount whose service could not be reached.
type offline struct {
	listed *listed
	err    error
}

// remembers reports whether listings of the dataset are stored. They are not for growing datasets,
// which are about new data, nor for Zarr hierarchies, which are not read by their listing alone.
func (m *mount) remembers() bool {
	return !m.spec.Cache.Off && !m.spec.Grow.On && m.spec.Grow.Snapshot == "" && m.spec.Format.Name != "zarr"
}

// listingFile is the file, in a directory of indexes, in which a listing of the dataset is stored.
// Its name is a digest of all that the listing depends on. at is the URL of a bucket, which may
// depend on the settings of a profile.
func (m *mount) listingFile(dir string, t target.Target, at string) string {
	if t.Web != nil {
		w := *t.Web
		w.User = nil
		t.Web = &w
	}
	r := m.spec.Remote
	text, _ := json.Marshal([]any{ // plain values, which can be marshalled
		t, at, r.Unversioned, m.spec.Format, m.spec.OnCorrupt, m.spec.Exclude, os.Geteuid(),
	})
	sum := sha256.Sum256(text)
	return filepath.Join(dir, "listing-"+hex.EncodeToString(sum[:12])+".json")
}

// earlierListing returns the stored listing, or nil if there is no usable one.
func (m *mount) earlierListing(t target.Target, at string) *listed {
	dir, _, err := catalog.DirectoryFor(m.spec.IndexDir, "")
	if err != nil || !m.remembers() {
		return nil
	}
	m.listingAt = m.listingFile(dir, t, at)
	l, err := readListing(m.listingAt)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			m.log.Warn("the listing of an earlier run is not used", "file", m.listingAt, "reason", err)
		}
		return nil
	}
	return l
}

func readListing(file string) (*listed, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	is, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner, _ := is.Sys().(*syscall.Stat_t)
	switch {
	case !is.Mode().IsRegular() || is.Mode().Perm()&0o022 != 0, owner == nil || owner.Uid != 0 && owner.Uid != uint32(os.Geteuid()):
		return nil, errors.New("other users may have written it")
	case is.Size() > mostListed<<10:
		return nil, errors.New("it is too large")
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	l := &listed{}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if l.Version != listingVersion || len(l.Objects) == 0 {
		return nil, errors.New("it is of another version")
	}
	return l, nil
}

// rememberListing stores the listing if the service has answered. A failure is only logged, since
// nothing else depends on it.
func (m *mount) rememberListing(objects func() []storage.Object) {
	if m.service == nil || m.offline != nil || m.listingAt == "" || m.cache == nil {
		return
	}
	all := objects()
	if len(all) == 0 || len(all) > mostListed {
		return
	}
	known, err := m.service.Known(all)
	if err == nil {
		err = writeListing(m.listingAt, &listed{Version: listingVersion, Root: m.root, Choice: m.choice, Known: *known})
	}
	if err != nil {
		m.log.Debug("the listing is not stored, so the dataset can't be read while its service can't be reached", "reason", err)
	}
}

func writeListing(file string, l *listed) (err error) {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".listing-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// connect opens the source of a dataset with open, and sets f.choice. If the service does not
// answer and the cache has all that an earlier run has listed, it sets f.offline, and the source is
// opened when it is needed.
func (m *mount) connect(ctx context.Context, c remote.Config, earlier *listed, open opener, f *found) (s remote.Source, err error) {
	ask := func(ctx context.Context) (err error) {
		s, f.choice, err = open(ctx)
		return err
	}
	if earlier == nil {
		err = remote.Try(ctx, c, ask)
		return s, err
	}
	began := time.Now()
	quick := c
	quick.ReadTimeout, quick.FirstContact = min(c.ReadTimeout, offlinePatience), min(c.FirstContact, offlineContact)
	err = remote.Try(ctx, quick, func(ctx context.Context) error { return passing(ask(ctx)) })
	if err == nil {
		if err = earlier.reach(ctx, quick, s); err != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if !unanswered(err) {
		return s, err
	}
	here := m.cachedOf(earlier)
	if here == len(earlier.Objects) {
		f.offline, f.choice = &offline{listed: earlier, err: err}, earlier.Choice
		return remote.NewLater(earlier.Root, func(ctx context.Context) (remote.Source, error) {
			s, _, err := open(ctx)
			return s, err
		}), nil
	}
	waited := time.Since(began)
	c.ReadTimeout, c.FirstContact = max(c.ReadTimeout-waited, time.Second), max(c.FirstContact-waited, time.Second)
	if err = remote.Try(ctx, c, ask); unanswered(err) {
		err = earlier.incomplete(err, here)
	}
	return s, err
}

// opener opens the source of a dataset.
type opener func(ctx context.Context) (remote.Source, discover.Choice, error)

func unanswered(err error) bool {
	_, is := errors.AsType[*remote.UnansweredError](err)
	return is
}

// unreached is the failure to connect to a service for credentials. Without a network it can't be
// reached, just like the service that the credentials are for.
type unreached struct {
	text string
	dial *net.OpError
}

func (e *unreached) Error() string { return e.text }
func (e *unreached) Unwrap() error { return e.dial }

// passing returns err, but as a transient error if credentials could not be had for want of a
// network.
func passing(err error) error {
	_, final := errors.AsType[*remote.Refusal](err)
	if op, ok := errors.AsType[*net.OpError](err); final && ok && op.Op == "dial" {
		return &unreached{err.Error(), op}
	}
	return err
}

// cachedOf counts the files of a listing that are in the cache, which is not open yet.
func (m *mount) cachedOf(l *listed) (n int) {
	path, err := CacheDirectory(m.spec.Cache.Dir)
	if err != nil {
		return 0
	}
	dir, err := diskcache.OpenDirectory(path, nil)
	if err != nil {
		return 0
	}
	defer func() { _ = dir.Close() }()
	for i := range l.Objects {
		url, validator := l.Objects[i].Identity(l.Root)
		if dir.Holds(diskcache.Identity{URL: url, Validator: string(validator)}, l.Objects[i].SizeBytes) {
			n++
		}
	}
	return n
}

// reach sends the service a request for one object, and fails if there is no answer. What the
// answer contains matters only when the dataset is listed.
func (l *listed) reach(ctx context.Context, c remote.Config, s remote.Source) error {
	err := remote.Try(ctx, c, func(ctx context.Context) error {
		_, err := s.Head(ctx, l.Objects[0].Path)
		return passing(err)
	})
	if unanswered(err) || ctx.Err() != nil {
		return err
	}
	return nil
}

// incomplete is the error if the service fails with err and the cache lacks some files.
func (l *listed) incomplete(err error, here int) error {
	return fmt.Errorf("%w; and without the service it can't be read, because the disk cache has %d of its %d files: run lsiofs cache warm while the service is reachable",
		err, here, len(l.Objects))
}

// checkOffline fails if the service is unreachable and the cache lacks some files. If the cache has
// all of them it logs a warning.
func (m *mount) checkOffline() error {
	if m.offline == nil {
		return nil
	}
	l := m.offline.listed
	objects, here := make([]storage.Object, len(l.Objects)), 0
	for i := range l.Objects {
		objects[i] = l.Objects[i].Object
	}
	if m.cache != nil {
		here = m.cache.Holds(objects)
	}
	if here < len(objects) {
		return l.incomplete(m.offline.err, here)
	}
	m.log.Warn(fmt.Sprintf("the service can't be reached: the files that it had %s are read from the disk cache, and later changes are not seen", humanize.Time(l.Asked)),
		"dataset", m.spec.Dataset, "asked", l.Asked.UTC().Format(time.RFC3339), "reason", m.offline.err)
	return nil
}
