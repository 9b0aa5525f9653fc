package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

func TestWhatIsLeftIsNamedWithWhoRemovesIt(t *testing.T) {
	handle, route := "lb-1", &contract.Route{DestinationCidr: "192.168.254.0/24"}
	for _, row := range []struct {
		trial    *trial
		expected string
	}{
		{&trial{}, "nothing"},
		{&trial{balancer: true}, "a load balancer of the Service default/smoke (the next run removes it first)"},
		{&trial{balancer: true, handle: &handle}, "load balancer lb-1 (the next run removes it first)"},
		{&trial{route: route}, "the route to 192.168.254.0/24 (no run removes it: remove it yourself)"},
		{&trial{balancer: true, handle: &handle, route: route}, "load balancer lb-1 (the next run removes it first), the route to 192.168.254.0/24 (no run removes it: remove it yourself)"},
	} {
		if left := row.trial.left(); left != row.expected {
			t.Errorf("left: %s; expected: %s", left, row.expected)
		}
	}
}

func TestTheQuestionNamesTheFlagAndTheVariableThatAnswerIt(t *testing.T) {
	var output bytes.Buffer
	if agreed(strings.NewReader("n\n"), &output) || !strings.Contains(output.String(), "(--yes, or YES=1 for make and smoke.sh, does not ask)") {
		t.Error(output.String())
	}
}
