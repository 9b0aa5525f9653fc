package provider;

import cloudprovider.v1alpha1.ClusterNames;
import cloudprovider.v1alpha1.ClusterServiceGrpc.ClusterServiceImplBase;
import cloudprovider.v1alpha1.GetControlPlaneAddressRequest;
import cloudprovider.v1alpha1.GetControlPlaneAddressResponse;
import cloudprovider.v1alpha1.GetVolumeLabelsRequest;
import cloudprovider.v1alpha1.GetVolumeLabelsResponse;
import cloudprovider.v1alpha1.ListClustersRequest;
import cloudprovider.v1alpha1.ListClustersResponse;
import cloudprovider.v1alpha1.VolumeLabels;
import cloudprovider.v1alpha1.VolumeServiceGrpc.VolumeServiceImplBase;
import cloudprovider.v1alpha1.VolumeView;
import com.fasterxml.jackson.databind.JsonNode;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.List;

/** ClusterService and VolumeService. */
final class ClustersVolumes {
  private ClustersVolumes() {}

  static final class Clusters extends ClusterServiceImplBase {
    private final Provider provider;

    Clusters(Provider provider) {
      this.provider = provider;
    }

    @Override
    public void listClusters(ListClustersRequest request, StreamObserver<ListClustersResponse> out) {
      provider.<String, ListClustersResponse>listing("ListClusters", request.getCluster(), out,
          failure -> ListClustersResponse.newBuilder().setFailed(failure).build(),
          end -> ListClustersResponse.newBuilder().setEnd(end).build(),
          part -> List.of(ListClustersResponse.newBuilder().setClusters(ClusterNames.newBuilder().addAllNames(part)).build()),
          owner -> {
            List<String> names = new ArrayList<>();
            provider.cloud.catalogue().path("clusters").fieldNames().forEachRemaining(names::add);
            return names;
          });
    }

    @Override
    public void getControlPlaneAddress(GetControlPlaneAddressRequest request, StreamObserver<GetControlPlaneAddressResponse> out) {
      provider.answer("GetControlPlaneAddress", request.getCluster(), out, failure -> GetControlPlaneAddressResponse.newBuilder().setFailed(failure).build(), owner -> {
        JsonNode address = provider.cloud.catalogue().path("clusters").path(request.getClusterName());
        if (!address.isTextual()) throw new Fail("NOT_FOUND", "the cloud knows no cluster \"" + request.getClusterName() + "\"");
        return GetControlPlaneAddressResponse.newBuilder().setAddress(address.asText()).build();
      });
    }
  }

  static final class Volumes extends VolumeServiceImplBase {
    private final Provider provider;

    Volumes(Provider provider) {
      this.provider = provider;
    }

    @Override
    public void getVolumeLabels(GetVolumeLabelsRequest request, StreamObserver<GetVolumeLabelsResponse> out) {
      provider.answer("GetVolumeLabels", request.getCluster(), out, failure -> GetVolumeLabelsResponse.newBuilder().setFailed(failure).build(), owner -> {
        if (!request.hasVolume()) throw new Fail("INVALID", "the request has no volume");
        VolumeView volume = request.getVolume();
        String driver = volume.getSourceOrDefault("driver", "");
        String source = volume.getSourceType().equals("csi") && !driver.isEmpty() ? "csi/" + driver : volume.getSourceType();
        VolumeLabels.Builder labels = VolumeLabels.newBuilder();
        if (provider.settings.sourceTypes().contains(source)) {
          JsonNode disks = provider.cloud.catalogue().path("volumes");
          String disk = volume.getSourceMap().values().stream().filter(disks::has).findFirst().orElse(null);
          if (disk == null) throw new Fail("NOT_FOUND", "the cloud knows no disk of volume \"" + volume.getName() + "\"");
          disks.get(disk).fields().forEachRemaining(label -> labels.putLabels(label.getKey(), label.getValue().asText()));
        } // Another cloud's volume: no labels (VOL-1).
        return GetVolumeLabelsResponse.newBuilder().setLabels(labels).build();
      });
    }
  }
}
