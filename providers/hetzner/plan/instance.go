package plan

import (
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The prefixes of the provider IDs of Hetzner's own controller. This provider does not manage dedicated servers: Hetzner Cloud's API does not have them.
const (
	CloudPrefix       = "hcloud://"
	RobotPrefix       = "hrobot://"
	robotLegacyPrefix = "hcloud://bm-"
)

// ServerID reads a provider ID; robot says that the server is a dedicated one.
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

// InstanceSettings are the operator's settings for Nodes.
type InstanceSettings struct {
	// NetworkID is the private network of the cluster; zero if it has none.
	NetworkID int64
	// IPv4 and IPv6 say which public addresses Nodes show.
	IPv4, IPv6 bool
}

// The zones that Hetzner's own controller gives to these locations: names of data centres. The provider keeps them, because a Node's zone label must not
// change.
var zones = map[string]string{"nbg1": "nbg1-dc3", "hel1": "hel1-dc2", "fsn1": "fsn1-dc14", "ash": "ash-dc1", "hil": "hil-dc1", "sin": "sin-dc1"}

// Instance returns the instance for a server; nil is a server that does not exist.
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

// stateOf translates the status by the table of INST-14.
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

// fact returns an empty text for a value that is not valid in a label (INST-15).
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
		first[len(first)-1] |= 1 // The API states the network, and the server has its first address.
		all = append(all, sdk.NodeAddress{Type: sdk.ExternalIP, Address: first.String()})
	}
	if ip := PrivateIP(server, settings.NetworkID); ip != nil {
		all = append(all, sdk.NodeAddress{Type: sdk.InternalIP, Address: ip.String()})
	}
	return all
}

// PrivateIP returns the address of a server in a network; nil if the server is not in the network.
func PrivateIP(server *hcloud.Server, network int64) net.IP {
	for _, private := range server.PrivateNet {
		if network != 0 && private.Network != nil && private.Network.ID == network {
			return private.IP
		}
	}
	return nil
}
