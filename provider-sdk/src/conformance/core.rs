//! The rules of all services (CORE).

use cloud_provider_api::v1alpha1 as pb;

use super::check::{Check, Verdict, check};
use super::run::Run;

pub(super) fn checks() -> Vec<Check> {
    vec![check!(
        "core/answers-on-a-new-connection",
        ["CORE-1"],
        "gRPC over HTTP/2 is served on the Unix socket, on each new connection",
        new_connections
    )]
}

async fn new_connections(run: &Run) -> Verdict {
    for _ in 0..5 {
        let session = run.connect().await?;
        session.call(pb::ProbeRequest::default()).await.answer()?;
    }
    Ok(())
}
