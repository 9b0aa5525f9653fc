//! The ccm uses all rights of `deploy/kustomize/base/rbac.yaml`, and no others except those of two
//! roles of the cluster and of everybody.

mod alone;
mod missing;

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{Patch, PatchParams, PostParams};
use provider_mock::Fixture;
use serde_json::{Value, json};
use testenv::manifests::{objects, render};
use testenv::objects::{LoadBalancerBuilder, set_ready};
use testenv::{User, deployed, eventually, free_port};

use crate::proxy::{Proxy, Rule};
use crate::world::{SOON, World, said, taints};

/// A file of `deploy/`.
fn file(name: &str) -> String {
    std::fs::read_to_string(deployed(name)).unwrap()
}

/// `group/resource verb` of what the file grants.
pub fn granted(text: &str) -> BTreeSet<String> {
    objects(text).iter().flat_map(granted_by).collect()
}

/// As [`granted`], for one role.
fn granted_by(role: &Value) -> BTreeSet<String> {
    let mut granted = BTreeSet::new();
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().cloned().unwrap_or_default();
        words
            .iter()
            .filter_map(|word| Some(word.as_str()?.to_owned()))
            .collect()
    };
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    granted.insert(format!("{group}/{resource} {verb}"));
                }
            }
        }
    }
    granted
}

/// As [`granted`], for each service account that a role of this text is bound to.
fn granted_to(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let objects = objects(text);
    let mut granted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for binding in &objects {
        let to = &binding["roleRef"];
        let role = objects.iter().find(|object| {
            object["kind"] == to["kind"] && object["metadata"]["name"] == to["name"]
        });
        let Some(role) = role else { continue };
        for subject in binding["subjects"].as_array().unwrap() {
            let (namespace, name) = (&subject["namespace"], &subject["name"]);
            let (namespace, name) = (namespace.as_str().unwrap(), name.as_str().unwrap());
            let account = format!("system:serviceaccount:{namespace}:{name}");
            granted.entry(account).or_default().extend(granted_by(role));
        }
    }
    granted
}

/// The chart's roles, bindings and service accounts with these values: of the ccm and of its
/// controllers' accounts.
pub fn of_chart(values: &Value) -> String {
    let mut values = values.clone();
    values["provider"]["image"]["repository"] = "provider-mock".into();
    let mut objects = objects(&render(&values, &[]).unwrap());
    objects.retain(|object| {
        let kind = object["kind"].as_str().unwrap();
        kind.contains("Role") || kind == "ServiceAccount"
    });
    let documents: Vec<_> = objects.iter().map(Value::to_string).collect();
    documents.join("\n---\n")
}

/// `group/resource verb` of the ccm's requests in the log, with the codes of the answers. A request
/// without a resource has its path.
pub fn asked(log: &str) -> Asked {
    asked_by(log, &[User::Ccm.name()])
}

fn asked_by(log: &str, users: &[&str]) -> Asked {
    let mut asked = Asked::new();
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let user = entry["user"]["username"].as_str().unwrap_or_default();
        if !users.contains(&user) {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &entry["objectRef"];
        let what = if object.is_null() {
            text(&entry["requestURI"])
        } else {
            let subresource = match object["subresource"].as_str() {
                Some(name) => format!("/{name}"),
                None => String::new(),
            };
            format!(
                "{}/{}{subresource}",
                text(&object["apiGroup"]),
                text(&object["resource"])
            )
        };
        let code = entry["responseStatus"]["code"].as_u64().unwrap_or(0);
        asked
            .entry(format!("{what} {}", text(&entry["verb"])))
            .or_default()
            .insert(code);
    }
    asked
}

type Asked = BTreeMap<String, BTreeSet<u64>>;

fn nothing_refused(asked: &Asked) {
    let refused: Vec<_> = asked
        .iter()
        .filter(|(_, codes)| codes.contains(&403))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Checks that all requests are in `granted`, except for those that everybody may make.
fn no_more_asked(asked: &Asked, granted: &BTreeSet<String>, everybody: &[&str], whose: &str) {
    let more: Vec<_> = asked
        .keys()
        .filter(|what| !granted.contains(*what) && !everybody.contains(&what.as_str()))
        .collect();
    assert!(more.is_empty(), "asked and not in {whose}: {more:?}");
}

/// Checks that all granted rights were used.
fn all_used(granted: &BTreeSet<String>, asked: &Asked, whose: &str) {
    let unused = unused(granted, asked);
    assert!(unused.is_empty(), "in {whose} and not used: {unused:?}");
}

fn unused<'a>(granted: &'a BTreeSet<String>, asked: &Asked) -> Vec<&'a String> {
    let unused = granted.iter().filter(|what| !asked.contains_key(*what));
    unused.collect()
}

/// Checks that nothing was refused to the ccm and its controllers' service accounts, and that each
/// account used all rights that this file of `deploy/` grants to it and that `of` selects.
pub fn hold(world: &World, name: &str, of: impl Fn(&str) -> bool) {
    all_hold(world, &file(name), &format!("deploy/{name}"), of);
}

/// As [`hold`], for the rights in this text.
pub fn all_hold(world: &World, text: &str, whose: &str, of: impl Fn(&str) -> bool) {
    let log = world.audit_log();
    let account = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    let accounts = [
        "node-controller",
        "service-controller",
        "route-controller",
        "pvl-controller",
    ]
    .map(account);
    let mut users = vec![User::Ccm.name()];
    users.extend(accounts.iter().map(String::as_str));
    nothing_refused(&asked_by(&log, &users));
    let granted = granted_to(text);
    assert!(!granted.is_empty(), "{whose} grants nobody anything");
    for (account, mut granted) in granted {
        granted.retain(|what| of(what));
        let asked = asked_by(&log, &[&account]);
        all_used(&granted, &asked, &format!("{whose} for {account}"));
    }
}

#[tokio::test]
async fn b_m5_everything_that_the_ccm_asks_is_granted_and_everything_that_is_granted_is_asked() {
    let mut world = World::audited(Fixture::default()).await;
    let port = free_port();
    let proxy = Proxy::start(&world.plane).await;
    let mut ccm = world.ccm(&[
        &proxy.flag(),
        "--node-monitor-period=1s",
        "--node-deletion-brake=min-age=1s",
        &format!("--secure-port={port}"),
        "--bind-address=127.0.0.1",
    ]);
    world.led_by(&ccm).await;
    let standby = world.ccm(&[]);
    said(&standby, "another process leads").await;
    for name in ["node-1", "node-2", "node-3"] {
        world.join(name).await;
    }
    for name in ["node-1", "node-2", "node-3"] {
        world.initialised(name).await;
    }
    // A Node that stops, and comes back.
    world.instance_stops("node-2").await;
    world.cloud().start_instance("node-2").unwrap();
    set_ready(&world.client, "node-2", "True").await.unwrap();
    world
        .node_becomes("node-2", "the taint is gone", |node| {
            taints(node).is_empty()
        })
        .await;
    // A Node whose instance is gone.
    world.instance_and_node_go("node-1").await;
    // A Service: created, with a conflict; changed; deleted.
    proxy.answer(Rule::new("PATCH", "/services/web", 1, 409));
    let services = world.services();
    world.balanced("web").await;
    let local = Patch::Merge(json!({"spec": {"externalTrafficPolicy": "Local"}}));
    services
        .patch("web", &PatchParams::default(), &local)
        .await
        .unwrap();
    let ensured = world
        .cloud()
        .wait_until(SOON, |cloud| cloud.call_count("EnsureLoadBalancer") == 2);
    assert!(ensured.await);
    world.delete_service("web").await;
    world.service_goes("web").await;
    // A caller of the HTTPS port.
    let status = crate::input::get(port, "/metrics", Some("testenv-admin"))
        .await
        .0;
    assert_eq!(status, 200);
    // The ccm makes no SubjectAccessReview for the first caller, who is in system:masters.
    let status = crate::input::get(port, "/metrics", Some("testenv-nobody"))
        .await
        .0;
    assert_eq!(status, 403);
    // A repeated event is a patch of the first.
    for round in ["one", "two"] {
        let calls = world.cloud().call_count("EnsureLoadBalancer");
        let fault =
            provider_mock::Fault::failure("EnsureLoadBalancer", provider_sdk::FailureCode::Invalid);
        world.cloud().set_fault(fault.times(1)).unwrap();
        let service = LoadBalancerBuilder::new("default", "wrong").build();
        if round == "one" {
            services
                .create(&PostParams::default(), &service)
                .await
                .unwrap();
        } else {
            let change = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
            services
                .patch("wrong", &PatchParams::default(), &change)
                .await
                .unwrap();
        }
        let more = world
            .cloud()
            .wait_until(SOON, |cloud| cloud.call_count("EnsureLoadBalancer") > calls);
        assert!(more.await);
    }
    world.event("wrong", "Warning SyncLoadBalancerFailed").await;
    ccm.terminate();
    assert_eq!(ccm.wait(SOON).await.unwrap().code(), Some(0));

    let log = world.audit_log();
    let asked = asked(&log);
    nothing_refused(&asked);
    let mut granted = granted(include_str!("../../../../deploy/kustomize/base/rbac.yaml"));
    // The rights of the role system:auth-delegator, to which the ccm is bound.
    granted.insert("authentication.k8s.io/tokenreviews create".into());
    granted.insert("authorization.k8s.io/subjectaccessreviews create".into());
    // A right of the role extension-apiserver-authentication-reader. The role also has list and
    // watch.
    granted.insert("/configmaps get".into());
    // Everybody may ask for the version.
    let rbac = "deploy/kustomize/base/rbac.yaml";
    no_more_asked(&asked, &granted, &["/version get"], rbac);
    all_used(&granted, &asked, rbac);
}
