package adapter

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// turns allows one Ensure, Update or Delete at a time for each Service. The framework may update
// targets during an Ensure of the same Service, and the contract forbids that.
type turns struct {
	mu   sync.Mutex
	held map[types.UID]*turn
}

// turn belongs to one Service, and is removed when no call has it or waits for it.
type turn struct {
	place   chan struct{}
	waiting int
}

// wait waits until no other call has the Service's turn, or gives up when the context ends. The
// returned function ends the turn.
func (t *turns) wait(ctx context.Context, service types.UID) (func(), error) {
	t.mu.Lock()
	if t.held == nil {
		t.held = map[types.UID]*turn{}
	}
	mine := t.held[service]
	if mine == nil {
		mine = &turn{place: make(chan struct{}, 1)}
		t.held[service] = mine
	}
	mine.waiting++
	t.mu.Unlock()

	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.waiting--; mine.waiting == 0 {
			delete(t.held, service)
		}
	}
	passOn, err := limited(ctx, mine.place)
	if err != nil {
		leave()
		return nil, err
	}
	return func() {
		passOn()
		leave()
	}, nil
}
