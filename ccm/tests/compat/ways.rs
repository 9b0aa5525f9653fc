//! What differs where our controller reaches the cloud through Go: the bridge, and the adapter of the contract as its cloud. Whatever else differs is an error, and so is an
//! exception that is no longer needed.

/// Lines that may differ, for one reason. `*` in a pattern is any text.
#[derive(Debug)]
pub struct Exception {
    pub why: &'static str,
    /// In each of these scenarios it must be met; where none is named it may be anywhere, and must be somewhere.
    pub scenarios: &'static [&'static str],
    pub line: &'static str,
    /// What stands there without Go between; `None` where there is no such line.
    pub direct: Option<&'static str>,
    /// What stands there with it.
    pub bridged: Option<&'static str>,
}

impl Exception {
    pub fn is_about(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&scenario)
    }

    pub fn must_be_met(&self, scenario: &str) -> bool {
        self.scenarios.contains(&scenario)
    }

    pub fn covers(&self, line: &str, direct: Option<&String>, bridged: Option<&String>) -> bool {
        let holds = |pattern: Option<&str>, found: Option<&String>| match (pattern, found) {
            (None, None) => true,
            (Some(pattern), Some(found)) => matches(pattern, found),
            _ => false,
        };
        matches(self.line, line) && holds(self.direct, direct) && holds(self.bridged, bridged)
    }
}

/// Whether the text is as the pattern says.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((begin, rest)) => text.strip_prefix(begin).is_some_and(|text| {
            rest.is_empty()
                || (0..=text.len())
                    .filter(|at| text.is_char_boundary(*at))
                    .any(|at| matches(rest, &text[at..]))
        }),
    }
}

pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        why: "the handle is the bridge's: Go's interface has none",
        scenarios: &[],
        line: "service metadata annotations grpc-ccm.io/load-balancer",
        direct: Some(r#"{"provider":"mock","uid":"<uid of *>","class":"","handle":"<handle>"}"#),
        bridged: Some(
            r#"{"provider":"mock","uid":"<uid of *>","class":"","handle":"{\"owner\":\"<owner>\",*\"}"}"#,
        ),
    },
    Exception {
        why: "the reason of a failure is part of Go's error text, and the bridge's own stands behind it",
        scenarios: &[],
        line: "event on *) (CloudError) [*-controller]",
        direct: None,
        bridged: Some("seen"),
    },
    Exception {
        why: "the reason of a failure is part of Go's error text, and the bridge's own stands behind it",
        scenarios: &[],
        line: "event on *Warning *) [*-controller]",
        direct: Some("seen"),
        bridged: None,
    },
];
