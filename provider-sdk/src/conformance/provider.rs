//! ProviderService (PROV).

use cloud_provider_api::v1alpha1 as pb;

use super::check::{Check, Verdict, check};
use super::run::Run;

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "provider/probe-tells-the-boot-id",
        ["PROV-4", "PROV-7"],
        "Probe and GetProviderInfo tell the same boot_id",
        probe_boot_id
    )]
}

async fn probe_boot_id(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let info = session.call(pb::GetProviderInfoRequest::default()).await;
    let boot_id = &info.answer()?.boot_id;
    let probe = session.call(pb::ProbeRequest::default()).await;
    probe.must(
        &probe.answer()?.boot_id == boot_id,
        "PROV-7",
        format_args!("boot_id {boot_id:?}, as GetProviderInfo says"),
    )
}
