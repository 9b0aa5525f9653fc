//! The cluster that the provider works for (CORE-10).

use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::check::{Check, Need, Verdict, check, must};
use super::super::run::Run;
use super::tour::{self, Service};

const CALL: Duration = Duration::from_secs(30);
const NOT_INITIALIZED: &[FailureCode] = &[FailureCode::NotInitialized];
/// A request without an owner is invalid, and no provider is initialised for an empty owner ID. So
/// both codes are right.
const NO_OWNER: &[FailureCode] = &[FailureCode::Invalid, FailureCode::NotInitialized];

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/another-owner-is-not-initialized-for-instances",
            ["CORE-10"],
            "InstanceService answers NOT_INITIALIZED to another owner ID than the initialised one",
            [Need::Instances],
            |run| other(run, Service::Instances)
        ),
        check!(
            "core/another-owner-is-not-initialized-for-zones",
            ["CORE-10"],
            "ZoneService answers NOT_INITIALIZED to another owner ID than the initialised one",
            [Need::Zones],
            |run| other(run, Service::Zones)
        ),
        check!(
            "core/another-owner-is-not-initialized-for-load-balancers",
            ["CORE-10"],
            "LoadBalancerService answers NOT_INITIALIZED to another owner ID than the initialised one",
            [Need::LoadBalancers],
            |run| other(run, Service::LoadBalancers)
        ),
        check!(
            "core/another-owner-is-not-initialized-for-routes",
            ["CORE-10"],
            "RouteService answers NOT_INITIALIZED to another owner ID than the initialised one",
            [Need::Routes],
            |run| other(run, Service::Routes)
        ),
        check!(
            "core/another-owner-is-not-initialized-for-clusters",
            ["CORE-10"],
            "ClusterService answers NOT_INITIALIZED to another owner ID than the initialised one",
            [Need::Clusters],
            |run| other(run, Service::Clusters)
        ),
        check!(
            "core/another-owner-is-not-initialized-for-volumes",
            ["CORE-10"],
            "VolumeService answers NOT_INITIALIZED to another owner ID than the initialised one",
            [Need::Volumes],
            |run| other(run, Service::Volumes)
        ),
        check!(
            "core/a-new-process-is-not-initialized",
            ["CORE-10", "CORE-6"],
            "before Initialize a new process answers NOT_INITIALIZED to the RPCs of all services but ProviderService, whatever the former process knew",
            [Need::Command],
            new_process
        ),
        check!(
            "core/a-previous-owner-is-not-initialized",
            ["CORE-10"],
            "calls for a previous owner ID are NOT_INITIALIZED",
            [Need::Instances],
            previous_owner
        ),
        check!(
            "core/a-request-without-a-cluster-is-refused",
            ["CORE-10", "CORE-4"],
            "a request without a cluster is `failed` with INVALID or NOT_INITIALIZED (Initialize: INVALID)",
            no_cluster
        ),
        check!(
            "core/a-request-without-an-owner-id-is-refused",
            ["CORE-10", "CORE-4"],
            "a request whose cluster has no owner ID is `failed` with INVALID or NOT_INITIALIZED (Initialize: INVALID)",
            no_owner
        ),
        check!(
            "core/the-clusters-name-is-no-identity",
            ["CORE-10"],
            "another cluster name with the same owner ID is the same cluster",
            [Need::Instances],
            other_name
        ),
        check!(
            "core/initialize-holds-on-every-connection",
            ["CORE-10"],
            "Initialize on one connection holds for the others after that connection has ended",
            [Need::Instances],
            other_connection
        ),
    ]
}

fn all_refused(told: &[tour::Told], codes: &[FailureCode]) -> Verdict {
    told.iter()
        .try_for_each(|told| told.must_fail("CORE-10", codes))
}

async fn other(run: &Run, of: Service) -> Verdict {
    let session = run.session().await?;
    let stranger = session.speaking_for(run.other_cluster("stranger"));
    all_refused(&tour::service(run, &stranger, of).await, NOT_INITIALIZED)
}

async fn new_process(run: &Run) -> Verdict {
    run.session().await?;
    run.target().restart().await?;
    let session = run.connect().await?;
    all_refused(&tour::everything(run, &session).await, NOT_INITIALIZED)
}

async fn previous_owner(run: &Run) -> Verdict {
    let former = run.other_cluster("former");
    let session = run.session_for(run.cluster(), &[&former.owner_id]).await?;
    let told = tour::service(run, &session.speaking_for(former), Service::Instances).await;
    all_refused(&told, NOT_INITIALIZED)
}

async fn no_cluster(run: &Run) -> Verdict {
    let session = run.session().await?;
    let offered = run.capabilities();
    if offered.instances.is_some() {
        let asked = session.call_as_is(tour::lookup(run), CALL).await;
        asked.failure("CORE-10", NO_OWNER)?;
    }
    if offered.load_balancers.is_some() {
        let asked = session.call_as_is(tour::get_load_balancer(run), CALL).await;
        asked.failure("CORE-10", NO_OWNER)?;
    }
    if offered.routes.is_some() {
        let listed = session
            .list_as_is(pb::ListRoutesRequest::default(), CALL)
            .await;
        listed.failure("CORE-10", NO_OWNER)?;
    }
    if offered.volumes.is_some() {
        let asked = session.call_as_is(tour::volume(run), CALL).await;
        asked.failure("CORE-10", NO_OWNER)?;
    }
    let asked = session
        .call_as_is(pb::InitializeRequest::default(), CALL)
        .await;
    asked
        .failure("CORE-10", &[FailureCode::Invalid])
        .map(|_| ())
}

async fn no_owner(run: &Run) -> Verdict {
    let session = run.session().await?;
    let nobody = session.speaking_for(pb::ClusterRef {
        name: "nobody".into(),
        owner_id: String::new(),
    });
    all_refused(&tour::everything(run, &nobody).await, NO_OWNER)?;
    let asked = nobody.call(pb::InitializeRequest::default()).await;
    asked.failure("CORE-10", &[FailureCode::Invalid])?;
    // A refused Initialize changes nothing.
    let told = tour::everything(run, &session).await;
    told.iter().try_for_each(|told| {
        let forgotten = told.failures.as_ref().is_ok_and(|failures| {
            failures
                .iter()
                .any(|failure| failure.code() == FailureCode::NotInitialized)
        });
        told.must(
            !forgotten,
            "CORE-10",
            "not NOT_INITIALIZED: the refused Initialize replaced nothing".into(),
        )
    })
}

async fn other_name(run: &Run) -> Verdict {
    let session = run.session().await?;
    let renamed = session.speaking_for(pb::ClusterRef {
        name: "renamed".into(),
        ..run.cluster()
    });
    let asked = renamed.call(tour::lookup(run)).await;
    asked.success("CORE-10").map(|_| ())
}

async fn other_connection(run: &Run) -> Verdict {
    let before = run.connect().await?;
    let first = run.session().await?;
    drop(first);
    for session in [before, run.connect().await?] {
        let asked = session.call(tour::lookup(run)).await;
        let refused = asked.answer()?.failed.as_ref();
        must(
            refused.is_none(),
            "CORE-10",
            "Initialize on another connection, which was closed; then LookupInstances",
            "it is answered: a process is initialised, not a connection",
            format_args!("{refused:?}"),
        )?;
    }
    Ok(())
}
