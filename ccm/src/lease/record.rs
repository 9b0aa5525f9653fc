//! The fields of a Lease: reads and writes them by client-go's rules. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

/// The last spec, and when this process first saw it by the local clock. Another holder's Lease
/// expires by this clock alone. `renewTime` is from another clock, so nothing compares it with the
/// local one.
#[derive(Debug)]
pub(super) struct Observed {
    spec: LeaseSpec,
    since: Instant,
}

impl Observed {
    /// The holder's identity; empty if the Lease named none.
    pub(super) fn holder(&self) -> &str {
        self.spec.holder_identity.as_deref().unwrap_or_default()
    }
}

/// The holder of the Lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// None: never held, released, or expired.
    Free,
    /// This process: the answer to its write was lost or late, or it did not release the Lease.
    Ours,
    /// Another process. Nobody may take the Lease before this, unless a later read shows a change.
    Until(Instant),
}

/// Takes the spec that was read at `now`. Any change of a field starts the clock again.
pub(super) fn observe(observed: &mut Option<Observed>, spec: Option<&LeaseSpec>, now: Instant) {
    let spec = spec.cloned().unwrap_or_default();
    if observed.as_ref().is_none_or(|seen| seen.spec != spec) {
        *observed = Some(Observed { spec, since: now });
    }
}

/// The holder by the last read. `unstated` is the duration for a holder that states none.
pub(super) fn claim(
    observed: Option<&Observed>,
    identity: &str,
    unstated: Duration,
    now: Instant,
) -> Claim {
    let Some(Observed { spec, since }) = observed else {
        return Claim::Free;
    };
    match spec.holder_identity.as_deref() {
        None | Some("") => Claim::Free,
        Some(holder) if holder == identity => Claim::Ours,
        Some(_) => {
            let duration = spec.lease_duration_seconds.map_or(unstated, |seconds| {
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
            });
            match since.checked_add(duration) {
                Some(expiry) if expiry <= now => Claim::Free,
                Some(expiry) => Claim::Until(expiry),
                None => Claim::Until(now + unstated),
            }
        }
    }
}

/// The holder's identity; empty if the Lease names none.
pub(super) fn holder(lease: &Lease) -> &str {
    lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}

/// A Lease that does not exist yet.
pub(super) fn absent(namespace: &str, name: &str) -> Lease {
    Lease {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    }
}

/// Takes or renews `lease` for `identity`. Leaves all other fields alone.
pub(super) fn hold(lease: &mut Lease, identity: &str, duration: Duration, wall: Timestamp) {
    let fresh = lease.spec.is_none() && lease.metadata.resource_version.is_none();
    let spec = lease.spec.get_or_insert_default();
    if spec.holder_identity.as_deref() != Some(identity) {
        let transitions = spec.lease_transitions.unwrap_or(0);
        spec.lease_transitions = Some(if fresh {
            0
        } else {
            transitions.saturating_add(1)
        });
        spec.holder_identity = Some(identity.to_owned());
        spec.acquire_time = Some(MicroTime(wall));
    }
    spec.lease_duration_seconds =
        Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX).max(1));
    spec.renew_time = Some(MicroTime(wall));
}

/// Releases `lease`, as client-go does.
pub(super) fn release(lease: &mut Lease, wall: Timestamp) {
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(MicroTime(wall));
    spec.renew_time = Some(MicroTime(wall));
}

#[cfg(test)]
mod tests {
    use super::super::annotations::Annotations;
    use super::*;

    fn spec(holder: &str, seconds: Option<i32>, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: seconds,
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        }
    }

    const OWN: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn b_m3_expires_by_the_local_clock_alone() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut seen = None;
        assert_eq!(claim(seen.as_ref(), "me", OWN, start), Claim::Free);
        // A renewTime of 1970 does not make the Lease expired. One far in the future does not make
        // it valid.
        observe(&mut seen, Some(&spec("go", Some(15), 0)), start);
        assert_eq!(
            claim(seen.as_ref(), "me", OWN, at(14)),
            Claim::Until(at(15))
        );
        observe(&mut seen, Some(&spec("go", Some(15), 0)), at(14));
        assert_eq!(claim(seen.as_ref(), "me", OWN, at(15)), Claim::Free);
        // A change of any field starts the clock again.
        observe(&mut seen, Some(&spec("go", Some(16), 0)), at(15));
        assert_eq!(
            claim(seen.as_ref(), "me", OWN, at(30)),
            Claim::Until(at(31))
        );
        observe(
            &mut seen,
            Some(&spec("go", Some(16), 9_000_000_000)),
            at(20),
        );
        assert_eq!(claim(seen.as_ref(), "me", OWN, at(36)), Claim::Free);
    }

    #[tokio::test(start_paused = true)]
    async fn b_m3_who_has_it() {
        let now = Instant::now();
        let cases = [
            (None, Claim::Free),
            (Some(LeaseSpec::default()), Claim::Free),
            (Some(spec("", Some(1), 5)), Claim::Free),
            (Some(spec("me", Some(15), 5)), Claim::Ours),
            (Some(spec("go", None, 5)), Claim::Until(now + OWN)),
            (Some(spec("go", Some(-3), 5)), Claim::Free),
            (
                Some(spec("go", Some(3), 5)),
                Claim::Until(now + Duration::from_secs(3)),
            ),
        ];
        for (spec, expected) in cases {
            let mut seen = None;
            observe(&mut seen, spec.as_ref(), now);
            assert_eq!(claim(seen.as_ref(), "me", OWN, now), expected, "{spec:?}");
        }
    }

    #[test]
    fn b_m3_fields_as_client_go_writes_them() {
        let wall = |second| Timestamp::from_second(second).unwrap();
        let time = |second| Some(MicroTime(wall(second)));
        let mut lease = absent("kube-system", "ccm");
        hold(&mut lease, "a", OWN, wall(100));
        let spec = lease.spec.clone().unwrap();
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!((spec.acquire_time, spec.renew_time), (time(100), time(100)));
        assert_eq!(spec.lease_duration_seconds, Some(15));

        lease.metadata.resource_version = Some("1".to_owned());
        hold(&mut lease, "a", OWN, wall(102));
        let spec = lease.spec.clone().unwrap();
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!((spec.acquire_time, spec.renew_time), (time(100), time(102)));

        lease.spec.as_mut().unwrap().strategy = Some("OldestEmulationVersion".to_owned());
        hold(&mut lease, "b", OWN, wall(120));
        let spec = lease.spec.clone().unwrap();
        assert_eq!(spec.lease_transitions, Some(1));
        assert_eq!((spec.acquire_time, spec.renew_time), (time(120), time(120)));
        assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));

        release(&mut lease, wall(130));
        let spec = lease.spec.clone().unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some(""));
        assert_eq!(spec.lease_duration_seconds, Some(1));
        assert_eq!(spec.lease_transitions, Some(1));
        hold(&mut lease, "b", OWN, wall(131));
        assert_eq!(lease.spec.unwrap().lease_transitions, Some(2));
    }

    /// ccm/tests/stored describes the origin of the Lease.
    #[tokio::test(start_paused = true)]
    async fn b_m3_s20_the_lease_of_an_older_version_is_read_and_written_as_it_wrote_it() {
        let stored = include_str!("../../tests/stored/f13e2bc/lease.json");
        let stored: Lease = serde_json::from_str(stored).unwrap();
        let (now, mut seen) = (Instant::now(), None);
        observe(&mut seen, stored.spec.as_ref(), now);
        let until = Claim::Until(now + OWN);
        assert_eq!(claim(seen.as_ref(), "me", OWN, now), until);
        assert_eq!(claim(seen.as_ref(), holder(&stored), OWN, now), Claim::Ours);

        // Annotations of the older version stay, and an annotation of this version is added.
        let mut lease = stored.clone();
        let claims = "classes=default prefixes=mock:// scope=account 1, region a";
        let key = "grpc-ccm.io/claims-mock".to_owned();
        let annotations = Annotations::default();
        annotations.observe(&stored);
        annotations.set(&key, claims);
        annotations.add_to(&mut lease);
        let wall = Timestamp::from_second(2_000_000_000).unwrap();
        hold(&mut lease, "me", OWN, wall);
        let mut annotations = lease.metadata.annotations.clone().unwrap();
        assert!(annotations.remove(&key).is_some());
        assert_eq!(Some(annotations), stored.metadata.annotations);
        let fields = |lease: &Lease| -> Vec<String> {
            let spec = serde_json::to_value(lease.spec.as_ref()).unwrap();
            spec.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(fields(&lease), fields(&stored));
        release(&mut lease, wall);
        assert_eq!(fields(&lease), fields(&stored));
    }
}
