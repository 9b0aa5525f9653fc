package provider;

import io.grpc.Context;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;

/**
 * Sends nothing on a call that is over. When the deadline passes, grpc-java resets the stream itself. If a handler notices that and answers at that moment, Netty writes the answer
 * after the reset, because the stream counts as closed only after the reset has left. HTTP/2 allows no frame there: the controller's stack treats it as a connection error, and all
 * other calls on the connection fail.
 */
final class NothingBehindTheEnd implements ServerInterceptor {
  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    // grpc-java cancels this context before it resets the stream.
    Context context = Context.current();
    return next.startCall(new SimpleForwardingServerCall<>(call) {
      @Override
      public void sendHeaders(Metadata headers) {
        if (!context.isCancelled()) super.sendHeaders(headers);
      }

      @Override
      public void sendMessage(A message) {
        if (!context.isCancelled()) super.sendMessage(message);
      }

      @Override
      public void close(Status status, Metadata trailers) {
        if (!context.isCancelled()) super.close(status, trailers);
      }
    }, headers);
  }
}
