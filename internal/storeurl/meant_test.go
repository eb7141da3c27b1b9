package storeurl

import "testing"

func TestMeant(t *testing.T) {
	known := []string{"replicas", "replica-timeout", "dialect", "db"}
	for word, want := range map[string]string{
		"replica": " (did you mean replicas?)", "replica-t": " (did you mean replica-timeout?)",
		"dialekt": " (did you mean dialect?)", "replicsa": " (did you mean replicas?)", "sslmode": "", "": "",
	} {
		if got := Meant(word, known); got != want {
			t.Errorf("%s: %q; want %q", word, got, want)
		}
	}
}
