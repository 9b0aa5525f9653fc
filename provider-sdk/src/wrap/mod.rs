//! From the traits to tonic services: one file per service, `run` for what every call has in common, `convert` and `limits` for the messages.

mod clusters;
mod convert;
mod instances;
mod limits;
mod load_balancers;
mod provider;
mod routes;
pub(crate) mod run;
mod volumes;
mod zones;

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use tonic::Status;

use cloud_provider_api::v1alpha1 as pb;

use crate::Failure;
pub(crate) use run::Core;

/// A service that is served from the [`Core`].
#[derive(Clone)]
pub(crate) struct Wrap(pub(crate) Arc<Core>);

/// A listing as its stream of parts.
type Parts<R> = BoxStream<'static, Result<R, Status>>;

/// The most items in one part of a listing, and the most bytes.
const PART_ITEMS: usize = 500;
const PART_BYTES: usize = 1024 * 1024;

/// A whole listing: its parts, then the end with the total (CORE-16).
fn listed<T: prost::Message, R: Send + 'static>(
    items: Vec<T>,
    part: impl Fn(Vec<T>) -> R,
    end: impl Fn(pb::ListEnd) -> R,
) -> Parts<R> {
    let total = items.len() as u64;
    let mut parts = Vec::new();
    let mut page = Vec::new();
    let mut bytes = 0;
    for item in items {
        let size = item.encoded_len();
        if !page.is_empty() && (page.len() == PART_ITEMS || bytes + size > PART_BYTES) {
            parts.push(Ok(part(std::mem::take(&mut page))));
            bytes = 0;
        }
        bytes += size;
        page.push(item);
    }
    if !page.is_empty() {
        parts.push(Ok(part(page)));
    }
    parts.push(Ok(end(pb::ListEnd { total })));
    stream::iter(parts).boxed()
}

/// A listing that failed.
fn not_listed<R: Send + 'static>(part: R) -> Parts<R> {
    stream::iter([Ok(part)]).boxed()
}

/// What a call of a service is told that the provider does not offer (any more).
fn not_offered(service: &str) -> Failure {
    Failure::internal(format!(
        "this provider does not offer {service}; its capabilities say so"
    ))
}
