package provider;

import cloudprovider.v1alpha1.ClusterRef;
import cloudprovider.v1alpha1.Failure;
import cloudprovider.v1alpha1.FailureCode;
import cloudprovider.v1alpha1.ListEnd;
import cloudprovider.v1alpha1.Pending;
import com.google.protobuf.Duration;
import io.grpc.Context;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.function.Function;
import java.util.logging.Level;
import java.util.logging.Logger;

/** One provider process, and the parts that all services share: its cluster, failures in answers, and locks on objects. */
final class Provider {
  static final int NAME_BYTES = 253;
  static final int ID_BYTES = 1024;
  static final int MAX_BATCH = 500;
  private static final int TEXT_BYTES = 1024;
  /** The most items in one message of a listing. */
  private static final int CHUNK = 500;

  static final Logger LOG = Logger.getLogger("provider");

  /** The identity of the provider. All providers of one cloud must have the same values. */
  record Settings(String name, String prefix, String cloudScope, List<String> pools, List<String> classes, List<String> sourceTypes, long provisioningMs) {}

  /** The cluster that a call is for. */
  record Owner(String clusterName, String ownerId, List<String> previous, boolean readOnly) {
    boolean owns(String id) {
      return id.equals(ownerId) || previous.contains(id);
    }
  }

  interface Call<T> {
    T run(Owner owner) throws Fail, InterruptedException;
  }

  final Cloud cloud;
  final Settings settings;
  /** Ends work at its deadline. */
  final ScheduledExecutorService clock = clock();
  /** New for every process (PROV-7). */
  final String bootId = UUID.randomUUID().toString();
  /** Down to zero when the provider shuts down. */
  final CountDownLatch closing = new CountDownLatch(1);
  /** The cluster of the last successful Initialize. */
  volatile Owner owner;
  private final Set<String> held = ConcurrentHashMap.newKeySet();

  Provider(Cloud cloud, Settings settings) {
    this.cloud = cloud;
    this.settings = settings;
  }

  private static ScheduledExecutorService clock() {
    ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1, work -> {
      Thread thread = new Thread(work, "deadlines");
      thread.setDaemon(true);
      return thread;
    });
    // Most calls end long before their deadline. Their timers must be removed when they end (CORE-18).
    clock.setRemoveOnCancelPolicy(true);
    return clock;
  }

  static void checkOwnerId(ClusterRef cluster) throws Fail {
    int bytes = bytes(cluster.getOwnerId());
    if (bytes == 0 || bytes > NAME_BYTES) throw new Fail("INVALID", "cluster.owner_id has " + bytes + " bytes; right would be 1 to " + NAME_BYTES);
  }

  /** The caller, if its cluster is the initialised one (CORE-10). */
  Owner admit(ClusterRef cluster) throws Fail {
    checkOwnerId(cluster);
    Owner now = owner;
    if (now == null) throw new Fail("NOT_INITIALIZED", "this provider process has not seen a successful Initialize");
    if (!now.ownerId.equals(cluster.getOwnerId())) {
      throw new Fail("NOT_INITIALIZED", "this provider is initialised for \"" + now.ownerId + "\", not for \"" + cluster.getOwnerId() + "\"");
    }
    return new Owner(cluster.getName(), now.ownerId, now.previous, now.readOnly);
  }

  /** Allows one mutating call at a time for each object. A further call fails with BUSY (CORE-7). The owner ID does not count: after Initialize with another one, a call of the former owner may still work on the object (PROV-18). */
  <T> T holding(Owner owner, String what, Call<T> work) throws Fail, InterruptedException {
    if (!held.add(what)) throw new Fail("BUSY", "another call is in progress for " + what + "; ask again in a second");
    try {
      return work.run(owner);
    } finally {
      held.remove(what);
    }
  }

  /** The RPCs that write to the cloud. */
  private static final Set<String> WRITES = Set.of("EnsureLoadBalancer", "UpdateLoadBalancer", "DeleteLoadBalancer", "CreateRoutes", "DeleteRoutes");

  private static void mayWrite(String rpc, Owner owner) throws Fail {
    if (owner.readOnly && WRITES.contains(rpc)) throw new Fail("PRECONDITION", rpc + " writes to the cloud, and this provider was initialised with read_only", "ReadOnly");
  }

  /** Runs one call: {@code failed} puts its failures into the body. A cancelled call needs no answer. */
  <T> void answer(String rpc, ClusterRef cluster, StreamObserver<T> out, Function<Failure, T> failed, Call<T> work) {
    T response;
    try {
      response = interruptible(() -> {
        Owner owner = admit(cluster);
        mayWrite(rpc, owner);
        return work.run(owner);
      });
    } catch (InterruptedException cancelled) {
      out.onError(Status.CANCELLED.asRuntimeException());
      return;
    } catch (Exception error) {
      response = failed.apply(failureOf(rpc, error));
    }
    out.onNext(response);
    out.onCompleted();
  }

  /**
   * Sends a listing in parts, then the end with the number of items (CORE-16). It gets all items before it sends the first. So a failure in the middle never looks like a
   * complete listing.
   */
  <I, T> void listing(String rpc, ClusterRef cluster, StreamObserver<T> out, Function<Failure, T> failed, Function<ListEnd, T> end, Function<List<I>, List<T>> parts, Call<List<I>> list) {
    List<I> items;
    try {
      items = interruptible(() -> list.run(admit(cluster)));
    } catch (InterruptedException cancelled) {
      out.onError(Status.CANCELLED.asRuntimeException());
      return;
    } catch (Exception error) {
      out.onNext(failed.apply(failureOf(rpc, error)));
      out.onCompleted();
      return;
    }
    for (int begin = 0; begin < items.size(); begin += CHUNK) {
      parts.apply(items.subList(begin, Math.min(begin + CHUNK, items.size()))).forEach(out::onNext);
    }
    out.onNext(end.apply(ListEnd.newBuilder().setTotal(items.size()).build()));
    out.onCompleted();
  }

  interface Interruptible<T> {
    T run() throws Fail, InterruptedException;
  }

  /** Runs work that is interrupted when the present context is cancelled: because the controller disconnected, the deadline passed, or the provider cancelled it. */
  static <T> T interruptible(Interruptible<T> work) throws Fail, InterruptedException {
    Context context = Context.current();
    Thread thread = Thread.currentThread();
    boolean[] over = {false};
    Context.CancellationListener listener = cancelled -> {
      synchronized (over) {
        if (!over[0]) thread.interrupt();
      }
    };
    context.addListener(listener, Runnable::run);
    try {
      return work.run();
    } finally {
      context.removeListener(listener);
      synchronized (over) {
        over[0] = true;
        Thread.interrupted(); // Clears the flag, because other calls use the thread after this one.
      }
    }
  }

  /** Turns every exception into a failure of the contract. A bug of the provider is INTERNAL, and only the log gets its details (CORE-12). */
  static Failure failureOf(String rpc, Exception error) {
    Fail fail = error instanceof Fail of ? of : new Fail("INTERNAL", "a fault of the provider in " + rpc + "; its log says more");
    if (fail != error) LOG.log(Level.SEVERE, rpc + " failed, call_id " + CallIds.CURRENT.get(), error);
    StringBuilder reason = new StringBuilder(fail.reason);
    if (fail.reason.isEmpty()) {
      for (String word : fail.code.split("_")) reason.append(word.charAt(0)).append(word.substring(1).toLowerCase());
    }
    Failure.Builder said = Failure.newBuilder().setCode(FailureCode.valueOf("FAILURE_CODE_" + fail.code)).setReason(reason.toString()).setMessage(shortened(fail.getMessage()));
    if (fail.retryAfterMs() > 0) said.setRetryAfter(duration(fail.retryAfterMs()));
    return said.build();
  }

  /** At most 1,024 bytes of UTF-8 (CORE-11), cut between characters. */
  static String shortened(String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    if (bytes.length <= TEXT_BYTES) return text;
    int end = TEXT_BYTES;
    while ((bytes[end] & 0xC0) == 0x80) end--;
    return new String(bytes, 0, end, StandardCharsets.UTF_8);
  }

  static int bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8).length;
  }

  static Duration duration(long ms) {
    return Duration.newBuilder().setSeconds(ms / 1000).setNanos((int) (ms % 1000) * 1_000_000).build();
  }

  static void withinBatch(String what, Collection<String> keys) throws Fail {
    if (keys.size() > MAX_BATCH) throw new Fail("INVALID", "the request has " + keys.size() + " " + what + ", more than max_batch " + MAX_BATCH);
    Set<String> seen = new HashSet<>();
    for (String key : keys) {
      if (key.isEmpty() && !what.equals("route keys")) throw new Fail("INVALID", "the request has one of its " + what + " empty; each needs its own name");
      if (!seen.add(key)) throw new Fail("INVALID", "the request has \"" + key + "\" twice among its " + what + "; each may occur once");
    }
  }

  static Pending pending(String message, long leftMs) {
    return Pending.newBuilder().setMessage(message).setRetryAfter(duration(Math.max(leftMs, 1_000))).build();
  }
}
