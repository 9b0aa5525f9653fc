package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

func TestClustersAndDisksAreTold(t *testing.T) {
	h := serveInitialized(t)
	stream, err := h.clusters.ListClusters(h.ctx, &contract.ListClustersRequest{Cluster: us})
	parts := drained(h, stream, err)
	h.equal(parts[0].GetClusters().Names, []string{"test"})
	address, err := h.clusters.GetControlPlaneAddress(h.ctx, &contract.GetControlPlaneAddressRequest{Cluster: us, ClusterName: "test"})
	h.check(err)
	h.equal(address.GetAddress(), "192.0.2.77")
	labels := func(driver, handle string) *contract.GetVolumeLabelsResponse {
		volume := &contract.VolumeView{Name: "v", SourceType: "csi", Source: map[string]string{"driver": driver, "volumeHandle": handle}}
		response, err := h.volumes.GetVolumeLabels(h.ctx, &contract.GetVolumeLabelsRequest{Cluster: us, Volume: volume})
		h.check(err)
		return response
	}
	h.equal(labels("disk.mock.grpc-ccm.io", "disk-1").GetLabels().Labels, map[string]string{"topology.kubernetes.io/zone": "zone-a"})
	h.equal(code(labels("disk.mock.grpc-ccm.io", "gone").GetFailed()), "NOT_FOUND")
	h.equal(len(labels("ebs.csi.aws.com", "disk-1").GetLabels().Labels), 0)
}

func TestAProbeAnswersFromMemoryWhileTheCloudIsSlow(t *testing.T) {
	h := serveInitialized(t)
	h.weather("CREDENTIALS", 0)
	h.equal(code(h.initialize(us).GetFailed()), "CREDENTIALS")
	h.weather(nil, 20_000)
	slow, stop := context.WithCancel(h.ctx)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() { _, _ = h.info.Initialize(slow, &contract.InitializeRequest{Cluster: us}) })
	}
	short, done := context.WithTimeout(h.ctx, 15*time.Second)
	defer done()
	probe, err := h.info.Probe(short, &contract.ProbeRequest{})
	h.check(err)
	h.equal(probe.State, contract.ProbeState_PROBE_STATE_DEGRADED)
	h.equal(strings.Contains(probe.Message, "CREDENTIALS"), true)
	stop()
	all.Wait()
}

func TestHintsTellWhatOthersChangedAndUnknownTokensAreAResync(t *testing.T) {
	h := serveInitialized(t)
	watch := func(token string) grpc.ServerStreamingClient[contract.WatchChangesResponse] {
		stream, err := h.info.WatchChanges(h.ctx, &contract.WatchChangesRequest{Cluster: us, ResumeToken: token})
		h.check(err)
		return stream
	}
	unknown := watch("of-another-process/1")
	first, err := unknown.Recv()
	h.check(err)
	h.equal(first.GetResync() != nil, true)
	h.edit(func(content map[string]any) {
		content["instances"] = append(content["instances"].([]any), instance("d", "running"))
	})
	second, err := unknown.Recv()
	h.check(err)
	h.equal(second.GetInstance().NodeName, "d")
	// A stream from a known token begins with a bookmark (PROV-21).
	resumed := watch(first.ResumeToken)
	bookmark, err := resumed.Recv()
	h.check(err)
	h.equal([]any{bookmark.Change, bookmark.ResumeToken}, []any{nil, first.ResumeToken})
	again, err := resumed.Recv()
	h.check(err)
	h.equal(again.ResumeToken, second.ResumeToken)
	h.stop()
	if _, err = unknown.Recv(); err != io.EOF { // Status OK.
		t.Fatal(err)
	}
}

func TestAtShutdownACallInFlightMayFinish(t *testing.T) {
	h := serve(t)
	_, err := h.info.GetProviderInfo(h.ctx, &contract.GetProviderInfoRequest{})
	h.check(err)
	h.weather(nil, 1_000)
	answered := make(chan error, 1)
	go func() {
		response, err := h.info.Initialize(h.ctx, &contract.InitializeRequest{Cluster: us})
		if err == nil && response.GetInitialized() == nil {
			err = fmt.Errorf("%v", response)
		}
		answered <- err
	}()
	h.arrived("Initialize")
	h.stop()
	h.check(<-answered)
	h.check(<-h.served)
	h.served <- nil
	if _, err := os.Lstat(strings.TrimPrefix(h.endpoint, "unix://")); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

func TestACallThatEndsBeforeItsWriteAccusesNotTheCloud(t *testing.T) {
	h := serveInitialized(t)
	ctx, cancel := context.WithCancel(h.ctx)
	err := h.provider.cloud.Write(ctx, func(*State) (*Write, error) {
		cancel()
		return &Write{Line: "create load balancer lb-1"}, nil
	})
	if err == nil {
		t.Fatal("it wrote")
	}
	if health := h.provider.Health(); health.State == sdk.HealthDegraded {
		t.Errorf("PROV-16: %v", health)
	}
}
