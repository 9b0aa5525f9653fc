//! The address ranges of the cluster's Services.

use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use super::Cluster;

impl Cluster {
    /// The ranges of `--service-cluster-ip-range`, else those of all ServiceCIDRs. `None`: not
    /// known.
    pub(crate) fn service_ranges(&self) -> Option<Vec<IpNet>> {
        if !self.watched.service_cidrs {
            return Some(self.given_ranges.to_vec());
        }
        let known = self.service_cidrs.is_synced();
        known.then(|| of(&self.service_cidrs.all()))
    }
}

/// The ranges of these objects. An object that is being deleted counts too: its addresses may be in
/// use until it is gone.
fn of(objects: &[Arc<ServiceCIDR>]) -> Vec<IpNet> {
    let specs = objects.iter().filter_map(|object| object.spec.as_ref());
    let texts = specs.flat_map(|spec| spec.cidrs.iter().flatten());
    // The API server has validated them.
    texts.filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::args::Controller;
    use crate::cluster::{Store, Watched};

    fn cidr(name: &str, cidrs: &[&str]) -> ServiceCIDR {
        let object = serde_json::json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}});
        serde_json::from_value(object).unwrap()
    }

    fn cluster(given: &[IpNet], objects: Store<ServiceCIDR>) -> Cluster {
        Cluster {
            service_cidrs: objects,
            given_ranges: given.into(),
            watched: Watched::by(&BTreeSet::from(Controller::ALL), given),
            ..Cluster::default()
        }
    }

    /// Shows ▲S22.
    #[test]
    fn the_service_range_is_the_operators_else_that_of_the_objects() {
        let ranges = |texts: &[&str]| -> Vec<IpNet> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let objects: Store<ServiceCIDR> = [
            cidr("kubernetes", &["10.96.0.0/16", "fd00:10::/108"]),
            cidr("more", &["10.97.0.0/24"]),
        ]
        .into_iter()
        .collect();
        let all = ranges(&["10.96.0.0/16", "fd00:10::/108", "10.97.0.0/24"]);
        assert_eq!(cluster(&[], objects.clone()).service_ranges(), Some(all));
        let given = ranges(&["172.16.0.0/16"]);
        assert_eq!(cluster(&given, objects).service_ranges(), Some(given));
        assert_eq!(cluster(&[], Store::default()).service_ranges(), None);
    }

    #[test]
    fn only_the_service_controller_without_the_flag_reads_service_cidrs() {
        let given = ["10.96.0.0/16".parse().unwrap()];
        let all = BTreeSet::from(Controller::ALL);
        let nodes = BTreeSet::from([Controller::CloudNode]);
        assert!(Watched::by(&all, &[]).service_cidrs);
        assert!(!Watched::by(&all, &given).service_cidrs);
        assert!(!Watched::by(&nodes, &[]).service_cidrs);
    }
}
