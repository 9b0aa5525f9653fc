//! The manifests of a release name the images at the place to which the release pushes them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testenv::manifests::{deploy, objects, render_chart};

use crate::{container, on_top, pod};

/// The images of the ccm and of the provider in a released chart with these values.
fn images(chart: &Path, values: &Value) -> (String, String) {
    let made = objects(&render_chart(chart, values, &[]).unwrap());
    let image = |name| {
        container(pod(&made), name)["image"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    (image("ccm"), image("provider"))
}

#[test]
fn a_released_chart_finds_the_projects_images_and_a_vendors_where_the_operator_says() {
    let folder = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    let parts = [deploy().join("chart"), deploy().join("kustomize")];
    run(Command::new("cp").arg("-r").args(parts).arg(folder.path()));
    let script = deploy().join("../.ci/at-registry");
    run(Command::new(script)
        .arg(folder.path())
        .arg("registry.example/Acme/CCM"));

    let chart = folder.path().join("chart");
    let version = env!("CARGO_PKG_VERSION");
    let ccm = format!("registry.example/acme/ccm/ccm:{version}");
    let mock = format!("registry.example/acme/ccm/provider-mock:{version}");
    let named = json!({"provider": {"image": {"repository": "provider-mock"}}});
    assert_eq!(images(&chart, &named), (ccm.clone(), mock.clone()));
    let vendor =
        json!({"provider": {"image": {"repository": "cloud.example/provider", "tag": "1.2.3"}}});
    let expected = (ccm, "cloud.example/provider:1.2.3".to_owned());
    assert_eq!(images(&chart, &vendor), expected);
    let mirrored = on_top(
        named,
        &json!({"ccm": {"image": {"registry": "mirror.example"}}}),
    );
    let expected = (format!("mirror.example/ccm:{version}"), mock.clone());
    assert_eq!(images(&chart, &mirrored), expected);

    let overlay = folder
        .path()
        .join("kustomize/overlays/mock/kustomization.yaml");
    let base = folder.path().join("kustomize/base/deployment.yaml");
    let text = std::fs::read_to_string(base).unwrap() + &std::fs::read_to_string(overlay).unwrap();
    assert!(
        text.contains(&mock) && !text.contains("localhost/"),
        "{text}"
    );
}
