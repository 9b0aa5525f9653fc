package main

import (
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

// readyLine is the line that etcd prints when it serves requests.
const readyLine = "etcd: ready"

// runEtcd serves a single etcd member on the loopback until SIGTERM or SIGINT.
func runEtcd(args []string) int {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	dir := flags.String("data-dir", "", "directory of the data")
	clientPort := flags.Int("client-port", 2379, "port for clients")
	peerPort := flags.Int("peer-port", 2380, "port for peers")
	_ = flags.Parse(args) // ExitOnError

	if err := serveEtcd(*dir, *clientPort, *peerPort); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	return 0
}

func serveEtcd(dir string, clientPort, peerPort int) error {
	if dir == "" {
		return fmt.Errorf("--data-dir is required")
	}
	client, peer := loopback(clientPort), loopback(peerPort)

	config := embed.NewConfig()
	config.Name = "testenv"
	config.Dir = dir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	// The data need not outlive the machine: a killed process loses nothing without fsync.
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	config.LogOutputs = []string{"stderr"}

	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	ready := server.Server.ReadyNotify()
	for {
		select {
		case <-ready:
			// The parent process waits for this line, because an answer on the port could come from
			// another process.
			fmt.Println(readyLine)
			ready = nil
		case <-stop:
			return nil
		case err := <-server.Err():
			return err
		}
	}
}

func loopback(port int) url.URL {
	return url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}
