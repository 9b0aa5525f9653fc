/** The common part of all services: the cluster of the provider, failures in answers, and locks on objects. */
import { randomUUID } from 'node:crypto';
import { isIP } from 'node:net';
import * as grpc from '@grpc/grpc-js';

import { type Cloud, Fail } from './cloud.js';
import type { ClusterRef__Output } from './contract/cloudprovider/v1alpha1/ClusterRef.js';
import type { Failure } from './contract/cloudprovider/v1alpha1/Failure.js';
import type { FailureCode } from './contract/cloudprovider/v1alpha1/FailureCode.js';
import type { ListEnd } from './contract/cloudprovider/v1alpha1/ListEnd.js';
import type { Pending } from './contract/cloudprovider/v1alpha1/Pending.js';
import type { Duration } from './contract/google/protobuf/Duration.js';

export const NAME_BYTES = 253;
export const ID_BYTES = 1024;
export const MAX_BATCH = 500;
const TEXT_BYTES = 1024;
/** The most items in one message of a listing. */
const CHUNK = 500;

/** The identity of the provider. All providers of one cloud must have the same values. */
export interface Settings {
  name: string;
  prefix: string;
  cloudScope: string;
  pools: string[];
  /** The values of `spec.loadBalancerClass` that the provider serves, besides Services without a class. */
  classes: string[];
  sourceTypes: string[];
  /** How long the creation and the deletion of a load balancer take. */
  provisioningMs: number;
}

/** The cluster that a call is for. */
export class Owner {
  constructor(
    readonly clusterName: string,
    readonly ownerId: string,
    readonly previous: string[],
    /** The provider must write nothing to the cloud (PROV-20). */
    readonly readOnly: boolean,
  ) {}

  owns(ownerId: string): boolean {
    return ownerId === this.ownerId || this.previous.includes(ownerId);
  }
}

/** One provider process. */
export class Provider {
  /** New for every process (PROV-7). */
  readonly bootId = randomUUID();
  /** Aborted when the provider shuts down. */
  readonly closing = new AbortController();
  /** The cluster of the last successful Initialize. */
  owner?: Owner;
  private readonly held = new Set<string>();

  constructor(
    readonly cloud: Cloud,
    readonly settings: Settings,
  ) {}

  /** The caller, if its cluster is the initialised one (CORE-10). */
  admit(cluster: ClusterRef__Output | null | undefined): Owner {
    const { name, ownerId } = checked(cluster);
    if (!this.owner) throw new Fail('NOT_INITIALIZED', 'this provider process has not seen a successful Initialize');
    if (this.owner.ownerId !== ownerId) {
      throw new Fail('NOT_INITIALIZED', `this provider is initialised for ${quoted(this.owner.ownerId)}, not for ${quoted(ownerId)}`);
    }
    return new Owner(name, ownerId, this.owner.previous, this.owner.readOnly);
  }

  /** Allows one mutating call at a time for each object. A further call fails with BUSY (CORE-7). The owner ID does not count: after Initialize with another one, a call of the former owner may still work on the object (PROV-18). */
  async holding<T>(what: string, work: () => Promise<T>): Promise<T> {
    if (this.held.has(what)) throw new Fail('BUSY', `another call is in progress for ${what}; ask again in a second`);
    this.held.add(what);
    try {
      return await work();
    } finally {
      this.held.delete(what);
    }
  }
}

export function checked(cluster: ClusterRef__Output | null | undefined): ClusterRef__Output {
  const bytes = Buffer.byteLength(cluster?.ownerId ?? '');
  if (!cluster || bytes === 0 || bytes > NAME_BYTES) throw new Fail('INVALID', `cluster.owner_id has ${bytes} bytes; right would be 1 to ${NAME_BYTES}`);
  return cluster;
}

/** Turns every error into a failure of the contract. A bug of the provider is INTERNAL, and only the log gets its details (CORE-12). */
export function failureOf(rpc: string, error: unknown, callId: string): Failure {
  if (!(error instanceof Fail)) {
    console.error(`${rpc} failed, call_id ${callId}:`, error);
    error = new Fail('INTERNAL', `a fault of the provider in ${rpc}; its log says more`);
  }
  const { code, message, reason, retryAfterMs } = error as Fail;
  const camelCase = code.split('_').map((word) => word[0] + word.slice(1).toLowerCase());
  return {
    code: `FAILURE_CODE_${code}` as FailureCode,
    reason: reason || camelCase.join(''),
    message: shortened(message),
    retryAfter: retryAfterMs === undefined ? null : duration(retryAfterMs),
  };
}

/** At most 1,024 bytes of UTF-8 (CORE-11), cut between characters. */
export function shortened(text: string): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= TEXT_BYTES) return text;
  let end = TEXT_BYTES;
  while ((bytes[end]! & 0xc0) === 0x80) end -= 1;
  return bytes.toString('utf8', 0, end);
}

export function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 300));
}

export function duration(ms: number): Duration {
  return { seconds: Math.floor(ms / 1000), nanos: (ms % 1000) * 1_000_000 };
}

export function milliseconds(duration: { seconds: number; nanos: number } | null | undefined): number {
  return duration ? duration.seconds * 1000 + duration.nanos / 1_000_000 : 0;
}

type Call = grpc.ServerUnaryCall<any, any> | grpc.ServerWritableStream<any, any>;

/** The ID of a call. The controller logs the same ID. It is cut, because other callers may send any length. */
export function callIdOf(call: Call): string {
  return String(call.metadata.get('ccm-call-id')[0] ?? 'unknown').slice(0, 64);
}

/** What a method gets besides the request: the caller, the call's ID and deadline, and a signal that aborts when the controller cancels or the deadline has passed. */
export interface Context {
  owner: Owner;
  signal: AbortSignal;
  deadline: number;
  callId: string;
}

function contextOf(provider: Provider, call: Call): Context {
  const cancelled = new AbortController();
  call.on('cancelled', () => cancelled.abort());
  return { owner: provider.admit(call.request.cluster), signal: cancelled.signal, deadline: Number(call.getDeadline()), callId: callIdOf(call) };
}

/** The RPCs that write to the cloud. */
const WRITES = ['EnsureLoadBalancer', 'UpdateLoadBalancer', 'DeleteLoadBalancer', 'CreateRoutes', 'DeleteRoutes'];

function mayWrite(rpc: string, owner: Owner): void {
  if (!owner.readOnly || !WRITES.includes(rpc)) return;
  throw new Fail('PRECONDITION', `${rpc} writes to the cloud, and this provider was initialised with read_only`, 'ReadOnly');
}

/** A unary RPC: its failures go into the body. A cancelled call needs no answer. */
export function unary<Request, Response>(
  provider: Provider,
  rpc: string,
  method: (request: Request, context: Context) => Promise<Response>,
): grpc.handleUnaryCall<Request, Response> {
  return (call, callback) => {
    const answer = async () => {
      const context = contextOf(provider, call);
      mayWrite(rpc, context.owner);
      return method(call.request, context);
    };
    answer().then(
      (response) => callback(null, response),
      (error) => (call.cancelled ? callback({ code: grpc.status.CANCELLED }) : callback(null, { failed: failureOf(rpc, error, callIdOf(call)) } as unknown as Response)),
    );
  };
}

/**
 * A listing: sent in parts, then the end with the number of items (CORE-16). It gets all items before it sends the first. So a failure in the middle never looks
 * like a complete listing.
 */
export function listing<Request, Item, Response>(
  provider: Provider,
  rpc: string,
  part: (items: Item[]) => Response[],
  method: (request: Request, context: Context) => Promise<Item[]>,
): grpc.handleServerStreamingCall<Request, Response> {
  return (call) => {
    const answer = async () => method(call.request, contextOf(provider, call));
    answer()
      .then((items) => {
        for (let begin = 0; begin < items.length; begin += CHUNK) {
          for (const response of part(items.slice(begin, begin + CHUNK))) call.write(response);
        }
        call.write({ end: { total: items.length } satisfies ListEnd } as unknown as Response);
      })
      .catch((error) => call.write({ failed: failureOf(rpc, error, callIdOf(call)) } as unknown as Response))
      .finally(() => call.end());
  };
}

export function withinBatch(what: string, keys: string[]): void {
  if (keys.length > MAX_BATCH) throw new Fail('INVALID', `the request has ${keys.length} ${what}, more than max_batch ${MAX_BATCH}`);
  if (keys.includes('') && what !== 'route keys') throw new Fail('INVALID', `the request has one of its ${what} empty; each needs its own name`);
  const twice = keys.find((key, at) => keys.indexOf(key) !== at);
  if (twice !== undefined) throw new Fail('INVALID', `the request has ${quoted(twice)} twice among its ${what}; each may occur once`);
}

export function pending(message: string, leftMs: number): Pending {
  return { message, retryAfter: duration(Math.max(leftMs, 1_000)) };
}

export function isCidr(text: string): boolean {
  const [, address = '', length = ''] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
  return bits > 0 && Number(length) <= bits;
}
