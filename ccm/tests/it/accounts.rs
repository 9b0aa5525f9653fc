//! `--use-service-account-credentials`: controllers write as service accounts of their own.

use std::collections::{BTreeMap, BTreeSet};

use provider_mock::Fixture;
use serde_json::{Value, json};
use testenv::{User, eventually};

use crate::api_server::rights::{all_hold, of_chart};
use crate::world::{SOON, World};

const ACCOUNT: &str = "system:serviceaccount:kube-system:";
const RIGHTS: &str = "kustomize/components/service-account-credentials/rbac.yaml";

/// The service accounts that wrote each resource, by the API server's audit log. Refused requests
/// count too.
pub fn writers(world: &World) -> BTreeMap<String, BTreeSet<String>> {
    let log = world.audit_log();
    let mut writers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let user = entry["user"]["username"].as_str().unwrap_or_default();
        let verb = entry["verb"].as_str().unwrap_or_default();
        let Some(account) = user.strip_prefix(ACCOUNT) else {
            continue;
        };
        if ["get", "list", "watch"].contains(&verb) {
            continue;
        }
        let resource = entry["objectRef"]["resource"].as_str().unwrap_or_default();
        writers
            .entry(resource.to_owned())
            .or_default()
            .insert(account.to_owned());
    }
    writers
}

/// The ccm has only the rights that the chart grants for this flag.
#[tokio::test]
async fn b_m5_each_controller_writes_as_its_own_service_account_and_only_as_that() {
    let rights = of_chart(&json!({"serviceAccountCredentials": {"enabled": true}}));
    let mut world = World::with_rights(Fixture::default(), &rights).await;
    let ccm = world.ccm(&[
        "--use-service-account-credentials",
        "--node-monitor-period=1s",
        "--node-deletion-brake=min-age=1s",
    ]);
    world.led_by(&ccm).await;
    for name in ["node-1", "node-2", "node-3"] {
        world.join(name).await;
        world.initialised(name).await;
    }
    world.instance_and_node_go("node-1").await;
    world.service_comes_and_goes("web").await;

    let writers = writers(&world);
    let own = User::Ccm.name().trim_start_matches(ACCOUNT);
    for (resource, account) in [
        ("nodes", "node-controller"),
        ("services", "service-controller"),
        // Resources of the process, not of a controller.
        ("leases", own),
        ("serviceaccounts", own),
    ] {
        let expected = BTreeSet::from([account.to_owned()]);
        assert_eq!(
            writers.get(resource),
            Some(&expected),
            "{resource}: {writers:?}"
        );
    }
    let events = &writers["events"];
    for account in ["node-controller", "service-controller"] {
        assert!(events.contains(account), "{account}: {writers:?}");
    }
    // This test does not need the use of two rights: to watch the Lease, and to repeat an event.
    let others = ["coordination.k8s.io/leases watch", "/events patch"];
    let used = |what: &str| !others.contains(&what);
    all_hold(&world, &rights, "what the chart grants", used);
}

#[tokio::test]
async fn b_m5_what_an_account_may_not_is_refused_whatever_the_process_itself_may() {
    let mut world = World::new(Fixture::default()).await;
    world.apply(RIGHTS);
    // The process may patch Nodes still; the account of the node controller may not any more.
    let taken = world
        .plane
        .kubectl()
        .args([
            "delete",
            "clusterrolebinding",
            "system:controller:node-controller",
        ])
        .output()
        .unwrap();
    assert!(taken.status.success(), "{taken:?}");
    let ccm = world.ccm(&["--use-service-account-credentials"]);
    world.led_by(&ccm).await;
    world.join("node-1").await;
    eventually("it is refused", SOON, async || {
        let log = ccm.log();
        let refused = log.lines().any(|line| {
            line.contains("kube-system:node-controller") && line.contains("cannot patch")
        });
        if refused { Ok(()) } else { Err(log) }
    })
    .await;
}
