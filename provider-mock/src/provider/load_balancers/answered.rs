//! Parts of answers: the treatment of a Service, the addresses of its load balancer, and delays.

use std::time::Duration;

use provider_sdk::{Answer, Event, Ingress, IpMode, LoadBalancerStatus, Notes, Pending, Service};

use crate::fixture::{self, AddressMode, Addressing, Fixture, ServiceBehaviour};
use crate::load_balancers as cloud;

/// Annotations with which a user controls the mock.
pub(super) const RETAIN: &str = "mock.grpc-ccm.io/retain";
const HANDLED_ELSEWHERE: &str = "mock.grpc-ccm.io/handled-elsewhere";

/// The treatment of this Service, from the settings and its annotations.
pub(super) fn behaviour(settings: &Fixture, service: &Service) -> ServiceBehaviour {
    let name = format!("{}/{}", service.namespace, service.name);
    let mut behaviour = settings.services.get(&name).cloned().unwrap_or_default();
    let says = |key: &str| {
        service
            .annotations
            .get(key)
            .is_some_and(|value| value == "true")
    };
    behaviour.retain |= says(RETAIN);
    behaviour.handled_elsewhere |= says(HANDLED_ELSEWHERE);
    behaviour
}

/// The addresses of a load balancer.
pub(crate) fn status(lb: &cloud::LoadBalancer, addressing: &Addressing) -> LoadBalancerStatus {
    let ip_mode = addressing.ip_mode.map(|mode| match mode {
        fixture::IpMode::Vip => IpMode::Vip,
        fixture::IpMode::Proxy => IpMode::Proxy,
    });
    let by_address = |hostname: Option<&String>| {
        let ingress = lb.addresses.iter().map(|address| Ingress {
            ip_mode,
            hostname: hostname.cloned(),
            ..Ingress::ip(address.to_string())
        });
        LoadBalancerStatus {
            ingress: ingress.collect(),
        }
    };
    match (addressing.mode, &lb.hostname) {
        (AddressMode::Hostname, Some(hostname)) => LoadBalancerStatus::hostname(hostname),
        (AddressMode::Both, hostname) => by_address(hostname.as_ref()),
        _ => by_address(None),
    }
}

pub(super) fn slow() -> Pending {
    waits("the cloud takes long to answer", 1_000)
}

pub(super) fn waits(message: &str, left_ms: u64) -> Pending {
    Pending::new(message).retry_after(Duration::from_millis(left_ms))
}

/// The outcome with the notes that are scripted for the Service.
pub(super) fn answer<T>(
    outcome: T,
    settings: &Fixture,
    service: &Service,
    handle: Option<String>,
) -> Answer<T> {
    let behaviour = behaviour(settings, service);
    let events = behaviour.events.into_iter().map(|event| Event {
        warning: event.warning,
        reason: event.reason,
        message: event.message,
    });
    let mut answer = Answer::from(outcome);
    *answer.notes = Notes {
        handle,
        events: events.collect(),
        set_annotations: behaviour.set_annotations,
        remove_annotations: behaviour.remove_annotations,
        ..Notes::default()
    };
    answer
}
