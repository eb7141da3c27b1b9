package bench

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/internal/histogram"
)

// span returns d with three digits: 850 ns, 131 µs, 1.23 ms, 12.3 s.
func span(d time.Duration) string {
	units := []struct {
		of   time.Duration
		name string
	}{{time.Nanosecond, "ns"}, {time.Microsecond, "µs"}, {time.Millisecond, "ms"}, {time.Second, "s"}}
	for i, u := range units {
		v := float64(d) / float64(u.of)
		if digits := decimals(v); math.Round(v*math.Pow10(digits)) < 1000*math.Pow10(digits) || i == len(units)-1 {
			if u.of == time.Nanosecond {
				digits = 0
			}
			return fmt.Sprintf("%.*f %s", digits, v, u.name)
		}
	}
	return d.String()
}

// decimals returns how many decimals give v three digits, at most two.
func decimals(v float64) int {
	switch {
	case v >= 99.95:
		return 0
	case v >= 9.995:
		return 1
	}
	return 2
}

// whole returns v with a comma for each thousand.
func whole(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// heads are the columns of the table.
var heads = []string{"WORKLOAD", "OPS/S", "P50", "P90", "P99", "MAX", "× EXCHANGE", "JAIN", "ERRORS"}

// cells returns the row in the columns of heads.
func (r *Row) cells() []string {
	m := r.Median()
	cells := []string{r.Name, "–", "–", "–", "–", "–", "–", "", fmt.Sprint(r.Errors)}
	if len(r.Rounds) == 0 {
		return cells
	}
	perSecond, p50 := r.Spread()
	within := func(text string, spread float64) string {
		if len(r.Rounds) < 2 {
			return text
		}
		return fmt.Sprintf("%s ±%.0f%%", text, 100*spread)
	}
	copy(cells[1:], []string{within(whole(m.PerSecond), perSecond), within(span(m.P50), p50), span(m.P90), span(m.P99),
		span(m.Max)})
	if m.TimesP50 > 0 {
		cells[6] = fmt.Sprintf("%.*f", decimals(m.TimesP50), m.TimesP50)
	}
	if r.Contended {
		cells[7] = fmt.Sprintf("%.2f", m.Jain)
	}
	return cells
}

// lines explain the table.
func (r *Result) lines() []string {
	lines := []string{
		"exchange: one read of a name that is not in use, the cheapest exchange with this store; × is P50 as its multiple.",
		"pair, names: Lock and Release together. one: from the call of Release until the next holder has the lock.",
		"JAIN: 1 if every contender got the lock equally often, 1/N if one of N got it always.",
	}
	if r.Count > 1 {
		lines = append(lines, "Medians of the rounds, and the largest of all as MAX; ± is the largest distance of a round from the median.")
	}
	for _, n := range r.Notes {
		lines = append(lines, "note: "+n)
	}
	for _, row := range r.Rows {
		if row.Err != nil {
			lines = append(lines, row.Name+": "+row.Err.Error())
		}
	}
	if !r.Complete {
		lines = append(lines, "The run is incomplete.")
	}
	return lines
}

// rounds says how the figures were made.
func (r *Result) rounds() string {
	times := "one round"
	if r.Count > 1 {
		times = fmt.Sprintf("%d rounds", r.Count)
	}
	return fmt.Sprintf("leases of %v, %s of %v for each workload", r.TTL, times, r.Duration)
}

// Text returns the table for people, with a histogram of each workload if that is wanted.
func (r *Result) Text(histograms bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "store %s, %s\n\n", r.Store, r.rounds())
	table := [][]string{heads}
	for _, row := range r.Rows {
		table = append(table, row.cells())
	}
	widths := make([]int, len(heads))
	for _, cells := range table {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range table {
		fmt.Fprintf(&b, "%-*s", widths[0], cells[0])
		for i, c := range cells[1:] {
			fmt.Fprintf(&b, "  %*s", widths[i+1], c)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for _, line := range r.lines() {
		b.WriteString(strings.ReplaceAll(line, "\n", `\n`) + "\n")
	}
	if histograms {
		for _, row := range r.Rows {
			b.WriteString(row.drawing())
		}
	}
	return b.String()
}

// The size of a drawing in the terminal.
const (
	barLines   = 16
	barColumns = 50
)

// drawing returns the distribution of a row: a line for each part of a logarithmic scale, with a bar
// as long as its share.
func (r *Row) drawing() string {
	if len(r.Rounds) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s\n", r.Name, r.Title)
	var bars []histogram.Bar
	for _, perDecade := range []int{20, 10, 5, 3, 2, 1} {
		if bars = r.Latency.Bars(perDecade); len(bars) <= barLines {
			break
		}
	}
	most := uint64(1)
	for _, bar := range bars {
		most = max(most, bar.N)
	}
	for _, bar := range bars {
		line := fmt.Sprintf("%8s – %-8s %s", span(bar.From), span(bar.To), block(bar.N, most))
		share := ""
		if bar.N > 0 {
			share = percent(float64(bar.N) / float64(r.Latency.N))
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%s %s", line, share), " ") + "\n")
	}
	return b.String()
}

// percent returns a share, never as nothing.
func percent(share float64) string {
	switch v := 100 * share; {
	case v >= 9.95:
		return fmt.Sprintf("%.0f%%", v)
	case v >= 0.1:
		return fmt.Sprintf("%.1f%%", v)
	case v >= 0.01:
		return fmt.Sprintf("%.2f%%", v)
	}
	return "<0.01%"
}

// block returns a bar of eighths of a column. One that is not empty can be seen.
func block(n, most uint64) string {
	eighths := int(math.Round(float64(n) / float64(most) * 8 * barColumns))
	if n > 0 {
		eighths = max(eighths, 1)
	}
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return bar
}
