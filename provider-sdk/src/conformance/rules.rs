//! What the rules say: the comments of the contract's `.proto` files, which the descriptors carry.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cloud_provider_api::v1alpha1 as pb;
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
            // One that asks for nothing points at the rule.
            let asks = rule.contains("MUST") || rule.contains("SHOULD");
            if asks || !rules.contains_key(id) {
                rules.insert(id.to_owned(), sentence(rule).to_owned());
            }
        }
    }
    rules
});

/// The first sentence of a rule that asks for something, or its first; nothing for what is none.
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
    fn of_a_rule_the_sentence_that_asks_for_something_is_shown() {
        assert_eq!(
            text("CORE-9"),
            Some(
                "A provider SHOULD answer `pending` (where an RPC has it) before 80 % of the deadline is over."
            )
        );
        assert_eq!(
            text("INST-11"),
            Some("Lookups and listings MUST write nothing to the cloud.")
        );
    }
}
