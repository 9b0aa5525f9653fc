//! Common parts of the load balancer checks: the cluster, its Nodes, and observations of the cloud
//! besides the answers.

use std::fmt::{Debug, Display};

use cloud_provider_api::v1alpha1 as pb;
use pb::ensure_load_balancer_response::Outcome as Ensured;

use crate::call::Exchange;
use crate::check::{Need, Stop, Verdict, must, must_equal};
use crate::hooks::Hook;
use crate::listings::is_owner;
use crate::run::{Run, targets};
use crate::session::Session;

use super::answer::found;
use super::balancer::Balancer;

/// A check's own initialised cluster.
pub(super) struct Stage<'a> {
    pub(super) run: &'a Run,
    pub(super) session: Session,
    nodes: Vec<pb::NodeView>,
}

impl<'a> Stage<'a> {
    /// With two Nodes as targets. If the suite finds fewer than two instances, the stage has no
    /// Nodes. If this cloud also refuses empty target sets, the check is skipped.
    pub(super) async fn new(run: &'a Run) -> Verdict<Self> {
        match Self::with_nodes(run, 2).await {
            Err(Stop::Skipped(_)) if run.takes_empty_sets() => Self::with_nodes(run, 0).await,
            stage => stage,
        }
    }

    /// With this many Nodes as targets. Skips the check if this cloud ignores targets, or if the
    /// suite finds fewer instances.
    pub(super) async fn with_targets(run: &'a Run, count: usize) -> Verdict<Self> {
        if offered(run).ignores_nodes {
            return Err(Stop::not_offered(
                "targets do not matter to this cloud (Capabilities.load_balancers.ignores_nodes)",
            ));
        }
        Self::with_nodes(run, count).await
    }

    async fn with_nodes(run: &'a Run, count: usize) -> Verdict<Self> {
        let known = if count == 0 {
            Vec::new()
        } else {
            run.instances(count).await?
        };
        let session = run.session().await?;
        let mut nodes = run.target_nodes(&session, &known).await;
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self {
            run,
            session,
            nodes,
        })
    }

    /// The Nodes with an instance in the cloud.
    pub(super) fn nodes(&self) -> &[pb::NodeView] {
        &self.nodes
    }

    /// All of these Nodes as targets.
    pub(super) fn targets(&self) -> pb::TargetSet {
        targets(self.nodes.clone())
    }

    /// The first of these Nodes as targets.
    pub(super) fn first(&self, count: usize) -> pb::TargetSet {
        targets(self.nodes[..count].to_vec())
    }

    /// The fewest targets that this cloud allows: none, or one.
    pub(super) fn few(&self) -> pb::TargetSet {
        self.first(usize::from(!self.run.takes_empty_sets()))
    }

    /// A new Service without a load balancer.
    pub(super) fn balancer(&self, word: &str) -> Balancer {
        Balancer::new(&self.session, self.run.service(word))
    }

    /// A new Service with a ready load balancer and all Nodes as targets.
    pub(super) async fn ready(&self, word: &str) -> Verdict<Balancer> {
        let mut balancer = self.balancer(word);
        balancer.ensured(Some(self.targets())).await?;
        Ok(balancer)
    }

    /// Initialises the process for this owner: it works for one at a time.
    pub(super) async fn work_for(
        &self,
        cluster: &pb::ClusterRef,
        previous: &[&str],
    ) -> Verdict<Session> {
        self.run.session_for(cluster.clone(), previous).await
    }

    /// Initialises the process for this check's own cluster again.
    pub(super) async fn back(&self) -> Verdict<Session> {
        self.run.session().await
    }

    /// All load balancers of this session's cluster.
    pub(super) async fn list(&self) -> Verdict<Vec<pb::ListedLoadBalancer>> {
        list(&self.session).await
    }

    /// Checks that the Service's load balancer is listed this many times. Without a listing, this
    /// is recorded as unseen.
    pub(super) async fn listed_times(
        &self,
        balancer: &Balancer,
        times: usize,
        rule: &str,
    ) -> Verdict {
        if !self.run.sees(&[Need::LoadBalancerListing]) {
            return Ok(());
        }
        let listed = list(&balancer.session).await?;
        let service = &balancer.service;
        let of_it: Vec<_> = listed.iter().filter(|one| is_of(one, service)).collect();
        must(
            of_it.len() == times,
            rule,
            format_args!(
                "ListLoadBalancers after this for the Service with UID {}",
                service.uid
            ),
            format_args!("{times} load balancers of it"),
            format_args!("{of_it:?}"),
        )
    }

    /// Checks that another Ensure changes nothing: ready at once, the same status and handle. If
    /// the suite can count the writes to the cloud, there must be none. If the provider offers
    /// `in_sync`, it must be true before and after.
    pub(super) async fn converged(
        &self,
        balancer: &mut Balancer,
        set: Option<pb::TargetSet>,
    ) -> Verdict {
        let status = balancer.present(set.clone()).await?.status;
        self.told_in_sync(
            balancer,
            set.clone(),
            true,
            "Ensure has answered `ready` for it",
        )
        .await?;
        let handle = balancer.handle.clone();
        let before = self.writes().await?;
        let asked = balancer.ensure(set.clone(), false).await?;
        let Some(Ensured::Ready(ready)) = &asked.success("LB-8")?.outcome else {
            return Err(asked.broke("LB-8", "`ready`: the load balancer already is as asked"));
        };
        must_equal(
            &ready.status,
            &status,
            "LB-8",
            "Get, then Ensure, of a load balancer that is as asked",
        )?;
        must_equal(
            &balancer.handle,
            &handle,
            "LB-3",
            "Ensure of a load balancer that is as asked: its handle",
        )?;
        self.wrote(before, Writes::None, "LB-8", &asked).await?;
        self.told_in_sync(balancer, set, true, "Ensure was just repeated")
            .await
    }

    /// Checks that Get and Ensure find the load balancer without the handle, and that Ensure writes
    /// nothing.
    pub(super) async fn converged_without_handle(&self, balancer: &mut Balancer) -> Verdict {
        let mut forgetful = balancer.forgetful();
        forgetful.present(Some(self.targets())).await?;
        let before = self.writes().await?;
        let asked = forgetful
            .forgetful()
            .ensure(Some(self.targets()), false)
            .await?;
        asked.success("LB-5")?;
        self.wrote(before, Writes::None, "LB-8", &asked).await?;
        self.listed_times(balancer, 1, "LB-5").await
    }

    /// Checks the value of `in_sync`. If it is not offered, this is recorded as unseen.
    pub(super) async fn in_sync(
        &self,
        balancer: &mut Balancer,
        set: Option<pb::TargetSet>,
        expected: bool,
        why: &str,
    ) -> Verdict {
        if self.run.sees(&[Need::InSync]) {
            self.told_in_sync(balancer, set, expected, why).await?;
        }
        Ok(())
    }

    /// Like [`Self::in_sync`], for checks that also count writes. If `in_sync` is not offered, this
    /// checks and records nothing, because the writes show enough.
    pub(super) async fn told_in_sync(
        &self,
        balancer: &mut Balancer,
        set: Option<pb::TargetSet>,
        expected: bool,
        why: &str,
    ) -> Verdict {
        if !offered(self.run).in_sync {
            return Ok(());
        }
        let asked = balancer.get(set).await?;
        let found = found(&asked)?;
        asked.must(
            found.in_sync == Some(expected),
            "LB-14",
            format_args!("in_sync: {expected}, for {why}"),
        )
    }

    /// How many writes ever reached the cloud. `None`: there is no hook.
    pub(super) async fn writes(&self) -> Verdict<Option<u64>> {
        if self.run.has_hook(Hook::CloudWrites) {
            self.run.cloud_writes().await.map(Some)
        } else {
            Ok(None)
        }
    }

    /// Checks the number of writes to the cloud since the count was `before`. Without a hook, this
    /// is recorded as unseen.
    pub(super) async fn wrote<T: Debug>(
        &self,
        before: Option<u64>,
        expected: Writes,
        rule: &str,
        asked: &Exchange<T>,
    ) -> Verdict {
        self.wrote_by(before, expected, rule, asked.sent()).await
    }

    /// Like [`Self::wrote`], for several calls.
    pub(super) async fn wrote_by(
        &self,
        before: Option<u64>,
        expected: Writes,
        rule: &str,
        sent: impl Display,
    ) -> Verdict {
        let (Some(before), Some(after)) = (before, self.writes().await?) else {
            self.run.sees(&[Need::Hook(Hook::CloudWrites)]);
            return Ok(());
        };
        let count = after.saturating_sub(before);
        let (holds, words) = match expected {
            Writes::None => (count == 0, "no write to the cloud"),
            Writes::Some => (count > 0, "at least one write to the cloud"),
        };
        must(
            holds,
            rule,
            sent,
            words,
            format_args!("{count} writes (hook cloud-writes)"),
        )
    }
}

/// The expected change of the cloud's count of writes.
#[derive(Clone, Copy)]
pub(super) enum Writes {
    None,
    Some,
}

/// The provider's capability for load balancers.
pub(super) fn offered(run: &Run) -> pb::LoadBalancerCapability {
    run.capabilities().load_balancers.unwrap_or_default()
}

/// Skips the check if the provider does not offer this feature.
pub(super) fn need_feature(run: &Run, feature: pb::ServiceFeature) -> Verdict {
    if offered(run).features().any(|one| one == feature) {
        return Ok(());
    }
    let name = feature.as_str_name().trim_start_matches("SERVICE_FEATURE_");
    Err(Stop::not_offered(format!(
        "the provider does not offer {name} in Capabilities.load_balancers.features"
    )))
}

/// Whether a listed load balancer is marked for this Service.
pub(super) fn is_of(one: &pb::ListedLoadBalancer, service: &pb::ServiceView) -> bool {
    one.owners.iter().any(|owner| is_owner(owner, service))
}

/// A complete listing. Each entry is within the limits.
pub(super) async fn list(session: &Session) -> Verdict<Vec<pb::ListedLoadBalancer>> {
    let asked = session.list(pb::ListLoadBalancersRequest::default()).await;
    let items = asked.items()?;
    for item in &items {
        let handle = item.handle.as_deref();
        asked.must(
            item.load_balancer_name.len() <= 253
                && handle.is_none_or(|handle| !handle.is_empty() && handle.len() <= 1024),
            "CORE-11",
            "names of at most 253 bytes, handles of 1 to 1,024 bytes",
        )?;
        let says_which = |owner: &pb::ServiceRef| {
            !owner.uid.is_empty() || !(owner.namespace.is_empty() || owner.name.is_empty())
        };
        asked.must(
            !item.owners.is_empty() && item.owners.iter().all(says_which),
            "LB-13",
            "each entry says for which Services it is marked",
        )?;
    }
    Ok(items)
}
