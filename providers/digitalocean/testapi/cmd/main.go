// Command cmd serves the test API of DigitalOcean, and is the client of its control endpoint:
//
//	cmd serve --listen 127.0.0.1:8080 [--droplets 3] [--journal FILE]
//	cmd ask http://127.0.0.1:8080 GET writes
//	cmd ask http://127.0.0.1:8080 POST droplets '{"name": "node-1"}'
//	cmd unmarked http://127.0.0.1:8080 NAME
//	cmd marks http://127.0.0.1:8080 ID
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	shared "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	switch {
	case len(arguments) > 0 && arguments[0] == "serve":
		return serve(arguments[1:])
	case len(arguments) > 3 && arguments[0] == "ask":
		var body any
		if len(arguments) > 4 {
			if err := json.Unmarshal([]byte(arguments[4]), &body); err != nil {
				return fmt.Errorf("%s is no JSON: %w", arguments[4], err)
			}
		}
		return ask(ctx, arguments[1], arguments[2], arguments[3], body)
	case len(arguments) == 3 && arguments[0] == "unmarked":
		name := arguments[2]
		if mark, marked := plan.ReadMark(name); marked {
			name = plan.VendorName(mark.UID)
		}
		return ask(ctx, arguments[1], "POST", "load_balancers/"+name, nil)
	case len(arguments) == 3 && arguments[0] == "marks":
		all := []testapi.LoadBalancer{}
		if err := shared.Ask(ctx, arguments[1], "GET", "load_balancers", nil, &all); err != nil {
			return err
		}
		for _, lb := range all {
			if lb.ID == arguments[2] {
				fmt.Println(lb.Name)
			}
		}
		return nil
	default:
		return fmt.Errorf("usage: serve | ask URL METHOD PATH [JSON] | unmarked URL NAME | marks URL ID")
	}
}

// Texts are printed as they are, anything else as JSON.
func ask(ctx context.Context, url, method, path string, body any) error {
	var answer any
	if err := shared.Ask(ctx, url, method, path, body, &answer); err != nil {
		return err
	}
	if text, is := answer.(string); is {
		fmt.Println(text)
	} else if answer != nil {
		return json.NewEncoder(os.Stdout).Encode(answer)
	}
	return nil
}

func serve(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "where to listen")
	droplets := flags.Int("droplets", 0, "how many droplets there are at the beginning: node-0 and so on")
	journal := flags.String("journal", "", "the file that gets each call as a line of JSON")
	address := flags.String("address-file", "", "the file that gets the API's URL as soon as it listens")
	limit := flags.Int("limit", 5_000, "calls in an hour; 0 is no limit")
	suite := flags.Bool("suite", false, "what suite.yaml names is there, and no limit of calls")
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
	cloud := testapi.New(record)
	if *suite {
		*limit, *droplets = 0, 6
	}
	cloud.Limit(*limit, time.Hour)
	for i := range *droplets {
		cloud.AddDroplet(testapi.NewDroplet{Name: fmt.Sprintf("node-%d", i)})
	}
	if *suite {
		cloud.AddDroplet(testapi.NewDroplet{Name: "stopped-0"})
		if err := cloud.SetDroplet("stopped-0", "off"); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	fmt.Println(url, "with the token", testapi.Token)
	if *address != "" {
		if err := os.WriteFile(*address+".new", []byte(url), 0o644); err != nil {
			return err
		}
		if err := os.Rename(*address+".new", *address); err != nil {
			return err
		}
	}
	server := &http.Server{Handler: cloud, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}
