package watchers

// Diff calls changed for each name whose state differs between two readings. It empties before.
func Diff(before, now map[string]string, changed func(name string)) {
	for name, state := range now {
		if before[name] != state {
			changed(name)
		}
		delete(before, name)
	}
	for name := range before {
		changed(name)
	}
}
