//! The gRPC contract between a Kubernetes cloud-controller-manager and a cloud provider process.
//!
//! The messages, clients and servers in [`v1alpha1`] are generated from
//! `proto/cloudprovider/v1alpha1/*.proto`. The comments of these files are the contract's text:
//! start at `types.proto`. This crate knows no Kubernetes client types.

/// Version `cloudprovider.v1alpha1` of the contract: messages, clients and servers.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    rustdoc::all
)]
pub mod v1alpha1 {
    tonic::include_proto!("cloudprovider.v1alpha1");

    /// The minor version of the contract that this crate was generated from.
    pub const CONTRACT_MINOR: u32 = 0;

    /// The encoded `google.protobuf.FileDescriptorSet` of this package and its imports, with
    /// comments. gRPC server reflection uses it, and so does code that reads the contract's text or
    /// the fields of its messages.
    pub const FILE_DESCRIPTOR_SET: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

    /// The most bytes of one answer of this RPC, for example `"LookupInstances"` (CORE-11). For a
    /// listing, the messages of the answer count together. For WatchChanges, each message counts
    /// alone.
    pub fn most_answer_bytes(rpc: &str) -> usize {
        const KIB: usize = 1024;
        match rpc {
            "GetProviderInfo" | "Initialize" | "Probe" | "WatchChanges" => 64 * KIB,
            "GetLoadBalancer" | "EnsureLoadBalancer" | "UpdateLoadBalancer"
            | "DeleteLoadBalancer" | "GetVolumeLabels" => 1024 * KIB,
            "ListInstances" | "ListLoadBalancers" | "ListRoutes" | "ListClusters" => {
                32 * 1024 * KIB
            }
            _ => MOST_MESSAGE_BYTES,
        }
    }

    /// The most bytes of any one message of an answer (CORE-11).
    pub const MOST_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
}
