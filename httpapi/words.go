package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/plain"
)

// allowed says what the fields of requests may be.
var allowed = map[string]string{
	"request": "a whole number from 1 to 2^53",
	"permits": "a whole number from 1 to " + strconv.Itoa(driver.MaxLimit),
	"limit":   "a whole number from 1 to " + strconv.Itoa(driver.MaxLimit),
	"poll_ms": "a whole number of milliseconds from 0 to " + strconv.FormatInt(maxPoll, 10),
	"wait":    "true or false",
	"labels":  "an object whose values are texts",
	"leases":  "a list of texts",
}

// malformed returns the answer to a body that cannot be decoded into a value of the type of into.
func malformed(err error, into any) *problem {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	const unknown = "json: unknown field "
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return invalid("the body is %s; it must be a JSON object", given(kind.Value))
	case errors.As(err, &kind):
		field, _, _ := strings.Cut(kind.Field, ".") // of labels, Field has the key as well
		want := allowed[field]
		if want == "" {
			want = "a text"
		}
		return invalid("%s: %s is given; allowed is %s", field, plain.Line(given(kind.Value)), want)
	case strings.HasPrefix(err.Error(), unknown):
		return invalid("there is no field %s; allowed are: %s", plain.Line(strings.TrimPrefix(err.Error(), unknown)),
			strings.Join(fields(into), ", "))
	case errors.Is(err, io.EOF):
		return invalid("the body is empty; it must be a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("the body is no JSON: it ends too early")
	case errors.As(err, &syntax):
		return invalid("the body is no JSON: %s (byte %d)", plain.Line(syntax.Error()), syntax.Offset)
	}
	return invalid("the body is not as the API describes it")
}

// given returns in words what the decoder calls a value: "number -1", "string", "bool".
func given(value string) string {
	switch word, number, _ := strings.Cut(value, " "); {
	case number != "":
		return number
	case word == "string":
		return "a text"
	case word == "bool":
		return "true or false"
	case word == "array":
		return "a list"
	case word == "object":
		return "an object"
	default:
		return "a " + word
	}
}

// fields returns the names of the fields of a body; "none" if it has none.
func fields(into any) (names []string) {
	t := reflect.TypeOf(into).Elem()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	if len(names) == 0 {
		return []string{"none"}
	}
	return names
}
