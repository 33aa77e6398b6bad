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
		Long: `What was read of a bucket or a web server is kept on a disk (--cache-dir), so that the
next epoch, or the next run, does not fetch it again. A mount looks after its cache by
itself. These commands are for looking at it, for filling it before it is needed, and
for taking the room back. Mounts may use the cache meanwhile.`,
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
		Short: "List what is in the cache, by folder",
		Long: `Lists the folders of buckets and web servers of which something is in the cache: how many
objects, how many of their bytes are here, what that takes on the disk, when it was
used last, and whether a mount uses it now.`,
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
		Long: `Reads all that is in the cache, and lists what is not as it was written, by object; then
the command ends with code ` + fmt.Sprint(int(exit.Verify)) + `. Readers check each page themselves, and fetch a bad one
again: this finds a failing disk before they do.

--remote compares the objects that are all here with the checksums that their buckets and
web servers tell, too: CRC32C, CRC64NVME, SHA and MD5 of S3 and Google's storage, an ETag
that is an MD5, Repr-Digest, Digest and Content-MD5. It fetches no data. An object that the
service has in another version by now is said, and is no damage; one without a checksum
is said as well: nothing is known of it. lsiofs verify URL reads the bucket itself.`,
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
	c.Flags().BoolVar(&compare, "remote", false, "compare what is all here with the checksums that the services tell, too")
	c.Flags().BoolVar(&repair, "repair", false, "drop what is bad: it is fetched again when it is read")
	return c
}

func newCacheCleanCommand(g *globals) *cobra.Command {
	dir, all := "", false
	var unused cache.Unused
	c := &cobra.Command{
		Use:   "clean [URL]",
		Short: "Remove from the cache what no mount uses",
		Long: `Removes objects from the cache: those of URL and below it, those that were not used for
some time (--unused), those that are both, or all. What a mount uses stays.`,
		Example: `  lsiofs cache clean s3://bucket/old
  lsiofs cache clean --unused 30d
  lsiofs cache clean --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			which := diskcache.Which{UnusedFor: time.Duration(unused), Now: time.Now()}
			switch {
			case all && (len(args) > 0 || unused > 0):
				return exit.Usagef("--all removes everything, whatever URL and --unused name: leave out either --all or these")
			case !all && len(args) == 0 && unused == 0:
				return exit.Usagef("lsiofs cache clean removes what is named: name a URL, --unused 30d, or --all")
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
	c.Flags().Var(&unused, "unused", "only what was not used for so long")
	c.Flags().BoolVar(&all, "all", false, "everything")
	return c
}
