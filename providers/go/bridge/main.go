package bridge

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Serving describes the socket and the server.
type Serving struct {
	// Endpoint is unix:///PATH.
	Endpoint string
	// PeerUID is the user that may connect beside the process's own; -1 is every user that the socket's mode admits.
	PeerUID int
	// Drain is how long calls in flight may take after the shutdown has begun; sdk.DefaultDrain if zero or negative.
	Drain time.Duration
}

// AddFlags adds a flag for each field.
func (s *Serving) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.Endpoint, "endpoint", s.Endpoint, "The socket: unix:///PATH, in a directory of its own.")
	flags.IntVar(&s.PeerUID, "peer-uid", s.PeerUID, "The user that may connect beside our own; -1 is everybody that the socket's mode lets in.")
	flags.DurationVar(&s.Drain, "drain", s.Drain, "How long calls in flight may take after SIGTERM.")
}

// DefaultServing has the contract's endpoint, or $CLOUD_PROVIDER_ENDPOINT if set.
func DefaultServing() Serving {
	serving := Serving{Endpoint: sdk.DefaultEndpoint, PeerUID: -1, Drain: sdk.DefaultDrain}
	if endpoint := os.Getenv("CLOUD_PROVIDER_ENDPOINT"); endpoint != "" {
		serving.Endpoint = endpoint
	}
	return serving
}

// Main runs a provider. A vendor's main calls it with the name by which its package registers the cloud, as in upstream's --cloud-provider. With
// Options.New the name is the cloud's own. Main reads the flags, also those of the vendor's packages, serves until SIGTERM or SIGINT, and returns the
// exit code.
//
// If the first argument is `probe`, Main calls Probe of the running provider, for exec probes of the kubelet: `probe [--endpoint unix:///PATH]
// [--timeout 1s] [--ready]`. If it is `check`, Main lets the conformance suite (provider-conformance, on PATH or named by $PROVIDER_CONFORMANCE)
// start this program with the following flags, and prints the rules that the cloud breaks. Arguments after `--` are for the suite: `check [FLAGS] [--
// --config suite.yaml --allow-skipped]`.
func Main(cloudName string, options Options) int {
	arguments := os.Args[1:]
	verb := ""
	if len(arguments) > 0 {
		verb = arguments[0]
	}
	var forSuite []string
	switch verb {
	case "probe":
		return sdk.RunProbe(arguments[1:], DefaultServing().Endpoint, os.Stdout, os.Stderr)
	case "check":
		arguments = arguments[1:]
		if end := slices.Index(arguments, "--"); end >= 0 {
			arguments, forSuite = arguments[:end], arguments[end+1:]
		}
	}
	flags := pflag.CommandLine
	flags.Usage = func() {
		fmt.Fprintf(os.Stderr, "%[1]s [FLAGS]                      serves the cloud\n%[1]s check [FLAGS] [-- ARGUMENTS]  says which rules of the contract it breaks; ARGUMENTS are for %[2]s\n"+
			"%[1]s probe [--endpoint unix:///PATH] [--timeout 1s] [--ready]\n\nFlags:\n%[3]s", filepath.Base(os.Args[0]), suiteProgram, flags.FlagUsages())
	}
	serving := DefaultServing()
	serving.AddFlags(flags)
	options.AddFlags(flags)
	flags.StringVar(&cloudName, "cloud-provider", cloudName, "The cloud, by the name under which it is registered.")
	addGoFlags(flags)
	if verb == "check" {
		// This check precedes the parser, because the parser's error begins with all flags.
		if err := suitesOwn(flags, arguments); err != nil {
			fmt.Fprintln(os.Stderr, "check:", err)
			return wrongUsage
		}
	}
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		fmt.Fprintln(os.Stderr, err)
		return wrongUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%q is no flag\n", flags.Arg(0))
		return wrongUsage
	}
	if verb == "check" {
		if flags.Changed("endpoint") {
			fmt.Fprintln(os.Stderr, "check: the suite chooses where the provider serves; leave --endpoint out")
			return wrongUsage
		}
		return runCheck(arguments, forSuite, os.Stdout, os.Stderr)
	}
	defer klog.Flush()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var cloud cloudprovider.Interface
	var err error
	if options.New == nil {
		cloud, err = makeCloud(cloudName, options.CloudConfig)
	} else if options.Name == "" {
		options.Name = cloudName
	}
	if err == nil {
		err = Serve(ctx, cloud, options, serving)
	}
	if err != nil {
		klog.ErrorS(err, "The provider cannot serve", "cloud", cloudName)
		return 1
	}
	return 0
}

// addGoFlags adds the flags of Go's package flag, with klog's: packages of clouds register their flags there or in pflag.
func addGoFlags(flags *pflag.FlagSet) {
	if flag.CommandLine.Lookup("v") == nil {
		klog.InitFlags(nil)
	}
	flag.CommandLine.VisitAll(func(one *flag.Flag) {
		if flags.Lookup(one.Name) == nil {
			flags.AddGoFlag(one)
		}
	})
}

// makeCloud makes the registered cloud; a panic in its factory is an error.
func makeCloud(name, config string) (cloudprovider.Interface, error) {
	cloud, err := sdk.Guarded(logger, "factory", func() (cloudprovider.Interface, error) { return cloudprovider.InitCloudProvider(name, config) })
	if err == nil && cloud == nil {
		err = fmt.Errorf("no cloud is named: set --cloud-provider")
	}
	return cloud, err
}

// Serve serves the cloud until the context ends. Then calls in flight may finish within the drain, and Serve cancels the others. The cloud is nil if
// Options.New makes it.
func Serve(ctx context.Context, cloud cloudprovider.Interface, options Options, serving Serving) error {
	bridge, err := New(cloud, options)
	if err != nil {
		return err
	}
	defer bridge.Close()
	where := sdk.ServeOptions{Endpoint: serving.Endpoint, Drain: serving.Drain, MaxMessageBytes: MaxMessageBytes, Logger: logger.With("cloud", bridge.name)}
	if serving.PeerUID >= 0 {
		where.PeerUID = &serving.PeerUID
	}
	return sdk.Serve(ctx, bridge.Register, where)
}
