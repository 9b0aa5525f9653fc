// Package lifeline ends a process when its parent process ends, in whatever way the parent ends.
package lifeline

import (
	"io"
	"os"
)

// Variable is 1 if the parent process keeps the other end of our standard input open while it runs.
const Variable = "TESTENV_DIE_WITH_STDIN"

// Cut returns a channel that closes when standard input ends. If Variable is not 1, the channel
// never closes.
//
// The parent process holds the other end of the pipe. However the parent ends, the kernel closes
// its side. PR_SET_PDEATHSIG would depend on the thread that started us, which may end
// long before its process.
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
		// This end is not graceful: no process waits for it, and a graceful end of kube-apiserver
		// would hang without etcd.
		os.Exit(1)
	}()
}
