package httpapi_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/httpapi"
)

// document is openapi.json, as far as the tests read it.
type document struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	Parameters  []map[string]any
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

// schema is the part of JSON Schema that the document uses.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 string
	Enum                 []any
	Const                any
	OneOf                []schema
	Properties           map[string]schema
	Required             []string
	Items                *schema
	AdditionalProperties any
	Minimum, Maximum     *float64
	MinLength, MaxLength *int
}

func readDocument(t testing.TB) *document {
	t.Helper()
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d := &document{}
	if err := json.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// check returns what is wrong with a value.
func (d *document) check(s schema, v any, at string) []string {
	if s.Ref != "" {
		of, ok := d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
		if !ok {
			return []string{at + ": there is no " + s.Ref}
		}
		return d.check(of, v, at)
	}
	var wrong []string
	bad := func(format string, args ...any) { wrong = append(wrong, at+": "+fmt.Sprintf(format, args...)) }
	if s.OneOf != nil {
		var all []string
		for _, x := range s.OneOf {
			w := d.check(x, v, at)
			if w == nil {
				return nil
			}
			all = append(all, w...)
		}
		return all
	}
	if s.Enum != nil && !slices.Contains(s.Enum, v) || s.Const != nil && s.Const != v {
		bad("%v is not allowed", v)
	}
	switch v := v.(type) {
	case map[string]any:
		if s.Type != "object" {
			bad("an object, not %q", s.Type)
		}
		for _, k := range s.Required {
			if _, ok := v[k]; !ok {
				bad("%s is missing", k)
			}
		}
		for k, x := range v {
			p, ok := s.Properties[k]
			if ok {
				wrong = append(wrong, d.check(p, x, at+"."+k)...)
			} else if s.AdditionalProperties == false {
				bad("%s is not described", k)
			}
		}
	case []any:
		if s.Type != "array" {
			bad("an array, not %q", s.Type)
			break
		}
		for i, x := range v {
			wrong = append(wrong, d.check(*s.Items, x, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case string:
		if s.Type != "string" && s.Enum == nil {
			bad("a text, not %q", s.Type)
		}
		if s.MinLength != nil && len(v) < *s.MinLength || s.MaxLength != nil && len(v) > *s.MaxLength {
			bad("%d characters", len(v))
		}
	case float64:
		if s.Type != "integer" || v != math.Trunc(v) || s.Minimum != nil && v < *s.Minimum ||
			s.Maximum != nil && v > *s.Maximum {
			bad("%v is not %q", v, s.Type)
		}
	case bool:
		if s.Type != "boolean" && s.Const == nil {
			bad("a boolean, not %q", s.Type)
		}
	default:
		bad("%v", v)
	}
	return wrong
}

// checkAnswer compares an answer with the document.
func (d *document) checkAnswer(t testing.TB, r *http.Request, status int, body []byte) {
	t.Helper()
	op, ok := d.Paths[r.URL.Path][strings.ToLower(r.Method)]
	if !ok {
		return // a test of a wrong path
	}
	answer, ok := op.Responses[fmt.Sprint(status)]
	if !ok {
		t.Errorf("%s %s: the document has no status %d: %s", r.Method, r.URL.Path, status, body)
		return
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("%s: %v: %s", r.URL.Path, err, body)
		return
	}
	for _, w := range d.check(answer.Content["application/json"].Schema, v, r.URL.Path) {
		t.Errorf("%d %s\n%s", status, w, body)
	}
}

// The document and the handler have the same paths, methods and bodies.
func TestDocument(t *testing.T) {
	c := client(t, nil)
	s := httpapi.New(c, nil)
	d := readDocument(t)
	if len(d.Paths) < 10 {
		t.Fatal(d.Paths)
	}
	for path, ops := range d.Paths {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			op, documented := ops[strings.ToLower(method)]
			r := httptest.NewRequest(method, path, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			missing := strings.Contains(w.Body.String(), "no_such_path")
			if missing == documented {
				t.Errorf("%s %s: documented: %v, but the answer is %s", method, path, documented, w.Body)
			}
			if !documented {
				continue
			}
			d.checkAnswer(t, r, w.Code, w.Body.Bytes())
			if method == "GET" {
				continue
			}
			// Each field of the document is known, and no other is.
			body := op.RequestBody.Content["application/json"].Schema
			fields := d.Components.Schemas[strings.TrimPrefix(body.Ref, "#/components/schemas/")].Properties
			for _, field := range append(slices.Collect(keys(fields)), "other") {
				r := httptest.NewRequest(method, path, strings.NewReader(`{"`+field+`":[[]]}`))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				unknown := strings.Contains(w.Body.String(), "there is no field")
				if w.Code != 400 || unknown != (field == "other") {
					t.Errorf("%s, field %s: %d %s", path, field, w.Code, w.Body)
				}
			}
		}
	}
	if r := httptest.NewRecorder(); true {
		s.ServeHTTP(r, httptest.NewRequest("GET", "/v1/openapi.json", nil))
		if text, err := os.ReadFile("openapi.json"); err != nil || r.Body.String() != string(text) {
			t.Error(err, r.Body)
		}
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
