package prometheus_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	holdprom "github.com/holdfast-lock/holdfast/prometheus"
)

// exported returns the labels of each metric that m describes.
func exported(m *holdprom.Metrics) map[string][]string {
	ch := make(chan *prom.Desc, 100)
	m.Describe(ch)
	close(ch)
	parts := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	all := map[string][]string{}
	for d := range ch {
		p := parts.FindStringSubmatch(d.String())
		all[p[1]] = strings.Split(p[2], ",")
	}
	return all
}

// metric returns the name of the metric that a series belongs to.
func metric(series string, all map[string][]string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if name, ok := strings.CutSuffix(series, suffix); ok && all[name] != nil {
			return name
		}
	}
	return series
}

var (
	series   = regexp.MustCompile(`\b(holdfast_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// checkQuery checks that the metrics of a query are exported, with the labels that it uses.
func checkQuery(t *testing.T, query string, all map[string][]string) (n int) {
	t.Helper()
	if strings.Count(query, "(") != strings.Count(query, ")") {
		t.Errorf("%s: the parentheses do not match", query)
	}
	labels := []string{"instance", "le"}
	for _, m := range series.FindAllStringSubmatch(query, -1) {
		name := metric(m[1], all)
		if all[name] == nil {
			t.Errorf("%s: %s is not exported", query, m[1])
			continue
		}
		n++
		labels = append(labels, all[name]...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(all[name], l[1]) {
				t.Errorf("%s: %s has no label %s", query, name, l[1])
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		for _, l := range strings.Split(m[1], ", ") {
			if !slices.Contains(labels, l) {
				t.Errorf("%s: no metric has the label %s", query, l)
			}
		}
	}
	return n
}

// Every query of the dashboard asks for metrics that exist, with labels that they have.
func TestDashboard(t *testing.T) {
	all := exported(holdprom.New(nil))
	text, err := os.ReadFile("../docs/grafana/holdfast.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard any
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var ids []float64
	used := map[string]bool{}
	n := 0
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if id, ok := v["id"].(float64); ok {
				ids = append(ids, id)
			}
			for _, key := range []string{"expr", "definition"} {
				if query, ok := v[key].(string); ok {
					n += checkQuery(t, query, all)
					for _, m := range series.FindAllStringSubmatch(query, -1) {
						used[metric(m[1], all)] = true
					}
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(dashboard)
	if n < 20 {
		t.Errorf("only %d series found", n)
	}
	for name := range all {
		if !used[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("panels share an ID: %v", ids)
	}
}

// The page lists every metric with its labels, and no other; its queries ask for metrics that exist.
func TestPage(t *testing.T) {
	all := exported(holdprom.New(nil))
	text, err := os.ReadFile("../docs/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `(holdfast_[a-z_]+)` \\| `(holdfast[a-z.]+)` \\| (\\w+) \\| ([a-z, ]+):")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		listed[m[1]] = strings.Split(m[4], ", ")
	}
	for name, labels := range all {
		if !slices.Equal(listed[name], labels) {
			t.Errorf("%s has the labels %q; the page says %q", name, labels, listed[name])
		}
	}
	queries := regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(listed) != len(all) || len(queries) < 5 {
		t.Errorf("%d metrics and %d queries on the page; %d metrics are exported", len(listed), len(queries), len(all))
	}
	for _, q := range queries {
		query := regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(q[1], "")
		if checkQuery(t, query, all) == 0 {
			t.Errorf("%s: no metric of holdfast", query)
		}
	}
	for _, m := range regexp.MustCompile(`holdfast_[a-z_]+`).FindAllString(string(text), -1) {
		if all[metric(m, all)] == nil {
			t.Errorf("the page names %s, which is not exported", m)
		}
	}
}

// The metrics that are exported are those that are described, once there are values.
func TestDescribed(t *testing.T) {
	m := holdprom.New(nil)
	if n := testutil.CollectAndCount(m); n != 0 {
		t.Errorf("%d samples without a client", n)
	}
	if n := len(exported(m)); n != 19 {
		t.Errorf("%d metrics are described", n)
	}
}
