//! The reasons of our own events. Each word stands here and nowhere else, and docs/operator-guide.md lists them from here.

/// A row of the table, for the documentation.
#[cfg(test)]
pub(crate) struct Row {
    pub(crate) word: &'static str,
    /// `Normal`, `Warning`, or both.
    pub(crate) kind: &'static str,
    /// On what.
    pub(crate) on: &'static str,
    /// What it means, and what to do.
    pub(crate) meaning: &'static str,
}

macro_rules! reasons {
    ($($name:ident $word:literal $kind:literal $on:literal $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub(crate) const $name: &str = $word;
        )*

        /// Whether the reason is one of ours, and not a provider's.
        pub(crate) fn is_ours(reason: &str) -> bool {
            matches!(reason, $($word)|*)
        }

        /// All of them.
        #[cfg(test)]
        pub(crate) const TABLE: &[Row] = &[$(
            Row { word: $word, kind: $kind, on: $on, meaning: $meaning },
        )*];
    };
}

reasons! {
    SYNCED "Synced" "Normal" "Node" "The Node is initialised: addresses, provider ID and labels are set, the `uninitialized` taint is off.";
    NODE_NOT_INITIALIZED "NodeNotInitialized" "Warning" "Node"
        "The Node still carries the `uninitialized` taint; the text says what the provider answered and when the next try is.";
    INVALID_NODE_LABEL "InvalidNodeLabel" "Warning" "Node" "The provider gave values that cannot be labels; they were left out, the rest was set. Tell the provider's vendor.";
    NODE_ADDRESS_MISMATCH "NodeAddressMismatch" "Warning" "Node"
        "The kubelet's `--node-ip` (annotation `alpha.kubernetes.io/provided-node-ip`) is not among the addresses that the provider knows; the addresses stay as they are.";
    NODE_TOO_LARGE_FOR_TARGET "NodeTooLargeForTarget" "Warning" "Node"
        "What the provider would be sent of this Node has more than 64 KiB, so that it is no target of load balancers: look at its addresses, labels and annotations.";
    NODE_WRITE_REFUSED "NodeWriteRefused" "Warning" "Node" "The API server refused the patch of the Node: missing rights (RBAC) or an admission webhook. The text is the API server's.";
    DELETING_NODE "DeletingNode" "Normal" "Node" "The Node object is deleted: its instance does not exist any more.";
    DELETING_NODE_FAILED "DeletingNodeFailed" "Warning" "Node" "The API server did not delete the Node; it is decided anew in the next pass.";
    NODE_DELETION_HELD "NodeDeletionHeld" "Warning" "Node" "The deletion brake holds: more instances are called gone than may be deleted at once; or other Nodes have the same provider ID; or the provider's own list has the instance. See node-deletion.md.";
    FAILED_TO_CREATE_ROUTE "FailedToCreateRoute" "Warning" "Node" "The route to this Node's Pods is missing; the text says what the provider answered and when the next try is.";
    ENSURING_LOAD_BALANCER "EnsuringLoadBalancer" "Normal" "Service" "Ensure is called.";
    ENSURED_LOAD_BALANCER "EnsuredLoadBalancer" "Normal" "Service" "The load balancer is as the Service asks, and the status is written.";
    UPDATED_LOAD_BALANCER "UpdatedLoadBalancer" "Normal" "Service" "The load balancer has the Nodes of now as its targets.";
    LOAD_BALANCER_PENDING "LoadBalancerPending" "Normal, Warning" "Service" "The cloud is at it (Normal), or the provider cannot be asked now (Warning); it goes on by itself.";
    DELETING_LOAD_BALANCER "DeletingLoadBalancer" "Normal" "Service" "Delete is called, or the cloud is still at it.";
    DELETED_LOAD_BALANCER "DeletedLoadBalancer" "Normal" "Service" "The load balancer is gone; the finalizer goes.";
    SYNC_LOAD_BALANCER_FAILED "SyncLoadBalancerFailed" "Warning" "Service" "It could not be made, read or deleted; the text says what the provider answered.";
    UPDATE_LOAD_BALANCER_FAILED "UpdateLoadBalancerFailed" "Warning" "Service" "Its targets could not be changed, or one of them could not be attached.";
    DELETE_LOAD_BALANCER_FAILED "DeleteLoadBalancerFailed" "Warning" "Service" "The load balancer of a Service that is gone already could not be deleted; it is tried again.";
    UNAVAILABLE_LOAD_BALANCER "UnAvailableLoadBalancer" "Warning" "Service" "No Node is a target of the load balancer: see Labels and taints for what excludes one.";
    LOAD_BALANCER_TARGETS_CUT "LoadBalancerTargetsCut" "Warning" "Service"
        "More Nodes could be targets than the provider takes for one load balancer: Ready ones were chosen first. With `externalTrafficPolicy: Local` choose those that have Pods of the Service by the annotation `grpc-ccm.io/node-selector`.";
    RETAINED_LOAD_BALANCER "RetainedLoadBalancer" "Warning" "Service" "The provider keeps the load balancer on purpose; the finalizer goes. It still costs.";
    ORPHANED_LOAD_BALANCER "OrphanedLoadBalancer" "Warning" "Service" "A load balancer in the cloud is marked for this Service, which does not exist any more: see `--orphaned-load-balancers`.";
    DUPLICATE_LOAD_BALANCER "DuplicateLoadBalancer" "Warning" "Service"
        "Two lists of the provider in a row show more than one load balancer that is marked for this Service. It uses the one that its handle names; the text names the others. What is left over costs: look in the cloud whether it serves (it may be a part of the same load balancer) before you delete it there.";
    LOAD_BALANCER_NOT_LISTED "LoadBalancerNotListed" "Warning" "Service"
        "Two lists of the provider in a row do not have the load balancer that it said stands: somebody removed it in the cloud, or the lists are not complete.";
    LOAD_BALANCER_TAKEN_OVER "LoadBalancerTakenOver" "Warning" "Service"
        "The provider called a load balancer somebody else's, or unmarked without `--adopt-unmarked-load-balancers`, and then made this Service ready at the same address. Where load balancers do not share addresses it took that one over: look at whose it was, and tell the provider's vendor.";
    INVALID_LOAD_BALANCER_HANDLE "InvalidLoadBalancerHandle" "Warning" "Service"
        "The annotation `grpc-ccm.io/load-balancer` was edited and cannot be read; the provider finds the load balancer by its own marks.";
    UNSUPPORTED_SERVICE_FIELD "UnsupportedServiceField" "Warning" "Service" "The Service uses fields that this provider does not honour; the rest is done.";
    ANNOTATIONS_REFUSED "AnnotationsRefused" "Warning" "Service" "The provider wanted to write annotations outside of `--provider-annotation-prefixes`; they were dropped.";
    PROVIDER_CREDENTIALS_REFUSED "ProviderCredentialsRefused" "Warning" "Service"
        "The cloud refuses the provider's credentials: told on one Service for all of them. Renew the provider's secret.";
    PROVIDER_EVENT "ProviderEvent" "Normal, Warning" "Service" "An event of the provider whose own reason was no single word, or one of these; others of its events have reasons that the vendor documents.";
    VOLUME_LABELS_FAILED "VolumeLabelsFailed" "Warning" "PersistentVolume" "The provider did not say the volume's labels; it is tried again.";
    VOLUME_NOT_FOUND "VolumeNotFound" "Warning" "PersistentVolume" "The cloud has no such disk; the volume is left alone.";
    VOLUME_LABELS_DROPPED "VolumeLabelsDropped" "Warning" "PersistentVolume" "The provider gave values that cannot be labels; the rest was set.";
    VOLUME_AFFINITY_NOT_SET "VolumeAffinityNotSet" "Warning" "PersistentVolume" "Labels were set; the volume was created with a node affinity that zone and region could not be added to.";
    VOLUME_WRITE_REFUSED "VolumeWriteRefused" "Warning" "PersistentVolume" "The API server refused the patch of the volume: missing rights or an admission webhook.";
    CLOUD_SCOPE_CHANGED "CloudScopeChanged" "Warning" "Lease"
        "The provider's credentials reach another account, project or region than before: nothing is made or deleted. The text has the command that accepts it.";
    CLOUD_SCOPE_ACCEPTED "CloudScopeAccepted" "Normal" "Lease" "The cloud scope is the accepted one again: work goes on.";
    PROVIDER_CLAIMS_HELD "ProviderClaimsHeld" "Warning" "Lease"
        "The provider claims load balancer classes or prefixes of provider IDs that it did not claim before, or that the flags do not allow: these are not served. The text has the command that accepts them.";
    NODES_OF_ANOTHER_CLOUD "NodesOfAnotherCloud" "Warning" "Lease"
        "Not one Node is of the provider's cloud, by their provider IDs: all are left alone. Is it the right provider? `ccm_provider_unclaimed_nodes` counts them.";
    LEADER_ELECTION "LeaderElection" "Normal" "Lease" "A process began or ceased to lead.";
}
