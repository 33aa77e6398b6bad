//go:build helm

package main

import _ "helm.sh/helm/v3/cmd/helm" // keeps it in go.mod
