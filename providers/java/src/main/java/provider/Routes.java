package provider;

import cloudprovider.v1alpha1.CreateRoutesRequest;
import cloudprovider.v1alpha1.CreateRoutesResponse;
import cloudprovider.v1alpha1.DeleteRoutesRequest;
import cloudprovider.v1alpha1.DeleteRoutesResponse;
import cloudprovider.v1alpha1.Done;
import cloudprovider.v1alpha1.ListRoutesRequest;
import cloudprovider.v1alpha1.ListRoutesResponse;
import cloudprovider.v1alpha1.Ownership;
import cloudprovider.v1alpha1.Route;
import cloudprovider.v1alpha1.RouteList;
import cloudprovider.v1alpha1.RouteResult;
import cloudprovider.v1alpha1.RouteServiceGrpc.RouteServiceImplBase;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.grpc.stub.StreamObserver;
import java.util.List;
import java.util.Objects;
import provider.Cloud.Decision;
import provider.Cloud.State;
import provider.Cloud.Write;
import provider.Provider.Owner;

/** RouteService. The routes of one call are written one after the other: a cancelled call stops before the next write. */
final class Routes extends RouteServiceImplBase {
  private final Provider provider;

  Routes(Provider provider) {
    this.provider = provider;
  }

  private static String text(JsonNode of, String field) {
    return of.hasNonNull(field) ? of.get(field).asText() : null;
  }

  private static boolean isBlackhole(JsonNode route, State state) {
    if (route.hasNonNull("provider_id")) return !state.byProviderId().containsKey(text(route, "provider_id"));
    if (route.hasNonNull("node_name")) return !state.byName().containsKey(text(route, "node_name"));
    return !route.hasNonNull("next_hop") && !route.hasNonNull("gateway");
  }

  private static boolean sameTarget(JsonNode one, JsonNode other) {
    if (one.hasNonNull("provider_id") && other.hasNonNull("provider_id")) return text(one, "provider_id").equals(text(other, "provider_id"));
    return Objects.equals(text(one, "node_name"), text(other, "node_name")) && Objects.equals(text(one, "next_hop"), text(other, "next_hop"));
  }

  private static Ownership ownership(JsonNode route, Owner owner) {
    if (!route.hasNonNull("owner_id")) return Ownership.OWNERSHIP_UNMARKED;
    return owner.owns(text(route, "owner_id")) ? Ownership.OWNERSHIP_OURS : Ownership.OWNERSHIP_FOREIGN;
  }

  private static ObjectNode to(State state, String cidr) {
    return state.routes().values().stream().filter(route -> leadsTo(route, cidr)).findFirst().orElse(null);
  }

  private static boolean leadsTo(JsonNode route, String cidr) {
    return Cidr.network(cidr).equals(Cidr.network(text(route, "destination_cidr")));
  }

  private interface Plan {
    Write of(State state, Route route, Owner owner) throws Fail;
  }

  /** The write that makes this route, marked, and named after the cluster, the hint and the destination (ROUTE-3); a replaced route keeps its name. A route that exists as requested needs no write. */
  private static Write create(State state, Route asked, Owner owner) throws Fail {
    String cidr = asked.getDestinationCidr();
    if (Cidr.parse(cidr) == null) throw new Fail("INVALID", "destination_cidr \"" + cidr + "\" is not a CIDR; send one such as 10.0.1.0/24");
    String name = owner.clusterName() + "-" + asked.getNameHint() + "-" + cidr.replaceAll("[/:.]", "-");
    ObjectNode wanted = Cloud.JSON.createObjectNode().put("name", name).put("destination_cidr", cidr);
    if (asked.hasNodeName()) wanted.put("node_name", asked.getNodeName());
    if (asked.hasProviderId()) wanted.put("provider_id", asked.getProviderId());
    if (asked.hasNextHop()) wanted.put("next_hop", asked.getNextHop());
    wanted.put("owner_id", owner.ownerId());
    if (isBlackhole(wanted, state)) {
      String target = asked.hasProviderId() ? asked.getProviderId() : asked.getNodeName();
      throw new Fail("PRECONDITION", "the target \"" + target + "\" of the route to " + cidr + " is no instance of this cloud", "InstanceMissing");
    }
    ObjectNode there = to(state, cidr);
    if (there == null) there = state.routes().get(name);
    if (there != null) {
      String its = text(there, "name");
      boolean sameDestination = leadsTo(there, cidr);
      if (sameDestination && sameTarget(there, wanted) && ownership(there, owner) != Ownership.OWNERSHIP_FOREIGN) {
        return null; // The route has the right target. If it is unmarked, it stays unmarked (ROUTE-9).
      }
      if (ownership(there, owner) != Ownership.OWNERSHIP_OURS) {
        throw new Fail("CONFLICT", "the route \"" + its + "\" to " + text(there, "destination_cidr") + " was not made for this cluster; remove it or choose another CIDR");
      }
      if (sameDestination && !isBlackhole(there, state)) {
        throw new Fail("CONFLICT", "the route \"" + its + "\" leads " + cidr + " to another instance; delete it first", "DestinationTaken");
      }
      wanted.put("name", its);
    }
    return Write.route("put route " + text(wanted, "name") + " to " + cidr, text(wanted, "name"), wanted);
  }

  /** The write that removes a listed route. */
  private static Write delete(State state, Route asked, Owner owner) throws Fail {
    String cidr = asked.getDestinationCidr();
    if (asked.getName().isEmpty()) throw new Fail("INVALID", "the route to " + cidr + " has no name; send it as ListRoutes gave it");
    ObjectNode there = state.routes().get(asked.getName());
    if (there == null || !leadsTo(there, cidr)) return null;
    String name = text(there, "name");
    if (ownership(there, owner) == Ownership.OWNERSHIP_FOREIGN) throw new Fail("CONFLICT", "the route \"" + name + "\" to " + cidr + " is marked for another owner");
    return Write.route("remove route " + name, name, null);
  }

  @Override
  public void listRoutes(ListRoutesRequest request, StreamObserver<ListRoutesResponse> out) {
    provider.<Route, ListRoutesResponse>listing("ListRoutes", request.getCluster(), out,
        failure -> ListRoutesResponse.newBuilder().setFailed(failure).build(),
        end -> ListRoutesResponse.newBuilder().setEnd(end).build(),
        part -> List.of(ListRoutesResponse.newBuilder().setRoutes(RouteList.newBuilder().addAllRoutes(part)).build()),
        owner -> {
          State state = provider.cloud.read(0);
          return state.routes().values().stream().map(route -> {
            Route.Builder shown = Route.newBuilder().setName(text(route, "name")).setDestinationCidr(text(route, "destination_cidr"));
            if (route.hasNonNull("node_name")) shown.setNodeName(text(route, "node_name"));
            if (route.hasNonNull("provider_id")) shown.setProviderId(text(route, "provider_id"));
            if (route.hasNonNull("next_hop")) shown.setNextHop(text(route, "next_hop"));
            return shown.setBlackhole(isBlackhole(route, state)).setOwnership(ownership(route, owner)).build();
          }).toList();
        });
  }

  @Override
  public void createRoutes(CreateRoutesRequest request, StreamObserver<CreateRoutesResponse> out) {
    provider.answer("CreateRoutes", request.getCluster(), out, failure -> CreateRoutesResponse.newBuilder().setFailed(failure).build(), owner ->
        CreateRoutesResponse.newBuilder().addAllResults(each("CreateRoutes", request.getRoutesList(), owner, Routes::create)).build());
  }

  @Override
  public void deleteRoutes(DeleteRoutesRequest request, StreamObserver<DeleteRoutesResponse> out) {
    provider.answer("DeleteRoutes", request.getCluster(), out, failure -> DeleteRoutesResponse.newBuilder().setFailed(failure).build(), owner ->
        DeleteRoutesResponse.newBuilder().addAllResults(each("DeleteRoutes", request.getRoutesList(), owner, Routes::delete)).build());
  }

  private List<RouteResult> each(String rpc, List<Route> routes, Owner owner, Plan plan) throws Fail, InterruptedException {
    Provider.withinBatch("route keys", routes.stream().map(Route::getRouteKey).toList());
    // Each result has the index of its route.
    RouteResult[] results = new RouteResult[routes.size()];
    for (int at = 0; at < results.length; at++) {
      Route route = routes.get(at);
      RouteResult.Builder result = RouteResult.newBuilder().setRouteKey(route.getRouteKey());
      try {
        provider.holding(owner, "the route to " + Cidr.network(route.getDestinationCidr()), same -> provider.cloud.write(state -> new Decision<>(null, plan.of(state, route, owner))));
        result.setDone(Done.getDefaultInstance());
      } catch (Fail | RuntimeException error) {
        result.setFailed(Provider.failureOf(rpc, error)); // One route's error does not fail the others (ROUTE-2).
      }
      results[at] = result.build();
    }
    return List.of(results);
  }
}
