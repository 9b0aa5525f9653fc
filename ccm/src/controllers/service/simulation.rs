//! A Service, a controller and a cloud that fail at every step they can: whatever happens, it converges, with never two load balancers and none left.
//!
//! The order of calls and writes is that of `sync`; the controller's memory is lost whenever the script says so.

use std::sync::Arc;

use cloud_provider_api::v1alpha1 as api;
use k8s_openapi::api::core::v1::{Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::answer::{self, Answer, Sent, Verdict};
use super::fingerprint::{Fingerprint, service_inputs};
use super::fixtures::{reaction, service};
use super::handle::Stored;
use super::notes::Op;
use super::plan::{Facts, Step, handle_to_send, has_finalizer, next_step, status_patch};
use super::record::Record;
use super::settle::{Call, begin, settle};
use super::targets::TargetSet;
use crate::provider::{Trouble, TroubleCode};
use crate::writes::{ServicePatch, ServiceStatusPatch};

const ME: &str = "mock";

struct Balancer {
    handle: String,
    inputs: Fingerprint,
    targets: usize,
    /// Made in full.
    whole: bool,
}

/// Cloud and API server.
struct World {
    service: Option<Service>,
    balancer: Option<Balancer>,
    made: usize,
    mutations: usize,
    /// The handle was stored once: from then on it must come with each call.
    handle_stored: bool,
    faults: bool,
    rng: StdRng,
}

/// The process died here.
struct Crash;

impl World {
    fn fate(&mut self, of: u32) -> bool {
        self.faults && self.rng.random_range(0..of) == 0
    }

    fn crash(&mut self) -> Result<(), Crash> {
        if self.fate(12) { Err(Crash) } else { Ok(()) }
    }

    /// Says whether the write was done.
    fn patch(&mut self, patch: &ServicePatch) -> Option<Arc<Service>> {
        if self.fate(8) {
            return None;
        }
        let service = self.service.as_mut()?;
        let annotations = service.metadata.annotations.get_or_insert_default();
        for (key, value) in &patch.annotations {
            match value {
                Some(value) => annotations.insert(key.clone(), value.clone()),
                None => annotations.remove(key),
            };
        }
        if let Some(finalizers) = &patch.finalizers {
            service.metadata.finalizers = Some(finalizers.clone());
        }
        self.handle_stored = Stored::of(service).handle_of(ME).is_some();
        let now = Arc::new(service.clone());
        if service.metadata.deletion_timestamp.is_some() && !has_finalizer(service) {
            self.service = None;
        }
        Some(now)
    }

    fn patch_status(&mut self, patch: &ServiceStatusPatch) -> Option<Arc<Service>> {
        if self.fate(8) {
            return None;
        }
        let service = self.service.as_mut()?;
        service.status = Some(ServiceStatus {
            load_balancer: patch.load_balancer.clone(),
            ..ServiceStatus::default()
        });
        Some(Arc::new(service.clone()))
    }

    fn call(&mut self, op: Op, sent: &Sent<'_>, targets: &TargetSet) -> Answer {
        if self.handle_stored {
            let stored = Stored::of(sent.service);
            assert_eq!(sent.handle, stored.handle_of(ME), "the handle is sent");
        }
        if op != Op::Get {
            self.mutations += 1;
            assert!(
                op == Op::Delete || has_finalizer(sent.service),
                "no Ensure before the finalizer (B-S2)"
            );
        }
        let inputs = service_inputs(sent.service);
        let size = targets.nodes.len();
        // A call can be cut before, amid and after its work.
        let cut = self.fate(4);
        let late = self.fate(3);
        if cut && late {
            return lost();
        }
        let answer = match op {
            Op::Get => self.get(sent, inputs, size),
            Op::Ensure => self.ensure(sent, inputs, size),
            Op::Update => self.update(sent, size),
            Op::Delete => self.delete(sent),
        };
        if cut { lost() } else { answer }
    }

    fn get(&mut self, sent: &Sent<'_>, inputs: Fingerprint, size: usize) -> Answer {
        let found = match &self.balancer {
            None => api::LoadBalancer {
                presence: api::LoadBalancerPresence::Absent.into(),
                ..api::LoadBalancer::default()
            },
            Some(balancer) => api::LoadBalancer {
                presence: api::LoadBalancerPresence::Present.into(),
                ownership: api::Ownership::Ours.into(),
                status: Some(ip()),
                in_sync: Some(
                    balancer.whole && balancer.inputs == inputs && balancer.targets == size,
                ),
                ..api::LoadBalancer::default()
            },
        };
        let response = api::GetLoadBalancerResponse {
            handle: self
                .balancer
                .as_ref()
                .map(|balancer| balancer.handle.clone()),
            outcome: Some(api::get_load_balancer_response::Outcome::Found(found)),
            ..api::GetLoadBalancerResponse::default()
        };
        answer::after_get(sent, response)
    }

    fn ensure(&mut self, sent: &Sent<'_>, inputs: Fingerprint, size: usize) -> Answer {
        use api::ensure_load_balancer_response::Outcome;
        if self.balancer.is_none() {
            self.made += 1;
            self.balancer = Some(Balancer {
                handle: format!("lb-{}", self.made),
                inputs,
                targets: 0,
                whole: false,
            });
        }
        let (pending, failed) = (self.fate(4), self.fate(4));
        let balancer = self.balancer.as_mut().unwrap();
        let outcome = if pending {
            Outcome::Pending(api::Pending::default())
        } else if failed {
            Outcome::Failed(api::Failure::default())
        } else {
            balancer.inputs = inputs;
            balancer.targets = size;
            balancer.whole = true;
            Outcome::Ready(api::LoadBalancerReady { status: Some(ip()) })
        };
        let response = api::EnsureLoadBalancerResponse {
            handle: Some(balancer.handle.clone()),
            outcome: Some(outcome),
            ..api::EnsureLoadBalancerResponse::default()
        };
        answer::after_ensure(sent, response)
    }

    fn update(&mut self, sent: &Sent<'_>, size: usize) -> Answer {
        use api::update_load_balancer_response::Outcome;
        let outcome = if let Some(balancer) = &mut self.balancer {
            balancer.targets = size;
            Outcome::Done(api::Done {})
        } else {
            Outcome::Failed(api::Failure {
                code: api::FailureCode::NotFound.into(),
                ..api::Failure::default()
            })
        };
        let response = api::UpdateLoadBalancerResponse {
            outcome: Some(outcome),
            ..api::UpdateLoadBalancerResponse::default()
        };
        answer::after_update(sent, response)
    }

    fn delete(&mut self, sent: &Sent<'_>) -> Answer {
        use api::delete_load_balancer_response::Outcome;
        let outcome = if self.fate(4) {
            Outcome::Pending(api::Pending::default())
        } else {
            self.balancer = None;
            Outcome::Done(api::Done {})
        };
        let response = api::DeleteLoadBalancerResponse {
            outcome: Some(outcome),
            ..api::DeleteLoadBalancerResponse::default()
        };
        answer::after_delete(sent, response)
    }
}

fn lost() -> Answer {
    Answer::failed(Trouble::new(TroubleCode::Disconnected, "cut"))
}

fn ip() -> api::LoadBalancerStatus {
    api::LoadBalancerStatus {
        ingress: vec![api::LoadBalancerIngress {
            ip: Some("192.0.2.1".into()),
            ..api::LoadBalancerIngress::default()
        }],
    }
}

fn targets(size: usize) -> TargetSet {
    TargetSet {
        nodes: vec![api::NodeView::default(); size],
        fingerprint: Fingerprint(size as u128),
        version: 0,
        left_out: 0,
    }
}

/// One turn of the controller. Says whether there was anything to do.
fn turn(
    world: &mut World,
    record: &mut Option<Record>,
    targets: &TargetSet,
) -> Result<bool, Crash> {
    let capability = api::LoadBalancerCapability {
        in_sync: true,
        default_class: true,
        ..api::LoadBalancerCapability::default()
    };
    let Some(base) = world.service.clone() else {
        // B-S9: what this process knew is still deleted.
        let Some(known) = record.as_mut().filter(|known| known.cloud.by().is_some()) else {
            *record = None;
            return Ok(false);
        };
        let base = Arc::clone(&known.latest);
        call(world, record, &base, Op::Delete, targets)?;
        return Ok(true);
    };
    let base = Arc::new(base);
    if let Some(record) = record.as_mut() {
        record.latest = Arc::clone(&base);
    }
    let facts = Facts {
        me: ME,
        owner: true,
        departed: false,
        capability: &capability,
    };
    let step = next_step(&base, record.as_ref(), Some(targets), &facts);
    world.crash()?;
    match step {
        Step::Ignore => return Ok(false),
        Step::Blocked { .. } => panic!("nobody else is here"),
        Step::AddFinalizer(patch) => {
            let fresh = record.is_none() && Stored::of(&base) == Stored::Nothing;
            if let Some(now) = world.patch(&patch) {
                world.crash()?;
                let record = record.get_or_insert_with(|| Record::new(&now));
                record.check &= !fresh;
            }
        }
        Step::StoreHandle(patch) => {
            if world.patch(&patch).is_some() {
                world.crash()?;
                if let Some(record) = record.as_mut() {
                    record.unsaved_handle = None;
                }
            }
        }
        Step::Get => call(world, record, &base, Op::Get, targets)?,
        Step::Ensure => call(world, record, &base, Op::Ensure, targets)?,
        Step::Update => call(world, record, &base, Op::Update, targets)?,
        Step::Delete => call(world, record, &base, Op::Delete, targets)?,
        Step::Release { status, metadata } => {
            assert!(world.balancer.is_none(), "the finalizer goes last (▲S18)");
            if let Some(status) = status
                && world.patch_status(&status).is_none()
            {
                return Ok(true);
            }
            world.crash()?;
            if let Some(metadata) = metadata {
                world.patch(&metadata);
            }
        }
    }
    Ok(true)
}

fn call(
    world: &mut World,
    record: &mut Option<Record>,
    base: &Arc<Service>,
    op: Op,
    targets: &TargetSet,
) -> Result<(), Crash> {
    let call = Call {
        op,
        me: ME,
        departed: world.service.is_none(),
        service: base,
        targets: Some(targets),
        adopt_unmarked: false,
    };
    let known = record.take().unwrap_or_else(|| Record::new(base));
    let (known, _) = begin(known, &call, &api::LoadBalancerCapability::default());
    let known = record.insert(known);
    let handle = handle_to_send(base, Some(known), ME);
    let sent = Sent {
        service: base,
        handle: handle.as_deref(),
        me: ME,
        prefixes: &[],
        service_ranges: &[],
    };
    let answer = world.call(op, &sent, targets);
    world.crash()?;
    if answer.new_handle.is_some() {
        known.unsaved_handle = answer.new_handle.map(|handle| (ME.to_owned(), handle));
    }
    let as_asked = matches!(
        answer.verdict,
        Verdict::Ready(..) | Verdict::Updated(_) | Verdict::InSync(_)
    );
    if let Some(patch) = &answer.metadata {
        if world.patch(patch).is_some() {
            known.unsaved_handle = None;
        } else if as_asked {
            return Ok(());
        }
        world.crash()?;
    }
    if let Verdict::Ready(status, _) | Verdict::InSync(Some(status)) = &answer.verdict
        && let Some(patch) = world
            .service
            .as_ref()
            .and_then(|service| status_patch(service, status))
    {
        if world.patch_status(&patch).is_none() {
            return Ok(());
        }
        world.crash()?;
    }
    let verdict = &answer.verdict;
    let (settled, _) = settle(
        known.clone(),
        &call,
        verdict,
        None,
        reaction,
        Instant::now(),
    );
    *known = settled;
    Ok(())
}

/// Runs until nothing is left to do.
fn converge(world: &mut World, record: &mut Option<Record>, targets: &TargetSet) {
    for turns in 0.. {
        assert!(turns < 500, "it does not converge");
        // The faults end: else it would never have to converge.
        world.faults &= turns < 60;
        match turn(world, record, targets) {
            Ok(true) => {}
            Ok(false) => return,
            Err(Crash) => *record = None,
        }
    }
}

#[test]
fn s13_s18_s19_every_crash_and_every_fault_converges() {
    for seed in 0..600_u64 {
        let mut world = World {
            service: Some(service()),
            balancer: None,
            made: 0,
            mutations: 0,
            handle_stored: false,
            faults: true,
            rng: StdRng::seed_from_u64(seed),
        };
        let mut record = None;
        converge(&mut world, &mut record, &targets(3));
        let check = |world: &World, size: usize| {
            let balancer = world.balancer.as_ref().expect("it is made");
            let service = world.service.as_ref().unwrap();
            assert_eq!(world.made, 1, "never a second one (seed {seed})");
            assert_eq!(balancer.inputs, service_inputs(service), "seed {seed}");
            assert_eq!(balancer.targets, size, "seed {seed}");
            assert!(balancer.whole && has_finalizer(service), "seed {seed}");
            assert_eq!(
                Stored::of(service).handle_of(ME),
                Some("lb-1"),
                "seed {seed}"
            );
            let status = service.status.as_ref().unwrap().load_balancer.clone();
            assert!(status.unwrap().ingress.is_some(), "seed {seed}");
        };
        check(&world, 3);

        // A restart on a converged cluster makes no mutating call.
        let before = world.mutations;
        record = None;
        converge(&mut world, &mut record, &targets(3));
        assert_eq!(world.mutations, before, "seed {seed}");

        // An edit, then other targets, with faults.
        world.faults = true;
        let spec = world.service.as_mut().unwrap().spec.as_mut().unwrap();
        spec.external_traffic_policy = Some("Local".into());
        converge(&mut world, &mut record, &targets(3));
        check(&world, 3);
        world.faults = true;
        converge(&mut world, &mut record, &targets(5));
        check(&world, 5);

        // It disappears from the cloud behind our back and comes back with the next update (B-S10).
        if seed % 3 == 0 {
            world.balancer = None;
            world.made = 0;
            converge(&mut world, &mut record, &targets(6));
            assert_eq!(world.balancer.as_ref().map(|b| b.targets), Some(6));
        }

        // It goes, one way or the other.
        let service = world.service.as_mut().unwrap();
        match seed % 4 {
            0 => service.spec.as_mut().unwrap().type_ = Some("ClusterIP".into()),
            1 | 2 => {
                service.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
            }
            _ => {
                // Somebody takes the finalizer off and deletes it; the process knew it (B-S9).
                world.faults = false;
                world.service = None;
                converge(&mut world, &mut record, &targets(6));
                assert!(world.balancer.is_none(), "seed {seed}");
                continue;
            }
        }
        world.faults = true;
        converge(&mut world, &mut record, &targets(6));
        assert!(world.balancer.is_none(), "none is left (seed {seed})");
        if seed % 4 == 0 {
            let service = world.service.as_ref().unwrap();
            assert!(!has_finalizer(service));
            assert_eq!(Stored::of(service), Stored::Nothing);
            let status = service.status.as_ref().unwrap().load_balancer.clone();
            assert!(status.unwrap().ingress.is_none(), "seed {seed}");
        } else {
            assert!(world.service.is_none(), "seed {seed}");
        }
    }
}
