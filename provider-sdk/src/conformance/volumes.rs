//! VolumeService (VOL).

use cloud_provider_api::v1alpha1 as pb;
use pb::FailureCode;

use super::check::{Check, Need, Verdict, check};
use super::run::Run;

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "volumes/a-disk-that-does-not-exist-is-not-found",
        ["VOL-1"],
        "a disk of our own source that does not exist is NOT_FOUND",
        [Need::Volumes],
        not_found
    )]
}

async fn not_found(run: &Run) -> Verdict {
    let offered = run.capabilities().volumes.unwrap_or_default();
    let ours = offered.source_types.first();
    let driver = ours.and_then(|source| source.strip_prefix("csi/"));
    let session = run.session().await?;
    let mut source = [("volumeHandle".to_owned(), run.name("disk"))];
    if driver.is_none() {
        source[0].0 = "volumeID".into();
    }
    let mut source: std::collections::BTreeMap<_, _> = source.into();
    if let Some(driver) = driver {
        source.insert("driver".into(), driver.into());
    }
    let asked = session
        .call(pb::GetVolumeLabelsRequest {
            cluster: None,
            volume: Some(pb::VolumeView {
                name: run.name("volume"),
                uid: run.uid(),
                source_type: match (driver, ours) {
                    (Some(_), _) | (None, None) => "csi".into(),
                    (None, Some(field)) => field.clone(),
                },
                source: source.into_iter().collect(),
                ..Default::default()
            }),
        })
        .await;
    asked.failure("VOL-1", &[FailureCode::NotFound]).map(|_| ())
}
