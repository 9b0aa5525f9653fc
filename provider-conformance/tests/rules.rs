//! Every MUST and SHOULD of the contract has an ID. Every such ID has a check of the conformance
//! suite, except those in `NOT_SHOWN`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use provider_conformance::checks;

/// Rules that no test from outside can show, and why.
const NOT_SHOWN: &[(&str, &str)] = &[(
    "CORE-3",
    "each provider configures the uid in its own way, and the contract has no RPC that reports it. core/another-user-is-refused shows whom the modes of CORE-2 exclude. \
     a_connection_of_another_user_is_refused_needs_root (provider-sdk/tests/socket.rs) shows the SDK's side. \
     a_socket_of_another_uid_is_told_nothing (ccm/tests/it/provider/refused.rs) shows the side of the controller, which checks the provider's uid",
)];

/// The comments of each `.proto` file: paragraphs, each in one line.
fn paragraphs() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/cloudprovider/v1alpha1");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "proto")
        {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut paragraph = String::new();
        for line in text.lines().chain([""]) {
            let comment = line.trim().strip_prefix("//").map(str::trim);
            match comment {
                Some(words) if !words.is_empty() => {
                    paragraph.push(' ');
                    paragraph.push_str(words);
                }
                _ => all.push((name.clone(), std::mem::take(&mut paragraph))),
            }
        }
    }
    all.retain(|(_, paragraph)| !paragraph.is_empty());
    all
}

/// The ID that a paragraph begins with.
fn id_of(paragraph: &str) -> Option<&str> {
    let (id, _) = paragraph.trim().split_once(": ")?;
    let (family, number) = id.split_once('-')?;
    let well_formed = family.bytes().all(|byte| byte.is_ascii_uppercase())
        && !family.is_empty()
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit());
    well_formed.then_some(id)
}

fn says_how_it_must_be(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphabetic())
        .any(|word| word == "MUST" || word == "SHOULD")
}

fn rules() -> BTreeMap<String, String> {
    let mut rules = BTreeMap::new();
    for (file, paragraph) in paragraphs() {
        if let Some(id) = id_of(&paragraph) {
            // A paragraph without these words may only refer to the rule.
            if says_how_it_must_be(&paragraph) {
                let before = rules.insert(id.to_owned(), paragraph.clone());
                assert!(before.is_none(), "{file}: {id} is there twice");
            } else {
                rules.entry(id.to_owned()).or_insert(paragraph);
            }
        }
    }
    rules
}

#[test]
fn every_must_and_should_has_an_id() {
    let without: Vec<_> = paragraphs()
        .into_iter()
        .filter(|(_, paragraph)| {
            says_how_it_must_be(paragraph)
                && id_of(paragraph).is_none()
                // This paragraph defines the two words.
                && !paragraph.contains("RFC 2119")
        })
        .collect();
    assert!(without.is_empty(), "{without:#?}");
}

#[test]
fn every_must_and_should_has_a_check() {
    let cited: BTreeSet<&str> = checks()
        .iter()
        .flat_map(|check| check.rules.iter().copied())
        .collect();
    let excused: BTreeSet<&str> = NOT_SHOWN.iter().map(|(id, _)| *id).collect();
    let rules = rules();
    let without: Vec<_> = rules
        .iter()
        .filter(|(id, text)| {
            says_how_it_must_be(text)
                && !cited.contains(id.as_str())
                && !excused.contains(id.as_str())
        })
        .map(|(_, text)| text)
        .collect();
    assert!(without.is_empty(), "no check cites {without:#?}");
    let needless: Vec<_> = excused.iter().filter(|id| cited.contains(*id)).collect();
    assert!(
        needless.is_empty(),
        "excused, and shown all the same: {needless:?}"
    );
}

/// Compares only the rules of load balancers and routes.
#[test]
fn the_rpcs_index_names_every_rule_of_load_balancers_and_routes_and_none_else() {
    let mut indexed = BTreeSet::new();
    let mut indexes = 0;
    for (file, paragraph) in paragraphs() {
        let Some(index) = paragraph.trim().strip_prefix("Rules: ") else {
            continue;
        };
        indexes += usize::from(["load_balancer.proto", "route.proto"].contains(&file.as_str()));
        let ids = index.trim_end_matches('.').split(", ");
        let ids: Vec<_> = ids.map(str::to_owned).collect();
        let strange: Vec<_> = ids
            .iter()
            .filter(|id| id_of(&format!("{id}: x")).is_none())
            .collect();
        assert!(strange.is_empty(), "{file}: {strange:?}");
        let number = |id: &String| id.rsplit('-').next().unwrap().parse::<u32>().unwrap();
        let families = [
            "CORE", "PROV", "INST", "ZONE", "LB", "ROUTE", "CLUSTER", "VOL",
        ];
        let family = |id: &String| families.iter().position(|name| id.starts_with(name));
        let ascending = ids.is_sorted_by_key(|id| (family(id), number(id)));
        assert!(ascending, "{file}: {index}");
        indexed.extend(ids);
    }
    assert_eq!(indexes, 5 + 3, "each RPC has one");
    let of = |id: &&str| id.starts_with("LB-") || id.starts_with("ROUTE-");
    let rules = rules();
    let all: BTreeSet<&str> = rules.keys().map(String::as_str).filter(of).collect();
    let indexed: BTreeSet<&str> = indexed.iter().map(String::as_str).filter(of).collect();
    assert_eq!(indexed, all);
}

#[test]
fn every_check_cites_rules_that_there_are() {
    let rules = rules();
    for check in checks() {
        for rule in check.rules {
            assert!(
                rules.contains_key(*rule),
                "{} cites {rule}, which no .proto file has",
                check.id
            );
        }
    }
    for (id, why) in NOT_SHOWN {
        assert!(rules.contains_key(*id) && !why.is_empty(), "{id}");
    }
}
