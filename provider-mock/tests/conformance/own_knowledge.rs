//! Providers that answer about zones, clusters and volumes without the cloud.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use provider_conformance::{Config, Entry, Lack, Outcome, Provider as Tested};
use provider_sdk::{
    Call, Clusters, Failure, Initialized, Node, Provider, ProviderInfo, Server, Volume,
    VolumeOptions, Volumes, Zone, Zones, async_trait,
};

use super::report_of;

const CHECKS: [&str; 11] = [
    "core/a-throttled-cloud-is-throttled",
    "core/refused-credentials-are-credentials",
    "core/a-cloud-that-is-down-is-unavailable",
    "zones/throttled",
    "zones/refused-credentials",
    "zones/unavailable",
    "clusters/list-fails-throttled",
    "clusters/list-fails-with-credentials",
    "clusters/list-fails-unavailable",
    "clusters/failing-cloud-is-not-not-found",
    "volumes/failing-cloud-is-not-not-found",
];

/// Its answers need no cloud.
struct Knowing {
    /// It knows nothing while this file is there, and takes that for the cloud's answer.
    forgets: Option<PathBuf>,
}

impl Knowing {
    fn knows(&self) -> bool {
        !self.forgets.as_ref().is_some_and(|file| file.exists())
    }
}

#[async_trait]
impl Provider for Knowing {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("knowing", "1")
    }
    async fn initialize(
        &self,
        _: &Call,
        _: &provider_sdk::InitializeRequest,
    ) -> Result<Initialized, Failure> {
        Ok(Initialized::new("one account"))
    }
    fn zones(&self) -> Option<&dyn Zones> {
        Some(self)
    }
    fn clusters(&self) -> Option<&dyn Clusters> {
        Some(self)
    }
    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }
}

#[async_trait]
impl Zones for Knowing {
    async fn zone(&self, _: &Call, node: &Node) -> Result<Zone, Failure> {
        if node.name != "node-0" {
            return Err(Failure::invalid("no such Node"));
        }
        Ok(Zone {
            zone: self.knows().then(|| "zone-a".to_owned()),
            region: None,
        })
    }
}

#[async_trait]
impl Clusters for Knowing {
    async fn list(&self, _: &Call) -> Result<Vec<String>, Failure> {
        let names = self.knows().then(|| "one".to_owned());
        Ok(names.into_iter().collect())
    }
    async fn control_plane_address(&self, _: &Call, name: &str) -> Result<String, Failure> {
        if name == "one" && self.knows() {
            return Ok("192.0.2.1".to_owned());
        }
        Err(Failure::not_found(format!("no cluster {name}")))
    }
}

#[async_trait]
impl Volumes for Knowing {
    async fn labels(&self, _: &Call, volume: &Volume) -> Result<BTreeMap<String, String>, Failure> {
        if volume.source.get("volumeHandle").map(String::as_str) != Some("disk") {
            return Err(Failure::not_found("no such disk"));
        }
        let zone = ("topology.kubernetes.io/zone", "zone-a");
        let labels = self.knows().then(|| (zone.0.to_owned(), zone.1.to_owned()));
        Ok(labels.into_iter().collect())
    }
    fn options(&self) -> VolumeOptions {
        VolumeOptions {
            source_types: vec!["csi/disk.example".to_owned()],
            ..VolumeOptions::default()
        }
    }
}

/// The checks of a cloud that fails, on this provider. The hook of the failing cloud makes the file
/// `fails` in the directory.
async fn entries(directory: &Path, knowing: Knowing) -> Vec<Entry> {
    let endpoint = format!("unix://{}/s/provider.sock", directory.display());
    let server = Server::new(knowing).endpoint(&endpoint);
    let server = tokio::spawn(server.serve(std::future::pending()));
    let there = || directory.join("s/provider.sock").exists();
    tokio::time::timeout(Duration::from_mins(1), async {
        while !there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let fails = directory.join("fails");
    let fails = fails.display();
    let config = Config::parse(
        &format!(
            "
instances: [{{name: node-0, provider_id: 'knowing://node-0'}}]
clusters: [{{name: one}}]
volumes: [{{source: {{driver: disk.example, volumeHandle: disk}}}}]
hooks: {{cloud-fail: 'if [ \"$CODE\" = NONE ]; then rm -f {fails}; else touch {fails}; fi'}}
"
        ),
        "suite.yaml",
    )
    .unwrap();
    let report = report_of(Tested::Endpoint(endpoint), config, &CHECKS).await;
    server.abort();
    assert_eq!(report.entries.len(), CHECKS.len());
    report.entries
}

/// No rule makes LookupZones, ListClusters, GetControlPlaneAddress and GetVolumeLabels ask the
/// cloud: CORE-15 is about calls that failed. What the provider knows by itself is not tested, and
/// no violation (ZONE-1, CLUSTER-1, CLUSTER-2, VOL-1).
#[tokio::test(flavor = "multi_thread")]
async fn core_15_what_the_provider_knows_without_the_cloud_breaks_no_rule() {
    let directory = tempfile::tempdir().unwrap();
    for entry in entries(directory.path(), Knowing { forgets: None }).await {
        match &entry.outcome {
            Outcome::Passed if entry.id.starts_with("core/") => {}
            Outcome::Skipped(skipped) if skipped.lack == Lack::Capability => {
                let said = skipped.reason.contains("the provider's own knowledge");
                assert!(said, "{}: {}", entry.id, skipped.reason);
            }
            _ => panic!("{entry:?}"),
        }
    }
}

/// An answer that the failing cloud changes is no knowledge: CORE-15, ZONE-1, CLUSTER-1, CLUSTER-2,
/// VOL-1.
#[tokio::test(flavor = "multi_thread")]
async fn core_15_a_provider_that_forgets_while_the_cloud_fails_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let forgets = Some(directory.path().join("fails"));
    for entry in entries(directory.path(), Knowing { forgets }).await {
        let failed = matches!(entry.outcome, Outcome::Failed(_));
        assert!(failed || entry.id.starts_with("core/"), "{entry:?}");
    }
}
