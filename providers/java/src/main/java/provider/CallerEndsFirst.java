package provider;

import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerStreamTracer;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Lets the caller end a call at its deadline. grpc-java's own timer fires later, and ends only calls that the caller did not end. If both end a call at the same time, Netty may write the rest of an answer
 * after grpc-java's reset, and the caller's stack closes the connection because of that. Only a tracer sees the headers before grpc-java reads the deadline from them. The work of a call still
 * ends at the caller's deadline: after it the call writes nothing to the cloud (CORE-19), and sends no answer.
 */
final class CallerEndsFirst extends ServerStreamTracer.Factory implements ServerInterceptor {
  static final long GRACE_MS = 1_000;
  private static final Metadata.Key<String> TIMEOUT = Metadata.Key.of("grpc-timeout", Metadata.ASCII_STRING_MARSHALLER);
  private static final Pattern FORM = Pattern.compile("(\\d{1,8})([HMSmun])");
  /** A timeout has at most eight digits. */
  private static final long MOST_MS = 99_999_999;

  private final ScheduledExecutorService clock;

  CallerEndsFirst(ScheduledExecutorService clock) {
    this.clock = clock;
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    Context later = Context.current();
    if (later.getDeadline() == null) return next.startCall(call, headers);
    // This context ends with the call at the latest, because grpc-java cancels its parent context.
    Context told = later.withDeadline(later.getDeadline().offset(-GRACE_MS, TimeUnit.MILLISECONDS), clock);
    return Contexts.interceptCall(told, call, headers, next);
  }

  @Override
  public ServerStreamTracer newServerStreamTracer(String method, Metadata headers) {
    String told = headers.get(TIMEOUT);
    if (told != null) {
      headers.discardAll(TIMEOUT);
      headers.put(TIMEOUT, later(told));
    }
    return new ServerStreamTracer() {};
  }

  /** The timeout plus the grace, in milliseconds. An invalid timeout stays unchanged, and so does one that would need more than eight digits (some 27 hours). */
  static String later(String told) {
    Matcher form = FORM.matcher(told);
    if (!form.matches()) return told;
    TimeUnit unit = switch (form.group(2).charAt(0)) {
      case 'H' -> TimeUnit.HOURS;
      case 'M' -> TimeUnit.MINUTES;
      case 'S' -> TimeUnit.SECONDS;
      case 'm' -> TimeUnit.MILLISECONDS;
      case 'u' -> TimeUnit.MICROSECONDS;
      default -> TimeUnit.NANOSECONDS;
    };
    long ms = unit.toMillis(Long.parseLong(form.group(1))) + GRACE_MS;
    return ms > MOST_MS ? told : ms + "m";
  }
}
