//! The hints that a provider sends in WatchChanges.

/// A provider's hint that something may have changed. Hints can be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Anything may have changed. The ccm makes this hint too, when it may have missed some.
    Resync,
    /// An instance, by provider ID or Node name (either may be empty).
    Instance {
        /// The provider ID, or empty.
        provider_id: String,
        /// The Node's name, or empty.
        node_name: String,
    },
    /// A load balancer.
    LoadBalancer {
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
    },
    /// Routes.
    Routes,
}
