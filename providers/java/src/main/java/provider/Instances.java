package provider;

import static provider.Provider.failureOf;

import cloudprovider.v1alpha1.Instance;
import cloudprovider.v1alpha1.InstanceFacet;
import cloudprovider.v1alpha1.InstanceList;
import cloudprovider.v1alpha1.InstanceServiceGrpc.InstanceServiceImplBase;
import cloudprovider.v1alpha1.InstanceState;
import cloudprovider.v1alpha1.ListInstancesRequest;
import cloudprovider.v1alpha1.ListInstancesResponse;
import cloudprovider.v1alpha1.LookupInstanceResult;
import cloudprovider.v1alpha1.LookupInstancesRequest;
import cloudprovider.v1alpha1.LookupInstancesResponse;
import cloudprovider.v1alpha1.LookupZoneResult;
import cloudprovider.v1alpha1.LookupZonesRequest;
import cloudprovider.v1alpha1.LookupZonesResponse;
import cloudprovider.v1alpha1.NodeAddress;
import cloudprovider.v1alpha1.NodeAddressType;
import cloudprovider.v1alpha1.NodeView;
import cloudprovider.v1alpha1.Zone;
import cloudprovider.v1alpha1.ZoneServiceGrpc.ZoneServiceImplBase;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import provider.Cloud.State;

/** InstanceService and ZoneService. */
final class Instances extends InstanceServiceImplBase {
  private static final Map<String, NodeAddressType> ADDRESS_TYPES = Map.of(
      "Hostname", NodeAddressType.NODE_ADDRESS_TYPE_HOSTNAME,
      "InternalIP", NodeAddressType.NODE_ADDRESS_TYPE_INTERNAL_IP,
      "ExternalIP", NodeAddressType.NODE_ADDRESS_TYPE_EXTERNAL_IP,
      "InternalDNS", NodeAddressType.NODE_ADDRESS_TYPE_INTERNAL_DNS,
      "ExternalDNS", NodeAddressType.NODE_ADDRESS_TYPE_EXTERNAL_DNS);
  private static final Map<String, InstanceState> STATES = Map.of(
      "running", InstanceState.INSTANCE_STATE_RUNNING,
      "stopped", InstanceState.INSTANCE_STATE_STOPPED,
      "unknown", InstanceState.INSTANCE_STATE_PRESENT,
      "pending", InstanceState.INSTANCE_STATE_PENDING,
      "unmanaged", InstanceState.INSTANCE_STATE_UNMANAGED);

  /** The form of a label's value that is not empty. */
  private static final Pattern LABEL_VALUE = Pattern.compile("[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?");
  /** One label of a DNS name (RFC 1123). */
  private static final Pattern DNS_LABEL = Pattern.compile("[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?");

  private final Provider provider;

  Instances(Provider provider) {
    this.provider = provider;
  }

  @Override
  public void lookupInstances(LookupInstancesRequest request, StreamObserver<LookupInstancesResponse> out) {
    provider.answer("LookupInstances", request.getCluster(), out, failure -> LookupInstancesResponse.newBuilder().setFailed(failure).build(), owner -> {
      Provider.withinBatch("nodes", request.getNodesList().stream().map(NodeView::getName).toList());
      // At most one operation of the cloud for all Nodes. The state is complete: an instance that is not in it does not exist (INST-1).
      State state = provider.cloud.read(request.hasMaxAge() ? Math.max(0, request.getMaxAge().getSeconds()) * 1000 + request.getMaxAge().getNanos() / 1_000_000 : 0);
      boolean metadata = request.getFacetsList().contains(InstanceFacet.INSTANCE_FACET_METADATA);
      LookupInstancesResponse.Builder response = LookupInstancesResponse.newBuilder();
      for (NodeView node : request.getNodesList()) {
        LookupInstanceResult.Builder result = response.addResultsBuilder().setNodeName(node.getName()).setNodeUid(node.getUid());
        try {
          result.setFound(found(provider, state, node, metadata));
        } catch (Fail | RuntimeException error) {
          result.setFailed(failureOf("LookupInstances", error)); // One Node's error does not fail the others (INST-4).
        }
      }
      return response.build();
    });
  }

  @Override
  public void listInstances(ListInstancesRequest request, StreamObserver<ListInstancesResponse> out) {
    provider.<Instance, ListInstancesResponse>listing("ListInstances", request.getCluster(), out,
        failure -> ListInstancesResponse.newBuilder().setFailed(failure).build(),
        end -> ListInstancesResponse.newBuilder().setEnd(end).build(),
        part -> List.of(ListInstancesResponse.newBuilder().setInstances(InstanceList.newBuilder().addAllInstances(part)).build()),
        owner -> {
          boolean metadata = request.getFacetsList().contains(InstanceFacet.INSTANCE_FACET_METADATA);
          return provider.cloud.read(0).instances().stream().map(instance -> shown(instance, metadata)).filter(Instance::hasProviderId).toList();
        });
  }

  /** The zones of Nodes, without unknown values. */
  static final class Zones extends ZoneServiceImplBase {
    private final Provider provider;

    Zones(Provider provider) {
      this.provider = provider;
    }

    @Override
    public void lookupZones(LookupZonesRequest request, StreamObserver<LookupZonesResponse> out) {
      provider.answer("LookupZones", request.getCluster(), out, failure -> LookupZonesResponse.newBuilder().setFailed(failure).build(), owner -> {
        Provider.withinBatch("nodes", request.getNodesList().stream().map(NodeView::getName).toList());
        State state = provider.cloud.read(0);
        LookupZonesResponse.Builder response = LookupZonesResponse.newBuilder();
        for (NodeView node : request.getNodesList()) {
          LookupZoneResult.Builder result = response.addResultsBuilder().setNodeName(node.getName()).setNodeUid(node.getUid());
          try {
            Instance found = found(provider, state, node, true);
            Zone.Builder zone = Zone.newBuilder();
            if (found.hasZone()) zone.setZone(found.getZone());
            if (found.hasRegion()) zone.setRegion(found.getRegion());
            result.setZone(zone);
          } catch (Fail | RuntimeException error) {
            result.setFailed(failureOf("LookupZones", error));
          }
        }
        return response.build();
      });
    }
  }

  /** The cloud's answer about a Node: by its provider ID if it has one, else by its name (INST-3). */
  private static Instance found(Provider provider, State state, NodeView node, boolean metadata) throws Fail {
    String prefix = provider.settings.prefix();
    JsonNode instance = state.byName().get(node.getName());
    if (node.hasProviderId()) {
      String id = node.getProviderId();
      if (!id.startsWith(prefix)) return Instance.newBuilder().setState(InstanceState.INSTANCE_STATE_UNMANAGED).build();
      int bytes = Provider.bytes(id);
      if (id.equals(prefix) || bytes > Provider.ID_BYTES) throw new Fail("INVALID", "the provider ID " + id + " has " + bytes + " bytes and is not one of this cloud's");
      instance = state.byProviderId().get(id);
    }
    return instance == null ? Instance.newBuilder().setState(InstanceState.INSTANCE_STATE_ABSENT).build() : shown(instance, metadata);
  }

  private static Instance shown(JsonNode instance, boolean metadata) {
    InstanceState state = STATES.get(instance.path("power").asText("running"));
    Instance.Builder shown = Instance.newBuilder().setState(state);
    if (state == InstanceState.INSTANCE_STATE_PENDING) return shown.setRetryAfter(Provider.duration(1_000)).build();
    if (state == InstanceState.INSTANCE_STATE_UNMANAGED) return shown.build();
    shown.setProviderId(instance.get("provider_id").asText());
    if (metadata) {
      formed(instance, "type", shown::setInstanceType);
      formed(instance, "zone", shown::setZone);
      formed(instance, "region", shown::setRegion);
      for (NodeAddress address : addressesTo(instance.path("addresses"))) {
        if (isExpressible(address)) shown.addAddresses(address);
        else Provider.LOG.warning("instance " + shown.getProviderId() + ": its address \"" + address.getAddress() + "\" is no DNS name and is left out");
      }
      instance.path("labels").fields().forEachRemaining(label -> shown.putLabels(label.getKey(), label.getValue().asText()));
    }
    return shown.build();
  }

  /** Sets a fact of an instance. Leaves out a value that is no label value, because the contract cannot express it (INST-15). */
  private static void formed(JsonNode instance, String name, Consumer<String> set) {
    if (!instance.hasNonNull(name)) return;
    String value = instance.get(name).asText();
    if (LABEL_VALUE.matcher(value).matches()) set.accept(value);
    else Provider.LOG.warning("instance " + instance.path("provider_id").asText() + ": its " + name + " \"" + value + "\" is no label value and is left out");
  }

  /** Whether the contract can express an address: a name has to be a DNS name (INST-8, INST-15). */
  private static boolean isExpressible(NodeAddress address) {
    return switch (address.getType()) {
      case NODE_ADDRESS_TYPE_INTERNAL_IP, NODE_ADDRESS_TYPE_EXTERNAL_IP -> true;
      default -> isDnsName(address.getAddress());
    };
  }

  static boolean isDnsName(String text) {
    return text.length() <= Provider.NAME_BYTES && Stream.of(text.split("\\.", -1)).allMatch(label -> DNS_LABEL.matcher(label).matches());
  }

  static List<NodeAddress> addressesTo(JsonNode addresses) {
    List<NodeAddress> shown = new ArrayList<>();
    for (JsonNode entry : addresses) {
      entry.fields().forEachRemaining(of -> shown.add(NodeAddress.newBuilder().setType(ADDRESS_TYPES.get(of.getKey())).setAddress(of.getValue().asText()).build()));
    }
    return shown;
  }

  static ArrayNode addressesFrom(List<NodeAddress> addresses) {
    ArrayNode stored = Cloud.JSON.createArrayNode();
    for (NodeAddress address : addresses) {
      ADDRESS_TYPES.forEach((kind, type) -> {
        if (type == address.getType()) stored.addObject().put(kind, address.getAddress());
      });
    }
    return stored;
  }
}
