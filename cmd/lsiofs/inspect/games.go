package inspect

import (
	"fmt"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// Games describes a dataset of format lc0, whose records are frames.
type Games struct {
	Games  int64  `json:"games"`  // games with at least one frame
	Frames Spread `json:"frames"` // per game
}

// gamesOf counts the frames from one game's first to the next one's. Each game is an entry point.
func gamesOf(c *catalog.Catalog) *Games {
	var g Games
	starts := c.ChunkStarts(1, 1)
	for i, first := range starts[:len(starts)-1] {
		g.Frames.Add(int64(starts[i+1] - first))
	}
	g.Games = g.Frames.count
	return &g
}

// Text formats the counts for people.
func (g *Games) Text() string {
	return fmt.Sprintf("%s, frames a game %s to %s, mean %.1f", terminal.Count(uint64(g.Games)),
		terminal.Count(uint64(g.Frames.Min)), terminal.Count(uint64(g.Frames.Max)), g.Frames.Mean)
}
