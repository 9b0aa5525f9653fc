// Package lifeline ends a process with the one that started it, whatever way that one ends.
package lifeline

import (
	"io"
	"os"
)

// Variable is 1 if the starting process holds the other end of our standard input as long as it lives.
const Variable = "TESTENV_DIE_WITH_STDIN"

// Cut returns a channel that is closed when standard input ends, if Variable is 1; else one that never is.
//
// The process that starts us holds the other end of the pipe, and the kernel closes it whatever way that
// process ends. PR_SET_PDEATHSIG would be tied to the thread that started us, which may end long before.
func Cut() <-chan struct{} {
	cut := make(chan struct{})
	if os.Getenv(Variable) == "1" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(cut)
		}()
	}
	return cut
}

// DieWithStdin makes the process end at once when standard input ends, if Variable is 1.
func DieWithStdin() {
	cut := Cut()
	go func() {
		<-cut
		// Not a graceful end: no process waits for it, and kube-apiserver's would hang without etcd.
		os.Exit(1)
	}()
}
