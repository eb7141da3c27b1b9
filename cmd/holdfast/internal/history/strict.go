package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Unmarshal reads a line that is one JSON object into a struct. It refuses unknown fields, since a
// misspelt one would change the verdict. The error of an incomplete line is io.ErrUnexpectedEOF. All
// errors are for people who do not know Go.
func Unmarshal(line []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	err := dec.Decode(to)
	wrong := (*json.UnmarshalTypeError)(nil)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the line is empty")
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("expected one JSON object, not %s", article(wrong.Value))
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: expected %s, not %s", wrong.Field, expected(wrong.Type), article(wrong.Value))
	case err != nil:
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value in the line")
	}
	return nil
}

// expected says what values a type has.
func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Uint64:
		return "a whole number from 0 to 2^64-1"
	}
	return fmt.Sprintf("a whole number below 2^%d", t.Bits()-1)
}

// article returns a kind of JSON value with its article, or the number itself.
func article(value string) string {
	switch value {
	case "array", "object":
		return "an " + value
	case "string", "bool", "number":
		return "a " + value
	}
	return strings.TrimPrefix(value, "number ") // "number 5.5"
}
