//! Load balancers.

mod kept;
mod neighbours;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use provider_sdk::{
    Answer, Call, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, Failure, FailureCode,
    GetLoadBalancer, ListLoadBalancers, ListedLoadBalancer, LoadBalancer, LoadBalancerOptions,
    LoadBalancerResult, LoadBalancers, Node, Ownership, Pending, Presence, Service,
    UpdateLoadBalancer, Updated, async_trait,
};

use super::Twisted;
use crate::fixture::{Addressing, Targets};
use crate::lies::Twist;
use crate::load_balancers::{self as cloud, Asker};
use crate::pool::Pool;
use crate::provider::{not_saved, status};

/// How long a deletion takes with `ReadyWhileDeleting` if the cloud's own takes no time. The twist
/// shows only during a deletion.
const TWISTED_DELETION: Duration = Duration::from_secs(5);

impl Twisted {
    fn asker<'a>(
        &'a self,
        call: &'a Call,
        service: &'a Service,
        handle: Option<&'a str>,
    ) -> Asker<'a> {
        let asker = self.honest.asker(call, service, handle);
        if self.has(Twist::NeedsHandle) && self.misses(&asker) {
            self.cloud.count_lie();
        }
        asker
    }

    /// Whether a load balancer has the Service's mark, and none has the handle.
    fn misses(&self, asker: &Asker<'_>) -> bool {
        let state = self.cloud.state();
        let all = &state.objects.load_balancers.by_handle;
        let named = asker.handle.is_some_and(|handle| all.contains_key(handle));
        !named
            && all
                .values()
                .any(|it| asker.ownership(it) == Ownership::Ours)
    }

    /// The load balancer that the provider finds for the Service, of any owner.
    fn found(&self, asker: &Asker<'_>) -> Option<cloud::LoadBalancer> {
        let now_ms = self.cloud.now_ms();
        let mut state = self.cloud.state();
        state.objects.load_balancers.settle(now_ms);
        state.objects.load_balancers.find(asker).cloned()
    }

    /// The Service's own load balancer.
    fn own(&self, asker: &Asker<'_>) -> Option<cloud::LoadBalancer> {
        let found = self.found(asker);
        found.filter(|it| asker.ownership(it) == Ownership::Ours)
    }

    /// The targets. With the twist `EmptyTargetsIgnored`, an empty set counts as absent.
    fn taken(&self, targets: Option<Vec<Node>>) -> Option<Vec<Node>> {
        let ignored = targets.as_ref().is_some_and(Vec::is_empty);
        if ignored && self.has(Twist::EmptyTargetsIgnored) {
            self.cloud.count_lie();
            return None;
        }
        targets
    }

    /// The Service. With the twist `KeepsCleared`, it also asks for settings that its load balancer
    /// still has.
    fn kept(&self, asker: &Asker<'_>) -> Service {
        let mut service = asker.service.clone();
        if self.has(Twist::KeepsCleared)
            && let Some(own) = self.own(asker)
        {
            kept::keep(&mut service, own.config);
        }
        if service != *asker.service {
            self.cloud.count_lie();
        }
        service
    }

    /// With the twist `ConflictButTouches`, a CONFLICT removes the targets of the load balancer
    /// that the provider finds for the Service.
    fn touch(&self, asker: &Asker<'_>, failure: &Failure) {
        if !self.has(Twist::ConflictButTouches) || failure.code() != FailureCode::Conflict {
            return;
        }
        if let Some(mut theirs) = self.found(asker) {
            theirs.targets.clear();
            // The answer stays CONFLICT, whether or not this was saved.
            let _ = self.put(theirs, "take the targets from");
        }
    }

    /// Writes a load balancer. Returns its handle.
    fn put(&self, load_balancer: cloud::LoadBalancer, what: &str) -> Result<String, Failure> {
        self.cloud.count_lie();
        let now_ms = self.cloud.now_ms();
        let mut state = self.cloud.state();
        let handle = state
            .put_load_balancer(load_balancer, now_ms)
            .map_err(|error| not_saved(&error))?;
        state.wrote(format!("{what} load balancer {handle}"));
        Ok(handle)
    }

    /// Another load balancer for the same Service, with other addresses if the first pool of their
    /// family has any.
    fn another(
        &self,
        mut one: cloud::LoadBalancer,
        addressing: &Addressing,
    ) -> cloud::LoadBalancer {
        let all = self.cloud.load_balancers();
        let taken: BTreeSet<IpAddr> = all.into_iter().flat_map(|it| it.addresses).collect();
        for address in &mut one.addresses {
            let mut pools = addressing.pools.iter();
            let of_family = |pool: &&Pool| pool.is_ipv6() == address.is_ipv6();
            let pool = pools.find(of_family);
            *address = pool
                .and_then(|it| it.first_free(&taken))
                .unwrap_or(*address);
        }
        one.handle.clear();
        one
    }

    /// With the twist `TellsHandles`, the failure of Ensure with the handle of what was found.
    fn telling(&self, asker: &Asker<'_>, mut answer: Answer<Failure>) -> Answer<Failure> {
        if self.has(Twist::TellsHandles)
            && let Some(found) = self.found(asker)
        {
            self.cloud.count_lie();
            answer.notes.handle = Some(found.told_handle());
        }
        answer
    }

    /// Applies the twists to the honest answer of Get.
    fn got(
        &self,
        asker: &Asker<'_>,
        request: &GetLoadBalancer,
        mut answer: Answer<LoadBalancer>,
    ) -> LoadBalancerResult<LoadBalancer> {
        let has_class = request.service.load_balancer_class.is_some();
        if has_class && self.has(Twist::OtherClassAbsent) {
            answer = LoadBalancer::absent().into();
        }
        let shown = &mut answer.outcome;
        if shown.presence == Presence::Absent {
            if self.has(Twist::AbsentInSync) {
                shown.in_sync = Some(true);
            }
            return Ok(answer);
        }
        let Some(found) = self.found(asker) else {
            return Ok(answer);
        };
        let foreign = shown.ownership == Some(Ownership::Foreign);
        let handle = Some(found.told_handle());
        let conflicts = if request.handle == handle {
            Twist::ForeignGetConflicts
        } else {
            Twist::ForeignNameConflicts
        };
        if foreign && self.has(conflicts) {
            let name = found.told_name();
            return Err(Failure::conflict(format!(
                "load balancer {name} seems to belong to another owner"
            ))
            .into());
        }
        if self.has(Twist::TellsHandles) {
            answer.notes.handle = handle;
        }
        if self.has(Twist::GetWrites) {
            self.cloud.count_lie();
            let line = format!("note that Get read load balancer {}", found.handle);
            self.cloud.state().wrote(line);
        }
        Ok(answer)
    }

    /// Runs Ensure in a task that goes on after the call ends.
    async fn goes_on(
        &self,
        call: &Call,
        request: EnsureLoadBalancer,
    ) -> LoadBalancerResult<Ensured> {
        let honest = self.honest.clone();
        let endless = Call::for_test(call.cluster().clone());
        let work = tokio::spawn(async move { honest.ensure(&endless, &request).await });
        work.await
            .unwrap_or_else(|error| Err(Failure::internal(error.to_string()).into()))
    }
}

#[async_trait]
impl LoadBalancers for Twisted {
    async fn get(
        &self,
        call: &Call,
        request: &GetLoadBalancer,
    ) -> LoadBalancerResult<LoadBalancer> {
        if self.is_honest() {
            return self.honest.get(call, request).await;
        }
        let asker = self.asker(call, &request.service, request.handle.as_deref());
        let mut asked = request.clone();
        asked.service = self.kept(&asker);
        asked.targets = self.taken(asked.targets);
        let honest = self.honest.get(call, &asked).await?;
        let twisted = self.got(&asker, request, honest.clone());
        if twisted.as_ref() != Ok(&honest) {
            self.cloud.count_lie();
        }
        twisted
    }

    async fn ensure(
        &self,
        call: &Call,
        request: &EnsureLoadBalancer,
    ) -> LoadBalancerResult<Ensured> {
        if self.is_honest() {
            return self.honest.ensure(call, request).await;
        }
        let asker = self.asker(call, &request.service, request.handle.as_deref());
        let mut asked = request.clone();
        asked.service = self.kept(&asker);
        asked.targets = self.taken(asked.targets);
        if self.has(Twist::AdoptsUnmarked) && !asked.adopt_unmarked {
            asked.adopt_unmarked = true;
            if self.found(&asker).is_some_and(|it| it.owner.is_none()) {
                self.cloud.count_lie();
            }
        }
        if self.has(Twist::GoesOn) {
            return self.goes_on(call, asked).await;
        }
        let before = self.own(&asker);
        if self.has(Twist::SharedCollisionTaken) {
            self.rob(&asker)?;
        }
        let answer = self.honest.ensure(call, &asked).await;
        let mut answer = answer
            .inspect_err(|answer| self.touch(&asker, &answer.outcome))
            .map_err(|answer| self.telling(&asker, answer))?;
        let Some(before) = before else {
            return Ok(answer);
        };
        // With the twist `AbsentTargetsEmpty`, absent targets and targets that do not matter count
        // as empty.
        let settings = self.cloud.settings();
        let matter = settings.capabilities.load_balancers.targets != Targets::Ignored;
        if (!matter || request.targets.is_none())
            && self.has(Twist::AbsentTargetsEmpty)
            && let Some(mut own) = self.own(&asker)
            && !own.targets.is_empty()
        {
            own.targets.clear();
            self.put(own, "take the targets from")?;
        }
        let addressing = &settings.addressing;
        if before.gone_at_ms.is_some() && self.has(Twist::ReadyWhileDeleting) {
            self.cloud.count_lie();
            answer.outcome = Ensured::Ready(status(&before, addressing));
        }
        if self.has(Twist::AlwaysWrites)
            && let Some(own) = self.own(&asker)
            && own == before
        {
            self.put(own, "change")?;
        }
        if self.has(Twist::MakesAnother) {
            let another = self.another(before, addressing);
            answer.outcome = Ensured::Ready(status(&another, addressing));
            answer.notes.handle = Some(self.put(another, "create")?);
        }
        Ok(answer)
    }

    async fn update(
        &self,
        call: &Call,
        request: &UpdateLoadBalancer,
    ) -> LoadBalancerResult<Updated> {
        if self.is_honest() {
            return self.honest.update(call, request).await;
        }
        let asker = self.asker(call, &request.service, request.handle.as_deref());
        let mut asked = request.clone();
        if asked.targets.is_empty()
            && self.has(Twist::EmptyTargetsIgnored)
            && let Some(own) = self.own(&asker)
        {
            self.cloud.count_lie();
            let targets = own.targets.into_iter();
            asked.targets = targets.map(|name| Node::new(name, "")).collect();
        }
        let answer = self.honest.update(call, &asked).await;
        let answer = match answer {
            Err(answer)
                if answer.outcome.code() == FailureCode::NotFound
                    && self.has(Twist::UpdateOfAbsentDone) =>
            {
                self.cloud.count_lie();
                return Ok(Updated::Done.into());
            }
            answer => answer.inspect_err(|answer| self.touch(&asker, &answer.outcome))?,
        };
        if self.has(Twist::SharedTargets) {
            self.retarget(&asker)?;
        }
        Ok(answer)
    }

    async fn delete(
        &self,
        call: &Call,
        request: &DeleteLoadBalancer,
    ) -> LoadBalancerResult<Deleted> {
        if self.is_honest() {
            return self.honest.delete(call, request).await;
        }
        let asker = self.asker(call, &request.service, request.handle.as_deref());
        let before = self.own(&asker);
        if before.is_some() && self.has(Twist::DeleteLeaves) {
            self.honest.reach(call).await?;
            self.cloud.count_lie();
            return Ok(Deleted::Done.into());
        }
        let answer = self.honest.delete(call, request).await;
        let native = cloud::native_name(&request.service.uid);
        let with_name = |marked: bool| {
            let all = self.cloud.load_balancers();
            let mut all = all.into_iter();
            all.find(|it| it.name == native && it.owner.is_some() == marked)
        };
        let answer = match answer {
            Err(answer) => {
                self.touch(&asker, &answer.outcome);
                let conflict = answer.outcome.code() == FailureCode::Conflict;
                if conflict && self.has(Twist::UnmarkedDeleteDone) && with_name(false).is_some() {
                    self.cloud.count_lie();
                    return Ok(Deleted::Done.into());
                }
                return Err(answer);
            }
            Ok(answer) => answer,
        };
        match before {
            Some(before) if self.has(Twist::SharedDelete) => self.remove_peers(&asker, &before)?,
            Some(mut before)
                if answer.outcome == Deleted::Done
                    && before.gone_at_ms.is_none()
                    && self.has(Twist::ReadyWhileDeleting) =>
            {
                // With the twist `ReadyWhileDeleting`, the deletion takes a while.
                self.cloud.count_lie();
                let now_ms = self.cloud.now_ms();
                before.gone_at_ms = Some(now_ms + TWISTED_DELETION.as_millis() as u64);
                let put = self.cloud.state().put_load_balancer(before, now_ms);
                put.map_err(|error| not_saved(&error))?;
                let pending = Pending::new("the load balancer is being deleted");
                let pending = pending.retry_after(TWISTED_DELETION);
                return Ok(Answer::from(Deleted::Pending(pending)));
            }
            None if self.has(Twist::ForeignNameConflicts)
                && let Some(other) = with_name(true) =>
            {
                self.cloud.count_lie();
                let name = other.told_name();
                return Err(Failure::conflict(format!(
                    "load balancer {name} belongs to another owner"
                ))
                .into());
            }
            None if answer.outcome == Deleted::Done && self.has(Twist::DeleteOfAbsentFails) => {
                self.cloud.count_lie();
                let absent = "the Service has no load balancer to delete";
                return Err(Failure::internal(absent).into());
            }
            _ => {}
        }
        Ok(answer)
    }

    fn options(&self) -> LoadBalancerOptions {
        LoadBalancers::options(&self.honest)
    }

    fn listing(&self) -> Option<&dyn ListLoadBalancers> {
        let offered = LoadBalancers::listing(&self.honest);
        offered.map(|_| self as &dyn ListLoadBalancers)
    }
}

#[async_trait]
impl ListLoadBalancers for Twisted {
    async fn list(&self, call: &Call) -> Result<Vec<ListedLoadBalancer>, Failure> {
        let mut listed = ListLoadBalancers::list(&self.honest, call).await?;
        if self.has(Twist::SharedListed) {
            for one in &mut listed {
                if one.owners.len() > 1 {
                    self.cloud.count_lie();
                    one.owners.truncate(1);
                }
            }
        }
        Ok(listed)
    }
}
