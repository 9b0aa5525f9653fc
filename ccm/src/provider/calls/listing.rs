//! A listing is a stream that ends with a count. A stream without the count is no listing
//! (CORE-16).

use cloud_provider_api::v1alpha1 as api;
use prost::Message;

use super::super::CallError;
use super::super::failures::{self, Place};

/// A part of a listing.
pub(super) enum Part<T> {
    Failed(api::Failure),
    Items(Vec<T>),
    End(api::ListEnd),
    Unset,
}

/// Reads a listing to its end.
pub(super) async fn collect<M: Message + Default, T>(
    rpc: &str,
    mut stream: tonic::Streaming<M>,
    part: impl Fn(M) -> Part<T>,
) -> Result<Vec<T>, CallError> {
    let mut items = Vec::new();
    let mut end: Option<api::ListEnd> = None;
    while let Some(message) = stream.message().await? {
        if end.is_some() {
            return Err(CallError::fault("something follows the end of the listing"));
        }
        match part(message) {
            Part::Failed(failure) => {
                return Err(failures::trouble(rpc, Place::Whole, failure));
            }
            // The list of the first part becomes the result, without a copy.
            Part::Items(more) if items.is_empty() => items = more,
            Part::Items(more) => items.extend(more),
            Part::End(given) => end = Some(given),
            Part::Unset => {
                return Err(CallError::fault(
                    "a part of the listing is not set, or of a kind that this contract minor does not know",
                ));
            }
        }
    }
    match end {
        None => Err(CallError::fault(format!(
            "the listing stopped after {} items without its end: it is not complete",
            items.len()
        ))),
        Some(end) if end.total != items.len() as u64 => Err(CallError::fault(format!(
            "the listing says that it has {} items, but {} came: it is not complete",
            end.total,
            items.len()
        ))),
        Some(_) => Ok(items),
    }
}
