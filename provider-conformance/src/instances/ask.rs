//! Calls LookupInstances, and checks the rules of every answer.

use std::collections::BTreeMap;
use std::time::Duration;

use cloud_provider_api::v1alpha1::lookup_instance_result::Outcome;
use cloud_provider_api::v1alpha1::{self as pb, InstanceFacet, InstanceState};

use tokio::time::Instant;

use super::super::call::Exchange;
use super::super::check::{Stop, Verdict};
use super::super::config::KnownInstance;
use super::super::hooks::Hook;
use super::super::run::Run;
use super::super::session::Session;
use super::super::well_formed::{self, exists};

/// How long a cloud may take to show a new object.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(50);

pub(crate) const ALL: [InstanceFacet; 3] = [
    InstanceFacet::Existence,
    InstanceFacet::Power,
    InstanceFacet::Metadata,
];

/// A Node with only the fields that identify it. Its UID is derived from its name.
pub(crate) fn node(name: &str, provider_id: Option<&str>) -> pb::NodeView {
    pb::NodeView {
        name: name.into(),
        uid: format!("uid-of-{name}"),
        provider_id: provider_id.map(Into::into),
        ..Default::default()
    }
}

/// A lookup of these Nodes and facets with `max_age` zero, so the provider has to ask the cloud.
pub(crate) fn lookup(
    nodes: Vec<pb::NodeView>,
    facets: &[InstanceFacet],
) -> pb::LookupInstancesRequest {
    pb::LookupInstancesRequest {
        nodes,
        facets: facets.iter().map(|facet| (*facet).into()).collect(),
        max_age: Some(prost_types::Duration::default()),
        ..Default::default()
    }
}

/// The lookup with this `max_age`.
pub(super) fn aged(
    mut request: pb::LookupInstancesRequest,
    max_age: Duration,
) -> pb::LookupInstancesRequest {
    request.max_age = prost_types::Duration::try_from(max_age).ok();
    request
}

/// The answer of a lookup with one well-formed result for each Node.
pub(crate) struct LookedUp {
    pub(crate) exchange: Exchange<pb::LookupInstancesResponse>,
    /// In the order of the request.
    pub(crate) outcomes: Vec<Outcome>,
}

/// Looks Nodes up. The check fails if the whole call failed (INST-4), or if the answer itself
/// violates a rule (INST-2, INST-7, INST-8, PROV-8, CORE-4, CORE-11, CORE-13, CORE-15).
pub(crate) async fn look_up(
    run: &Run,
    session: &Session,
    request: pb::LookupInstancesRequest,
) -> Verdict<LookedUp> {
    let asked = request.nodes.clone();
    let with_id = request.facets.contains(&InstanceFacet::Metadata.into());
    let exchange = session.call(request).await;
    let answer = exchange.success("INST-4")?;
    let outcomes = by_node(
        &exchange,
        &asked,
        answer
            .results
            .iter()
            .map(|one| (&*one.node_name, &*one.node_uid, one.outcome.as_ref())),
    )?;
    let prefixes = &run.info().provider_id_prefixes;
    well_formed::judge(
        &exchange,
        outcomes.iter().map(|outcome| match outcome {
            Outcome::Failed(failure) => well_formed::failure(failure),
            Outcome::Found(instance) => well_formed::instance(instance, prefixes, with_id),
        }),
    )?;
    Ok(LookedUp { exchange, outcomes })
}

/// The outcome of each requested Node, in the order of the request. Each Node must have one result,
/// by name and UID, and no other Node may have a result (INST-2).
pub(crate) fn by_node<'a, T: std::fmt::Debug, O: Clone + 'a>(
    exchange: &Exchange<T>,
    asked: &[pb::NodeView],
    results: impl Iterator<Item = (&'a str, &'a str, Option<&'a O>)>,
) -> Verdict<Vec<O>> {
    let broke = |expected: String| Err(exchange.broke("INST-2", expected));
    let mut of_node = BTreeMap::new();
    for (name, uid, outcome) in results {
        if of_node.insert((name, uid), outcome).is_some() {
            return broke(format!("one result for the Node {name:?} {uid:?}, not two"));
        }
    }
    let mut outcomes = Vec::new();
    for node in asked {
        match of_node.remove(&(&*node.name, &*node.uid)) {
            Some(Some(outcome)) => outcomes.push(outcome.clone()),
            Some(None) => {
                return broke(format!(
                    "an outcome in the result for the Node {:?}",
                    node.name
                ));
            }
            None => {
                return broke(format!(
                    "a result that names the Node {:?} with the UID {:?}",
                    node.name, node.uid
                ));
            }
        }
    }
    match of_node.keys().next() {
        Some((name, uid)) => broke(format!(
            "results only for the Nodes of the request, not for {name:?} {uid:?}"
        )),
        None => Ok(outcomes),
    }
}

impl LookedUp {
    /// The instance of the Node at this place. A failure violates the rule.
    pub(crate) fn found(&self, place: usize, rule: &str) -> Verdict<&pb::Instance> {
        match self.outcomes.get(place) {
            Some(Outcome::Found(instance)) => Ok(instance),
            _ => Err(self.broke(place, rule, "an instance is found, not `failed`")),
        }
    }

    pub(crate) fn state(&self, place: usize, rule: &str) -> Verdict<InstanceState> {
        Ok(self.found(place, rule)?.state())
    }

    /// The instance, which must exist.
    pub(crate) fn existing(&self, place: usize, rule: &str) -> Verdict<&pb::Instance> {
        let found = self.found(place, rule)?;
        if exists(found.state()) {
            return Ok(found);
        }
        Err(self.broke(
            place,
            rule,
            "PRESENT, RUNNING or STOPPED: the cloud has this instance",
        ))
    }

    /// Fails unless the state is this one.
    pub(crate) fn must_be(&self, place: usize, state: InstanceState, rule: &str) -> Verdict {
        if self.state(place, rule)? == state {
            return Ok(());
        }
        Err(self.broke(place, rule, short_state(state)))
    }

    /// Fails if the state is one of an existing instance.
    pub(super) fn must_not_exist(&self, place: usize, rule: &str) -> Verdict {
        match self.outcomes.get(place) {
            Some(Outcome::Found(found)) if exists(found.state()) => Err(self.broke(
                place,
                rule,
                "no instance: the cloud has none by this provider ID, or by this name",
            )),
            _ => Ok(()),
        }
    }

    /// The violation of a rule by the result at this place.
    pub(crate) fn broke(&self, place: usize, rule: &str, expected: impl std::fmt::Display) -> Stop {
        let sent = self.exchange.sent();
        match self.outcomes.get(place) {
            Some(outcome) => Stop::failed(rule, sent, expected, format_args!("{outcome:?}")),
            None => Stop::failed(rule, sent, expected, "no result"),
        }
    }
}

/// For example `ABSENT`.
pub(super) fn short_state(state: InstanceState) -> &'static str {
    state.as_str_name().trim_start_matches("INSTANCE_STATE_")
}

/// An instance that exists in the cloud.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The name of its Node. If the instance comes from a listing, the cloud may know it by another
    /// name.
    pub(crate) name: String,
    pub(crate) provider_id: String,
    /// The addresses of its Node, from LookupInstances. [`Known::with_addresses`] sets them.
    pub(crate) addresses: Vec<pb::NodeAddress>,
}

impl Known {
    /// This many instances. Skips the check if the suite finds fewer.
    pub(crate) async fn some(run: &Run, session: &Session, count: usize) -> Verdict<Vec<Self>> {
        Self::with_ids(run, session, run.instances(count).await?).await
    }

    pub(crate) async fn one(run: &Run, session: &Session) -> Verdict<Self> {
        let one = Self::some(run, session, 1).await?.pop();
        one.ok_or_else(|| Stop::not_set_up("the cloud knows no instance"))
    }

    /// An instance whose name the cloud knows too: from suite.yaml, else created by the hook. A
    /// listing has no names.
    pub(crate) async fn named(run: &Run, session: &Session) -> Verdict<Self> {
        let named = match run.config().instances.first() {
            Some(known) => known.clone(),
            None if run.has_hook(Hook::InstanceAdd) => run.add_instance("named").await?,
            None => {
                return Err(Stop::not_set_up(
                    "it needs an instance with its name; name one in suite.yaml under `instances`, or give the hook `instance-add`",
                ));
            }
        };
        let one = Self::with_ids(run, session, vec![named]).await?.pop();
        one.ok_or_else(|| Stop::not_set_up("the cloud knows no instance"))
    }

    /// An instance that the hook created, so it may be stopped and removed.
    pub(crate) async fn made(run: &Run, session: &Session) -> Verdict<(Self, KnownInstance)> {
        let made = run.add_instance("made").await?;
        let known = Self {
            name: made.name.clone(),
            provider_id: made.provider_id.clone().unwrap_or_default(),
            addresses: Vec::new(),
        };
        // A cloud may show a new instance a while later. Until then the answer may be PENDING.
        let patience = Instant::now() + PATIENCE;
        loop {
            let looked_up = look_up(run, session, lookup(vec![known.node()], &ALL)).await?;
            if looked_up.state(0, "INST-3")? != InstanceState::Pending || Instant::now() > patience
            {
                looked_up.existing(0, "INST-3")?;
                return Ok((known, made));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn with_ids(
        run: &Run,
        session: &Session,
        instances: Vec<KnownInstance>,
    ) -> Verdict<Vec<Self>> {
        let mut known = Vec::new();
        for instance in instances {
            let provider_id = if let Some(id) = instance.provider_id {
                id
            } else {
                let nodes = vec![node(&instance.name, None)];
                let looked_up = look_up(run, session, lookup(nodes, &ALL)).await?;
                let found = looked_up.existing(0, "INST-3")?;
                found.provider_id.clone().unwrap_or_default()
            };
            known.push(Self {
                name: instance.name,
                provider_id,
                addresses: Vec::new(),
            });
        }
        Ok(known)
    }

    /// With the addresses that its Node has after its initialisation.
    pub(crate) async fn with_addresses(self, run: &Run, session: &Session) -> Self {
        let addresses = run.complete(session, self.node()).await.addresses;
        Self { addresses, ..self }
    }

    /// Its Node, with its provider ID.
    pub(crate) fn node(&self) -> pb::NodeView {
        node(&self.name, Some(&self.provider_id))
    }

    /// Its Node before it has a provider ID.
    pub(crate) fn node_without_id(&self) -> pb::NodeView {
        node(&self.name, None)
    }
}

/// A provider ID of this provider without an instance.
pub(crate) fn id_of_none(run: &Run) -> String {
    run.provider_id_of_none("none")
}
