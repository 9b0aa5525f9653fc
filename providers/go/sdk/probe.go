package sdk

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// HandleProbe belongs at the beginning of main. If the first argument is `probe`, it calls Probe of the provider on a socket, and ends the process.
// It is for exec probes: the kubelet's gRPC probe does not support Unix sockets.
func HandleProbe() {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		os.Exit(RunProbe(os.Args[2:], DefaultEndpoint, os.Stdout, os.Stderr))
	}
}

// RunProbe reads the arguments after `probe`, calls Probe, prints one line, and returns the exit code: 0 if the provider answers, 1 if it does not, 2 if
// an argument is wrong. With --ready it returns 1 also if the state is neither READY nor DEGRADED. Without --endpoint it uses defaultEndpoint, which
// should be the program's own default.
func RunProbe(arguments []string, defaultEndpoint string, output, errorOutput io.Writer) int {
	flags := flag.NewFlagSet("probe", flag.ContinueOnError)
	flags.SetOutput(errorOutput)
	endpoint := flags.String("endpoint", defaultEndpoint, "the provider's socket: unix:// and an absolute path")
	timeout := flags.Duration("timeout", time.Second, "the longest time to wait for the answer, such as 1s")
	ready := flags.Bool("ready", false, "require the state READY or DEGRADED; without this flag any answer of the provider is enough")
	if err := flags.Parse(arguments); err != nil {
		return 2
	}
	wrong := ""
	switch {
	case flags.NArg() > 0:
		wrong = fmt.Sprintf("the argument %q is no flag", flags.Arg(0))
	case *timeout <= 0:
		wrong = fmt.Sprintf("--timeout %v is not above zero; right would be one such as 1s", *timeout)
	case !strings.HasPrefix(*endpoint, "unix:///"):
		wrong = fmt.Sprintf("--endpoint %q does not begin with unix:///; right would be one such as %s", *endpoint, DefaultEndpoint)
	}
	if wrong != "" {
		fmt.Fprintf(errorOutput, "%s\nusage: probe [--endpoint unix:///PATH] [--timeout 1s] [--ready]\n", wrong)
		return 2
	}
	wanted := "live"
	if *ready {
		wanted = "ready"
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	said, works, err := askProvider(ctx, strings.TrimPrefix(*endpoint, "unix://"))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Fprintf(errorOutput, "not %s: no answer from %s within %v: the provider hangs, or has too little CPU\n", wanted, *endpoint, *timeout)
	case err != nil:
		fmt.Fprintf(errorOutput, "not %s: %v\n", wanted, err)
	case *ready && !works:
		fmt.Fprintf(errorOutput, "not ready: the provider says %s\n", said)
	default:
		// A provider that answers is live, whatever its state: the kubelet must not kill it because its cloud is down.
		fmt.Fprintf(output, "%s: the provider says %s\n", wanted, said)
		return 0
	}
	return 1
}

// askProvider returns the provider's state as text, and whether controllers work with it.
func askProvider(ctx context.Context, path string) (said string, works bool, err error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, fmt.Errorf("the socket %s does not exist: the provider has not started to serve, or serves elsewhere", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "", false, fmt.Errorf("no process listens on the socket %s: the provider is not running, or does not listen yet", path)
	case errors.Is(err, fs.ErrPermission):
		return "", false, fmt.Errorf("uid %d, gid %d may not connect to the socket %s: probe as the provider's user, or with its primary group", os.Geteuid(), os.Getegid(), path)
	case err != nil:
		return "", false, fmt.Errorf("cannot connect to the socket %s: %w", path, err)
	}
	// gRPC gets this connection, and no second one.
	once := func(context.Context, string) (net.Conn, error) {
		made := connection
		connection = nil
		if made == nil {
			return nil, errors.New("the connection was closed")
		}
		return made, nil
	}
	client, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(once))
	if err != nil {
		return "", false, err
	}
	defer client.Close()
	answer, err := contract.NewProviderServiceClient(client).Probe(ctx, &contract.ProbeRequest{})
	if status.Code(err) == codes.DeadlineExceeded {
		return "", false, context.DeadlineExceeded
	}
	if err != nil {
		return "", false, fmt.Errorf("the process that listens on %s did not answer as a provider (%w): it is no provider, it is ending, or it does not accept uid %d", path, err, os.Geteuid())
	}
	said = "BROKEN"
	switch answer.State {
	case contract.ProbeState_PROBE_STATE_READY, contract.ProbeState_PROBE_STATE_DEGRADED:
		works = true
		fallthrough
	case contract.ProbeState_PROBE_STATE_STARTING:
		said = strings.TrimPrefix(answer.State.String(), "PROBE_STATE_")
	}
	if answer.Message != "" {
		said += " (" + strings.ReplaceAll(answer.Message, "\n", " ") + ")"
	}
	return said, works, nil
}
