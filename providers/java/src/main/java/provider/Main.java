package provider;

import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** The program: {@code java -jar target/provider.jar --state cloud.json --endpoint unix:///tmp/cloud/provider.sock}. */
final class Main {
  static final int MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
  /** How long calls in flight may take after SIGTERM, in seconds. */
  private static final int DRAIN = 20;

  private Main() {}

  /** Serves until stop is down to zero, then drains: hints end, calls in flight may finish, and calls that still run after 20 s are cancelled. */
  static void serve(Provider provider, String endpoint, CountDownLatch stop) throws IOException, InterruptedException {
    SocketFile socket = new SocketFile(endpoint);
    socket.claim();
    EventLoopGroup loop = new EpollEventLoopGroup(1);
    // Each call has its own thread, so a slow cloud delays no other call.
    ExecutorService calls = Executors.newCachedThreadPool();
    CallerEndsFirst callerEndsFirst = new CallerEndsFirst(provider.clock);
    try {
      Server server = NettyServerBuilder.forAddress(new DomainSocketAddress(socket.bound.toString()))
          .channelType(EpollServerDomainSocketChannel.class)
          .bossEventLoopGroup(loop)
          .workerEventLoopGroup(loop)
          .executor(calls)
          .maxInboundMessageSize(MAX_MESSAGE_BYTES)
          // No HTTP/2 pings (CORE-1): neither for keepalive nor, with a window that is set, to measure bandwidth.
          .keepAliveTime(Long.MAX_VALUE, TimeUnit.NANOSECONDS)
          .flowControlWindow(4 * 1024 * 1024)
          .addStreamTracerFactory(callerEndsFirst)
          // gRPC calls the last interceptor first. So NothingBehindTheEnd gets the context of CallerEndsFirst, which ends at the caller's deadline.
          .intercept(new NothingBehindTheEnd())
          .intercept(callerEndsFirst)
          .intercept(new CallIds())
          .addService(new ProviderRpcs(provider))
          .addService(new Instances(provider))
          .addService(new Instances.Zones(provider))
          .addService(new LoadBalancers(provider))
          .addService(new Routes(provider))
          .addService(new ClustersVolumes.Clusters(provider))
          .addService(new ClustersVolumes.Volumes(provider))
          .build()
          .start();
      socket.publish();
      Provider.LOG.info("serving at " + endpoint);
      stop.await();
      Provider.LOG.info("shutting down");
      provider.closing.countDown();
      socket.remove();
      if (!server.shutdown().awaitTermination(DRAIN, TimeUnit.SECONDS)) server.shutdownNow().awaitTermination(1, TimeUnit.SECONDS);
    } finally {
      socket.remove();
      calls.shutdownNow();
      loop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
    }
  }

  private static final Map<String, String> DEFAULTS = Map.of(
      "--endpoint", SocketFile.DEFAULT_ENDPOINT,
      "--name", "mock",
      "--prefix", "mock://",
      "--cloud-scope", "mock account, mock region",
      "--pools", "192.0.2.0/24,2001:db8::/112",
      "--provisioning-ms", "0");

  private static Map<String, String> options(String[] arguments) {
    Map<String, String> options = new HashMap<>(DEFAULTS);
    List<String> left = new ArrayList<>(List.of(arguments));
    while (!left.isEmpty()) {
      String name = left.remove(0);
      if (left.isEmpty() || !(DEFAULTS.containsKey(name) || name.equals("--state"))) {
        throw new IllegalArgumentException("usage: java -jar provider.jar --state FILE [OPTION VALUE]..., with the options " + String.join(", ", DEFAULTS.keySet()));
      }
      options.put(name, left.remove(0));
    }
    if (!options.containsKey("--state")) throw new IllegalArgumentException("--state is missing; give the cloud's state file, such as --state cloud.json");
    for (String pool : options.get("--pools").split(",")) {
      if (Cidr.parse(pool) == null) throw new IllegalArgumentException("--pools: \"" + pool + "\" is not a CIDR; write one such as 192.0.2.0/24");
    }
    return options;
  }

  public static void main(String[] arguments) throws InterruptedException {
    System.setProperty("java.util.logging.SimpleFormatter.format", "%1$tF %1$tT.%1$tL %4$s %5$s%6$s%n");
    CountDownLatch stop = new CountDownLatch(1);
    CountDownLatch stopped = new CountDownLatch(1);
    int code = 0;
    try {
      Map<String, String> options = options(arguments);
      Cloud cloud = new Cloud(Path.of(options.get("--state")));
      cloud.createIfMissing();
      Provider.Settings settings = new Provider.Settings(
          options.get("--name"), options.get("--prefix"), options.get("--cloud-scope"), List.of(options.get("--pools").split(",")), List.of("mock.grpc-ccm.io/lb"),
          List.of("csi/disk.mock.grpc-ccm.io"), Long.parseLong(options.get("--provisioning-ms")));
      // On SIGTERM the JVM ends when its hooks have ended. This hook waits for the drain.
      Runtime.getRuntime().addShutdownHook(new Thread(() -> {
        stop.countDown();
        try {
          stopped.await(DRAIN + 5, TimeUnit.SECONDS);
        } catch (InterruptedException over) {
          Thread.currentThread().interrupt();
        }
        Runtime.getRuntime().halt(0);
      }));
      serve(new Provider(cloud, settings), options.get("--endpoint"), stop);
    } catch (IOException | Fail | RuntimeException error) {
      System.err.println(error.getMessage());
      code = 1;
    } finally {
      stopped.countDown();
    }
    if (code != 0) Runtime.getRuntime().halt(code);
  }
}
