package plan

import (
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// LB-30: the digits of a UID are no UID.
func TestAListedOwnerHasAUIDOnlyIfTheMarkHoldsIt(t *testing.T) {
	call := &sdk.Call{Cluster: sdk.Cluster{OwnerID: "owner-1"}}
	for uid, listed := range map[string]string{
		"8f7c0000-0000-4000-8000-00000000abcd": "8f7c0000-0000-4000-8000-00000000abcd",
		"no UUID":                              "",
		strings.Repeat("a", 64):                "",
	} {
		labels := labelsOf(nil, call, &sdk.Service{Namespace: "default", Name: "web", UID: uid})
		if owner := Owner(&hcloud.LoadBalancer{Labels: labels}); owner != (sdk.ServiceRef{Namespace: "default", Name: "web", UID: listed}) {
			t.Errorf("%q: %+v", uid, owner)
		}
	}
}
