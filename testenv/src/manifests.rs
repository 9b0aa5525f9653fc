//! Renders the manifests of `deploy/` with helm and kustomize, built from their Go modules.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::{
    binary::{control_plane_binary, helm_binary},
    error::{Error, While},
};

/// The namespace that all manifests are for, unless somebody chooses another.
pub const NAMESPACE: &str = "kube-system";

/// The folder `deploy`.
pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// `helm`. The caller adds arguments and runs it. By default it reaches no cluster.
pub fn helm() -> Result<Command, Error> {
    let mut command = Command::new(helm_binary()?);
    // Nothing of the user who runs the test: no repositories, plugins, or cluster.
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, std::env::temp_dir().join("no-helm-home"));
    }
    command.env("KUBECONFIG", "/dev/null");
    Ok(command)
}

/// The chart rendered with these values: only these templates, or all if the list is empty.
///
/// # Errors
///
/// [`Error::Refused`] with helm's message, if the chart refuses the values.
pub fn render(values: &Value, templates: &[&str]) -> Result<String, Error> {
    render_chart(&deploy().join("chart"), values, templates)
}

/// The same for a chart in another place.
///
/// # Errors
///
/// As [`render`].
pub fn render_chart(chart: &Path, values: &Value, templates: &[&str]) -> Result<String, Error> {
    let mut helm = helm()?;
    helm.args(["template", "cloud-controller-manager"])
        .arg(chart)
        .args(["--namespace", NAMESPACE, "--values", "-"]);
    for template in templates {
        helm.args(["--show-only", &format!("templates/{template}")]);
    }
    told(helm, values.to_string().as_bytes())
}

/// The output of `kubectl kustomize` for this folder of `deploy/kustomize`.
///
/// # Errors
///
/// [`Error::Refused`] with its message, if the folder cannot be built.
pub fn kustomize(folder: &str) -> Result<String, Error> {
    let mut kubectl = Command::new(control_plane_binary()?);
    kubectl
        .args(["kubectl", "kustomize"])
        .arg(deploy().join("kustomize").join(folder))
        .env("KUBECONFIG", "/dev/null");
    told(kubectl, b"")
}

/// The objects in a text of YAML documents.
///
/// # Panics
///
/// If the text is no YAML.
pub fn objects(text: &str) -> Vec<Value> {
    let objects: Vec<Value> =
        serde_yaml::from_multiple(text).unwrap_or_else(|error| panic!("no YAML: {error}\n{text}"));
    objects
        .into_iter()
        .filter(|object| !object.is_null())
        .collect()
}

/// The output of a command with this input.
fn told(mut command: Command, input: &[u8]) -> Result<String, Error> {
    let what = format!("cannot run {command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .while_doing(|| what.clone())?;
    if let Some(mut stdin) = child.stdin.take() {
        // The command may end without reading all input, and then reports why.
        let _ = stdin.write_all(input);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().while_doing(|| what)?;
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    } else {
        Err(Error::Refused(
            String::from_utf8_lossy(&stderr).trim().to_owned(),
        ))
    }
}
