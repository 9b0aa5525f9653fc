// Command template is an example of a vendor's main. It serves k8s.io/cloud-provider/fake; put your own package in its place.
package main

import (
	"io"
	"os"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"

	"github.com/grpc-ccm/grpc-ccm/providers/go/bridge"
)

// Your package registers its cloud in its own init, and only has to be imported. The fake does not register itself.
func init() {
	cloudprovider.RegisterCloudProvider("fake", func(io.Reader) (cloudprovider.Interface, error) { return &fake.Cloud{}, nil })
}

func main() {
	os.Exit(bridge.Main("fake", bridge.Options{Version: "1.0.0", Classify: bridge.ClassifyHTTPStatus}))
}
