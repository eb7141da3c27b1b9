package fence

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The document shows the statements that are run.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../docs/fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range regexp.MustCompile("(?ms)^```sql\n(.*?)\n```$").FindAllStringSubmatch(string(doc), -1) {
		got = append(got, m[1])
	}
	want := []string{Schema(MySQL), Schema(PostgreSQL), Schema(SQLite)}
	for _, s := range []string{mysqlUpsert, postgresUpsert, sqliteUpsert} {
		want = append(want, strings.NewReplacer("x'%x'", "?", "%d", "?", "%[2]d", "?").Replace(s))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the document's statements are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
