package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// insideNode is the subcommand of a node's first process.
	insideNode = "node-inside"
	// sharedDirectory has the same content on all nodes of a site. Tests keep the cloud's files
	// there.
	sharedDirectory = "/run/shared"
	// ownProgram is the path of this executable on a node, because the node's mounts may hide its
	// directory.
	ownProgram = "/run/machine"
	// nodeReadyLine is the line that a node prints when containerd accepts connections.
	nodeReadyLine = "node: ready"
	// bootDeadline is how long a node waits for its network interface, and how long for
	// containerd's socket.
	bootDeadline = 60 * time.Second
	// containerdConfig is the path of containerd's configuration, on the node's disk.
	containerdConfig = "/var/lib/containerd/config.toml"
	containerdSocket = "/run/containerd/containerd.sock"
)

// tunables are the kernel settings that kubelet sets for the whole host. A node has its own files
// in their place, so the host's settings stay unchanged.
var tunables = []string{
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// bootNode is the first process of a node: it mounts, configures the network, runs containerd, and
// reaps processes.
func bootNode(args []string) error {
	flags := flag.NewFlagSet(insideNode, flag.ExitOnError)
	name := flags.String("name", "", "")
	flags.String("cgroup", "", "")
	address := flags.String("address", "", "")
	gateway := flags.String("gateway", "", "")
	disk := flags.String("disk", "", "")
	shared := flags.String("shared", "", "")
	_ = flags.Parse(args) // ExitOnError

	if err := syscall.Sethostname([]byte(*name)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := mountAll(*disk, *shared); err != nil {
		return err
	}
	if err := configureNetwork(*address, *gateway); err != nil {
		return err
	}
	containerd := exec.Command("containerd", "--config", containerdConfig)
	containerd.Stdout, containerd.Stderr = os.Stdout, os.Stderr
	if err := containerd.Start(); err != nil {
		return err
	}
	go announce()
	return reap(containerd.Process.Pid)
}

// mountAll gives the node a /proc of its processes, its disk, a new /run at each boot, and tunables
// of its own.
func mountAll(disk, shared string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	// Opens all sources first, because a mount may hide the source of the next one: the disk may be
	// below /var/lib.
	var opened []*os.File
	for _, path := range []string{"/proc/self/exe", shared, filepath.Join(disk, "lib"), filepath.Join(disk, "log")} {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		opened = append(opened, file)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("/run: %w", err)
	}
	if err := os.WriteFile(ownProgram, nil, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(sharedDirectory, 0o755); err != nil {
		return err
	}
	for number, target := range []string{ownProgram, sharedDirectory, "/var/lib", "/var/log"} {
		if err := bind("/proc/self/fd/"+strconv.Itoa(int(opened[number].Fd())), target); err != nil {
			return err
		}
	}
	// /proc comes after them, because the paths in /proc/self/fd above belong to the old one.
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, tunable := range tunables {
		if err := ownTunable(tunable); err != nil {
			return err
		}
	}
	// The mounts of kubelet and containerd must propagate.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("shared mounts: %w", err)
	}
	return nil
}

func bind(from, to string) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	return nil
}

func ownTunable(name string) error {
	path := "/proc/sys/" + name
	value, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own := filepath.Join("/run/tunables", strings.ReplaceAll(name, "/", "."))
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(own, bytes.TrimSpace(value), 0o644); err != nil {
		return err
	}
	return bind(own, path)
}

// configureNetwork waits for the network interface, and gives it the node's address.
func configureNetwork(address, gateway string) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	var link netlink.Link
	err = within(bootDeadline, func() error {
		link, err = netlink.LinkByName(cable)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", cable, err)
	}
	own, err := netlink.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("--address %q: %w", address, err)
	}
	if err := netlink.AddrAdd(link, own); err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("%s: %w", cable, err)
	}
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
		return fmt.Errorf("--gateway %q: %w", gateway, err)
	}
	return nil
}

// announce prints nodeReadyLine when containerd accepts connections.
func announce() {
	err := within(bootDeadline, func() error {
		connection, err := net.Dial("unix", containerdSocket)
		if err == nil {
			err = connection.Close()
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "node: containerd does not answer:", err)
		os.Exit(1)
	}
	fmt.Println(nodeReadyLine)
}

// reap waits for containerd and for orphaned processes. It returns when containerd ends, because
// the node cannot work without it.
func reap(containerd int) error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case pid == containerd:
			return fmt.Errorf("containerd ended: exit code %d, signal %d", status.ExitStatus(), status.Signal())
		}
	}
}

// within calls look until it returns no error, or until the deadline has passed.
func within(deadline time.Duration, look func() error) error {
	end := time.Now().Add(deadline)
	for {
		err := look()
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
