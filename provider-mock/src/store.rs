//! The state file, which keeps a cloud's objects when its provider is killed.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::instances::{Instance, Instances};
use crate::load_balancers::{LoadBalancer, LoadBalancers};
use crate::routes::{Route, Routes};

/// The parts of the file. After the first save, a save serialises only the changed parts. So a new
/// load balancer does not cause the serialisation of 5,000 instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Instances,
    LoadBalancers,
    Routes,
}

/// All of them.
pub(crate) const SECTIONS: [Section; 3] =
    [Section::Instances, Section::LoadBalancers, Section::Routes];

/// The objects of the cloud.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) instances: Instances,
    pub(crate) load_balancers: LoadBalancers,
    pub(crate) routes: Routes,
}

/// The content of the file.
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

/// How long another process with the lock may take to end: it may be draining its last calls.
pub(crate) const NEIGHBOUR: Duration = Duration::from_secs(5);
/// How often to check whether it has ended.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// The right to write a state file: a lock on a file beside it, because each save replaces the
/// state file. The kernel releases the lock when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: std::fs::File,
}

impl Lock {
    /// `None`: another process, or another cloud of this process, has the lock.
    pub(crate) fn try_take(state: &Path) -> Result<Option<Self>, String> {
        let fault = |error: std::io::Error| {
            format!(
                "{}: cannot lock the state file with {}: {error}",
                state.display(),
                lock_path(state).display()
            )
        };
        let file = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(lock_path(state))
            .map_err(fault)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(fault(error)),
        }
    }

    /// Takes the lock. If another process has it, waits for up to [`NEIGHBOUR`]. `look` is the time
    /// between attempts.
    pub(crate) fn take(state: &Path, look: Duration) -> Result<Self, String> {
        let since = Instant::now();
        loop {
            match Self::try_take(state)? {
                Some(lock) => return Ok(lock),
                None if since.elapsed() >= NEIGHBOUR => return Err(Self::refusal(state)),
                None => std::thread::sleep(look),
            }
        }
    }

    /// The error if the lock was not free in time.
    pub(crate) fn refusal(state: &Path) -> String {
        format!(
            "{}: another provider-mock uses this state file (it holds the lock {}); stop it, or give --state another file",
            state.display(),
            lock_path(state).display()
        )
    }
}

fn lock_path(state: &Path) -> PathBuf {
    beside(state, ".lock")
}

/// This path with the suffix appended: a file beside it.
pub(crate) fn beside(state: &Path, suffix: &str) -> PathBuf {
    let mut path = state.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

/// The file with one line for each write that ever reached the cloud.
pub(crate) fn writes_path(state: &Path) -> PathBuf {
    beside(state, ".writes")
}

/// How many writes ever reached the cloud of this state file.
pub(crate) fn writes_noted(state: &Path) -> Result<u64, String> {
    let path = writes_path(state);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.matches('\n').count() as u64),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(format!("{}: cannot be read: {error}", path.display())),
    }
}

/// Replaces a file atomically: after a kill, and for a concurrent reader, the path has the old or
/// the new file.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), (&'static str, std::io::Error)> {
    let new = beside(path, ".new");
    std::fs::write(&new, text).map_err(|error| ("written", error))?;
    std::fs::rename(&new, path).map_err(|error| ("put in its place", error))
}

/// The state file.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    _lock: Lock,
    sections: BTreeMap<Section, String>,
}

impl Store {
    /// The cloud in the file and its time. `None`: there is no file yet.
    pub(crate) fn open(path: &Path, lock: Lock) -> Result<(Self, Option<(Objects, u64)>), String> {
        let store = Self {
            path: path.to_owned(),
            _lock: lock,
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
                "{}: {why}; this is no state file of this version: remove it to start with the cloud of the YAML file",
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
        // The cloud's time went on while no provider ran.
        let away = unix_ms().saturating_sub(file.saved_at_unix_ms);
        Ok((store, Some((objects, file.now_ms + away))))
    }

    /// How many writes ever reached this cloud.
    pub(crate) fn noted(&self) -> u64 {
        writes_noted(&self.path).unwrap_or_else(|error| {
            tracing::error!(error, "cannot read the count of earlier writes");
            0
        })
    }

    /// Records a write that reached the cloud. A failure to record it does not undo the write.
    pub(crate) fn note(&self, what: &str) {
        let path = writes_path(&self.path);
        let mut options = std::fs::File::options();
        let noted = options
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut file| file.write_all(format!("{what}\n").as_bytes()));
        if let Err(error) = noted {
            tracing::error!(path = %path.display(), %error, "cannot record a write to the cloud");
        }
    }

    /// Writes the file, and serialises the changed sections and those that no save has serialised
    /// yet. If the write of the file fails, the stored sections stay as they were. The caller then
    /// undoes its change in `objects`, so no later save contains it.
    pub(crate) fn save(
        &mut self,
        objects: &Objects,
        changed: &[Section],
        now_ms: u64,
    ) -> Result<(), String> {
        let fault = |what: &str, error: &dyn std::fmt::Display| {
            format!(
                "{}: the state file cannot be {what}: {error}",
                self.path.display()
            )
        };
        let mut made = BTreeMap::new();
        for section in SECTIONS {
            if !changed.contains(&section) && self.sections.contains_key(&section) {
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
            made.insert(section, json);
        }
        let json = |section| {
            made.get(&section)
                .unwrap_or_else(|| &self.sections[&section])
        };
        let text = format!(
            "{{\"format\":{FORMAT},\"now_ms\":{now_ms},\"saved_at_unix_ms\":{},\"last_number\":{},\n\"instances\":{},\n\"load_balancers\":{},\n\"routes\":{}}}\n",
            unix_ms(),
            objects.load_balancers.last_number,
            json(Section::Instances),
            json(Section::LoadBalancers),
            json(Section::Routes),
        );
        replace(&self.path, &text).map_err(|(what, error)| fault(what, &error))?;
        self.sections.extend(made);
        Ok(())
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
        let open = || Store::open(&path, Lock::try_take(&path).unwrap().unwrap());
        let (mut store, found) = open().unwrap();
        assert!(found.is_none());
        let mut objects = Objects::default();
        let mut instance = Instance::new("a");
        instance.complete("mock://");
        objects.instances.add(instance).unwrap();
        let handle = objects.load_balancers.put(LoadBalancer::default());
        store.save(&objects, &[Section::Instances], 7).unwrap();
        // A section that is not named keeps its written content.
        objects.load_balancers.by_handle.clear();
        store.save(&objects, &[Section::Routes], 8).unwrap();

        // A change that could not be written is not in the next save either.
        objects.load_balancers.put(LoadBalancer::default());
        let new = directory.path().join("state.json.new");
        std::fs::create_dir(&new).unwrap();
        let error = store
            .save(&objects, &[Section::LoadBalancers], 9)
            .unwrap_err();
        assert!(error.contains("cannot be written"), "{error}");
        std::fs::remove_dir(&new).unwrap();
        store.save(&objects, &[Section::Routes], 9).unwrap();

        assert!(Lock::try_take(&path).unwrap().is_none(), "one at a time");
        drop(store);
        let (store, found) = open().unwrap();
        drop(store);
        let (objects, now_ms) = found.unwrap();
        assert!(objects.instances.by_name("a").is_some());
        assert!(objects.load_balancers.by_handle.keys().eq([&handle]));
        assert!(now_ms >= 8);

        std::fs::write(&path, "{}").unwrap();
        let error = open().unwrap_err();
        assert!(
            error.contains("state.json") && error.contains("remove it"),
            "{error}"
        );
    }
}
