//! Fingerprints of a provider's inputs: of a Service (B-S4), and of a set of targets. Pure.
//!
//! They, and the ranks of names, are the same in every process with this code. So the same Nodes
//! lead to the same subset of targets after a restart.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::ResourceExt;

use super::handle::ANNOTATION;
use crate::core::LAST_APPLIED;

/// A 128-bit hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fingerprint(pub(super) u128);

/// FNV-1a.
pub(super) struct Digest(u128);

impl Digest {
    pub(super) fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte))
                .wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    /// Adds bytes with their length, so that two parts never equal one longer part.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.bytes(&(bytes.len() as u64).to_le_bytes());
        self.bytes(bytes);
    }

    pub(super) fn finish(self) -> Fingerprint {
        Fingerprint(self.0)
    }
}

/// The rank of a name when a subset of targets is chosen (▲S17). It is pseudo-random and constant,
/// so a Node that joins or leaves displaces at most one other.
pub(super) fn rank(name: &str) -> u64 {
    let mut digest = Digest::new();
    digest.bytes(name.as_bytes());
    let Fingerprint(wide) = digest.finish();
    // FNV gives similar hashes to names that differ only at the end. So this adds murmur3's
    // finaliser.
    let mut word = (wide as u64) ^ ((wide >> 64) as u64);
    word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

/// The fingerprint of a Service's class, and of its fields whose change leads to a call (B-S4). It
/// leaves out two annotations: the ccm's own record and kubectl's last applied configuration. The
/// plan decides whether a load balancer is wanted.
pub(super) fn service_inputs(service: &Service) -> Fingerprint {
    let none = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&none);
    let annotations = service.annotations().iter();
    let annotations: BTreeMap<_, _> = annotations
        .filter(|(key, _)| *key != ANNOTATION && *key != LAST_APPLIED)
        .collect();
    // An empty list, `loadBalancerIP` or `healthCheckNodePort` is equal to an absent one. The API
    // server fills in the fields of ports.
    let inputs = (
        &service.metadata.uid,
        annotations,
        spec.load_balancer_source_ranges
            .as_deref()
            .unwrap_or_default(),
        spec.ports.as_deref().unwrap_or_default(),
        &spec.session_affinity,
        &spec.session_affinity_config,
        &spec.load_balancer_class,
        spec.load_balancer_ip.as_deref().unwrap_or_default(),
        spec.external_ips.as_deref().unwrap_or_default(),
        &spec.external_traffic_policy,
        spec.health_check_node_port.unwrap_or_default(),
        spec.ip_families.as_ref().map_or(0, Vec::len),
    );
    let mut digest = Digest::new();
    // Serialising text and numbers does not fail.
    digest.bytes(&serde_json::to_vec(&inputs).unwrap_or_default());
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{
        ClientIPConfig, ServicePort, ServiceStatus, SessionAffinityConfig,
    };
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use crate::controllers::service::fixtures::service;

    type Edit = fn(&mut Service);

    fn spec(service: &mut Service) -> &mut ServiceSpec {
        service.spec.get_or_insert_default()
    }

    fn port(service: &mut Service) -> &mut ServicePort {
        &mut spec(service).ports.get_or_insert_default()[0]
    }

    fn annotate(service: &mut Service, key: &str, value: &str) {
        service
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
    }

    #[test]
    fn b_s4_each_input_matters() {
        let edits: [(&str, Edit); 19] = [
            ("uid", |s| s.metadata.uid = Some("other".into())),
            ("annotation", |s| annotate(s, "cloud/tier", "gold")),
            ("node selector", |s| {
                annotate(s, "grpc-ccm.io/node-selector", "a=b");
            }),
            ("source ranges", |s| {
                spec(s).load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into()]);
            }),
            ("one more port", |s| {
                let more = port(s).clone();
                spec(s).ports.get_or_insert_default().push(more);
            }),
            ("port name", |s| port(s).name = Some("web".into())),
            ("port protocol", |s| port(s).protocol = Some("UDP".into())),
            ("port", |s| port(s).port = 81),
            ("node port", |s| port(s).node_port = Some(31_000)),
            ("target port", |s| {
                port(s).target_port = Some(IntOrString::Int(8080));
            }),
            ("target port by name", |s| {
                port(s).target_port = Some(IntOrString::String("80".into()));
            }),
            ("app protocol", |s| {
                port(s).app_protocol = Some("https".into());
            }),
            ("session affinity", |s| {
                spec(s).session_affinity = Some("ClientIP".into());
            }),
            ("session affinity timeout", |s| {
                spec(s).session_affinity_config = Some(SessionAffinityConfig {
                    client_ip: Some(ClientIPConfig {
                        timeout_seconds: Some(60),
                    }),
                });
            }),
            ("load balancer IP", |s| {
                spec(s).load_balancer_ip = Some("192.0.2.9".into());
            }),
            ("external IPs", |s| {
                spec(s).external_ips = Some(vec!["192.0.2.1".into()]);
            }),
            ("external traffic policy", |s| {
                spec(s).external_traffic_policy = Some("Local".into());
            }),
            ("health check node port", |s| {
                spec(s).health_check_node_port = Some(32_000);
            }),
            ("number of IP families", |s| {
                spec(s).ip_families = Some(vec!["IPv4".into(), "IPv6".into()]);
            }),
        ];
        let plain = service_inputs(&service());
        let mut seen = BTreeMap::from([(plain, "plain")]);
        for (name, edit) in edits {
            let mut edited = service();
            edit(&mut edited);
            if let Some(other) = seen.insert(service_inputs(&edited), name) {
                panic!("{name} reads as {other}");
            }
        }
    }

    #[test]
    fn b_s4_a_change_of_what_is_set_matters_too() {
        let edits: [(&str, Edit, Edit); 9] = [
            (
                "another external IP, as many",
                |s| spec(s).external_ips = Some(vec!["192.0.2.1".into()]),
                |s| spec(s).external_ips = Some(vec!["192.0.2.2".into()]),
            ),
            (
                "one more external IP",
                |s| spec(s).external_ips = Some(vec!["192.0.2.1".into()]),
                |s| spec(s).external_ips = Some(vec!["192.0.2.1".into(), "192.0.2.2".into()]),
            ),
            (
                "an annotation's value",
                |s| annotate(s, "cloud/group", "a"),
                |s| annotate(s, "cloud/group", "b"),
            ),
            (
                "an annotation goes",
                |s| annotate(s, "cloud/group", "a"),
                |_| {},
            ),
            (
                "another app protocol",
                |s| port(s).app_protocol = Some("http".into()),
                |s| port(s).app_protocol = Some("https".into()),
            ),
            (
                "one family and no longer two",
                |s| spec(s).ip_families = Some(vec!["IPv4".into(), "IPv6".into()]),
                |s| spec(s).ip_families = Some(vec!["IPv4".into()]),
            ),
            (
                "another load balancer IP",
                |s| spec(s).load_balancer_ip = Some("192.0.2.1".into()),
                |s| spec(s).load_balancer_ip = Some("192.0.2.11".into()),
            ),
            (
                "traffic stays on the node no more",
                |s| spec(s).external_traffic_policy = Some("Local".into()),
                |s| spec(s).external_traffic_policy = Some("Cluster".into()),
            ),
            (
                "another health check port",
                |s| spec(s).health_check_node_port = Some(32_000),
                |s| spec(s).health_check_node_port = Some(32_001),
            ),
        ];
        for (name, before, after) in edits {
            let of = |edit: Edit| {
                let mut service = service();
                edit(&mut service);
                service_inputs(&service)
            };
            assert_ne!(of(before), of(after), "{name}");
            assert_eq!(of(before), of(before), "{name}, unchanged");
        }
    }

    #[test]
    fn b_s4_nothing_else_matters() {
        let edits: [(&str, Edit); 13] = [
            ("labels", |s| {
                s.metadata
                    .labels
                    .get_or_insert_default()
                    .insert("a".into(), "b".into());
            }),
            ("resource version", |s| {
                s.metadata.resource_version = Some("77".into());
            }),
            ("generation", |s| s.metadata.generation = Some(9)),
            ("finalizers", |s| {
                s.metadata.finalizers = Some(vec!["x/y".into()]);
            }),
            ("our own annotation", |s| annotate(s, ANNOTATION, "{}")),
            ("kubectl's annotation", |s| annotate(s, LAST_APPLIED, "{}")),
            ("status", |s| s.status = Some(ServiceStatus::default())),
            ("selector", |s| {
                spec(s).selector = Some([("a".to_owned(), "b".to_owned())].into());
            }),
            ("cluster IP", |s| {
                spec(s).cluster_ip = Some("10.1.1.1".into());
            }),
            ("which IP family", |s| {
                spec(s).ip_families = Some(vec!["IPv6".into()]);
            }),
            ("internal traffic policy", |s| {
                spec(s).internal_traffic_policy = Some("Local".into());
            }),
            ("not ready addresses", |s| {
                spec(s).publish_not_ready_addresses = Some(true);
            }),
            ("empty is absent", |s| {
                spec(s).external_ips = Some(Vec::new());
                spec(s).load_balancer_ip = Some(String::new());
                spec(s).health_check_node_port = Some(0);
            }),
        ];
        let plain = service_inputs(&service());
        for (name, edit) in edits {
            let mut edited = service();
            edit(&mut edited);
            assert_eq!(service_inputs(&edited), plain, "{name}");
        }
    }

    #[test]
    fn s17_ranks_never_move() {
        // Fixed numbers: at an upgrade, other ranks would change the targets of load balancers
        // whose set is cut.
        assert_eq!(
            [rank("node-0001"), rank("node-0002"), rank("")],
            [RANK_1, RANK_2, RANK_EMPTY]
        );
    }

    const RANK_1: u64 = 9_911_446_558_972_448_763;
    const RANK_2: u64 = 4_445_376_642_094_095_828;
    const RANK_EMPTY: u64 = 313_945_283_913_891_730;
}
