package page

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
)

// Bounds of the shards' chart.
const (
	chartBars   = 200 // with more shards, a bar stands for several
	chartListed = 24  // up to so many shards are all listed
	chartEnds   = 8   // otherwise so many of the largest and smallest
)

// shardChart shows the sizes of shards.
type shardChart struct {
	Bars       []shardBar
	EachShards int // largest number of shards per bar
	Bytes      inspect.Spread
	Records    inspect.Spread
	Compressed bool
	Lists      []shardList
}

// shardBar is a run of shards in dataset order. Mean and Most are heights in percent of the
// largest.
type shardBar struct {
	First, Last int // numbers from 1
	Mean, Most  float64
	X, Width    float64 // in percent of the chart
	Text        string
}

// The SVG's y axis points down. Bars leave a gap of 14 % of their width.
func (b shardBar) MeanY() float64 { return 100 - b.Mean }
func (b shardBar) MostY() float64 { return 100 - b.Most }
func (b shardBar) Drawn() float64 { return b.Width * 0.86 }

// shardList is a table of shards.
type shardList struct {
	Title  string
	Shards []shardRow
}

type shardRow struct {
	Path         string
	Number       int // from 1, in dataset order
	Records      uint64
	Bytes        int64
	DecodedBytes int64
	Percent      float64 // of the largest shard's bytes
}

// shards is the part of a catalog that the chart needs.
type shards interface {
	Shards() int
	Shard(i int) catalog.Shard
}

func newShardChart(c shards) shardChart {
	n := c.Shards()
	var chart shardChart
	each := max(1, (n+chartBars-1)/chartBars)
	chart.EachShards = each
	var ends sizeEnds
	var run inspect.Spread
	for i := range n {
		s := c.Shard(i)
		chart.Bytes.Add(s.Object.SizeBytes)
		chart.Records.Add(int64(s.Records))
		chart.Compressed = chart.Compressed || s.Codec != nil
		run.Add(s.Object.SizeBytes)
		ends.add(shardRow{Path: s.Object.Path, Number: i + 1, Records: s.Records, Bytes: s.Object.SizeBytes, DecodedBytes: s.DecodedBytes})
		if run.Values() == int64(each) || i == n-1 {
			b := shardBar{First: i + 2 - int(run.Values()), Last: i + 1, Mean: run.Mean, Most: float64(run.Max)}
			if b.Text = fmt.Sprintf("shards %d to %d: %s", b.First, b.Last, run.Text()); b.First == b.Last {
				b.Text = fmt.Sprintf("%s: %s, %s", s.Object.Path, terminal.Bytes(s.Object.SizeBytes), terminal.Plural(s.Records, "record"))
			}
			chart.Bars = append(chart.Bars, b)
			run = inspect.Spread{}
		}
	}
	most := float64(max(chart.Bytes.Max, 1))
	for i := range chart.Bars {
		b := &chart.Bars[i]
		b.Mean, b.Most = 100*b.Mean/most, 100*b.Most/most
		b.X, b.Width = 100*float64(b.First-1)/float64(n), 100*float64(b.Last-b.First+1)/float64(n)
	}
	chart.Lists = ends.lists(most)
	return chart
}

// sizeEnds collects the largest and the smallest shards, or all of them in dataset order if they
// are few.
type sizeEnds struct {
	all               []shardRow // as long as they are few
	largest, smallest []shardRow
	count             int
}

func (e *sizeEnds) add(r shardRow) {
	if e.count++; e.count <= chartListed {
		e.all = append(e.all, r)
	}
	keep := func(list []shardRow, compare func(a, b shardRow) int) []shardRow {
		at, _ := slices.BinarySearchFunc(list, r, func(a, b shardRow) int {
			return cmp.Or(compare(a, b), -1) // after equal ones, so that the first ones stay
		})
		if at == chartEnds {
			return list
		}
		list = slices.Insert(list, at, r)
		return list[:min(len(list), chartEnds)]
	}
	e.largest = keep(e.largest, func(a, b shardRow) int { return cmp.Compare(b.Bytes, a.Bytes) })
	e.smallest = keep(e.smallest, func(a, b shardRow) int { return cmp.Compare(a.Bytes, b.Bytes) })
}

// lists returns the tables to show; most is the value of a full bar.
func (e *sizeEnds) lists(most float64) []shardList {
	lists := []shardList{{"All shards", e.all}}
	if e.count > chartListed {
		lists = []shardList{{fmt.Sprintf("The %d largest", len(e.largest)), e.largest}, {fmt.Sprintf("The %d smallest", len(e.smallest)), e.smallest}}
	}
	for _, l := range lists {
		for i := range l.Shards {
			l.Shards[i].Percent = 100 * float64(l.Shards[i].Bytes) / most
		}
	}
	return lists
}

// picture is a quality.Picture as an image in the page.
type picture struct {
	*quality.Picture
	URL string // a data: URL
	// HeightPixels is the height at which it is shown.
	HeightPixels int
}

// PerRow describes how many shards a row stands for.
func (p *picture) PerRow() string {
	if p.Rows == p.Shards {
		return "one shard"
	}
	return fmt.Sprintf("%.1f shards", float64(p.Shards)/float64(p.Rows))
}

// Densities are distinguished up to densest, in densitySteps steps, for which a PNG takes four
// bits.
const (
	densest       = 3.0
	densitySteps  = 16
	heightAtLeast = 96 // pixels
	heightAtMost  = 200
)

// pictureInk is the colour of the densest places. Others are proportionally more transparent, so
// that a picture fits light and dark pages.
var pictureInk = color.NRGBA{R: 0x3f, G: 0x83, B: 0xe0}

// newPicture draws densities, from transparent for no records to full colour for densest and above.
func newPicture(p *quality.Picture) (*picture, error) {
	if p == nil {
		return nil, nil
	}
	var palette color.Palette
	for i := range densitySteps {
		c := pictureInk
		c.A = uint8(255 * i / (densitySteps - 1))
		palette = append(palette, c)
	}
	img := image.NewPaletted(image.Rect(0, 0, p.Columns, p.Rows), palette)
	for i, d := range p.Density {
		img.Pix[i/p.Columns*img.Stride+i%p.Columns] = uint8(min(float64(d)/densest, 1)*(densitySteps-1) + 0.5)
	}
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestCompression}
	if err := e.Encode(&b, img); err != nil {
		return nil, fmt.Errorf("picture of a shuffle: %w", err)
	}
	return &picture{p, "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes()),
		min(max(2*p.Rows, heightAtLeast), heightAtMost)}, nil
}
