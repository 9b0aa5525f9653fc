//! The temporary directory of one control plane.

use std::{env, fs, io, path::Path};

use tempfile::TempDir;

use crate::error::{Error, While};

pub(crate) const PREFIX: &str = "ccm-testenv-";
const LOCK: &str = "owner.lock";

/// A temporary directory, removed on drop. If it is still there when its owner has ended, the next
/// process that makes one removes it. With `TESTENV_KEEP=1` a process removes none.
///
/// A living owner holds the lock on a file in the directory. The kernel releases the lock whenever
/// the owner ends.
#[derive(Debug)]
pub(crate) struct Directory {
    directory: TempDir,
    _owner: fs::File,
}

impl Directory {
    pub(crate) fn new() -> Result<Self, Error> {
        Self::below(&env::temp_dir())
    }

    fn below(parent: &Path) -> Result<Self, Error> {
        sweep(parent);
        let make = || -> io::Result<Self> {
            let mut directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            if kept() {
                directory.disable_cleanup(true);
            }
            // Locked before it has its final name, so that a sweep never sees it unlocked.
            let unnamed = directory.path().join("owner.new");
            let owner = fs::File::create(&unnamed)?;
            owner.lock()?;
            fs::rename(&unnamed, directory.path().join(LOCK))?;
            Ok(Self {
                directory,
                _owner: owner,
            })
        };
        make().while_doing(|| format!("cannot make a directory in {}", parent.display()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

pub(crate) fn kept() -> bool {
    env::var_os("TESTENV_KEEP").is_some_and(|value| value == "1")
}

/// Removes the directories of dead owners. Errors are left to the next sweep.
fn sweep(parent: &Path) {
    if kept() {
        return;
    }
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours
            && let Ok(owner) = fs::File::open(entry.path().join(LOCK))
            && owner.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_owner_left_is_swept_and_what_a_living_one_has_is_not() {
        // Other processes sweep the usual folder.
        let parent = tempfile::tempdir().unwrap();
        let alive = Directory::below(parent.path()).unwrap();
        let other = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix(PREFIX).tempdir_in(parent.path()).unwrap()
        };
        let left = other().keep();
        fs::write(left.join(LOCK), "").unwrap();
        let young = other();

        sweep(parent.path());

        assert!(alive.path().exists());
        assert!(!left.exists());
        assert!(
            young.path().exists(),
            "it has no lock yet: perhaps its owner is making it"
        );
    }
}
