//! The objects of checks: names, Nodes, Services and routes, and what hooks create.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use cloud_provider_api::v1alpha1 as pb;
use pb::InstanceFacet;
use pb::lookup_instance_result::Outcome;

use super::Run;
use crate::check::{Stop, Verdict};
use crate::config::{EmptyTargetSets, KnownInstance};
use crate::hooks::Hook;
use crate::instances::ask::lookup;
use crate::ledger::Thing;
use crate::session::Session;

impl Run {
    /// A short name of lower-case letters, digits and dashes. It has the random part of the run's
    /// ID, so that other runs do not use it.
    pub(crate) fn name(&self, word: &str) -> String {
        let run_id = self.shared.ledger.run_id();
        let run = run_id.rsplit('-').next().unwrap_or(run_id);
        format!("{word}-{run}-{}", self.fresh())
    }

    /// A new UID. The suite writes for no Service with another UID.
    pub(crate) fn uid(&self) -> String {
        let uid = uuid::Uuid::new_v4().to_string();
        self.shared.ledger.issue_uid(&uid);
        uid
    }

    /// A destination for a route, which nothing else in this run uses. If none is free, this
    /// returns the whole network: the ledger refuses it, and says why.
    pub(crate) fn cidr(&self) -> String {
        let network = self.config().route_cidr;
        // Where the search begins depends on the run.
        let start = u64::from(crc(self.shared.ledger.run_id()));
        (0..network.parts())
            .map(|_| network.part(start + self.fresh()))
            .find(|cidr| self.shared.ledger.issue_cidr(cidr))
            .unwrap_or_else(|| network.to_string())
    }

    /// Like [`Self::cidr`], for IPv6.
    pub(crate) fn cidr6(&self) -> String {
        loop {
            let run = u64::from(crc(self.shared.ledger.run_id())) & 0xffff;
            let cidr = format!("fd64:6363:{run:x}:{:x}::/64", self.fresh() & 0xffff);
            if self.shared.ledger.issue_cidr(&cidr) {
                return cidr;
            }
        }
    }

    /// A random value of this run, so that each run cuts calls off at other moments. Put the value
    /// into `sent`, because the next run has another value.
    pub(crate) fn draw(&self, from: RangeInclusive<u64>) -> u64 {
        drawn(self.shared.ledger.run_id(), self.fresh(), &from)
    }

    /// These values and some random ones, sorted.
    pub(crate) fn and_drawn(
        &self,
        fixed: impl IntoIterator<Item = u64>,
        more: usize,
        from: &RangeInclusive<u64>,
    ) -> Vec<u64> {
        let mut all: Vec<u64> = fixed.into_iter().collect();
        all.extend((0..more).map(|_| self.draw(from.clone())));
        all.sort_unstable();
        all
    }

    fn fresh(&self) -> u64 {
        self.shared.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A provider ID of this provider without an instance. It is well-formed if suite.yaml has a
    /// `provider_id_pattern`.
    pub(crate) fn provider_id_of_none(&self, word: &str) -> String {
        if let Some(pattern) = &self.config().provider_id_pattern {
            return of_pattern(pattern, self.shared.ledger.run_id(), self.fresh());
        }
        let prefixes = &self.info().provider_id_prefixes;
        let prefix = prefixes.first().map_or("", String::as_str);
        format!("{prefix}{}", self.name(word))
    }

    /// A Node without an instance, with a new name.
    pub(crate) fn node(&self, word: &str) -> pb::NodeView {
        pb::NodeView {
            name: self.name(word),
            uid: uuid::Uuid::new_v4().to_string(),
            ..Default::default()
        }
    }

    /// Whether this provider wants to see the readiness of Nodes or targets.
    fn shows_readiness(&self) -> bool {
        let of_targets = self.capabilities().load_balancers;
        let of_targets = of_targets.and_then(|of| of.target_projection);
        let wanted = [self.info().node_projection.clone(), of_targets];
        wanted
            .iter()
            .flatten()
            .flat_map(pb::NodeProjection::field_groups)
            .any(|group| group == pb::NodeFieldGroup::Readiness)
    }

    /// The Node of a known instance. It is Ready if the provider wants to see readiness, because a
    /// cloud may send traffic only to Ready Nodes.
    pub(crate) fn node_of(&self, instance: &KnownInstance) -> pb::NodeView {
        pb::NodeView {
            name: instance.name.clone(),
            uid: uuid::Uuid::new_v4().to_string(),
            provider_id: instance.provider_id.clone(),
            ready: self.shows_readiness().then_some(true),
            ..Default::default()
        }
    }

    /// The Node as it is after its initialisation: with the provider ID and the addresses from
    /// LookupInstances. Nothing is added if the provider serves no instances or does not answer.
    /// The checks of LookupInstances test that.
    pub(crate) async fn complete(&self, session: &Session, node: pb::NodeView) -> pb::NodeView {
        if self.capabilities().instances.is_none() {
            return node;
        }
        let asked = session.call(lookup(vec![node.clone()], &[InstanceFacet::Metadata]));
        match asked.await.success("INST-4") {
            Ok(answer) => completed(node, answer),
            Err(_) => node,
        }
    }

    /// The Nodes of these instances as targets.
    pub(crate) async fn target_nodes(
        &self,
        session: &Session,
        known: &[KnownInstance],
    ) -> Vec<pb::NodeView> {
        let mut nodes = Vec::new();
        for instance in known {
            nodes.push(self.complete(session, self.node_of(instance)).await);
        }
        nodes
    }

    /// 80, unless all Services share one load balancer: then each needs its own port.
    fn port(&self) -> i32 {
        let shares = self.config().shared_load_balancer.as_ref();
        if shares.is_none_or(|annotations| !annotations.is_empty()) {
            return 80;
        }
        10_000 + i32::try_from(self.fresh() % 20_000).unwrap_or_default()
    }

    /// A Service of this check with one TCP port.
    pub(crate) fn service(&self, word: &str) -> pb::ServiceView {
        let offered = self.capabilities().load_balancers.unwrap_or_default();
        pb::ServiceView {
            namespace: "default".into(),
            name: self.name(word),
            uid: self.uid(),
            annotations: self.config().service_annotations.clone(),
            r#type: "LoadBalancer".into(),
            load_balancer_class: offered
                .classes
                .first()
                .filter(|_| !offered.default_class)
                .cloned(),
            ports: vec![pb::ServicePort {
                name: "http".into(),
                protocol: "TCP".into(),
                port: self.port(),
                target_port: "8080".into(),
                node_port: Some(30_080),
                ..Default::default()
            }],
            cluster_ips: vec!["10.96.0.10".into()],
            session_affinity: "None".into(),
            external_traffic_policy: "Cluster".into(),
            ip_families: vec!["IPv4".into()],
            ip_family_policy: Some("SingleStack".into()),
            ..Default::default()
        }
    }

    /// This many instances of the cloud: those of suite.yaml. If they are too few, those of
    /// ListInstances, if offered, replace them. The hook adds missing ones. Skips the check if
    /// there are still fewer.
    pub(crate) async fn instances(&self, count: usize) -> Verdict<Vec<KnownInstance>> {
        let mut known = self.config().instances.clone();
        let listing = self.capabilities().instances.is_some_and(|of| of.listing);
        if known.len() < count && listing {
            let request = pb::ListInstancesRequest {
                facets: vec![InstanceFacet::Metadata.into(), InstanceFacet::Power.into()],
                ..Default::default()
            };
            let listed = self.session().await?.list(request).await.items()?;
            known = listed
                .into_iter()
                .filter(|instance| instance.provider_id.is_some())
                .map(|instance| KnownInstance {
                    name: self.name("node"),
                    provider_id: instance.provider_id,
                    state: None,
                })
                .collect();
        }
        while known.len() < count && self.has_hook(Hook::InstanceAdd) {
            known.push(self.add_instance("node").await?);
        }
        if known.len() < count {
            return Err(Stop::not_set_up(format!(
                "it needs {count} instances of the cloud; name them in suite.yaml under `instances`, or give the hook `instance-add`"
            )));
        }
        known.truncate(count);
        Ok(known)
    }

    /// Whether a load balancer of this cloud can be without targets (LB-31).
    pub(crate) fn takes_empty_sets(&self) -> bool {
        self.config().empty_target_sets == EmptyTargetSets::Taken
    }

    /// The fewest targets that this cloud allows: none, or one known Node. To find the Node, this
    /// initialises the process for this check's own cluster, so call it before all other calls.
    pub(crate) async fn few_nodes(&self) -> Verdict<Vec<pb::NodeView>> {
        if self.takes_empty_sets() {
            return Ok(Vec::new());
        }
        let known = self.instances(1).await?;
        let session = self.session().await?;
        let nodes = self.target_nodes(&session, &known).await;
        let _ = self.few.set(nodes.clone());
        Ok(nodes)
    }

    /// [`Run::few_nodes`] for a part of a check. `None`: the suite has no Node for this part, or
    /// the provider makes no load balancers. The check does the rest without it.
    pub(crate) async fn few_nodes_if_any(&self) -> Verdict<Option<Vec<pb::NodeView>>> {
        if self.capabilities().load_balancers.is_none() {
            return Ok(None);
        }
        match self.few_nodes().await {
            Ok(nodes) => Ok(Some(nodes)),
            Err(stop @ Stop::Skipped(_)) => {
                self.unseen(stop);
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Creates an instance with the hook. The clean-up after the check removes it.
    pub(crate) async fn add_instance(&self, word: &str) -> Verdict<KnownInstance> {
        self.made_by(Hook::InstanceAdd, self.name(word), &[]).await
    }

    /// Creates an instance of this type, which is no label value, with the hook. The clean-up after
    /// the check removes it.
    pub(crate) async fn add_odd_instance(&self, kind: &str) -> Verdict<KnownInstance> {
        let name = self.name("odd");
        self.made_by(Hook::InstanceOdd, name, &[("TYPE", kind)])
            .await
    }

    async fn made_by(
        &self,
        hook: Hook,
        name: String,
        more: &[(&str, &str)],
    ) -> Verdict<KnownInstance> {
        let mut variables = more.to_vec();
        variables.push(("NAME", &name));
        let provider_id = self.hook(hook, &variables).await?;
        self.shared.ledger.note(Thing::Instance {
            name: name.clone(),
            provider_id: provider_id.clone(),
        });
        Ok(KnownInstance {
            name,
            provider_id: Some(provider_id),
            state: None,
        })
    }

    /// Removes, stops or starts an instance that a hook created.
    pub(crate) async fn change_instance(&self, hook: Hook, instance: &KnownInstance) -> Verdict {
        let provider_id = instance.provider_id.as_deref().unwrap_or_default();
        let variables = [
            ("NAME", instance.name.as_str()),
            ("PROVIDER_ID", provider_id),
        ];
        self.hook(hook, &variables).await.map(|_| ())
    }

    /// Creates an unmarked load balancer with the hook. The clean-up after the check removes it.
    /// Returns its handle.
    pub(crate) async fn unmarked_load_balancer(&self, native_name: &str) -> Verdict<String> {
        let handle = self
            .hook(Hook::LoadBalancerUnmarked, &[("NAME", native_name)])
            .await?;
        self.shared.ledger.note(Thing::UnmarkedLoadBalancer {
            handle: handle.clone(),
        });
        Ok(handle)
    }

    /// Creates an unmarked route with the hook. The clean-up after the check removes it.
    pub(crate) async fn unmarked_route(
        &self,
        name: &str,
        cidr: &str,
        provider_id: &str,
    ) -> Verdict {
        let variables = [("NAME", name), ("CIDR", cidr), ("PROVIDER_ID", provider_id)];
        self.hook(Hook::RouteUnmarked, &variables).await?;
        self.shared.ledger.note(Thing::UnmarkedRoute {
            name: name.to_owned(),
            cidr: cidr.to_owned(),
        });
        Ok(())
    }

    /// Creates an unmarked route to a target that is no Node, with the hook. The clean-up after the
    /// check removes it.
    pub(crate) async fn gateway_route(&self, name: &str, cidr: &str) -> Verdict {
        let variables = [("NAME", name), ("CIDR", cidr)];
        self.hook(Hook::RouteGateway, &variables).await?;
        self.shared.ledger.note(Thing::UnmarkedRoute {
            name: name.to_owned(),
            cidr: cidr.to_owned(),
        });
        Ok(())
    }

    /// Creates a route of this check's cluster whose target is gone, with the hook. The clean-up
    /// after the check removes it.
    pub(crate) async fn blackhole_route(&self, name: &str, cidr: &str) -> Verdict {
        let cluster = self.cluster();
        let variables = [
            ("NAME", name),
            ("CIDR", cidr),
            ("OWNER_ID", &cluster.owner_id),
        ];
        self.hook(Hook::RouteBlackhole, &variables).await?;
        self.shared.ledger.note(Thing::Route {
            cluster,
            cidr: cidr.to_owned(),
        });
        Ok(())
    }
}

/// The Node with what the answer to a lookup of it says. A provider ID that the Node has stays.
fn completed(mut node: pb::NodeView, answer: &pb::LookupInstancesResponse) -> pb::NodeView {
    let outcome = answer.results.first().and_then(|of| of.outcome.as_ref());
    if let Some(Outcome::Found(instance)) = outcome {
        node.addresses.clone_from(&instance.addresses);
        node.provider_id = node.provider_id.or_else(|| instance.provider_id.clone());
    }
    node
}

/// Each `#` becomes a digit other than zero, so that a numeric ID keeps its length. The last five
/// digits are a counter, so that no two IDs of a run are equal.
fn of_pattern(pattern: &str, run_id: &str, number: u64) -> String {
    let places = pattern.matches('#').count();
    let mut rest = number;
    let mut digits: Vec<u8> = (0..places)
        .map(|place| {
            // Five digits are enough for a run. The digits before them depend on the run.
            let digit = if place < 5 {
                let digit = rest % 9;
                rest /= 9;
                digit
            } else {
                drawn(run_id, place as u64, &(0..=8))
            };
            b'1' + u8::try_from(digit).unwrap_or_default()
        })
        .collect();
    let mut next = || char::from(digits.pop().unwrap_or(b'1'));
    let of = |c| if c == '#' { next() } else { c };
    pattern.chars().map(of).collect()
}

/// A random-looking number in the range, from a hash. `number` comes first in the hashed text, so
/// that the hash spreads it over all bits when it reads the run ID.
fn drawn(run_id: &str, number: u64, from: &RangeInclusive<u64>) -> u64 {
    let (first, last) = (*from.start(), *from.end());
    first + u64::from(crc(&format!("{number} {run_id}"))) % (last.saturating_sub(first) + 1)
}

/// A hash of the text (FNV-1a).
fn crc(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    })
}

/// The largest batch that the suite sends. A provider may state up to 4,294,967,295.
const LARGEST_BATCH: u32 = 20_000;

/// The most items of one batch: as stated, 100 if absent or zero, and at most [`LARGEST_BATCH`].
pub(crate) fn batch_size(stated: Option<u32>) -> usize {
    let stated = stated.filter(|most| *most > 0).unwrap_or(100);
    stated.min(LARGEST_BATCH) as usize
}

/// The size of a batch with one item too many, where this is the size of a full one. Skips the
/// check if that is more than the suite sends.
pub(crate) fn beyond_batch(full: usize) -> Verdict<usize> {
    if full < LARGEST_BATCH as usize {
        return Ok(full + 1);
    }
    Err(Stop::not_offered(format!(
        "max_batch is {LARGEST_BATCH} or more: the suite sends no larger batch"
    )))
}

/// Skips the check if a full batch has this size, and cannot hold two items.
pub(crate) fn holds_two(full: usize) -> Verdict {
    if full < 2 {
        return Err(Stop::not_offered("max_batch is 1"));
    }
    Ok(())
}

pub(crate) fn targets(nodes: Vec<pb::NodeView>) -> pb::TargetSet {
    pb::TargetSet {
        set: Some(pb::target_set::Set::Inline(pb::TargetList { nodes })),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_target_has_the_provider_id_and_the_addresses_that_a_lookup_finds() {
        let addresses = vec![pb::NodeAddress {
            r#type: pb::NodeAddressType::InternalIp.into(),
            address: "10.0.0.1".into(),
        }];
        let instance = pb::Instance {
            provider_id: Some("x://found".into()),
            addresses: addresses.clone(),
            ..Default::default()
        };
        let answer = pb::LookupInstancesResponse {
            results: vec![pb::LookupInstanceResult {
                outcome: Some(Outcome::Found(instance)),
                ..Default::default()
            }],
            ..Default::default()
        };
        for (known, expected) in [(None, "x://found"), (Some("x://known"), "x://known")] {
            let node = pb::NodeView {
                provider_id: known.map(Into::into),
                ..Default::default()
            };
            let node = completed(node, &answer);
            assert_eq!(node.provider_id.as_deref(), Some(expected));
            assert_eq!(node.addresses, addresses);
        }
        let nothing = completed(
            pb::NodeView::default(),
            &pb::LookupInstancesResponse::default(),
        );
        assert_eq!(nothing, pb::NodeView::default());
    }

    #[test]
    fn a_batch_has_at_most_20_000_items() {
        let sizes = [None, Some(0), Some(7), Some(20_000), Some(u32::MAX)].map(batch_size);
        assert_eq!(sizes, [100, 100, 7, 20_000, 20_000]);
        assert_eq!(beyond_batch(7).ok(), Some(8));
        assert!(matches!(beyond_batch(20_000), Err(Stop::Skipped(_))));
        assert!(holds_two(2).is_ok());
        assert!(matches!(holds_two(1), Err(Stop::Skipped(_))));
    }

    #[test]
    fn invented_provider_ids_follow_the_pattern_and_differ() {
        let of = |run_id, number| of_pattern("x://i-########/z", run_id, number);
        let one: BTreeSet<_> = (0..20_000).map(|number| of("run-a", number)).collect();
        assert_eq!(one.len(), 20_000);
        for id in &one {
            let digits = id
                .strip_prefix("x://i-")
                .and_then(|id| id.strip_suffix("/z"));
            let digits = digits.expect(id);
            assert!(digits.len() == 8 && digits.bytes().all(|byte| (b'1'..=b'9').contains(&byte)));
        }
        assert!((0..20_000).all(|number| !one.contains(&of("run-b", number))));
    }

    #[test]
    fn what_a_run_draws_is_all_over_the_range_and_another_runs_is_other() {
        let of = |run_id| (0..200).map(move |number| drawn(run_id, number, &(10..=19)));
        let one: Vec<_> = of("conformance-0a1b2c3d").collect();
        let all: BTreeSet<_> = one.iter().copied().collect();
        assert_eq!(all, (10..=19).collect());
        assert!(one.iter().copied().eq(of("conformance-0a1b2c3d")));
        assert!(!one.iter().copied().eq(of("conformance-0a1b2c3e")));
        assert_eq!(drawn("conformance-0a1b2c3d", 7, &(5..=5)), 5);
    }
}
