/** A provider on a real socket, called by a test client in place of the controller. */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import * as grpc from '@grpc/grpc-js';

import { Cloud } from '../src/cloud.js';
import { members } from '../src/load_balancers.js';
import { contract, serve } from '../src/provider.js';
import { Provider, shortened } from '../src/service.js';
import { SocketFile } from '../src/socket.js';

const US = { name: 'test', ownerId: 'us' };
const THEM = { name: 'other', ownerId: 'them' };

const instance = (name: string, power = 'running') => ({
  id: name,
  name,
  provider_id: `mock://zone-a/${name}`,
  type: 'mock.large',
  zone: 'zone-a',
  region: 'region-1',
  addresses: [{ InternalIP: '10.0.0.1' }, { Hostname: name }],
  power,
});

/** Serves a cloud with the instances a, b and c. `call` calls any unary RPC, `list` any listing. */
async function served(t: TestContext, initialised = true) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'provider-'));
  const state = path.join(directory, 'cloud.json');
  const write = (suffix: string, content: unknown) => {
    fs.writeFileSync(`${state}.edited`, JSON.stringify(content));
    fs.renameSync(`${state}.edited`, state + suffix);
  };
  write('', {
    ...{ format: 1, now_ms: 0, saved_at_unix_ms: 0, last_number: 0, load_balancers: [], routes: [] },
    instances: ['a', 'b', 'c'].map((name) => instance(name)),
  });
  write('.catalogue.json', { clusters: { test: '192.0.2.77' }, volumes: { 'disk-1': { 'topology.kubernetes.io/zone': 'zone-a' } } });
  const endpoint = `unix://${directory}/socket/p.sock`;
  const provider = new Provider(new Cloud(state), {
    ...{ name: 'mock', prefix: 'mock://', cloudScope: 'here', pools: ['192.0.2.0/24', '2001:db8::/112'], provisioningMs: 0 },
    ...{ classes: ['mock.grpc-ccm.io/lb'], sourceTypes: ['csi/disk.mock.grpc-ccm.io'] },
  });
  const stop = new AbortController();
  const serving = serve(provider, endpoint, stop.signal);
  const services = contract();
  const clients: Record<string, any> = {};
  for (const [name, Service] of Object.entries(services)) {
    if ('service' in Service) clients[name] = new (Service as any)(endpoint, grpc.credentials.createInsecure(), { 'grpc.default_authority': 'localhost' });
  }
  t.after(async () => {
    for (const client of Object.values(clients)) client.close();
    stop.abort();
    await serving;
    fs.rmSync(directory, { recursive: true });
  });
  await promisify(clients.ProviderService.waitForReady.bind(clients.ProviderService))(Date.now() + 20_000);
  const of = (rpc: string) => Object.values(clients).find((client) => typeof client[rpc] === 'function')!;
  const call = (rpc: string, request: object, options = {}, metadata = new grpc.Metadata()): Promise<any> =>
    new Promise((resolve, reject) => of(rpc)[rpc](request, metadata, options, (error: Error | null, response: any) => (error ? reject(error) : resolve(response))));
  const stream = (rpc: string, request: object): grpc.ClientReadableStream<any> => of(rpc)[rpc](request);
  const harness = {
    ...{ call, stream, of, endpoint, directory, state, provider, stop, write },
    list: async (rpc: string, cluster = US, more = {}): Promise<any[]> => stream(rpc, { cluster, ...more }).toArray(),
    initialize: (cluster = US, previousOwnerIds: string[] = []) => call('Initialize', { cluster, previousOwnerIds }),
    weather: (fail: string | null, slow_ms = 0) => write('.weather.json', { fail, slow_ms }),
    content: () => JSON.parse(fs.readFileSync(state, 'utf8')),
    edit: (change: (content: any) => void) => {
      const content = harness.content();
      change(content);
      write('', content);
    },
    writes: () => (fs.existsSync(`${state}.writes`) ? fs.readFileSync(`${state}.writes`, 'utf8').trim().split('\n').length : 0),
    ensure: (more = {}, service: object = SERVICE, cluster = US) => call('EnsureLoadBalancer', { cluster, service, ...more }),
    get: async (more = {}, service: object = SERVICE) => (await call('GetLoadBalancer', { cluster: US, service, ...more })).found,
    remove: (more = {}, service: object = SERVICE, cluster = US) => call('DeleteLoadBalancer', { cluster, service, ...more }),
    /** The cloud's answers about Nodes, by name and provider ID. */
    states: async (nodes: [string, string?][], cluster: object | null = US, more = {}): Promise<string[]> => {
      const views = nodes.map(([name, providerId]) => ({ name, uid: `uid-${name}`, ...(providerId && { providerId }) }));
      const { failed, results } = await call('LookupInstances', { cluster, nodes: views, ...more });
      if (failed) return [code({ failed })];
      assert.deepEqual(results.map((result: any) => result.nodeUid), views.map((view) => view.uid));
      return results.map((result: any) => (result.found ? result.found.state.slice('INSTANCE_STATE_'.length) : code(result)));
    },
    routes: async (rpc: string, routes: [string, string, string?][], cluster = US): Promise<string[]> => {
      const asked = routes.map(([destinationCidr, nodeName, name]) => ({ routeKey: destinationCidr, nameHint: 'uid', destinationCidr, nodeName, name }));
      return (await call(rpc, { cluster, routes: asked })).results.map((result: any) => (result.done ? 'done' : code(result)));
    },
  };
  if (initialised) assert.ok((await harness.initialize()).initialized);
  return harness;
}

const SERVICE = {
  ...{ namespace: 'default', name: 'web', uid: 'uid-1', sessionAffinity: 'None', externalTrafficPolicy: 'Cluster' },
  ports: [{ protocol: 'TCP', port: 80, nodePort: 30080 }],
};
const targets = (...names: string[]) => ({ inline: { nodes: names.map((name) => ({ name })) } });
const code = ({ failed }: any) => failed?.code.slice('FAILURE_CODE_'.length);

test('a Node is found by provider ID and else by name, and one Node’s trouble is not the others’', async (t) => {
  const h = await served(t);
  h.edit(({ instances }) => instances.push(instance('p', 'pending'), instance('s', 'stopped')));
  const found = await h.states([['a'], ['renamed', 'mock://zone-a/b'], ['x'], ['c', 'mock://zone-a/gone'], ['y', 'aws://i-1'], ['p'], ['s'], ['z', 'mock://']]);
  assert.deepEqual(found, ['RUNNING', 'RUNNING', 'ABSENT', 'ABSENT', 'UNMANAGED', 'PENDING', 'STOPPED', 'INVALID']);
  const { results } = await h.call('LookupZones', { cluster: US, nodes: [{ name: 'a' }, { name: 'x' }] });
  assert.equal(results[0].zone.zone, 'zone-a');
  assert.ok(results[1].zone && results[1].zone.zone === undefined);
});

test('a name that is no DNS name is left out, and the instance keeps its other addresses', async (t) => {
  const h = await served(t);
  t.mock.method(console, 'error', () => {});
  const names = ['Host-1.example', 'a_b', 'a..b', '-a', 'a'.repeat(254), ''];
  h.edit(({ instances }) => instances.push({ ...instance('d'), addresses: [{ InternalIP: '10.0.0.1' }, ...names.map((Hostname) => ({ Hostname }))] }));
  const { results } = await h.call('LookupInstances', { cluster: US, nodes: [{ name: 'd' }], facets: ['INSTANCE_FACET_METADATA'] });
  assert.deepEqual(results[0].found.addresses.map(({ address }: any) => address), ['10.0.0.1', 'Host-1.example']);
});

test('a fault of the provider is logged with the ID of the call', async (t) => {
  const h = await served(t);
  const logged = t.mock.method(console, 'error', () => {});
  t.mock.method(h.provider.cloud, 'read', () => Promise.reject(new Error('a bug')));
  const metadata = new grpc.Metadata();
  metadata.set('ccm-call-id', '5f3c-7');
  assert.equal(code(await h.call('LookupInstances', { cluster: US, nodes: [{ name: 'a' }] }, {}, metadata)), 'INTERNAL');
  assert.equal(logged.mock.calls[0]?.arguments[0], 'LookupInstances failed, call_id 5f3c-7:');
});

test('a cloud that fails or is lost never says ABSENT, and the cache is used only within max_age', async (t) => {
  const h = await served(t);
  assert.deepEqual(await h.states([['a']]), ['RUNNING']);
  for (const fail of ['THROTTLED', 'CREDENTIALS', 'UNAVAILABLE']) {
    h.weather(fail);
    assert.deepEqual(await h.states([['a'], ['gone']]), [fail]);
  }
  assert.deepEqual(await h.states([['a'], ['gone']], US, { maxAge: { seconds: 600 } }), ['RUNNING', 'ABSENT']);
  h.weather(null);
  fs.writeFileSync(h.state, '{');
  assert.deepEqual(await h.states([['a']]), ['UNAVAILABLE']);
  fs.unlinkSync(h.state);
  assert.deepEqual(await h.states([['a']]), ['UNAVAILABLE']);
});

test('who may not ask is told so, and a batch that is too large or names a Node twice is refused', async (t) => {
  const h = await served(t, false);
  assert.deepEqual(await h.states([['a']]), ['NOT_INITIALIZED']);
  await h.initialize();
  assert.deepEqual(await h.states([['a']], THEM), ['NOT_INITIALIZED']);
  assert.deepEqual(await h.states([['a']], null), ['INVALID']);
  assert.deepEqual(await h.states([['a'], ['a']]), ['INVALID']);
  assert.deepEqual(await h.states(Array.from({ length: 501 }, (_, n) => [`n-${n}`])), ['INVALID']);
});

/** Encoded protobuf fields of each wire type except groups, with numbers that no minor has. */
const UNKNOWN = Buffer.concat([
  Buffer.from('c83effffffffffffffffff01', 'hex'), // 1001: a varint
  Buffer.from('d23e056c61746572', 'hex'), // 1002: "later"
  Buffer.from('d93e0707070707070707', 'hex'), // 1003: 64 bits
  Buffer.from('fdffffff0f07070707', 'hex'), // the highest number: 32 bits
]);
const field = (number: number, content: Buffer) => Buffer.concat([Buffer.from([number * 8 + 2, content.length]), content]);

/** Sends bytes as they are. */
const sent = (h: { of(rpc: string): any }, rpc: string, bytes: Buffer): Promise<any> =>
  new Promise((resolve, reject) => {
    const client = h.of(rpc);
    const { path, responseDeserialize } = client[rpc];
    client.makeUnaryRequest(path, (message: Buffer) => message, responseDeserialize, bytes, (error: Error | null, response: any) => (error ? reject(error) : resolve(response)));
  });

test('the provider ignores fields of a later minor version, wherever they stand', async (t) => {
  const h = await served(t);
  const owner = field(2, Buffer.from('us'));
  const node = Buffer.concat([UNKNOWN, field(1, Buffer.from('a')), UNKNOWN, field(2, Buffer.from('uid-a'))]);
  for (const cluster of [
    field(1, Buffer.concat([UNKNOWN, owner, UNKNOWN])),
    Buffer.concat([field(1, owner), UNKNOWN, field(1, UNKNOWN)]), // The message in two parts, which a decoder merges.
  ]) {
    const { failed, results } = await sent(h, 'LookupInstances', Buffer.concat([UNKNOWN, cluster, field(2, node), UNKNOWN]));
    assert.equal(code({ failed }), undefined);
    assert.deepEqual(results.map(({ nodeName, nodeUid, found }: any) => [nodeName, nodeUid, found?.state]), [['a', 'uid-a', 'INSTANCE_STATE_RUNNING']]);
  }
});

test('a message that is cut off is a gRPC status, never taken for a whole one', async (t) => {
  const h = await served(t);
  const cut = {
    text: '0a6401', // A length of 100 bytes, followed by one byte.
    'a message': '0a64',
    number: '10ff',
  };
  for (const [what, bytes] of Object.entries(cut)) await assert.rejects(sent(h, 'GetProviderInfo', Buffer.from(bytes, 'hex')), { code: grpc.status.INTERNAL }, what);
  assert.equal((await h.call('Probe', {})).state, 'PROBE_STATE_READY'); // The connection still works.
});

test('a listing is complete and ends', async (t) => {
  const h = await served(t);
  h.edit(({ instances }) => instances.push(...Array.from({ length: 1_200 }, (_, n) => instance(`n-${n}`))));
  const parts = await h.list('ListInstances', US, { facets: ['INSTANCE_FACET_METADATA'] });
  const listed = parts.flatMap((part) => part.instances?.instances ?? []);
  assert.equal(listed.length, 1_203);
  assert.equal(parts.at(-1).end.total, 1_203);
  assert.equal(listed[0].instanceType, 'mock.large');
  h.weather('THROTTLED');
  const [failed, ...more] = await h.list('ListInstances');
  assert.deepEqual([code(failed), more], ['THROTTLED', []]);
});

test('a converged Ensure writes nothing, and a cleared field is removed', async (t) => {
  const h = await served(t);
  const asked = { ...SERVICE, loadBalancerSourceRanges: ['10.0.0.0/8'], ipFamilies: ['IPv4', 'IPv6'] };
  const made = await h.ensure({ targets: targets('a', 'b') }, asked);
  assert.deepEqual(made.ready.status.ingress.map((point: any) => point.ip), ['192.0.2.1', '2001:db8::1']);
  assert.equal(h.writes(), 1);
  assert.equal((await h.get({ targets: targets('a', 'b') }, asked)).inSync, true);
  const again = await h.ensure({ handle: made.handle }, asked); // Absent targets do not change the targets.
  assert.deepEqual([again.ready, h.writes()], [made.ready, 1]);
  assert.equal((await h.get()).inSync, false);
  await h.ensure();
  const [lb] = h.content().load_balancers;
  assert.deepEqual([lb.config.source_ranges, lb.addresses, lb.targets], [undefined, ['192.0.2.1'], ['a', 'b']]);
});

test('an IPv6 address is the pool’s network plus a number', async (t) => {
  const h = await served(t);
  const pools = { 'fd00::100/120': ['fd00::101', 'fd00::102'], 'fd00::8/126': ['fd00::9', 'fd00::a'], 'fd00::5:0/112': ['fd00::5:1'], 'fd01::/64': ['fd01::1'] };
  for (const [pool, addresses] of Object.entries(pools)) {
    h.provider.settings.pools = [pool];
    for (const address of addresses) {
      const made = await h.ensure({}, { ...SERVICE, uid: address, ipFamilies: ['IPv6'] });
      assert.deepEqual(made.ready?.status.ingress.map((point: any) => point.ip), [address]);
    }
  }
  h.provider.settings.pools = ['fd02::7/126'];
  const none = await h.ensure({}, { ...SERVICE, uid: 'none', ipFamilies: ['IPv6'] });
  assert.equal(none.failed?.reason, 'AddressPoolExhausted', 'fd02::8 is not in the pool');
});

test('a long text is cut between characters (CORE-11)', () => {
  assert.equal(shortened('a' + '😀'.repeat(300)), 'a' + '😀'.repeat(255));
  assert.equal(shortened('😀'.repeat(256)), '😀'.repeat(256));
});

test('a pool that is not a CIDR is refused at the start', () => {
  for (const pool of ['192.0.2.0', '192.0.2.0/33', '192.0.2/24', '192.0.2.0/24/1', '']) {
    assert.throws(() => members(pool), /is not a CIDR; write one such as 192.0.2.0\/24/, pool);
  }
});

test('a Service that cannot be served is INVALID and the field is named', async (t) => {
  const h = await served(t);
  const [port] = SERVICE.ports;
  const wrong = {
    'ports is empty': { ports: [] },
    protocol: { ports: [{ ...port, protocol: 'ICMP' }] },
    'port 0': { ports: [{ ...port, port: 0 }] },
    twice: { ports: [port, port] },
    SourceRanges: { loadBalancerSourceRanges: ['10.0.0.0'] },
    ipFamilies: { ipFamilies: ['IPv5'] },
    loadBalancerClass: { loadBalancerClass: 'other' },
    loadBalancerIP: { loadBalancerIp: 'here' },
  };
  for (const [field, change] of Object.entries(wrong)) {
    const { failed } = await h.ensure({}, { ...SERVICE, ...change });
    assert.equal(code({ failed }), 'INVALID');
    assert.ok(failed.message.includes(field), failed.message);
  }
  assert.equal(h.writes(), 0);
});

test('an update sets the targets and needs a load balancer', async (t) => {
  const h = await served(t);
  const update = (more = {}) => h.call('UpdateLoadBalancer', { cluster: US, service: SERVICE, ...more });
  assert.equal(code(await update({ targets: targets('c') })), 'NOT_FOUND');
  await h.ensure({ targets: targets('a') });
  assert.ok((await update({ targets: targets('c') })).done);
  assert.deepEqual(h.content().load_balancers[0].targets, ['c']);
  assert.equal(code(await update()), 'INVALID');
});

test('what is not ours is not touched, and a former owner’s is ours', async (t) => {
  const h = await served(t);
  const { handle } = await h.ensure();
  await h.initialize(THEM);
  const other = { ...SERVICE, uid: 'uid-2' };
  assert.equal(code(await h.ensure({ handle }, other, THEM)), 'CONFLICT');
  assert.equal(code(await h.remove({ handle }, other, THEM)), 'CONFLICT');
  assert.equal(h.writes(), 1);
  await h.initialize(THEM, ['us']);
  // Ensure replaces the mark, with one write.
  for (let again = 0; again < 2; again++) {
    assert.ok((await h.ensure({}, SERVICE, THEM)).ready);
    assert.equal(h.writes(), 2);
  }
  assert.equal(h.content().load_balancers[0].owner.owner_id, 'them');
  const [listed, end] = await h.list('ListLoadBalancers', THEM);
  assert.deepEqual([listed.loadBalancer.owners[0].uid, end.end.total], ['uid-1', 1]);
});

test('an unmarked load balancer is adopted only where that is granted', async (t) => {
  const h = await served(t);
  h.edit((content) => content.load_balancers.push({ handle: 'lb-7', name: 'auid1', addresses: ['192.0.2.9'], targets: [], config: {} }));
  assert.equal((await h.get()).ownership, 'OWNERSHIP_UNMARKED');
  assert.equal(code(await h.ensure()), 'CONFLICT');
  assert.equal((await h.ensure({ adoptUnmarked: true })).handle, 'lb-7');
  assert.equal(h.content().load_balancers[0].owner.uid, 'uid-1');
});

test('the native name comes before an address of the status, and another owner’s with the name comes last (LB-24)', async (t) => {
  const h = await served(t);
  const at = { handle: 'lb-1', name: 'by-hand', addresses: ['192.0.2.9'], targets: [], config: {} };
  const named = { handle: 'lb-2', name: 'auid1', addresses: ['192.0.2.8'], targets: [], config: {} };
  const foreign = { ...named, handle: 'lb-0', owner: { owner_id: 'them', namespace: 'default', name: 'web', uid: 'uid-1' } };
  const asked = { ...SERVICE, status: { ingress: [{ ip: '192.0.2.9' }] } };
  for (const [there, name, ownership] of [
    [[at, named], 'auid1', 'UNMARKED'],
    [[foreign, at, named], 'auid1', 'UNMARKED'],
    [[foreign, at], 'by-hand', 'UNMARKED'],
    [[foreign], 'auid1', 'FOREIGN'],
  ] as const) {
    h.edit((content) => (content.load_balancers = there));
    const found = await h.get({}, asked);
    assert.deepEqual([found.loadBalancerName, found.ownership], [name, `OWNERSHIP_${ownership}`]);
  }
});

test('a delete finds by the mark and is done where nothing is', async (t) => {
  const h = await served(t);
  await h.ensure();
  assert.ok((await h.remove({ handle: 'lb-lost' })).done);
  assert.ok((await h.remove()).done);
  assert.deepEqual([h.content().load_balancers, h.writes()], [[], 2]);
  h.weather('UNAVAILABLE');
  assert.equal(code(await h.remove()), 'UNAVAILABLE');
});

test('a delete is not done while an unmarked load balancer remains (LB-26)', async (t) => {
  const h = await served(t);
  for (const adoptUnmarked of [false, true]) {
    await h.ensure();
    h.edit((content) => content.load_balancers.push({ handle: 'lb-7', name: 'auid1', addresses: ['192.0.2.9'], targets: [], config: {} }));
    const first = await h.remove({ adoptUnmarked });
    if (adoptUnmarked) assert.ok(first.pending);
    else assert.equal(code(first), 'CONFLICT');
    assert.deepEqual(h.content().load_balancers.map((lb: any) => lb.handle), ['lb-7']);
    if (!adoptUnmarked) assert.equal(code(await h.remove()), 'CONFLICT');
    assert.ok((await h.remove({ adoptUnmarked: true })).done);
    assert.deepEqual(h.content().load_balancers, []);
  }
});

test('overlapping calls make one load balancer', async (t) => {
  const h = await served(t);
  h.weather(null, 300);
  const answers = await Promise.all([h.ensure(), h.ensure(), h.ensure(), h.ensure()]);
  assert.ok(answers.some((answer) => answer.ready));
  assert.ok(answers.every((answer) => answer.ready || code(answer) === 'BUSY'));
  assert.equal(h.writes(), 1);
});

test('a call of the former owner keeps its Service and its route (PROV-18, CORE-7)', async (t) => {
  const h = await served(t);
  h.weather(null, 10_000);
  const made = h.ensure();
  const routed = h.routes('CreateRoutes', [['10.0.1.0/24', 'a']]);
  await h.call('Probe', {}); // Sent later on the same connection: when this is answered, the earlier calls have arrived.
  h.weather(null);
  await h.initialize(THEM, ['us']);
  assert.equal(code(await h.ensure({}, SERVICE, THEM)), 'BUSY');
  assert.deepEqual(await h.routes('CreateRoutes', [['10.0.1.0/24', 'a']], THEM), ['BUSY']);
  assert.deepEqual(await h.routes('CreateRoutes', [['10.0.1.1/24', 'a']], THEM), ['BUSY']); // The same network (ROUTE-8).
  assert.ok((await made).ready);
  assert.deepEqual(await routed, ['done']);
});

test('a call that is cancelled or out of time writes nothing', async (t) => {
  const h = await served(t);
  h.weather(null, 25_000);
  const call = h.of('EnsureLoadBalancer').EnsureLoadBalancer({ cluster: US, service: SERVICE }, () => {});
  // When a later call of the same client is answered, the earlier call has arrived, because both use one connection.
  await promisify(h.of('EnsureLoadBalancer').GetLoadBalancer.bind(h.of('EnsureLoadBalancer')))({ cluster: null });
  call.cancel();
  const late = await h.call('EnsureLoadBalancer', { cluster: US, service: { ...SERVICE, uid: 'uid-2' } }, { deadline: Date.now() + 20_000 });
  assert.ok(late.pending, JSON.stringify(late));
  // A continued write would end before this one, which takes equally long and began later.
  await h.ensure({}, { ...SERVICE, uid: 'uid-3' });
  assert.equal(h.writes(), 1);
});

test('what takes time is pending', async (t) => {
  const h = await served(t);
  h.provider.settings.provisioningMs = 200;
  assert.ok((await h.ensure()).pending);
  while (!(await h.ensure()).ready) await sleep(20);
  h.provider.settings.provisioningMs = 600_000;
  assert.ok((await h.remove()).pending);
  assert.equal((await h.get()).presence, 'LOAD_BALANCER_PRESENCE_REMNANTS');
  h.edit(({ load_balancers }) => (load_balancers[0].gone_at_ms = 1));
  assert.ok((await h.remove()).done);
  assert.equal(h.writes(), 2);
});

test('each route has its own result, and a converged one writes nothing', async (t) => {
  const h = await served(t);
  const results = await h.routes('CreateRoutes', [['10.0.1.0/24', 'a'], ['10.0.2.0', 'a'], ['10.0.3.0/24', 'gone'], ['10.0.4.0/24', 'b']]);
  assert.deepEqual(results, ['done', 'INVALID', 'PRECONDITION', 'done']);
  assert.deepEqual(await h.routes('CreateRoutes', [['10.0.1.0/24', 'a'], ['10.0.4.0/24', 'b']]), ['done', 'done']);
  assert.equal(h.writes(), 2);
  assert.deepEqual(await h.routes('CreateRoutes', [['10.0.1.0/24', 'b']]), ['CONFLICT']);
  h.edit(({ instances }) => instances.shift());
  const [{ routes }] = await h.list('ListRoutes');
  assert.deepEqual(routes.routes.filter((route: any) => route.blackhole).map((route: any) => route.destinationCidr), ['10.0.1.0/24']);
  assert.deepEqual(await h.routes('CreateRoutes', [['10.0.1.0/24', 'b']]), ['done']); // CreateRoutes replaces a blackhole.
});

// ROUTE-8: all ways to write one network are one destination.
test('a destination is compared as a network', async (t) => {
  const h = await served(t);
  assert.deepEqual(await h.routes('CreateRoutes', [['fd00::/64', 'a'], ['fd00:0::/64', 'a'], ['fd00:0:0::/64', 'b']]), ['done', 'done', 'CONFLICT']);
  assert.deepEqual(await h.routes('CreateRoutes', [['fd00:0:0::/64', 'a'], ['fd00:0::/64', 'b']]), ['done', 'CONFLICT']);
  const made = h.content().routes;
  assert.deepEqual(made.map((route: any) => route.destination_cidr), ['fd00::/64']);
  assert.deepEqual(await h.routes('DeleteRoutes', [['fd00:0::/64', 'a', made[0].name]]), ['done']);
  assert.deepEqual(h.content().routes, []);
});

test('a foreign route is never removed', async (t) => {
  const h = await served(t);
  await h.routes('CreateRoutes', [['10.0.1.0/24', 'a']]);
  await h.initialize(THEM);
  assert.deepEqual(await h.routes('CreateRoutes', [['10.0.1.0/24', 'a']], THEM), ['CONFLICT']);
  const { name } = h.content().routes[0];
  assert.deepEqual(await h.routes('DeleteRoutes', [['10.0.1.0/24', 'a', name], ['10.9.9.0/24', 'a', 'gone']], THEM), ['CONFLICT', 'done']);
  await h.initialize();
  assert.deepEqual(await h.routes('DeleteRoutes', [['10.0.1.0/24', 'a', name]]), ['done']);
  assert.deepEqual(h.content().routes, []);
});

test('clusters and disks are told', async (t) => {
  const h = await served(t);
  const [{ clusters }] = await h.list('ListClusters');
  assert.deepEqual(clusters.names, ['test']);
  assert.equal((await h.call('GetControlPlaneAddress', { cluster: US, clusterName: 'test' })).address, '192.0.2.77');
  const labels = async (driver: string, volumeHandle: string) => {
    const answer = await h.call('GetVolumeLabels', { cluster: US, volume: { name: 'v', sourceType: 'csi', source: { driver, volumeHandle } } });
    return answer.labels?.labels ?? code(answer);
  };
  assert.deepEqual(await labels('disk.mock.grpc-ccm.io', 'disk-1'), { 'topology.kubernetes.io/zone': 'zone-a' });
  assert.equal(await labels('disk.mock.grpc-ccm.io', 'gone'), 'NOT_FOUND');
  assert.deepEqual(await labels('ebs.csi.aws.com', 'disk-1'), {});
});

test('a probe answers from memory while the cloud is slow', async (t) => {
  const h = await served(t);
  h.weather('CREDENTIALS');
  assert.equal(code(await h.initialize()), 'CREDENTIALS');
  h.weather(null, 20_000);
  const slow = Array.from({ length: 64 }, () => h.of('Initialize').Initialize({ cluster: US }, () => {}));
  const probe = await h.call('Probe', {}, { deadline: Date.now() + 15_000 });
  assert.equal(probe.state, 'PROBE_STATE_DEGRADED');
  assert.ok(probe.message.includes('CREDENTIALS'));
  for (const call of slow) call.cancel();
});

test('hints tell what others changed, unknown tokens are a resync, and shutdown ends the stream', async (t) => {
  const h = await served(t);
  const unknown = h.stream('WatchChanges', { cluster: US, resumeToken: 'of-another-process/1' });
  const hints = unknown[Symbol.asyncIterator]();
  const first = (await hints.next()).value;
  assert.ok(first.resync);
  h.edit(({ instances }) => instances.push(instance('d')));
  const second = (await hints.next()).value;
  assert.equal(second.instance.nodeName, 'd');
  const resumed = h.stream('WatchChanges', { cluster: US, resumeToken: first.resumeToken });
  assert.deepEqual((await resumed[Symbol.asyncIterator]().next()).value, second);
  h.stop.abort();
  assert.equal((await hints.next()).done, true); // Status OK: any other status would throw.
});

test('the socket is guarded, a living one is left alone and a stale one taken over', async (t) => {
  const h = await served(t);
  const file = h.endpoint.slice('unix://'.length);
  const modes = [file, path.dirname(file)].map((name) => fs.statSync(name).mode & 0o777);
  assert.deepEqual(modes, [0o660, 0o750]);
  await assert.rejects(new SocketFile(h.endpoint).claim(), /another provider answers/);
  fs.symlinkSync(path.dirname(file), path.join(h.directory, 'link'));
  await assert.rejects(new SocketFile(`unix://${h.directory}/link/p.sock`).claim(), /symbolic link/);
  fs.writeFileSync(path.join(h.directory, 'file'), '');
  await assert.rejects(new SocketFile(`unix://${h.directory}/file`).claim(), /not a socket/);
  for (const endpoint of ['unix:p.sock', 'unix-abstract:x', 'unix:///a/../b', 'unix:///a/']) assert.throws(() => new SocketFile(endpoint), /right would be/);
  assert.throws(() => new SocketFile(`unix:///${'x'.repeat(120)}`), /at most 107/);
  // When a socket closes, Node.js removes the path at which it was bound. The renamed path stays.
  const stale = net.createServer().listen(path.join(h.directory, 'bound'));
  await new Promise((resolve) => stale.on('listening', resolve));
  fs.renameSync(path.join(h.directory, 'bound'), path.join(h.directory, 'stale'));
  await new Promise((resolve) => stale.close(resolve));
  await new SocketFile(`unix://${h.directory}/stale`).claim();
});

test('at shutdown a call in flight may finish', async (t) => {
  const h = await served(t);
  h.weather(null, 1_000);
  const call = h.initialize();
  await h.call('Probe', {}); // Sent later on the same connection, so the earlier call has arrived.
  h.stop.abort();
  assert.ok((await call).initialized);
  while (fs.existsSync(h.endpoint.slice('unix://'.length))) await sleep(10);
});
