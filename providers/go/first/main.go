// A first provider: a file lists machines, and their Nodes get addresses, types and zones from it. The provider calls no cloud.
//
//	echo 'node-1,10.0.0.5,8-cores,rack-a' > machines.csv
//	go run ./first machines.csv unix:///tmp/machines/provider.sock
package main

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

const prefix = "machines://"

type machines struct{ file string }

func (m machines) Info() sdk.Info {
	return sdk.Info{Name: "machines", Version: "1.0.0", ProviderIDPrefixes: []string{prefix}}
}

func (m machines) Initialize(context.Context, *sdk.Call, sdk.InitializeRequest) (sdk.Initialized, error) {
	return sdk.Initialized{CloudScope: "file " + m.file}, nil
}

func (m machines) LookupInstance(_ context.Context, _ *sdk.Call, node sdk.Node, _ sdk.InstanceQuery) (sdk.Instance, error) {
	text, err := os.ReadFile(m.file)
	if err != nil { // Never "gone" (INST-1).
		return sdk.Instance{}, sdk.Unavailable("the machines cannot be read: %w", err)
	}
	name := node.Name
	if node.ProviderID != "" { // It identifies the machine (INST-3).
		name = strings.TrimPrefix(node.ProviderID, prefix)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(line, ",")
		for at := range fields {
			fields[at] = strings.TrimSpace(fields[at])
		}
		if len(fields) == 4 && fields[0] == name {
			return sdk.Instance{
				State:      sdk.InstancePresent,
				ProviderID: prefix + name,
				Type:       fields[2],
				Zone:       fields[3],
				Addresses:  []sdk.NodeAddress{{Type: sdk.InternalIP, Address: fields[1]}},
			}, nil
		}
	}
	// A missing line does not prove that a machine is gone: the Node is left alone, never deleted.
	return sdk.Instance{State: sdk.InstanceUnmanaged}, nil
}

func main() {
	sdk.HandleProbe() // `first probe --endpoint unix:///PATH` is for the kubelet.
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: first FILE unix:///PATH, or first probe --endpoint unix:///PATH")
	}
	server := sdk.Server{Provider: machines{os.Args[1]}, Endpoint: os.Args[2]}
	if err := server.Run(); err != nil {
		log.Fatal(err)
	}
}
