//! Leader migration (B-M6): which controllers run under the migration Lease. Upstream's components
//! read the same file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Controller, InvalidFlag};

/// The name of this program in the file.
const COMPONENT: &str = "cloud-controller-manager";
/// The migration Lease if there is no file.
const DEFAULT_LEASE: &str = "cloud-provider-extraction-migration";
/// The controllers that migrate if there is no file.
const DEFAULT_CONTROLLERS: [Controller; 3] = [
    Controller::NodeRoute,
    Controller::ServiceLb,
    Controller::CloudNodeLifecycle,
];
const GROUP: &str = "controllermanager.config.k8s.io";
const KIND: &str = "LeaderMigrationConfiguration";
const FLAG: &str = "--leader-migration-config";

/// Which controllers run under the migration Lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderMigrationConfig {
    /// The name of the Lease, which is in the namespace of the main Lease.
    pub lease: String,
    /// The controllers of the migration. True: this program runs them, under the migration Lease.
    /// False: another component does.
    pub controllers: BTreeMap<Controller, bool>,
}

/// The Lease under which a controller runs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The main Lease.
    Main,
    /// The migration Lease.
    Migration,
    /// None: another component runs it.
    Elsewhere,
}

impl Default for LeaderMigrationConfig {
    fn default() -> Self {
        Self {
            lease: DEFAULT_LEASE.to_owned(),
            controllers: DEFAULT_CONTROLLERS
                .into_iter()
                .map(|it| (it, true))
                .collect(),
        }
    }
}

impl LeaderMigrationConfig {
    /// The Lease under which this controller runs here.
    pub fn side(&self, controller: Controller) -> Side {
        match self.controllers.get(&controller) {
            None => Side::Main,
            Some(true) => Side::Migration,
            Some(false) => Side::Elsewhere,
        }
    }
}

/// The file in upstream's format.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    leader_name: String,
    resource_lock: Option<String>,
    #[serde(default)]
    controller_leaders: Vec<Leader>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leader {
    #[serde(default)]
    name: String,
    #[serde(default)]
    component: String,
}

/// Reads the file. Errors go to `wrong`.
pub(super) fn read(
    path: &Path,
    main_lease: &str,
    wrong: &mut Vec<InvalidFlag>,
) -> LeaderMigrationConfig {
    let mut refuse = |what: String| wrong.push(InvalidFlag::new(FLAG, path.display(), what));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            refuse(format!("a file that can be read: {error}"));
            return LeaderMigrationConfig::default();
        }
    };
    match parse(&text, main_lease) {
        Ok(config) => config,
        Err(faults) => {
            for fault in faults {
                refuse(fault);
            }
            LeaderMigrationConfig::default()
        }
    }
}

fn parse(text: &str, main_lease: &str) -> Result<LeaderMigrationConfig, Vec<String>> {
    let file: File = serde_yaml::from_str(text).map_err(|error| {
        let line = error
            .location()
            .map_or_else(String::new, |at| format!(", line {}", at.line()));
        let what = error.without_snippet();
        vec![format!("a {KIND} of {GROUP}{line}: {what}")]
    })?;
    let mut faults = Vec::new();
    let version = file
        .api_version
        .strip_prefix(GROUP)
        .and_then(|rest| rest.strip_prefix('/'));
    if !matches!(version, Some("v1" | "v1beta1" | "v1alpha1")) {
        faults.push(format!(
            "apiVersion {GROUP}/v1, v1beta1 or v1alpha1, not {:?}",
            file.api_version
        ));
    }
    if file.kind != KIND {
        faults.push(format!("kind {KIND}, not {:?}", file.kind));
    }
    match (version, file.resource_lock.as_deref()) {
        (Some("v1"), Some(_)) => faults.push("no resourceLock in v1: it is a Lease".to_owned()),
        (Some("v1") | None, _) | (_, Some("leases")) => {}
        (_, other) => faults.push(format!(
            "resourceLock leases, not {:?}: nothing else is used for leader election",
            other.unwrap_or_default()
        )),
    }
    if file.leader_name.is_empty() {
        faults.push("leaderName, the name of the migration's Lease".to_owned());
    } else if file.leader_name == main_lease {
        faults.push(format!(
            "another leaderName than that of the main Lease, {main_lease}"
        ));
    }
    let mut controllers = BTreeMap::new();
    for (index, leader) in file.controller_leaders.iter().enumerate() {
        for (field, value) in [("name", &leader.name), ("component", &leader.component)] {
            if value.is_empty() {
                faults.push(format!("controllerLeaders[{index}].{field}"));
            }
        }
        // Most controllers that the file may name belong to the kube-controller-manager.
        if let Some(controller) = named(&leader.name) {
            let ours = leader.component == COMPONENT || leader.component == "*";
            controllers.insert(controller, ours);
        }
    }
    if faults.is_empty() {
        Ok(LeaderMigrationConfig {
            lease: file.leader_name,
            controllers,
        })
    } else {
        Err(faults)
    }
}

/// The controller with this name or alias, or with this name in upstream's default configuration.
fn named(name: &str) -> Option<Controller> {
    match name {
        "service-controller" => Some(Controller::ServiceLb),
        "route-controller" => Some(Controller::NodeRoute),
        _ => Controller::ALL
            .into_iter()
            .find(|it| it.name() == name || it.alias() == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: &str, more: &str) -> String {
        format!("apiVersion: {GROUP}/{version}\nkind: {KIND}\nleaderName: migration\n{more}")
    }

    #[test]
    fn b_m6_without_a_file_routes_services_and_the_lifecycle_are_migrated() {
        let config = LeaderMigrationConfig::default();
        assert_eq!(config.lease, "cloud-provider-extraction-migration");
        for (controller, side) in [
            (Controller::CloudNode, Side::Main),
            (Controller::CloudNodeLifecycle, Side::Migration),
            (Controller::ServiceLb, Side::Migration),
            (Controller::NodeRoute, Side::Migration),
        ] {
            assert_eq!(config.side(controller), side, "{controller:?}");
        }
    }

    #[test]
    fn b_m6_who_runs_what_is_upstreams_file() {
        let leaders = "controllerLeaders:\n- {name: route, component: '*'}\n- {name: service-controller, component: kube-controller-manager}\n\
                       - {name: cloud-node-lifecycle-controller, component: cloud-controller-manager}\n- {name: deployment-controller, component: '*'}\n";
        for (version, lock) in [
            ("v1", ""),
            ("v1beta1", "resourceLock: leases\n"),
            ("v1alpha1", "resourceLock: leases\n"),
        ] {
            let config = parse(&file(version, &format!("{lock}{leaders}")), "main").unwrap();
            assert_eq!(config.lease, "migration");
            for (controller, side) in [
                (Controller::CloudNode, Side::Main),
                (Controller::CloudNodeLifecycle, Side::Migration),
                (Controller::ServiceLb, Side::Elsewhere),
                (Controller::NodeRoute, Side::Migration),
            ] {
                assert_eq!(config.side(controller), side, "{version} {controller:?}");
            }
        }
        let none = parse(&file("v1", "controllerLeaders: []\n"), "main").unwrap();
        assert_eq!(none.side(Controller::ServiceLb), Side::Main);
    }

    #[test]
    fn b_m6_what_is_wrong_in_the_file_is_named() {
        for (text, words) in [
            (String::new(), &["LeaderMigrationConfiguration"][..]),
            (
                "apiVersion: v1\nkind: Pod\nleaderName: a\n".to_owned(),
                &["apiVersion", "\"v1\"", "kind", "\"Pod\""],
            ),
            (file("v2", ""), &["v1, v1beta1 or v1alpha1", "v2"]),
            (
                file("v1", "resourceLock: leases\n"),
                &["no resourceLock in v1"],
            ),
            (
                file("v1beta1", "resourceLock: endpoints\n"),
                &["resourceLock leases", "endpoints"],
            ),
            (file("v1beta1", ""), &["resourceLock leases"]),
            (file("v1", "leader: x\n"), &["line 4", "leader"]),
            (
                file("v1", "controllerLeaders:\n- name: a\n- component: b\n"),
                &[
                    "controllerLeaders[0].component",
                    "controllerLeaders[1].name",
                ],
            ),
            (
                file("v1", "").replace("migration", "main"),
                &["another leaderName", "main"],
            ),
            (
                file("v1", "").replace("leaderName: migration\n", ""),
                &["leaderName"],
            ),
        ] {
            let faults = parse(&text, "main").unwrap_err().join("\n");
            for word in words {
                assert!(
                    faults.contains(word),
                    "{text:?}: {word:?} is not in: {faults}"
                );
            }
        }
    }
}
