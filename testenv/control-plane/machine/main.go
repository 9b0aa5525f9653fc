// Command machine is what `make e2e` has beyond the control plane: kubelet, kube-controller-manager and kube-scheduler as they are, and what plays the
// hardware. A site is a network of its own in which a control plane runs; a node is a machine in it: namespaces of its own for processes, mounts, network and
// host name, with containerd. Whatever happens in there ends with its first process, and never reaches the machine that it all runs on.
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
	// Namespaces belong to threads, and the signal at a parent's death to the thread that started the child: all that is done about either is done on this one.
	runtime.LockOSThread()
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	name := os.Args[1]
	// The commands parse os.Args themselves: they shall see their own name first.
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

// told says what went wrong and returns the exit code.
func told(name string, err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}
