package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
)

// blob is a part of an OCI image.
type blob struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`

	data []byte
}

func newBlob(mediaType string, data []byte) blob {
	return blob{MediaType: mediaType, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(data)), Size: len(data), data: data}
}

// writeImage writes an OCI archive of an image that holds nothing but one static program.
func writeImage(args []string) error {
	flags := flag.NewFlagSet("image", flag.ExitOnError)
	program := flags.String("program", "", "file of the program")
	reference := flags.String("reference", "", "name of the image, with its tag")
	output := flags.String("output", "", "file of the archive")
	_ = flags.Parse(args) // ExitOnError

	data, err := os.ReadFile(*program)
	if err != nil {
		return err
	}
	layer, err := archive([]entry{{name: "program", mode: 0o755, data: data}})
	if err != nil {
		return err
	}
	const kind = "application/vnd.oci.image."
	content := newBlob(kind+"layer.v1.tar", layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/program"}, "User": "65535:65535"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{content.Digest}},
	})
	if err != nil {
		return err
	}
	settings := newBlob(kind+"config.v1+json", config)
	text, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": kind + "manifest.v1+json", "config": settings, "layers": []blob{content},
	})
	if err != nil {
		return err
	}
	manifest := newBlob(kind+"manifest.v1+json", text)
	// containerd reads the first annotation, and needs the full name.
	manifest.Annotations = map[string]string{"io.containerd.image.name": *reference, "org.opencontainers.image.ref.name": *reference}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": kind + "index.v1+json", "manifests": []blob{manifest},
	})
	if err != nil {
		return err
	}
	files := []entry{
		{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", mode: 0o644, data: index},
	}
	for _, part := range []blob{content, settings, manifest} {
		files = append(files, entry{name: "blobs/sha256/" + part.Digest[len("sha256:"):], mode: 0o644, data: part.data})
	}
	whole, err := archive(files)
	if err != nil {
		return err
	}
	return os.WriteFile(*output, whole, 0o644)
}

// entry is a file in an archive.
type entry struct {
	name string
	mode int64
	data []byte
}

func archive(files []entry) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, file := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.data))}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(file.data); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}
