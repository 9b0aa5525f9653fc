package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"

	"example.invalid/testenv/control-plane/lifeline"
)

const (
	// cable is the name of a node's network interface.
	cable = "eth0"
	// bootLine has the process ID of a node's first process, as seen from outside.
	bootLine = "node: boots as process %d\n"
)

// superviseNode switches a machine on. It switches the machine off after a signal, or when its
// parent process has ended. Then only the machine's disk is left.
//
// It runs in the network of the site. It has to remove only the cgroups. All processes of a PID
// namespace end with its first process. Mounts and network interfaces end with the last process of
// their own namespace.
func superviseNode(args []string) error {
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	name := flags.String("name", "", "host name")
	group := flags.String("cgroup", "", "cgroup of all its pods, made and removed here")
	flags.String("address", "", "address, with the length of the network")
	flags.String("gateway", "", "where packets to elsewhere go")
	flags.String("disk", "", "directory of what outlives a reboot")
	flags.String("shared", "", "directory that all nodes see as "+sharedDirectory)
	_ = flags.Parse(args) // ExitOnError

	// Catches signals before it creates anything that it has to remove.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	cut := lifeline.Cut()

	groups, err := makeCgroups(*group)
	defer func() {
		if err := groups.remove(); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
		}
	}()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	first := exec.Command(program, append([]string{insideNode}, args...)...)
	first.Stdout, first.Stderr = os.Stdout, os.Stderr
	first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := first.Start(); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Wait() }()
	fmt.Printf(bootLine, first.Process.Pid)

	err = connect(*name, first.Process.Pid)
	if err == nil {
		select {
		case err := <-ended:
			return fmt.Errorf("its first process ended: %w", err)
		case <-stop:
		case <-cut:
		}
	}
	// Like pulling the plug: the kernel ends all processes of the namespace before the wait for
	// this one returns.
	killed := first.Process.Kill()
	if killed == nil {
		<-ended
	}
	return errors.Join(err, killed)
}

// connect links the site's network and the node's by a pair of interfaces.
func connect(name string, pid int) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("the site's network: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	// A name of an interface has at most 15 characters.
	attributes.Name = "n" + strconv.Itoa(pid)
	attributes.MasterIndex = bridge.Attrs().Index
	attributes.Flags |= 1 << 0 // up
	link := &netlink.Veth{LinkAttrs: attributes, PeerName: cable, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("a pair of interfaces for %s (module veth): %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("the interface of %s: %w", name, err)
	}
	return nil
}
