package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// The state of a machine that does not run.
const (
	machineGone    = "gone"
	machineStopped = "stopped"
)

// machinesFile names a file with the states of the bench cloud's machines. Without a name or a file
// all of them run.
type machinesFile string

// machines is the content of the file.
type machines struct {
	// All is the state of every machine: gone, stopped, or empty for running.
	All string `json:"all"`
	// Gone names the machines that are gone, whatever All is.
	Gone []string `json:"gone"`
}

// state reads the file each time: the benchmark replaces it while the controller runs.
func (f machinesFile) state(name string) (string, error) {
	if f == "" {
		return "", nil
	}
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var now machines
	if err == nil {
		err = json.Unmarshal(text, &now)
	}
	if err != nil {
		return "", fmt.Errorf("GO_CCM_MACHINES: %w", err)
	}
	if slices.Contains(now.Gone, name) {
		return machineGone, nil
	}
	return now.All, nil
}
