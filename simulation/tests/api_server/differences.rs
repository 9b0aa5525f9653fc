//! The permitted differences between the two API servers' answers, with the reasons.

use serde_json::Value;

use crate::script::Outcome;

/// A permitted difference.
struct Difference {
    /// The beginning of the request's line, without its name.
    line: &'static str,
    /// Permitted only if the real API server refuses the request.
    refused: bool,
    /// The path in the answer, with all below it. `*` is any one step.
    at: &'static str,
    /// The row in docs/simulation.md.
    why: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        line: "",
        refused: true,
        at: "/message",
        why: "The simulated API server has its own texts for refusals.",
    },
    Difference {
        line: "",
        refused: true,
        at: "/details/causes/*/message",
        why: "The simulated API server has its own texts for refusals.",
    },
    Difference {
        line: "WATCH nodes?resourceVersion=$start.rv&timeout",
        refused: false,
        at: "/*/object/message",
        why: "The simulated API server has its own texts for refusals.",
    },
    Difference {
        line: "GET nodes?limit=2&continue=$p1",
        refused: true,
        at: "/metadata/continue",
        why: "The simulated API server gives no new token with its 410 for an expired continue token.",
    },
];

/// Fails if the answers differ in another place than the list permits, or if a listed difference
/// does not occur. The error lists the other differences.
pub(crate) fn compare(real: &[Outcome], ours: &[Outcome]) -> Result<(), String> {
    let mut needed = vec![false; DIFFERENCES.len()];
    let (mut wrong, mut requests) = (Vec::new(), 0);
    for (real, ours) in real.iter().zip(ours) {
        let mut found = Vec::new();
        if real.code != ours.code {
            found.push((
                String::new(),
                format!("{} and not {}", real.code, ours.code),
            ));
        }
        differ("", &real.body, &ours.body, &mut found);
        found.retain(|(at, _)| {
            let known = DIFFERENCES.iter().position(|one| one.covers(real, at));
            known.inspect(|known| needed[*known] = true).is_none()
        });
        if !found.is_empty() {
            requests += 1;
            wrong.push(real.line.to_owned());
            wrong.extend(
                found
                    .into_iter()
                    .map(|(at, how)| format!("    {at}: {how}")),
            );
        }
    }
    if !wrong.is_empty() {
        return Err(format!(
            "{requests} of {} requests are answered otherwise than by the real one:\n{}",
            real.len(),
            wrong.join("\n")
        ));
    }
    let page = include_str!("../../../docs/simulation.md");
    let count = format!("the {} requests of", real.len());
    assert!(
        page.contains(&count),
        "docs/simulation.md does not say {count:?}"
    );
    for (one, needed) in DIFFERENCES.iter().zip(needed) {
        assert!(
            needed,
            "no request needs the difference of {} at {}: {}",
            one.line, one.at, one.why
        );
        let row = format!("| {} |", one.why);
        assert!(page.contains(&row), "docs/simulation.md has no row {row}");
    }
    Ok(())
}

impl Difference {
    fn covers(&self, real: &Outcome, at: &str) -> bool {
        let line = real
            .line
            .split_once(" = ")
            .map_or(real.line, |(_, rest)| rest);
        let mut steps = at.split('/');
        line.starts_with(self.line)
            && (real.code >= 400 || !self.refused)
            && self.at.split('/').all(|known| {
                steps
                    .next()
                    .is_some_and(|step| known == "*" || known == step)
            })
    }
}

/// Collects the places and values that differ.
fn differ(at: &str, real: &Value, ours: &Value, found: &mut Vec<(String, String)>) {
    match (real, ours) {
        (Value::Object(all), Value::Object(own)) => {
            for key in all
                .keys()
                .chain(own.keys().filter(|key| !all.contains_key(*key)))
            {
                let step = key.replace('/', "~1");
                let (real, ours) = (all.get(key), own.get(key));
                match (real, ours) {
                    (Some(real), Some(ours)) => differ(&format!("{at}/{step}"), real, ours, found),
                    (real, ours) => found.push((format!("{at}/{step}"), told(real, ours))),
                }
            }
        }
        (Value::Array(all), Value::Array(own)) if all.len() == own.len() => {
            for (i, (real, ours)) in all.iter().zip(own).enumerate() {
                differ(&format!("{at}/{i}"), real, ours, found);
            }
        }
        (real, ours) if real == ours => {}
        (real, ours) => found.push((at.to_owned(), told(Some(real), Some(ours)))),
    }
}

fn told(real: Option<&Value>, ours: Option<&Value>) -> String {
    let text = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    format!("real {}\n        ours {}", text(real), text(ours))
}
