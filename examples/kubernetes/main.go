// Command kubernetes checks manifests more strictly than an API server does:
//
//	go run . *.yaml
//
// It decodes them with the types of the Kubernetes API and refuses unknown and repeated fields. It
// checks what decoding does not (check.go), and prints the manifests as JSON, one object per line.
// It is a separate module, so that lsiofs does not depend on Kubernetes.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		if err := show(path, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// show prints the objects of a file.
func show(path string, w io.Writer) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	objects, err := decode(b)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := check(o); err != nil {
			return err
		}
		if err := json.NewEncoder(w).Encode(o); err != nil {
			return err
		}
	}
	return nil
}

// decode returns the objects of a manifest, whose kinds are those that the examples use.
func decode(manifest []byte) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), batchv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	var objects []runtime.Object
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		o, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}
