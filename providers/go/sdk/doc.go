// Package sdk serves the cloud provider contract (cloudprovider.v1alpha1) on a Unix socket. With it a vendor writes a provider: the process through
// which the Kubernetes controllers use the vendor's cloud.
//
// A vendor implements [Provider] and, on the same value, the interfaces that the cloud supports:
// [Instances], [Zones], [LoadBalancers], [Routes], [Clusters], [Volumes] and [Changes]. A cloud
// that answers for many Nodes or routes at once implements [InstanceBatches], [ZoneBatches] or
// [RouteBatches]; one that can list completely implements [InstanceLister] or [LoadBalancerLister].
// The capabilities that the controller sees follow from that and from [Info]. [Server] does the
// rest: the socket, the check of the peer, the session, BUSY, limits, batches, deadlines, panics,
// health, reflection and the end of the process.
//
// Errors: each code of the contract except NOT_INITIALIZED has a constructor ([Invalid], [Precondition], [NotFound], [Conflict], [Busy], [Throttled],
// [Credentials], [Unavailable], [Internal]). The server finds such an error also if it is wrapped. An error of a context is UNAVAILABLE, or pending
// if the time of an Ensure, Update or Delete of a load balancer is over. Any other error is INTERNAL: its text goes only to the log, not to the
// controller. [Pending], [ErrHandledElsewhere] and [Retained] are no failures. Methods return them as errors, as Go's cloud providers return
// RetryError and ImplementedElsewhere.
//
// Contexts: the context of a method ends at 70 % of the call's time, or earlier if the caller goes or the server's drain is over. The context of
// [Changes.WatchChanges] has no time limit. A method passes its context to the cloud's client and calls [BeforeWrite] before each write (CORE-8). If
// a method ignores its context, the server still answers the call. The object of a mutating call stays BUSY until the method returns. Once 2 methods
// of one RPC for one item (such as a Node) have outlasted their calls, the server answers UNAVAILABLE for that item. Once 256 methods of one RPC have,
// it answers UNAVAILABLE to that RPC. Each limit holds until one of the methods returns. [Changes.WatchChanges] has no such limit.
//
// Comments cite the contract's rules by their IDs, such as INST-1. Their text is in the comments of proto/cloudprovider/v1alpha1.
package sdk
