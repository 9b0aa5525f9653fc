package main

import (
	"testing"
	"time"
)

// deleteSecurityGroupsWithBackoff of the vendor's code polls for 10 min, after a few calls. The bridge ends a method at 70 % of its call's time.
func TestADeleteHasTheTimeThatItsSecurityGroupsNeed(t *testing.T) {
	if left := options.Deadlines.LoadBalancer * 7 / 10; left < 10*time.Minute+20*time.Second {
		t.Errorf("a Delete has only %s", left)
	}
}

// The vendor's code for network load balancers is not safe for concurrent calls, and AWS's own controller makes one at a time unless told otherwise.
func TestServicesAreServedOneAtATime(t *testing.T) {
	if options.ConcurrentServices > 1 {
		t.Errorf("%d Services at once", options.ConcurrentServices)
	}
}
