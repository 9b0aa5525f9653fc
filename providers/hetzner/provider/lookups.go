package provider

import (
	"context"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
)

// How long the provider caches the types of load balancers.
const typesLast = time.Hour

type typeCache struct {
	mutex sync.Mutex
	read  time.Time
	types map[string]*hcloud.LoadBalancerType
}

// typeOf returns the wanted type of the load balancer, which may be its present one.
func (r *request) typeOf(ctx context.Context, there *hcloud.LoadBalancer, name string) (*hcloud.LoadBalancerType, error) {
	if there != nil && there.LoadBalancerType != nil && (name == "" || name == there.LoadBalancerType.Name) {
		return there.LoadBalancerType, nil
	}
	cache := &r.p.types
	cache.mutex.Lock()
	defer cache.mutex.Unlock()
	if found := cache.types[name]; found != nil && time.Since(cache.read) < typesLast {
		return found, nil
	}
	all, err := pages(ctx, r.p.api, r.call, "listing the types of load balancers", func(kind *hcloud.LoadBalancerType) int64 { return kind.ID },
		func(ctx context.Context, o hcloud.ListOpts) ([]*hcloud.LoadBalancerType, *hcloud.Response, error) {
			return r.p.api.LoadBalancerType.List(ctx, hcloud.LoadBalancerTypeListOpts{ListOpts: o})
		})
	if err != nil {
		return nil, err
	}
	cache.types, cache.read = map[string]*hcloud.LoadBalancerType{}, time.Now()
	for _, kind := range all {
		cache.types[kind.Name] = kind
	}
	if cache.types[name] == nil {
		return nil, sdk.Invalid("the annotation %stype or --load-balancer-type: Hetzner Cloud has no type %q of load balancers; right would be one such as lb11", plan.Prefix, name).Because("AnnotationInvalid")
	}
	return cache.types[name], nil
}

// certificates looks up the certificates that the Service refers to by name.
func (r *request) certificates(ctx context.Context) (map[string]int64, error) {
	ids := map[string]int64{}
	for _, name := range plan.Certificates(r.service) {
		certificate, _, err := r.p.api.Certificate.GetByName(ctx, name)
		if err := r.p.api.done(ctx, r.call, "looking for the certificate "+name, err); err != nil {
			return nil, err
		}
		if certificate != nil {
			ids[name] = certificate.ID
		}
	}
	return ids, nil
}
