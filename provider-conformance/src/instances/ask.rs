//! Asks LookupInstances and judges what every answer of it can be judged by.

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

/// How long a cloud may take to show what was made in it.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(50);

/// All that can be asked.
pub(crate) const ALL: [InstanceFacet; 3] = [
    InstanceFacet::Existence,
    InstanceFacet::Power,
    InstanceFacet::Metadata,
];

/// A Node as the controller shows it at least. Its UID is made of its name.
pub(crate) fn node(name: &str, provider_id: Option<&str>) -> pb::NodeView {
    pb::NodeView {
        name: name.into(),
        uid: format!("uid-of-{name}"),
        provider_id: provider_id.map(Into::into),
        ..Default::default()
    }
}

/// A lookup of these Nodes, of these facets, from the cloud itself.
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

/// The same, with an answer that may be so old.
pub(super) fn aged(
    mut request: pb::LookupInstancesRequest,
    max_age: Duration,
) -> pb::LookupInstancesRequest {
    request.max_age = prost_types::Duration::try_from(max_age).ok();
    request
}

/// A lookup that was answered as a whole, with one well-formed result for each Node.
pub(crate) struct LookedUp {
    pub(crate) exchange: Exchange<pb::LookupInstancesResponse>,
    /// In the order of the request.
    pub(crate) outcomes: Vec<Outcome>,
}

/// Looks Nodes up. Whatever is wrong with the answer in itself (INST-2, INST-7, INST-8, PROV-8, CORE-4, CORE-11, CORE-13) fails the check.
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

/// The outcome of each Node that was asked about, in that order: each named once, by name and UID, and nobody else (INST-2).
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
            "results for the Nodes of the request alone, not for {name:?} {uid:?}"
        )),
        None => Ok(outcomes),
    }
}

impl LookedUp {
    /// What was found for the Node at this place; a failure breaks the rule.
    pub(crate) fn found(&self, place: usize, rule: &str) -> Verdict<&pb::Instance> {
        match self.outcomes.get(place) {
            Some(Outcome::Found(instance)) => Ok(instance),
            _ => Err(self.broke(place, rule, "an instance is found, not `failed`")),
        }
    }

    /// The state that was found.
    pub(crate) fn state(&self, place: usize, rule: &str) -> Verdict<InstanceState> {
        Ok(self.found(place, rule)?.state())
    }

    /// The instance, which has to exist.
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

    /// The state, which has to be this one.
    pub(crate) fn must_be(&self, place: usize, state: InstanceState, rule: &str) -> Verdict {
        if self.state(place, rule)? == state {
            return Ok(());
        }
        Err(self.broke(place, rule, short_state(state)))
    }

    /// The state, which must not be one of an instance that exists.
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

    /// That the result at this place breaks a rule.
    pub(crate) fn broke(&self, place: usize, rule: &str, expected: impl std::fmt::Display) -> Stop {
        let sent = self.exchange.sent();
        match self.outcomes.get(place) {
            Some(outcome) => Stop::failed(rule, sent, expected, format_args!("{outcome:?}")),
            None => Stop::failed(rule, sent, expected, "no result"),
        }
    }
}

/// `ABSENT`.
pub(super) fn short_state(state: InstanceState) -> &'static str {
    state.as_str_name().trim_start_matches("INSTANCE_STATE_")
}

/// An instance that the cloud knows for certain.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The name of its Node: the cloud's too only where `Known::named` made it.
    pub(crate) name: String,
    pub(crate) provider_id: String,
    /// What its Node shows, as LookupInstances told it; asked for by [`Known::with_addresses`].
    pub(crate) addresses: Vec<pb::NodeAddress>,
}

impl Known {
    /// So many of them. Skips the check where there are fewer.
    pub(crate) async fn some(run: &Run, session: &Session, count: usize) -> Verdict<Vec<Self>> {
        Self::with_ids(run, session, run.instances(count).await?).await
    }

    /// One of them.
    pub(crate) async fn one(run: &Run, session: &Session) -> Verdict<Self> {
        let one = Self::some(run, session, 1).await?.pop();
        one.ok_or_else(|| Stop::not_set_up("the cloud knows no instance"))
    }

    /// One that the cloud knows by its name too: of suite.yaml, else made by the hook. A listing tells no names.
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

    /// One that was made by the hook: it may be stopped and removed.
    pub(crate) async fn made(run: &Run, session: &Session) -> Verdict<(Self, KnownInstance)> {
        let made = run.add_instance("made").await?;
        let known = Self {
            name: made.name.clone(),
            provider_id: made.provider_id.clone().unwrap_or_default(),
            addresses: Vec::new(),
        };
        // A cloud may show it a while later: PENDING until then.
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

    /// With the addresses that its Node has once it is initialised.
    pub(crate) async fn with_addresses(self, run: &Run, session: &Session) -> Self {
        let addresses = run.addresses(session, self.node()).await;
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

/// A provider ID of this provider that names no instance.
pub(crate) fn id_of_none(run: &Run) -> String {
    run.provider_id_of_none("none")
}
