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
    /// As objects say it.
    pub(super) word: &'static str,
    pub(super) namespaced: bool,
    /// It has a status subresource, and the object itself does not change the status.
    pub(super) status: bool,
    /// PUT needs no resourceVersion.
    pub(super) unconditional: bool,
    /// PUT creates what is absent.
    pub(super) put_creates: bool,
    /// DELETE answers the object, not a Status.
    pub(super) returns_deleted: bool,
    /// `metadata.generation` counts the changes.
    pub(super) counts: bool,
}

const CORE: Kind = Kind {
    plural: "",
    group: "",
    version: "v1",
    word: "",
    namespaced: false,
    status: true,
    unconditional: true,
    put_creates: false,
    returns_deleted: false,
    counts: false,
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
        namespaced: true,
        put_creates: true,
        returns_deleted: true,
        ..CORE
    },
    Kind {
        plural: "events",
        word: "Event",
        namespaced: true,
        status: false,
        put_creates: true,
        ..CORE
    },
    Kind {
        plural: "namespaces",
        word: "Namespace",
        returns_deleted: true,
        ..CORE
    },
    Kind {
        plural: "persistentvolumes",
        word: "PersistentVolume",
        returns_deleted: true,
        ..CORE
    },
    Kind {
        plural: "leases",
        group: "coordination.k8s.io",
        version: "coordination.k8s.io/v1",
        word: "Lease",
        namespaced: true,
        status: false,
        unconditional: false,
        put_creates: true,
        ..CORE
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
        namespaced: true,
        status: false,
        counts: true,
        ..CORE
    },
];

impl Kind {
    /// By its plural.
    pub(super) fn named(plural: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.plural == plural)
    }

    /// Its place among the kinds.
    pub(super) fn place(plural: &str) -> Option<usize> {
        KINDS.iter().position(|kind| kind.plural == plural)
    }

    /// As refusals name the resource.
    pub(super) fn resource(&self) -> String {
        dotted(self.plural, self.group)
    }

    /// As refusals of content name the kind.
    pub(super) fn full(&self) -> String {
        dotted(self.word, self.group)
    }

    /// An object without anything in it: fields that are always there.
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
