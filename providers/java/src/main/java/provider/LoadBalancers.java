package provider;

import cloudprovider.v1alpha1.DeleteLoadBalancerRequest;
import cloudprovider.v1alpha1.DeleteLoadBalancerResponse;
import cloudprovider.v1alpha1.Done;
import cloudprovider.v1alpha1.EnsureLoadBalancerRequest;
import cloudprovider.v1alpha1.EnsureLoadBalancerResponse;
import cloudprovider.v1alpha1.GetLoadBalancerRequest;
import cloudprovider.v1alpha1.GetLoadBalancerResponse;
import cloudprovider.v1alpha1.HandledElsewhere;
import cloudprovider.v1alpha1.IpMode;
import cloudprovider.v1alpha1.ListLoadBalancersRequest;
import cloudprovider.v1alpha1.ListLoadBalancersResponse;
import cloudprovider.v1alpha1.ListedLoadBalancer;
import cloudprovider.v1alpha1.LoadBalancer;
import cloudprovider.v1alpha1.LoadBalancerIngress;
import cloudprovider.v1alpha1.LoadBalancerPresence;
import cloudprovider.v1alpha1.LoadBalancerReady;
import cloudprovider.v1alpha1.LoadBalancerServiceGrpc.LoadBalancerServiceImplBase;
import cloudprovider.v1alpha1.LoadBalancerStatus;
import cloudprovider.v1alpha1.NodeView;
import cloudprovider.v1alpha1.Ownership;
import cloudprovider.v1alpha1.Pending;
import cloudprovider.v1alpha1.Retained;
import cloudprovider.v1alpha1.ServicePort;
import cloudprovider.v1alpha1.ServiceRef;
import cloudprovider.v1alpha1.ServiceView;
import cloudprovider.v1alpha1.TargetSet;
import cloudprovider.v1alpha1.UpdateLoadBalancerRequest;
import cloudprovider.v1alpha1.UpdateLoadBalancerResponse;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.grpc.Context;
import io.grpc.Deadline;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Predicate;
import provider.Cloud.Decision;
import provider.Cloud.State;
import provider.Cloud.Write;
import provider.Provider.Owner;
import provider.Provider.Settings;

/** LoadBalancerService. Decisions are plain functions of the cloud's state, the Service and the caller; the RPCs apply them. */
final class LoadBalancers extends LoadBalancerServiceImplBase {
  /** The prefix of the annotations of a Service that this cloud supports. */
  private static final String ANNOTATIONS = "mock.grpc-ccm.io/";
  /** The part of a call's time after which it answers pending (CORE-9). */
  private static final double SHARE = 0.75;

  private final Provider provider;

  LoadBalancers(Provider provider) {
    this.provider = provider;
  }

  /** The caller, and its Service. */
  private record Asker(Owner owner, ServiceView service, String handle) {
    static Asker of(Owner owner, ServiceView service, String handle) throws Fail {
      if (service.getName().isEmpty()) throw new Fail("INVALID", "the service with the uid \"" + service.getUid() + "\" has no name");
      if (service.getUid().isEmpty()) throw new Fail("INVALID", "service " + nameOf(service) + " has no uid; the load balancer is identified by it");
      return new Asker(owner, service, handle);
    }

    Ownership ownership(JsonNode lb) {
      JsonNode mark = lb.path("owner");
      if (!mark.isObject()) return Ownership.OWNERSHIP_UNMARKED;
      boolean ours = mark.path("uid").asText().equals(service.getUid()) && owner.owns(mark.path("owner_id").asText());
      return ours ? Ownership.OWNERSHIP_OURS : Ownership.OWNERSHIP_FOREIGN;
    }

    boolean owns(JsonNode lb) {
      return ownership(lb) == Ownership.OWNERSHIP_OURS;
    }

    ObjectNode mark() {
      return Cloud.JSON.createObjectNode().put("owner_id", owner.ownerId()).put("namespace", service.getNamespace()).put("name", service.getName()).put("uid", service.getUid());
    }

    Fail notOurs(JsonNode lb) {
      JsonNode mark = lb.path("owner");
      String whose = !mark.isObject()
          ? "carries no mark: grant its adoption, or remove it"
          : "is marked for Service " + mark.path("namespace").asText() + "/" + mark.path("name").asText() + " (uid " + mark.path("uid").asText() + ") of owner " + mark.path("owner_id").asText();
      return new Fail("CONFLICT", "load balancer " + handleOf(lb) + " (" + lb.path("name").asText() + ") is not that of Service " + nameOf(service) + ": it " + whose);
    }
  }

  private static String nameOf(ServiceView service) {
    return service.getNamespace() + "/" + service.getName();
  }

  private static String handleOf(JsonNode lb) {
    return lb.path("handle").asText();
  }

  private static String nativeName(String uid) {
    String name = "a" + uid.replace("-", "");
    return name.substring(0, Math.min(name.length(), 32));
  }

  private static boolean says(ServiceView service, String annotation) {
    return "true".equals(service.getAnnotationsMap().get(ANNOTATIONS + annotation));
  }

  /** The load balancer that the Service asks for, without fields that the user cleared (LB-7). */
  private static ObjectNode configOf(ServiceView service) {
    String affinity = service.getSessionAffinity();
    if (affinity.equals("ClientIP") && service.hasSessionAffinityTimeout()) affinity += ":" + service.getSessionAffinityTimeout().getSeconds();
    String policy = service.getExternalTrafficPolicy();
    if (policy.equals("Local") && service.hasHealthCheckNodePort()) policy += ":" + service.getHealthCheckNodePort();
    ObjectNode config = Cloud.JSON.createObjectNode().put("session_affinity", affinity).put("external_traffic_policy", policy);
    for (ServicePort port : service.getPortsList()) {
      String nodePort = port.hasNodePort() ? "" + port.getNodePort() : "";
      config.withArray("ports").add(port.getName() + ":" + port.getProtocol() + ":" + port.getPort() + ":" + nodePort + ":" + port.getAppProtocol());
    }
    service.getLoadBalancerSourceRangesList().forEach(range -> config.withArray("source_ranges").add(range));
    if (service.hasLoadBalancerClass()) config.put("class", service.getLoadBalancerClass());
    new TreeMap<>(service.getAnnotationsMap()).forEach((key, value) -> {
      if (key.startsWith(ANNOTATIONS)) config.withObjectProperty("annotations").put(key, value);
    });
    return config;
  }

  private static void oneOf(String field, String value, List<String> known) throws Fail {
    if (!known.contains(value)) throw new Fail("INVALID", "spec." + field + " \"" + value + "\" is none of " + String.join(", ", known));
  }

  /** INVALID if a field has a value that no load balancer can have: the text names the field. */
  private static void check(ServiceView service, Settings settings) throws Fail {
    if (service.getPortsCount() == 0) throw new Fail("INVALID", "spec.ports is empty; a load balancer listens on at least one port");
    Set<String> listeners = new HashSet<>();
    for (ServicePort port : service.getPortsList()) {
      oneOf("ports[].protocol", port.getProtocol(), List.of("TCP", "UDP", "SCTP"));
      if (port.getPort() < 1 || port.getPort() > 65_535) throw new Fail("INVALID", "spec.ports[].port " + port.getPort() + " is not within 1 to 65535");
      if (port.hasNodePort() && (port.getNodePort() < 1 || port.getNodePort() > 65_535)) {
        throw new Fail("INVALID", "spec.ports[].nodePort " + port.getNodePort() + " is not within 1 to 65535");
      }
      String listener = port.getProtocol() + " " + port.getPort();
      if (!listeners.add(listener)) throw new Fail("INVALID", "spec.ports has " + listener + " twice; a load balancer listens once on it");
    }
    for (String range : service.getLoadBalancerSourceRangesList()) {
      if (Cidr.parse(range) == null) throw new Fail("INVALID", "spec.loadBalancerSourceRanges \"" + range + "\" is not a CIDR; write one such as 192.0.2.0/24");
    }
    oneOf("sessionAffinity", service.getSessionAffinity().isEmpty() ? "None" : service.getSessionAffinity(), List.of("None", "ClientIP"));
    oneOf("externalTrafficPolicy", service.getExternalTrafficPolicy().isEmpty() ? "Cluster" : service.getExternalTrafficPolicy(), List.of("Cluster", "Local"));
    for (String family : service.getIpFamiliesList()) oneOf("ipFamilies", family, List.of("IPv4", "IPv6"));
    if (service.hasLoadBalancerClass()) oneOf("loadBalancerClass", service.getLoadBalancerClass(), settings.classes());
  }

  /** The Service's own load balancer: by the handle, which a user can edit (LB-4), else by the mark (LB-5); or null. */
  private static ObjectNode findOwn(State state, Asker asker) throws Fail {
    List<ObjectNode> living = state.living();
    ObjectNode named = first(living, lb -> handleOf(lb).equals(asker.handle));
    if (named != null && !asker.owns(named)) throw asker.notOurs(named);
    return named != null ? named : first(living, asker::owns);
  }

  /** The Service's own load balancer, else an unmarked one with the Service's native name. Without the grant an unmarked one is a CONFLICT, never done (LB-26). With the grant the unmarked one comes first if the handle names it. */
  private static ObjectNode findToDelete(State state, Asker asker, boolean adopt) throws Fail {
    String name = nativeName(asker.service.getUid());
    List<ObjectNode> unmarked = state.living().stream().filter(lb -> !lb.path("owner").isObject() && lb.path("name").asText().equals(name)).toList();
    ObjectNode named = first(unmarked, lb -> handleOf(lb).equals(asker.handle));
    if (adopt && named != null) return named;
    ObjectNode own = findOwn(state, asker);
    if (own == null && !adopt && !unmarked.isEmpty()) throw asker.notOurs(unmarked.get(0));
    return own != null ? own : first(unmarked, lb -> true);
  }

  /** The load balancer that Ensure has to use, adopt or refuse (LB-9). The search goes by the handle, then by the mark, then among the unmarked ones by the native name, and then by an address in the Service's status (LB-24). Another owner's with the native name comes last. */
  private static ObjectNode find(State state, Asker asker) {
    List<ObjectNode> living = state.living();
    Set<String> reachedAt = new HashSet<>();
    for (LoadBalancerIngress point : asker.service.getStatus().getIngressList()) {
      if (point.hasIp()) reachedAt.add(point.getIp());
      if (point.hasHostname()) reachedAt.add(point.getHostname());
    }
    Predicate<ObjectNode> unmarked = lb -> !lb.path("owner").isObject();
    Predicate<ObjectNode> named = lb -> lb.path("name").asText().equals(nativeName(asker.service.getUid()));
    Predicate<ObjectNode> at = lb -> strings(lb.path("addresses")).stream().anyMatch(reachedAt::contains) || reachedAt.contains(lb.path("hostname").asText());
    for (Predicate<ObjectNode> step : List.<Predicate<ObjectNode>>of(lb -> handleOf(lb).equals(asker.handle), asker::owns, unmarked.and(named), unmarked.and(at), named)) {
      ObjectNode found = first(living, step);
      if (found != null) return found;
    }
    return null;
  }

  private static ObjectNode first(List<ObjectNode> all, Predicate<ObjectNode> is) {
    return all.stream().filter(is).findFirst().orElse(null);
  }

  private static List<String> strings(JsonNode array) {
    List<String> strings = new ArrayList<>();
    array.forEach(text -> strings.add(text.asText()));
    return strings;
  }

  private static ArrayNode array(List<String> strings) {
    ArrayNode array = Cloud.JSON.createArrayNode();
    strings.forEach(array::add);
    return array;
  }

  /** The existing load balancer, or null, and the desired one; both are equal if no write is needed (LB-8). */
  private record Wanted(ObjectNode found, ObjectNode lb) {
    boolean isThere() {
      return Cloud.equal(found, lb);
    }
  }

  private static Wanted wanted(State state, Asker asker, List<String> targets, boolean adopt, Settings settings) throws Fail {
    check(asker.service, settings);
    ObjectNode found = find(state, asker);
    if (found != null && !asker.owns(found) && !(adopt && asker.ownership(found) == Ownership.OWNERSHIP_UNMARKED)) throw asker.notOurs(found);
    ObjectNode lb = found != null ? found.deepCopy() : Cloud.JSON.createObjectNode().put("handle", "").put("name", nativeName(asker.service.getUid()));
    lb.set("config", configOf(asker.service));
    if (targets != null) lb.set("targets", array(targets)); // An absent set does not change the targets (LB-10).
    else if (!lb.has("targets")) lb.putArray("targets");
    lb.remove("remnant");
    lb.set("addresses", array(addressesFor(state, asker.service, lb, settings)));
    lb.set("owner", asker.mark()); // A mark with a previous owner ID counts as a difference (LB-25).
    return new Wanted(found, lb);
  }

  /** One address of each family of the Service. With PreferDualStack and two families, a family without a pool gets none. An existing address stays, unless the Service asks for another. */
  private static List<String> addressesFor(State state, ServiceView service, JsonNode lb, Settings settings) throws Fail {
    List<Cidr> pools = settings.pools().stream().map(Cidr::parse).filter(Objects::nonNull).toList();
    List<Boolean> families = service.getIpFamiliesCount() == 0 ? List.of(false) : service.getIpFamiliesList().stream().map("IPv6"::equals).toList();
    if (service.getIpFamilyPolicy().equals("PreferDualStack") && families.size() > 1) {
      families = families.stream().filter(ipv6 -> pools.stream().anyMatch(pool -> pool.isIpv6() == ipv6)).toList();
    }
    byte[] asked = null;
    if (!service.getLoadBalancerIp().isEmpty() && (asked = Cidr.address(service.getLoadBalancerIp())) == null) {
      throw new Fail("INVALID", "spec.loadBalancerIP \"" + service.getLoadBalancerIp() + "\" is not an IP address; write one such as 192.0.2.1");
    }
    Set<String> taken = new HashSet<>();
    for (ObjectNode other : state.living()) if (!handleOf(other).equals(handleOf(lb))) taken.addAll(strings(other.path("addresses")));
    List<String> addresses = new ArrayList<>();
    for (boolean ipv6 : families) {
      List<Cidr> ofFamily = pools.stream().filter(pool -> pool.isIpv6() == ipv6).toList();
      String kept = strings(lb.path("addresses")).stream().filter(address -> address.contains(":") == ipv6).findFirst().orElse(null);
      if (asked != null && (asked.length == 16) == ipv6) {
        String wanted = Cidr.text(asked);
        byte[] address = asked;
        if (!wanted.equals(kept) && ofFamily.stream().noneMatch(pool -> pool.contains(address))) {
          throw new Fail("PRECONDITION", "spec.loadBalancerIP " + wanted + " is in none of the cloud's address pools", "AddressNotInPool");
        }
        if (taken.contains(wanted)) throw new Fail("CONFLICT", "spec.loadBalancerIP " + wanted + " is another load balancer's", "AddressTaken");
        addresses.add(wanted);
      } else if (kept != null) {
        addresses.add(kept);
      } else {
        addresses.add(firstFree(ofFamily, taken, ipv6));
      }
    }
    return addresses;
  }

  private static String firstFree(List<Cidr> pools, Set<String> taken, boolean ipv6) throws Fail {
    for (Cidr pool : pools) {
      for (long n = 0; ; n++) {
        String address = pool.nth(n);
        if (address == null) break;
        if (!taken.contains(address)) return address;
      }
    }
    throw new Fail("PRECONDITION", "no " + (ipv6 ? "IPv6" : "IPv4") + " address is left for load balancers; delete one or add a pool", "AddressPoolExhausted");
  }

  /** The targets' names, each once, in their order. Null if the set is absent, which differs from an empty set. */
  private static List<String> targetsOf(boolean present, TargetSet targets) throws Fail {
    if (!present) return null;
    if (!targets.hasInline()) throw new Fail("INVALID", "the targets are not inline; this minor of the contract has no other form");
    return targets.getInline().getNodesList().stream().map(NodeView::getName).distinct().toList();
  }

  private static LoadBalancerStatus statusOf(JsonNode lb) {
    LoadBalancerStatus.Builder status = LoadBalancerStatus.newBuilder();
    for (String address : strings(lb.path("addresses"))) status.addIngressBuilder().setIp(address).setIpMode(IpMode.IP_MODE_VIP);
    return status.build();
  }

  @Override
  public void getLoadBalancer(GetLoadBalancerRequest request, StreamObserver<GetLoadBalancerResponse> out) {
    provider.answer("GetLoadBalancer", request.getCluster(), out, failure -> GetLoadBalancerResponse.newBuilder().setFailed(failure).build(), owner -> {
      Asker asker = Asker.of(owner, request.getService(), request.getHandle());
      List<String> targets = targetsOf(request.hasTargets(), request.getTargets());
      State state = provider.cloud.read(0);
      ObjectNode lb = find(state, asker);
      GetLoadBalancerResponse.Builder response = GetLoadBalancerResponse.newBuilder();
      LoadBalancer.Builder found = response.getFoundBuilder();
      if (lb == null) {
        found.setPresence(LoadBalancerPresence.LOAD_BALANCER_PRESENCE_ABSENT);
        return response.build();
      }
      found.setOwnership(asker.ownership(lb)).setLoadBalancerName(lb.path("name").asText());
      if (asker.owns(lb)) response.setHandle(handleOf(lb));
      if (lb.path("remnant").asBoolean() || lb.has("gone_at_ms")) {
        found.setPresence(LoadBalancerPresence.LOAD_BALANCER_PRESENCE_REMNANTS);
      } else {
        found.setPresence(LoadBalancerPresence.LOAD_BALANCER_PRESENCE_PRESENT).setStatus(statusOf(lb)).setInSync(inSync(state, asker, targets));
      }
      return response.build();
    });
  }

  /** Whether Ensure would write nothing and answer ready (LB-14): it makes the same decision without the write. */
  private boolean inSync(State state, Asker asker, List<String> targets) {
    try {
      Wanted wanted = wanted(state, asker, targets, false, provider.settings);
      return wanted.isThere() && wanted.lb.path("ready_at_ms").asLong() <= state.nowMs() && !says(asker.service, "handled-elsewhere");
    } catch (Fail fail) {
      return false;
    }
  }

  private interface Decide<T> {
    Cloud.Decide<T> of(Asker asker) throws Fail;
  }

  /** Runs a mutating call: one at a time for each Service. If the time runs out, it answers pending and writes nothing more. The next call continues from the current state. */
  private <T> T mutate(Owner owner, ServiceView service, String handle, T handledElsewhere, Function<Pending, T> late, Decide<T> decide) throws Fail, InterruptedException {
    Asker asker = Asker.of(owner, service, handle);
    if (says(service, "handled-elsewhere")) return handledElsewhere;
    Cloud.Decide<T> decision = decide.of(asker);
    Context call = Context.current();
    Deadline deadline = call.getDeadline();
    Context.CancellableContext inTime = deadline == null
        ? call.withCancellation()
        : call.withDeadlineAfter((long) (deadline.timeRemaining(TimeUnit.MILLISECONDS) * SHARE), TimeUnit.MILLISECONDS, provider.clock);
    Context before = inTime.attach();
    try {
      return provider.holding(owner, "the load balancer of Service " + service.getUid(), same -> Provider.interruptible(() -> provider.cloud.write(decision)));
    } catch (InterruptedException interrupted) {
      if (call.isCancelled()) throw interrupted;
      return late.apply(Provider.pending("the cloud has not answered yet", 5_000));
    } finally {
      inTime.detach(before);
      inTime.cancel(null);
    }
  }

  @Override
  public void ensureLoadBalancer(EnsureLoadBalancerRequest request, StreamObserver<EnsureLoadBalancerResponse> out) {
    Function<Pending, EnsureLoadBalancerResponse> late = pending -> EnsureLoadBalancerResponse.newBuilder().setPending(pending).build();
    EnsureLoadBalancerResponse elsewhere = EnsureLoadBalancerResponse.newBuilder().setHandledElsewhere(HandledElsewhere.getDefaultInstance()).build();
    long takes = provider.settings.provisioningMs();
    provider.answer("EnsureLoadBalancer", request.getCluster(), out, failure -> EnsureLoadBalancerResponse.newBuilder().setFailed(failure).build(), owner ->
        mutate(owner, request.getService(), request.getHandle(), elsewhere, late, asker -> {
          List<String> targets = targetsOf(request.hasTargets(), request.getTargets());
          return state -> {
            Wanted wanted = wanted(state, asker, targets, request.getAdoptUnmarked(), provider.settings);
            ObjectNode lb = wanted.lb;
            EnsureLoadBalancerResponse.Builder response = EnsureLoadBalancerResponse.newBuilder();
            if (lb.has("gone_at_ms")) {
              Pending pending = Provider.pending("the former load balancer is being deleted", lb.get("gone_at_ms").asLong() - state.nowMs());
              return new Decision<>(response.setHandle(handleOf(lb)).setPending(pending).build(), null);
            }
            long number = state.lastNumber();
            if (wanted.found == null) lb.put("handle", "lb-" + ++number).put("ready_at_ms", state.nowMs() + takes);
            response.setHandle(handleOf(lb));
            String line = (wanted.found == null ? "create" : "change") + " load balancer " + handleOf(lb) + " of " + nameOf(asker.service);
            Write write = wanted.isThere() ? null : Write.loadBalancer(line, handleOf(lb), lb, number);
            long left = lb.path("ready_at_ms").asLong() - state.nowMs();
            if (left > 0) response.setPending(Provider.pending("the load balancer is being made", left));
            else response.setReady(LoadBalancerReady.newBuilder().setStatus(statusOf(lb)));
            return new Decision<>(response.build(), write);
          };
        }));
  }

  @Override
  public void updateLoadBalancer(UpdateLoadBalancerRequest request, StreamObserver<UpdateLoadBalancerResponse> out) {
    Function<Pending, UpdateLoadBalancerResponse> late = pending -> UpdateLoadBalancerResponse.newBuilder().setPending(pending).build();
    UpdateLoadBalancerResponse elsewhere = UpdateLoadBalancerResponse.newBuilder().setHandledElsewhere(HandledElsewhere.getDefaultInstance()).build();
    provider.answer("UpdateLoadBalancer", request.getCluster(), out, failure -> UpdateLoadBalancerResponse.newBuilder().setFailed(failure).build(), owner ->
        mutate(owner, request.getService(), request.getHandle(), elsewhere, late, asker -> {
          List<String> targets = targetsOf(request.hasTargets(), request.getTargets());
          if (targets == null) throw new Fail("INVALID", "the request has no targets; an update is about nothing else");
          return state -> {
            ObjectNode lb = findOwn(state, asker);
            if (lb == null || lb.path("remnant").asBoolean() || lb.has("gone_at_ms")) {
              throw new Fail("NOT_FOUND", "Service " + nameOf(asker.service) + " has no load balancer");
            }
            UpdateLoadBalancerResponse done = UpdateLoadBalancerResponse.newBuilder().setHandle(handleOf(lb)).setDone(Done.getDefaultInstance()).build();
            if (strings(lb.path("targets")).equals(targets)) return new Decision<>(done, null);
            ObjectNode changed = lb.deepCopy();
            changed.set("targets", array(targets));
            changed.set("owner", asker.mark());
            return new Decision<>(done, Write.loadBalancer("set the " + targets.size() + " targets of load balancer " + handleOf(lb), handleOf(lb), changed, 0));
          };
        }));
  }

  @Override
  public void deleteLoadBalancer(DeleteLoadBalancerRequest request, StreamObserver<DeleteLoadBalancerResponse> out) {
    Function<Pending, DeleteLoadBalancerResponse> late = pending -> DeleteLoadBalancerResponse.newBuilder().setPending(pending).build();
    DeleteLoadBalancerResponse elsewhere = DeleteLoadBalancerResponse.newBuilder().setHandledElsewhere(HandledElsewhere.getDefaultInstance()).build();
    DeleteLoadBalancerResponse done = DeleteLoadBalancerResponse.newBuilder().setDone(Done.getDefaultInstance()).build();
    long takes = provider.settings.provisioningMs();
    provider.answer("DeleteLoadBalancer", request.getCluster(), out, failure -> DeleteLoadBalancerResponse.newBuilder().setFailed(failure).build(), owner ->
        mutate(owner, request.getService(), request.getHandle(), elsewhere, late, asker -> state -> {
          ObjectNode lb = findToDelete(state, asker, request.getAdoptUnmarked());
          if (lb == null) return new Decision<>(done, null);
          String handle = handleOf(lb);
          DeleteLoadBalancerResponse.Builder response = DeleteLoadBalancerResponse.newBuilder().setHandle(handle);
          if (says(asker.service, "retain")) {
            String reason = "load balancer " + handle + " is kept: the annotation " + ANNOTATIONS + "retain asks for it";
            return new Decision<>(response.setRetained(Retained.newBuilder().setReason(reason)).build(), null);
          }
          long goneAt = lb.path("gone_at_ms").asLong(state.nowMs() + takes);
          ObjectNode left = takes > 0 ? lb.deepCopy().put("gone_at_ms", goneAt) : null;
          Write write = lb.has("gone_at_ms") ? null : Write.loadBalancer("delete load balancer " + handle, handle, left, 0);
          long leftMs = goneAt - state.nowMs();
          if (leftMs > 0) return new Decision<>(response.setPending(Provider.pending("the load balancer is being deleted", leftMs)).build(), write);
          // Delete is not done while another load balancer of this Service remains. An unmarked one without the grant is CONFLICT (LB-26).
          try {
            ObjectNode other = findToDelete(state.without(handle), asker, request.getAdoptUnmarked());
            return new Decision<>(other == null ? done : late.apply(Provider.pending("another load balancer of this Service is deleted next", 0)), write);
          } catch (Fail fail) {
            return new Decision<>(DeleteLoadBalancerResponse.newBuilder().setFailed(Provider.failureOf("DeleteLoadBalancer", fail)).build(), write);
          }
        }));
  }

  @Override
  public void listLoadBalancers(ListLoadBalancersRequest request, StreamObserver<ListLoadBalancersResponse> out) {
    provider.<ListedLoadBalancer, ListLoadBalancersResponse>listing("ListLoadBalancers", request.getCluster(), out,
        failure -> ListLoadBalancersResponse.newBuilder().setFailed(failure).build(),
        end -> ListLoadBalancersResponse.newBuilder().setEnd(end).build(),
        part -> part.stream().map(lb -> ListLoadBalancersResponse.newBuilder().setLoadBalancer(lb).build()).toList(),
        owner -> {
          List<ListedLoadBalancer> listed = new ArrayList<>();
          for (ObjectNode lb : provider.cloud.read(0).living()) {
            JsonNode mark = lb.path("owner");
            if (!mark.isObject() || !owner.owns(mark.path("owner_id").asText())) continue;
            ServiceRef service = ServiceRef.newBuilder().setNamespace(mark.path("namespace").asText()).setName(mark.path("name").asText()).setUid(mark.path("uid").asText()).build();
            listed.add(ListedLoadBalancer.newBuilder().setLoadBalancerName(lb.path("name").asText()).setHandle(handleOf(lb)).addOwners(service).build());
          }
          return listed;
        });
  }
}
