//! The label of the metrics about one provider.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// `provider`: the name that the operator gave the provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProviderLabel {
    provider: String,
}

impl From<&str> for ProviderLabel {
    fn from(provider: &str) -> Self {
        let provider = provider.to_owned();
        Self { provider }
    }
}

/// Sets the provider's gauge to a count.
pub(crate) fn set_gauge(family: &Family<ProviderLabel, Gauge>, provider: &str, count: usize) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    family.get_or_create(&provider.into()).set(count);
}
