//! The event sink: bounded, with one writing task. Drafts are keyed by object, reason, type and
//! component; the newest text wins.
//!
//! [`EventSink::record`] puts a draft into a bounded queue. A later draft with the same key updates
//! the waiting one. [`EventWriter::run`] writes one draft after the other, so that 5,000
//! `Synced` events do not delay the controllers' patches. It patches the existing Event for a
//! repeat, no more often than the limits of that Event, of its object and of all events allow. A
//! flush and the stop ignore these limits.

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

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::core::text::plain;
use crate::core::{WallClock, lock, registered};
use pending::{Draft, EventKey, Object, Pending};
pub(crate) use writer::EventWriter;

/// How many drafts may wait; the sink drops and counts further ones. Initialising 5,000 Nodes at
/// once makes 5,000 drafts.
const BOUND: usize = 10_000;
/// The limit of `events.k8s.io/v1` for a message, in bytes.
const MESSAGE_BYTES: usize = 1_024;
/// The component of events that name none.
const COMPONENT: &str = "cloud-controller-manager";

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventType {
    /// Nothing is wrong.
    Normal,
    /// Something needs attention.
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

#[derive(Clone)]
pub(crate) struct EventSink {
    shared: Arc<Shared>,
    component: &'static str,
    /// The client that writes events of the components named after `written_by`.
    own: Option<Client>,
}

struct Shared {
    pending: Mutex<Pending>,
    changed: Notify,
    idle: Notify,
    /// How many callers wait in `flush`. While any does, the writer holds nothing back.
    flushing: AtomicUsize,
    wall: WallClock,
    metrics: EventMetrics,
    /// The clients of components with an identity of their own.
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
    /// A sink, and the writer of its events, which the caller runs. `client` is the fenced one.
    /// `instance` names this process (`reportingInstance`).
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

    /// The same sink for events of this component, named as upstream names it
    /// (`service-controller`).
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

    /// The same sink. `own` writes the events of the component that is named next, with that
    /// controller's identity. If that fails, for example because the identity lacks the right, the
    /// process's client writes them: otherwise nobody would see what is wrong.
    pub(crate) fn written_by(&self, own: Client) -> Self {
        Self {
            own: Some(own),
            ..self.clone()
        }
    }

    /// Records an event on the object. It never waits and never fails: it drops and counts what
    /// does not fit. It cuts a message to at most 1,024 bytes.
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

    /// Returns when every recorded event is written or dropped, or after `cap`.
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
        // The rest stays queued. While the fence is closed, the writer drops and counts it.
        let _ = timeout(cap, idle).await;
        self.shared.flushing.fetch_sub(1, Ordering::Relaxed);
    }

    /// The waiting events as `Type Reason namespace/name: message` (`(xN)` for repeats), in the
    /// order of recording. For tests of controllers, which run no writer.
    #[cfg(test)]
    pub(crate) fn recorded(&self) -> Vec<String> {
        self.shared.pending().shown()
    }

    /// A sink without a writer, for tests of controllers.
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

/// Cuts the message to `MESSAGE_BYTES` at a character boundary, and makes it one line: the text may
/// be a provider's.
fn cut(message: String) -> String {
    let mut message = match plain(&message) {
        Cow::Owned(plain) => plain,
        Cow::Borrowed(_) => message,
    };
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
    message
}

#[derive(Clone)]
pub(crate) struct EventMetrics {
    written: Counter,
    dropped: Family<[(&'static str, &'static str); 1], Counter>,
}

impl EventMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            written: registered(
                registry,
                "ccm_events_written",
                "Events that the API server accepted",
                Counter::default(),
            ),
            dropped: registered(
                registry,
                "ccm_events_dropped",
                "Events that the ccm did not write: the queue was full, an object had too many (`limited`), the API server refused or did not answer, or the Lease was lost",
                Family::default(),
            ),
        }
    }

    /// Counts a dropped event, for tests that list the metrics.
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

/// The reference of an object, as upstream's cloud controllers make it, with the real UID. The
/// kubelet's events have a Node's name as UID; `kubectl describe node` shows both.
pub(crate) fn reference(object: &impl Resource<DynamicType = ()>) -> ObjectReference {
    ObjectReference {
        resource_version: object.meta().resource_version.clone(),
        ..object.object_ref(&())
    }
}

#[cfg(test)]
mod tests;
