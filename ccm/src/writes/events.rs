//! Our event sink: bounded, one task, keyed by object and reason; the newest text wins.

use k8s_openapi::api::core::v1::ObjectReference;

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    /// For what went as it should.
    Normal,
    /// For what somebody should look at.
    Warning,
}

/// Where events go. Clones share one queue.
#[derive(Clone)]
pub(crate) struct EventSink {}

impl EventSink {
    /// Records an event on the object; never waits, never fails: what does not fit is dropped and counted.
    pub(crate) fn record(
        &self,
        _object: &ObjectReference,
        _kind: EventType,
        _reason: &str,
        _message: String,
    ) {
        todo!()
    }
}

/// The reference of a Node as upstream's controllers make it.
pub(crate) fn node_reference(_node: &k8s_openapi::api::core::v1::Node) -> ObjectReference {
    todo!()
}

/// The reference of a Service.
pub(crate) fn service_reference(_service: &k8s_openapi::api::core::v1::Service) -> ObjectReference {
    todo!()
}
