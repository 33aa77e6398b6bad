//go:build helm

package main

import _ "helm.sh/helm/v3/cmd/helm" // go.mod is to know it
