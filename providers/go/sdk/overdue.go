package sdk

import "sync"

const (
	// Once so many methods of one RPC have outlasted their calls, no further method of the RPC starts.
	mostOverdue = 256
	// The same for the methods of one RPC for one item, such as a Node. The limit keeps one item from using up mostOverdue.
	mostOverdueOfItem = 2
)

// overdue counts the vendor's methods that still run although their calls have been answered. The
// limits above keep such methods from adding up (CORE-18).
type overdue struct {
	mutex sync.Mutex
	// The counts by RPC, with an empty item, and by RPC and item.
	counts map[attempted]int
}

type attempted struct{ rpc, item string }

// attempt is one run of a vendor's method.
type attempt struct {
	attempted
	ended, late bool
}

// begin returns an error if too many methods of this RPC or item have outlasted their calls.
func (o *overdue) begin(rpc, item string) (*attempt, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if many := o.counts[attempted{rpc, ""}]; many >= mostOverdue {
		return nil, hangs(rpc, many)
	}
	if many := o.counts[attempted{rpc, item}]; item != "" && many >= mostOverdueOfItem {
		return nil, hangs(rpc+" about "+item, many)
	}
	return &attempt{attempted: attempted{rpc, item}}, nil
}

func hangs(what string, many int) error {
	return Unavailable("%d earlier calls of %s have ended, and the provider's code for them has not returned; no new one starts before one of them returns", many, what).Because("CallsHang")
}

// late records that the attempt's call has ended, unless the method has just ended too.
func (o *overdue) late(a *attempt) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if a.late = !a.ended; a.late {
		o.add(a, 1)
	}
}

// end records that the method has returned.
func (o *overdue) end(a *attempt) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if a.ended = true; a.late {
		o.add(a, -1)
	}
}

func (o *overdue) add(a *attempt, one int) {
	if o.counts == nil {
		o.counts = map[attempted]int{}
	}
	keys := []attempted{{a.rpc, ""}}
	if a.item != "" {
		keys = append(keys, a.attempted)
	}
	for _, key := range keys {
		if o.counts[key] += one; o.counts[key] == 0 {
			delete(o.counts, key)
		}
	}
}
