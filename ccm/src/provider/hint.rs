//! What a provider says of itself, unasked.

/// A hint of the provider that something may have changed; may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Anything.
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
