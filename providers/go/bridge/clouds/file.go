package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge/shapes/store"
)

const fileUsage = "usage: clouds file STATE SCHEME instance-add|instance-remove|instance-stop|instance-start NAME | cloud-writes | cloud-fail CODE | cloud-slow MS | cloud-late MS | pending-for TIMES | " +
	"load-balancer-remove HANDLE | load-balancer-marks HANDLE | load-balancer-unmarked NAME"

// file changes or reads the state of a cloud from outside. Most of its commands are hooks of
// provider-conformance.
func file(arguments []string) int {
	if err := edit(arguments); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func edit(arguments []string) error {
	if len(arguments) < 3 {
		return fmt.Errorf("%s", fileUsage)
	}
	cloud, scheme, command := store.At(arguments[0]), arguments[1], arguments[2]
	value := ""
	if len(arguments) > 3 {
		value = arguments[3]
	}
	number := func() (int, error) { return strconv.Atoi(value) }
	switch command {
	case "instance-add":
		id, err := cloud.Add(value)
		if scheme == "fake://" {
			// This cloud names every instance after its Node.
			id = value
		}
		fmt.Println(scheme + id)
		return err
	case "instance-remove":
		return cloud.Change(value, func(state *store.State, _ *store.Instance) { delete(state.Instances, value) })
	case "instance-stop":
		return cloud.Change(value, func(_ *store.State, one *store.Instance) { one.Stopped = true })
	case "instance-start":
		return cloud.Change(value, func(_ *store.State, one *store.Instance) { one.Stopped = false })
	case "cloud-writes":
		return cloud.Edit(func(state *store.State) (bool, error) {
			fmt.Println(state.Writes)
			return false, nil
		})
	case "cloud-fail":
		return cloud.Edit(func(state *store.State) (bool, error) {
			state.Fail = strings.ToLower(value)
			return true, nil
		})
	case "load-balancer-unmarked":
		return cloud.Edit(func(state *store.State) (bool, error) {
			state.Next++
			id := fmt.Sprintf("lb-%d", state.Next)
			state.LoadBalancers[id] = &store.LoadBalancer{ID: id, Name: value, IP: fmt.Sprintf("198.51.100.%d", state.Next%250+1)}
			return true, json.NewEncoder(os.Stdout).Encode(map[string]string{"name": value})
		})
	case "load-balancer-marks":
		var handle struct{ Name string }
		if err := json.Unmarshal([]byte(value), &handle); err != nil {
			return fmt.Errorf("the handle %q: %w", value, err)
		}
		return cloud.Edit(func(state *store.State) (bool, error) {
			for _, one := range state.LoadBalancers {
				if one.Name == handle.Name {
					fmt.Printf("%s\n%s\n", one.Owner, one.Service)
				}
			}
			return false, nil
		})
	case "load-balancer-remove":
		// The bridge's handle has the load balancer's name.
		var handle struct{ Name string }
		if err := json.Unmarshal([]byte(value), &handle); err != nil {
			return fmt.Errorf("the handle %q: %w", value, err)
		}
		return cloud.Edit(func(state *store.State) (bool, error) {
			for key, one := range state.LoadBalancers {
				if one.Name == handle.Name {
					delete(state.LoadBalancers, key)
					return true, nil
				}
			}
			return false, fmt.Errorf("no load balancer %q", handle.Name)
		})
	case "cloud-slow", "cloud-late", "pending-for":
		times, err := number()
		if err != nil {
			return err
		}
		return cloud.Edit(func(state *store.State) (bool, error) {
			switch command {
			case "cloud-slow":
				state.SlowMS = times
			case "cloud-late":
				state.LateMS = times
			default:
				state.PendingFor = times
			}
			return true, nil
		})
	default:
		return fmt.Errorf("no command %q; %s", command, fileUsage)
	}
}
