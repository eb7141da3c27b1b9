package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"os"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name, path string
	mode       int64
}

// tarGz writes an archive. Its bytes depend on nothing but the names, the contents and the time.
func tarGz(file string, all []entry, when time.Time) error {
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	defer w.Close() // again, after an error
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	for _, e := range all {
		text, err := os.ReadFile(e.path)
		if err == nil {
			err = archive.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(text)), ModTime: when,
				Format: tar.FormatUSTAR})
		}
		if err == nil {
			_, err = archive.Write(text)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close(), w.Close())
}

// zipped is tarGz for systems that have no tar.
func zipped(file string, all []entry, when time.Time) error {
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	defer w.Close() // again, after an error
	archive := zip.NewWriter(w)
	for _, e := range all {
		text, err := os.ReadFile(e.path)
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: when}
		h.SetMode(os.FileMode(e.mode))
		part, err := archive.CreateHeader(h)
		if err == nil {
			_, err = part.Write(text)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), w.Close())
}
