//! The machines of the cloud: state without locks or I/O.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::CloudError;

/// A machine of the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// The cloud's ID; the name by default. It stays when the instance is renamed.
    #[serde(default)]
    pub id: String,
    /// The name, which is the Node's name too.
    pub name: String,
    /// The provider ID; by default `<first prefix><zone>/<id>`, or `<first prefix><id>` without a
    /// zone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// The type, for example `mock.large`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The addresses, in the order for the Node's status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Further labels for the Node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The power state.
    #[serde(default)]
    pub power: Power,
}

impl Instance {
    /// A running instance with this name, which is also its ID.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            id: name.clone(),
            name,
            provider_id: String::new(),
            instance_type: None,
            zone: None,
            region: None,
            addresses: Vec::new(),
            labels: BTreeMap::new(),
            power: Power::Running,
        }
    }

    /// Sets the type.
    #[must_use]
    pub fn instance_type(mut self, instance_type: impl Into<String>) -> Self {
        self.instance_type = Some(instance_type.into());
        self
    }

    /// Sets zone and region.
    #[must_use]
    pub fn place(mut self, zone: impl Into<String>, region: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self.region = Some(region.into());
        self
    }

    /// Adds an address inside the cluster's network.
    #[must_use]
    pub fn internal_ip(mut self, address: IpAddr) -> Self {
        self.addresses.push(Address::InternalIp(address));
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets the power state.
    #[must_use]
    pub fn power(mut self, power: Power) -> Self {
        self.power = power;
        self
    }

    /// Sets the ID and the provider ID if they are missing.
    pub(crate) fn complete(&mut self, prefix: &str) {
        if self.id.is_empty() {
            self.id.clone_from(&self.name);
        }
        if self.provider_id.is_empty() {
            self.provider_id = match &self.zone {
                Some(zone) => format!("{prefix}{zone}/{}", self.id),
                None => format!("{prefix}{}", self.id),
            };
        }
    }
}

/// One address of an instance, as a map with one key, for example `InternalIP: 10.0.0.1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// A host name.
    Hostname(String),
    /// Reachable inside the cluster's network.
    #[serde(rename = "InternalIP")]
    InternalIp(IpAddr),
    /// Reachable from outside.
    #[serde(rename = "ExternalIP")]
    ExternalIp(IpAddr),
    /// A name that resolves inside the cluster's network.
    #[serde(rename = "InternalDNS")]
    InternalDns(String),
    /// A name that resolves outside.
    #[serde(rename = "ExternalDNS")]
    ExternalDns(String),
}

impl Address {
    /// The address without its kind.
    pub fn text(&self) -> String {
        match self {
            Self::Hostname(name) | Self::InternalDns(name) | Self::ExternalDns(name) => {
                name.clone()
            }
            Self::InternalIp(ip) | Self::ExternalIp(ip) => ip.to_string(),
        }
    }

    /// Parses `KIND=ADDRESS`, the format of `ctl`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not an address; write KIND=ADDRESS with one of Hostname, InternalIP, ExternalIP, InternalDNS, ExternalDNS, such as InternalIP=10.0.0.1"
            )
        };
        let (kind, value) = text.split_once('=').ok_or_else(wrong)?;
        if value.is_empty() {
            return Err(wrong());
        }
        let ip = || {
            value.parse().map_err(|_| {
                format!("{value:?} in {text:?} is not an IP address; write one such as 10.0.0.1")
            })
        };
        Ok(match kind {
            "Hostname" => Self::Hostname(value.into()),
            "InternalIP" => Self::InternalIp(ip()?),
            "ExternalIP" => Self::ExternalIp(ip()?),
            "InternalDNS" => Self::InternalDns(value.into()),
            "ExternalDNS" => Self::ExternalDns(value.into()),
            _ => return Err(wrong()),
        })
    }
}

/// What the provider answers for an instance: its power state, PENDING or UNMANAGED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    /// It runs: RUNNING.
    #[default]
    Running,
    /// It is shut down: STOPPED.
    Stopped,
    /// It exists, and the cloud does not report whether it runs: PRESENT.
    Unknown,
    /// The cloud does not show it yet: PENDING.
    Pending,
    /// The cloud knows it but does not manage it: UNMANAGED.
    Unmanaged,
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
            Self::Unmanaged => "unmanaged",
        })
    }
}

/// All instances, with indexes by ID, name and provider ID.
#[derive(Debug, Clone, Default)]
pub(crate) struct Instances {
    by_id: BTreeMap<String, Instance>,
    ids_by_name: HashMap<String, String>,
    ids_by_provider_id: HashMap<String, String>,
}

impl Instances {
    /// Adds an instance with an ID and a provider ID.
    pub(crate) fn add(&mut self, instance: Instance) -> Result<(), CloudError> {
        let taken = |what: &str, value: &str| {
            CloudError::AlreadyExists(format!(
                "an instance with the {what} {value:?} exists already; choose another or remove that one first"
            ))
        };
        if self.by_id.contains_key(&instance.id) {
            return Err(taken("id", &instance.id));
        }
        if self.ids_by_name.contains_key(&instance.name) {
            return Err(taken("name", &instance.name));
        }
        if self.ids_by_provider_id.contains_key(&instance.provider_id) {
            return Err(taken("provider_id", &instance.provider_id));
        }
        self.insert(instance);
        Ok(())
    }

    /// Removes the instance with this name or ID.
    pub(crate) fn remove(&mut self, name_or_id: &str) -> Result<Instance, CloudError> {
        let id = self.id_of(name_or_id)?;
        let instance = self
            .by_id
            .remove(&id)
            .ok_or_else(|| no_instance(name_or_id))?;
        self.ids_by_name.remove(&instance.name);
        self.ids_by_provider_id.remove(&instance.provider_id);
        Ok(instance)
    }

    /// Changes the instance with this name or ID. A change that collides with another instance
    /// changes nothing.
    pub(crate) fn change(
        &mut self,
        name_or_id: &str,
        change: impl FnOnce(&mut Instance),
    ) -> Result<(Instance, Instance), CloudError> {
        let before = self.remove(name_or_id)?;
        let mut after = before.clone();
        change(&mut after);
        match self.add(after.clone()) {
            Ok(()) => Ok((before, after)),
            Err(error) => {
                self.add(before)?;
                Err(error)
            }
        }
    }

    /// Reverts a change: removes the instance with the ID `after`, and restores the instance
    /// `before`.
    pub(crate) fn put_back(&mut self, after: Option<&str>, before: Option<Instance>) {
        if let Some(after) = after.and_then(|id| self.by_id.remove(id)) {
            self.ids_by_name.remove(&after.name);
            self.ids_by_provider_id.remove(&after.provider_id);
        }
        if let Some(before) = before {
            self.insert(before);
        }
    }

    fn insert(&mut self, instance: Instance) {
        self.ids_by_name
            .insert(instance.name.clone(), instance.id.clone());
        self.ids_by_provider_id
            .insert(instance.provider_id.clone(), instance.id.clone());
        self.by_id.insert(instance.id.clone(), instance);
    }

    fn id_of(&self, name_or_id: &str) -> Result<String, CloudError> {
        self.ids_by_name
            .get(name_or_id)
            .or_else(|| self.by_id.get(name_or_id).map(|instance| &instance.id))
            .cloned()
            .ok_or_else(|| no_instance(name_or_id))
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Instance> {
        self.by_id.get(self.ids_by_name.get(name)?)
    }

    pub(crate) fn by_provider_id(&self, provider_id: &str) -> Option<&Instance> {
        self.by_id.get(self.ids_by_provider_id.get(provider_id)?)
    }

    /// In the order of their IDs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Instance> {
        self.by_id.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Looks up a Node's instance, by its provider ID if it has one, else by its name (INST-3).
    pub(crate) fn look_up(
        &self,
        name: &str,
        provider_id: Option<&str>,
        prefixes: &[String],
    ) -> Found<'_> {
        let instance = match provider_id {
            Some(id) if !prefixes.iter().any(|prefix| id.starts_with(prefix)) => {
                return Found::Unmanaged;
            }
            Some(id) => self.by_provider_id(id),
            None => self.by_name(name),
        };
        match instance {
            None => Found::Absent,
            Some(instance) => match instance.power {
                Power::Pending => Found::Pending,
                Power::Unmanaged => Found::Unmanaged,
                Power::Running | Power::Stopped | Power::Unknown => Found::Instance(instance),
            },
        }
    }
}

/// The result of looking up a Node's instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Instance(&'a Instance),
    Absent,
    Pending,
    Unmanaged,
}

fn no_instance(name_or_id: &str) -> CloudError {
    CloudError::NotFound(format!(
        "no instance has the name or ID {name_or_id:?}; `ctl instance list` shows them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud() -> Instances {
        let mut instances = Instances::default();
        for name in ["a", "b"] {
            let mut instance = Instance::new(name).place("z", "r");
            instance.complete("mock://");
            instances.add(instance).unwrap();
        }
        instances
    }

    #[test]
    fn a_node_is_found_by_provider_id_and_else_by_name() {
        let mut instances = cloud();
        let prefixes = ["mock://".to_owned()];
        let look = |instances: &Instances, name: &str, id: Option<&str>| match instances
            .look_up(name, id, &prefixes)
        {
            Found::Instance(instance) => instance.name.clone(),
            other => format!("{other:?}"),
        };
        assert_eq!(look(&instances, "a", None), "a");
        assert_eq!(look(&instances, "x", Some("mock://z/b")), "b");
        assert_eq!(look(&instances, "a", Some("mock://z/gone")), "Absent");
        assert_eq!(look(&instances, "x", None), "Absent");
        assert_eq!(look(&instances, "a", Some("aws://z/a")), "Unmanaged");
        instances
            .change("a", |instance| instance.power = Power::Pending)
            .unwrap();
        assert_eq!(look(&instances, "a", None), "Pending");
    }

    #[test]
    fn renaming_keeps_id_and_provider_id_and_refuses_a_taken_name() {
        let mut instances = cloud();
        instances
            .change("a", |instance| instance.name = "c".into())
            .unwrap();
        assert!(instances.by_name("a").is_none());
        assert_eq!(instances.by_name("c").unwrap().provider_id, "mock://z/a");
        let error = instances
            .change("c", |instance| instance.name = "b".into())
            .unwrap_err();
        assert!(error.to_string().contains("\"b\""), "{error}");
        assert_eq!(instances.by_name("c").unwrap().id, "a");
    }
}
