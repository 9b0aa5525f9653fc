module github.com/grpc-ccm/grpc-ccm/providers/hetzner

go 1.26.0

require (
	github.com/grpc-ccm/grpc-ccm/providers/go/sdk v0.1.0
	github.com/grpc-ccm/grpc-ccm/providers/testapi v0.1.0
	github.com/hetznercloud/hcloud-go/v2 v2.52.0
	k8s.io/apimachinery v0.36.3
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/grpc-ccm/grpc-ccm/providers/go/contract v0.1.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_golang v1.24.1 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.70.1 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260128011058-8636f8732409 // indirect
	google.golang.org/grpc v1.79.3 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	k8s.io/utils v0.0.0-20260210185600-b8788abfbbc2 // indirect
)

replace (
	github.com/grpc-ccm/grpc-ccm/providers/go/contract => ../go/contract
	github.com/grpc-ccm/grpc-ccm/providers/go/sdk => ../go/sdk
	github.com/grpc-ccm/grpc-ccm/providers/testapi => ../testapi
)
