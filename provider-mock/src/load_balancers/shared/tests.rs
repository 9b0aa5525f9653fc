use provider_sdk::{FailureCode, ServicePort};

use super::super::{EnsurePlan, Honest};
use super::*;

fn service(uid: &str, shares: &str, port: i32) -> Service {
    let mut service = Service::new("default", uid, uid);
    let mut of = ServicePort::default();
    of.protocol = "TCP".into();
    of.port = port;
    service.ports = vec![of];
    if !shares.is_empty() {
        service.annotations.insert(SHARED.into(), shares.into());
    }
    service
}

fn asker<'a>(owner_id: &'a str, service: &'a Service, handle: Option<&'a str>) -> Asker<'a> {
    Asker {
        marks: &Honest,
        owner_id,
        previous: &[],
        service,
        handle,
    }
}

fn plan(
    all: &LoadBalancers,
    owner_id: &str,
    service: &Service,
    handle: Option<&str>,
) -> Result<EnsurePlan, Failure> {
    let addressing = Addressing::default();
    all.plan_ensure(&asker(owner_id, service, handle), None, false, &addressing)
}

/// Ensures the Service's load balancer and returns its address.
fn ensure(all: &mut LoadBalancers, owner_id: &str, service: &Service) -> Result<String, Failure> {
    let made = match plan(all, owner_id, service, None)? {
        EnsurePlan::Write(made) | EnsurePlan::AsAsked(made) => made,
        EnsurePlan::Deleting(_) => panic!("nothing is being deleted"),
    };
    let address = made.addresses[0].to_string();
    all.put(made);
    Ok(address)
}

#[test]
fn parts_have_one_address_and_go_one_by_one() {
    let mut all = LoadBalancers::default();
    let services = [
        service("a", "front", 80),
        service("b", "front", 81),
        service("c", "", 80),
    ];
    let [a, b, c] = services
        .each_ref()
        .map(|one| ensure(&mut all, "us", one).unwrap());
    assert_eq!(a, b);
    assert_ne!(a, c);
    for one in &services {
        let again = plan(&all, "us", one, None);
        assert!(matches!(again, Ok(EnsurePlan::AsAsked(_))), "{again:?}");
    }
    all.by_handle.remove("lb-1");
    let again = plan(&all, "us", &services[1], Some("shared-front"));
    assert!(matches!(again, Ok(EnsurePlan::AsAsked(_))), "{again:?}");
    // The same name in another cluster is another load balancer.
    let theirs = ensure(&mut all, "them", &service("d", "front", 81)).unwrap();
    assert_ne!(theirs, b);
}

#[test]
fn a_port_is_that_of_one_part() {
    let mut all = LoadBalancers::default();
    ensure(&mut all, "us", &service("a", "front", 80)).unwrap();
    let late = service("b", "front", 80);
    let code = |all: &LoadBalancers| plan(all, "us", &late, None).map_err(|it| it.code());
    assert_eq!(code(&all).unwrap_err(), FailureCode::Conflict);
    let mut udp = late.clone();
    udp.ports[0].protocol = "UDP".into();
    assert!(plan(&all, "us", &udp, None).is_ok(), "another protocol");
    if let Some(first) = all.by_handle.get_mut("lb-1") {
        first.gone_at_ms = Some(1);
    }
    assert_eq!(code(&all).unwrap_err(), FailureCode::Busy);
    // A provider that does not know of sharing gave the later Service an address of its own. The
    // older part keeps its address and port.
    if let Some(first) = all.by_handle.get_mut("lb-1") {
        first.gone_at_ms = None;
    }
    let mut apart = all.by_handle["lb-1"].clone();
    apart.handle.clear();
    apart.addresses = vec!["192.0.2.99".parse().unwrap()];
    let comes = asker("us", &late, None);
    apart.owner = comes.marks.mark(&comes);
    all.put(apart);
    let first = plan(&all, "us", &service("a", "front", 80), None);
    assert!(matches!(first, Ok(EnsurePlan::AsAsked(_))), "{first:?}");
    assert_eq!(code(&all).unwrap_err(), FailureCode::Conflict);
}

#[test]
fn who_comes_takes_the_address_and_who_leaves_gives_it_up() {
    let mut all = LoadBalancers::default();
    let shared = ensure(&mut all, "us", &service("a", "front", 80)).unwrap();
    let own = ensure(&mut all, "us", &service("b", "", 81)).unwrap();
    let moved = ensure(&mut all, "us", &service("b", "front", 81)).unwrap();
    assert_eq!(moved, shared);
    assert_eq!(all.by_handle["lb-2"].told_handle(), "shared-front");
    let left = ensure(&mut all, "us", &service("a", "", 80)).unwrap();
    assert_eq!(left, own, "the first that is free");
    let last = ensure(&mut all, "us", &service("b", "", 81)).unwrap();
    assert_eq!(last, shared, "nobody shares it any more");
    assert_eq!(all.by_handle["lb-2"].told_handle(), "lb-2");

    ensure(&mut all, "us", &service("a", "front", 80)).unwrap();
    let mut elsewhere = service("c", "front", 82);
    elsewhere.load_balancer_ip = Some("192.0.2.77".into());
    let code = plan(&all, "us", &elsewhere, None).unwrap_err().code();
    assert_eq!(code, FailureCode::Conflict);
    elsewhere.load_balancer_ip = Some(all.by_handle["lb-1"].addresses[0].to_string());
    assert!(plan(&all, "us", &elsewhere, None).is_ok());
}

#[test]
fn the_handle_of_the_whole_names_the_part_of_who_asks() {
    let mut all = LoadBalancers::default();
    let (a, b) = (service("a", "front", 80), service("b", "front", 81));
    ensure(&mut all, "us", &a).unwrap();
    ensure(&mut all, "us", &b).unwrap();
    let whole = Some("shared-front");
    let named = |owner_id, service: &Service| {
        let named = all.named(&asker(owner_id, service, whole));
        named.map(|one| one.handle.clone())
    };
    assert_eq!(named("us", &a).as_deref(), Some("lb-1"));
    assert_eq!(named("us", &b).as_deref(), Some("lb-2"));
    assert_eq!(named("us", &service("b", "", 81)).as_deref(), Some("lb-2"));
    assert_eq!(named("us", &service("c", "front", 82)), None, "it may come");
    let stranger = service("c", "", 82);
    assert_eq!(named("us", &stranger).as_deref(), Some("lb-1"));
    let refused = all.find_own(&asker("us", &stranger, whole)).unwrap_err();
    assert_eq!(refused.code(), FailureCode::Conflict);
    assert_eq!(named("them", &stranger), None);
    // The Service left the whole, and the answer with the new handle was lost.
    let left = service("a", "", 80);
    ensure(&mut all, "us", &left).unwrap();
    let found = all.named(&asker("us", &left, whole));
    assert_eq!(found.map(|one| one.handle.as_str()), Some("lb-1"));
}

#[test]
fn a_name_that_is_none_is_named_with_what_would_be_right() {
    for good in ["a", "front-1", &"x".repeat(63)] {
        assert_eq!(wrong(&service("a", good, 80)), None);
    }
    assert_eq!(wrong(&service("a", "", 80)), None);
    for bad in ["Front", "-a", "a-", "a b", "a.b", &"x".repeat(64)] {
        let said = wrong(&service("a", bad, 80)).unwrap();
        assert!(said.contains(bad) && said.contains("front-1"), "{said}");
    }
    let mut empty = service("a", "", 80);
    empty.annotations.insert(SHARED.into(), String::new());
    assert!(wrong(&empty).is_some());
}
