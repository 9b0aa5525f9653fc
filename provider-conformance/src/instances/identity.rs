//! The instance of a Node: by provider ID, else by name (INST-3, INST-7, INST-9).

use cloud_provider_api::v1alpha1::{
    self as pb, InstanceFacet, InstanceState, lookup_instance_result,
};

use super::super::check::{Check, Need, Stop, Verdict, check, must_equal};
use super::super::hooks::Hook;
use super::super::run::Run;
use super::ask::{ALL, Known, LookedUp, id_of_none, look_up, lookup, node};

pub(super) fn checks() -> Vec<Check> {
    CHECKS.to_vec()
}

const CHECKS: &[Check] = &[
    check!(
        "instances/an-unknown-name-is-not-claimed",
        ["INST-13"],
        "a Node without a provider ID whose name the cloud does not know is ABSENT, or `failed`",
        [Need::Instances],
        not_claimed
    ),
    check!(
        "instances/found-by-name",
        ["INST-3", "INST-7", "INST-8", "PROV-8"],
        "a Node without a provider ID is found by its name, and the answer has its provider ID",
        [Need::Instances],
        by_name
    ),
    check!(
        "instances/found-by-provider-id",
        ["INST-3", "INST-7", "INST-8", "PROV-8"],
        "a Node with a provider ID is found by it, and the answer has that ID",
        [Need::Instances],
        by_provider_id
    ),
    check!(
        "instances/provider-id-wins-over-name",
        ["INST-3"],
        "a Node with one instance's name and another's provider ID is found by the provider ID",
        [Need::Instances],
        id_wins
    ),
    check!(
        "instances/found-under-another-name",
        ["INST-3"],
        "a Node whose name the cloud does not know is found by its provider ID",
        [Need::Instances],
        renamed
    ),
    check!(
        "instances/provider-id-of-none-is-none",
        ["INST-3"],
        "for a provider ID without an instance the provider does not fall back to the Node's name",
        [Need::Instances],
        id_of_none_wins
    ),
    check!(
        "instances/unknown-name-is-none",
        ["INST-3"],
        "for a name or a provider ID that the cloud does not know, the answer is no instance that exists",
        [Need::Instances],
        unknown_name
    ),
    check!(
        "instances/malformed-ids-are-none",
        ["INST-3", "INST-4", "CORE-4"],
        "provider IDs that are cut off, too long or nonsense are no instance, and do not affect other Nodes",
        [Need::Instances],
        malformed
    ),
    check!(
        "instances/foreign-id-is-unmanaged",
        ["INST-9", "INST-1"],
        "a provider ID with a foreign prefix, or with none, is UNMANAGED, never ABSENT",
        [Need::Instances],
        foreign
    ),
    check!(
        "instances/provider-id-is-stable",
        ["INST-7", "CORE-6"],
        "the provider ID is the same by name, by ID, again, and on another connection",
        [Need::Instances],
        stable
    ),
    check!(
        "instances/provider-id-survives-a-stop",
        ["INST-7"],
        "stopping and starting changes no provider ID",
        [
            Need::Instances,
            Need::Hook(Hook::InstanceAdd),
            Need::Hook(Hook::InstanceStop),
            Need::Hook(Hook::InstanceStart)
        ],
        stable_over_stop
    ),
    check!(
        "instances/provider-id-survives-a-restart",
        ["INST-7", "CORE-6"],
        "a restarted provider answers the same provider ID",
        [Need::Instances, Need::Command],
        stable_over_restart
    ),
    check!(
        "instances/provider-ids-are-unique",
        ["INST-7"],
        "two instances have two provider IDs",
        [Need::Instances],
        unique
    ),
    check!(
        "instances/uid-is-not-remembered",
        ["INST-2", "INST-3"],
        "a Node that was created again has another UID: the answer has the UID of the request",
        [Need::Instances],
        uid_again
    ),
    check!(
        "instances/other-fields-change-nothing",
        ["INST-3"],
        "addresses, labels, taints and readiness of a Node do not change which instance is found",
        [Need::Instances],
        full_node
    ),
];

async fn by_name(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::named(run, &session).await?;
    let nodes = vec![known.node_without_id()];
    let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
    let found = looked_up.existing(0, "INST-3")?;
    let id = found.provider_id.clone().unwrap_or_default();
    must_equal(&id, &known.provider_id, "INST-3", looked_up.exchange.sent())
}

async fn by_provider_id(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let looked_up = look_up(run, &session, lookup(vec![known.node()], &ALL)).await?;
    same_id(&looked_up, &known)
}

/// Fails unless the result is this instance.
fn same_id(looked_up: &LookedUp, known: &Known) -> Verdict {
    let came = &looked_up.existing(0, "INST-3")?.provider_id;
    if came.as_ref() == Some(&known.provider_id) {
        return Ok(());
    }
    let expected = format!("the provider_id {:?}", known.provider_id);
    Err(looked_up.broke(0, "INST-3", expected))
}

async fn id_wins(run: &Run) -> Verdict {
    let session = run.session().await?;
    let named = Known::named(run, &session).await?;
    let others = Known::some(run, &session, 2).await?;
    let other = others
        .into_iter()
        .find(|other| other.provider_id != named.provider_id)
        .ok_or_else(|| Stop::not_set_up("it needs two instances that the cloud knows"))?;
    let nodes = vec![node(&named.name, Some(&other.provider_id))];
    let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
    same_id(&looked_up, &other)
}

async fn renamed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let nodes = vec![node(&run.name("other-name"), Some(&known.provider_id))];
    let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
    same_id(&looked_up, &known)
}

async fn id_of_none_wins(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::named(run, &session).await?;
    let nodes = vec![node(&known.name, Some(&id_of_none(run)))];
    look_up(run, &session, lookup(nodes, &ALL))
        .await?
        .must_not_exist(0, "INST-3")
}

async fn unknown_name(run: &Run) -> Verdict {
    let session = run.session().await?;
    let nodes = vec![
        run.node("nobody"),
        node(&run.name("nobody"), Some(&id_of_none(run))),
    ];
    for node in nodes {
        let looked_up = look_up(run, &session, lookup(vec![node], &ALL)).await?;
        looked_up.must_not_exist(0, "INST-3")?;
    }
    Ok(())
}

async fn malformed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let mut ids = vec![format!("{}-and-more", known.provider_id)];
    for prefix in &run.info().provider_id_prefixes {
        ids.extend([
            prefix.clone(),
            format!("{prefix}/"),
            format!("{prefix}///"),
            format!("{prefix}../../{}", run.name("x")),
            format!("{prefix}%00\u{1f}\u{fffd} 'x' -- ; *"),
            format!("{prefix}{}", "y".repeat(1_024 - prefix.len())),
        ]);
    }
    let limit = super::max_batch(run);
    for ids in ids.chunks(limit.saturating_sub(1).max(1)) {
        let mut nodes: Vec<_> = ids
            .iter()
            .map(|id| node(&run.name("odd"), Some(id)))
            .collect();
        let with_known = nodes.len() < limit;
        nodes.extend(with_known.then(|| known.node()));
        let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
        for place in 0..ids.len() {
            looked_up.must_not_exist(place, "INST-3")?;
        }
        if with_known {
            looked_up.existing(ids.len(), "INST-4")?;
        }
    }
    Ok(())
}

async fn foreign(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let mut ids = vec![
        "conformance-elsewhere:///zone/i-0123456789abcdef0".to_owned(),
        // The same instance with another cloud's prefix.
        format!("conformance-{}", known.provider_id),
        "no-scheme-at-all".to_owned(),
    ];
    ids.extend(bare(&known.provider_id, &run.info().provider_id_prefixes));
    for id in ids {
        let nodes = vec![node(&run.name("foreign"), Some(&id))];
        let looked_up = look_up(run, &session, lookup(nodes, &ALL)).await?;
        looked_up.must_be(0, InstanceState::Unmanaged, "INST-9")?;
    }
    Ok(())
}

/// The part of a provider ID after a prefix, which is no provider ID of this provider: a name, or
/// another cloud's ID.
fn bare(provider_id: &str, prefixes: &[String]) -> Vec<String> {
    let ours = |id: &str| prefixes.iter().any(|prefix| id.starts_with(prefix));
    prefixes
        .iter()
        .filter_map(|prefix| provider_id.strip_prefix(prefix.as_str()))
        .filter(|rest| !rest.is_empty() && !ours(rest))
        .map(str::to_owned)
        .collect()
}

async fn stable(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::named(run, &session).await?;
    let another = run.session().await?;
    for (session, node, facets) in [
        (&session, known.node(), &ALL[..]),
        (&session, known.node(), &[InstanceFacet::Metadata]),
        (&session, known.node_without_id(), &ALL),
        (&another, known.node(), &ALL),
        (&another, known.node_without_id(), &ALL),
    ] {
        let looked_up = look_up(run, session, lookup(vec![node], facets)).await?;
        let id = looked_up.existing(0, "INST-7")?.provider_id.clone();
        let expected = Some(known.provider_id.clone());
        must_equal(&id, &expected, "INST-7", looked_up.exchange.sent())?;
    }
    Ok(())
}

async fn stable_over_stop(run: &Run) -> Verdict {
    let session = run.session().await?;
    let (known, made) = Known::made(run, &session).await?;
    for hook in [Hook::InstanceStop, Hook::InstanceStart] {
        run.change_instance(hook, &made).await?;
        for node in [known.node(), known.node_without_id()] {
            let looked_up = look_up(run, &session, lookup(vec![node], &ALL)).await?;
            let id = looked_up.existing(0, "INST-7")?.provider_id.clone();
            let sent = format!("{} and then {}", hook.key(), looked_up.exchange.sent());
            must_equal(&id, &Some(known.provider_id.clone()), "INST-7", sent)?;
        }
    }
    Ok(())
}

async fn stable_over_restart(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    run.target().restart().await?;
    let session = run.session().await?;
    let looked_up = look_up(run, &session, lookup(vec![known.node()], &ALL)).await?;
    let id = looked_up.existing(0, "INST-7")?.provider_id.clone();
    let sent = format!("a restart, and then {}", looked_up.exchange.sent());
    must_equal(&id, &Some(known.provider_id.clone()), "INST-7", sent)
}

async fn unique(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::some(run, &session, 2).await?;
    let first = look_up(run, &session, lookup(vec![known[0].node()], &ALL)).await?;
    let one = &first.existing(0, "INST-7")?.provider_id;
    let looked_up = look_up(run, &session, lookup(vec![known[1].node()], &ALL)).await?;
    let other = &looked_up.existing(0, "INST-7")?.provider_id;
    looked_up
        .exchange
        .must(one != other, "INST-7", "two provider IDs that differ")
}

async fn uid_again(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    for uid in ["first", "second", "first", ""] {
        let mut node = known.node();
        node.uid = uid.into();
        // `look_up` fails where the answer has another UID (INST-2).
        look_up(run, &session, lookup(vec![node], &ALL))
            .await?
            .existing(0, "INST-3")?;
    }
    Ok(())
}

async fn full_node(run: &Run) -> Verdict {
    let session = run.session().await?;
    let known = Known::one(run, &session).await?;
    let some = |text: &str| Some((format!("conformance.example/{text}"), text.to_owned()));
    let full = pb::NodeView {
        addresses: vec![
            pb::NodeAddress {
                r#type: pb::NodeAddressType::InternalIp.into(),
                address: "192.0.2.77".into(),
            },
            // A type of a later minor.
            pb::NodeAddress {
                r#type: 99,
                address: "x".into(),
            },
        ],
        labels: some("label").into_iter().collect(),
        annotations: some("annotation").into_iter().collect(),
        pod_cidrs: vec!["192.0.2.0/28".into()],
        taints: vec![pb::Taint {
            key: "conformance.example/taint".into(),
            value: None,
            effect: "NoSchedule".into(),
        }],
        node_info: Some(pb::NodeInfo {
            machine_id: "another-machine".into(),
            system_uuid: "another-machine".into(),
            ..Default::default()
        }),
        ready: Some(false),
        creation_time: Some(prost_types::Timestamp::default()),
        ..known.node()
    };
    let ready = pb::NodeView {
        ready: Some(true),
        ..full.clone()
    };
    for node in [known.node(), full, ready] {
        let looked_up = look_up(run, &session, lookup(vec![node], &ALL)).await?;
        same_id(&looked_up, &known)?;
    }
    Ok(())
}

async fn not_claimed(run: &Run) -> Verdict {
    let session = run.session().await?;
    let looked_up = look_up(run, &session, lookup(vec![run.node("nobody")], &ALL)).await?;
    match looked_up.outcomes.first() {
        Some(lookup_instance_result::Outcome::Found(found))
            if found.state() != InstanceState::Absent =>
        {
            let claims = looked_up.broke(0, "INST-13", "ABSENT, or `failed`");
            // UNMANAGED claims nothing.
            Err(match found.state() {
                InstanceState::Unmanaged => claims.softened(),
                _ => claims,
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_without_its_prefix_is_nobodys_here() {
        let prefixes = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mock = prefixes(&["mock://"]);
        assert_eq!(bare("mock://zone-a/i-1", &mock), ["zone-a/i-1"]);
        let nothing = "nothing is left, or what is left has a prefix of ours";
        assert!(bare("mock://", &mock).is_empty(), "{nothing}");
        let both = prefixes(&["mock://", "zone-"]);
        assert!(bare("mock://zone-a/i-1", &both).is_empty(), "{nothing}");
        assert_eq!(bare("zone-a/i-1", &both), ["a/i-1"]);
    }
}
