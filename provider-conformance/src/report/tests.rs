use super::*;

pub(crate) fn example() -> Report {
    let entry = |id, outcome| Entry {
        id,
        rules: &["CORE-4", "INST-1"],
        title: "a title with <angles> & \"quotes\"",
        outcome,
        took: Duration::from_millis(12),
    };
    Report {
        provider: "mock 0.1.0".into(),
        entries: vec![
            entry("core/one", Outcome::Passed),
            entry(
                "core/two",
                Outcome::Failed(Failed {
                    rule: "CORE-4".into(),
                    sent: "Probe \u{1}".into(),
                    expected: "an <answer>".into(),
                    came: "gRPC status Internal\nat all".into(),
                    unanswered: None,
                    cause: None,
                }),
            ),
            entry(
                "zones/three",
                Outcome::Skipped(Skipped {
                    reason: "the provider does not offer Capabilities.zones".into(),
                    lack: Lack::Capability,
                }),
            ),
            entry(
                "zones/four",
                Outcome::Skipped(Skipped {
                    reason: "suite.yaml has no hook `cloud-slow`".into(),
                    lack: Lack::Setup,
                }),
            ),
            entry(
                "zones/five",
                Outcome::Warned(Failed {
                    rule: "LB-3".into(),
                    sent: "Ensure".into(),
                    expected: "a handle".into(),
                    came: "none".into(),
                    unanswered: None,
                    cause: None,
                }),
            ),
        ],
        interrupted: false,
        left: vec!["a load balancer".into()],
        took: Duration::from_secs(2),
    }
}

#[test]
fn text_names_the_rule_and_what_was_sent_expected_and_came() {
    let report = example();
    let failed = text::entry(&report.entries[1]);
    for word in [
        "FAIL  core/two",
        "sent      Probe",
        "expected  an <answer> (CORE-4)",
        "received  gRPC",
        "rule      CORE-4: The provider MUST state its outcome in the body",
    ] {
        assert!(failed.contains(word), "{word:?} is not in {failed}");
    }
    assert!(text::entry(&report.entries[3]).contains("skip  zones/four: suite.yaml has no hook"));
    let warned = text::entry(&report.entries[4]);
    assert!(warned.contains("warn  zones/five: a title"), "{warned}");
    let summary = report.write(Format::Text, false).unwrap();
    for word in [
        "1 passed, 1 failed, 1 with a warning, 1 skipped",
        "warning: zones/five (LB-3: ",
        "failed: core/two (CORE-4: The provider MUST state",
        "skipped 1: the provider does not offer Capabilities.zones\n",
        ", 1 left behind; 2.0 s",
        "by hand: a load balancer",
    ] {
        assert!(summary.contains(word), "{word:?} is not in {summary}");
    }
}

#[test]
fn json_has_every_check_and_the_counts() {
    let json: serde_json::Value =
        serde_json::from_str(&example().write(Format::Json, false).unwrap()).unwrap();
    assert_eq!(json["passed"], 1);
    assert_eq!(json["skipped_not_set_up"], 1);
    assert_eq!(json["checks"][1]["outcome"], "failed");
    assert_eq!(json["checks"][1]["failure"]["rule"], "CORE-4");
    let rule = json["checks"][1]["failure"]["rule_text"].as_str();
    assert!(rule.is_some_and(|text| text.contains("MUST state its outcome in the body")));
    assert_eq!(json["checks"][2]["outcome"], "skipped_not_offered");
    assert_eq!(json["checks"][4]["outcome"], "warned");
    assert_eq!((&json["warned"], &json["failed"]), (&1.into(), &1.into()));
    assert_eq!(json["left_behind"][0], "a load balancer");
}

#[test]
fn junit_is_well_formed_and_escapes() {
    let xml = example().write(Format::Junit, false).unwrap();
    let mut reader = quick_xml::Reader::from_str(&xml);
    let (mut cases, mut open) = (0, 0);
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(tag) => {
                open += 1;
                cases += usize::from(tag.name().as_ref() == "testcase");
            }
            quick_xml::events::Event::End(_) => open -= 1,
            quick_xml::events::Event::Empty(tag) => {
                cases += usize::from(tag.name().as_ref() == "testcase");
            }
            _ => {}
        }
    }
    assert_eq!((cases, open), (6, 0), "{xml}");
    assert!(
        xml.contains("an &lt;answer&gt;") && !xml.contains('\u{1}'),
        "{xml}"
    );
    // One of them is about an object that was left behind.
    assert_eq!(xml.matches("<failure ").count(), 2, "{xml}");
    assert!(xml.contains("message=\"a load balancer\""), "{xml}");
    assert!(xml.contains("tests=\"6\" failures=\"2\""), "{xml}");
    assert!(xml.contains("warning (LB-3)"), "{xml}");
    assert_eq!(xml.matches("<testsuite ").count(), 3, "{xml}");
}

#[test]
fn what_failed_for_one_cause_is_told_in_one_line() {
    let mut report = example();
    for id in ["load-balancers/a", "load-balancers/b", "routes/alone"] {
        let mut entry = report.entries[1].clone();
        entry.id = id;
        if let Outcome::Failed(failed) = &mut entry.outcome {
            let (rpc, _) = id.split_once('/').unwrap();
            failed.cause = Some(format!("{rpc}: INTERNAL: InvalidAnswer"));
        }
        report.entries.push(entry);
    }
    let summary = report.write(Format::Text, false).unwrap();
    let line = "2 failures with the same cause: gRPC status Internal\nat all: load-balancers/a, load-balancers/b\n";
    assert!(summary.contains(line), "{summary}");
    assert!(!summary.contains("failed: load-balancers/"), "{summary}");
    assert!(
        summary.contains("failed: routes/alone (CORE-4"),
        "{summary}"
    );
}
