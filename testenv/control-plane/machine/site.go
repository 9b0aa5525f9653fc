package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
)

const (
	// insideSite is the subcommand that runs in the new network namespace.
	insideSite = "site-inside"
	// bridgeName is the name of the bridge that connects the site's nodes.
	bridgeName = "site"
	// siteReadyLine is the line that a site prints when it accepts connections.
	siteReadyLine = "site: ready on port %s\n"
)

// openSite listens on a port of the loopback, then goes on in a network namespace of its own: a
// socket stays in the namespace where it was made. So the parent process reaches the API server in
// the namespace, although no network connects the namespace with the host.
func openSite(args []string) error {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	// exec does not close this copy.
	door, err := syscall.Dup(int(socket.Fd()))
	if err != nil {
		return fmt.Errorf("hand on the socket: %w", err)
	}
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return fmt.Errorf("a network namespace: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// exec keeps the process, so its standard input and its parent stay the same.
	return syscall.Exec(program, append([]string{program, insideSite, "--door=" + strconv.Itoa(door)}, args...), os.Environ())
}

// keepSite makes the site's network and forwards connections to the API server, until it is killed.
func keepSite(args []string) error {
	flags := flag.NewFlagSet(insideSite, flag.ExitOnError)
	door := flags.Uint("door", 0, "the listening socket that was handed on")
	gateway := flags.String("gateway", "", "address of the control plane, with the length of the nodes' network")
	service := flags.String("service", "", "address of the Service kubernetes.default, and where the API server is")
	_ = flags.Parse(args) // ExitOnError

	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = bridgeName
	// A bridge without a fixed hardware address takes the lowest address of its ports. That address
	// would change when the port's machine is switched off, and the other machines would send to
	// the old address for some time.
	attributes.HardwareAddr = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("a bridge (module bridge): %w", err)
	}
	host, _, err := net.SplitHostPort(*service)
	if err != nil {
		return fmt.Errorf("--service: %w", err)
	}
	for _, text := range []string{*gateway, host + "/32"} {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("address %q: %w", text, err)
		}
		if err := netlink.AddrAdd(bridge, address); err != nil {
			return fmt.Errorf("address %q: %w", text, err)
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("the bridge: %w", err)
	}

	listener, err := net.FileListener(os.NewFile(uintptr(*door), "door"))
	if err != nil {
		return fmt.Errorf("the socket that was handed on: %w", err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	fmt.Printf(siteReadyLine, port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go forward(connection, *service)
	}
}

// forward joins a connection to a new one, until either side ends.
func forward(from net.Conn, address string) {
	to, err := net.Dial("tcp4", address)
	if err != nil {
		// If the API server's port refuses, this connection closes too.
		_ = from.Close()
		return
	}
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
	_, _ = from.Close(), to.Close()
}
