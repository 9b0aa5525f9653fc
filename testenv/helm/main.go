// Command helm is upstream's helm, which the tests build. It is a separate Go module, because its
// dependencies would change those of the control plane.
package main

import (
	"errors"
	"os"

	helm "helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
)

func main() {
	// The field manager of helm's writes.
	kube.ManagedFieldsManager = "helm"
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	var failed helm.CommandError
	switch {
	case errors.As(err, &failed):
		os.Exit(failed.ExitCode)
	case err != nil:
		os.Exit(1)
	}
}
