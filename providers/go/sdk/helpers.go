package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"reflect"
	"regexp"
	"sync"
	"time"
)

// DigestBytes is the greatest length of the digest that [Place.Tag] returns if the text does not fit.
const DigestBytes = 63

// Place is the field of a cloud object that holds a mark: a tag, a label, a part of a name (LB-30).
type Place struct {
	// Most is the number of bytes that the place holds. [Place.Tag] panics if it is below 32.
	Most int
	// Fits matches the texts that the place accepts; nil: all texts.
	Fits *regexp.Regexp
}

// LabelValue is a place with the rules of a Kubernetes label value.
var LabelValue = Place{63, regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`)}

// Tag returns a text as the place can hold it: the text itself if its length and its characters fit. Otherwise it returns the first 63 hexadecimal
// digits of its SHA-256, or as many of them as fit. It panics if the place holds fewer than 32 bytes.
func (p Place) Tag(text string) string {
	if p.Most < 32 {
		panic("sdk.Place: a place of fewer than 32 bytes cannot hold a digest that is unique")
	}
	if text == "" || len(text) <= p.Most && (p.Fits == nil || p.Fits.MatchString(text)) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:min(p.Most, DigestBytes)]
}

// Mark names the owner of a cloud object (CORE-14). Each field is a result of [Place.Tag].
type Mark struct {
	// Owner is the cluster's owner ID.
	Owner string
	// Service is the UID of the Service of a load balancer; empty for other objects.
	Service string
}

// Mark returns the mark for a new object: the present owner ID and, for a load balancer, the UID of its Service.
func (c *Call) Mark(serviceUID string, place Place) Mark {
	return markOf(c.Cluster.OwnerID, serviceUID, place)
}

func markOf(owner, serviceUID string, place Place) Mark {
	return Mark{place.Tag(owner), place.Tag(serviceUID)}
}

// Ownership returns the owner of an object with this mark; serviceUID and place are as in [Call.Mark]. A load balancer with only this cluster's owner
// ID is [Unmarked]. One with only another cluster's owner ID is [Foreign], so that no grant adopts it (LB-27).
func (c *Call) Ownership(mark Mark, serviceUID string, place Place) Ownership {
	if mark.Owner == "" {
		return Unmarked
	}
	for _, owner := range append([]string{c.Cluster.OwnerID}, c.PreviousOwnerIDs...) {
		if ours := markOf(owner, serviceUID, place); owner == "" || mark.Owner != ours.Owner {
			continue
		} else if mark.Service == ours.Service {
			return Ours
		} else if mark.Service == "" {
			return Unmarked
		}
	}
	return Foreign
}

// MayTake returns nil if a call may write an object: it is ours, or it is unmarked and the operator has granted its removal
// ([DeleteLoadBalancer.AdoptUnmarked]) or its adoption ([EnsureLoadBalancer.AdoptUnmarked]; the provider must then mark it, LB-9). Otherwise the result is a [Conflict]. Its text begins with the argument
// what, for example "load balancer lb-1".
func MayTake(ownership Ownership, adoptUnmarked bool, what string) error {
	switch {
	case ownership == Ours, ownership == Unmarked && adoptUnmarked:
		return nil
	case ownership == Unmarked:
		return Conflict("%s carries no mark: grant its adoption, or remove it", what)
	default:
		return Conflict("%s has the mark of another owner", what)
	}
}

// FindOwn finds a Service's own load balancer among those of the cloud, and its owner. It searches by the handle, which a user can edit (LB-4), else
// by the mark (LB-5). The result is nil if it finds none. If the handle names a load balancer of another owner, the result is a [Conflict]. If it
// names an unmarked one, FindOwn returns that one if grant is true, else a [Conflict] (LB-24, row 4). Get passes true and answers [Unmarked]. Ensure
// passes [EnsureLoadBalancer.AdoptUnmarked]. Update and Delete pass false.
func FindOwn[T any](objects []T, handle string, grant bool, handleOf func(*T) string, ownership func(*T) Ownership) (*T, Ownership, error) {
	if handle != "" {
		for i := range objects {
			if handleOf(&objects[i]) == handle {
				found := ownership(&objects[i])
				if err := MayTake(found, grant, "load balancer "+handle); err != nil {
					return nil, found, err
				}
				return &objects[i], found, nil
			}
		}
	}
	for i := range objects {
		if ownership(&objects[i]) == Ours {
			return &objects[i], Ours, nil
		}
	}
	return nil, 0, nil
}

const (
	// How long after the deletion of a Service, or after its first Delete, a list may lack its load balancer. The provider's clock may be ahead, and the
	// Delete may come long after the deletion, because an Ensure was under way.
	listMayLack = 30 * time.Second
	// A deletion in the future shows that the provider's clock is behind. The wait is longer then. If it would be longer than this, nothing is known about
	// the time of the deletion.
	longestWait = 2 * time.Minute
	// The most Services whose first Delete the process remembers.
	mostDeletes = 10000
)

// firstDeletes has the time of the first Delete of each Service for which ListedLate had to decide, by the Service's UID.
type firstDeletes struct {
	mutex sync.Mutex
	seen  map[string]time.Time
}

var deletes = firstDeletes{seen: map[string]time.Time{}}

// since returns the time since the first Delete of a Service. If the process has no room to remember more Services, nobody need wait because of this time.
func (f *firstDeletes) since(uid string, now time.Time) time.Duration {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if first, known := f.seen[uid]; known {
		return now.Sub(first)
	}
	if len(f.seen) >= mostDeletes {
		maps.DeleteFunc(f.seen, func(_ string, first time.Time) bool { return now.Sub(first) > longestWait })
	}
	if len(f.seen) >= mostDeletes {
		return listMayLack
	}
	f.seen[uid] = now
	return 0
}

// ListedLate is for DeleteLoadBalancer of a cloud whose lists are late, if the list has no load balancer of the Service. The answer to a create may
// have been lost, and the list may not show the new load balancer yet. For 30 s after the deletion of the Service, and after the first such Delete that
// this process saw, the result is [Pending], then nil. If the provider's clock is behind by up to 90 s, the wait is longer by that
// much. A handle or an address in the status shows that the create was answered: the result is then nil at once. It is also nil at once for a Service that is
// not being deleted but has changed its type, because the time of that change is unknown.
func ListedLate(service *Service, handle string, now time.Time) error {
	if handle != "" || len(service.Status.Ingress) > 0 || service.Deleted.IsZero() {
		return nil
	}
	left := listMayLack - deletes.since(service.UID, now)
	if longer := listMayLack - now.Sub(service.Deleted); longer <= longestWait {
		left = max(left, longer)
	}
	if left > 0 {
		return Pending(min(left, 10*time.Second), "the cloud lists no load balancer of this Service; listing once more, as a list may be late")
	}
	return nil
}

// Same reports whether the actual state equals the wanted one, so that the provider need not write (LB-8, LB-14). It compares all exported fields, also
// those of embedded structs. It compares a struct without exported fields as a whole; if Go cannot compare such structs, they count as different. Empty
// slices and maps equal nil ones.
func Same[T any](there, wanted T) bool {
	return same(reflect.ValueOf(&there).Elem(), reflect.ValueOf(&wanted).Elem())
}

func same(one, other reflect.Value) bool {
	switch one.Kind() {
	case reflect.Pointer, reflect.Interface:
		if one.IsNil() || other.IsNil() {
			return one.IsNil() == other.IsNil()
		}
		if one.Elem().Type() != other.Elem().Type() {
			return false
		}
		return same(one.Elem(), other.Elem())
	case reflect.Slice, reflect.Array:
		if one.Len() != other.Len() {
			return false
		}
		for i := range one.Len() {
			if !same(one.Index(i), other.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if one.Len() != other.Len() {
			return false
		}
		for entries := one.MapRange(); entries.Next(); {
			value := other.MapIndex(entries.Key())
			if !value.IsValid() || !same(entries.Value(), value) {
				return false
			}
		}
		return true
	case reflect.Struct:
		compared := 0
		for i := range one.NumField() {
			if field := one.Type().Field(i); field.IsExported() || field.Anonymous && structOf(field.Type) {
				compared++
				if !same(one.Field(i), other.Field(i)) {
					return false
				}
			}
		}
		// A struct without exported fields, such as time.Time or netip.Addr.
		return compared > 0 || one.Comparable() && one.Equal(other)
	default:
		return one.Comparable() && one.Equal(other)
	}
}

// structOf reports whether a type is a struct, or a pointer to one.
func structOf(of reflect.Type) bool {
	return of.Kind() == reflect.Struct || of.Kind() == reflect.Pointer && of.Elem().Kind() == reflect.Struct
}
