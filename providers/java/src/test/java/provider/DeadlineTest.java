package provider;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import cloudprovider.v1alpha1.ClusterRef;
import cloudprovider.v1alpha1.LookupInstancesRequest;
import cloudprovider.v1alpha1.NodeView;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The frames on the wire when a deadline passes. grpc-java's own client tolerates frames that other clients refuse. */
@Timeout(60)
final class DeadlineTest {
  private static final int DATA = 0;
  private static final int HEADERS = 1;
  private static final int RST_STREAM = 3;
  private static final int SETTINGS = 4;
  private static final int GO_AWAY = 7;
  private static final int END_STREAM = 1;
  private static final int END_HEADERS = 4;
  private static final int CALLS = 64;

  @TempDir Path directory;

  @Test
  void theResetOfACallWhoseDeadlinePassesIsTheLastFrameOfItsStream() throws Exception {
    Path state = directory.resolve("cloud.json");
    Files.writeString(state, "{\"format\":1,\"now_ms\":0,\"saved_at_unix_ms\":0,\"last_number\":0,\"instances\":[],\"load_balancers\":[],\"routes\":[]}");
    Files.writeString(directory.resolve("cloud.json.weather.json"), "{\"slow_ms\": 60000}");
    Provider provider = new Provider(new Cloud(state), new Provider.Settings("mock", "mock://", "here", List.of(), List.of(), List.of(), 0));
    provider.owner = new Provider.Owner("test", "us", List.of(), false);
    CountDownLatch stop = new CountDownLatch(1);
    Path socket = directory.resolve("socket/p.sock");
    CompletableFuture<Void> serving = CompletableFuture.runAsync(() -> {
      try {
        Main.serve(provider, "unix://" + socket, stop);
      } catch (IOException | InterruptedException error) {
        throw new IllegalStateException(error);
      }
    });
    while (!Files.exists(socket)) {
      assertTrue(!serving.isDone(), "it does not serve");
      Thread.sleep(10);
    }
    try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX)) {
      channel.connect(UnixDomainSocketAddress.of(socket));
      DataOutputStream out = new DataOutputStream(Channels.newOutputStream(channel));
      DataInputStream in = new DataInputStream(Channels.newInputStream(channel));
      out.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
      frame(out, SETTINGS, 0, 0, new byte[0]);
      for (int call = 0; call < CALLS; call++) {
        frame(out, HEADERS, END_HEADERS, 2 * call + 1, headers());
        frame(out, DATA, END_STREAM, 2 * call + 1, lookup());
      }
      // The test never cancels: the provider ends each call. The answer to one more call shows that all frames of the earlier calls have arrived.
      Set<Integer> ended = new HashSet<>();
      int last = 2 * CALLS + 1;
      while (!ended.contains(last)) {
        int length = in.readUnsignedShort() << 8 | in.readUnsignedByte();
        int type = in.readUnsignedByte();
        int flags = in.readUnsignedByte();
        int stream = in.readInt() & Integer.MAX_VALUE;
        byte[] payload = in.readNBytes(length);
        assertEquals(length, payload.length, "the connection ended");
        assertTrue(type != GO_AWAY, "the connection is given up");
        boolean said = type == DATA || type == HEADERS;
        assertTrue(!said || !ended.contains(stream), "a frame of type " + type + " behind the end of stream " + stream);
        if (type == RST_STREAM || (said && (flags & END_STREAM) != 0)) ended.add(stream);
        if (ended.size() == CALLS && !ended.contains(last)) {
          Files.writeString(directory.resolve("cloud.json.weather.json"), "{}");
          frame(out, HEADERS, END_HEADERS, last, headers());
          frame(out, DATA, END_STREAM, last, lookup());
        }
      }
      assertEquals(CALLS + 1, ended.size());
    } finally {
      stop.countDown();
      serving.get(30, TimeUnit.SECONDS);
    }
  }

  @Test
  void theProvidersTimerRingsBehindTheCallers() {
    for (String[] pair : new String[][] {
      {"300m", "1300m"}, {"1S", "2000m"}, {"5M", "301000m"}, {"1H", "3601000m"}, {"250000u", "1250m"}, {"7n", "1000m"}, {"99999999m", "99999999m"}, {"99999999H", "99999999H"}, {"", ""},
      {"1s", "1s"}, {"123456789m", "123456789m"},
    }) {
      assertEquals(pair[1], CallerEndsFirst.later(pair[0]));
    }
  }

  private static void frame(DataOutputStream out, int type, int flags, int stream, byte[] payload) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream frame = new DataOutputStream(bytes);
    frame.writeByte(payload.length >> 16);
    frame.writeShort(payload.length);
    frame.writeByte(type);
    frame.writeByte(flags);
    frame.writeInt(stream);
    frame.write(payload);
    out.write(bytes.toByteArray());
  }

  /** HPACK's simplest form: each field is a literal without indexing. */
  private static byte[] headers() {
    ByteArrayOutputStream block = new ByteArrayOutputStream();
    List<String> fields = List.of(
        ":method", "POST", ":scheme", "http", ":path", "/cloudprovider.v1alpha1.InstanceService/LookupInstances", ":authority", "localhost",
        "te", "trailers", "content-type", "application/grpc", "grpc-timeout", "300m");
    for (int i = 0; i < fields.size(); i++) {
      if (i % 2 == 0) block.write(0);
      block.write(fields.get(i).length());
      block.writeBytes(fields.get(i).getBytes(StandardCharsets.US_ASCII));
    }
    return block.toByteArray();
  }

  private static byte[] lookup() throws IOException {
    byte[] message = LookupInstancesRequest.newBuilder()
        .setCluster(ClusterRef.newBuilder().setName("test").setOwnerId("us"))
        .addNodes(NodeView.newBuilder().setName("a").setUid("uid-a"))
        .build().toByteArray();
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    out.writeByte(0);
    out.writeInt(message.length);
    out.write(message);
    return bytes.toByteArray();
  }
}
