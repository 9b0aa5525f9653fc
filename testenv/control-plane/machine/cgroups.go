package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// removal is how long the kernel may take to free the cgroup of a process that has ended.
const removal = 10 * time.Second

// cgroups has the directories of one cgroup, one in each hierarchy.
type cgroups []string

// makeCgroups makes a cgroup of that name in each hierarchy that is mounted, of version 1 or 2.
func makeCgroups(name string) (cgroups, error) {
	if name == "" || strings.Contains(name, "..") {
		return nil, fmt.Errorf("--cgroup=%q: a path below the root of the hierarchies is wanted", name)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var made cgroups
	for line := range strings.Lines(string(text)) {
		// The fields before " - " describe the mount, those after it the file system.
		mount, system, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 {
			continue
		}
		second := strings.HasPrefix(system, "cgroup2 ")
		if !second && !strings.HasPrefix(system, "cgroup ") {
			continue
		}
		directory := fields[4]
		made = append(made, filepath.Join(directory, name))
		for part := range strings.SplitSeq(name, "/") {
			parent := directory
			directory = filepath.Join(directory, part)
			if err := makeCgroup(parent, directory, second); err != nil {
				return made, fmt.Errorf("cgroup %s: %w", directory, err)
			}
		}
	}
	if len(made) == 0 {
		return nil, errors.New("no cgroups are mounted")
	}
	return made, nil
}

func makeCgroup(parent, directory string, second bool) error {
	if second {
		if err := passOn(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if second {
		return passOn(directory)
	}
	// In version 1 a cpuset without processors accepts no process.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, file), value, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// passOn enables all controllers of a cgroup of version 2 for its children.
func passOn(directory string) error {
	text, err := os.ReadFile(filepath.Join(directory, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(text)) {
		if err := os.WriteFile(filepath.Join(directory, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("controller %s: %w", controller, err)
		}
	}
	return nil
}

// remove removes the cgroups with all cgroups below them. It also removes their parent if no other
// cgroup is left there.
func (c cgroups) remove() error {
	var failures []error
	for _, directory := range c {
		if err := within(removal, func() error { return removeCgroup(directory) }); err != nil {
			failures = append(failures, fmt.Errorf("cgroup: %w", err))
			continue
		}
		parent := filepath.Dir(directory)
		if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err == nil {
			// The parent stays if it is the root, or has the cgroup of another node.
			if err := syscall.Rmdir(parent); err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.ENOENT) {
				failures = append(failures, fmt.Errorf("cgroup %s: %w", parent, err))
			}
		}
	}
	return errors.Join(failures...)
}

func removeCgroup(directory string) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(directory, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(directory); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("%s: %w", directory, err)
	}
	return nil
}
