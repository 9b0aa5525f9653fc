//! Which failure codes each RPC may answer (CORE-21). Pure.

use api::FailureCode as Code;
use cloud_provider_api::v1alpha1 as api;

use super::{CallError, limits};

/// The place of a failure in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The call failed as a whole.
    Whole,
    /// One item of a batch failed.
    Item,
}

/// Whether this RPC may answer this code at this place: the codes that CORE-21 allows to every RPC,
/// and the lists "Failures:" of the contract. Tests compare them with the comments in `proto/`.
fn may_answer(rpc: &str, place: Place, code: Code) -> bool {
    let any_rpc = matches!(
        code,
        Code::Invalid
            | Code::Precondition
            | Code::Busy
            | Code::Throttled
            | Code::NotInitialized
            | Code::Internal
    );
    let cloud = matches!(code, Code::Credentials | Code::Unavailable);
    any_rpc
        || match rpc {
            "Initialize" | "WatchChanges" | "ListInstances" | "LookupZones"
            | "ListLoadBalancers" | "ListRoutes" | "ListClusters" => cloud,
            "LookupInstances" => cloud || code == Code::Conflict && place == Place::Item,
            "GetLoadBalancer" | "EnsureLoadBalancer" | "DeleteLoadBalancer" | "CreateRoutes"
            | "DeleteRoutes" => cloud || code == Code::Conflict,
            "UpdateLoadBalancer" => cloud || matches!(code, Code::Conflict | Code::NotFound),
            "GetControlPlaneAddress" | "GetVolumeLabels" => cloud || code == Code::NotFound,
            _ => false,
        }
}

/// The failure as the controller reads it. A code that the RPC may not answer becomes
/// INTERNAL (CORE-21), and the message names the code.
pub(super) fn read(rpc: &str, place: Place, mut failure: api::Failure) -> api::Failure {
    let code = failure.code();
    // An unknown code is UNSPECIFIED here, which `CallError` reads as INTERNAL.
    if code == Code::Unspecified || may_answer(rpc, place, code) {
        return failure;
    }
    let name = code.as_str_name().trim_start_matches("FAILURE_CODE_");
    let what = match place {
        Place::Whole => "",
        Place::Item => " for an item",
    };
    let note = format!("the provider answered {name}, which {rpc} does not list{what}");
    failure.message = if failure.message.is_empty() {
        note
    } else {
        let note = format!(" ({note})");
        // The end of a long text is cut, so the message leaves room.
        limits::cut_for(&failure.message, note.len()) + &note
    };
    failure.code = Code::Internal.into();
    failure
}

/// The `CallError` of a failure in an answer of this RPC.
pub(super) fn trouble(rpc: &str, place: Place, failure: api::Failure) -> CallError {
    read(rpc, place, failure).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::super::CallErrorCode;
    use super::*;

    fn all_codes() -> Vec<Code> {
        (1..=10).map(|code| Code::try_from(code).unwrap()).collect()
    }

    /// The comments of the contract's RPCs, each as one line.
    fn comments() -> BTreeMap<String, String> {
        let files = FileDescriptorSet::decode(api::FILE_DESCRIPTOR_SET).unwrap();
        let mut comments = BTreeMap::new();
        for file in &files.file {
            if file.package() != "cloudprovider.v1alpha1" {
                continue;
            }
            for at in &file.source_code_info.as_ref().unwrap().location {
                // The path of a method (field 2) of a service (field 6).
                if let &[6, service, 2, method] = at.path.as_slice() {
                    let service = &file.service[usize::try_from(service).unwrap()];
                    let method = &service.method[usize::try_from(method).unwrap()];
                    let words = at.leading_comments().split_whitespace();
                    let text = words.collect::<Vec<_>>().join(" ");
                    comments.insert(method.name().to_owned(), text);
                }
            }
        }
        comments
    }

    /// The list "Failures:" of a comment: for the whole call, and for an item alone.
    fn list_of(comment: &str) -> Option<(Vec<Code>, Vec<Code>)> {
        let (_, list) = comment.split_once("Failures")?;
        let (_, list) = list.split_once(": ").unwrap();
        let list = list.split_once('.').map_or(list, |(list, _)| list);
        let code = |word: &str| {
            let word = word.split_whitespace().next().unwrap();
            Code::from_str_name(&format!("FAILURE_CODE_{word}")).expect(word)
        };
        if let Some(but) = list.strip_prefix("all codes") {
            let but = but.strip_prefix(" but ").map(code);
            let all = all_codes().into_iter();
            return Some((all.filter(|code| Some(*code) != but).collect(), Vec::new()));
        }
        let (item, whole): (Vec<_>, Vec<_>) = list
            .split(", ")
            .partition(|word| word.contains("(of an item)"));
        let codes = |words: Vec<&str>| words.into_iter().map(code).collect();
        Some((codes(whole), codes(item)))
    }

    #[test]
    fn the_table_is_what_the_contract_lists() {
        let mut lists = 0;
        for (rpc, comment) in comments() {
            let list = list_of(&comment);
            let none = comment.contains("It has no failures.");
            assert_ne!(list.is_some(), none, "{rpc}: {comment}");
            lists += usize::from(list.is_some());
            let (whole, item) = list.unwrap_or_default();
            for code in all_codes() {
                let any_rpc = may_answer("NoSuchRpc", Place::Whole, code);
                let of_whole = any_rpc || whole.contains(&code);
                let of_item = of_whole || item.contains(&code);
                let name = code.as_str_name();
                assert_eq!(
                    may_answer(&rpc, Place::Whole, code),
                    of_whole,
                    "{rpc} {name}"
                );
                assert_eq!(may_answer(&rpc, Place::Item, code), of_item, "{rpc} {name}");
            }
        }
        assert_eq!(lists, 16, "the RPCs with a list");
    }

    #[test]
    fn what_every_rpc_may_answer_is_what_core_21_says() {
        let files = FileDescriptorSet::decode(api::FILE_DESCRIPTOR_SET).unwrap();
        let texts = files.file.iter().flat_map(|file| &file.source_code_info);
        let texts = texts.flat_map(|info| &info.location);
        let rule = texts
            .flat_map(|at| {
                at.leading_detached_comments
                    .iter()
                    .map(String::as_str)
                    .chain([at.leading_comments()])
            })
            .find_map(|text| text.split_once("CORE-21: "))
            .map(|(_, rule)| rule.split_whitespace().collect::<Vec<_>>().join(" "))
            .unwrap();
        let (_, list) = rule.split_once("except ").unwrap();
        let (list, _) = list.split_once(". Every RPC").unwrap();
        let words = list.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        let named: Vec<_> = words
            .filter_map(|word| Code::from_str_name(&format!("FAILURE_CODE_{word}")))
            .collect();
        let any_rpc = all_codes().into_iter();
        let any_rpc = any_rpc.filter(|code| may_answer("NoSuchRpc", Place::Whole, *code));
        assert_eq!(named, any_rpc.collect::<Vec<_>>());
    }

    #[test]
    fn a_long_message_leaves_room_for_the_code_that_is_not_listed() {
        let long = api::Failure {
            code: Code::NotFound.into(),
            message: "it is so. ".repeat(200),
            ..Default::default()
        };
        let read = trouble("EnsureLoadBalancer", Place::Whole, long).message;
        assert!(read.starts_with("it is so."), "{read}");
        let note = "… (the provider answered NOT_FOUND, which EnsureLoadBalancer does not list)";
        assert!(read.ends_with(note), "{read}");
    }

    #[test]
    fn a_code_that_is_not_listed_is_internal_and_its_message_says_which_it_was() {
        let failure = |code: Code| api::Failure {
            code: code.into(),
            reason: "Why".into(),
            message: "it is so".into(),
            retry_after: Some(prost_types::Duration {
                seconds: 7,
                nanos: 0,
            }),
        };
        let read = trouble("EnsureLoadBalancer", Place::Whole, failure(Code::NotFound));
        assert_eq!(read.code, CallErrorCode::Internal);
        assert_eq!(read.reason, "Why");
        assert_eq!(read.retry_after, Some(std::time::Duration::from_secs(7)));
        assert_eq!(
            read.message,
            "it is so (the provider answered NOT_FOUND, which EnsureLoadBalancer does not list)"
        );
        for (rpc, place, code, as_code) in [
            (
                "UpdateLoadBalancer",
                Place::Whole,
                Code::NotFound,
                CallErrorCode::NotFound,
            ),
            (
                "GetVolumeLabels",
                Place::Whole,
                Code::NotFound,
                CallErrorCode::NotFound,
            ),
            (
                "GetVolumeLabels",
                Place::Whole,
                Code::Conflict,
                CallErrorCode::Internal,
            ),
            (
                "LookupInstances",
                Place::Item,
                Code::Conflict,
                CallErrorCode::Conflict,
            ),
            (
                "LookupInstances",
                Place::Whole,
                Code::Conflict,
                CallErrorCode::Internal,
            ),
            (
                "LookupInstances",
                Place::Item,
                Code::NotFound,
                CallErrorCode::Internal,
            ),
            (
                "LookupZones",
                Place::Item,
                Code::Conflict,
                CallErrorCode::Internal,
            ),
            (
                "ListRoutes",
                Place::Whole,
                Code::Conflict,
                CallErrorCode::Internal,
            ),
            (
                "CreateRoutes",
                Place::Item,
                Code::Conflict,
                CallErrorCode::Conflict,
            ),
            (
                "Initialize",
                Place::Whole,
                Code::Conflict,
                CallErrorCode::Internal,
            ),
            (
                "Initialize",
                Place::Whole,
                Code::Credentials,
                CallErrorCode::Credentials,
            ),
            // No RPC has this name, so it lists nothing.
            (
                "NoSuchRpc",
                Place::Whole,
                Code::Unavailable,
                CallErrorCode::Internal,
            ),
            ("NoSuchRpc", Place::Whole, Code::Busy, CallErrorCode::Busy),
        ] {
            let read = trouble(rpc, place, failure(code));
            assert_eq!(read.code, as_code, "{rpc} {place:?} {code:?}");
        }
    }
}
