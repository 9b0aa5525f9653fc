//! What a call asks, as the cloud and the twists take it.

use std::collections::BTreeMap;

use provider_sdk::{Call, Failure, FailureCode, Node, Service};

use crate::cloud::State;
use crate::fixture::Fixture;
use crate::lies::{Twist, Twists};
use crate::load_balancers::Asker;

pub(super) fn asker<'a>(
    call: &'a Call,
    service: &'a Service,
    handle: Option<&'a str>,
    twists: Twists,
) -> Asker<'a> {
    let forgets = twists.has(Twist::PreviousForgotten);
    Asker {
        twists,
        owner_id: &call.cluster().owner_id,
        previous: if forgets {
            &[]
        } else {
            call.previous_owner_ids()
        },
        service,
        handle,
    }
}

/// The targets as a twist takes them.
pub(super) fn taken(targets: Option<Vec<String>>, twists: Twists) -> Option<Vec<String>> {
    match targets {
        Some(none) if none.is_empty() && twists.has(Twist::EmptyTargetsIgnored) => None,
        None if twists.has(Twist::AbsentTargetsEmpty) => Some(Vec::new()),
        targets => targets,
    }
}

/// With the twist that answers CONFLICT and touches the other's load balancer all the same: does so.
pub(super) fn touch(state: &mut State, asker: &Asker<'_>, failure: &Failure, now_ms: u64) {
    if !state.twists.has(Twist::ConflictButTouches) || failure.code() != FailureCode::Conflict {
        return;
    }
    if let Some(mut theirs) = state.objects.load_balancers.find(asker).cloned() {
        theirs.targets.clear();
        let line = format!("take the targets from load balancer {}", theirs.handle);
        // Whether it could be saved is not told to whom it does not belong.
        if state.put_load_balancer(theirs, now_ms).is_ok() {
            state.wrote(line);
        }
    }
}

/// The names of the targets that can be attached, and why others cannot.
#[allow(clippy::type_complexity)] // the two halves of one answer
pub(super) fn targets(
    settings: &Fixture,
    targets: Option<&[Node]>,
) -> Result<(Option<Vec<String>>, BTreeMap<String, Failure>), Failure> {
    // Where they do not matter they are as good as not given.
    let matter = !settings.capabilities.load_balancers.ignores_nodes;
    let Some(targets) = targets.filter(|_| matter) else {
        return Ok((None, BTreeMap::new()));
    };
    if targets.is_empty() && settings.capabilities.load_balancers.needs_targets {
        return Err(Failure::precondition(
            "a load balancer of this cloud has at least one target; it is made, or changed, as soon as a Node can be one",
        )
        .with_reason("NoTargets"));
    }
    if let Some(most) = settings.capabilities.load_balancers.max_targets
        && targets.len() > most as usize
    {
        return Err(Failure::precondition(format!(
            "{} targets are more than the {most} that a load balancer takes",
            targets.len()
        ))
        .with_reason("TooManyTargets"));
    }
    let error = |node: &Node| {
        let error = settings.target_errors.get(&node.name)?;
        Some((node.name.clone(), error.to_failure()))
    };
    let errors: BTreeMap<_, _> = targets.iter().filter_map(error).collect();
    let names = targets.iter().map(|node| &node.name);
    let names = names.filter(|name| !errors.contains_key(*name)).cloned();
    Ok((Some(names.collect()), errors))
}
