package sdk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestALookupThatComesWhileAListIsGotWaitsForTheNext(t *testing.T) { // INST-5
	state, lists := atomic.Int32{}, atomic.Int32{}
	began, goOn := make(chan struct{}), make(chan struct{})
	shared := Shared[int32]{Get: func(context.Context, *Call) (int32, error) {
		now := state.Load()
		if lists.Add(1) == 1 {
			close(began)
			<-goOn
		}
		return now, nil
	}}
	call := &Call{}
	var lookups sync.WaitGroup
	ask := func(wanted int32) {
		lookups.Go(func() {
			if now, err := shared.List(t.Context(), call, 0); err != nil || now != wanted {
				t.Errorf("a lookup says %d %v; wanted %d", now, err, wanted)
			}
		})
	}
	ask(0)
	<-began
	state.Store(1)
	for range 4 {
		ask(1)
	}
	close(goOn)
	lookups.Wait()
	if lists.Load() != 2 {
		t.Errorf("%d lists; wanted two: the first, and one for all later lookups", lists.Load())
	}
	if _, err := shared.List(t.Context(), call, listTimeout); err != nil || lists.Load() != 2 {
		t.Errorf("one that takes an older answer: %v, %d lists", err, lists.Load())
	}
	shared.Get = func(context.Context, *Call) (int32, error) { panic("odd") }
	var failure *Failure
	if _, err := shared.List(t.Context(), call, 0); !errors.As(err, &failure) || failure.Code != CodeInternal {
		t.Errorf("a panic became %v", err)
	}
	shared.Get = func(context.Context, *Call) (int32, error) { runtime.Goexit(); return 0, nil }
	if _, err := shared.List(t.Context(), call, 0); !errors.As(err, &failure) || failure.Code != CodeInternal {
		t.Errorf("runtime.Goexit became %v", err)
	}
	shared.Get = func(context.Context, *Call) (int32, error) { return 7, nil }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if now, err := shared.List(ctx, call, 0); err != nil || now != 7 {
		t.Errorf("the list after runtime.Goexit: %d %v", now, err)
	}
}

func TestAListThatChangesBetweenItsPagesIsGotAgain(t *testing.T) {
	for name, row := range map[string]struct {
		totals []int
		code   Code
	}{"at once": {[]int{3}, 0}, "later": {[]int{4, 3}, 0}, "never": {[]int{4}, CodeUnavailable}, "untold": {[]int{-1}, CodeInternal}} {
		turn := 0
		all, err := Pages("listing", func(item int) int { return item }, func(number int) (Page[int], error) {
			total := row.totals[min(turn, len(row.totals)-1)]
			if number == 1 {
				return Page[int]{[]int{1, 2}, total, false}, nil
			}
			turn++
			return Page[int]{[]int{2, 3}, total, true}, nil
		})
		var failure *Failure
		if row.code == 0 && (err != nil || len(all) != 3) || row.code != 0 && (!errors.As(err, &failure) || failure.Code != row.code) {
			t.Errorf("%s: %v %v", name, all, err)
		}
	}
}

// A removal moves all later objects. The first object of the second page is then on neither page,
// and the number of objects that were read still equals the last total.
func TestAnObjectRemovedBetweenTwoPagesHidesNoOther(t *testing.T) {
	there, asked := []int{1, 2, 3, 4}, 0
	all, err := Pages("listing", func(item int) int { return item }, func(number int) (Page[int], error) {
		if asked++; asked == 2 {
			there = there[1:]
		}
		from, to := min(2*number-2, len(there)), min(2*number, len(there))
		return Page[int]{there[from:to], len(there), to == len(there)}, nil
	})
	if err != nil || !slices.Equal(all, []int{2, 3, 4}) {
		t.Errorf("%v %v", all, err)
	}
}

// An API without pages answers each request with its first page.
func TestAListingThatRepeatsItsFirstPageEnds(t *testing.T) {
	asked := 0
	_, err := Pages("listing", func(item int) int { return item }, func(int) (Page[int], error) {
		if asked++; asked > 100 {
			t.Fatal("it goes on for ever")
		}
		return Page[int]{[]int{1, 2}, 4, false}, nil
	})
	var failure *Failure
	if !errors.As(err, &failure) || failure.Code != CodeUnavailable {
		t.Errorf("%v", err)
	}
}

func TestATokenIsReadAnewAndWhatIsNoneIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	token := Token{File: file, Value: "not this one"}
	for text, wanted := range map[string]string{"first\n": "first", " second ": "second", "": "", "two words": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := token.Read()
		if read != wanted || (err == nil) != (wanted != "") || err != nil && (!strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "words")) {
			t.Errorf("%q: %q %v", text, read, err)
		}
	}
	var failure *Failure
	if _, err := (Token{}).Read(); !errors.As(err, &failure) || failure.Reason != "TokenMissing" {
		t.Errorf("%v", err)
	}
}

// CORE-4: a panic in a goroutine of Each reaches the caller of Each. There the SDK turns it into a failure.
func TestAPanicWhileOneNodeIsLookedUpReachesTheCaller(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "a bug") || !strings.Contains(text, "api_test.go") {
			t.Errorf("recovered %q", text)
		}
	}()
	answers := Answers[Instance]{}
	Each([]Node{{Name: "a"}, {Name: "b"}}, answers, func(node Node) (Instance, error) {
		if node.Name == "a" {
			panic("a bug")
		}
		return Instance{}, nil
	})
	t.Error("no panic", answers)
}
