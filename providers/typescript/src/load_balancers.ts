/** LoadBalancerService. Decisions are plain functions of the cloud's state, the Service and the caller; the RPCs apply them. */
import { BlockList, isIP } from 'node:net';

import { type Config, equal, Fail, type LoadBalancer, type State, type Write } from './cloud.js';
import type { DeleteLoadBalancerResponse } from './contract/cloudprovider/v1alpha1/DeleteLoadBalancerResponse.js';
import type { EnsureLoadBalancerResponse } from './contract/cloudprovider/v1alpha1/EnsureLoadBalancerResponse.js';
import type { Failure } from './contract/cloudprovider/v1alpha1/Failure.js';
import type { HandledElsewhere } from './contract/cloudprovider/v1alpha1/HandledElsewhere.js';
import type { ListedLoadBalancer } from './contract/cloudprovider/v1alpha1/ListedLoadBalancer.js';
import type { LoadBalancerServiceHandlers } from './contract/cloudprovider/v1alpha1/LoadBalancerService.js';
import type { LoadBalancerStatus } from './contract/cloudprovider/v1alpha1/LoadBalancerStatus.js';
import type { Ownership } from './contract/cloudprovider/v1alpha1/Ownership.js';
import type { Pending } from './contract/cloudprovider/v1alpha1/Pending.js';
import type { ServiceView__Output } from './contract/cloudprovider/v1alpha1/ServiceView.js';
import type { TargetSet__Output } from './contract/cloudprovider/v1alpha1/TargetSet.js';
import type { UpdateLoadBalancerResponse } from './contract/cloudprovider/v1alpha1/UpdateLoadBalancerResponse.js';
import { type Context, failureOf, isCidr, listing, type Owner, pending, type Provider, quoted, type Settings, unary } from './service.js';

/** The prefix of the annotations of a Service that this cloud supports. */
const ANNOTATIONS = 'mock.grpc-ccm.io/';
/** The part of a call's time after which it answers `pending` (CORE-9). */
const SHARE = 0.75;

/** The caller, and its Service. */
class Asker {
  constructor(
    readonly owner: Owner,
    readonly service: ServiceView__Output,
    readonly handle: string,
  ) {}

  ownership({ owner }: LoadBalancer): Ownership {
    if (!owner) return 'OWNERSHIP_UNMARKED';
    return owner.uid === this.service.uid && this.owner.owns(owner.owner_id) ? 'OWNERSHIP_OURS' : 'OWNERSHIP_FOREIGN';
  }

  mark() {
    const { namespace, name, uid } = this.service;
    return { owner_id: this.owner.ownerId, namespace, name, uid };
  }
}

function askerOf(owner: Owner, { service, handle }: { service: ServiceView__Output | null; handle?: string }): Asker {
  if (service && !service.name) throw new Fail('INVALID', `the service with the uid "${service.uid}" has no name`);
  if (!service?.uid) throw new Fail('INVALID', `service ${service ? nameOf(service) : ''} has no uid; the load balancer is identified by it`);
  return new Asker(owner, service, handle ?? '');
}

const nameOf = ({ namespace, name }: ServiceView__Output) => `${namespace}/${name}`;

const nativeName = (uid: string) => `a${uid.replaceAll('-', '')}`.slice(0, 32);

const says = (service: ServiceView__Output, annotation: string) => service.annotations[ANNOTATIONS + annotation] === 'true';

/** The load balancer that the Service asks for, without fields that the user cleared (LB-7). */
function configOf(service: ServiceView__Output): Config {
  let { sessionAffinity, externalTrafficPolicy } = service;
  if (sessionAffinity === 'ClientIP' && service.sessionAffinityTimeout) sessionAffinity += `:${service.sessionAffinityTimeout.seconds}`;
  if (externalTrafficPolicy === 'Local' && service.healthCheckNodePort !== undefined) externalTrafficPolicy += `:${service.healthCheckNodePort}`;
  const ports = service.ports.map((p) => `${p.name}:${p.protocol}:${p.port}:${p.nodePort ?? ''}:${p.appProtocol ?? ''}`);
  const ours = Object.entries(service.annotations).filter(([key]) => key.startsWith(ANNOTATIONS));
  const ranges = service.loadBalancerSourceRanges;
  return {
    session_affinity: sessionAffinity,
    external_traffic_policy: externalTrafficPolicy,
    ...(ports.length > 0 && { ports }),
    ...(ranges.length > 0 && { source_ranges: ranges }),
    ...(service.loadBalancerClass !== undefined && { class: service.loadBalancerClass }),
    ...(ours.length > 0 && { annotations: Object.fromEntries(ours) }),
  };
}

/** INVALID if a field has a value that no load balancer can have: the text names the field. */
function check(service: ServiceView__Output, settings: Settings): void {
  const oneOf = (field: string, value: string, known: string[]) => {
    if (!known.includes(value)) throw new Fail('INVALID', `spec.${field} ${quoted(value)} is none of ${known.join(', ')}`);
  };
  if (service.ports.length === 0) throw new Fail('INVALID', 'spec.ports is empty; a load balancer listens on at least one port');
  const listeners = new Set<string>();
  for (const { protocol, port, nodePort = 1 } of service.ports) {
    oneOf('ports[].protocol', protocol, ['TCP', 'UDP', 'SCTP']);
    for (const [field, number] of Object.entries({ port, nodePort })) {
      if (number < 1 || number > 65_535) throw new Fail('INVALID', `spec.ports[].${field} ${number} is not within 1 to 65535`);
    }
    const listener = `${protocol} ${port}`;
    if (listeners.has(listener)) throw new Fail('INVALID', `spec.ports has ${listener} twice; a load balancer listens once on it`);
    listeners.add(listener);
  }
  for (const range of service.loadBalancerSourceRanges) {
    if (!isCidr(range)) throw new Fail('INVALID', `spec.loadBalancerSourceRanges ${quoted(range)} is not a CIDR; write one such as 192.0.2.0/24`);
  }
  oneOf('sessionAffinity', service.sessionAffinity || 'None', ['None', 'ClientIP']);
  oneOf('externalTrafficPolicy', service.externalTrafficPolicy || 'Cluster', ['Cluster', 'Local']);
  for (const family of service.ipFamilies) oneOf('ipFamilies', family, ['IPv4', 'IPv6']);
  if (service.loadBalancerClass !== undefined) oneOf('loadBalancerClass', service.loadBalancerClass, settings.classes);
}

/** The Service's own load balancer: by the handle, which a user can edit (LB-4), else by the mark (LB-5). */
function findOwn(state: State, asker: Asker): LoadBalancer | undefined {
  const living = state.living();
  const isOurs = (lb: LoadBalancer) => asker.ownership(lb) === 'OWNERSHIP_OURS';
  const named = living.find((lb) => lb.handle === asker.handle);
  if (named && !isOurs(named)) throw notOurs(named, asker);
  return named ?? living.find(isOurs);
}

/** The Service's own load balancer, else an unmarked one with the Service's native name. Without the grant an unmarked one is a CONFLICT, never `done` (LB-26). With the grant the unmarked one comes first if the handle names it. */
function findToDelete(state: State, asker: Asker, adopt: boolean): LoadBalancer | undefined {
  const unmarked = state.living().filter((lb) => !lb.owner && lb.name === nativeName(asker.service.uid));
  const named = unmarked.find((lb) => lb.handle === asker.handle);
  if (adopt && named) return named;
  const own = findOwn(state, asker);
  if (!own && !adopt && unmarked[0]) throw notOurs(unmarked[0], asker);
  return own ?? unmarked[0];
}

/** The load balancer that Ensure has to use, adopt or refuse (LB-9). The search goes by the handle, then by the mark, then among the unmarked ones by the native name, and then by an address in the Service's status (LB-24). Another owner's with the native name comes last. */
function find(state: State, asker: Asker): LoadBalancer | undefined {
  const living = state.living();
  const points = asker.service.status?.ingress ?? [];
  const named = living.filter((lb) => lb.name === nativeName(asker.service.uid));
  const at = living.filter((lb) => points.some(({ ip, hostname }) => (ip && lb.addresses?.includes(ip)) || (hostname && lb.hostname === hostname)));
  const alike = [...named, ...at].find((lb) => !lb.owner) ?? named[0];
  return living.find((lb) => lb.handle === asker.handle) ?? living.find((lb) => asker.ownership(lb) === 'OWNERSHIP_OURS') ?? alike;
}

function notOurs({ handle, name, owner }: LoadBalancer, asker: Asker): Fail {
  const whose = owner
    ? `is marked for Service ${owner.namespace}/${owner.name} (uid ${owner.uid}) of owner ${owner.owner_id}`
    : 'carries no mark: grant its adoption, or remove it';
  return new Fail('CONFLICT', `load balancer ${handle} (${name}) is not that of Service ${nameOf(asker.service)}: it ${whose}`);
}

/** The existing load balancer, if any, and the desired one; both are equal if no write is needed (LB-8). */
function wanted(state: State, asker: Asker, targets: string[] | undefined, adopt: boolean, settings: Settings): { found?: LoadBalancer; lb: LoadBalancer } {
  check(asker.service, settings);
  const found = find(state, asker);
  const ownership = found && asker.ownership(found);
  if (found && (ownership === 'OWNERSHIP_FOREIGN' || (ownership === 'OWNERSHIP_UNMARKED' && !adopt))) throw notOurs(found, asker);
  const { remnant: _, ...lb }: LoadBalancer = { handle: '', name: nativeName(asker.service.uid), targets: [], ...found, config: configOf(asker.service) };
  if (targets) lb.targets = targets; // An absent set does not change the targets (LB-10).
  lb.addresses = addressesFor(state, asker.service, lb, settings);
  lb.owner = asker.mark(); // A mark with a previous owner ID counts as a difference (LB-25).
  return { found, lb };
}

/** One address of each family of the Service. With PreferDualStack and two families, a family without a pool gets none. An existing address stays, unless the Service asks for another. */
function addressesFor(state: State, service: ServiceView__Output, lb: LoadBalancer, settings: Settings): string[] {
  const pools = settings.pools.map((pool) => ({ pool, family: isIP(pool.split('/')[0]!) }));
  let families = service.ipFamilies.map((family) => (family === 'IPv6' ? 6 : 4));
  if (families.length === 0) families = [4];
  if (service.ipFamilyPolicy === 'PreferDualStack' && families.length > 1) families = families.filter((family) => pools.some((of) => of.family === family));
  const asked = service.loadBalancerIp ?? '';
  if (asked && !isIP(asked)) throw new Fail('INVALID', `spec.loadBalancerIP ${quoted(asked)} is not an IP address; write one such as 192.0.2.1`);
  const taken = new Set(state.living().flatMap((other) => (other.handle === lb.handle ? [] : (other.addresses ?? []))));
  return families.map((family) => {
    const ofFamily = pools.filter((of) => of.family === family).map((of) => of.pool);
    const kept = lb.addresses?.find((address) => isIP(address) === family);
    if (isIP(asked) === family) {
      if (asked !== kept && !ofFamily.some((pool) => members(pool)(asked))) {
        throw new Fail('PRECONDITION', `spec.loadBalancerIP ${asked} is in none of the cloud's address pools`, 'AddressNotInPool');
      }
      if (taken.has(asked)) throw new Fail('CONFLICT', `spec.loadBalancerIP ${asked} is another load balancer's`, 'AddressTaken');
      return asked;
    }
    const address = kept ?? ofFamily.map((pool) => firstFree(pool, taken)).find((free) => free !== undefined);
    if (address === undefined) {
      throw new Fail('PRECONDITION', `no IPv${family} address is left for load balancers; delete one or add a pool`, 'AddressPoolExhausted');
    }
    return address;
  });
}

/** Returns the function that says whether an address is in the pool. Throws if the pool is not a CIDR. */
export function members(pool: string): (address: string) => boolean {
  const [network = '', length = '', ...rest] = pool.split('/');
  const type = isIP(network) === 6 ? 'ipv6' : 'ipv4';
  const list = new BlockList();
  if (rest.length > 0 || !/^\d+$/.test(length) || !isIP(network) || Number(length) > (type === 'ipv6' ? 128 : 32)) {
    throw new Error(`--pool: ${quoted(pool)} is not a CIDR; write one such as 192.0.2.0/24`);
  }
  list.addSubnet(network, Number(length), type);
  return (address) => list.check(address, type);
}

/** The lowest free address. It tries at most the first 65,536 addresses from the one with which the pool is written, without that one and, for IPv4, without the last of these. */
function firstFree(pool: string, taken: Set<string>): string | undefined {
  const [network = '', length] = pool.split('/');
  const isMember = members(pool);
  const hosts = 2 ** Math.min((isIP(network) === 6 ? 128 : 32) - Number(length), 16);
  for (let n = 1; n < hosts - (isIP(network) === 6 ? 0 : 1); n += 1) {
    const parts = network.split('.');
    const low = Number(parts[2]) * 256 + Number(parts[3]) + n;
    const address = isIP(network) === 6 ? network.replace(/[\da-f]*$/i, (group) => (parseInt(group || '0', 16) + n).toString(16)) : [parts[0], parts[1], low >> 8, low & 255].join('.');
    if (!taken.has(address) && isIP(address) && isMember(address)) return address;
  }
  return undefined;
}

/** The targets' names. undefined if the set is absent, which differs from an empty set. */
function targetsOf(targets: TargetSet__Output | null): string[] | undefined {
  if (!targets) return undefined;
  if (!targets.inline) throw new Fail('INVALID', 'the targets are not inline; this minor of the contract has no other form');
  return [...new Set(targets.inline.nodes.map((node) => node.name))]; // Each once, in their order.
}

function statusOf(lb: LoadBalancer): LoadBalancerStatus {
  return { ingress: (lb.addresses ?? []).map((ip) => ({ ip, ipMode: 'IP_MODE_VIP' })) };
}

export function loadBalancerService(provider: Provider): LoadBalancerServiceHandlers {
  const { cloud, settings } = provider;

  /** A mutating RPC: one at a time for each Service. If the time runs out, it answers `pending` and writes nothing more. The next call continues from the current state. */
  function mutating<
    Request extends { service: ServiceView__Output | null; handle?: string },
    Response extends { failed?: Failure | null; pending?: Pending | null; handledElsewhere?: HandledElsewhere | null },
  >(rpc: string, decision: (asker: Asker, request: Request) => (state: State) => [Response, Write?]) {
    return unary<Request, Response>(provider, rpc, async (request, { owner, signal, deadline }: Context) => {
      const asker = askerOf(owner, request);
      if (says(asker.service, 'handled-elsewhere')) return { handledElsewhere: {} } as Response;
      const decide = decision(asker, request);
      // Aborts with the call, or earlier if the time runs out.
      const inTime = new AbortController();
      signal.addEventListener('abort', () => inTime.abort());
      const late = Number.isFinite(deadline) ? setTimeout(() => inTime.abort(), (deadline - Date.now()) * SHARE) : undefined;
      try {
        const what = `the load balancer of Service ${asker.service.uid}`;
        return await provider.holding(what, () => cloud.write(inTime.signal, decide));
      } catch (error) {
        if (error instanceof Fail || signal.aborted || !inTime.signal.aborted) throw error;
        return { pending: pending('the cloud has not answered yet', 5_000) } as Response;
      } finally {
        clearTimeout(late);
      }
    });
  }

  return {
    GetLoadBalancer: unary(provider, 'GetLoadBalancer', async (request, { owner, signal }) => {
      const [asker, targets] = [askerOf(owner, request), targetsOf(request.targets)];
      const state = await cloud.read(signal);
      const lb = find(state, asker);
      if (!lb) return { found: { presence: 'LOAD_BALANCER_PRESENCE_ABSENT' } };
      const ownership = asker.ownership(lb);
      const found = { ownership, loadBalancerName: lb.name };
      const handle = ownership === 'OWNERSHIP_OURS' ? { handle: lb.handle } : {};
      if (lb.remnant || lb.gone_at_ms !== undefined) return { ...handle, found: { ...found, presence: 'LOAD_BALANCER_PRESENCE_REMNANTS' } };
      return { ...handle, found: { ...found, presence: 'LOAD_BALANCER_PRESENCE_PRESENT', status: statusOf(lb), inSync: inSync(state, asker, targets) } };
    }),

    EnsureLoadBalancer: mutating('EnsureLoadBalancer', (asker, request: { targets: TargetSet__Output | null; adoptUnmarked: boolean; service: any }) => {
      const targets = targetsOf(request.targets);
      return (state): [EnsureLoadBalancerResponse, Write?] => {
        const { found, lb } = wanted(state, asker, targets, request.adoptUnmarked, settings);
        const waits = (message: string, until: number) => ({ handle: lb.handle, pending: pending(message, until - state.nowMs()) });
        if (lb.gone_at_ms !== undefined) return [waits('the former load balancer is being deleted', lb.gone_at_ms)];
        let lastNumber = 0;
        if (!found) {
          lastNumber = state.lastNumber + 1;
          Object.assign(lb, { handle: `lb-${lastNumber}`, ready_at_ms: state.nowMs() + settings.provisioningMs });
        }
        const line = `${found ? 'change' : 'create'} load balancer ${lb.handle} of ${nameOf(asker.service)}`;
        const write = equal(found, lb) ? undefined : { line, lastNumber, loadBalancers: { [lb.handle]: lb } };
        const readyAt = lb.ready_at_ms ?? 0;
        if (readyAt > state.nowMs()) return [waits('the load balancer is being made', readyAt), write];
        return [{ handle: lb.handle, ready: { status: statusOf(lb) } }, write];
      };
    }),

    UpdateLoadBalancer: mutating('UpdateLoadBalancer', (asker, request: { targets: TargetSet__Output | null; service: any }) => {
      const targets = targetsOf(request.targets);
      if (!targets) throw new Fail('INVALID', 'the request has no targets; an update is about nothing else');
      return (state): [UpdateLoadBalancerResponse, Write?] => {
        const lb = findOwn(state, asker);
        if (!lb || lb.remnant || lb.gone_at_ms !== undefined) throw new Fail('NOT_FOUND', `Service ${nameOf(asker.service)} has no load balancer`);
        const done = { handle: lb.handle, done: {} };
        if (equal(lb.targets, targets)) return [done];
        const line = `set the ${targets.length} targets of load balancer ${lb.handle}`;
        return [done, { line, loadBalancers: { [lb.handle]: { ...lb, targets, owner: asker.mark() } } }];
      };
    }),

    DeleteLoadBalancer: mutating('DeleteLoadBalancer', (asker, request: { adoptUnmarked: boolean; service: any }) => (state): [DeleteLoadBalancerResponse, Write?] => {
      const lb = findToDelete(state, asker, request.adoptUnmarked);
      if (!lb) return [{ done: {} }];
      if (says(asker.service, 'retain')) {
        const reason = `load balancer ${lb.handle} is kept: the annotation ${ANNOTATIONS}retain asks for it`;
        return [{ handle: lb.handle, retained: { reason } }];
      }
      const goneAt = lb.gone_at_ms ?? state.nowMs() + settings.provisioningMs;
      const left = settings.provisioningMs > 0 ? { ...lb, gone_at_ms: goneAt } : null;
      const write = lb.gone_at_ms === undefined ? { line: `delete load balancer ${lb.handle}`, loadBalancers: { [lb.handle]: left } } : undefined;
      const waits = goneAt - state.nowMs();
      if (waits > 0) return [{ handle: lb.handle, pending: pending('the load balancer is being deleted', waits) }, write];
      // Delete is not done while another load balancer of this Service remains. An unmarked one without the grant is CONFLICT (LB-26).
      try {
        const other = findToDelete(state.without(lb.handle), asker, request.adoptUnmarked);
        return [other ? { pending: pending('another load balancer of this Service is deleted next', 0) } : { done: {} }, write];
      } catch (error) {
        if (error instanceof Fail) return [{ failed: failureOf('DeleteLoadBalancer', error, '') }, write];
        throw error;
      }
    }),

    ListLoadBalancers: listing(provider, 'ListLoadBalancers', (items: ListedLoadBalancer[]) => items.map((loadBalancer) => ({ loadBalancer })), async (_, { owner, signal }) => {
      const marked = (await cloud.read(signal)).living().filter((lb) => lb.owner && owner.owns(lb.owner.owner_id));
      return marked.map((lb) => {
        const { namespace, name, uid } = lb.owner!;
        return { loadBalancerName: lb.name, handle: lb.handle, owners: [{ namespace, name, uid }] };
      });
    }),
  };

  /** Whether Ensure would write nothing and answer `ready` (LB-14): it makes the same decision without the write. */
  function inSync(state: State, asker: Asker, targets: string[] | undefined): boolean {
    try {
      const { found, lb } = wanted(state, asker, targets, false, settings);
      return equal(found, lb) && (lb.ready_at_ms ?? 0) <= state.nowMs() && !says(asker.service, 'handled-elsewhere');
    } catch (error) {
      if (error instanceof Fail) return false;
      throw error;
    }
  }
}
