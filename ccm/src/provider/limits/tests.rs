use super::super::CallErrorCode;
use super::*;

fn named(name: &str, uid: &str, outcome: Option<Result<u8, CallError>>) -> Named<u8> {
    Named {
        name: name.to_owned(),
        uid: uid.to_owned(),
        outcome,
    }
}

/// `Ok` values, or the text of the fault.
fn matched(answer: Vec<Named<u8>>) -> Vec<Result<u8, String>> {
    match_results("node", &asked(), answer)
        .results
        .into_iter()
        .map(|result| {
            result.map_err(|trouble| {
                assert_eq!(trouble.code, CallErrorCode::Fault);
                trouble.message
            })
        })
        .collect()
}

fn asked() -> [(String, String); 2] {
    [("a", "1"), ("b", "2")].map(|(name, uid)| (name.to_owned(), uid.to_owned()))
}

#[test]
fn inst_2_results_are_matched_by_name_and_uid() {
    let ok = |name, uid, value| named(name, uid, Some(Ok(value)));
    // In another order.
    assert_eq!(
        matched(vec![ok("b", "2", 20), ok("a", "1", 10)]),
        [Ok(10), Ok(20)]
    );
    // Only Node a gets the fault. The result for Node b stays.
    let rows: [(Vec<Named<u8>>, &str); 6] = [
        (vec![ok("b", "2", 20)], "no result for node \"a\""),
        (
            vec![ok("a", "1", 10), ok("b", "2", 20), ok("a", "1", 10)],
            "\"a\" more than once",
        ),
        (
            vec![ok("a", "9", 10), ok("b", "2", 20)],
            "is for UID \"9\", not \"1\"",
        ),
        (
            vec![ok("a", "9", 10), ok("a", "1", 10), ok("b", "2", 20)],
            "\"a\" more than once",
        ),
        (
            vec![named("a", "1", None), ok("b", "2", 20)],
            "has no outcome",
        ),
        (vec![ok("b", "2", 20), ok("A", "1", 10)], "no result"),
    ];
    for (answer, message) in rows {
        let results = matched(answer);
        assert_eq!(results[1], Ok(20));
        assert!(
            results[0].as_ref().unwrap_err().contains(message),
            "{results:?}"
        );
    }
}

#[test]
fn inst_1_an_empty_answer_says_nothing() {
    assert!(matched(vec![]).iter().all(Result::is_err));
}

#[test]
fn what_nobody_asked_for_is_ignored() {
    let answer = (0..100).map(|n| named(&format!("x{n}"), "1", Some(Ok(1))));
    let matched = match_results("node", &asked(), answer);
    assert_eq!(matched.strays.len(), 10);
    assert!(matched.results.iter().all(Result::is_err));
}

#[test]
fn inst_4_a_failure_stays_with_its_node() {
    let failed = CallError::new(CallErrorCode::Unavailable, "m");
    let answer = vec![
        named("a", "1", Some(Err(failed.clone()))),
        named("b", "2", Some(Ok(2))),
    ];
    let matched = match_results("node", &asked(), answer);
    assert_eq!(matched.results, [Err(failed), Ok(2)]);
}

#[test]
fn batches_are_cut_by_bytes_in_their_order() {
    let cut = |batches: Vec<Vec<usize>>, room| cut_batches(batches, room, |size| *size);
    // Each item takes three more bytes.
    assert!(cut(vec![], 90).is_empty());
    assert_eq!(cut(vec![vec![7; 5]], 1000), [vec![7; 5]]);
    assert_eq!(cut(vec![vec![7; 5]], 20), [vec![7; 2], vec![7; 2], vec![7]]);
    assert_eq!(
        cut(vec![vec![7, 7], vec![7; 3]], 1000),
        [vec![7; 2], vec![7; 3]],
        "batches are not joined"
    );
    assert_eq!(
        cut(vec![vec![7, 90, 7, 7, 90]], 90),
        [vec![7], vec![90], vec![7, 7], vec![90]],
        "what is too large is alone"
    );
    assert_eq!(cut(vec![vec![90, 7]], 0), [[90], [7]]);
}

#[test]
fn batches_encode_to_no_more_than_the_limit_and_miss_nobody() {
    let nodes: Vec<_> = (0..500)
        .map(|n| api::NodeView {
            name: format!("node-{n}"),
            uid: "u".repeat(n % 50),
            ..Default::default()
        })
        .collect();
    let mut seen = Vec::new();
    for batch in cut_batches(vec![nodes.clone()], 2000, Message::encoded_len) {
        let request = api::LookupInstancesRequest {
            nodes: batch,
            ..Default::default()
        };
        assert!(request.encoded_len() <= 2000);
        seen.extend(request.nodes);
    }
    assert_eq!(seen, nodes);
}

#[test]
fn a_fault_of_size_names_the_limit() {
    let request = api::Instance {
        provider_id: Some("x".repeat(100_000)),
        ..Default::default()
    };
    let fault = check_request(&request, 65_536).unwrap_err();
    assert!(fault.message.contains("65536"));
}

#[test]
fn retry_after_is_clamped_and_garbage_is_not_stated() {
    let rows = [
        (0, 0, Some(1_000)),
        (0, 1, Some(1_000)),
        (7, 500_000_000, Some(7_500)),
        (86_400, 0, Some(600_000)),
        (i64::MAX, 999_999_999, Some(600_000)),
        (-1, 0, None),
        (1, -1, None),
        (1, 1_000_000_000, None),
        (i64::MIN, i32::MIN, None),
    ];
    for (seconds, nanos, millis) in rows {
        let given = prost_types::Duration { seconds, nanos };
        let expected = millis.map(Duration::from_millis);
        assert_eq!(retry_after(&given), expected, "{given:?}");
    }
    let pending = api::Pending::default();
    assert_eq!(pending_after(&pending), Duration::from_secs(5));
    let at_once = api::Pending {
        retry_after: Some(prost_types::Duration {
            seconds: 0,
            nanos: 1_000_000,
        }),
        ..api::Pending::default()
    };
    assert_eq!(pending_after(&at_once), Duration::from_secs(1));
}

#[test]
fn prov_8_a_provider_id_has_one_of_the_prefixes() {
    let prefixes = ["mock://".to_owned(), "old://".to_owned()];
    let check = |id: &str| check_provider_id(id, &prefixes);
    assert_eq!(check("mock://1"), Ok(()));
    assert_eq!(check("old://1"), Ok(()));
    let wrong = check("aws://1").unwrap_err();
    assert_eq!(wrong.code, CallErrorCode::Fault);
    assert!(wrong.message.contains("aws://1"));
    assert!(wrong.message.contains("mock://, old://"));
    assert!(check("").is_err());
    assert!(check(&format!("mock://{}", "x".repeat(1024))).is_err());
}

#[test]
fn an_instance_without_a_known_state_is_a_fault() {
    let prefixes = ["mock://".to_owned()];
    for state in [0, 7, 99, -1] {
        let instance = api::Instance {
            state,
            ..Default::default()
        };
        assert!(
            check_instance(instance, Some(&prefixes)).is_err(),
            "{state}"
        );
    }
    for state in 1..=6 {
        let instance = api::Instance {
            state,
            ..Default::default()
        };
        assert!(check_instance(instance, Some(&prefixes)).is_ok(), "{state}");
    }
}

#[test]
fn texts_are_cut_at_a_character() {
    assert_eq!(cut("short"), "short");
    let exact = "x".repeat(1024);
    assert_eq!(cut(&exact), exact);
    for text in ["ü".repeat(513), "😀".repeat(300), "x".repeat(9999)] {
        let cut = cut(&text);
        assert!(cut.len() <= 1024 && cut.len() > 1015, "{}", cut.len());
        assert!(cut.ends_with('…'));
    }
    assert!(shown(&"😀".repeat(300)).len() <= 128);
}

/// Finding B10: the text of an event, or of a line of the log, stays on one line.
#[test]
fn texts_are_on_one_line() {
    assert_eq!(cut("no\n[+]lease ok\u{202e}"), "no [+]lease ok ");
}

#[test]
fn dns_names() {
    for good in ["a", "lb-1.example.com", "1.2.3.example"] {
        assert!(is_dns_name(good), "{good}");
    }
    for bad in ["", ".", "a.", "-a", "a-", "A", "a_b", "a..b", "ü", "a b"] {
        assert!(!is_dns_name(bad), "{bad}");
    }
    assert!(!is_dns_name(&"a".repeat(254)));
    for good in ["PortInUse", "example.com/PortInUse"] {
        assert!(is_condition_reason(good), "{good}");
    }
    for bad in ["", "Port in use", "/A", "Ex/A", "a/b/c", "A."] {
        assert!(!is_condition_reason(bad), "{bad}");
    }
}
