//! Requests of a later minor (CORE-13).

use std::sync::Arc;

use bytes::Bytes;
use cloud_provider_api::v1alpha1 as pb;
use prost::Message;
use tokio::time::Instant;
use tonic::Status;

use super::call::{Exchange, Rpc};
use super::session::Session;

/// Appends fields that no minor has: a text, a number, a message.
fn with_unknown_fields(request: &impl Message) -> Bytes {
    let mut bytes = request.encode_to_vec();
    prost::encoding::string::encode(15_001, &"from tomorrow".to_owned(), &mut bytes);
    prost::encoding::uint64::encode(15_002, &u64::MAX, &mut bytes);
    prost::encoding::message::encode(15_003, &pb::ListEnd { total: 7 }, &mut bytes);
    bytes.into()
}

/// Sends a request with fields that no minor has.
pub(super) async fn call_with_unknown_fields<R: Rpc>(
    session: &Session,
    mut request: R,
) -> Exchange<R::Response> {
    request.set_cluster(Some(session.cluster().clone()));
    let bytes = with_unknown_fields(&request);
    let began = Instant::now();
    let came = session
        .raw(R::PATH, bytes, R::DEADLINE)
        .await
        .and_then(|bytes| {
            R::Response::decode(bytes).map_err(|error| Status::internal(error.to_string()))
        });
    Exchange {
        rpc: R::NAME,
        sent: Arc::new((request, "and three unknown fields")),
        came,
        took: began.elapsed(),
    }
}
