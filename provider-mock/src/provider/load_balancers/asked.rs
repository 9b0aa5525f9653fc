//! The targets in a request.

use std::collections::BTreeMap;

use provider_sdk::{Failure, Node};

use crate::fixture::{Fixture, Targets};

/// The names of the targets that can be attached, and the failures of the others.
#[allow(clippy::type_complexity)] // the two halves of one answer
pub(super) fn targets(
    settings: &Fixture,
    targets: Option<&[Node]>,
) -> Result<(Option<Vec<String>>, BTreeMap<String, Failure>), Failure> {
    // If targets are ignored, they count as absent.
    let matter = settings.capabilities.load_balancers.targets != Targets::Ignored;
    let Some(targets) = targets.filter(|_| matter) else {
        return Ok((None, BTreeMap::new()));
    };
    if targets.is_empty() && settings.capabilities.load_balancers.targets == Targets::Needed {
        return Err(Failure::precondition(
            "a load balancer of this cloud needs at least one target; the provider makes or changes it when a Node can be a target",
        )
        .with_reason("NoTargets"));
    }
    if let Some(most) = settings.capabilities.load_balancers.max_targets
        && targets.len() > most as usize
    {
        return Err(Failure::precondition(format!(
            "{} targets are more than the {most} that a load balancer can have",
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
