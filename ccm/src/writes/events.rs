//! Our event sink: bounded, one task, keyed by object and reason; the newest text wins.
//!
//! [`EventSink::record`] puts a draft into a bounded queue, where a later one of the same key only changes text and count. [`EventWriter::run`]
//! writes one after the other, a repeat as a patch of the Event that there is and not more often than its series and all series together may, so that 5,000 `Synced` events do not stand in the way of the patches.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod limits;
mod pending;
mod series;
mod writer;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume, Service};
use kube::{Client, Resource};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::core::text::plain;
use crate::core::{WallClock, lock};
use pending::{Draft, EventKey, Object, Pending};
pub(crate) use writer::EventWriter;

/// Drafts that wait at most; further ones are dropped and counted. 5,000 Nodes are initialised at once in half of it.
const BOUND: usize = 10_000;
/// Bytes of a message; the API's limit for new events.
const MESSAGE_BYTES: usize = 1_024;
/// Who speaks where no component was given.
const COMPONENT: &str = "cloud-controller-manager";

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventType {
    /// For what went as it should.
    Normal,
    /// For what somebody should look at.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Where events go. Clones share one queue.
#[derive(Clone)]
pub(crate) struct EventSink {
    shared: Arc<Shared>,
    component: &'static str,
    /// Writes the events of components that are named from here on.
    own: Option<Client>,
}

struct Shared {
    pending: Mutex<Pending>,
    changed: Notify,
    idle: Notify,
    /// Who waits until all is written: then nothing is held back.
    flushing: AtomicUsize,
    wall: WallClock,
    metrics: EventMetrics,
    /// The clients of components that have an identity of their own.
    own: Mutex<BTreeMap<&'static str, Client>>,
}

impl Shared {
    fn own(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Client>> {
        lock(&self.own)
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Pending> {
        lock(&self.pending)
    }
}

impl EventSink {
    /// A sink, and what writes its events once it is run. `client` is the fenced one; `instance` names this process (`reportingInstance`).
    pub(crate) fn new(
        client: Client,
        instance: String,
        wall: WallClock,
        metrics: EventMetrics,
    ) -> (Self, EventWriter) {
        let shared = Arc::new(Shared {
            pending: Mutex::new(Pending::new(BOUND)),
            changed: Notify::new(),
            idle: Notify::new(),
            flushing: AtomicUsize::new(0),
            wall,
            metrics,
            own: Mutex::default(),
        });
        let sink = Self {
            shared: Arc::clone(&shared),
            component: COMPONENT,
            own: None,
        };
        (sink, EventWriter::new(shared, client, instance))
    }

    /// The same sink for events of this component, with upstream's name for it (`service-controller`).
    pub(crate) fn for_component(&self, component: &'static str) -> Self {
        if let Some(own) = &self.own {
            self.shared.own().insert(component, own.clone());
        }
        Self {
            shared: Arc::clone(&self.shared),
            component,
            own: self.own.clone(),
        }
    }

    /// The same sink; events of the component that is named next are written by this client, as the controller's own identity. Where that may not, they are written
    /// by the process's all the same: else nobody would be told why nothing goes on.
    pub(crate) fn written_by(&self, own: Client) -> Self {
        Self {
            own: Some(own),
            ..self.clone()
        }
    }

    /// Records an event on the object; never waits, never fails: what does not fit is dropped and counted.
    /// Of a message, the first 1,024 bytes count.
    pub(crate) fn record(
        &self,
        object: &ObjectReference,
        kind: EventType,
        reason: &str,
        message: String,
    ) {
        let now = (self.shared.wall)();
        let key = EventKey {
            component: self.component,
            kind,
            reason: reason.to_owned(),
            object: Arc::new(Object {
                uid: object.uid.clone().unwrap_or_default(),
                kind: object.kind.clone().unwrap_or_default(),
                namespace: object.namespace.clone().unwrap_or_default(),
                name: object.name.clone().unwrap_or_default(),
            }),
        };
        let draft = Draft {
            object: object.clone(),
            message: cut(message),
            count: 1,
            first: now,
            last: now,
        };
        let kept = self.shared.pending().add(key, draft);
        if kept {
            self.shared.changed.notify_one();
        } else {
            self.shared.metrics.dropped("full");
        }
    }

    /// Returns when everything that was recorded is written or given up, or after `cap`.
    pub(crate) async fn flush(&self, cap: Duration) {
        let idle = async {
            loop {
                let mut notified = pin!(self.shared.idle.notified());
                notified.as_mut().enable();
                if self.shared.pending().is_idle() {
                    return;
                }
                notified.await;
            }
        };
        self.shared.flushing.fetch_add(1, Ordering::Relaxed);
        self.shared.changed.notify_one();
        // What is left is dropped with a warning by the writer: it is only events.
        let _ = timeout(cap, idle).await;
        self.shared.flushing.fetch_sub(1, Ordering::Relaxed);
    }

    /// What waits to be written, as `Type Reason namespace/name: message` (`(xN)` for repeats) in the order in which it was recorded: for tests of loops, whose writer
    /// is not run.
    #[cfg(test)]
    pub(crate) fn recorded(&self) -> Vec<String> {
        self.shared.pending().shown()
    }

    /// A sink that nobody empties, for tests of loops.
    #[cfg(test)]
    pub(crate) fn unwritten() -> Self {
        let pending = Pending::new(BOUND);
        Self {
            shared: Arc::new(Shared {
                pending: Mutex::new(pending),
                changed: Notify::new(),
                idle: Notify::new(),
                flushing: AtomicUsize::new(0),
                wall: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
                metrics: EventMetrics::register(&mut Registry::default()),
                own: Mutex::default(),
            }),
            component: COMPONENT,
            own: None,
        }
    }
}

/// At most `MESSAGE_BYTES`, at a character's boundary, on one line: the words may be a provider's.
fn cut(message: String) -> String {
    let mut message = match plain(&message) {
        Cow::Owned(plain) => plain,
        Cow::Borrowed(_) => message,
    };
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
    message
}

/// The metrics of the sink.
#[derive(Clone)]
pub(crate) struct EventMetrics {
    written: Counter,
    dropped: Family<[(&'static str, &'static str); 1], Counter>,
}

impl EventMetrics {
    /// Registers the families.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            written: Counter::default(),
            dropped: Family::default(),
        };
        registry.register(
            "ccm_events_written",
            "Events that the API server accepted",
            metrics.written.clone(),
        );
        registry.register(
            "ccm_events_dropped",
            "Events that the ccm did not write: the queue was full, an object had too many (`limited`), the API server refused or did not answer, or the Lease was lost",
            metrics.dropped.clone(),
        );
        metrics
    }

    /// One that was dropped, for tests of what is shown.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        self.dropped("full");
    }

    fn written(&self) {
        self.written.inc();
    }

    fn dropped(&self, why: &'static str) {
        self.dropped.get_or_create(&[("why", why)]).inc();
    }
}

fn reference(object: &impl Resource, kind: &str) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// The reference of a Node as upstream's cloud controllers make it, with the real UID (the kubelet's events have the name there; `kubectl describe node` shows both).
pub(crate) fn node_reference(node: &Node) -> ObjectReference {
    reference(node, "Node")
}

/// The reference of a Service.
pub(crate) fn service_reference(service: &Service) -> ObjectReference {
    reference(service, "Service")
}

/// The reference of a PersistentVolume.
pub(crate) fn volume_reference(volume: &PersistentVolume) -> ObjectReference {
    reference(volume, "PersistentVolume")
}

#[cfg(test)]
mod tests;
