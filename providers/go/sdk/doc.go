// Package sdk is what a vendor links to serve the cloud provider contract (cloudprovider.v1alpha1): a cloud for the Kubernetes controllers, as a process of its own on
// a Unix socket.
//
// A vendor implements [Provider] and, of [Instances], [Zones], [LoadBalancers], [Routes], [Clusters], [Volumes] and [Changes], what the cloud has, all on one value.
// A cloud that answers for many Nodes or routes at once implements [InstanceBatches], [ZoneBatches] or [RouteBatches]; one that can list completely implements
// [InstanceLister] or [LoadBalancerLister]. The capabilities that the controller sees follow from that. [Server] does the rest: the socket, who may connect, the session,
// BUSY, limits, batches, deadlines, panics, health, reflection and the end of the process.
//
// Errors: one constructor for each row of the contract's table ([Invalid], [Precondition], [NotFound], [Conflict], [Busy], [Throttled], [Credentials], [Unavailable],
// [Internal]), found by errors.As also where they are wrapped. Any other error is INTERNAL: the log has its text, the controller does not. [Pending],
// [ErrHandledElsewhere] and [Retained] are answers and no failures; they travel as errors, as RetryError and ImplementedElsewhere do in Go's cloud providers.
//
// Contexts: the context of a method ends at 70 % of the call's time, when nobody waits for the answer any more, and when the server's drain is over. A method
// passes it to its cloud's client and asks [BeforeWrite] before each write (CORE-8). A method that ignores its context does not keep the call from being answered, but it
// keeps its object BUSY until it returns. Where several lookups of one Node, or very many calls of one RPC, do not return, no other is begun: UNAVAILABLE.
//
// The contract's rules are cited by their IDs, such as INST-1; their text is in the comments of proto/cloudprovider/v1alpha1.
package sdk
