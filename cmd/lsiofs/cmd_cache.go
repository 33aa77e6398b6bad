package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/cache"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newCacheCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "Show, check, fill and clean the disk cache of buckets and web servers",
		Long: `Data that was read from a bucket or a web server is kept on a disk (--cache-dir), so
that the next epoch, or the next run, does not fetch it again. Mounts manage the cache
by themselves. Use these commands to inspect it, to fill it ahead of time, or to free
its space. They are safe while mounts use the cache.`,
		Example: `  lsiofs cache show
  lsiofs cache warm s3://bucket/train
  lsiofs cache clean --unused 30d`,
		Args: cobra.ArbitraryArgs,
		RunE: runParent,
	}
	c.AddCommand(newCacheShowCommand(g), newCacheVerifyCommand(g), newCacheCleanCommand(g), newCacheWarmCommand(g))
	return c
}

func newCacheShowCommand(g *globals) *cobra.Command {
	dir := ""
	c := &cobra.Command{
		Use:   "show",
		Short: "List the contents of the cache by folder",
		Long: `Lists the folders of buckets and web servers that have data in the cache: the number of
objects, how many of their bytes are cached, the disk space used, when they were last
used, and whether a mount uses them now. Compressed shards that a mount has decoded
have a line of their own, marked (decoded), including those of local datasets.`,
		Example: `  lsiofs cache show
  lsiofs cache show --cache-dir /nvme/lsiofs --json | jq .cached_bytes`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			return cache.Use(dir, g.ui, g.log(), func(d *diskcache.Directory) error {
				return cache.Show(c.Context(), d, time.Now(), g.ui)
			})
		},
	}
	addCacheDir(c.Flags(), &dir)
	return c
}

func newCacheVerifyCommand(g *globals) *cobra.Command {
	dir, repair, compare := "", false, false
	var service spec.Remote
	c := &cobra.Command{
		Use:   "verify",
		Short: "Check every page in the cache against its checksum",
		Long: `Reads the whole cache and lists corrupt data by object. If there is any, the command
exits with code ` + fmt.Sprint(int(exit.Verify)) + `. Readers check each page anyway, and fetch corrupt pages again; this
command finds a failing disk before they do.

--remote also compares completely cached objects with the checksums that their buckets
and web servers report: CRC32C, CRC64NVME, SHA and MD5 from S3 and Google Cloud Storage,
an ETag that is an MD5, Repr-Digest, Digest and Content-MD5. It fetches no data. It
reports objects of which the service now has another version, which is not damage, and
objects without a checksum, which it can't check. lsiofs verify URL reads the bucket
itself.`,
		Example: `  lsiofs cache verify
  lsiofs cache verify --repair
  lsiofs cache verify --remote --anonymous`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			return cache.Use(dir, g.ui, g.log(), func(d *diskcache.Directory) error {
				err := cache.Verify(c.Context(), d, repair, g.ui)
				if !compare || err != nil && exit.CodeOf(err) != exit.Verify {
					return err
				}
				return errors.Join(err, cache.CompareRemote(c.Context(), d, repair, probed(service), g.ui))
			})
		},
	}
	addCacheDir(c.Flags(), &dir)
	addService(c.Flags(), &service)
	c.Flags().BoolVar(&compare, "remote", false, "also compare completely cached objects with the checksums that the services report")
	c.Flags().BoolVar(&repair, "repair", false, "remove corrupt data from the cache; it is fetched again when it is read")
	return c
}

func newCacheCleanCommand(g *globals) *cobra.Command {
	dir, all := "", false
	var unused cache.Unused
	c := &cobra.Command{
		Use:   "clean [URL]",
		Short: "Remove data that no mount uses from the cache",
		Long: `Removes objects from the cache: the object URL and all objects below it, objects that
have not been used for some time (--unused), objects that match both, or all objects
(--all). Objects that a mount uses are kept.`,
		Example: `  lsiofs cache clean s3://bucket/old
  lsiofs cache clean --unused 30d
  lsiofs cache clean --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			which := diskcache.Which{UnusedFor: time.Duration(unused), Now: time.Now()}
			switch {
			case all && (len(args) > 0 || unused > 0):
				return exit.Usagef("--all removes everything: leave it out, or leave out URL and --unused")
			case !all && len(args) == 0 && unused == 0:
				return exit.Usagef("nothing to remove is named: give a URL, --unused 30d, or --all")
			case len(args) > 0:
				if which.URL = cache.Canonical(args[0]); which.URL == "" {
					return exit.Usagef("%q is not a URL: name one that lsiofs cache show lists, or --all", args[0])
				}
			}
			return cache.Use(dir, g.ui, g.log(), func(d *diskcache.Directory) error {
				return cache.Clean(c.Context(), d, which, g.ui)
			})
		},
	}
	addCacheDir(c.Flags(), &dir)
	c.Flags().Var(&unused, "unused", "only objects that have not been used for this long")
	c.Flags().BoolVar(&all, "all", false, "remove all objects")
	return c
}
