//! Tables: when a Node is deleted, and when its taint is set or removed.

use super::*;

#[test]
fn b_l3_only_the_shutdown_taint_comes_and_goes() {
    let taint = |key: &str, effect: &str| Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    };
    let shutdown = || taint(SHUTDOWN, NO_SCHEDULE);
    let other = || taint("other", NO_SCHEDULE);
    let no_execute = || taint(SHUTDOWN, "NoExecute");
    let valued = || Taint {
        value: Some("x".to_owned()),
        ..shutdown()
    };
    // Columns: name, taints before, new taints if the Node is stopped, new taints if it is Ready.
    // `None`: no change.
    let rows = [
        ("none", vec![], Some(vec![shutdown()]), None),
        ("ours", vec![shutdown()], None, Some(vec![])),
        ("ours with a value", vec![valued()], None, Some(vec![])),
        (
            "another key",
            vec![other()],
            Some(vec![other(), shutdown()]),
            None,
        ),
        (
            "ours and another key",
            vec![shutdown(), other()],
            None,
            Some(vec![other()]),
        ),
        (
            "our key with another effect",
            vec![no_execute()],
            Some(vec![no_execute(), shutdown()]),
            None,
        ),
    ];
    for (name, taints, stopped, ready) in rows {
        let tainted = |status| {
            edited(&node("a", Some(status)), |node| {
                node.spec.get_or_insert_default().taints = Some(taints.clone());
            })
        };
        assert_eq!(with_shutdown_taint(&tainted("False")), stopped, "{name}");
        assert_eq!(without_shutdown_taint(&tainted("True")), ready, "{name}");
        assert_eq!(without_shutdown_taint(&tainted("False")), None, "{name}");
    }
}

#[test]
fn b_l1_b_l2_b_l3_what_becomes_of_a_node() {
    // Columns: name, Ready condition, the provider's answer, whether the Node is deleted, whether
    // it is tainted.
    let rows = [
        ("not ready, gone", Some("False"), Ok(Absent), true, false),
        ("unknown, gone", Some("Unknown"), Ok(Absent), true, false),
        ("no condition, gone", None, Ok(Absent), true, false),
        (
            "not ready, the cloud fails",
            Some("False"),
            Err(trouble()),
            false,
            false,
        ),
        ("not ready, runs", Some("False"), Ok(Running), false, false),
        ("unknown, there", Some("Unknown"), Ok(Present), false, false),
        (
            "not ready, shut down",
            Some("False"),
            Ok(Stopped),
            false,
            true,
        ),
        (
            "unknown, shut down",
            Some("Unknown"),
            Ok(Stopped),
            false,
            true,
        ),
        (
            "ready, said to be gone",
            Some("True"),
            Ok(Absent),
            false,
            false,
        ),
        (
            "ready, said to be shut down",
            Some("True"),
            Ok(Stopped),
            false,
            false,
        ),
    ];
    for (name, ready, answer, deleted, tainted) in rows {
        let mut driver = Driver::new();
        let mut nodes = cluster(9, 0);
        nodes.push(node("it", ready));
        let mut pass = || {
            driver.pass_with(&nodes, &nodes, |node| {
                let it = super::name(node) == "it";
                Some(if it { answer.clone() } else { Ok(Running) })
            })
        };
        let (first, second) = (pass(), pass());
        assert_eq!(
            names(&second.delete),
            if deleted { vec!["it"] } else { vec![] },
            "{name}"
        );
        assert_eq!(
            names(&first.taint),
            if tainted { vec!["it"] } else { vec![] },
            "{name}"
        );
    }
}
