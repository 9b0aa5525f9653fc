//! The kinds that are served, and how they differ.

use serde_json::{Value, json};

/// A kind of objects.
#[derive(Debug)]
pub(super) struct Kind {
    /// The resource, for example `nodes`.
    pub(super) plural: &'static str,
    pub(super) group: &'static str,
    /// With the group.
    pub(super) version: &'static str,
    /// The kind's name in objects.
    pub(super) word: &'static str,
    traits: &'static [Trait],
}

/// How a kind differs from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trait {
    /// Its objects are in namespaces.
    Namespaced,
    /// It has a status subresource, and an update of the object itself leaves the status as it is.
    Status,
    /// PUT needs no resourceVersion.
    Unconditional,
    /// PUT creates what is absent.
    PutCreates,
    /// DELETE answers the object, not a Status.
    ReturnsDeleted,
    /// `metadata.generation` counts the changes.
    Counts,
}

use Trait::{Counts, Namespaced, PutCreates, ReturnsDeleted, Status, Unconditional};

const CORE: Kind = Kind {
    plural: "",
    group: "",
    version: "v1",
    word: "",
    traits: &[Status, Unconditional],
};

pub(super) static KINDS: [Kind; 8] = [
    Kind {
        plural: "nodes",
        word: "Node",
        ..CORE
    },
    Kind {
        plural: "services",
        word: "Service",
        traits: &[
            Namespaced,
            Status,
            Unconditional,
            PutCreates,
            ReturnsDeleted,
        ],
        ..CORE
    },
    Kind {
        plural: "events",
        word: "Event",
        traits: &[Namespaced, Unconditional, PutCreates],
        ..CORE
    },
    Kind {
        plural: "namespaces",
        word: "Namespace",
        traits: &[Status, Unconditional, ReturnsDeleted],
        ..CORE
    },
    Kind {
        plural: "persistentvolumes",
        word: "PersistentVolume",
        traits: &[Status, Unconditional, ReturnsDeleted],
        ..CORE
    },
    Kind {
        plural: "leases",
        group: "coordination.k8s.io",
        version: "coordination.k8s.io/v1",
        word: "Lease",
        traits: &[Namespaced, PutCreates],
    },
    Kind {
        plural: "servicecidrs",
        group: "networking.k8s.io",
        version: "networking.k8s.io/v1",
        word: "ServiceCIDR",
        ..CORE
    },
    Kind {
        plural: "endpointslices",
        group: "discovery.k8s.io",
        version: "discovery.k8s.io/v1",
        word: "EndpointSlice",
        traits: &[Namespaced, Unconditional, Counts],
    },
];

impl Kind {
    pub(super) fn has(&self, what: Trait) -> bool {
        self.traits.contains(&what)
    }

    /// The kind with this plural.
    pub(super) fn named(plural: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.plural == plural)
    }

    /// The kind's index in [`KINDS`].
    pub(super) fn place(plural: &str) -> Option<usize> {
        KINDS.iter().position(|kind| kind.plural == plural)
    }

    /// The resource's name in refusals.
    pub(super) fn resource(&self) -> String {
        dotted(self.plural, self.group)
    }

    /// The kind's name in refusals of content.
    pub(super) fn full(&self) -> String {
        dotted(self.word, self.group)
    }

    /// An object with only the fields that are always there.
    pub(super) fn blank(&self) -> Value {
        match self.plural {
            "services" => json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
            "events" => {
                json!({"metadata": {}, "source": {}, "involvedObject": {}, "eventTime": null, "firstTimestamp": null, "lastTimestamp": null, "reportingComponent": "", "reportingInstance": ""})
            }
            "leases" => json!({"metadata": {}, "spec": {}}),
            "endpointslices" => json!({"metadata": {}, "addressType": "", "endpoints": null}),
            _ => json!({"metadata": {}, "spec": {}, "status": {}}),
        }
    }
}

fn dotted(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}
