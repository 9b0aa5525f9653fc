module github.com/grpc-ccm/grpc-ccm/providers/testapi

go 1.26.0
