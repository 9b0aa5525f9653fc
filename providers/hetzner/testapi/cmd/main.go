// Command cmd serves the test API of Hetzner Cloud, and is the client of its control endpoint:
//
//	cmd serve --listen 127.0.0.1:8080 [--servers 3] [--journal FILE]
//	cmd ask http://127.0.0.1:8080 GET writes
//	cmd ask http://127.0.0.1:8080 POST servers '{"name": "node-1"}'
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
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/testapi"
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
	case len(arguments) == 3 && arguments[0] == "marks":
		all := []schema.LoadBalancer{}
		if err := shared.Ask(ctx, arguments[1], "GET", "load_balancers", nil, &all); err != nil {
			return err
		}
		for _, lb := range all {
			if strconv.FormatInt(lb.ID, 10) != arguments[2] {
				continue
			}
			for key, value := range lb.Labels {
				fmt.Println(key, value)
			}
		}
		return nil
	default:
		return fmt.Errorf("usage: serve | ask URL METHOD PATH [JSON] | marks URL ID")
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
	servers := flags.Int("servers", 0, "how many servers there are at the beginning: node-0 and so on")
	journal := flags.String("journal", "", "the file that gets each call as a line of JSON")
	address := flags.String("address-file", "", "the file that gets the API's URL as soon as it listens")
	limit := flags.Int("limit", 3_600, "calls in an hour; 0 is no limit")
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
		*limit, *servers = 0, 6
		cloud.Set(testapi.Settings{AnyDestination: true})
	}
	cloud.Limit(*limit, time.Hour)
	for i := range *servers {
		cloud.AddServer(testapi.NewServer{Name: fmt.Sprintf("node-%d", i)})
	}
	if *suite {
		cloud.AddServer(testapi.NewServer{Name: "stopped-0", Status: "off"})
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	fmt.Println(url+"/v1", "with the token", testapi.Token)
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
