/**
 * A provider of the cloud provider contract in TypeScript: ProviderService, and the program that serves it all.
 *
 *     node dist/src/provider.js --state cloud.json --endpoint unix:///tmp/cloud/provider.sock
 */
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import * as grpc from '@grpc/grpc-js';
import * as loader from '@grpc/proto-loader';

import { Changes } from './changes.js';
import { Cloud } from './cloud.js';
import { clusterService, volumeService } from './clusters_volumes.js';
import type { ProtoGrpcType as ClusterTypes } from './contract/cluster.js';
import type { ProtoGrpcType as InstanceTypes } from './contract/instance.js';
import type { ProtoGrpcType as LoadBalancerTypes } from './contract/load_balancer.js';
import type { ProtoGrpcType as ProviderTypes } from './contract/provider.js';
import type { ProtoGrpcType as RouteTypes } from './contract/route.js';
import type { ProtoGrpcType as VolumeTypes } from './contract/volume.js';
import type { ProtoGrpcType as ZoneTypes } from './contract/zone.js';
import type { ProviderServiceHandlers } from './contract/cloudprovider/v1alpha1/ProviderService.js';
import { instanceService, zoneService } from './instances.js';
import { loadBalancerService, members } from './load_balancers.js';
import { routeService } from './routes.js';
import { checked, callIdOf, failureOf, MAX_BATCH, Owner, Provider, type Settings, shortened } from './service.js';
import { DEFAULT_ENDPOINT, SocketFile } from './socket.js';

const VERSION = '1.0.0';
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
/** How long calls in flight may take after SIGTERM. */
const DRAIN_MS = 20_000;

const FILES = ['provider', 'instance', 'zone', 'load_balancer', 'route', 'cluster', 'volume'];
/** The folder with the .proto files: unless CONTRACT_PROTO names one, `proto` four levels above dist/src, where this runs. */
const PROTO = process.env.CONTRACT_PROTO ?? fileURLToPath(new URL('../../../../proto', import.meta.url));

type Types = ProviderTypes & InstanceTypes & ZoneTypes & LoadBalancerTypes & RouteTypes & ClusterTypes & VolumeTypes;

export function contract() {
  const files = FILES.map((file) => `cloudprovider/v1alpha1/${file}.proto`);
  const definition = loader.loadSync(files, { includeDirs: [PROTO], longs: Number, enums: String, defaults: true, oneofs: true });
  return (grpc.loadPackageDefinition(definition) as unknown as Types).cloudprovider.v1alpha1;
}

function providerService(provider: Provider): ProviderServiceHandlers {
  const { cloud, settings, bootId } = provider;
  const changes = new Changes(provider);
  return {
    GetProviderInfo: ({ request }, callback) => {
      console.error(`a controller called GetProviderInfo: version ${request.controllerVersion}, minor ${request.contractMinor}`);
      callback(null, {
        providerName: settings.name,
        providerVersion: VERSION,
        bootId,
        providerIdPrefixes: [settings.prefix],
        maxRequestBytes: MAX_MESSAGE_BYTES,
        // A missing block means that the provider does not serve that service (CORE-5): leave out the services that your cloud lacks.
        capabilities: {
          instances: { maxBatch: MAX_BATCH, listing: true, powerState: true, maxInFlight: 8 },
          zones: {},
          loadBalancers: {
            classes: settings.classes,
            defaultClass: true,
            listing: true,
            inSync: true,
            targetScope: 'TARGET_SCOPE_OWNED',
            features: [
              'SERVICE_FEATURE_SOURCE_RANGES',
              'SERVICE_FEATURE_SESSION_AFFINITY',
              'SERVICE_FEATURE_EXTERNAL_TRAFFIC_POLICY_LOCAL',
              'SERVICE_FEATURE_UDP',
              'SERVICE_FEATURE_SCTP',
              'SERVICE_FEATURE_DUAL_STACK',
              'SERVICE_FEATURE_IP_MODE',
              'SERVICE_FEATURE_LOAD_BALANCER_IP',
              'SERVICE_FEATURE_APP_PROTOCOL',
            ],
            maxInFlight: 16,
          },
          routes: { maxBatch: MAX_BATCH, maxInFlight: 4 },
          clusters: {},
          volumes: { sourceTypes: settings.sourceTypes, maxInFlight: 8 },
          changes: {},
        },
        // Empty: the provider needs only name, UID, provider ID and addresses of each Node.
        nodeProjection: {},
      });
    },

    Initialize: (call, callback) => {
      const cancelled = new AbortController();
      call.on('cancelled', () => cancelled.abort());
      const initialize = async () => {
        const { name, ownerId } = checked(call.request.cluster);
        await cloud.read(cancelled.signal); // Verifies the credentials (PROV-3).
        provider.owner = new Owner(name, ownerId, call.request.previousOwnerIds, call.request.readOnly);
        console.error(`initialised for cluster ${name}, owner ${ownerId}`);
        return { initialized: { cloudScope: settings.cloudScope, readOnly: call.request.readOnly } };
      };
      initialize().then(
        (response) => callback(null, response),
        // If the call was cancelled, this error is no fault of the provider.
        (error) => (cancelled.signal.aborted ? callback({ code: grpc.status.CANCELLED }) : callback(null, { failed: failureOf('Initialize', error, callIdOf(call)) })),
      );
    },

    // From memory (PROV-4): the result of the last operation of the cloud.
    Probe: (_, callback) => {
      const { trouble, lastSuccess } = cloud;
      callback(null, {
        state: trouble === undefined ? 'PROBE_STATE_READY' : 'PROBE_STATE_DEGRADED',
        message: shortened(trouble ?? ''),
        bootId,
        lastCloudSuccess: lastSuccess ? { seconds: Math.floor(lastSuccess.getTime() / 1000), nanos: lastSuccess.getMilliseconds() * 1_000_000 } : null,
      });
    },

    WatchChanges: (call) => void changes.watch(call),
  };
}

/** Serves until `stop` aborts, then drains: hints end, calls in flight may finish, and calls that still run after 20 s are cancelled. */
export async function serve(provider: Provider, endpoint: string, stop: AbortSignal): Promise<void> {
  const socket = new SocketFile(endpoint);
  await socket.claim();
  const server = new grpc.Server({
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    // Without this, a request with 5,000 Nodes takes a round trip for every 64 KiB.
    'grpc-node.flow_control_window': 4 * 1024 * 1024,
  });
  const { ProviderService, InstanceService, ZoneService, LoadBalancerService, RouteService, ClusterService, VolumeService } = contract();
  server.addService(ProviderService.service, providerService(provider));
  server.addService(InstanceService.service, instanceService(provider));
  server.addService(ZoneService.service, zoneService(provider));
  server.addService(LoadBalancerService.service, loadBalancerService(provider));
  server.addService(RouteService.service, routeService(provider));
  server.addService(ClusterService.service, clusterService(provider));
  server.addService(VolumeService.service, volumeService(provider));
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(`unix://${socket.private}`, grpc.ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
  });
  socket.publish();
  console.error(`serving at ${endpoint}`);
  if (!stop.aborted) await new Promise((resolve) => stop.addEventListener('abort', resolve));
  console.error('shutting down');
  provider.closing.abort();
  socket.remove();
  await new Promise<void>((resolve) => {
    // After the drain the process ends without waiting for calls that do not end.
    const late = setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, DRAIN_MS);
    server.tryShutdown(() => {
      clearTimeout(late);
      resolve();
    });
  });
}

const HELP = `A provider of the cloud provider contract; its cloud is a file.
  --state FILE          the cloud: a state file (see providers/README.md); created if it does not exist
  --endpoint ENDPOINT   where to serve
  --name NAME           the provider's name
  --prefix PREFIX       the prefix of provider IDs
  --cloud-scope TEXT    account, project and region
  --pool CIDR           addresses of load balancers, the first 65,536 of each; may repeat
  --provisioning-ms N   how long the cloud takes to create and to delete a load balancer`;

async function main(): Promise<void> {
  const text = (fallback: string) => ({ type: 'string', default: fallback }) as const;
  const { values } = parseArgs({
    options: {
      state: { type: 'string' },
      endpoint: text(DEFAULT_ENDPOINT),
      name: text('mock'),
      prefix: text('mock://'),
      'cloud-scope': text('mock account, mock region'),
      pool: { type: 'string', multiple: true, default: ['192.0.2.0/24', '2001:db8::/112'] },
      'provisioning-ms': text('0'),
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  if (!values.state) throw new Error("--state is missing; give the cloud's state file, such as --state cloud.json");
  values.pool.forEach(members);
  const settings: Settings = {
    name: values.name,
    prefix: values.prefix,
    cloudScope: values['cloud-scope'],
    pools: values.pool,
    classes: ['mock.grpc-ccm.io/lb'],
    sourceTypes: ['csi/disk.mock.grpc-ccm.io'],
    provisioningMs: Number(values['provisioning-ms']),
  };
  const cloud = new Cloud(values.state);
  cloud.createIfMissing();
  const stop = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop.abort());
  await serve(new Provider(cloud, settings), values.endpoint, stop.signal);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  main().then(
    () => process.exit(0),
    (error: Error) => {
      console.error(error.message);
      process.exit(1);
    },
  );
}
