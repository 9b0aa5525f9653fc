package main

import (
	"io"
	"os"
)

// dieWithStdin makes the process end at once when its standard input ends, if TESTENV_DIE_WITH_STDIN=1.
//
// The process that starts us holds the other end of the pipe, and the kernel closes it whatever way that
// process ends. PR_SET_PDEATHSIG would be tied to the thread that started us, which may end long before.
func dieWithStdin() {
	if os.Getenv("TESTENV_DIE_WITH_STDIN") != "1" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		// Not a graceful end: nobody is left to wait for it, and kube-apiserver's would hang without etcd.
		os.Exit(1)
	}()
}
