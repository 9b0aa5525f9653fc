//! The text of the rules: the comments of the contract's `.proto` files, from the descriptors.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use prost::Message;
use prost_types::FileDescriptorSet;

static RULES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(pb::FILE_DESCRIPTOR_SET).unwrap_or_default();
    let comments = files
        .file
        .iter()
        .filter(|file| file.package() == "cloudprovider.v1alpha1")
        .flat_map(|file| &file.source_code_info)
        .flat_map(|info| &info.location)
        .flat_map(|at| {
            let beside = at.leading_comments.iter().chain(&at.trailing_comments);
            at.leading_detached_comments.iter().chain(beside)
        });
    let mut rules = BTreeMap::new();
    for comment in comments {
        let lines: Vec<_> = comment.lines().map(str::trim).collect();
        for paragraph in lines.split(|line| line.is_empty()) {
            let text = paragraph.join(" ");
            let Some((id, rule)) = text.split_once(": ").filter(|(id, _)| is_id(id)) else {
                continue;
            };
            // A comment without a requirement may only refer to the rule.
            let asks = rule.contains("MUST") || rule.contains("SHOULD");
            if asks || !rules.contains_key(id) {
                rules.insert(id.to_owned(), sentence(rule).to_owned());
            }
        }
    }
    rules
});

static FAILURES: LazyLock<BTreeMap<String, Vec<FailureCode>>> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(pb::FILE_DESCRIPTOR_SET).unwrap_or_default();
    let mut failures = BTreeMap::new();
    for file in &files.file {
        for at in file.source_code_info.iter().flat_map(|info| &info.location) {
            // The path of a method: field 6 (`service`) of the file, then field 2 (`method`) of the
            // service.
            let &[6, service, 2, method] = at.path.as_slice() else {
                continue;
            };
            let service = usize::try_from(service).ok();
            let service = service.and_then(|service| file.service.get(service));
            let method = usize::try_from(method).ok();
            let Some(method) = service.zip(method).and_then(|(of, at)| of.method.get(at)) else {
                continue;
            };
            failures.insert(method.name().to_owned(), listed(at.leading_comments()));
        }
    }
    failures
});

/// The codes of the paragraph with "Failures".
fn listed(comment: &str) -> Vec<FailureCode> {
    let text = comment
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join("\n");
    let of_failures = text
        .split("\n\n")
        .find_map(|part| part.split_once("Failures"));
    let words = of_failures.map_or("", |(_, words)| words);
    let named = words
        .split(|c: char| !(c.is_ascii_uppercase() || c == '_'))
        .filter_map(|word| FailureCode::from_str_name(&format!("FAILURE_CODE_{word}")));
    // "all codes", or "all codes but" these.
    if words.contains("all codes") {
        let but: Vec<_> = named.collect();
        let all = (1..=10).filter_map(|code| FailureCode::try_from(code).ok());
        return all.filter(|code| !but.contains(code)).collect();
    }
    named.collect()
}

/// The codes that this RPC may answer (CORE-21).
pub(super) fn may_answer(rpc: &str) -> Vec<FailureCode> {
    let mut codes = FAILURES.get(rpc).cloned().unwrap_or_default();
    codes.extend([
        FailureCode::Invalid,
        FailureCode::Precondition,
        FailureCode::Busy,
        FailureCode::Throttled,
        FailureCode::NotInitialized,
        FailureCode::Internal,
    ]);
    codes
}

/// The rule's first sentence that has MUST or SHOULD, else its first sentence. `None`: there is no
/// such rule.
pub(super) fn text(id: &str) -> Option<&'static str> {
    RULES.get(id).map(String::as_str)
}

fn is_id(id: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    id.split_once('-').is_some_and(|(family, of_it)| {
        number(of_it) && family.bytes().all(|byte| byte.is_ascii_uppercase())
    })
}

fn sentence(rule: &str) -> &str {
    let ends = rule.match_indices(". ").map(|(at, _)| at + 1);
    let ends = ends.filter(|end| {
        let next = rule[end + 1..].chars().next();
        next.is_some_and(|c| c.is_uppercase() || c == '`')
    });
    let mut from = 0;
    for end in ends.chain([rule.len()]) {
        let one = rule[from..end].trim();
        if one.contains("MUST") || one.contains("SHOULD") {
            return one;
        }
        from = end;
    }
    let end = rule.find(". ").map_or(rule.len(), |at| at + 1);
    &rule[..end]
}

#[cfg(test)]
mod tests {
    use super::super::suite::checks;
    use super::*;

    #[test]
    fn every_rule_that_a_check_cites_has_a_text() {
        for check in checks() {
            for rule in check.rules {
                let text = text(rule).expect(rule);
                assert!(text.len() > 10 && text.len() < 700, "{rule}: {text}");
            }
        }
        assert_eq!(text("LB-99"), None);
        assert_eq!(text("(hook)"), None);
    }

    #[test]
    fn which_failures_an_rpc_may_answer_stands_in_its_comment() {
        for (rpc, code, may) in [
            ("GetVolumeLabels", FailureCode::NotFound, true),
            ("GetVolumeLabels", FailureCode::Conflict, false),
            ("GetVolumeLabels", FailureCode::Unavailable, true),
            ("ListInstances", FailureCode::Busy, true),
            ("ListInstances", FailureCode::NotFound, false),
            ("UpdateLoadBalancer", FailureCode::NotFound, true),
            ("EnsureLoadBalancer", FailureCode::NotFound, false),
        ] {
            assert_eq!(may_answer(rpc).contains(&code), may, "{rpc} {code:?}");
        }
        // Only these RPCs have a comment without codes: their answers have no `failed`.
        let without: Vec<_> = FAILURES
            .iter()
            .filter(|(_, codes)| codes.is_empty())
            .collect();
        let names: Vec<_> = without.iter().map(|(rpc, _)| rpc.as_str()).collect();
        assert_eq!(names, ["GetProviderInfo", "Probe"]);
    }

    #[test]
    fn of_a_rule_the_sentence_that_asks_for_something_is_shown() {
        assert_eq!(
            text("CORE-9"),
            Some(
                "A provider SHOULD answer `pending` (if the RPC has it) before 80 % of the `grpc-timeout` has passed since the request arrived."
            )
        );
        assert_eq!(
            text("INST-11"),
            Some("Lookups and listings of instances MUST write nothing to the cloud.")
        );
    }
}
