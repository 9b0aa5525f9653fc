//! Load balancers.

mod answered;
mod asked;

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use provider_sdk::{
    Call, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, Failure, GetLoadBalancer,
    ListLoadBalancers, ListedLoadBalancer, LoadBalancer, LoadBalancerOptions, LoadBalancerResult,
    LoadBalancers, NodeProjection, Ownership, Service, ServiceFeature, ServiceRef, TargetScope,
    UpdateLoadBalancer, Updated, async_trait,
};

pub(crate) use self::answered::status;
use self::answered::{RETAIN, answer, behaviour, slow, waits};
use self::asked::targets;
use super::{MockProvider, not_saved};
use crate::cloud::State;
use crate::fixture::{self, Fixture};
use crate::load_balancers::{self as cloud, Asker, EnsurePlan};

const ANOTHER_REMAINS: &str = "another load balancer of this Service is deleted next";

/// A call that may change the cloud.
struct Begun<'a> {
    state: MutexGuard<'a, State>,
    settings: Arc<Fixture>,
    now_ms: u64,
}

impl MockProvider {
    /// Begins a call that may change the cloud. Also removes load balancers whose deletion has
    /// ended. `None`: the cloud is so slow that the answer has to be `pending` (CORE-9).
    async fn begin(&self, call: &Call) -> Result<Option<Begun<'_>>, Failure> {
        let in_time = match call.deadline() {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()) / 2,
            None => Duration::MAX,
        };
        let Ok(reached) = tokio::time::timeout(in_time, self.reach(call)).await else {
            return Ok(None);
        };
        reached?;
        call.before_write().await?;
        Ok(Some(self.begun()))
    }

    fn begun(&self) -> Begun<'_> {
        let now_ms = self.cloud.now_ms();
        let mut state = self.cloud.state();
        state.objects.load_balancers.settle(now_ms);
        let settings = Arc::clone(&state.settings);
        Begun {
            state,
            settings,
            now_ms,
        }
    }

    /// The asking cluster and Service.
    pub(crate) fn asker<'a>(
        &'a self,
        call: &'a Call,
        service: &'a Service,
        handle: Option<&'a str>,
    ) -> Asker<'a> {
        Asker {
            owner_id: &call.cluster().owner_id,
            previous: call.previous_owner_ids(),
            service,
            handle,
            marks: &*self.marks,
        }
    }

    /// Ensures the load balancer while it holds the lock of the cloud's state.
    fn ensure_in(
        &self,
        call: &Call,
        request: &EnsureLoadBalancer,
        begun: Begun<'_>,
    ) -> LoadBalancerResult<Ensured> {
        let service = &request.service;
        let Begun {
            mut state,
            settings,
            now_ms,
        } = begun;
        if behaviour(&settings, service).handled_elsewhere {
            return Ok(answer(Ensured::HandledElsewhere, &settings, service, None));
        }
        cloud::check(service, &settings.capabilities.load_balancers)
            .map_err(|failure| answer(failure, &settings, service, None))?;
        let (targets, errors) = targets(&settings, request.targets.as_deref())?;
        let asker = self.asker(call, service, request.handle.as_deref());
        let adopt = request.adopt_unmarked;
        let plan =
            state
                .objects
                .load_balancers
                .plan_ensure(&asker, targets, adopt, &settings.addressing);
        let plan = plan.map_err(|failure| answer(failure, &settings, service, None))?;
        let load_balancer = match plan {
            EnsurePlan::AsAsked(load_balancer) => load_balancer,
            EnsurePlan::Deleting(load_balancer) => {
                let left = load_balancer
                    .gone_at_ms
                    .unwrap_or(now_ms)
                    .saturating_sub(now_ms);
                let pending = waits("the former load balancer is still being deleted", left);
                return Ok(answer(
                    Ensured::Pending(pending),
                    &settings,
                    service,
                    Some(load_balancer.told_handle()),
                ));
            }
            EnsurePlan::Write(mut load_balancer) => {
                let what = if load_balancer.handle.is_empty() {
                    load_balancer.ready_at_ms =
                        now_ms + settings.provisioning.load_balancer.0.as_millis() as u64;
                    "create"
                } else {
                    "change"
                };
                let targets = load_balancer.targets.len();
                load_balancer.handle = state
                    .put_load_balancer(load_balancer.clone(), now_ms)
                    .map_err(|error| not_saved(&error))?;
                state.wrote(format!(
                    "{what} load balancer {} of {}/{} with {targets} targets",
                    load_balancer.handle, service.namespace, service.name
                ));
                load_balancer
            }
        };
        let left = load_balancer.ready_at_ms.saturating_sub(now_ms);
        let outcome = if left > 0 {
            Ensured::Pending(waits("the load balancer is being made", left))
        } else {
            Ensured::Ready(status(&load_balancer, &settings.addressing))
        };
        let handle = Some(load_balancer.told_handle());
        let mut answer = answer(outcome, &settings, service, handle);
        answer.notes.target_errors = errors;
        Ok(answer)
    }
}

#[async_trait]
impl LoadBalancers for MockProvider {
    async fn get(
        &self,
        call: &Call,
        request: &GetLoadBalancer,
    ) -> LoadBalancerResult<LoadBalancer> {
        self.reach(call).await?;
        let now_ms = self.cloud.now_ms();
        let mut state = self.cloud.state();
        state.objects.load_balancers.settle(now_ms);
        let asker = self.asker(call, &request.service, request.handle.as_deref());
        let all = &state.objects.load_balancers;
        let Some(found) = all.find(&asker) else {
            return Ok(LoadBalancer::absent().into());
        };
        let ownership = asker.ownership(found);
        let shown = if found.remnant || found.gone_at_ms.is_some() {
            LoadBalancer::remnants(ownership, found.told_name())
        } else {
            let status = status(found, &state.settings.addressing);
            let mut shown = LoadBalancer::present(ownership, found.told_name(), status);
            if state.settings.capabilities.load_balancers.in_sync {
                let targets = targets(&state.settings, request.targets.as_deref());
                let plan = targets.and_then(|(targets, errors)| {
                    let plan =
                        all.plan_ensure(&asker, targets, false, &state.settings.addressing)?;
                    Ok((plan, errors.is_empty()))
                });
                let in_sync = found.ready_at_ms <= now_ms
                    && matches!(plan, Ok((EnsurePlan::AsAsked(_), true)))
                    && cloud::check(
                        &request.service,
                        &state.settings.capabilities.load_balancers,
                    )
                    .is_ok()
                    && !behaviour(&state.settings, &request.service).handled_elsewhere;
                shown = shown.in_sync(in_sync);
            }
            shown
        };
        let handle = (ownership == Ownership::Ours).then(|| found.told_handle());
        Ok(answer(shown, &state.settings, &request.service, handle))
    }

    async fn ensure(
        &self,
        call: &Call,
        request: &EnsureLoadBalancer,
    ) -> LoadBalancerResult<Ensured> {
        let Some(begun) = self.begin(call).await? else {
            return Ok(Ensured::Pending(slow()).into());
        };
        self.ensure_in(call, request, begun)
    }

    async fn update(
        &self,
        call: &Call,
        request: &UpdateLoadBalancer,
    ) -> LoadBalancerResult<Updated> {
        let service = &request.service;
        let Some(Begun {
            mut state,
            settings,
            now_ms,
        }) = self.begin(call).await?
        else {
            return Ok(Updated::Pending(slow()).into());
        };
        if behaviour(&settings, service).handled_elsewhere {
            return Ok(answer(Updated::HandledElsewhere, &settings, service, None));
        }
        let (wanted, errors) = targets(&settings, Some(&request.targets))?;
        let asker = self.asker(call, service, request.handle.as_deref());
        let found = state.objects.load_balancers.find_own(&asker)?.cloned();
        let Some(mut found) = found.filter(|lb| lb.gone_at_ms.is_none() && !lb.remnant) else {
            let name = format!("{}/{}", service.namespace, service.name);
            return Err(Failure::not_found(format!("Service {name} has no load balancer")).into());
        };
        let wanted = wanted.unwrap_or_else(|| found.targets.clone());
        if found.targets != wanted {
            found.targets = wanted;
            if let Some(owner) = &mut found.owner {
                call.cluster().owner_id.clone_into(&mut owner.owner_id);
            }
            let count = found.targets.len();
            let handle = state
                .put_load_balancer(found.clone(), now_ms)
                .map_err(|error| not_saved(&error))?;
            state.wrote(format!("set the {count} targets of load balancer {handle}"));
        }
        let left = found.ready_at_ms.saturating_sub(now_ms);
        let outcome = if left > 0 {
            Updated::Pending(waits("the load balancer is being made", left))
        } else {
            Updated::Done
        };
        let mut answer = answer(outcome, &settings, service, Some(found.told_handle()));
        answer.notes.target_errors = errors;
        Ok(answer)
    }

    async fn delete(
        &self,
        call: &Call,
        request: &DeleteLoadBalancer,
    ) -> LoadBalancerResult<Deleted> {
        let service = &request.service;
        let Some(Begun {
            mut state,
            settings,
            now_ms,
        }) = self.begin(call).await?
        else {
            return Ok(Deleted::Pending(slow()).into());
        };
        let behaviour = behaviour(&settings, service);
        if behaviour.handled_elsewhere {
            return Ok(answer(Deleted::HandledElsewhere, &settings, service, None));
        }
        let asker = self.asker(call, service, request.handle.as_deref());
        let all = &state.objects.load_balancers;
        let found = all.find_to_delete(&asker, request.adopt_unmarked)?.cloned();
        let Some(mut found) = found else {
            return Ok(answer(Deleted::Done, &settings, service, None));
        };
        if behaviour.retain {
            let retained = Deleted::Retained {
                reason: format!("kept load balancer {}: {RETAIN} asks for it", found.handle),
            };
            let handle = Some(found.told_handle());
            return Ok(answer(retained, &settings, service, handle));
        }
        if found.gone_at_ms.is_none() {
            let takes = settings.provisioning.deletion.0.as_millis() as u64;
            found.gone_at_ms = Some(now_ms + takes);
            let saved = if takes == 0 {
                state
                    .remove_load_balancer(&found.handle, now_ms)
                    .map(|_| ())
            } else {
                state.put_load_balancer(found.clone(), now_ms).map(|_| ())
            };
            saved.map_err(|error| not_saved(&error))?;
            state.wrote(format!("delete load balancer {}", found.handle));
        }
        let left = found.gone_at_ms.unwrap_or(now_ms).saturating_sub(now_ms);
        let outcome = if left > 0 {
            Deleted::Pending(waits("the load balancer is being deleted", left))
        } else {
            // Delete is not done while an unmarked one remains: CONFLICT without the grant (LB-26).
            let all = &state.objects.load_balancers;
            match all.find_unmarked(&asker, request.adopt_unmarked)? {
                Some(_) => Deleted::Pending(waits(ANOTHER_REMAINS, 1_000)),
                None => Deleted::Done,
            }
        };
        Ok(answer(outcome, &settings, service, None))
    }

    fn options(&self) -> LoadBalancerOptions {
        let settings = self.cloud.settings();
        let capability = &settings.capabilities.load_balancers;
        let classes = capability.classes.iter();
        let classes = classes.filter(|class| *class != fixture::DEFAULT_CLASS);
        LoadBalancerOptions {
            classes: classes.cloned().collect(),
            default_class: capability.serves(None),
            in_sync: capability.in_sync,
            ignores_nodes: capability.targets == fixture::Targets::Ignored,
            target_scope: match capability.target_scope {
                fixture::TargetScope::Owned => TargetScope::Owned,
                fixture::TargetScope::All => TargetScope::All,
            },
            max_targets: capability.max_targets,
            features: capability
                .features
                .iter()
                .map(|feature| feature.0)
                // The mock supports `ipMode` only if the settings have one.
                .filter(|feature| {
                    *feature != ServiceFeature::IpMode || settings.addressing.ip_mode.is_some()
                })
                .collect(),
            max_in_flight: capability.max_in_flight,
            target_projection: NodeProjection {
                label_keys: capability.target_labels.clone(),
                ..NodeProjection::default()
            },
        }
    }

    fn listing(&self) -> Option<&dyn ListLoadBalancers> {
        let listing = self.cloud.settings().capabilities.load_balancers.listing;
        listing.then_some(self as &dyn ListLoadBalancers)
    }
}

#[async_trait]
impl ListLoadBalancers for MockProvider {
    async fn list(&self, call: &Call) -> Result<Vec<ListedLoadBalancer>, Failure> {
        self.reach(call).await?;
        let now_ms = self.cloud.now_ms();
        let mut state = self.cloud.state();
        state.objects.load_balancers.settle(now_ms);
        let mut listed: BTreeMap<String, ListedLoadBalancer> = BTreeMap::new();
        for lb in state.objects.load_balancers.by_handle.values() {
            let ours = |owner: &&cloud::Mark| call.owns(&owner.owner_id);
            let Some(owner) = lb.owner.as_ref().filter(ours) else {
                continue;
            };
            let handle = lb.told_handle();
            let entry = listed
                .entry(handle.clone())
                .or_insert_with(|| ListedLoadBalancer {
                    name: lb.told_name(),
                    handle: Some(handle),
                    owners: Vec::new(),
                });
            entry.owners.push(ServiceRef {
                namespace: owner.namespace.clone(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            });
        }
        Ok(listed.into_values().collect())
    }
}
