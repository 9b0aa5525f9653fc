package provider;

import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;

/** Keeps the ID of each call. The controller logs the same ID. This class cuts a long ID, because other callers may send any length. */
final class CallIds implements ServerInterceptor {
  static final Context.Key<String> CURRENT = Context.keyWithDefault("call-id", "unknown");
  private static final Metadata.Key<String> HEADER = Metadata.Key.of("ccm-call-id", Metadata.ASCII_STRING_MARSHALLER);
  private static final int MOST = 64;

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    String id = headers.get(HEADER);
    if (id == null) return next.startCall(call, headers);
    Context context = Context.current().withValue(CURRENT, id.substring(0, Math.min(MOST, id.length())));
    return Contexts.interceptCall(context, call, headers, next);
  }
}
