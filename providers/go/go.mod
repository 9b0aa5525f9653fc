module example.invalid/providers/go

go 1.26.0

require (
	example.invalid/providers/go/contract v0.0.0
	google.golang.org/grpc v1.79.3
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af
)

replace example.invalid/providers/go/contract => ./contract
