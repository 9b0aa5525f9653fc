package sdk

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"testing"
	"time"
)

// Shows LB-12.
func TestDeleteWaitsForALateListAlsoIfTheClockIsWrong(t *testing.T) {
	now := time.Now()
	for name, row := range map[string]struct {
		service Service
		handle  string
		// How long ago the process saw the first Delete; this is the first one if it is zero.
		seen time.Duration
		wait time.Duration
	}{
		"just deleted":                {service: Service{Deleted: now}, wait: 10 * time.Second},
		"nearly over":                 {service: Service{Deleted: now.Add(-26 * time.Second)}, seen: 27 * time.Second, wait: 4 * time.Second},
		"over":                        {service: Service{Deleted: now.Add(-31 * time.Second)}, seen: 30 * time.Second},
		"clock 1 s behind":            {service: Service{Deleted: now.Add(time.Second)}, seen: time.Hour, wait: 10 * time.Second},
		"clock 90 s behind":           {service: Service{Deleted: now.Add(90 * time.Second)}, seen: time.Hour, wait: 10 * time.Second},
		"clock an hour behind":        {service: Service{Deleted: now.Add(time.Hour)}, wait: 10 * time.Second},
		"clock an hour behind, over":  {service: Service{Deleted: now.Add(time.Hour)}, seen: 30 * time.Second},
		"clock ahead, or Delete late": {service: Service{Deleted: now.Add(-time.Minute)}, seen: 26 * time.Second, wait: 4 * time.Second},
		"another type":                {},
		"with a handle":               {service: Service{Deleted: now}, handle: "lb-1"},
		"with an address":             {service: Service{Deleted: now, Status: LoadBalancerStatus{Ingress: []Ingress{{IP: netip.MustParseAddr("192.0.2.1")}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			row.service.UID = t.Name()
			_ = ListedLate(&row.service, row.handle, now.Add(-row.seen))
			err := ListedLate(&row.service, row.handle, now)
			var pending *PendingError
			if waits := errors.As(err, &pending); waits != (row.wait > 0) || waits && pending.RetryAfter != row.wait {
				t.Errorf("%v, %+v; right would be a wait of %v", err, pending, row.wait)
			}
		})
	}
}

func TestTheProcessRemembersABoundedNumberOfDeletes(t *testing.T) {
	f, now := firstDeletes{seen: map[string]time.Time{}}, time.Now()
	for number := range mostDeletes {
		f.since(fmt.Sprint(number), now)
	}
	if waited := f.since("more", now.Add(time.Second)); waited != listMayLack || len(f.seen) != mostDeletes {
		t.Errorf("%v, %d Services", waited, len(f.seen))
	}
	if waited := f.since("later", now.Add(longestWait+time.Second)); waited != 0 || len(f.seen) != 1 {
		t.Errorf("%v, %d Services", waited, len(f.seen))
	}
}

// Shows LB-8 and LB-14.
func TestWhatCannotBeComparedIsNotTheSame(t *testing.T) {
	type opaque struct{ list []int }
	type promoted struct{ Port, hidden int }
	type closed struct{ number int }
	type state struct {
		promoted
		*closed
		Since time.Time
	}
	of := func(port, hidden, number int, since int64) state {
		return state{promoted{port, hidden}, &closed{number}, time.Unix(since, 0)}
	}
	for name, row := range map[string]struct {
		there, wanted any
		same          bool
	}{
		"equal but for a hidden field": {of(80, 1, 1, 1), of(80, 2, 1, 1), true},
		"another promoted field":       {of(80, 1, 1, 1), of(443, 1, 1, 1), false},
		"another embedded struct":      {of(80, 1, 1, 1), of(80, 1, 2, 1), false},
		"another time":                 {of(80, 1, 1, 1), of(80, 1, 1, 2), false},
		"addresses":                    {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.1"), true},
		"other addresses":              {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), false},
		"large numbers":                {big.NewInt(1), big.NewInt(2), false},
		"what Go cannot compare":       {opaque{[]int{1}}, opaque{[]int{1}}, false},
	} {
		if Same(row.there, row.wanted) != row.same {
			t.Errorf("%s: right would be %t", name, row.same)
		}
	}
}
