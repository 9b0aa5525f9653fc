module github.com/grpc-ccm/grpc-ccm/providers/digitalocean

go 1.26.0

require (
	github.com/digitalocean/godo v1.236.0
	github.com/grpc-ccm/grpc-ccm/providers/go/contract v0.1.0
	github.com/grpc-ccm/grpc-ccm/providers/go/sdk v0.1.0
	github.com/grpc-ccm/grpc-ccm/providers/testapi v0.1.0
	google.golang.org/grpc v1.79.3
)

require (
	github.com/google/go-querystring v1.1.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.7 // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/oauth2 v0.34.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	golang.org/x/time v0.6.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260128011058-8636f8732409 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
)

replace (
	github.com/grpc-ccm/grpc-ccm/providers/go/contract => ../go/contract
	github.com/grpc-ccm/grpc-ccm/providers/go/sdk => ../go/sdk
	github.com/grpc-ccm/grpc-ccm/providers/testapi => ../testapi
)
