//! Implements the tonic services by the vendor's traits. Each service has a file. `run` has the
//! parts that all calls share. `convert` and `limits` have the parts that several messages share.

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

/// A service on top of the [`Core`].
#[derive(Clone)]
pub(crate) struct Wrap(pub(crate) Arc<Core>);

/// A listing as a stream of parts.
type Parts<R> = BoxStream<'static, Result<R, Status>>;

/// The most items and bytes in one part of a listing. A larger item is a part of its own.
const PART_ITEMS: usize = 500;
const PART_BYTES: usize = 1024 * 1024;

/// A complete listing: its parts, then the end with the total (CORE-16).
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

/// A failed listing.
fn not_listed<R: Send + 'static>(part: R) -> Parts<R> {
    stream::iter([Ok(part)]).boxed()
}

/// The failure of a call to a service or RPC that the provider does not offer.
fn not_offered(service: &str) -> Failure {
    Failure::internal(format!(
        "this provider does not offer {service}; its capabilities say so"
    ))
}
