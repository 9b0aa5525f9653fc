//! Elections on a real API server, with only the rights of `deploy/kustomize/base/rbac.yaml`, and
//! against a Go CCM.

use std::time::Instant as Wall;

use kube::api::{DeleteParams, Patch, PatchParams};
use testenv::{ControlPlane, Process, User, eventually};

use super::*;
use crate::kube_client;

const NAME: &str = "cloud-controller-manager";
const SOON: Duration = Duration::from_mins(1);

struct Real {
    elector: Elector,
    fence: Fence,
    stop: CancellationToken,
}

impl Real {
    /// Uses the ccm's client layer and its own service account.
    async fn new(plane: &ControlPlane, identity: &str, config: LeaderElectionConfig) -> Self {
        let kubeconfig = plane.kubeconfig(User::Ccm);
        let base = kube_client::connect_to(Some(&kubeconfig), None)
            .await
            .unwrap();
        let fence = Fence::closed();
        let metrics =
            kube_client::Metrics::register(&mut prometheus_client::registry::Registry::default());
        let clients = kube_client::clients(base, fence.clone(), &metrics, None, 1);
        let elector = Elector::new(
            clients.lease,
            config,
            identity.to_owned(),
            fence.clone(),
            Arc::new(Timestamp::now),
            1,
            Metrics::default(),
        );
        Self {
            elector,
            fence,
            stop: CancellationToken::new(),
        }
    }

    async fn lead(&self) -> Term {
        let standing = watch::Sender::new(true);
        let lead = self.elector.acquire(standing.subscribe(), &self.stop);
        let term = timeout(Duration::from_mins(2), lead).await;
        term.expect("should lead by now").unwrap()
    }
}

fn times(lease: u64, renew: u64, retry: u64) -> LeaderElectionConfig {
    LeaderElectionConfig {
        enabled: true,
        lease_duration: Duration::from_secs(lease),
        renew_deadline: Duration::from_secs(renew),
        retry_period: Duration::from_secs(retry),
        resource_name: NAME.to_owned(),
        resource_namespace: "kube-system".to_owned(),
    }
}

async fn plane() -> ControlPlane {
    let plane = ControlPlane::start().await.unwrap();
    plane.grant();
    plane
}

fn leases(plane: &ControlPlane) -> Api<Lease> {
    Api::namespaced(plane.client(), "kube-system")
}

async fn holder(leases: &Api<Lease>) -> String {
    let lease = leases.get_opt(NAME).await.unwrap();
    lease
        .as_ref()
        .map_or_else(String::new, |lease| record::holder(lease).to_owned())
}

#[tokio::test]
async fn b_m3_real_release_edit_and_deletion() {
    let plane = plane().await;
    let leases = leases(&plane);
    // `b` reads the Lease again only after two minutes, unless its watch shows the release.
    let (a, b) = (
        Real::new(&plane, "a", times(300, 200, 2)).await,
        Real::new(&plane, "b", times(300, 200, 120)).await,
    );
    let mut term = a.lead().await;
    assert_eq!(holder(&leases).await, "a");
    a.elector
        .set_annotation("grpc-ccm.io/cloud-scope-mock", "one");
    let standby = async { (b.lead().await, Wall::now()) };
    let leading = async {
        // An edit and a deletion, while renewals go on.
        let edit = json!({"metadata": {"annotations": {"note": "operator"}, "labels": {"a": "b"}}});
        leases
            .patch(NAME, &PatchParams::default(), &Patch::Merge(edit))
            .await
            .unwrap();
        let seen = a.elector.annotations();
        tokio::select! {
            lost = term.hold() => panic!("{lost}"),
            () = eventually("both annotations are there", SOON, async || {
                let lease = leases.get(NAME).await.map_err(|error| error.to_string())?;
                let annotations = lease.metadata.annotations.unwrap_or_default();
                let both = annotations.len() == 2 && annotations == *seen.borrow();
                both.then_some(()).ok_or(format!("{annotations:?}"))
            }) => {}
        }
        leases.delete(NAME, &DeleteParams::default()).await.unwrap();
        tokio::select! {
            lost = term.hold() => panic!("{lost}"),
            () = eventually("the Lease is there again", SOON, async || {
                (holder(&leases).await == "a").then_some(())
            }) => {}
        }
        assert!(a.fence.check().is_ok() && b.fence.check().is_err());
        let released = Wall::now();
        term.release().await;
        released
    };
    let ((term, taken), released) = tokio::join!(standby, leading);
    let took = taken.duration_since(released);
    assert!(took < Duration::from_mins(1), "{took:?}");
    assert_eq!(holder(&leases).await, "b");
    let managers = leases
        .get(NAME)
        .await
        .unwrap()
        .metadata
        .managed_fields
        .unwrap();
    assert!(
        managers
            .iter()
            .any(|entry| entry.manager.as_deref() == Some("ccm")),
        "{managers:?}"
    );
    term.release().await;
}

#[tokio::test]
async fn m12_real_server_stopped_closes_the_fence_in_time() {
    let mut plane = plane().await;
    let a = Real::new(&plane, "a", times(20, 4, 1)).await;
    let mut term = a.lead().await;
    plane.suspend_api_server();
    let start = Wall::now();
    let lost = timeout(SOON, term.hold()).await.unwrap();
    assert!(matches!(lost, Lost::Deadline { .. }), "{lost}");
    // Nobody else may lead for another five seconds.
    assert!(a.fence.check().is_err() && start.elapsed() < Duration::from_secs(15));
    plane.resume_api_server();
}

#[tokio::test]
async fn b_m3_real_contention_with_a_go_ccm() {
    let plane = plane().await;
    let leases = leases(&plane);
    let rust = Real::new(&plane, "rust", times(30, 20, 1)).await;
    let mut term = rust.lead().await;
    let mut command = plane.command("go-ccm");
    command
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(User::Admin))
        .args([
            "--cloud-provider=bench",
            "--leader-elect=true",
            "--leader-elect-lease-duration=20s",
            "--leader-elect-renew-deadline=16s",
            "--leader-elect-retry-period=1s",
            "--authentication-skip-lookup=true",
            "--controllers=cloud-node-controller",
            "--secure-port=0",
        ]);
    let mut go = Process::start(command, plane.directory().join("go-ccm.log")).unwrap();
    // While this process renews, Go waits: for longer than the Lease's duration.
    let held = tokio::select! {
        lost = term.hold() => panic!("{lost}"),
        held = async {
            eventually("Go stands for election", SOON, async || {
                go.log().contains("leaderelection.go").then_some(())
            }).await;
            timeout(Duration::from_secs(32), rust.fence.wait_closed()).await
        } => held,
    };
    assert!(held.is_err());
    assert_eq!(holder(&leases).await, "rust");
    term.release().await;
    eventually("Go leads", SOON, async || {
        let holder = holder(&leases).await;
        (!holder.is_empty() && holder != "rust").then_some(())
    })
    .await;
    let transitions = leases
        .get(NAME)
        .await
        .unwrap()
        .spec
        .unwrap()
        .lease_transitions;
    assert_eq!(transitions, Some(1));
    // While Go renews, this process waits: for longer than the duration of Go's Lease. A killed Go
    // CCM releases nothing, so this process waits for that duration again, by its own clock.
    let mut standing = tokio::spawn(async move { (rust.lead().await, Wall::now()) });
    let early = timeout(Duration::from_secs(22), &mut standing).await;
    assert!(early.is_err(), "both lead");
    go.kill();
    let killed = Wall::now();
    let (term, taken) = timeout(2 * SOON, standing).await.unwrap().unwrap();
    let took = taken.duration_since(killed);
    assert!(took > Duration::from_secs(12), "{took:?}");
    let spec = leases.get(NAME).await.unwrap().spec.unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("rust"), Some(2))
    );
    term.release().await;
}
