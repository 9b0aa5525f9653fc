package provider;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import cloudprovider.v1alpha1.ClusterRef;
import cloudprovider.v1alpha1.ClusterServiceGrpc;
import cloudprovider.v1alpha1.CreateRoutesRequest;
import cloudprovider.v1alpha1.DeleteLoadBalancerRequest;
import cloudprovider.v1alpha1.DeleteLoadBalancerResponse;
import cloudprovider.v1alpha1.DeleteRoutesRequest;
import cloudprovider.v1alpha1.EnsureLoadBalancerRequest;
import cloudprovider.v1alpha1.EnsureLoadBalancerResponse;
import cloudprovider.v1alpha1.Failure;
import cloudprovider.v1alpha1.GetControlPlaneAddressRequest;
import cloudprovider.v1alpha1.GetLoadBalancerRequest;
import cloudprovider.v1alpha1.GetVolumeLabelsRequest;
import cloudprovider.v1alpha1.GetVolumeLabelsResponse;
import cloudprovider.v1alpha1.InitializeRequest;
import cloudprovider.v1alpha1.InitializeResponse;
import cloudprovider.v1alpha1.InstanceFacet;
import cloudprovider.v1alpha1.InstanceServiceGrpc;
import cloudprovider.v1alpha1.ListInstancesRequest;
import cloudprovider.v1alpha1.ListInstancesResponse;
import cloudprovider.v1alpha1.ListLoadBalancersRequest;
import cloudprovider.v1alpha1.ListLoadBalancersResponse;
import cloudprovider.v1alpha1.ListRoutesRequest;
import cloudprovider.v1alpha1.LoadBalancerServiceGrpc;
import cloudprovider.v1alpha1.LookupInstanceResult;
import cloudprovider.v1alpha1.LookupInstancesRequest;
import cloudprovider.v1alpha1.LookupInstancesResponse;
import cloudprovider.v1alpha1.NodeAddress;
import cloudprovider.v1alpha1.NodeView;
import cloudprovider.v1alpha1.Ownership;
import cloudprovider.v1alpha1.ProbeRequest;
import cloudprovider.v1alpha1.ProbeResponse;
import cloudprovider.v1alpha1.ProbeState;
import cloudprovider.v1alpha1.ProviderServiceGrpc;
import cloudprovider.v1alpha1.Route;
import cloudprovider.v1alpha1.RouteResult;
import cloudprovider.v1alpha1.RouteServiceGrpc;
import cloudprovider.v1alpha1.ServicePort;
import cloudprovider.v1alpha1.ServiceView;
import cloudprovider.v1alpha1.TargetList;
import cloudprovider.v1alpha1.TargetSet;
import cloudprovider.v1alpha1.UpdateLoadBalancerRequest;
import cloudprovider.v1alpha1.VolumeServiceGrpc;
import cloudprovider.v1alpha1.VolumeView;
import cloudprovider.v1alpha1.WatchChangesRequest;
import cloudprovider.v1alpha1.WatchChangesResponse;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.Duration;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A provider on a real socket, called by a test client in place of the controller. */
@Timeout(60)
final class ProviderTest {
  private static final ClusterRef US = ClusterRef.newBuilder().setName("test").setOwnerId("us").build();
  private static final ClusterRef THEM = ClusterRef.newBuilder().setName("other").setOwnerId("them").build();
  private static final ServiceView SERVICE = service("uid-1").build();

  @TempDir Path directory;
  private Path state;
  private String endpoint;
  private Provider provider;
  private final CountDownLatch stop = new CountDownLatch(1);
  private CompletableFuture<Void> serving;
  private ManagedChannel channel;
  private final EpollEventLoopGroup loop = new EpollEventLoopGroup(1);
  private ProviderServiceGrpc.ProviderServiceBlockingStub info;
  private InstanceServiceGrpc.InstanceServiceBlockingStub instances;
  private LoadBalancerServiceGrpc.LoadBalancerServiceBlockingStub balancers;
  private RouteServiceGrpc.RouteServiceBlockingStub routes;

  @BeforeEach
  void serve() throws Exception {
    state = directory.resolve("cloud.json");
    endpoint = "unix://" + directory + "/socket/p.sock";
    ObjectNode content = Cloud.JSON.createObjectNode().put("format", 1).put("now_ms", 0).put("saved_at_unix_ms", 0).put("last_number", 0);
    for (String name : List.of("a", "b", "c")) content.withArray("instances").add(instance(name, "running"));
    content.putArray("load_balancers");
    content.putArray("routes");
    replace("", content.toString());
    replace(".catalogue.json", "{\"clusters\": {\"test\": \"192.0.2.77\"}, \"volumes\": {\"disk-1\": {\"topology.kubernetes.io/zone\": \"zone-a\"}}}");
    provider = new Provider(new Cloud(state), new Provider.Settings(
        "mock", "mock://", "here", List.of("192.0.2.0/24", "2001:db8::/112"), List.of("mock.grpc-ccm.io/lb"), List.of("csi/disk.mock.grpc-ccm.io"), 0));
    serving = CompletableFuture.runAsync(() -> {
      try {
        Main.serve(provider, endpoint, stop);
      } catch (IOException | InterruptedException error) {
        throw new IllegalStateException(error);
      }
    });
    channel = NettyChannelBuilder.forAddress(new DomainSocketAddress(directory + "/socket/p.sock"))
        .channelType(EpollDomainSocketChannel.class).eventLoopGroup(loop).overrideAuthority("localhost").usePlaintext().build();
    info = ProviderServiceGrpc.newBlockingStub(channel).withWaitForReady();
    instances = InstanceServiceGrpc.newBlockingStub(channel);
    balancers = LoadBalancerServiceGrpc.newBlockingStub(channel);
    routes = RouteServiceGrpc.newBlockingStub(channel);
    assertTrue(initialize(US).hasInitialized());
  }

  @Test
  void aFaultOfTheProviderIsLoggedWithTheIdOfTheCall() {
    List<String> logged = new CopyOnWriteArrayList<>();
    Handler handler = new Handler() {
      @Override
      public void publish(LogRecord line) {
        logged.add(line.getMessage());
      }

      @Override
      public void flush() {}

      @Override
      public void close() {}
    };
    Metadata headers = new Metadata();
    headers.put(Metadata.Key.of("ccm-call-id", Metadata.ASCII_STRING_MARSHALLER), "5f3c-7");
    provider.owner = new Provider.Owner("test", null, List.of(), false); // Each call fails with a NullPointerException.
    Provider.LOG.addHandler(handler);
    try {
      GetControlPlaneAddressRequest request = GetControlPlaneAddressRequest.newBuilder().setCluster(US).build();
      ClusterServiceGrpc.newBlockingStub(channel).withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers)).getControlPlaneAddress(request);
    } finally {
      Provider.LOG.removeHandler(handler);
    }
    assertTrue(logged.contains("GetControlPlaneAddress failed, call_id 5f3c-7"), logged::toString);
  }

  @AfterEach
  void end() throws Exception {
    channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    stop.countDown();
    serving.get(30, TimeUnit.SECONDS);
    loop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
  }

  private static ObjectNode instance(String name, String power) {
    ObjectNode instance = Cloud.JSON.createObjectNode().put("id", name).put("name", name).put("provider_id", "mock://zone-a/" + name)
        .put("type", "mock.large").put("zone", "zone-a").put("region", "region-1").put("power", power);
    instance.withArray("addresses").addObject().put("InternalIP", "10.0.0.1");
    return instance;
  }

  private void replace(String suffix, String text) throws IOException {
    Path edited = directory.resolve("edited");
    Files.writeString(edited, text);
    Files.move(edited, state.resolveSibling("cloud.json" + suffix), StandardCopyOption.ATOMIC_MOVE);
  }

  private JsonNode content() throws IOException {
    return Cloud.JSON.readTree(state.toFile());
  }

  /** Changes the cloud directly, as its console would. */
  private void edit(Consumer<ObjectNode> change) throws IOException {
    ObjectNode content = (ObjectNode) content();
    change.accept(content);
    replace("", content.toString());
  }

  private void weather(String fail, int slowMs) throws IOException {
    replace(".weather.json", Cloud.JSON.createObjectNode().put("fail", fail).put("slow_ms", slowMs).toString());
  }

  private int writes() throws IOException {
    Path writes = state.resolveSibling("cloud.json.writes");
    return Files.exists(writes) ? Files.readAllLines(writes).size() : 0;
  }

  private InitializeResponse initialize(ClusterRef cluster, String... previous) {
    return info.initialize(InitializeRequest.newBuilder().setCluster(cluster).addAllPreviousOwnerIds(List.of(previous)).build());
  }

  private static String code(Failure failure) {
    return failure.getCode().name().substring("FAILURE_CODE_".length());
  }

  private static NodeView node(String name, String... providerId) {
    NodeView.Builder node = NodeView.newBuilder().setName(name).setUid("uid-" + name);
    if (providerId.length > 0) node.setProviderId(providerId[0]);
    return node.build();
  }

  private List<String> states(LookupInstancesRequest request) {
    LookupInstancesResponse response = instances.lookupInstances(request);
    if (response.hasFailed()) return List.of(code(response.getFailed()));
    assertEquals(request.getNodesList().stream().map(NodeView::getUid).toList(), response.getResultsList().stream().map(LookupInstanceResult::getNodeUid).toList());
    return response.getResultsList().stream().map(result -> result.hasFailed() ? code(result.getFailed()) : result.getFound().getState().name().substring("INSTANCE_STATE_".length())).toList();
  }

  private static LookupInstancesRequest.Builder lookup(NodeView... nodes) {
    return LookupInstancesRequest.newBuilder().setCluster(US).addAllNodes(List.of(nodes));
  }

  private static ServiceView.Builder service(String uid) {
    return ServiceView.newBuilder().setNamespace("default").setName("web").setUid(uid).setSessionAffinity("None").setExternalTrafficPolicy("Cluster")
        .addPorts(ServicePort.newBuilder().setProtocol("TCP").setPort(80).setNodePort(30080));
  }

  private static TargetSet targets(String... names) {
    TargetList.Builder list = TargetList.newBuilder();
    for (String name : names) list.addNodes(node(name));
    return TargetSet.newBuilder().setInline(list).build();
  }

  private static EnsureLoadBalancerRequest.Builder ensure(ServiceView service) {
    return EnsureLoadBalancerRequest.newBuilder().setCluster(US).setService(service);
  }

  private EnsureLoadBalancerResponse made(EnsureLoadBalancerRequest.Builder request) {
    return balancers.ensureLoadBalancer(request.build());
  }

  private DeleteLoadBalancerResponse deleted(ClusterRef cluster, ServiceView service, String handle) {
    return balancers.deleteLoadBalancer(DeleteLoadBalancerRequest.newBuilder().setCluster(cluster).setService(service).setHandle(handle).build());
  }

  @Test
  void aNodeIsFoundByProviderIdAndElseByName() throws Exception {
    edit(content -> ((ArrayNode) content.get("instances")).add(instance("p", "pending")).add(instance("s", "stopped")));
    LookupInstancesRequest.Builder request = lookup(node("a"), node("renamed", "mock://zone-a/b"), node("x"), node("c", "mock://zone-a/gone"), node("y", "aws://i-1"), node("p"), node("s"), node("z", "mock://"));
    assertEquals(List.of("RUNNING", "RUNNING", "ABSENT", "ABSENT", "UNMANAGED", "PENDING", "STOPPED", "INVALID"), states(request.build()));
  }

  @Test
  void aNameThatIsNoDnsNameIsLeftOut() throws Exception {
    edit(content -> {
      ObjectNode odd = instance("odd", "running");
      for (String name : List.of("a.example", "a_b.example", "a..b", "a.", "-a", "a".repeat(254))) odd.withArray("addresses").addObject().put("Hostname", name);
      ((ArrayNode) content.get("instances")).add(odd);
    });
    LookupInstancesRequest request = lookup(node("odd")).addFacets(InstanceFacet.INSTANCE_FACET_METADATA).build();
    assertEquals(List.of("10.0.0.1", "a.example"), instances.lookupInstances(request).getResults(0).getFound().getAddressesList().stream().map(NodeAddress::getAddress).toList());
  }

  @Test
  void aCloudThatFailsOrIsLostNeverSaysAbsent() throws Exception {
    LookupInstancesRequest request = lookup(node("a"), node("gone")).build();
    for (String fail : List.of("THROTTLED", "CREDENTIALS", "UNAVAILABLE")) {
      weather(fail, 0);
      assertEquals(List.of(fail), states(request));
    }
    // With a `max_age`, the provider may repeat a recent answer.
    assertEquals(List.of("RUNNING", "ABSENT"), states(request.toBuilder().setMaxAge(Duration.newBuilder().setSeconds(600)).build()));
    weather(null, 0);
    Files.writeString(state, "{");
    assertEquals(List.of("UNAVAILABLE"), states(request));
    Files.delete(state);
    assertEquals(List.of("UNAVAILABLE"), states(request));
  }

  @Test
  void whoMayNotAskIsToldSo() {
    assertEquals(List.of("NOT_INITIALIZED"), states(lookup(node("a")).setCluster(THEM).build()));
    assertEquals(List.of("INVALID"), states(lookup(node("a")).clearCluster().build()));
    assertEquals(List.of("INVALID"), states(lookup(node("a"), node("a")).build()));
    LookupInstancesRequest.Builder many = lookup();
    for (int n = 0; n <= Provider.MAX_BATCH; n++) many.addNodes(node("n-" + n));
    assertEquals(List.of("INVALID"), states(many.build()));
  }

  @Test
  void aListingIsCompleteAndEnds() throws Exception {
    edit(content -> {
      for (int n = 0; n < 1_200; n++) ((ArrayNode) content.get("instances")).add(instance("n-" + n, "running"));
    });
    List<ListInstancesResponse> parts = new ArrayList<>();
    instances.listInstances(ListInstancesRequest.newBuilder().setCluster(US).build()).forEachRemaining(parts::add);
    assertEquals(1_203, parts.stream().mapToInt(part -> part.getInstances().getInstancesCount()).sum());
    assertEquals(1_203, parts.get(parts.size() - 1).getEnd().getTotal());
    weather("THROTTLED", 0);
    Iterator<ListInstancesResponse> failed = instances.listInstances(ListInstancesRequest.newBuilder().setCluster(US).build());
    assertEquals("THROTTLED", code(failed.next().getFailed()));
    assertFalse(failed.hasNext());
  }

  @Test
  void aConvergedEnsureWritesNothingAndAClearedFieldIsRemoved() throws Exception {
    ServiceView asked = service("uid-1").addLoadBalancerSourceRanges("10.0.0.0/8").addIpFamilies("IPv4").addIpFamilies("IPv6").build();
    EnsureLoadBalancerResponse made = made(ensure(asked).setTargets(targets("a", "b", "a")));
    assertEquals("192.0.2.1", made.getReady().getStatus().getIngress(0).getIp());
    assertEquals("2001:db8::1", made.getReady().getStatus().getIngress(1).getIp());
    assertEquals(1, writes());
    GetLoadBalancerRequest.Builder get = GetLoadBalancerRequest.newBuilder().setCluster(US).setService(asked).setTargets(targets("a", "b"));
    assertTrue(balancers.getLoadBalancer(get.build()).getFound().getInSync());
    // Absent targets do not change the targets.
    assertEquals(made.getReady(), made(ensure(asked).setHandle(made.getHandle())).getReady());
    assertEquals(1, writes());
    assertFalse(balancers.getLoadBalancer(get.setService(SERVICE).build()).getFound().getInSync());
    made(ensure(SERVICE));
    JsonNode lb = content().get("load_balancers").get(0);
    assertFalse(lb.get("config").has("source_ranges"));
    assertEquals("[\"192.0.2.1\"] [\"a\",\"b\"]", lb.get("addresses") + " " + lb.get("targets"));
  }

  @Test
  void aServiceThatCannotBeServedIsInvalidAndTheFieldIsNamed() throws Exception {
    ServicePort port = SERVICE.getPorts(0);
    List<ServiceView.Builder> wrong = List.of(
        service("u").clearPorts(), service("u").addPorts(port), service("u").setPorts(0, port.toBuilder().setProtocol("ICMP")), service("u").setPorts(0, port.toBuilder().setPort(0)),
        service("u").addLoadBalancerSourceRanges("10.0.0.0"), service("u").addIpFamilies("IPv5"), service("u").setLoadBalancerClass("other"), service("u").setLoadBalancerIp("here"));
    for (ServiceView.Builder asked : wrong) {
      Failure failed = made(ensure(asked.build())).getFailed();
      assertEquals("INVALID", code(failed));
      assertTrue(failed.getMessage().startsWith("spec."), failed.getMessage());
    }
    assertEquals(0, writes());
  }

  @Test
  void anUpdateSetsTheTargetsAndNeedsALoadBalancer() throws Exception {
    UpdateLoadBalancerRequest.Builder request = UpdateLoadBalancerRequest.newBuilder().setCluster(US).setService(SERVICE).setTargets(targets("c"));
    assertEquals("NOT_FOUND", code(balancers.updateLoadBalancer(request.build()).getFailed()));
    made(ensure(SERVICE).setTargets(targets("a")));
    assertTrue(balancers.updateLoadBalancer(request.build()).hasDone());
    assertEquals("[\"c\"]", content().get("load_balancers").get(0).get("targets").toString());
    assertEquals("INVALID", code(balancers.updateLoadBalancer(request.clearTargets().build()).getFailed()));
  }

  @Test
  void whatIsNotOursIsNotTouchedAndAFormerOwnersIsOurs() throws Exception {
    String handle = made(ensure(SERVICE)).getHandle();
    initialize(THEM);
    ServiceView other = service("uid-2").build();
    assertEquals("CONFLICT", code(made(ensure(other).setCluster(THEM).setHandle(handle)).getFailed()));
    assertEquals("CONFLICT", code(deleted(THEM, other, handle).getFailed()));
    assertEquals(1, writes());
    initialize(THEM, "us");
    for (int again = 0; again < 2; again++) {
      assertTrue(made(ensure(SERVICE).setCluster(THEM)).hasReady());
      assertEquals(2, writes()); // Ensure replaces the mark, with one write.
    }
    assertEquals("them", content().get("load_balancers").get(0).get("owner").get("owner_id").asText());
    List<ListLoadBalancersResponse> parts = new ArrayList<>();
    balancers.listLoadBalancers(ListLoadBalancersRequest.newBuilder().setCluster(THEM).build()).forEachRemaining(parts::add);
    assertEquals("uid-1", parts.get(0).getLoadBalancer().getOwners(0).getUid());
    assertEquals(1, parts.get(1).getEnd().getTotal());
  }

  @Test
  void anUnmarkedLoadBalancerIsAdoptedOnlyWhereThatIsGranted() throws Exception {
    edit(content -> ((ArrayNode) content.get("load_balancers")).addObject().put("handle", "lb-7").put("name", "auid1").putObject("config"));
    GetLoadBalancerRequest get = GetLoadBalancerRequest.newBuilder().setCluster(US).setService(SERVICE).build();
    assertEquals(Ownership.OWNERSHIP_UNMARKED, balancers.getLoadBalancer(get).getFound().getOwnership());
    assertEquals("CONFLICT", code(made(ensure(SERVICE)).getFailed()));
    assertEquals("lb-7", made(ensure(SERVICE).setAdoptUnmarked(true)).getHandle());
    assertEquals("uid-1", content().get("load_balancers").get(0).get("owner").get("uid").asText());
  }

  @Test
  void aDeleteFindsByTheMarkAndIsDoneWhereNothingIs() throws Exception {
    made(ensure(SERVICE));
    assertTrue(deleted(US, SERVICE, "lb-lost").hasDone());
    assertTrue(deleted(US, SERVICE, "").hasDone());
    assertEquals(2, writes());
    assertTrue(content().get("load_balancers").isEmpty());
    weather("UNAVAILABLE", 0);
    assertEquals("UNAVAILABLE", code(deleted(US, SERVICE, "").getFailed()));
  }

  /** LB-26: Delete removes the Service's own load balancer, and then says that another one is left. */
  @Test
  void aDeleteIsNotDoneWhileAnUnmarkedLoadBalancerRemains() throws Exception {
    for (boolean adopt : new boolean[] {false, true}) {
      made(ensure(SERVICE));
      edit(content -> ((ArrayNode) content.get("load_balancers")).addObject().put("handle", "lb-7").put("name", "auid1").putObject("config"));
      DeleteLoadBalancerRequest request = DeleteLoadBalancerRequest.newBuilder().setCluster(US).setService(SERVICE).setAdoptUnmarked(adopt).build();
      DeleteLoadBalancerResponse first = balancers.deleteLoadBalancer(request);
      if (adopt) assertTrue(first.hasPending());
      else assertEquals("CONFLICT", code(first.getFailed()));
      assertEquals(1, content().get("load_balancers").size());
      assertEquals("lb-7", content().get("load_balancers").get(0).get("handle").asText());
      if (!adopt) assertEquals("CONFLICT", code(balancers.deleteLoadBalancer(request).getFailed()));
      assertTrue(balancers.deleteLoadBalancer(request.toBuilder().setAdoptUnmarked(true).build()).hasDone());
      assertTrue(content().get("load_balancers").isEmpty());
    }
  }

  @Test
  void overlappingCallsMakeOneLoadBalancer() throws Exception {
    weather(null, 300);
    List<Future<EnsureLoadBalancerResponse>> calls = new ArrayList<>();
    for (int n = 0; n < 4; n++) calls.add(LoadBalancerServiceGrpc.newFutureStub(channel).ensureLoadBalancer(ensure(SERVICE).build()));
    for (Future<EnsureLoadBalancerResponse> call : calls) assertTrue(call.get().hasReady() || code(call.get().getFailed()).equals("BUSY"));
    assertEquals(1, writes());
  }

  @Test
  @Timeout(120)
  void aCallThatIsCancelledOrOutOfTimeWritesNothing() throws Exception {
    weather(null, 25_000);
    Future<EnsureLoadBalancerResponse> call = LoadBalancerServiceGrpc.newFutureStub(channel).ensureLoadBalancer(ensure(SERVICE).build());
    info.probe(ProbeRequest.getDefaultInstance()); // Sent later on the same connection, so the earlier call has arrived.
    call.cancel(true);
    assertTrue(balancers.withDeadlineAfter(20, TimeUnit.SECONDS).ensureLoadBalancer(ensure(service("uid-2").build()).build()).hasPending());
    // A continued write would end before this one, which takes equally long and began later.
    assertTrue(made(ensure(service("uid-3").build())).hasReady());
    assertEquals(1, writes());
  }

  private static Route route(String cidr, String node) {
    return Route.newBuilder().setRouteKey(cidr).setNameHint("uid").setDestinationCidr(cidr).setNodeName(node).build();
  }

  private static List<String> outcomes(List<RouteResult> results) {
    return results.stream().map(result -> result.hasDone() ? "done" : code(result.getFailed())).toList();
  }

  private List<String> create(ClusterRef cluster, Route... wanted) {
    return outcomes(routes.createRoutes(CreateRoutesRequest.newBuilder().setCluster(cluster).addAllRoutes(List.of(wanted)).build()).getResultsList());
  }

  @Test
  void eachRouteHasItsOwnResultAndAConvergedOneWritesNothing() throws Exception {
    Route one = route("10.0.1.0/24", "a");
    assertEquals(List.of("done", "INVALID", "PRECONDITION"), create(US, one, route("10.0.2.0", "a"), route("10.0.3.0/24", "gone")));
    assertEquals(List.of("done"), create(US, one));
    assertEquals(1, writes());
    assertEquals(List.of("CONFLICT"), create(US, route("10.0.1.0/24", "b")));
    edit(content -> ((ArrayNode) content.get("instances")).remove(0));
    assertTrue(routes.listRoutes(ListRoutesRequest.newBuilder().setCluster(US).build()).next().getRoutes().getRoutes(0).getBlackhole());
    assertEquals(List.of("done"), create(US, route("10.0.1.0/24", "b"))); // CreateRoutes replaces a blackhole.
    Route made = routes.listRoutes(ListRoutesRequest.newBuilder().setCluster(US).build()).next().getRoutes().getRoutes(0).toBuilder().setRouteKey("made").build();
    initialize(THEM);
    assertEquals(List.of("CONFLICT"), create(THEM, route("10.0.1.0/24", "b")));
    DeleteRoutesRequest.Builder delete = DeleteRoutesRequest.newBuilder().setCluster(THEM).addRoutes(made).addRoutes(route("10.9.9.0/24", "a").toBuilder().setName("gone"));
    assertEquals(List.of("CONFLICT", "done"), outcomes(routes.deleteRoutes(delete.build()).getResultsList()));
    initialize(US);
    assertEquals(List.of("done", "done"), outcomes(routes.deleteRoutes(delete.setCluster(US).build()).getResultsList()));
  }

  /** ROUTE-8: all ways to write one network are one destination. */
  @Test
  void aDestinationIsComparedAsANetwork() throws Exception {
    assertEquals(List.of("done", "done", "CONFLICT"), create(US, route("fd00::/64", "a"), route("fd00:0::/64", "a"), route("fd00:0:0::/64", "b")));
    assertEquals(List.of("done"), create(US, route("fd00:0:0::/64", "a")));
    assertEquals(1, writes());
    Route made = routes.listRoutes(ListRoutesRequest.newBuilder().setCluster(US).build()).next().getRoutes().getRoutes(0);
    DeleteRoutesRequest delete = DeleteRoutesRequest.newBuilder().setCluster(US).addRoutes(made.toBuilder().setRouteKey("made").setDestinationCidr("fd00:0::/64")).build();
    assertEquals(List.of("done"), outcomes(routes.deleteRoutes(delete).getResultsList()));
    assertEquals(2, writes());
  }

  @Test
  void clustersAndDisksAreTold() {
    GetControlPlaneAddressRequest asked = GetControlPlaneAddressRequest.newBuilder().setCluster(US).setClusterName("test").build();
    assertEquals("192.0.2.77", ClusterServiceGrpc.newBlockingStub(channel).getControlPlaneAddress(asked).getAddress());
    assertEquals("zone-a", labels("disk.mock.grpc-ccm.io", "disk-1").getLabels().getLabelsOrThrow("topology.kubernetes.io/zone"));
    assertEquals("NOT_FOUND", code(labels("disk.mock.grpc-ccm.io", "gone").getFailed()));
    assertEquals(0, labels("ebs.csi.aws.com", "disk-1").getLabels().getLabelsCount());
  }

  private GetVolumeLabelsResponse labels(String driver, String handle) {
    VolumeView.Builder volume = VolumeView.newBuilder().setName("v").setSourceType("csi").putSource("driver", driver).putSource("volumeHandle", handle);
    return VolumeServiceGrpc.newBlockingStub(channel).getVolumeLabels(GetVolumeLabelsRequest.newBuilder().setCluster(US).setVolume(volume).build());
  }

  @Test
  void aProbeAnswersFromMemoryWhileTheCloudIsSlow() throws Exception {
    weather("CREDENTIALS", 0);
    assertEquals("CREDENTIALS", code(initialize(US).getFailed()));
    weather(null, 20_000);
    List<Future<InitializeResponse>> slow = new ArrayList<>();
    for (int n = 0; n < 64; n++) slow.add(ProviderServiceGrpc.newFutureStub(channel).initialize(InitializeRequest.newBuilder().setCluster(US).build()));
    ProbeResponse probe = info.withDeadlineAfter(15, TimeUnit.SECONDS).probe(ProbeRequest.getDefaultInstance());
    assertEquals(ProbeState.PROBE_STATE_DEGRADED, probe.getState());
    slow.forEach(call -> call.cancel(true));
  }

  @Test
  void hintsTellWhatOthersChangedAndShutdownEndsTheStream() throws Exception {
    WatchChangesRequest.Builder request = WatchChangesRequest.newBuilder().setCluster(US).setResumeToken("of-another-process/1");
    Iterator<WatchChangesResponse> unknown = info.watchChanges(request.build());
    WatchChangesResponse first = unknown.next();
    assertTrue(first.hasResync());
    edit(content -> ((ArrayNode) content.get("instances")).add(instance("d", "running")));
    WatchChangesResponse second = unknown.next();
    assertEquals("d", second.getInstance().getNodeName());
    assertEquals(second, info.watchChanges(request.setResumeToken(first.getResumeToken()).build()).next());
    stop.countDown();
    assertFalse(unknown.hasNext()); // Status OK: any other status would throw.
  }

  @Test
  void theSocketIsGuardedAndALivingOneIsLeftAlone() throws Exception {
    Path socket = directory.resolve("socket/p.sock");
    assertEquals("rw-rw---- rwxr-x---", PosixFilePermissions.toString(Files.getPosixFilePermissions(socket)) + " " + PosixFilePermissions.toString(Files.getPosixFilePermissions(socket.getParent())));
    Files.createSymbolicLink(directory.resolve("link"), socket.getParent());
    Files.createFile(directory.resolve("file"));
    refused("another provider answers", endpoint);
    refused("symbolic link", "unix://" + directory + "/link/p.sock");
    refused("not a socket", "unix://" + directory + "/file");
    refused("at most 107", "unix:///" + "x".repeat(120));
    for (String wrong : List.of("unix:p.sock", "unix-abstract:x", "unix:///a/../b", "unix:///a/")) refused("right would be", wrong);
  }

  private static void refused(String why, String endpoint) {
    IOException refusal = assertThrows(IOException.class, () -> new SocketFile(endpoint).claim());
    assertTrue(refusal.getMessage().contains(why), refusal.getMessage());
  }

  @Test
  void anIpv6AddressHasItsUsualForm() throws Exception {
    for (String form : List.of("2001:0:0:1::1", "::", "::1", "2001:db8::", "2001:db8:0:1:1:1:1:1")) {
      assertEquals(form, Cidr.text(InetAddress.getByName(form).getAddress()));
    }
  }

  @Test
  void dnsIsNotAskedAboutATextThatIsNoAddress() {
    for (String right : List.of("0.0.0.0", "192.0.2.199", "255.255.255.255", "2001:db8::1", "::1")) assertNotNull(Cidr.address(right), right);
    for (String wrong : List.of("192.0.2.999", "192.0.2.256", "010.0.0.1", "192.0.2", ".:1", "localhost")) assertFalse(Cidr.isLiteral(wrong), wrong);
  }

  @Test
  void atShutdownACallInFlightMayFinish() throws Exception {
    weather(null, 1_000);
    Future<InitializeResponse> call = ProviderServiceGrpc.newFutureStub(channel).initialize(InitializeRequest.newBuilder().setCluster(US).build());
    info.probe(ProbeRequest.getDefaultInstance()); // Sent later on the same connection, so the earlier call has arrived.
    stop.countDown();
    assertTrue(call.get().hasInitialized());
    serving.get(30, TimeUnit.SECONDS);
    assertFalse(Files.exists(directory.resolve("socket/p.sock")));
  }
}
