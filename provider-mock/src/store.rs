//! The state file: what a cloud does not forget when its provider is killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::instances::{Instance, Instances};
use crate::load_balancers::{LoadBalancer, LoadBalancers};
use crate::routes::{Route, Routes};

/// The parts of the file: only the one that changed is written down anew, so that a new load balancer does not cost 5,000 instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Instances,
    LoadBalancers,
    Routes,
}

/// What the cloud remembers.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) instances: Instances,
    pub(crate) load_balancers: LoadBalancers,
    pub(crate) routes: Routes,
}

/// What stands in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    now_ms: u64,
    saved_at_unix_ms: u64,
    last_number: u64,
    instances: Vec<Instance>,
    load_balancers: Vec<LoadBalancer>,
    routes: Vec<Route>,
}

const FORMAT: u32 = 1;

/// The state file.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    sections: BTreeMap<Section, String>,
}

impl Store {
    /// The file's cloud and its time, where there is a file; a missing one is a new cloud.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<(Objects, u64)>), String> {
        let store = Self {
            path: path.to_owned(),
            sections: BTreeMap::new(),
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((store, None)),
            Err(error) => {
                return Err(format!(
                    "{}: the state file cannot be read: {error}",
                    path.display()
                ));
            }
        };
        let wrong = |why: String| {
            format!(
                "{}: {why}; this is no state file of this version: remove it to begin with the cloud of the YAML file",
                path.display()
            )
        };
        let file: File = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if file.format != FORMAT {
            return Err(wrong(format!("format {} is not {FORMAT}", file.format)));
        }
        let mut objects = Objects::default();
        for instance in file.instances {
            objects
                .instances
                .add(instance)
                .map_err(|error| wrong(error.to_string()))?;
        }
        objects.load_balancers.last_number = file.last_number;
        for load_balancer in file.load_balancers {
            objects.load_balancers.put(load_balancer);
        }
        for route in file.routes {
            objects.routes.by_name.insert(route.name.clone(), route);
        }
        // The cloud went on while no provider looked.
        let away = unix_ms().saturating_sub(file.saved_at_unix_ms);
        Ok((store, Some((objects, file.now_ms + away))))
    }

    /// Writes everything down; only the section that changed is made anew.
    pub(crate) fn save(
        &mut self,
        objects: &Objects,
        changed: Section,
        now_ms: u64,
    ) -> Result<(), String> {
        let fault = |what: &str, error: &dyn std::fmt::Display| {
            format!(
                "{}: the state file cannot be {what}: {error}",
                self.path.display()
            )
        };
        for section in [Section::Instances, Section::LoadBalancers, Section::Routes] {
            if section != changed && self.sections.contains_key(&section) {
                continue;
            }
            let json = match section {
                Section::Instances => {
                    serde_json::to_string(&objects.instances.iter().collect::<Vec<_>>())
                }
                Section::LoadBalancers => serde_json::to_string(
                    &objects
                        .load_balancers
                        .by_handle
                        .values()
                        .collect::<Vec<_>>(),
                ),
                Section::Routes => {
                    serde_json::to_string(&objects.routes.by_name.values().collect::<Vec<_>>())
                }
            };
            let json = json.map_err(|error| fault("made", &error))?;
            self.sections.insert(section, json);
        }
        let text = format!(
            "{{\"format\":{FORMAT},\"now_ms\":{now_ms},\"saved_at_unix_ms\":{},\"last_number\":{},\n\"instances\":{},\n\"load_balancers\":{},\n\"routes\":{}}}\n",
            unix_ms(),
            objects.load_balancers.last_number,
            self.sections[&Section::Instances],
            self.sections[&Section::LoadBalancers],
            self.sections[&Section::Routes],
        );
        // A file beside it and a rename: whoever kills us finds the old file or the new one, whole.
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        std::fs::write(&new, text).map_err(|error| fault("written", &error))?;
        std::fs::rename(&new, &self.path).map_err(|error| fault("put in its place", &error))
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let (mut store, found) = Store::open(&path).unwrap();
        assert!(found.is_none());
        let mut objects = Objects::default();
        let mut instance = Instance::new("a");
        instance.complete("mock://");
        objects.instances.add(instance).unwrap();
        let handle = objects.load_balancers.put(LoadBalancer::default());
        store.save(&objects, Section::Instances, 7).unwrap();
        // A section that is not named stays as it was written.
        objects.load_balancers.by_handle.clear();
        store.save(&objects, Section::Routes, 8).unwrap();

        let (_, found) = Store::open(&path).unwrap();
        let (objects, now_ms) = found.unwrap();
        assert!(objects.instances.by_name("a").is_some());
        assert!(objects.load_balancers.by_handle.contains_key(&handle));
        assert!(now_ms >= 8);

        std::fs::write(&path, "{}").unwrap();
        let error = Store::open(&path).unwrap_err();
        assert!(
            error.contains("state.json") && error.contains("remove it"),
            "{error}"
        );
    }
}
