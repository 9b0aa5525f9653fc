// Command cmd serves the test API of Hetzner Cloud, and is the client of its control endpoint: see Run of providers/testapi.
package main

import (
	"os"

	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/testapi"
	shared "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

func main() {
	shared.Run(os.Args[1:], "and /v1 behind it, with the token "+testapi.Token, testapi.New)
}
