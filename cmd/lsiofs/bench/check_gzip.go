package bench

import (
	"context"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/format/inflate/inflatebench"
)

const (
	gzipRounds = 5
	gzipTime   = 100 * time.Millisecond // per decoder and round
)

// gzipAlone checks how fast gzip members are decoded, without a dataset, compared with the library
// that most Go programs use.
func (k *check) gzipAlone(ctx context.Context) error {
	if !k.config.wants(SectionGzip) || k.config.Spec.Dataset != "" {
		return nil
	}
	rows := inflatebench.Rows()
	for i, row := range rows {
		k.config.progress("gzip decoding alone, "+row.Name, i, len(rows))
		c, err := inflatebench.Compare(ctx, row, max(gzipRounds, k.config.Rounds), gzipTime)
		if err != nil {
			return err
		}
		k.add(Check{Section: SectionGzip, What: "gzip decoding alone, " + row.Name + ", to klauspost/compress", Figure: FigureRatio,
			Measured: &Spread{c.Ratio, c.Least, c.Most}, AtLeast: row.AtLeast, Verdict: verdict(c.Ratio, row.AtLeast, 0)})
	}
	return nil
}
