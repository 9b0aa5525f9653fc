package plan

import (
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The provider IDs that Hetzner's own controller gives. Those of dedicated servers are not this provider's: Hetzner Cloud's API does not know them.
const (
	CloudPrefix       = "hcloud://"
	RobotPrefix       = "hrobot://"
	robotLegacyPrefix = "hcloud://bm-"
)

// ServerID reads a provider ID; robot says that it is a dedicated server's.
func ServerID(providerID string) (id int64, robot bool, err error) {
	for _, prefix := range []string{RobotPrefix, robotLegacyPrefix, CloudPrefix} {
		if text, is := strings.CutPrefix(providerID, prefix); is {
			id, ok := ParseID(text)
			if !ok {
				return 0, false, sdk.Invalid("the provider ID %q has no server's ID after %s; write one like %s12345", providerID, prefix, prefix).Because("ProviderIDMalformed")
			}
			return id, prefix != CloudPrefix, nil
		}
	}
	return 0, false, sdk.Invalid("the provider ID %q is not one of Hetzner's; those begin with %s or %s", providerID, CloudPrefix, RobotPrefix).Because("ProviderIDMalformed")
}

// InstanceSettings are what the operator says of Nodes.
type InstanceSettings struct {
	// NetworkID is the private network of the cluster; zero if it has none.
	NetworkID int64
	// IPv4 and IPv6 say which public addresses Nodes show.
	IPv4, IPv6 bool
}

// The zones that Hetzner's own controller gives to the locations that once had data centres of these names. A zone label of a Node must not change.
var zones = map[string]string{"nbg1": "nbg1-dc3", "hel1": "hel1-dc2", "fsn1": "fsn1-dc14", "ash": "ash-dc1", "hil": "hil-dc1", "sin": "sin-dc1"}

// Instance is what a server is to the controller; nil is one that does not exist.
func Instance(server *hcloud.Server, settings *InstanceSettings) sdk.Instance {
	if server == nil {
		return sdk.Instance{State: sdk.InstanceAbsent}
	}
	instance := sdk.Instance{
		State: stateOf(server.Status), ProviderID: CloudPrefix + strconv.FormatInt(server.ID, 10), Addresses: addresses(server, settings),
		Labels: map[string]string{"instance.hetzner.cloud/provided-by": "cloud"},
	}
	if server.ServerType != nil {
		instance.Type = fact(server, "type", server.ServerType.Name)
	}
	if server.Location != nil {
		instance.Region = fact(server, "location", server.Location.Name)
		if instance.Zone = instance.Region; zones[instance.Region] != "" {
			instance.Zone = zones[instance.Region]
		}
	}
	return instance
}

// INST-14 says what each state is.
func stateOf(status hcloud.ServerStatus) sdk.InstanceState {
	switch status {
	case hcloud.ServerStatusInitializing, hcloud.ServerStatusStarting, hcloud.ServerStatusRunning, hcloud.ServerStatusStopping, hcloud.ServerStatusMigrating:
		return sdk.InstanceRunning
	case hcloud.ServerStatusOff, hcloud.ServerStatusDeleting:
		return sdk.InstanceStopped
	default:
		return sdk.InstancePresent
	}
}

// Leave out values that are not valid in a label (INST-15).
func fact(server *hcloud.Server, what, value string) string {
	if sdk.LabelValue.Tag(value) == value {
		return value
	}
	slog.Warn("left out a value that is not a valid label value", "server", server.ID, "what", what, "value", value)
	return ""
}

// The addresses, in the order of Hetzner's own controller.
func addresses(server *hcloud.Server, settings *InstanceSettings) (all []sdk.NodeAddress) {
	if server.Name != "" {
		all = append(all, sdk.NodeAddress{Type: sdk.Hostname, Address: server.Name})
	}
	if ip := server.PublicNet.IPv4.IP; settings.IPv4 && ip != nil && !ip.IsUnspecified() {
		all = append(all, sdk.NodeAddress{Type: sdk.ExternalIP, Address: ip.String()})
	}
	if ip := server.PublicNet.IPv6.IP; settings.IPv6 && ip != nil && !ip.IsUnspecified() {
		first := append(net.IP{}, ip.To16()...)
		first[len(first)-1] |= 1 // The API tells the network; the server has its first address.
		all = append(all, sdk.NodeAddress{Type: sdk.ExternalIP, Address: first.String()})
	}
	if ip := PrivateIP(server, settings.NetworkID); ip != nil {
		all = append(all, sdk.NodeAddress{Type: sdk.InternalIP, Address: ip.String()})
	}
	return all
}

// PrivateIP is the address of a server in a network; nil if it is not in it.
func PrivateIP(server *hcloud.Server, network int64) net.IP {
	for _, private := range server.PrivateNet {
		if network != 0 && private.Network != nil && private.Network.ID == network {
			return private.IP
		}
	}
	return nil
}
