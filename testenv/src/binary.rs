//! Finds the Go binaries, and builds them when their sources changed.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::error::{Error, While};

/// The path of the contract's module. go.mod replaces the required module with it.
const CONTRACT: &str = "../../providers/go/contract";

/// A program of a Go module: one of its main packages.
#[derive(Debug, Clone, Copy)]
struct Program {
    /// The name of the executable.
    name: &'static str,
    /// The folder of its module.
    module: &'static str,
    package: &'static str,
    /// The folders of its sources. `.` means only the files at the top.
    folders: &'static [&'static str],
    /// The name of the build in messages.
    what: &'static str,
    /// How long a build from an empty cache takes.
    takes: &'static str,
    /// Whether Kubernetes is linked in and needs its version.
    kubernetes: bool,
}

const CONTROL_PLANE: Program = Program {
    name: "control-plane",
    module: "control-plane",
    package: ".",
    folders: &[".", "adapter", "lifeline", CONTRACT],
    what: "the test control plane",
    takes: "about 4 minutes",
    kubernetes: true,
};

const MACHINE: Program = Program {
    name: "machine",
    module: "control-plane",
    package: "./machine",
    folders: &["machine", "lifeline"],
    what: "kubelet, kube-controller-manager and kube-scheduler",
    takes: "about 3 minutes",
    kubernetes: true,
};

const PAUSE: Program = Program {
    name: "pause",
    module: "control-plane",
    package: "./pause",
    folders: &["pause"],
    what: "the pause program of pod sandboxes",
    takes: "seconds",
    kubernetes: false,
};

const HELM: Program = Program {
    name: "helm",
    module: "helm",
    package: ".",
    folders: &["."],
    what: "helm",
    takes: "about 2 minutes",
    kubernetes: false,
};

/// The executable with etcd, kube-apiserver, kubectl and go-ccm as subcommands.
///
/// `go build` builds it if it is missing or its sources changed. A file lock makes all other test
/// processes wait for that build. This function blocks during the build, which may take minutes.
///
/// `TESTENV_CONTROL_PLANE` names a ready executable instead, for machines without Go.
pub fn control_plane_binary() -> Result<PathBuf, Error> {
    if let Some(ready) = env::var_os("TESTENV_CONTROL_PLANE") {
        return Ok(ready.into());
    }
    CONTROL_PLANE.built()
}

/// The executable with kubelet, kube-controller-manager, kube-scheduler and the simulation of a
/// machine. Only clusters need it, so it is separate.
pub fn machine_binary() -> Result<PathBuf, Error> {
    MACHINE.built()
}

/// The program in a pod's sandbox.
pub(crate) fn pause_binary() -> Result<PathBuf, Error> {
    PAUSE.built()
}

/// Helm, from a Go module of its own.
pub fn helm_binary() -> Result<PathBuf, Error> {
    HELM.built()
}

impl Program {
    fn built(self) -> Result<PathBuf, Error> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.module);
        let module = Module::read(directory, self)?;
        let target = target_directory().join("testenv");
        let name = match module.file.strip_suffix(".mod") {
            Some("go") | None => self.name.to_owned(),
            Some(minor) => minor.replacen("go", self.name, 1),
        };
        let binary = target.join(&name);
        let stamp = target.join(format!("{name}.stamp"));
        let current = || {
            binary.exists()
                && fs::read_to_string(&stamp).is_ok_and(|built| built == module.fingerprint)
        };

        if current() {
            return Ok(binary);
        }
        fs::create_dir_all(&target).while_doing(|| format!("cannot make {}", target.display()))?;
        let lock_path = target.join(format!("{name}.lock"));
        let lock = fs::File::create(&lock_path)
            .while_doing(|| format!("cannot write {}", lock_path.display()))?;
        lock.lock()
            .while_doing(|| format!("cannot lock {}", lock_path.display()))?;
        // Another process may have built it while it had the lock.
        if !current() {
            module.build(&binary)?;
            fs::write(&stamp, &module.fingerprint)
                .while_doing(|| format!("cannot write {}", stamp.display()))?;
        }
        Ok(binary)
    }
}

/// Cargo's output directory: an absolute `CARGO_TARGET_DIR`, or a parent of the running executable.
/// A relative `CARGO_TARGET_DIR` does not help: cargo runs the tests of each package in the
/// package's directory.
fn target_directory() -> PathBuf {
    if let Some(directory) = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from)
        && directory.is_absolute()
    {
        return directory;
    }
    let executable = env::current_exe().unwrap_or_default();
    executable
        .ancestors()
        .find(|directory| directory.join("CACHEDIR.TAG").exists())
        .map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
            Path::to_path_buf,
        )
}

/// The Go module, with the parts that its build depends on.
struct Module {
    program: Program,
    directory: PathBuf,
    /// `go.mod`, or that of an older minor of Kubernetes.
    file: String,
    go: String,
    kubernetes: String,
    /// Changes with the sources and the build's arguments, but not with the Go release: getting its
    /// version would take longer than all the rest.
    fingerprint: String,
}

impl Module {
    fn read(directory: PathBuf, program: Program) -> Result<Self, Error> {
        let minor = env::var("TESTENV_KUBERNETES")
            .ok()
            .filter(|_| program.kubernetes);
        let module = module_file(&directory, minor.as_deref())?;
        let sums = module.replace(".mod", ".sum");
        // Every build depends on these.
        let mut files = vec![directory.join(&module), directory.join(&sums)];
        for folder in program.folders {
            let source = directory.join(folder);
            list(&source, *folder != ".", &mut files)
                .while_doing(|| format!("cannot list {}", source.display()))?;
        }
        files.sort();
        files.dedup();
        let mut sources = Vec::new();
        for file in files {
            let name = file.strip_prefix(&directory).unwrap_or(&file).to_owned();
            // Tests do not affect the build.
            let text = file.to_string_lossy();
            let is_go = text.ends_with(".go") && !text.ends_with("_test.go");
            let is_module = [&module, &sums].iter().any(|file| name == Path::new(file))
                || name.starts_with(CONTRACT) && name.ends_with("go.mod");
            if is_go || is_module {
                let text =
                    fs::read(&file).while_doing(|| format!("cannot read {}", file.display()))?;
                sources.push((name, text));
            }
        }
        let go_mod = sources
            .iter()
            .find(|(name, _)| name == Path::new(&module))
            .map(|(_, text)| String::from_utf8_lossy(text).into_owned())
            .unwrap_or_default();
        let go = word_after(&go_mod, "go").unwrap_or_default();
        let kubernetes = word_after(&go_mod, "k8s.io/kubernetes").unwrap_or_default();

        let mut hasher = DefaultHasher::new();
        sources.hash(&mut hasher);
        build_arguments(program, &kubernetes).hash(&mut hasher);
        Ok(Self {
            program,
            directory,
            file: module,
            go,
            kubernetes,
            fingerprint: format!("{:016x}\n", hasher.finish()),
        })
    }

    fn build(&self, binary: &Path) -> Result<(), Error> {
        self.check_go()?;
        let version = if self.program.kubernetes {
            format!(" (Kubernetes {})", self.kubernetes)
        } else {
            String::new()
        };
        eprintln!(
            "testenv: building {}{version}, {} the first time",
            self.program.what, self.program.takes
        );
        // Builds under another name first. So an interrupted build leaves no incomplete executable,
        // and processes that run the old executable keep it.
        let mut unfinished = binary.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        let output = self
            .go()
            .arg("build")
            .arg(format!("-modfile={}", self.file))
            .args(build_arguments(self.program, &self.kubernetes))
            .arg("-o")
            .arg(&unfinished)
            .arg(self.program.package)
            .env("CGO_ENABLED", "0")
            .output()
            .while_doing(|| "cannot run go".into())?;
        if !output.status.success() {
            return Err(Error::Build {
                directory: self.directory.clone(),
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        fs::rename(&unfinished, binary)
            .while_doing(|| format!("cannot rename {}", unfinished.display()))
    }

    /// Reports what is missing in one line. `go build` would need a page.
    fn check_go(&self) -> Result<(), Error> {
        let unfit = |found: String| Error::Go {
            wanted: self.go.clone(),
            found,
        };
        // Run in the module, so that a go that downloads a newer release counts as that release.
        let output = match self.go().arg("version").output() {
            Ok(output) => output,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(unfit("there is no go in PATH".into()));
            }
            Err(source) => {
                return Err(Error::Io {
                    what: "cannot run go".into(),
                    source,
                });
            }
        };
        if !output.status.success() {
            return Err(unfit(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.split_whitespace().nth(2).unwrap_or_default();
        if release(found.trim_start_matches("go")) < release(&self.go) {
            return Err(unfit(format!("found {found}")));
        }
        Ok(())
    }

    fn go(&self) -> Command {
        let mut go = Command::new("go");
        // A workspace file in a parent directory must not change the build.
        go.current_dir(&self.directory).env("GOWORK", "off");
        go
    }
}

/// The file with the version of Kubernetes: `go.mod` for the newest, `go-1.35.mod` and the like for
/// older minors.
fn module_file(directory: &Path, minor: Option<&str>) -> Result<String, Error> {
    let Some(minor) = minor.filter(|minor| !minor.is_empty()) else {
        return Ok("go.mod".into());
    };
    let file = format!("go-{minor}.mod");
    if directory.join(&file).is_file() {
        return Ok(file);
    }
    let mut known: Vec<String> = fs::read_dir(directory)
        .while_doing(|| format!("cannot list {}", directory.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| {
            let minor = name.strip_prefix("go-")?.strip_suffix(".mod")?;
            Some(minor.to_owned())
        })
        .collect();
    known.sort();
    Err(Error::Kubernetes {
        found: minor.into(),
        known,
    })
}

/// All files in a directory, and with `below` in all directories therein.
fn list(directory: &Path, below: bool, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            files.push(entry.path());
        } else if below {
            list(&entry.path(), below, files)?;
        }
    }
    Ok(())
}

/// Links in the version, because clients parse the server's version.
fn build_arguments(program: Program, kubernetes: &str) -> Vec<String> {
    let mut linked = vec!["-ldflags=-s -w".to_owned()];
    if program.kubernetes {
        let version = "k8s.io/component-base/version";
        let mut parts = kubernetes.trim_start_matches('v').split('.');
        let major = parts.next().unwrap_or_default();
        let minor = parts.next().unwrap_or_default();
        linked.push(format!(
            "-X {version}.gitVersion={kubernetes} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
        ));
    }
    vec![
        "-trimpath".into(),
        "-buildvcs=false".into(),
        linked.join(" "),
    ]
}

/// The word behind `key` on the line of go.mod that begins with it.
fn word_after(go_mod: &str, key: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(key))
            .then(|| words.next().map(str::to_owned))
            .flatten()
    })
}

/// `1.26.3` as numbers that can be compared. Of other texts (`1.27rc1`), the numeric beginning
/// counts.
fn release(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map(|part| {
            let digits = part.split(|c: char| !c.is_ascii_digit()).next();
            digits
                .and_then(|digits| digits.parse().ok())
                .unwrap_or_default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_as_numbers() {
        assert!(release("1.9.7") < release("1.26.0"));
        assert!(release("1.26.8") > release("1.26.0"));
        assert!(release("1.27rc1") > release("1.26.0"));
        assert!(release("") < release("1.26.0"));
    }

    #[test]
    fn an_older_minor_has_a_module_file_of_its_own_and_an_unknown_one_is_refused_with_those_there_are()
     {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("control-plane");
        assert_eq!(module_file(&directory, None).unwrap(), "go.mod");
        assert_eq!(module_file(&directory, Some("")).unwrap(), "go.mod");
        assert_eq!(
            module_file(&directory, Some("1.35")).unwrap(),
            "go-1.35.mod"
        );
        assert_eq!(
            module_file(&directory, Some("1.20"))
                .unwrap_err()
                .to_string(),
            "TESTENV_KUBERNETES is \"1.20\"; valid are 1.34, 1.35; unset means the newest"
        );
    }

    #[test]
    fn the_version_that_is_linked_in_is_that_of_go_mod() {
        let go_mod = "module x\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/api v0.36.3\n\tk8s.io/kubernetes v1.36.3\n)\n";
        assert_eq!(word_after(go_mod, "go").as_deref(), Some("1.26.0"));
        let kubernetes = word_after(go_mod, "k8s.io/kubernetes").unwrap();
        let arguments = build_arguments(CONTROL_PLANE, &kubernetes).join(" ");
        assert!(
            arguments.contains("version.gitVersion=v1.36.3"),
            "{arguments}"
        );
        assert!(arguments.contains("version.gitMinor=36"), "{arguments}");
    }
}
