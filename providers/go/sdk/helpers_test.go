package sdk

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

// Shows LB-12.
func TestDeleteWaitsForALateListAlsoIfTheClockIsBehind(t *testing.T) {
	now := time.Now()
	for name, row := range map[string]struct {
		service Service
		handle  string
		wait    time.Duration
	}{
		"just deleted":         {service: Service{Deleted: now}, wait: 10 * time.Second},
		"nearly over":          {service: Service{Deleted: now.Add(-26 * time.Second)}, wait: 4 * time.Second},
		"over":                 {service: Service{Deleted: now.Add(-30 * time.Second)}},
		"clock 1 s behind":     {service: Service{Deleted: now.Add(time.Second)}, wait: 10 * time.Second},
		"clock 90 s behind":    {service: Service{Deleted: now.Add(90 * time.Second)}, wait: 10 * time.Second},
		"clock an hour behind": {service: Service{Deleted: now.Add(time.Hour)}},
		"another type":         {},
		"with a handle":        {service: Service{Deleted: now}, handle: "lb-1"},
		"with an address":      {service: Service{Deleted: now, Status: LoadBalancerStatus{Ingress: []Ingress{{IP: netip.MustParseAddr("192.0.2.1")}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			err := ListedLate(&row.service, row.handle, now)
			var pending *PendingError
			if waits := errors.As(err, &pending); waits != (row.wait > 0) || waits && pending.RetryAfter != row.wait {
				t.Errorf("%v, %+v; right would be a wait of %v", err, pending, row.wait)
			}
		})
	}
}
