//! The tower layer under every Kubernetes client: fence, timeouts, 429 and Retry-After, metrics.

use kube::Client;

/// The clients of this process; each goes through the layer of this module.
#[derive(Clone)]
pub(crate) struct KubeClients {
    /// Lists and watches; refuses everything that is not a GET.
    pub(crate) watch: Client,
    /// Reads and writes; everything that is not a GET passes the Fence.
    pub(crate) write: Client,
    /// The Lease: not fenced, it is what the fence is made of.
    pub(crate) lease: Client,
    /// TokenReviews and SubjectAccessReviews of the HTTPS port: not fenced.
    pub(crate) review: Client,
}
