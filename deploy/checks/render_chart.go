// Renders a chart as `helm template RELEASE CHART` does, of the few functions that ours uses; for machines without helm.
// Built from Debian's packages: GO111MODULE=off GOPATH=/usr/share/gocode go run render_chart.go RELEASE CHART
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(path string) map[string]interface{} {
	content, err := os.ReadFile(path)
	must(err)
	values := map[string]interface{}{}
	must(yaml.Unmarshal(content, &values))
	return values
}

func main() {
	release, chart := os.Args[1], os.Args[2]
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = func(value interface{}) string {
		written, err := yaml.Marshal(value)
		must(err)
		return strings.TrimSuffix(string(written), "\n")
	}
	values := map[string]interface{}{
		"Values":  read(filepath.Join(chart, "values.yaml")),
		"Chart":   read(filepath.Join(chart, "Chart.yaml")),
		"Release": map[string]interface{}{"Name": release},
	}
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*.yaml"))
	must(err)
	sort.Strings(paths)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		must(err)
		parsed, err := template.New(path).Option("missingkey=error").Funcs(functions).Parse(string(content))
		must(err)
		var rendered bytes.Buffer
		must(parsed.Execute(&rendered, values))
		fmt.Printf("---\n%s\n", strings.TrimSpace(rendered.String()))
	}
}
