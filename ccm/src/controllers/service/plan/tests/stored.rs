//! This version reads the annotations that an older version stored on Services, and stores the same
//! ones. The stored Services are in ccm/tests/stored.

use super::*;
use crate::writes::ServicePatch;

macro_rules! stored {
    ($file:literal) => {
        serde_json::from_str::<Service>(include_str!(concat!(
            "../../../../../tests/stored/f13e2bc/",
            $file
        )))
        .unwrap()
    };
}

/// The Service after a patch of ours, merged as the API server does it.
fn patched(mut service: Service, patch: ServicePatch) -> Service {
    let metadata = &mut service.metadata;
    let annotations = metadata.annotations.get_or_insert_default();
    for (key, value) in patch.annotations {
        match value {
            Some(value) => annotations.insert(key, value),
            None => annotations.remove(&key),
        };
    }
    if let Some(finalizers) = patch.finalizers {
        metadata.finalizers = Some(finalizers);
    }
    service
}

/// The Service before the ccm added its annotation and its finalizer.
fn untouched(mut service: Service) -> Service {
    service.metadata.annotations = None;
    service.metadata.finalizers = None;
    service
}

#[test]
fn s19_what_an_older_version_stored_on_a_service_is_read() {
    let capability = capability();
    let facts = facts(&capability);
    for (service, handle) in [
        (stored!("service.json"), Some("lb-1")),
        (stored!("service-new.json"), None),
        (stored!("service-of-a-class.json"), Some("lb-2")),
    ] {
        let sent = handle_to_send(&service, None, ME);
        assert_eq!(sent.as_deref(), handle);
        // Nothing is written before the provider is asked.
        let step = next_step(&service, None, Some(&set(1)), &facts);
        assert_eq!(step, Step::Get, "{service:?}");
        let step = next_step(&deleting(service.clone()), None, None, &facts);
        assert_eq!(step, Step::Delete, "{service:?}");
        let step = next_step(&cluster_ip(service.clone()), None, None, &facts);
        assert_eq!(step, Step::Delete, "{service:?}");
    }
    // An early version recorded no class. This version records it, and the handle stays.
    let early = stored!("service-early.json");
    assert_eq!(handle_to_send(&early, None, ME).as_deref(), Some("lb-1"));
    let Step::StoreHandle(patch) = next_step(&early, None, Some(&set(1)), &facts) else {
        panic!("the class is not written down");
    };
    assert_eq!(patched(early, patch), stored!("service.json"));
}

#[test]
fn s19_what_is_stored_on_a_service_is_what_an_older_version_stored() {
    let capability = capability();
    let facts = facts(&capability);
    let Step::AddFinalizer(patch) = next_step(
        &untouched(stored!("service-new.json")),
        None,
        Some(&set(1)),
        &facts,
    ) else {
        panic!("the finalizer does not come first");
    };
    let new = patched(untouched(stored!("service-new.json")), patch);
    assert_eq!(new, stored!("service-new.json"));
    let patch = store_handle(&new, ME, Some("lb-1"));
    let metadata = patched(new, patch).metadata;
    assert_eq!(metadata, stored!("service.json").metadata);

    let fast = untouched(stored!("service-of-a-class.json"));
    let patch = store_handle(&fast, ME, Some("lb-2"));
    let annotations = patched(fast, patch).metadata.annotations;
    let expected = stored!("service-of-a-class.json").metadata.annotations;
    assert_eq!(annotations, expected);

    // The annotation is removed with the load balancer.
    let service = cluster_ip(stored!("service.json"));
    let Step::Release { metadata, .. } = release(&service, false, false) else {
        panic!("nothing is released");
    };
    let released = patched(service, metadata.unwrap()).metadata;
    assert_eq!(released.finalizers, Some(Vec::new()));
    assert_eq!(released.annotations, Some([].into()));
}
