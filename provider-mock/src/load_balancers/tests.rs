use provider_sdk::FailureCode;

use super::*;
use crate::fixture::Addressing;

const UID: &str = "6b1f-1";

fn service() -> Service {
    Service::new("default", "web", UID)
}

fn asker<'a>(service: &'a Service, handle: Option<&'a str>) -> Asker<'a> {
    Asker {
        marks: &Honest,
        owner_id: "us",
        previous: PREVIOUS.get_or_init(|| vec!["us-before".to_owned()]),
        service,
        handle,
    }
}

static PREVIOUS: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();

fn marked(owner: &str, uid: &str) -> LoadBalancer {
    LoadBalancer {
        name: native_name(uid),
        owner: Some(Mark {
            owner_id: owner.into(),
            namespace: "default".into(),
            name: "web".into(),
            uid: uid.into(),
        }),
        addresses: vec!["192.0.2.1".parse().unwrap()],
        config: LoadBalancerConfig::of(&service()),
        ..LoadBalancer::default()
    }
}

fn all(planted: impl IntoIterator<Item = LoadBalancer>) -> LoadBalancers {
    let mut all = LoadBalancers::default();
    for load_balancer in planted {
        all.put(load_balancer);
    }
    all
}

fn plan(all: &LoadBalancers, handle: Option<&str>, adopt: bool) -> Result<EnsurePlan, FailureCode> {
    let service = service();
    all.plan_ensure(
        &asker(&service, handle),
        None,
        adopt,
        &Addressing::default(),
    )
    .map_err(|failure| failure.code())
}

fn is_write(plan: &Result<EnsurePlan, FailureCode>) -> bool {
    matches!(plan, Ok(EnsurePlan::Write(_)))
}

#[test]
fn what_is_as_asked_is_not_written() {
    let all = all([marked("us", UID)]);
    for handle in [None, Some("lb-1"), Some("lb-gone")] {
        assert!(
            matches!(plan(&all, handle, false), Ok(EnsurePlan::AsAsked(_))),
            "{handle:?}"
        );
    }
}

#[test]
fn a_former_mark_alone_is_written() {
    let all = all([marked("us-before", UID)]);
    for handle in [None, Some("lb-1"), Some("lb-gone")] {
        let Ok(EnsurePlan::Write(written)) = plan(&all, handle, false) else {
            panic!("LB-25: it is a difference, {handle:?}");
        };
        assert_eq!(written.owner.unwrap().owner_id, "us");
    }
}

/// LB-24: the search goes by the name first, whatever the order of the handles.
#[test]
fn an_unmarked_one_is_found_by_its_name_then_by_an_address_then_a_foreign_one_by_its_name() {
    let named = LoadBalancer {
        owner: None,
        addresses: Vec::new(),
        ..marked("us", UID)
    };
    let at = LoadBalancer {
        name: "by-hand".into(),
        owner: None,
        ..marked("us", UID)
    };
    let mut service = service();
    service.status = provider_sdk::LoadBalancerStatus::ips(["192.0.2.1"]);
    let found = |planted: &[&LoadBalancer]| {
        let all = all(planted.iter().copied().cloned());
        let found = all.find(&asker(&service, None)).unwrap();
        (found.name == native_name(UID), found.owner.is_none())
    };
    let foreign = &marked("them", UID);
    for [one, other] in [[&at, &named], [&named, &at], [foreign, &named]] {
        assert_eq!(found(&[one, other]), (true, true), "by its name");
    }
    for [one, other] in [[&at, foreign], [foreign, &at]] {
        assert_eq!(found(&[one, other]), (false, true), "by its address");
    }
    assert_eq!(found(&[foreign]), (true, false));
}

#[test]
fn delete_takes_what_is_unmarked_by_its_native_name_and_with_the_grant_alone() {
    let unmarked = LoadBalancer {
        owner: None,
        ..marked("us", UID)
    };
    let stranger = LoadBalancer {
        name: "by-hand".into(),
        ..unmarked.clone()
    };
    let service = service();
    let found = |planted: &LoadBalancer, handle, adopt| {
        all([planted.clone()])
            .find_to_delete(&asker(&service, handle), adopt)
            .map(|found| found.is_some())
            .map_err(|failure| failure.code())
    };
    let conflict = Err(FailureCode::Conflict);
    for handle in [None, Some("lb-1")] {
        assert_eq!(found(&unmarked, handle, false), conflict, "{handle:?}");
        assert_eq!(found(&unmarked, handle, true), Ok(true), "{handle:?}");
    }
    for adopt in [false, true] {
        assert_eq!(found(&stranger, Some("lb-1"), adopt), conflict);
        assert_eq!(found(&stranger, None, adopt), Ok(false));
        assert_eq!(found(&marked("us-before", UID), None, adopt), Ok(true));
        assert_eq!(found(&marked("them", UID), None, adopt), Ok(false));
        assert_eq!(found(&marked("them", UID), Some("lb-1"), adopt), conflict);
    }
}

#[test]
fn the_next_write_marks_anew() {
    let mut old = marked("us-before", UID);
    old.config.source_ranges = vec!["10.0.0.0/8".into()];
    let Ok(EnsurePlan::Write(written)) = plan(&all([old]), None, false) else {
        panic!("a cleared field is removed");
    };
    assert_eq!(written.owner.unwrap().owner_id, "us");
    assert!(written.config.source_ranges.is_empty());
}

#[test]
fn what_is_not_ours_is_not_touched() {
    let unmarked = LoadBalancer {
        owner: None,
        ..marked("us", UID)
    };
    for (planted, handle) in [
        // An edited handle that names another owner's load balancer, another Service's, or an
        // unmarked one.
        (marked("them", "other"), Some("lb-1")),
        (marked("us", "other"), Some("lb-1")),
        (unmarked.clone(), Some("lb-1")),
        // The native name is taken.
        (marked("them", UID), None),
        (unmarked.clone(), None),
    ] {
        let all = all([planted.clone()]);
        assert_eq!(
            plan(&all, handle, false),
            Err(FailureCode::Conflict),
            "{planted:?}"
        );
        let service = service();
        if handle.is_some() {
            let own = all
                .find_own(&asker(&service, handle))
                .map_err(|failure| failure.code());
            assert_eq!(own, Err(FailureCode::Conflict));
        } else {
            assert_eq!(all.find_own(&asker(&service, handle)), Ok(None));
        }
    }
    let adopted = plan(&all([unmarked]), None, true);
    let Ok(EnsurePlan::Write(adopted)) = adopted else {
        panic!("{adopted:?}");
    };
    assert_eq!(
        (
            adopted.handle.as_str(),
            adopted.owner.unwrap().owner_id.as_str()
        ),
        ("lb-1", "us")
    );
    // A load balancer that is marked for another owner cannot be adopted.
    assert_eq!(
        plan(&all([marked("them", UID)]), None, true),
        Err(FailureCode::Conflict)
    );
    // Another Service's load balancer does not prevent the creation.
    assert!(is_write(&plan(&all([marked("us", "other")]), None, false)));
}

#[test]
fn an_unmarked_one_with_the_address_of_the_status_is_the_services() {
    let unmarked = LoadBalancer {
        name: "by-hand".into(),
        owner: None,
        ..marked("us", UID)
    };
    let mut service = service();
    service.status = provider_sdk::LoadBalancerStatus::ips(["192.0.2.1"]);
    let all = all([unmarked]);
    let plan = |adopt| all.plan_ensure(&asker(&service, None), None, adopt, &Addressing::default());
    assert_eq!(plan(false).unwrap_err().code(), FailureCode::Conflict);
    assert!(matches!(plan(true), Ok(EnsurePlan::Write(lb)) if lb.handle == "lb-1"));
}

#[test]
fn addresses_come_from_the_pools_by_family() {
    let addresses = |change: &dyn Fn(&mut Service), pools: &[&str]| {
        let mut service = service();
        change(&mut service);
        let addressing = Addressing {
            pools: pools.iter().map(|pool| pool.parse().unwrap()).collect(),
            ..Addressing::default()
        };
        match all([]).plan_ensure(&asker(&service, None), None, false, &addressing) {
            Ok(EnsurePlan::Write(lb)) => Ok(lb
                .addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => Err(failure.reason().to_owned()),
        }
    };
    let dual = |service: &mut Service| service.ip_families = vec!["IPv6".into(), "IPv4".into()];
    let both = ["192.0.2.0/24", "2001:db8::/112"];
    assert_eq!(addresses(&|_| {}, &both), Ok("192.0.2.1".into()));
    assert_eq!(addresses(&|_| {}, &both[1..]), Ok("2001:db8::1".into()));
    assert_eq!(addresses(&dual, &both), Ok("2001:db8::1,192.0.2.1".into()));
    assert_eq!(
        addresses(&dual, &both[..1]),
        Err("AddressPoolExhausted".into())
    );
    let prefer = |service: &mut Service| {
        dual(service);
        service.ip_family_policy = Some("PreferDualStack".into());
    };
    assert_eq!(addresses(&prefer, &both[..1]), Ok("192.0.2.1".into()));
    let ask =
        |ip: &'static str| move |service: &mut Service| service.load_balancer_ip = Some(ip.into());
    assert_eq!(
        addresses(&ask("192.0.2.77"), &both),
        Ok("192.0.2.77".into())
    );
    assert_eq!(
        addresses(&ask("203.0.113.1"), &both),
        Err("AddressNotInPool".into())
    );
    assert_eq!(addresses(&ask("x"), &both), Err("Invalid".into()));
}

#[test]
fn handles_are_never_given_twice() {
    let mut all = all([marked("us", "1")]);
    all.by_handle.clear();
    assert_eq!(all.put(marked("us", "2")), "lb-2");
    let mut gone = marked("us", "3");
    gone.gone_at_ms = Some(10);
    all.put(gone);
    all.settle(9);
    assert_eq!(all.by_handle.len(), 2);
    all.settle(10);
    assert_eq!(all.by_handle.len(), 1);
}
