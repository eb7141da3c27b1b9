//go:build !unix

package open

// ownFolder refuses nothing: there is no owner to compare.
func ownFolder(string) error { return nil }
