//! The version, in the forms of Kubernetes' components.

/// The form that `--version` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionFormat {
    /// `--version=false`: print nothing.
    No,
    /// One line.
    Line,
    /// `--version=raw`: print everything known.
    Raw,
}

/// `v1.2.3`.
pub(crate) const GIT_VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The commit that this binary was built from. The image has it in its environment: a commit in the
/// binary would make each commit a new build.
pub(crate) fn commit() -> String {
    std::env::var("CCM_COMMIT").unwrap_or_else(|_| "unknown".to_owned())
}

/// The platform as Go names it: `linux/amd64`.
pub(crate) fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}

pub(super) fn format(text: &str) -> Result<VersionFormat, String> {
    if text == "raw" {
        return Ok(VersionFormat::Raw);
    }
    super::parse::boolean(text)
        .map(|asked| {
            if asked {
                VersionFormat::Line
            } else {
                VersionFormat::No
            }
        })
        .map_err(|_| "expected true, false or raw".to_owned())
}

/// The output of `--version`.
pub(super) fn text(format: VersionFormat) -> Option<String> {
    match format {
        VersionFormat::No => None,
        VersionFormat::Line => Some(format!(
            "ccm {GIT_VERSION}, commit {}, {}",
            commit(),
            platform()
        )),
        VersionFormat::Raw => Some(format!(
            "version.Info{{Major:\"{}\", Minor:\"{}\", GitVersion:\"{GIT_VERSION}\", GitCommit:\"{}\", GitTreeState:\"\", BuildDate:\"\", GoVersion:\"\", Compiler:\"rustc\", Platform:\"{}\"}}",
            env!("CARGO_PKG_VERSION_MAJOR"),
            env!("CARGO_PKG_VERSION_MINOR"),
            commit(),
            platform()
        )),
    }
}
