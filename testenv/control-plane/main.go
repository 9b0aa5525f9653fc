// Command control-plane is a Kubernetes control plane for tests, in one binary: etcd,
// kube-apiserver, kubectl, and upstream's Go cloud-controller-manager, with a cloud in memory (the
// yardstick of the benchmarks) or with a provider of the contract (the yardstick of `make compat`).
// It links the programs of Kubernetes unchanged.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"

	"example.invalid/testenv/control-plane/lifeline"
)

const usage = "usage: control-plane etcd|kube-apiserver|kubectl|go-ccm|version [flags]"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	name := os.Args[1]
	// The commands parse os.Args themselves, so their own name must come first.
	os.Args = append([]string{name}, os.Args[2:]...)
	os.Exit(run(name))
}

// run executes one subcommand and returns the exit code.
func run(name string) int {
	switch name {
	case "etcd":
		lifeline.DieWithStdin()
		return runEtcd(os.Args[1:])
	case "kube-apiserver":
		lifeline.DieWithStdin()
		return cli.Run(apiserver.NewAPIServerCommand())
	case "kubectl":
		return cli.Run(kubectl.NewDefaultKubectlCommand())
	case "go-ccm":
		lifeline.DieWithStdin()
		return runGoCCM()
	case "version":
		fmt.Println(version.Get().GitVersion)
		return 0
	default:
		fmt.Fprintf(os.Stderr, "control-plane: no command %q\n%s\n", name, usage)
		return 2
	}
}
