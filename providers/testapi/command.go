package testapi

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Cloud is what [Run] serves.
type Cloud interface {
	http.Handler
	Limit(calls int, window time.Duration)
	// AddMachines makes machines that run. StopMachine stops one.
	AddMachines(names ...string)
	StopMachine(name string) error
}

// Run makes a command of a test API. The command serves the API, or is a client of its control endpoint:
//
//	serve --listen 127.0.0.1:8080 [--machines 3] [--journal FILE]
//	ask http://127.0.0.1:8080 GET writes
//	ask http://127.0.0.1:8080 POST machines '{"name": "node-1"}'
//	marks http://127.0.0.1:8080 ID
//
// serve prints hint after the URL.
func Run[C Cloud](arguments []string, hint string, make func(record io.Writer) C) {
	if err := run(arguments, hint, make); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run[C Cloud](arguments []string, hint string, make func(record io.Writer) C) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	switch {
	case len(arguments) > 0 && arguments[0] == "serve":
		return serveAt(arguments[1:], hint, make)
	case len(arguments) > 3 && arguments[0] == "ask":
		var body any
		if len(arguments) > 4 {
			if err := json.Unmarshal([]byte(arguments[4]), &body); err != nil {
				return fmt.Errorf("%s is no JSON: %w", arguments[4], err)
			}
		}
		return tell(ctx, arguments[1], arguments[2], arguments[3], body)
	case len(arguments) == 3 && arguments[0] == "marks":
		all := []Balancer{}
		if err := Ask(ctx, arguments[1], "GET", "balancers", nil, &all); err != nil {
			return err
		}
		for _, lb := range all {
			if lb.ID != arguments[2] {
				continue
			}
			for _, mark := range lb.Marks {
				fmt.Println(mark)
			}
		}
		return nil
	default:
		return errors.New("usage: serve | ask URL METHOD PATH [JSON] | marks URL ID")
	}
}

// tell prints the answer: a text as it is, any other value as JSON.
func tell(ctx context.Context, url, method, path string, body any) error {
	var answer any
	if err := Ask(ctx, url, method, path, body, &answer); err != nil {
		return err
	}
	if text, is := answer.(string); is {
		fmt.Println(text)
	} else if answer != nil {
		return json.NewEncoder(os.Stdout).Encode(answer)
	}
	return nil
}

func serveAt[C Cloud](arguments []string, hint string, make func(record io.Writer) C) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "where to listen")
	machines := flags.Int("machines", 0, "how many machines there are at the beginning: node-0 and so on")
	journal := flags.String("journal", "", "the file that gets each call as a line of JSON")
	address := flags.String("address-file", "", "the file that gets the API's URL as soon as it listens")
	suite := flags.Bool("suite", false, "create the objects that suite.yaml names, without a limit of calls")
	flags.Parse(arguments)
	var record io.Writer
	if *journal != "" {
		file, err := os.OpenFile(*journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		defer file.Close()
		record = file
	}
	cloud := make(record)
	if *suite {
		*machines = 6
		cloud.Limit(0, time.Hour)
	}
	for i := range *machines {
		cloud.AddMachines(fmt.Sprintf("node-%d", i))
	}
	if *suite {
		cloud.AddMachines("stopped-0")
		if err := cloud.StopMachine("stopped-0"); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	fmt.Println(url, hint)
	if *address != "" {
		if err := os.WriteFile(*address+".new", []byte(url), 0o644); err != nil {
			return err
		}
		if err := os.Rename(*address+".new", *address); err != nil {
			return err
		}
	}
	// A killed caller closes stdin, and this process must then end too.
	if os.Getenv("TESTENV_DIE_WITH_STDIN") == "1" {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	server := &http.Server{Handler: cloud, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}
