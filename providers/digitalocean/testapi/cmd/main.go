// Command cmd serves the test API of DigitalOcean, and is the client of its control endpoint: see Run of providers/testapi, and
//
//	cmd unmarked http://127.0.0.1:8080 NAME
package main

import (
	"os"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	shared "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 3 && arguments[0] == "unmarked" {
		name := arguments[2]
		if mark, marked := plan.ReadMark(name); marked {
			name = plan.VendorName(mark.UID)
		}
		arguments = []string{"ask", arguments[1], "POST", "balancers/" + name}
	}
	shared.Run(arguments, "with the token "+testapi.Token, testapi.New)
}
