package provider;

import cloudprovider.v1alpha1.Capabilities;
import cloudprovider.v1alpha1.ChangeCapability;
import cloudprovider.v1alpha1.ClusterCapability;
import cloudprovider.v1alpha1.GetProviderInfoRequest;
import cloudprovider.v1alpha1.GetProviderInfoResponse;
import cloudprovider.v1alpha1.InitializeRequest;
import cloudprovider.v1alpha1.InitializeResponse;
import cloudprovider.v1alpha1.Initialized;
import cloudprovider.v1alpha1.InstanceCapability;
import cloudprovider.v1alpha1.InstanceChange;
import cloudprovider.v1alpha1.LoadBalancerCapability;
import cloudprovider.v1alpha1.LoadBalancerChange;
import cloudprovider.v1alpha1.NodeProjection;
import cloudprovider.v1alpha1.ProbeRequest;
import cloudprovider.v1alpha1.ProbeResponse;
import cloudprovider.v1alpha1.ProbeState;
import cloudprovider.v1alpha1.ProviderServiceGrpc.ProviderServiceImplBase;
import cloudprovider.v1alpha1.Resync;
import cloudprovider.v1alpha1.RouteCapability;
import cloudprovider.v1alpha1.RoutesChange;
import cloudprovider.v1alpha1.ServiceFeature;
import cloudprovider.v1alpha1.TargetScope;
import cloudprovider.v1alpha1.VolumeCapability;
import cloudprovider.v1alpha1.WatchChangesRequest;
import cloudprovider.v1alpha1.WatchChangesResponse;
import cloudprovider.v1alpha1.ZoneCapability;
import com.fasterxml.jackson.databind.JsonNode;
import com.google.protobuf.Timestamp;
import io.grpc.Context;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import provider.Cloud.State;
import provider.Provider.Owner;
import provider.Provider.Settings;

/** ProviderService. */
final class ProviderRpcs extends ProviderServiceImplBase {
  private static final String VERSION = "1.0.0";
  /** The period at which the cloud is read while a caller watches. A cloud with a feed of events does not need it. */
  private static final long EVERY_MS = 250;
  private static final int KEPT_HINTS = 1024;

  private final Provider provider;
  /** The last hints, numbered, for a controller that reconnects: what others changed in the cloud. */
  private final Deque<WatchChangesResponse> hints = new ArrayDeque<>();
  /** The number of the last hint. */
  private long last;

  ProviderRpcs(Provider provider) {
    this.provider = provider;
    provider.cloud.onForeignChange = this::note;
  }

  @Override
  public void getProviderInfo(GetProviderInfoRequest request, StreamObserver<GetProviderInfoResponse> out) {
    Provider.LOG.info("a controller called GetProviderInfo: version " + request.getControllerVersion() + ", minor " + request.getContractMinor());
    Settings settings = provider.settings;
    List<ServiceFeature> features = Stream.of(ServiceFeature.values())
        .filter(feature -> feature != ServiceFeature.UNRECOGNIZED && feature != ServiceFeature.SERVICE_FEATURE_UNSPECIFIED).toList();
    out.onNext(GetProviderInfoResponse.newBuilder()
        .setProviderName(settings.name())
        .setProviderVersion(VERSION)
        .setBootId(provider.bootId)
        .addProviderIdPrefixes(settings.prefix())
        .setMaxRequestBytes(Main.MAX_MESSAGE_BYTES)
        // A missing block means that the provider does not serve that service (CORE-5): leave out the services that your cloud lacks.
        .setCapabilities(Capabilities.newBuilder()
            .setInstances(InstanceCapability.newBuilder().setMaxBatch(Provider.MAX_BATCH).setListing(true).setPowerState(true).setMaxInFlight(8))
            .setZones(ZoneCapability.getDefaultInstance())
            .setLoadBalancers(LoadBalancerCapability.newBuilder()
                .addAllClasses(settings.classes())
                .setDefaultClass(true)
                .setListing(true)
                .setInSync(true)
                .setTargetScope(TargetScope.TARGET_SCOPE_OWNED)
                .addAllFeatures(features)
                .setMaxInFlight(16))
            .setRoutes(RouteCapability.newBuilder().setMaxBatch(Provider.MAX_BATCH).setMaxInFlight(4))
            .setClusters(ClusterCapability.getDefaultInstance())
            .setVolumes(VolumeCapability.newBuilder().addAllSourceTypes(settings.sourceTypes()).setMaxInFlight(8))
            .setChanges(ChangeCapability.getDefaultInstance()))
        // Empty: the provider needs only name, UID, provider ID and addresses of each Node.
        .setNodeProjection(NodeProjection.getDefaultInstance())
        .build());
    out.onCompleted();
  }

  @Override
  public void initialize(InitializeRequest request, StreamObserver<InitializeResponse> out) {
    InitializeResponse.Builder response = InitializeResponse.newBuilder();
    try {
      Provider.checkOwnerId(request.getCluster());
      Provider.interruptible(() -> provider.cloud.read(0)); // Verifies the credentials (PROV-3).
      provider.owner = new Owner(request.getCluster().getName(), request.getCluster().getOwnerId(), List.copyOf(request.getPreviousOwnerIdsList()), request.getReadOnly());
      Provider.LOG.info("initialised for cluster " + request.getCluster().getName() + ", owner " + request.getCluster().getOwnerId());
      response.setInitialized(Initialized.newBuilder().setCloudScope(provider.settings.cloudScope()).setReadOnly(request.getReadOnly()));
    } catch (InterruptedException cancelled) {
      out.onError(Status.CANCELLED.asRuntimeException());
      return;
    } catch (Exception error) {
      response.setFailed(Provider.failureOf("Initialize", error));
    }
    out.onNext(response.build());
    out.onCompleted();
  }

  /** From memory (PROV-4): the result of the last operation of the cloud. */
  @Override
  public void probe(ProbeRequest request, StreamObserver<ProbeResponse> out) {
    String trouble = provider.cloud.trouble;
    ProbeResponse.Builder response = ProbeResponse.newBuilder().setBootId(provider.bootId).setState(ProbeState.PROBE_STATE_READY);
    if (trouble != null) response.setState(ProbeState.PROBE_STATE_DEGRADED).setMessage(Provider.shortened(trouble));
    Instant success = provider.cloud.lastSuccess;
    if (success != null) response.setLastCloudSuccess(Timestamp.newBuilder().setSeconds(success.getEpochSecond()).setNanos(success.getNano()));
    out.onNext(response.build());
    out.onCompleted();
  }

  /** Sends hints until the controller disconnects or the provider shuts down. At the shutdown the stream ends with status OK (PROV-6). */
  @Override
  public void watchChanges(WatchChangesRequest request, StreamObserver<WatchChangesResponse> out) {
    try {
      provider.admit(request.getCluster());
      long seen = numberOf(request.getResumeToken());
      // A stream that has nothing to catch up on begins with the point from which it reports changes (PROV-21).
      bookmark(seen).ifPresent(out::onNext);
      do {
        List<WatchChangesResponse> news = new ArrayList<>();
        seen = after(seen, news);
        news.forEach(out::onNext);
        try {
          provider.cloud.look();
        } catch (Fail fail) {
          // No hint can be sent without the cloud. The callers of other RPCs get the error.
        }
      } while (!provider.closing.await(EVERY_MS, TimeUnit.MILLISECONDS) && !Context.current().isCancelled());
    } catch (Exception error) {
      out.onNext(WatchChangesResponse.newBuilder().setFailed(Provider.failureOf("WatchChanges", error)).build());
    }
    out.onCompleted();
  }

  private synchronized void note(State before, State after) {
    for (JsonNode instance : differing(byId(before), byId(after))) {
      add(WatchChangesResponse.newBuilder().setInstance(InstanceChange.newBuilder().setProviderId(instance.path("provider_id").asText()).setNodeName(instance.path("name").asText())));
    }
    for (JsonNode lb : differing(before.loadBalancers(), after.loadBalancers())) {
      JsonNode mark = lb.path("owner");
      if (mark.isObject()) add(WatchChangesResponse.newBuilder().setLoadBalancer(LoadBalancerChange.newBuilder().setNamespace(mark.path("namespace").asText()).setName(mark.path("name").asText())));
    }
    if (!differing(before.routes(), after.routes()).isEmpty()) add(WatchChangesResponse.newBuilder().setRoutes(RoutesChange.getDefaultInstance()));
  }

  private static Map<String, JsonNode> byId(State state) {
    Map<String, JsonNode> byId = new HashMap<>();
    for (JsonNode instance : state.instances()) byId.put(instance.path("id").asText(), instance);
    return byId;
  }

  private static List<JsonNode> differing(Map<String, ? extends JsonNode> before, Map<String, ? extends JsonNode> after) {
    TreeSet<String> keys = new TreeSet<>(before.keySet());
    keys.addAll(after.keySet());
    List<JsonNode> differing = new ArrayList<>();
    for (String key : keys) {
      if (!Cloud.equal(before.get(key), after.get(key))) differing.add(after.containsKey(key) ? after.get(key) : before.get(key));
    }
    return differing;
  }

  private void add(WatchChangesResponse.Builder hint) {
    last++;
    hints.addLast(hint.setResumeToken(token()).build());
    if (hints.size() > KEPT_HINTS) hints.removeFirst();
  }

  private String token() {
    return provider.bootId + "/" + last;
  }

  private synchronized Optional<WatchChangesResponse> bookmark(long number) {
    return number == last ? Optional.of(WatchChangesResponse.newBuilder().setResumeToken(token()).build()) : Optional.empty();
  }

  /** Adds the hints after that number to news, and returns the last number. If the list no longer has all of them, or the number is invalid, adds one resync (PROV-5). */
  private synchronized long after(long number, List<WatchChangesResponse> news) {
    long oldest = last - hints.size() + 1;
    if (number + 1 < oldest || number > last) news.add(WatchChangesResponse.newBuilder().setResumeToken(token()).setResync(Resync.getDefaultInstance()).build());
    else hints.stream().skip(number + 1 - oldest).forEach(news::add);
    return last;
  }

  /** The number that a token names: the last number if the token is empty, an invalid number if the token is unknown. */
  private synchronized long numberOf(String token) {
    if (token.isEmpty()) return last;
    boolean known = token.startsWith(provider.bootId + "/") && token.substring(provider.bootId.length() + 1).matches("\\d{1,15}");
    return known ? Long.parseLong(token.substring(provider.bootId.length() + 1)) : Long.MAX_VALUE - 1;
  }
}
