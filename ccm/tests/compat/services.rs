//! Load balancers for Services.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testenv::objects::{LoadBalancerBuilder, NodeBuilder};

use crate::scenario::{Facts, Scenario, fact, nothing};
use crate::side::Side;

mod life;
mod targets;

use life::life;
pub use targets::steps;

/// Lines of events. Other modules use them too.
pub const ENSURING: &str = "event on the service: Normal EnsuringLoadBalancer: Ensuring load balancer [service-controller]";
pub const ENSURED: &str =
    "event on the service: Normal EnsuredLoadBalancer: Ensured load balancer [service-controller]";
pub const UPDATED: &str = "event on the service: Normal UpdatedLoadBalancer: Updated load balancer with new hosts [service-controller]";

const ENSURE: &str = "EnsureLoadBalancer";
const DELETE: &str = "DeleteLoadBalancer";

/// The Nodes that are targets of all load balancers when this group begins.
const TARGETS: [&str; 3] = ["target-1", "target-2", "target-3"];

impl Scenario {
    /// No load balancer is created, and the ccm stores the provider on the Service as long as the
    /// Service has the finalizer.
    fn claimed(self) -> Self {
        let claim = format!(
            r#"{{"provider":"mock","uid":"<uid of {}>","class":""}}"#,
            self.name
        );
        self.differs(
            "▲S19",
            "the ccm records the provider on the Service",
            "service metadata annotations grpc-ccm.io/load-balancer",
            None,
            Some(&claim),
        )
    }

    /// The ccm stores the handle on the Service.
    fn stored(self) -> Self {
        let stored = format!(
            r#"{{"provider":"mock","uid":"<uid of {}>","class":"","handle":"<handle>"}}"#,
            self.name
        );
        self.differs(
            "▲S19",
            "the ccm stores the provider's handle on the Service",
            "service metadata annotations grpc-ccm.io/load-balancer",
            None,
            Some(&stored),
        )
    }
}

/// The scenarios before the first Node joins.
pub fn before_nodes() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "no-nodes",
            "a Service is created while there is no Node",
            &["B-S1", "B-S3"],
            async |side: Side, name| {
                side.namespace(name).await;
                side.create_service(balancer(name)).await;
                side.balanced(name).await;
                nothing()
            },
        )
        .stored(),
    ]
}

/// The Nodes of this group join, with their instances.
pub async fn targets_join(side: &Side) {
    for name in TARGETS {
        let zone = if name == "target-3" {
            "zone-2"
        } else {
            "zone-1"
        };
        let instance = crate::nodes::instance(name).place(zone, "region-1");
        side.cloud().add_instance(instance).unwrap();
        side.register(NodeBuilder::new(name).uninitialized()).await;
    }
    for name in TARGETS {
        side.initialised(name).await;
    }
    // The ccm lets changes of Nodes settle before it updates the targets.
    side.cloud_is("the new targets are targets", |cloud| {
        let balancers = cloud.load_balancers();
        balancers.iter().all(|balancer| balancer.targets == TARGETS)
    })
    .await;
}

/// Deletes all Services outside of `default`, as their users would.
pub async fn all_go(side: &Side) {
    let services: kube::Api<k8s_openapi::api::core::v1::Service> = kube::Api::all(side.client());
    let all = services.list(&ListParams::default()).await.unwrap();
    for service in all {
        let namespace = service.metadata.namespace.unwrap_or_default();
        if namespace != "default" {
            side.services(&namespace)
                .delete("web", &DeleteParams::default())
                .await
                .unwrap();
        }
    }
}

fn balancer(namespace: &str) -> LoadBalancerBuilder {
    LoadBalancerBuilder::new(namespace, "web")
}

fn subject(namespace: &str) -> String {
    format!("{namespace}/web")
}

async fn made(side: &Side, namespace: &str, service: LoadBalancerBuilder) {
    side.namespace(namespace).await;
    side.create_service(service).await;
    side.balanced(namespace).await;
}

/// A user changes a field that matters, and the controller calls Ensure once more.
fn matters(name: &'static str, what: &'static str, patch: Value) -> Scenario {
    Scenario::new(name, what, &["B-S4"], move |side: Side, name| {
        let patch = patch.clone();
        async move {
            made(&side, name, balancer(name)).await;
            side.edit_service(name, patch).await;
            side.asked_times(ENSURE, &subject(name), 2).await;
            ensured(&side, name).await
        }
    })
    .stored()
}

/// A user changes a field that does not matter. Both controllers must call Ensure equally often.
fn no_matter(name: &'static str, what: &'static str, patch: Value) -> Scenario {
    Scenario::new(name, what, &["B-S4"], move |side: Side, name| {
        let patch = patch.clone();
        async move {
            made(&side, name, balancer(name)).await;
            side.edit_service(name, patch).await;
            side.renewals(4).await;
            ensured(&side, name).await
        }
    })
    .stored()
}

/// How often Ensure was called.
async fn ensured(side: &Side, namespace: &str) -> Facts {
    fact("calls of Ensure", &side.asked(ENSURE, &subject(namespace)))
}

/// A patch that gives the Service's one port this change.
fn port(change: &Value) -> Value {
    let mut port = json!({"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080});
    for (key, value) in change.as_object().unwrap() {
        port[key] = value.clone();
    }
    json!({"spec": {"ports": [port]}})
}

fn spec(change: &Value) -> Value {
    json!({"spec": change})
}

/// The scenarios with the Nodes of this group.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = life();
    all.extend(matter());
    all.extend(do_not_matter());
    all
}

/// Fields that matter (B-S4).
fn matter() -> Vec<Scenario> {
    let later = json!({"metadata": {"annotations": {"example.com/later": "yes"}}});
    let two = spec(&json!({"ports": [
        {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080},
        {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 8443}
    ]}));
    let ranges = spec(&json!({"loadBalancerSourceRanges": ["198.51.100.0/24"]}));
    let affinity = spec(&json!({"sessionAffinity": "ClientIP"}));
    let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30_012});
    let dual = json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]});
    vec![
        matters("source-ranges", "source ranges are set", ranges),
        matters(
            "port-number",
            "a port gets another number",
            port(&json!({"port": 81})),
        ),
        matters(
            "port-name",
            "a port gets another name",
            port(&json!({"name": "web"})),
        ),
        matters(
            "port-protocol",
            "a port becomes UDP",
            port(&json!({"protocol": "UDP"})),
        ),
        matters(
            "target-port",
            "a port gets another target port",
            port(&json!({"targetPort": 9090})),
        ),
        matters(
            "node-port",
            "a port gets another node port",
            port(&json!({"nodePort": 30_011})),
        ),
        matters(
            "app-protocol",
            "a port gets an app protocol",
            port(&json!({"appProtocol": "http"})),
        ),
        matters("port-added", "a port is added", two),
        matters("affinity", "session affinity is set", affinity),
        matters(
            "external-ips",
            "external IPs are set",
            spec(&json!({"externalIPs": ["198.51.100.7"]})),
        ),
        matters("annotation", "an annotation is set", later),
        matters(
            "traffic-local",
            "the traffic policy becomes Local",
            spec(&json!({"externalTrafficPolicy": "Local"})),
        ),
        matters(
            "health-port",
            "the traffic policy becomes Local with a health check port",
            spec(&local),
        ),
        matters("dual-stack", "a second IP family is added", spec(&dual)),
        matters(
            "load-balancer-ip",
            "loadBalancerIP is set",
            spec(&json!({"loadBalancerIP": "192.0.2.200"})),
        ),
        Scenario::new(
            "ranges-cleared",
            "source ranges are set, then cleared",
            &["B-S4"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                let ranges = spec(&json!({"loadBalancerSourceRanges": ["198.51.100.0/24"]}));
                side.edit_service(name, ranges).await;
                side.asked_times(ENSURE, &subject(name), 2).await;
                side.edit_service(name, spec(&json!({"loadBalancerSourceRanges": null})))
                    .await;
                side.asked_times(ENSURE, &subject(name), 3).await;
                ensured(&side, name).await
            },
        )
        .stored(),
        Scenario::new(
            "affinity-timeout",
            "the timeout of session affinity is changed",
            &["B-S4"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                side.edit_service(name, spec(&json!({"sessionAffinity": "ClientIP"})))
                    .await;
                side.asked_times(ENSURE, &subject(name), 2).await;
                let timeout =
                    json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 100}}});
                side.edit_service(name, spec(&timeout)).await;
                side.asked_times(ENSURE, &subject(name), 3).await;
                ensured(&side, name).await
            },
        )
        .stored(),
    ]
}

/// Fields that do not matter (B-S4), and Services of another type or class (B-S1).
fn do_not_matter() -> Vec<Scenario> {
    let labels = json!({"metadata": {"labels": {"team": "blue"}}});
    let finalizers = [
        "service.kubernetes.io/load-balancer-cleanup",
        "example.com/keep",
    ];
    let finalizers = json!({"metadata": {"finalizers": finalizers}});
    vec![
        no_matter("labels", "labels are changed", labels),
        no_matter(
            "selector",
            "the selector is changed",
            spec(&json!({"selector": {"app": "other"}})),
        ),
        no_matter(
            "not-ready-too",
            "not ready addresses are published",
            spec(&json!({"publishNotReadyAddresses": true})),
        ),
        no_matter(
            "internal-policy",
            "the internal traffic policy is changed",
            spec(&json!({"internalTrafficPolicy": "Local"})),
        ),
        no_matter(
            "other-finalizer",
            "somebody else adds a finalizer",
            finalizers,
        ),
        Scenario::new(
            "status-edited",
            "a user edits the status",
            &["B-S4"],
            async |side: Side, name| {
                made(&side, name, balancer(name)).await;
                let status =
                    json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}});
                let services = side.services(name);
                services
                    .patch_status("web", &PatchParams::default(), &Patch::Merge(status))
                    .await
                    .unwrap();
                side.renewals(4).await;
                ensured(&side, name).await
            },
        )
        .stored(),
        Scenario::new(
            "cluster-ip",
            "a Service of type ClusterIP is created",
            &["B-S1"],
            async |side: Side, name| {
                side.namespace(name).await;
                let mut service = balancer(name).build();
                service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
                side.create_raw_service(service).await;
                side.renewals(4).await;
                ensured(&side, name).await
            },
        ),
        Scenario::new(
            "class",
            "a Service with another's load balancer class is created",
            &["B-S1"],
            async |side: Side, name| {
                side.namespace(name).await;
                side.create_service(balancer(name).class("example.com/other"))
                    .await;
                side.renewals(4).await;
                ensured(&side, name).await
            },
        ),
    ]
}
