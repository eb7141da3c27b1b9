package plain

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

func TestShow(t *testing.T) {
	for text, want := range map[string]string{
		"deploy/prod": "deploy/prod", "": `""`, " a": `" a"`, "a ": `"a "`, "a  b": `"a  b"`, "a b": "a b", `"a"`: `"\"a\""`,
		"a\u202eb": `"a\u202eb"`, "a\x1b[2J": `"a\x1b[2J"`, "a\u200bb": `"a\u200bb"`, "größe 鍵": "größe 鍵", "a\nb": `"a\nb"`,
	} {
		if got := Show(text); got != want {
			t.Errorf("Show(%q) = %s, want %s", text, got, want)
		}
	}
	if got := Word("a=b"); got != `"a=b"` {
		t.Error(got)
	}
	if got := Line(" a\tb\u202ec\n d "); got != "a b c d" {
		t.Error(got)
	}
}

// Two texts never look the same, and nothing that is shown is hidden.
func FuzzShow(f *testing.F) {
	f.Add("a\u202eb", `"a\u202eb"`)
	f.Add("\xff", "\ufffd")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a != b && Show(a) == Show(b) {
			t.Errorf("%q and %q are both shown as %s", a, b, Show(a))
		}
		for _, shown := range []string{Show(a), Word(a), Quote(a)} {
			if strings.ContainsFunc(shown, func(r rune) bool { return r == '\n' || Hidden(r) }) {
				t.Errorf("%q is shown as %q", a, shown)
			}
		}
		if text, err := strconv.Unquote(Quote(a)); err != nil || text != a {
			t.Errorf("%q: %q, %v", a, text, err)
		}
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		if json.Unmarshal(raw, &want) != nil || json.Unmarshal([]byte(EscapeJSON(string(raw))), &got) != nil || got != want {
			t.Errorf("%q became %q", want, got)
		}
	})
}
