//! The reasons of the ccm's events. Each is defined only here. A test compares the list in
//! docs/operator-guide.md with this table.

/// A row of the table, for the documentation.
#[cfg(test)]
pub(crate) struct Row {
    pub(crate) word: &'static str,
    /// `Normal`, `Warning`, or both.
    pub(crate) kind: &'static str,
    /// The kind of object.
    pub(crate) on: &'static str,
    /// Its meaning, and how to react.
    pub(crate) meaning: &'static str,
}

macro_rules! reasons {
    ($($name:ident $word:literal $kind:literal $on:literal $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub(crate) const $name: &str = $word;
        )*

        /// Whether the reason is one of the ccm's and not a provider's.
        pub(crate) fn is_ours(reason: &str) -> bool {
            matches!(reason, $($word)|*)
        }

        #[cfg(test)]
        pub(crate) const TABLE: &[Row] = &[$(
            Row { word: $word, kind: $kind, on: $on, meaning: $meaning },
        )*];
    };
}

reasons! {
    SYNCED "Synced" "Normal" "Node" "The ccm initialised the Node: it set addresses, provider ID and labels, and removed the `uninitialized` taint.";
    NODE_NOT_INITIALIZED "NodeNotInitialized" "Warning" "Node"
        "The Node still has the `uninitialized` taint. The text has the cause, such as the provider's answer, and usually the next try.";
    INVALID_NODE_LABEL "InvalidNodeLabel" "Warning" "Node" "The provider reported values that are not valid labels. The ccm left them out and set the rest. Tell the provider's vendor.";
    NODE_ADDRESS_MISMATCH "NodeAddressMismatch" "Warning" "Node"
        "The kubelet's `--node-ip` (annotation `alpha.kubernetes.io/provided-node-ip`) is not among the addresses that the provider reports. The ccm keeps the Node's addresses.";
    NODE_TOO_LARGE_FOR_TARGET "NodeTooLargeForTarget" "Warning" "Node"
        "The Node's part of a request has more than 64 KiB, so the Node is no target of load balancers. Check its addresses, labels and annotations.";
    NODE_WRITE_REFUSED "NodeWriteRefused" "Warning" "Node" "The API server refused the patch of the Node: a missing right (RBAC) or an admission webhook. The text is the API server's.";
    DELETING_NODE "DeletingNode" "Normal" "Node" "The ccm is about to delete the Node: its instance does not exist any more.";
    DELETING_NODE_FAILED "DeletingNodeFailed" "Warning" "Node" "The API server refused to delete the Node, or did not answer. Later passes decide again.";
    NODE_DELETION_HELD "NodeDeletionHeld" "Warning" "Node" "The ccm does not delete the Node: the brake holds, another Node has its provider ID, or the provider's list has the instance, or failed. See node-deletion.md.";
    FAILED_TO_CREATE_ROUTE "FailedToCreateRoute" "Warning" "Node" "The route to this Node's Pods is missing. The text has the cause, such as the provider's answer, and usually the next try.";
    ENSURING_LOAD_BALANCER "EnsuringLoadBalancer" "Normal" "Service" "The ccm calls Ensure.";
    ENSURED_LOAD_BALANCER "EnsuredLoadBalancer" "Normal" "Service" "The provider answered `ready`, and the Service's status has the load balancer's addresses. `UpdateLoadBalancerFailed` reports targets that are not attached.";
    UPDATED_LOAD_BALANCER "UpdatedLoadBalancer" "Normal" "Service" "The provider set the current Nodes as targets. `UpdateLoadBalancerFailed` reports targets that are not attached.";
    LOAD_BALANCER_PENDING "LoadBalancerPending" "Normal, Warning" "Service" "The cloud still works on the load balancer (Normal), or the Service waits for something else (Warning): the provider is away or has not answered yet, its cloud scope is not accepted, the cloud asked to slow down, or no call is free. The ccm retries.";
    DELETING_LOAD_BALANCER "DeletingLoadBalancer" "Normal" "Service" "The ccm calls Delete, or the cloud still works on the deletion.";
    DELETED_LOAD_BALANCER "DeletedLoadBalancer" "Normal" "Service" "The provider answered that nothing of the load balancer is left, or, if neither the Service nor the answer has a handle, that another controller handles it. The ccm has removed the finalizer, unless the Service is gone already.";
    SYNC_LOAD_BALANCER_FAILED "SyncLoadBalancerFailed" "Warning" "Service" "The ccm could not create, read or delete the load balancer, or write the Service. The text has the cause, such as the provider's answer.";
    UPDATE_LOAD_BALANCER_FAILED "UpdateLoadBalancerFailed" "Warning" "Service" "The ccm could not change the load balancer's targets, or the cloud could not attach one of them.";
    DELETE_LOAD_BALANCER_FAILED "DeleteLoadBalancerFailed" "Warning" "Service" "The ccm could not delete the load balancer of a Service that is gone. It retries.";
    UNAVAILABLE_LOAD_BALANCER "UnAvailableLoadBalancer" "Warning" "Service" "No Node is a target of the load balancer: see Labels, annotations and taints for what excludes a Node.";
    LOAD_BALANCER_TARGETS_CUT "LoadBalancerTargetsCut" "Warning" "Service"
        "More Nodes qualify than the provider allows targets: the ccm chose Ready ones first. With `externalTrafficPolicy: Local` select the Nodes that have Pods of the Service by the annotation `grpc-ccm.io/node-selector`.";
    RETAINED_LOAD_BALANCER "RetainedLoadBalancer" "Warning" "Service" "The provider keeps the load balancer on purpose, and the ccm removes the finalizer. The load balancer may still cost money.";
    ORPHANED_LOAD_BALANCER "OrphanedLoadBalancer" "Warning" "Service" "A load balancer in the cloud is marked for this Service, which does not exist any more: see `--orphaned-load-balancers`.";
    DUPLICATE_LOAD_BALANCER "DuplicateLoadBalancer" "Warning" "Service"
        "Two lists of the provider in a row show more than one load balancer that is marked for this Service. The Service uses the one that its handle names; the text names the others. They may cost money. Check in the cloud whether one serves traffic (it may be a part of the same load balancer) before you delete it.";
    LOAD_BALANCER_NOT_LISTED "LoadBalancerNotListed" "Warning" "Service"
        "Two lists of the provider in a row lack the load balancer that it reported as ready. Somebody deleted it in the cloud, or the lists are not complete.";
    LOAD_BALANCER_TAKEN_OVER "LoadBalancerTakenOver" "Warning" "Service"
        "The provider reported a load balancer as another owner's, or as unmarked without `--adopt-unmarked-load-balancers`, and then made this Service ready at the same address. If load balancers do not share addresses, the provider took that one over: find its owner, and tell the provider's vendor.";
    INVALID_LOAD_BALANCER_HANDLE "InvalidLoadBalancerHandle" "Warning" "Service"
        "Somebody edited the annotation `grpc-ccm.io/load-balancer`, and the ccm cannot read it. The provider finds the load balancer by its own marks.";
    UNSUPPORTED_SERVICE_FIELD "UnsupportedServiceField" "Warning" "Service" "The Service uses fields that this provider does not honour. The provider ignores these fields, or refuses the Service (SyncLoadBalancerFailed).";
    ANNOTATIONS_REFUSED "AnnotationsRefused" "Warning" "Service" "The provider wanted to write annotations outside of `--provider-annotation-prefixes`, with invalid keys, or so many that all annotations under these prefixes would have more than 64 KiB. The ccm dropped these.";
    PROVIDER_CREDENTIALS_REFUSED "ProviderCredentialsRefused" "Warning" "Service"
        "The cloud refuses the provider's credentials. One Service shows this event for all Services. Renew the provider's secret.";
    PROVIDER_EVENT "ProviderEvent" "Normal, Warning" "Service" "An event of the provider whose reason is missing, is not one word, or is one of the ccm's reasons. The vendor documents the reasons of its other events.";
    VOLUME_LABELS_FAILED "VolumeLabelsFailed" "Warning" "PersistentVolume" "The call for the labels failed, or a zone or region is not valid. The ccm retries.";
    VOLUME_NOT_FOUND "VolumeNotFound" "Warning" "PersistentVolume" "The cloud has no such disk. The ccm leaves the volume alone.";
    VOLUME_LABELS_DROPPED "VolumeLabelsDropped" "Warning" "PersistentVolume" "The provider reported labels with invalid values or keys, or with reserved keys. The ccm set the rest.";
    VOLUME_AFFINITY_NOT_SET "VolumeAffinityNotSet" "Warning" "PersistentVolume" "The ccm set the labels. It could not add zone and region to the node affinity that the volume was created with, or the affinity has too many terms.";
    VOLUME_WRITE_REFUSED "VolumeWriteRefused" "Warning" "PersistentVolume" "The API server refused the patch of the volume: a missing right or an admission webhook; or the patch fails again and again.";
    CLOUD_SCOPE_CHANGED "CloudScopeChanged" "Warning" "Lease"
        "The provider's credentials reach another account, project or region than before. The ccm creates and deletes nothing. The text has the command that accepts the new scope.";
    CLOUD_SCOPE_ACCEPTED "CloudScopeAccepted" "Normal" "Lease" "The cloud scope is the accepted one again. The controllers continue.";
    PROVIDER_CLAIMS_HELD "ProviderClaimsHeld" "Warning" "Lease"
        "The provider claims load balancer classes or prefixes of provider IDs that it did not claim before, or that the flags do not allow. The ccm does not serve them. The text has the command that accepts the new ones, or names the flags.";
    NODES_OF_ANOTHER_CLOUD "NodesOfAnotherCloud" "Warning" "Lease"
        "By their provider IDs or labels, no Node belongs to the provider's cloud, so the ccm leaves all of them alone. Check that it is the right provider. `ccm_provider_unclaimed_nodes` counts them.";
    LEADER_ELECTION "LeaderElection" "Normal" "Lease" "A process started or stopped leading.";
}
