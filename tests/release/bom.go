package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"

	"github.com/holdfast-lock/holdfast/tests/internal/modproxy"
)

// A bill of materials, in CycloneDX 1.5. It has what the program itself says about its modules.
type (
	bom struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Component  component  `json:"component"`
		Properties []property `json:"properties"`
	}
	component struct {
		Type    string `json:"type"`
		Ref     string `json:"bom-ref"`
		Name    string `json:"name"`
		Version string `json:"version"`
		URL     string `json:"purl"`
		Hashes  []hash `json:"hashes,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// writeBOM writes the bill of materials of a program.
func writeBOM(file, version string, info *buildinfo.BuildInfo) error {
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata: metadata{Component: part("application", modproxy.Ours+"/cmd/holdfast", version, info.Main.Sum)}}
	for _, s := range info.Settings {
		b.Metadata.Properties = append(b.Metadata.Properties, property{"go:build:" + s.Key, s.Value})
	}
	b.Components = append(b.Components, part("library", "std", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, d := range info.Deps {
		b.Components = append(b.Components, part("library", d.Path, d.Version, d.Sum))
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// part is one component. sum is the checksum of go.sum: a SHA-256 of the checksums of its files.
func part(kind, path, version, sum string) component {
	url := "pkg:golang/" + path + "@" + version
	c := component{Type: kind, Ref: url, Name: path, Version: version, URL: url}
	if b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(b) > 0 {
		c.Hashes = []hash{{"SHA-256", hex.EncodeToString(b)}}
	}
	return c
}
