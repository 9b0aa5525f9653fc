/** RouteService. */
import { isIP } from 'node:net';
import { Fail, type Route, type State, type Write } from './cloud.js';
import type { Ownership } from './contract/cloudprovider/v1alpha1/Ownership.js';
import type { Route as Shown, Route__Output } from './contract/cloudprovider/v1alpha1/Route.js';
import type { RouteResult } from './contract/cloudprovider/v1alpha1/RouteResult.js';
import type { RouteServiceHandlers } from './contract/cloudprovider/v1alpha1/RouteService.js';
import { members } from './load_balancers.js';
import { type Context, failureOf, isCidr, listing, type Owner, type Provider, quoted, unary, withinBatch } from './service.js';

/** The most routes of one call that the provider handles at once. */
const AT_ONCE = 8;

function isBlackhole(route: Route, state: State): boolean {
  if (route.provider_id !== undefined) return !state.byProviderId.has(route.provider_id);
  if (route.node_name !== undefined) return !state.byName.has(route.node_name);
  return route.next_hop === undefined && route.gateway === undefined;
}

function sameTarget(one: Route, other: Route): boolean {
  if (one.provider_id !== undefined && other.provider_id !== undefined) return one.provider_id === other.provider_id;
  return one.node_name === other.node_name && one.next_hop === other.next_hop;
}

function ownership(route: Route, owner: Owner): Ownership {
  if (route.owner_id === undefined) return 'OWNERSHIP_UNMARKED';
  return owner.owns(route.owner_id) ? 'OWNERSHIP_OURS' : 'OWNERSHIP_FOREIGN';
}

/** Returns the function that says whether another CIDR is the same network: `fd00::/64` is `fd00:0:0::/64` (ROUTE-8). */
function sameNetwork(cidr: string): (other: string) => boolean {
  if (!isCidr(cidr)) return (other) => other === cidr;
  const [address = '', length] = cidr.split('/');
  const isMember = members(cidr);
  return (other) => {
    const [first = '', its] = other.split('/');
    return isIP(first) === isIP(address) && Number(its) === Number(length) && isMember(first);
  };
}

function put(route: Route): Write {
  return { line: `put route ${route.name} to ${route.destination_cidr}`, routes: { [route.name]: route } };
}

/** The write that makes this route, marked, and named after the cluster, the hint and the destination (ROUTE-3); a replaced route keeps its name. A route that exists as requested needs no write. */
function planCreate(state: State, asked: Route__Output, owner: Owner): Write | undefined {
  const cidr = asked.destinationCidr;
  if (!isCidr(cidr)) throw new Fail('INVALID', `destination_cidr ${quoted(cidr)} is not a CIDR; send one such as 10.0.1.0/24`);
  const wanted: Route = {
    name: `${owner.clusterName}-${asked.nameHint}-${cidr.replace(/[/:.]/g, '-')}`,
    destination_cidr: cidr,
    node_name: asked.nodeName,
    provider_id: asked.providerId,
    next_hop: asked.nextHop,
    owner_id: owner.ownerId,
  };
  if (isBlackhole(wanted, state)) {
    const target = quoted(wanted.provider_id ?? wanted.node_name ?? '');
    throw new Fail('PRECONDITION', `the target ${target} of the route to ${cidr} is no instance of this cloud`, 'InstanceMissing');
  }
  const isDestination = sameNetwork(cidr);
  const there = [...state.routes.values()].find((route) => isDestination(route.destination_cidr)) ?? state.routes.get(wanted.name);
  if (!there) return put(wanted);
  const sameDestination = isDestination(there.destination_cidr);
  if (sameDestination && sameTarget(there, wanted) && ownership(there, owner) !== 'OWNERSHIP_FOREIGN') {
    return undefined; // The route has the right target. If it is unmarked, it stays unmarked (ROUTE-9).
  }
  if (ownership(there, owner) !== 'OWNERSHIP_OURS') {
    throw new Fail('CONFLICT', `the route ${quoted(there.name)} to ${there.destination_cidr} was not made for this cluster; remove it or choose another CIDR`);
  }
  if (sameDestination && !isBlackhole(there, state)) {
    throw new Fail('CONFLICT', `the route ${quoted(there.name)} leads ${cidr} to another instance; delete it first`, 'DestinationTaken');
  }
  return put({ ...wanted, name: there.name });
}

/** The write that removes a listed route. */
function planDelete(state: State, asked: Route__Output, owner: Owner): Write | undefined {
  const cidr = asked.destinationCidr;
  if (!asked.name) throw new Fail('INVALID', `the route to ${cidr} has no name; send it as ListRoutes gave it`);
  const there = state.routes.get(asked.name);
  if (!there || !sameNetwork(cidr)(there.destination_cidr)) return undefined;
  if (ownership(there, owner) === 'OWNERSHIP_FOREIGN') {
    throw new Fail('CONFLICT', `the route ${quoted(there.name)} to ${cidr} is marked for another owner`);
  }
  return { line: `remove route ${there.name}`, routes: { [there.name]: null } };
}

export function routeService(provider: Provider): RouteServiceHandlers {
  /** The destinations of the calls in progress, each as its call wrote it. */
  const inWork = new Set<string>();

  /** Writes each route separately, a few at once. After the call is cancelled, no further write begins. */
  async function each(rpc: string, routes: Route__Output[], { owner, signal, callId }: Context, plan: typeof planCreate): Promise<{ results: RouteResult[] }> {
    withinBatch('route keys', routes.map((route) => route.routeKey));
    const results: RouteResult[] = [];
    const one = async (at: number, route: Route__Output) => {
      try {
        const cidr = [...inWork].find(sameNetwork(route.destinationCidr)) ?? route.destinationCidr;
        await provider.holding(`the route to ${cidr}`, async () => {
          inWork.add(cidr);
          try {
            await provider.cloud.write(signal, (state) => [undefined, plan(state, route, owner)]);
          } finally {
            inWork.delete(cidr);
          }
        });
        results[at] = { routeKey: route.routeKey, done: {} };
      } catch (error) {
        signal.throwIfAborted();
        results[at] = { routeKey: route.routeKey, failed: failureOf(rpc, error, callId) }; // One route's error does not fail the others (ROUTE-2).
      }
    };
    // Routes to one destination run one after the other: the second sees the result of the first (ROUTE-13).
    const byDestination = new Map<string, [number, Route__Output][]>();
    for (const [at, route] of routes.entries()) {
      const destination = [...byDestination.keys()].find(sameNetwork(route.destinationCidr)) ?? route.destinationCidr;
      const same = byDestination.get(destination) ?? [];
      byDestination.set(destination, [...same, [at, route]]);
    }
    const left = byDestination.values();
    const worker = async () => {
      for (const same of left) for (const [at, route] of same) await one(at, route);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    return { results };
  }

  return {
    ListRoutes: listing(provider, 'ListRoutes', (routes: Shown[]) => [{ routes: { routes } }], async (_, { owner, signal }) => {
      const state = await provider.cloud.read(signal);
      return [...state.routes.values()].map((route) => ({
        name: route.name,
        destinationCidr: route.destination_cidr,
        ...(route.node_name !== undefined && { nodeName: route.node_name }),
        ...(route.provider_id !== undefined && { providerId: route.provider_id }),
        ...(route.next_hop !== undefined && { nextHop: route.next_hop }),
        blackhole: isBlackhole(route, state),
        ownership: ownership(route, owner),
      }));
    }),
    CreateRoutes: unary(provider, 'CreateRoutes', (request, context) =>
      each('CreateRoutes', request.routes, context, planCreate),
    ),
    DeleteRoutes: unary(provider, 'DeleteRoutes', (request, context) =>
      each('DeleteRoutes', request.routes, context, planDelete),
    ),
  };
}
