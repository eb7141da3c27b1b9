package storeurl

import (
	"fmt"
	"strings"
	"testing"
)

// A URL is parsed with its hosts as written, or refused with the reason and without its password.
func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"ZK://u:s%40:@@h1:1,[::1],H:x/r?a=b%26": "zk|u:s%40%3A%40|h1:1,[::1],H:x|/r|map[a:[b&]]",
		"redis+unix:///s//x":                    "redis+unix|||/s//x|map[]",
		"x":                                     "it has no //",
		"x:s3cret@h":                            "it has no //",
		"://s3cret@h":                           "it has no //",
		"redis:s3cret://h":                      "it has no //", // for package url it is opaque
		"s3cret@x/y://h":                        "it has no //",
		"zk://u:s3cret%zz@h":                    "it cannot be parsed",
		"zk://u:s3cret\"@h":                     "it cannot be parsed",
		"zk://h?a=s3cret;b":                     "its query",
		"zk://u:s#3cret@h":                      "it has a fragment; # must be percent-encoded (%23)",
		"zk://h#":                               "it has a fragment",
	} {
		got := ""
		if u, query, err := Parse(raw); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%s|%v|%s|%s|%v", u.Scheme, u.User, u.Host, u.Path, query)
		}
		if got = strings.Replace(got, "<nil>", "", 1); !strings.HasPrefix(got, want) || strings.Contains(got, "3cret") {
			t.Errorf("%q: %s; want %s", raw, got, want)
		}
	}
}

// Each server has one form. A list that has another one is refused without quoting it.
func TestHosts(t *testing.T) {
	for list, want := range map[string]string{
		"h,H:07,h:7,10.0.0.1,a-b.c_d:8":      "[h:7 10.0.0.1:7 a-b.c_d:8]",
		"[::1],[FE80:0::1%25eth0]:8,[0::1]:": "server 3: the port",
		"[::1],[FE80:0::1%25eth0]:8,[0::1]":  "[[::1]:7 [fe80::1%eth0]:8]",
		"":                                   "server 1: there is no host",
		"h,,h":                               "server 2: there is no host",
		"h:s3cret":                           "server 1: the port",
		"h:65536":                            "server 1: the port",
		"h:0":                                "server 1: the port",
		"h:+1":                               "server 1: the port",
		"s3cret::1":                          "server 1: it has two colons; an IPv6 address needs brackets, as in [::1]:7",
		"[10.0.0.1]":                         "server 1: brackets are for an IPv6 address",
		"[::1]7":                             "server 1: brackets are",
		"s3cret h":                           "server 1: invalid host name",
	} {
		got := ""
		if all, err := Hosts(list, "7"); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(all)
		}
		if !strings.HasPrefix(got, want) || strings.Contains(got, "s3cret") {
			t.Errorf("%q: %s; want %s", list, got, want)
		}
	}
}
