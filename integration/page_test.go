package integration

import (
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	imagedraw "image/draw"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// box is the position of an element in the page, in CSS pixels.
type box struct {
	Name                string
	X, Y, Width, Height float64
}

// layout is a script that returns the page's layout in a browser.
const layout = `({
  width: document.documentElement.clientWidth,
  scrollWidth: document.documentElement.scrollWidth,
  height: document.documentElement.scrollHeight,
  broken: [...document.images].filter(i => !i.complete || i.naturalWidth < 2).length,
  images: document.images.length,
  sections: [...document.querySelectorAll('header, section, footer, .frame')].map(e => {
    const r = e.getBoundingClientRect();
    return {name: e.id || e.tagName + '.' + e.className, x: r.x, y: r.y, width: r.width, height: r.height};
  }),
  wide: [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(e => e.tagName + '.' + (e.getAttribute('class') || '') + ': ' + e.textContent.slice(0, 40)),
})`

// windows are typical windows.
var windows = []struct {
	name          string
	width, height int
	scheme        string
	dark          bool
}{
	{"a phone, light", 390, 844, "light", false},
	{"a phone, dark", 390, 844, "dark", true},
	{"a desktop, light", 1280, 800, "light", false},
	{"a desktop, dark", 1280, 800, "dark", true},
}

// isDark checks the corner, where nothing is drawn.
func isDark(shot image.Image) bool {
	return color.GrayModel.Convert(shot.At(1, 1)).(color.Gray).Y < 128
}

// TestThePageInABrowser makes the page of a dataset, shows it in typical windows, and checks that
// it is complete, fits the window, and loads nothing.
func TestThePageInABrowser(t *testing.T) {
	serve.Tier(t, serve.CI)
	data := makeDataset(t, formatNamed("jsonl"), codecs[1], 40, 3)
	long := filepath.Join(data.dir, "part-0", strings.Repeat("a-very-long-name-of-a-shard-", 7)+"<script>alert(1)"+data.ext)
	require.NoError(t, os.WriteFile(long, []byte(strings.Repeat("{\"text\": \"<b>\"}\n", 3000)), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(data.dir, "part-0", "cut"+data.ext+".gz"), []byte{0x1f, 0x8b, 8, 0}, 0o644))
	page := filepath.Join(t.TempDir(), "page.html")
	toolOK(t, "inspect", data.dir, "--on-corrupt", "skip", "--workers", "4", "--shuffle-size", "500", "--html", page)
	b := startBrowser(t)
	for _, c := range windows {
		t.Run(c.name, func(t *testing.T) {
			b.open("file://"+page, c.width, c.height, c.scheme)
			var l struct {
				Width, ScrollWidth, Height int
				Broken, Images             int
				Sections                   []box
				Wide                       []string
			}
			b.evaluate(layout, &l)
			require.Equal(t, c.width, l.Width)
			require.Equal(t, c.width, l.ScrollWidth, "nothing has to be scrolled sideways")
			require.Empty(t, l.Wide)
			require.Equal(t, 3, l.Images)
			require.Zero(t, l.Broken)

			shot := b.screenshot()
			require.Equal(t, image.Rect(0, 0, c.width, l.Height), shot.Bounds())
			require.Equal(t, c.dark, isDark(shot))
			require.Len(t, l.Sections, 12, "%+v", l.Sections)
			for _, s := range l.Sections {
				ink, colours := inkOf(shot, s)
				require.Greaterf(t, ink, 0.004, "%s of %v is as good as empty", s.Name, s)
				require.Greaterf(t, colours, 2, "%s", s.Name)
			}
			require.Empty(t, b.complaints("file://"+page))
		})
	}
	t.Run("on paper", func(t *testing.T) {
		var r struct{ Data string }
		b.call("Page.printToPDF", map[string]any{"printBackground": false}, &r)
		pdf, err := base64.StdEncoding.DecodeString(r.Data)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(pdf), "%PDF-"))
		require.Greater(t, len(pdf), 20_000)
		if dir := os.Getenv("LSIOFS_SCREENSHOTS"); dir != "" { // for people
			require.NoError(t, os.WriteFile(dir+"/page.pdf", pdf, 0o644))
		}
	})
}

// inkOf returns the share of a box's pixels that differ from the page's background, and the number
// of colours, up to 64.
func inkOf(shot image.Image, b box) (ink float64, colours int) {
	rgba, ok := shot.(*image.RGBA)
	if !ok {
		rgba = image.NewRGBA(shot.Bounds())
		imagedraw.Draw(rgba, rgba.Rect, shot, image.Point{}, imagedraw.Src)
	}
	paper := rgba.RGBAAt(1, 1)
	seen := map[color.RGBA]bool{}
	marked, all := 0, 0
	r := image.Rect(int(b.X), int(b.Y), int(b.X+b.Width), int(b.Y+b.Height)).Intersect(rgba.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			c := rgba.RGBAAt(x, y)
			all++
			if c != paper {
				marked++
			}
			if len(seen) < 64 {
				seen[c] = true
			}
		}
	}
	return float64(marked) / float64(max(all, 1)), len(seen)
}

// A browser that has to load something reports it: otherwise the test above would not notice.
func TestBrowserReportsRequestsAndErrors(t *testing.T) {
	serve.Tier(t, serve.CI)
	page := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(page, fmt.Appendf(nil, `<!doctype html><img src="http://127.0.0.1:1/x.png"><script>console.error("broken")</script>`), 0o644))
	b := startBrowser(t)
	b.open("file://"+page, 390, 844, "light")
	for _, words := range []string{"request: http://127.0.0.1:1/x.png", "broken"} {
		for !strings.Contains(strings.Join(b.complaints("file://"+page), "\n"), words) {
			b.next() // until the browser's time is over
		}
	}
}
