// Command machine has the programs that `make e2e` needs beyond the control plane: kubelet,
// kube-controller-manager and kube-scheduler, unchanged, and the simulation of hardware. A site is
// a separate network in which a control plane runs. A node is a machine in that network: separate
// namespaces for processes, mounts, network and host name, with containerd. A node's processes end
// with its first process, and its mounts and settings do not change those of the host.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"k8s.io/component-base/cli"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"example.invalid/testenv/control-plane/lifeline"

	// Logging and metrics as upstream's own binaries link them.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

const usage = "usage: machine kubelet|kube-controller-manager|kube-scheduler|site|node|image [flags]"

func init() {
	// A network namespace belongs to a thread, and the signal at a parent's death depends on the
	// thread that started the child. So this program does both on one thread.
	runtime.LockOSThread()
}

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
	case "kubelet":
		lifeline.DieWithStdin()
		return cli.Run(kubelet.NewKubeletCommand(context.Background()))
	case "kube-controller-manager":
		lifeline.DieWithStdin()
		return cli.Run(manager.NewControllerManagerCommand())
	case "kube-scheduler":
		lifeline.DieWithStdin()
		return cli.Run(scheduler.NewSchedulerCommand())
	case "site":
		return told(name, openSite(os.Args[1:]))
	case insideSite:
		lifeline.DieWithStdin()
		return told(name, keepSite(os.Args[1:]))
	case "node":
		return told(name, superviseNode(os.Args[1:]))
	case insideNode:
		return told(name, bootNode(os.Args[1:]))
	case "image":
		return told(name, writeImage(os.Args[1:]))
	default:
		fmt.Fprintf(os.Stderr, "machine: no command %q\n%s\n", name, usage)
		return 2
	}
}

// told prints the error, if there is one, and returns the exit code.
func told(name string, err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}
