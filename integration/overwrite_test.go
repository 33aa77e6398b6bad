package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// overwrites are ways to replace a shard's content in place, slowly enough that reads happen in
// between. The file may have been open for long.
var overwrites = []struct {
	name  string
	write func(f *os.File, size int) error
}{
	{"one call", func(f *os.File, size int) error {
		_, err := f.WriteAt(bytes.Repeat([]byte{'n'}, size), 0)
		return err
	}},
	{"stores through a mapping", func(f *os.File, size int) error {
		mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			return err
		}
		for i := range mem {
			mem[i] = 'n'
		}
		return syscall.Munmap(mem)
	}},
	{"dd in 64 MiB", func(f *os.File, size int) error { return ddOver(f, "64M") }},
	{"dd in 4 MiB", func(f *os.File, size int) error { return ddOver(f, "4M") }},
}

func ddOver(f *os.File, block string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b := exec.Command("sh", "-c", "head -c $1 /dev/zero | tr '\\0' n | dd of=$2 bs=$3 iflag=fullblock conv=notrunc status=none", "sh", itoa(info.Size()), f.Name(), block)
	return b.Run()
}

// A mapped shard is overwritten in place while four readers go through it. A read returns only old
// content or fails. After the writer has finished, all reads fail, except of data that could not be
// mapped and is in memory. Records are long enough to be lent without copying.
func TestNoReadGivesNewContentOfAShardThatIsOverwritten(t *testing.T) {
	serve.Tier(t, serve.CI)
	const recordBytes, records, readBytes = 12 << 10, 10 << 10, 256 << 10 // 120 MiB
	old := bytes.Repeat([]byte{'o'}, recordBytes*records)
	for _, o := range overwrites {
		for _, openBefore := range []bool{false, true} {
			name := o.name + ", opened when it is read"
			if openBefore {
				name = o.name + ", open since before the mount"
			}
			t.Run(name, func(t *testing.T) {
				d := dataset{name: "old", dir: t.TempDir(), flags: []string{"--format", "fixed", "--record-bytes", itoa(recordBytes)}, ext: ".bin"}
				path := filepath.Join(d.dir, "a.bin")
				require.NoError(t, os.WriteFile(path, old, 0o644))
				var f *os.File
				open := func() {
					var err error
					f, err = os.OpenFile(path, os.O_RDWR, 0)
					require.NoError(t, err)
					t.Cleanup(func() { f.Close() })
				}
				if openBefore {
					open()
				}
				s := bigSettings()
				s.ChunkBytes, s.ChunkRecords = 256<<10, 32
				m := mountDataset(t, d, s, "--memory", "256MiB")
				var readers sync.WaitGroup
				written := make(chan struct{})
				right, wrong, late := make([]int, s.Workers), make([]int, s.Workers), make([]int, s.Workers)
				for w := range s.Workers {
					requireFile(t, old[:recordBytes*records/s.Workers], m.path("worker-%d.bin", w))
					readers.Go(func() {
						g, err := os.Open(m.path("worker-%d.bin", w))
						if err != nil {
							t.Error(err)
							return
						}
						defer g.Close()
						buf := make([]byte, readBytes)
						for last := false; !last; {
							select {
							case <-written:
								last = true
							default:
							}
							for off := 0; off+readBytes <= recordBytes*records/s.Workers; off += readBytes {
								_, err := g.ReadAt(buf, int64(off))
								switch {
								case err != nil:
								case !bytes.Equal(buf, old[:readBytes]):
									wrong[w]++
								case last:
									late[w]++
								default:
									right[w]++
								}
							}
						}
					})
				}
				if !openBefore {
					open()
				}
				require.NoError(t, o.write(f, len(old)))
				close(written)
				readers.Wait()
				none := make([]int, s.Workers)
				require.Equal(t, none, wrong, "reads that gave new content (%d gave old)", right)
				// Data that was read into memory, not mapped, stays as it was.
				inMemory := m.fetchStats().BytesRead
				succeeded := late[0] + late[1] + late[2] + late[3]
				require.LessOrEqual(t, uint64(succeeded*readBytes), inMemory, "%d reads succeeded after all was written", late)
				t.Logf("%d bytes were read into memory, %d reads gave old content in the end", inMemory, succeeded)
				m.requireAlive()
				require.Contains(t, string(m.read("status")), "a.bin")
			})
		}
	}
}

func itoa[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }
