/** The hints of WatchChanges: numbered changes by others in the cloud. The last 1,024 are kept for a controller that reconnects. */
import { setTimeout as sleep } from 'node:timers/promises';

import { equal, type State } from './cloud.js';
import type { WatchChangesRequest__Output } from './contract/cloudprovider/v1alpha1/WatchChangesRequest.js';
import type { WatchChangesResponse } from './contract/cloudprovider/v1alpha1/WatchChangesResponse.js';
import { callIdOf, failureOf, type Provider } from './service.js';
import { Metadata, type ServerWritableStream } from '@grpc/grpc-js';

/** The period at which the cloud is read while a caller watches. A cloud with a feed of events does not need it. */
const EVERY_MS = 250;
const KEPT = 1024;

export class Changes {
  private hints: WatchChangesResponse[] = [];
  /** The number of the last hint. */
  private last = 0;

  constructor(private readonly provider: Provider) {
    provider.cloud.onForeignChange = (before, after) => this.note(before, after);
  }

  private note(before: State, after: State): void {
    const byId = (state: State) => new Map(state.instances.map((instance) => [instance.id, instance]));
    for (const { provider_id: providerId, name: nodeName } of differing(byId(before), byId(after))) this.add({ instance: { providerId, nodeName } });
    for (const { owner } of differing(before.loadBalancers, after.loadBalancers)) {
      if (owner) this.add({ loadBalancer: { namespace: owner.namespace, name: owner.name } });
    }
    if (differing(before.routes, after.routes).length > 0) this.add({ routes: {} });
  }

  private add(hint: WatchChangesResponse): void {
    this.last += 1;
    this.hints.push({ ...hint, resumeToken: this.token() });
    if (this.hints.length > KEPT) this.hints.shift();
  }

  private token(): string {
    return `${this.provider.bootId}/${this.last}`;
  }

  /** The hints after that number. If the list no longer has all of them, or the number is invalid, the only hint is a resync (PROV-5). */
  private after(number: number): WatchChangesResponse[] {
    const oldest = this.last - this.hints.length + 1;
    const known = number + 1 >= oldest && number <= this.last;
    return known ? this.hints.slice(number + 1 - oldest) : [{ resumeToken: this.token(), resync: {} }];
  }

  private numberOf(token: string): number {
    if (token === '') return this.last;
    const [, bootId, number] = /^(.*)\/(\d{1,15})$/.exec(token) ?? [];
    return bootId === this.provider.bootId ? Number(number) : NaN;
  }

  /** Sends hints until the controller disconnects or the provider shuts down. At the shutdown the stream ends with status OK (PROV-6). */
  async watch(call: ServerWritableStream<WatchChangesRequest__Output, WatchChangesResponse>): Promise<void> {
    const closing = this.provider.closing.signal;
    try {
      this.provider.admit(call.request.cluster);
      call.sendMetadata(new Metadata()); // Opens the stream before the first hint.
      let last = this.numberOf(call.request.resumeToken);
      // A stream that has nothing to catch up on begins with the point from which it reports changes (PROV-21).
      if (last === this.last) call.write({ resumeToken: this.token() });
      while (!closing.aborted && !call.cancelled) {
        const hints = this.after(last);
        last = this.last;
        for (const hint of hints) call.write(hint);
        await sleep(EVERY_MS, undefined, { signal: closing }).catch(() => {});
        try {
          this.provider.cloud.look();
        } catch {
          // No hint can be sent without the cloud. The callers of other RPCs get the error.
        }
      }
    } catch (error) {
      call.write({ failed: failureOf('WatchChanges', error, callIdOf(call)) });
    }
    call.end();
  }
}

function differing<T>(before: Map<string, T>, after: Map<string, T>): T[] {
  const keys = new Set([...before.keys(), ...after.keys()]);
  return [...keys].filter((key) => !equal(before.get(key), after.get(key))).map((key) => (after.get(key) ?? before.get(key))!);
}
