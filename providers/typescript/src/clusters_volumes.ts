/** ClusterService and VolumeService. */
import { Fail } from './cloud.js';
import type { ClusterServiceHandlers } from './contract/cloudprovider/v1alpha1/ClusterService.js';
import type { VolumeServiceHandlers } from './contract/cloudprovider/v1alpha1/VolumeService.js';
import { listing, type Provider, quoted, unary } from './service.js';

export function clusterService(provider: Provider): ClusterServiceHandlers {
  return {
    ListClusters: listing(provider, 'ListClusters', (names: string[]) => [{ clusters: { names } }], async (_, { signal }) => {
      return Object.keys((await provider.cloud.catalogue(signal)).clusters).sort();
    }),
    GetControlPlaneAddress: unary(provider, 'GetControlPlaneAddress', async (request, { signal }) => {
      const address = new Map(Object.entries((await provider.cloud.catalogue(signal)).clusters)).get(request.clusterName);
      if (address === undefined) throw new Fail('NOT_FOUND', `the cloud knows no cluster ${quoted(request.clusterName)}`);
      return { address };
    }),
  };
}

export function volumeService(provider: Provider): VolumeServiceHandlers {
  return {
    GetVolumeLabels: unary(provider, 'GetVolumeLabels', async ({ volume }, { signal }) => {
      if (!volume) throw new Fail('INVALID', 'the request has no volume');
      const fields = volume.source;
      const source = volume.sourceType === 'csi' && fields.driver ? `csi/${fields.driver}` : volume.sourceType;
      if (!provider.settings.sourceTypes.includes(source)) return { labels: { labels: {} } }; // Another cloud's volume: no labels (VOL-1).
      const disks = new Map(Object.entries((await provider.cloud.catalogue(signal)).volumes));
      const disk = Object.values(fields).find((value) => disks.has(value));
      if (disk === undefined) throw new Fail('NOT_FOUND', `the cloud knows no disk of volume ${quoted(volume.name)}`);
      return { labels: { labels: disks.get(disk) } };
    }),
  };
}
