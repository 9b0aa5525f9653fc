/** InstanceService and ZoneService. */
import type { Addresses, Instance as Machine, State } from './cloud.js';
import { Fail } from './cloud.js';
import type { Instance } from './contract/cloudprovider/v1alpha1/Instance.js';
import type { InstanceServiceHandlers } from './contract/cloudprovider/v1alpha1/InstanceService.js';
import type { InstanceState } from './contract/cloudprovider/v1alpha1/InstanceState.js';
import type { LookupInstanceResult } from './contract/cloudprovider/v1alpha1/LookupInstanceResult.js';
import type { LookupZoneResult } from './contract/cloudprovider/v1alpha1/LookupZoneResult.js';
import type { NodeAddress, NodeAddress__Output } from './contract/cloudprovider/v1alpha1/NodeAddress.js';
import type { NodeAddressType } from './contract/cloudprovider/v1alpha1/NodeAddressType.js';
import type { NodeView__Output } from './contract/cloudprovider/v1alpha1/NodeView.js';
import type { ZoneServiceHandlers } from './contract/cloudprovider/v1alpha1/ZoneService.js';
import { failureOf, ID_BYTES, listing, milliseconds, NAME_BYTES, type Provider, quoted, unary, withinBatch } from './service.js';

const ADDRESS_TYPES: Record<string, NodeAddressType> = {
  Hostname: 'NODE_ADDRESS_TYPE_HOSTNAME',
  InternalIP: 'NODE_ADDRESS_TYPE_INTERNAL_IP',
  ExternalIP: 'NODE_ADDRESS_TYPE_EXTERNAL_IP',
  InternalDNS: 'NODE_ADDRESS_TYPE_INTERNAL_DNS',
  ExternalDNS: 'NODE_ADDRESS_TYPE_EXTERNAL_DNS',
};
const STATES: Record<string, InstanceState> = {
  running: 'INSTANCE_STATE_RUNNING',
  stopped: 'INSTANCE_STATE_STOPPED',
  unknown: 'INSTANCE_STATE_PRESENT',
  pending: 'INSTANCE_STATE_PENDING',
  unmanaged: 'INSTANCE_STATE_UNMANAGED',
};

export function instanceService(provider: Provider): InstanceServiceHandlers {
  return {
    LookupInstances: unary(provider, 'LookupInstances', async (request, { signal, callId }) => {
      withinBatch('nodes', request.nodes.map((node) => node.name));
      // At most one operation of the cloud for all Nodes. The state is complete: an instance that is not in it does not exist (INST-1).
      const state = await provider.cloud.read(signal, milliseconds(request.maxAge));
      const metadata = request.facets.includes('INSTANCE_FACET_METADATA');
      const results = request.nodes.map((node): LookupInstanceResult => {
        const result = { nodeName: node.name, nodeUid: node.uid };
        try {
          return { ...result, found: found(provider, state, node, metadata) };
        } catch (error) {
          return { ...result, failed: failureOf('LookupInstances', error, callId) }; // One Node's error does not fail the others (INST-4).
        }
      });
      return { results };
    }),

    ListInstances: listing(provider, 'ListInstances', (instances: Instance[]) => [{ instances: { instances } }], async (request, { signal }) => {
      const state = await provider.cloud.read(signal);
      const metadata = request.facets.includes('INSTANCE_FACET_METADATA');
      return state.instances.map((instance) => shown(instance, metadata)).filter((instance) => instance.providerId !== undefined);
    }),
  };
}

export function zoneService(provider: Provider): ZoneServiceHandlers {
  return {
    LookupZones: unary(provider, 'LookupZones', async (request, { signal, callId }) => {
      withinBatch('nodes', request.nodes.map((node) => node.name));
      const state = await provider.cloud.read(signal);
      const results = request.nodes.map((node): LookupZoneResult => {
        const result = { nodeName: node.name, nodeUid: node.uid };
        try {
          const { zone, region } = found(provider, state, node, true);
          return { ...result, zone: defined({ zone, region }) };
        } catch (error) {
          return { ...result, failed: failureOf('LookupZones', error, callId) };
        }
      });
      return { results };
    }),
  };
}

/** The cloud's answer about a Node: by its provider ID if it has one, else by its name (INST-3). */
function found(provider: Provider, state: State, node: NodeView__Output, metadata: boolean): Instance {
  const { prefix } = provider.settings;
  const id = node.providerId;
  let instance = state.byName.get(node.name);
  if (id !== undefined) {
    if (!id.startsWith(prefix)) return { state: 'INSTANCE_STATE_UNMANAGED' };
    if (id === prefix || Buffer.byteLength(id) > ID_BYTES) {
      throw new Fail('INVALID', `the provider ID ${quoted(id)} has ${Buffer.byteLength(id)} bytes and is not one of this cloud's`);
    }
    instance = state.byProviderId.get(id);
  }
  return instance ? shown(instance, metadata) : { state: 'INSTANCE_STATE_ABSENT' };
}

function shown(instance: Machine, metadata: boolean): Instance {
  const state = STATES[instance.power ?? 'running'];
  if (state === 'INSTANCE_STATE_PENDING') return { state, retryAfter: { seconds: 1 } };
  if (state === 'INSTANCE_STATE_UNMANAGED') return { state };
  if (!metadata) return { state, providerId: instance.provider_id };
  const { type: instanceType, zone, region } = instance;
  return {
    state,
    providerId: instance.provider_id,
    ...defined(formed(instance.provider_id, { instanceType, zone, region })),
    labels: instance.labels ?? {},
    addresses: addressesTo(instance.addresses).filter((address) => isExpressible(instance.provider_id, address)),
  };
}

const LABEL_VALUE = /^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$/;
/** One label of a DNS name (RFC 1123). */
const DNS_LABEL = /^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$/;

/** Whether the contract can express an address: a name has to be a DNS name (INST-8, INST-15). */
function isExpressible(id: string, { type, address = '' }: NodeAddress): boolean {
  if (type === 'NODE_ADDRESS_TYPE_INTERNAL_IP' || type === 'NODE_ADDRESS_TYPE_EXTERNAL_IP') return true;
  const isName = address.length <= NAME_BYTES && address.split('.').every((label) => DNS_LABEL.test(label));
  if (!isName) console.error(`instance ${id}: its address ${quoted(address)} is no DNS name and is left out`);
  return isName;
}

/** Leaves out values that are no label values, because the contract cannot express them (INST-15). */
function formed<K extends string>(id: string, fields: Record<K, string | null | undefined>): Record<K, string | null | undefined> {
  const kept = { ...fields };
  for (const name of Object.keys(fields) as K[]) {
    const value = fields[name];
    if (value === null || value === undefined || LABEL_VALUE.test(value)) continue;
    console.error(`instance ${id}: its ${name} ${JSON.stringify(value)} is no label value and is left out`);
    kept[name] = undefined;
  }
  return kept;
}

/** Removes null and undefined fields, because a field of the contract cannot be null. */
function defined<K extends string>(fields: Record<K, string | null | undefined>): Partial<Record<K, string>> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined)) as Partial<Record<K, string>>;
}

export function addressesTo(addresses: Addresses = []): NodeAddress[] {
  return addresses.flatMap((entry) => Object.entries(entry).map(([kind, address]) => ({ type: ADDRESS_TYPES[kind], address })));
}

export function addressesFrom(addresses: NodeAddress__Output[]): Addresses {
  const kinds = Object.entries(ADDRESS_TYPES);
  return addresses.flatMap(({ type, address }) => kinds.filter(([, known]) => known === type).map(([kind]) => ({ [kind]: address })));
}
