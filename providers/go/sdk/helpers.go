package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"regexp"
	"time"
)

// DigestBytes is how long [Place.Tag] is where the text does not fit: what labels and tags of most clouds take.
const DigestBytes = 63

// Place is where an object of a cloud can hold a mark: a tag, a label, a part of a name (LB-30).
type Place struct {
	// Most is how many bytes it holds. Fewer than 32 cannot hold a digest that is unique.
	Most int
	// Fits is what its characters are like; nil: any.
	Fits *regexp.Regexp
}

// LabelValue is a place that holds what a label of Kubernetes does, as many clouds have it.
var LabelValue = Place{63, regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`)}

// Tag is a text as the place can hold it: the text itself where it fits by its length and its characters, else the first 63 hexadecimal digits of its SHA-256, or as many as fit. It
// panics where the place is too small for that.
func (p Place) Tag(text string) string {
	if p.Most < 32 {
		panic("sdk.Place: one of fewer than 32 bytes cannot hold a digest that is unique")
	}
	if text == "" || len(text) <= p.Most && (p.Fits == nil || p.Fits.MatchString(text)) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:min(p.Most, DigestBytes)]
}

// Mark is what a cloud object carries that says for whom it was made (CORE-14): each as [Place.Tag] makes it.
type Mark struct {
	// Owner is the cluster's owner ID.
	Owner string
	// Service is the UID of the Service of a load balancer; empty for other objects.
	Service string
}

// Mark is what an object that is made now is to be marked with: with the present owner ID and, for a load balancer, the UID of its Service.
func (c *Call) Mark(serviceUID string, place Place) Mark {
	return markOf(c.Cluster.OwnerID, serviceUID, place)
}

func markOf(owner, serviceUID string, place Place) Mark {
	return Mark{place.Tag(owner), place.Tag(serviceUID)}
}

// Ownership says whose an object is that carries this mark; serviceUID and place are as in [Call.Mark]. Our owner ID alone is no mark of a load balancer; another cluster's is, so that no
// grant adopts what has it (LB-27).
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

// MayTake says whether an object may be written for whom asks: what is ours may, what is unmarked with the operator's grant ([EnsureLoadBalancer.AdoptUnmarked]; then it must be
// marked, LB-9). Else it is a [Conflict] that names the object; what is, for example, "load balancer lb-1".
func MayTake(ownership Ownership, adoptUnmarked bool, what string) error {
	switch {
	case ownership == Ours, ownership == Unmarked && adoptUnmarked:
		return nil
	case ownership == Unmarked:
		return Conflict("%s carries no mark: grant its adoption, or remove it", what)
	default:
		return Conflict("%s is marked for somebody else", what)
	}
}

// FindOwn finds a Service's own load balancer among those of the cloud, and whose it is: by the handle, which a user can edit (LB-4), else by its mark (LB-5). nil where there is none.
// One that only the handle names and that is unmarked is found with the grant alone (LB-24, row 4): true for Get, which answers [Unmarked], [EnsureLoadBalancer.AdoptUnmarked] for Ensure,
// false for Update and Delete, which no grant lets touch it. Without it, and where it is marked for somebody else, it is a [Conflict].
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

// How long after a Service was deleted a list may lack its load balancer.
const listMayLack = 30 * time.Second

// ListedLate is for DeleteLoadBalancer of a cloud whose lists can be late, where a list has nothing of the Service: the answer to a create may have been lost, and the list may not show yet
// what was made. For half a minute after the Service was deleted it is [Pending], unless a handle or an address says that the create was answered; then nil. A Service that is not deleted
// and has another type now is not waited for: nothing says since when.
func ListedLate(service *Service, handle string, now time.Time) error {
	if handle != "" || len(service.Status.Ingress) > 0 || service.Deleted.IsZero() {
		return nil
	}
	if left := listMayLack - now.Sub(service.Deleted); left > 0 && left <= listMayLack {
		return Pending(min(left, 10*time.Second), "the cloud lists no load balancer of this Service; it is looked for once more, as a list may be late")
	}
	return nil
}

// Same says whether what is there is what there should be, so that nothing is to be written (LB-8, LB-14). It compares all exported fields; slices and maps that are empty are the
// same as those that are nil.
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
		exported := 0
		for i := range one.NumField() {
			if one.Type().Field(i).IsExported() {
				exported++
				if !same(one.Field(i), other.Field(i)) {
					return false
				}
			}
		}
		// Such as time.Time and netip.Addr, which are values.
		return exported > 0 || !one.Comparable() || one.Interface() == other.Interface()
	default:
		return one.Comparable() && one.Equal(other)
	}
}
