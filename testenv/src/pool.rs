//! Control planes that tests use one after the other, so that later tests need not wait for a
//! start.

use std::{
    collections::VecDeque,
    fs,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    contents::Contents,
    control_plane::{ControlPlane, Options},
    error::{Error, While},
    wipe::wipe,
};

/// The last object that kube-apiserver creates by itself, soon after it is ready.
const LAST_OF_ITS_OWN: &str = "services/specs/default/kubernetes";
const SETTLE: Duration = Duration::from_secs(20);

/// Control planes that no test uses at the moment. A pool is a static, and its control planes end
/// with the process.
///
/// Before the next test gets a control plane, the pool deletes the objects that the last test left.
/// The pool discards a control plane if its test panicked, took `&mut ControlPlane` (for example,
/// to kill its API server), or gave it options. It also does so if the test changed objects that
/// the control plane began with, or left objects that the pool cannot delete, or too many. A living
/// process that has one of the control plane's files as an argument is a reason too.
#[derive(Debug)]
pub struct Pool {
    prepare: fn(&ControlPlane),
    idle: Mutex<VecDeque<Idle>>,
}

#[derive(Debug)]
struct Idle {
    plane: ControlPlane,
    /// Its contents when it was new and prepared.
    fresh: Contents,
}

/// A control plane for one test. It can do all that a [`ControlPlane`] can.
#[derive(Debug)]
pub struct Pooled {
    /// `None` only during the drop.
    plane: Option<ControlPlane>,
    directory: PathBuf,
    /// The pool that it returns to, and its contents when it was new and prepared. `None`: the pool
    /// discards it.
    home: Option<(&'static Pool, Contents)>,
}

impl Pool {
    /// Empty. `prepare` runs once for each new control plane.
    pub const fn new(prepare: fn(&ControlPlane)) -> Self {
        Self {
            prepare,
            idle: Mutex::new(VecDeque::new()),
        }
    }

    /// A control plane with only what `prepare` created.
    pub async fn take(&'static self) -> Result<Pooled, Error> {
        loop {
            // Takes the control plane that was idle longest: late writes of its last test had most
            // time to arrive.
            let idle = self.lock().pop_front();
            let Some(Idle { plane, fresh }) = idle else {
                break;
            };
            match wipe(&plane.client(), plane.etcd_port(), &fresh).await {
                Ok(()) => return Pooled::new(plane, Some((self, fresh))),
                Err(why) => eprintln!("testenv: not reusing a control plane: {why}"),
            }
        }
        let plane = ControlPlane::start().await?;
        let prepared = self.prepared(&plane).await;
        Pooled::new(plane, prepared.map(|fresh| (self, fresh)))
    }

    /// A control plane with options of its own. It is prepared, and discarded after use.
    pub async fn take_with(&'static self, options: Options) -> Result<Pooled, Error> {
        let plane = ControlPlane::start_with(options).await?;
        (self.prepare)(&plane);
        Pooled::new(plane, None)
    }

    /// Prepares a new control plane, and returns its contents. `None`: they are not complete in
    /// time, or cannot be read.
    async fn prepared(&self, plane: &ControlPlane) -> Option<Contents> {
        (self.prepare)(plane);
        let end = Instant::now() + SETTLE;
        while Instant::now() < end {
            let fresh = Contents::read(plane.etcd_port()).await.ok()?;
            if fresh.has(LAST_OF_ITS_OWN) {
                return Some(fresh);
            }
            sleep(Duration::from_millis(25)).await;
        }
        None
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pooled {
    fn new(plane: ControlPlane, home: Option<(&'static Pool, Contents)>) -> Result<Self, Error> {
        static USES: AtomicUsize = AtomicUsize::new(0);
        let number = USES.fetch_add(1, Ordering::Relaxed);
        let directory = plane.directory().join(format!("use-{number}"));
        fs::create_dir(&directory)
            .while_doing(|| format!("cannot make {}", directory.display()))?;
        Ok(Self {
            plane: Some(plane),
            directory,
            home,
        })
    }

    /// A directory for files of this test alone. It is removed after the test.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Deref for Pooled {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.plane.as_ref().expect("there until dropped")
    }
}

impl DerefMut for Pooled {
    /// The caller may now change more than objects. The pool cannot undo that, and discards the
    /// control plane.
    fn deref_mut(&mut self) -> &mut ControlPlane {
        self.home = None;
        self.plane.as_mut().expect("there until dropped")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let (Some(plane), Some((pool, fresh))) = (self.plane.take(), self.home.take()) else {
            return;
        };
        if thread::panicking() || is_known(plane.directory(), &plane.pids()) {
            return;
        }
        if !crate::directory::kept() {
            let _ = fs::remove_dir_all(&self.directory);
        }
        pool.lock().push_back(Idle { plane, fresh });
    }
}

/// Whether a live process other than these has a file of the directory, such as a kubeconfig, as an
/// argument.
fn is_known(directory: &Path, own: &[u32]) -> bool {
    let directory = directory.display().to_string();
    let Ok(processes) = fs::read_dir("/proc") else {
        return true;
    };
    processes.flatten().any(|process| {
        let pid = process.file_name().to_string_lossy().parse::<u32>();
        pid.is_ok_and(|pid| !own.contains(&pid))
            && fs::read(process.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&directory))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use crate::Process;

    use super::*;

    #[tokio::test]
    async fn a_process_that_was_told_of_a_directory_counts_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command
            // Only builtins: a child that the shell forks has its command line until it executes
            // another program.
            .args(["-c", "read line; :"])
            .arg(directory.path().join("kubeconfig"));
        let mut process = Process::start(command, directory.path().join("log")).unwrap();
        // The start may return a moment before the process's command line can be read.
        crate::eventually("it is known", Duration::from_secs(10), async || {
            if is_known(directory.path(), &[]) {
                Ok(())
            } else {
                Err("not yet")
            }
        })
        .await;
        assert!(!is_known(directory.path(), &[process.pid()]));
        process.kill();
        assert!(!is_known(directory.path(), &[]));
    }
}
