/**
 * The cloud: a state file that providers in any language can use in turn (../../README.md describes it). In your own provider this
 * module is the client of your cloud's API. It does not know gRPC: it offers operations that can be slow and can fail, and a copy of the last state.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import fs from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';

const FORMAT = 1;
/** How long another process may hold the state file, in seconds. */
const PATIENCE = 5;

/** A failure in the body of an answer, never in the gRPC status (CORE-4). `code` is a name of FailureCode without its prefix. */
export class Fail extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly reason = '',
    readonly retryAfterMs = code === 'THROTTLED' || code === 'BUSY' ? 1_000 : undefined,
  ) {
    super(message);
  }
}

/** The codes of errors of the cloud, not of the request. */
const TROUBLES = ['THROTTLED', 'CREDENTIALS', 'UNAVAILABLE'];

export type Addresses = Record<string, string>[];

export interface Instance {
  id: string;
  name: string;
  provider_id: string;
  type?: string | null;
  zone?: string | null;
  region?: string | null;
  addresses?: Addresses;
  labels?: Record<string, string>;
  power?: string;
}

export interface Mark {
  owner_id: string;
  namespace: string;
  name: string;
  uid: string;
}

/** The fields that a Service asked for. Only session affinity and traffic policy may be empty. */
export interface Config {
  ports?: string[];
  source_ranges?: string[];
  session_affinity: string;
  external_traffic_policy: string;
  class?: string;
  annotations?: Record<string, string>;
}

export interface LoadBalancer {
  handle: string;
  name: string;
  owner?: Mark;
  addresses?: string[];
  hostname?: string;
  config: Config;
  targets: string[];
  ready_at_ms?: number;
  gone_at_ms?: number;
  remnant?: boolean;
}

export interface Route {
  name: string;
  destination_cidr: string;
  node_name?: string;
  provider_id?: string;
  next_hop?: string;
  gateway?: string;
  node_addresses?: Addresses;
  owner_id?: string;
}

/** The cloud at one moment. It is immutable: a write creates a new one. */
export class State {
  readonly byName: Map<string, Instance>;
  readonly byProviderId: Map<string, Instance>;

  constructor(
    readonly instances: Instance[] = [],
    readonly loadBalancers = new Map<string, LoadBalancer>(),
    readonly routes = new Map<string, Route>(),
    readonly lastNumber = 0,
    /** The cloud's time less the system's, in milliseconds. */
    readonly clockOffset = 0,
  ) {
    this.byName = new Map(instances.map((instance) => [instance.name, instance]));
    this.byProviderId = new Map(instances.map((instance) => [instance.provider_id, instance]));
  }

  nowMs(): number {
    return Date.now() + this.clockOffset;
  }

  /** The load balancers without those whose deletion has ended. */
  living(): LoadBalancer[] {
    const now = this.nowMs();
    return [...this.loadBalancers.values()].filter((lb) => (lb.gone_at_ms ?? Infinity) > now);
  }

  /** The state without a load balancer. */
  without(handle: string): State {
    const rest = new Map(this.loadBalancers);
    rest.delete(handle);
    return new State(this.instances, rest, this.routes, this.lastNumber, this.clockOffset);
  }
}

/** One write: objects by handle or name, null for objects to remove. */
export interface Write {
  line: string;
  loadBalancers?: Record<string, LoadBalancer | null>;
  routes?: Record<string, Route | null>;
  lastNumber?: number;
}

interface Waiting {
  signal: AbortSignal;
  work: () => void;
  refuse: (error: Error) => void;
}

export class Cloud {
  /** When the cloud last answered (refusing one object is an answer), and how it failed since then, if it did. */
  lastSuccess?: Date;
  trouble?: string;
  /** Called when another process has changed the cloud. */
  onForeignChange: (before: State, after: State) => void = () => {};
  private state = new State();
  private learnedAt = -Infinity;
  private file = '';
  private instancesText = '[]';
  private readonly waiting: Waiting[] = [];
  private writing = false;

  constructor(private readonly path: string) {}

  /** Makes a new, empty cloud. Only at the start: if the file is missing later, that does not show that the instances are gone (INST-1). */
  createIfMissing(): void {
    if (!fs.existsSync(this.path)) this.save(this.state, { line: '' });
  }

  /** One operation that asks the cloud, unless it was read at most `maxAgeMs` ago. */
  async read(signal: AbortSignal, maxAgeMs = 0): Promise<State> {
    if (maxAgeMs > 0 && performance.now() - this.learnedAt <= maxAgeMs) return this.state;
    return this.operation(signal, () => this.look());
  }

  /** One operation that may write: `decide` gets the current cloud and returns its answer and the write, if any. */
  async write<T>(signal: AbortSignal, decide: (state: State) => [T, Write?]): Promise<T> {
    return this.operation(signal, () => this.alone(signal, () => {
      const state = this.look();
      const [answer, write] = decide(state);
      if (write) this.save(state, write);
      return answer;
    }));
  }

  /** One operation: the clusters and disks that the cloud knows; no provider writes them. */
  async catalogue(signal: AbortSignal): Promise<{ clusters: Record<string, string>; volumes: Record<string, Record<string, string>> }> {
    return this.operation(signal, () => ({ clusters: {}, volumes: {}, ...this.json('.catalogue.json') }));
  }

  /** Runs an operation under the set weather. The delay holds no lock, so it delays no other operation. */
  private async operation<T>(signal: AbortSignal, work: () => T | Promise<T>): Promise<T> {
    try {
      const weather = this.json('.weather.json');
      if (weather.slow_ms) await sleep(weather.slow_ms, undefined, { signal });
      if (weather.fail) throw new Fail(weather.fail, `the cloud is set to answer ${weather.fail} to every operation`);
      const result = await work();
      this.note();
      return result;
    } catch (error) {
      if (error instanceof Fail) this.note(TROUBLES.includes(error.code) ? error.message : undefined);
      throw error;
    }
  }

  private note(trouble?: string): void {
    this.trouble = trouble;
    if (trouble === undefined) this.lastSuccess = new Date();
  }

  /** Runs the work as the only writer of this and all other processes. Waiting calls run in turn. Cancelled calls do not run (CORE-8). */
  private alone<T>(signal: AbortSignal, work: () => T): Promise<T> {
    return new Promise((resolve, refuse) => {
      this.waiting.push({ signal, work: () => resolve(work()), refuse });
      signal.addEventListener('abort', () => refuse(signal.reason), { once: true });
      if (!this.writing) {
        this.writing = true;
        void this.serveWaiting().finally(() => (this.writing = false));
      }
    });
  }

  private async serveWaiting(): Promise<void> {
    while (this.waiting.length > 0) {
      let lock: ChildProcess | undefined;
      let refusal: Error | undefined;
      try {
        lock = await this.lock();
      } catch (error) {
        refusal = error as Error;
      }
      // Runs a bounded number of calls, then lets other processes take the lock. Cancellations arrive between two calls.
      for (let n = 0; n < 64 && this.waiting.length > 0; n += 1) {
        const { signal, work, refuse } = this.waiting.shift()!;
        try {
          if (refusal) throw refusal;
          signal.throwIfAborted();
          work();
        } catch (error) {
          refuse(error as Error);
        }
        await new Promise(setImmediate);
      }
      lock?.stdin?.end();
    }
  }

  /** Node.js has no flock. The command of this name (util-linux) holds the lock as long as we hold its input. It echoes our line after it has the lock. */
  private lock(): Promise<ChildProcess> {
    return new Promise((resolve, reject) => {
      const path = `${this.path}.lock`;
      const child = spawn('flock', ['--exclusive', '--wait', String(PATIENCE), path, 'cat'], { stdio: ['pipe', 'pipe', 'inherit'] });
      const refuse = (why: string) => reject(new Fail('UNAVAILABLE', `${path} cannot be locked: ${why}`));
      child.on('error', (error) => refuse(`${error.message}; is the command flock (util-linux) installed?`));
      child.on('exit', () => refuse(`the command flock did not get it within ${PATIENCE} s; does another process hold it?`));
      child.stdin.on('error', () => {}); // The process has ended, which `exit` reports.
      child.stdout.once('data', () => resolve(child));
      child.stdin.write('locked');
    });
  }

  /** The current state; the file is read only if it is not the one in memory. `onForeignChange` gets the changes of others. */
  look(): State {
    try {
      const { ino, mtimeNs, size } = fs.statSync(this.path, { bigint: true });
      const file = `${ino} ${mtimeNs} ${size}`;
      if (file !== this.file) this.parse(JSON.parse(fs.readFileSync(this.path, 'utf8')), file);
    } catch (error) {
      throw new Fail('UNAVAILABLE', `${this.path}: the state file cannot be read: ${error}`);
    }
    this.learnedAt = performance.now();
    return this.state;
  }

  private parse(content: any, file: string): void {
    if (content.format !== FORMAT) throw new Error(`format ${content.format} is not ${FORMAT}`);
    const [before, first] = [this.state, this.file === ''];
    this.state = new State(
      content.instances,
      new Map(content.load_balancers.map((lb: LoadBalancer) => [lb.handle, lb])),
      new Map(content.routes.map((route: Route) => [route.name, route])),
      content.last_number,
      content.now_ms - content.saved_at_unix_ms,
    );
    this.instancesText = JSON.stringify(content.instances);
    this.file = file;
    if (!first) this.onForeignChange(before, this.state);
  }

  /** Replaces the file atomically: after a kill at any time, the path has the whole old or the whole new file. */
  private save(state: State, write: Write): void {
    const loadBalancers = changed(new Map(state.living().map((lb) => [lb.handle, lb])), write.loadBalancers);
    const routes = changed(state.routes, write.routes);
    const lastNumber = Math.max(state.lastNumber, write.lastNumber ?? 0);
    const now = Date.now();
    const head = { format: FORMAT, now_ms: Math.max(0, now + state.clockOffset), saved_at_unix_ms: now, last_number: lastNumber };
    const rest = { load_balancers: [...loadBalancers.values()], routes: [...routes.values()] };
    const text = `${JSON.stringify(head).slice(0, -1)},\n"instances":${this.instancesText},\n${JSON.stringify(rest).slice(1)}\n`;
    const fresh = `${this.path}.new`;
    try {
      fs.writeFileSync(fresh, text);
      const { ino, mtimeNs, size } = fs.statSync(fresh, { bigint: true });
      fs.renameSync(fresh, this.path);
      if (write.line) fs.appendFileSync(`${this.path}.writes`, `${write.line}\n`);
      this.file = `${ino} ${mtimeNs} ${size}`;
    } catch (error) {
      throw new Fail('UNAVAILABLE', `${this.path}: the state file cannot be written: ${error}`);
    }
    this.state = new State(state.instances, loadBalancers, routes, lastNumber, state.clockOffset);
  }

  private json(suffix: string): any {
    const path = this.path + suffix;
    try {
      return JSON.parse(fs.readFileSync(path, 'utf8'));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
      throw new Fail('UNAVAILABLE', `${path} cannot be read: ${error}`);
    }
  }
}

function changed<T>(objects: Map<string, T>, changes: Record<string, T | null> = {}): Map<string, T> {
  const after = new Map(objects);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) after.delete(key);
    else after.set(key, value);
  }
  return after;
}

/** Compares the objects as the file has them, without undefined fields. */
export function equal(one: unknown, other: unknown): boolean {
  const plain = (value: unknown) => (value === undefined ? undefined : JSON.parse(JSON.stringify(value)));
  return isDeepStrictEqual(plain(one), plain(other));
}
