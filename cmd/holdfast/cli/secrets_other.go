//go:build !linux

package cli

// offerSecrets offers nothing: these systems have no file without a name that others can open.
func offerSecrets(string) (value string, withdraw func(), err error) { return "", func() {}, nil }

func offeredSecrets(string) string { return "" }
