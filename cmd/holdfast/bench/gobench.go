package bench

import (
	"fmt"
	"io"
	"runtime"
	"strings"
)

// WriteGo writes the figures in the benchmark format of Go, a line for each round, for programs such
// as benchstat. ns/op is the time of the round divided by its operations; p50-ns, p90-ns and p99-ns
// are those of Round. A row without figures has a line that such programs skip.
func (r *Result) WriteGo(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\nstore: %s\n", runtime.GOOS, runtime.GOARCH,
		strings.Join(strings.Fields(r.Store), "%20"))
	for _, row := range r.Rows {
		if row.Err != nil {
			fmt.Fprintf(&b, "--- FAIL: %s\n    %s\n", benchmark(row.Name), strings.ReplaceAll(row.Err.Error(), "\n", `\n`))
		}
		for _, m := range row.Rounds {
			fmt.Fprintf(&b, "%s-%d\t%d\t%.1f ns/op\t%d p50-ns\t%d p90-ns\t%d p99-ns\t%.2f x-exchange",
				benchmark(row.Name), runtime.GOMAXPROCS(0), max(m.Ops, 1),
				float64(m.Took)/float64(max(m.Ops, 1)), m.P50, m.P90, m.P99, m.TimesP50)
			if row.Contended {
				fmt.Fprintf(&b, "\t%.4f jain", m.Jain)
			}
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
