package bridge

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// catchUnary turns a panic of the bridge's own code into "unknown" (CORE-4): one call's fault does not end the process. Panics of the cloud are caught where it is called.
func catchUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	defer func() { caught(info.FullMethod, recover(), &err) }()
	return handle(ctx, request)
}

func catchStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer func() { caught(info.FullMethod, recover(), &err) }()
	return handle(server, stream)
}

func caught(rpc string, value any, err *error) {
	if value != nil {
		klog.ErrorS(nil, "The bridge panicked", "rpc", rpc, "panic", value, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "the bridge panicked in %s: %v", rpc, value)
	}
}
