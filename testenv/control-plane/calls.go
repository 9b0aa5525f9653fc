package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// callCounter counts every call of the bench cloud, and delays it by the latency.
type callCounter struct {
	latency time.Duration

	mu    sync.Mutex
	count map[string]int
}

func newCallCounter(latency time.Duration) *callCounter {
	return &callCounter{latency: latency, count: map[string]int{}}
}

// call counts one call of method and waits as long as a cloud would take to answer.
func (c *callCounter) call(ctx context.Context, method string) error {
	c.mu.Lock()
	c.count[method]++
	c.mu.Unlock()

	timer := time.NewTimer(c.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeTo writes the counts to the file at path: once a second, on SIGTERM or SIGINT, and when the
// caller calls the returned function.
func (c *callCounter) writeTo(path string) (stop func()) {
	// Upstream's manager mostly ends by os.Exit, so a deferred write alone would miss the last
	// second.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			c.write(path)
			select {
			case <-tick.C:
			case <-signals:
				c.write(path)
				os.Exit(0)
			}
		}
	}()
	return func() { c.write(path) }
}

// write replaces the file as a whole, so that a reader never sees half of it.
func (c *callCounter) write(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.Marshal(c.count)
	if err == nil {
		err = os.WriteFile(path+".new", append(text, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-ccm: cannot write the calls:", err)
	}
}
