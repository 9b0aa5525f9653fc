// Command smoke tries a provider on a real account: it reads machines, and makes, checks and removes
// one load balancer and, if the configuration has a destination and a listed machine runs, one
// route. It leaves out what the provider does not serve. It first states the cost. At the end it
// removes what it made, also after an error or a first interrupt.
//
//	smoke --config ../../hetzner/smoke.json [--yes] -- COMMAND OF THE PROVIDER
//
// Without a command it only reads the configuration. If variables of the environment are missing, it prints them and the cost of a trial.
//
// It uses only the contract and the provider's flag --endpoint. So the provider of another cloud
// needs only a configuration.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// config has the settings that differ between clouds.
type config struct {
	// Costs states the objects and their cost.
	Costs string `json:"costs"`
	// Needs are the variables of the environment that the provider needs, each with its meaning.
	Needs map[string]string `json:"needs"`
	// Annotations are those of the Service.
	Annotations map[string]string `json:"annotations"`
	// Route is an unused destination.
	Route string `json:"route"`
}

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr, signals))
}

func run(arguments []string, environment func(string) string, input io.Reader, output, errorOutput io.Writer, signals <-chan os.Signal) int {
	flags := flag.NewFlagSet("smoke", flag.ContinueOnError)
	flags.SetOutput(errorOutput)
	path := flags.String("config", "", "the cloud's smoke.json")
	yes := flags.Bool("yes", false, "do not ask")
	if err := flags.Parse(arguments); err != nil {
		return 2
	}
	settings, err := read(*path, environment)
	if err != nil {
		fmt.Fprintln(errorOutput, err)
		return 2
	}
	if flags.NArg() == 0 {
		return 0
	}
	fmt.Fprintln(output, settings.Costs)
	if !*yes && !agreed(input, output) {
		fmt.Fprintln(output, "Nothing was done.")
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t := &trial{config: settings, output: output}
	go func() {
		<-signals
		fmt.Fprintln(output, "interrupted: removing what was made; a second signal leaves it in the cloud")
		stop()
		<-signals
		t.kill()
		fmt.Fprintf(errorOutput, "left: %s\n", t.left())
		os.Exit(130)
	}()
	err = t.play(ctx, flags.Args())
	interrupted := ctx.Err() != nil
	if cleaning := t.clean(); cleaning != nil {
		fmt.Fprintf(errorOutput, "%v\nleft: %s\n", cleaning, t.left())
		t.kill()
		return 1
	}
	t.kill()
	switch {
	case interrupted:
		fmt.Fprintln(output, "nothing is left")
		return 130
	case err != nil:
		fmt.Fprintf(errorOutput, "FAILED: %v\nnothing is left\n", err)
		return 1
	}
	fmt.Fprintln(output, "all is well, and nothing is left")
	return 0
}

func read(path string, environment func(string) string) (*config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	settings := &config{}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(settings); err != nil {
		return nil, fmt.Errorf("--config %s: %w", path, err)
	}
	if _, err := netip.ParsePrefix(settings.Route); settings.Route != "" && err != nil {
		return nil, fmt.Errorf("--config %s: route %q is no CIDR", path, settings.Route)
	}
	if route := environment("ROUTE_CIDR"); route != "" {
		if _, err := netip.ParsePrefix(route); err != nil {
			return nil, fmt.Errorf("ROUTE_CIDR %q is no CIDR; right would be one such as %s", route, settings.Route)
		}
		settings.Route = route
	}
	missing := []string{}
	for name, what := range settings.Needs {
		if environment(name) == "" {
			missing = append(missing, fmt.Sprintf("%s is not set: %s", name, what))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("%s\n%s", strings.Join(missing, "\n"), settings.Costs)
	}
	return settings, nil
}

func agreed(input io.Reader, output io.Writer) bool {
	fmt.Fprint(output, "Go on? [y/N] (--yes, or YES=1 for make and smoke.sh, does not ask) ")
	answer, _ := bufio.NewReader(input).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(answer), "y") || strings.EqualFold(strings.TrimSpace(answer), "yes")
}
