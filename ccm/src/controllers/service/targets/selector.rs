//! The annotation `grpc-ccm.io/node-selector` (▲S17): a label selector in the syntax of
//! `kubectl get -l`, without `<` and `>`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;
use kube::core::{Expression, SelectorExt};

/// The key of the annotation: [`crate::core::DOMAIN`] and `node-selector`.
const ANNOTATION: &str = "grpc-ccm.io/node-selector";

/// The limits for the annotation: bytes and requirements. Each requirement is compared with the
/// labels of each Node, and one Service must not delay all others.
const BYTES: usize = 4 * 1024;
const REQUIREMENTS: usize = 64;

/// Which Nodes may be targets; empty: all. Selectors with the same requirements are equal, in any
/// order and with any spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controllers::service) struct NodeSelector(BTreeSet<Expression>);

impl NodeSelector {
    /// The selector of a Service. `Err`: the error in it.
    pub(in crate::controllers::service) fn of(service: &Service) -> Result<Self, String> {
        match service.annotations().get(ANNOTATION) {
            Some(text) if text.len() > BYTES => Err(format!(
                "annotation {ANNOTATION} has {} bytes; at most {BYTES} are allowed",
                text.len()
            )),
            Some(text) if split(text).len() > REQUIREMENTS => Err(format!(
                "annotation {ANNOTATION} has {} requirements; at most {REQUIREMENTS} are allowed",
                split(text).len()
            )),
            Some(text) => Self::parse(text).map_err(|part| {
                format!("annotation {ANNOTATION}: {part:?} is no label requirement; write for example zone=a,!spot,tier in (x,y)")
            }),
            None => Ok(Self::default()),
        }
    }

    /// `Err` is the part that cannot be parsed.
    fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        split(text)
            .into_iter()
            .map(|part| requirement(part.trim()).ok_or_else(|| part.trim().to_owned()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(in crate::controllers::service) fn matches(&self, node: &Node) -> bool {
        let mut all = self.0.iter();
        all.all(|expression| expression.matches(node.labels()))
    }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn requirement(part: &str) -> Option<Expression> {
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Expression::NotEqual(word(key)?, value_of(value)?));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Expression::Equal(word(key)?, value_of(value)?));
    }
    if let Some(key) = part.strip_prefix('!') {
        return word(key).map(Expression::DoesNotExist);
    }
    if let Some((head, tail)) = part.split_once('(') {
        let values = tail
            .trim_end()
            .strip_suffix(')')?
            .split(',')
            .map(value_of)
            .collect::<Option<BTreeSet<_>>>()?;
        let (key, operator) = head.trim().split_once(char::is_whitespace)?;
        return match operator.trim() {
            "in" => Some(Expression::In(word(key)?, values)),
            "notin" => Some(Expression::NotIn(word(key)?, values)),
            _ => None,
        };
    }
    word(part).map(Expression::Exists)
}

/// A label key.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let valid = !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    valid.then(|| text.to_owned())
}

/// A label value, perhaps empty.
fn value_of(text: &str) -> Option<String> {
    let text = text.trim();
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        .then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::service::fixtures::{node, service};

    #[test]
    fn s17_selectors_match_as_kubectl_writes_them() {
        let mut labelled = node("a");
        labelled.metadata.labels = Some(
            [("zone", "z1"), ("tier", "gold"), ("x.io/y", "")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        );
        let cases = [
            ("", true),
            ("  ", true),
            ("zone=z1", true),
            ("zone==z1", true),
            (" zone = z1 , tier=gold", true),
            ("zone=z2", false),
            ("zone!=z2", true),
            ("other!=z2", true),
            ("zone!=z1", false),
            ("tier", true),
            ("other", false),
            ("!other", true),
            ("!tier", false),
            ("x.io/y=", true),
            ("tier in (gold, silver)", true),
            ("tier notin (gold,silver),zone", false),
            ("zone,tier in (silver)", false),
        ];
        for (text, expected) in cases {
            let selector = NodeSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&labelled), expected, "{text}");
        }
    }

    #[test]
    fn s17_a_selector_that_is_too_long_is_refused() {
        let of = |text: String| {
            let mut service = service();
            service.metadata.annotations = Some([(ANNOTATION.to_owned(), text)].into());
            NodeSelector::of(&service)
        };
        let many = |count: usize| vec!["!a"; count].join(",");
        assert!(of(many(64)).is_ok());
        let wrong = of(many(65)).unwrap_err();
        assert!(wrong.contains("65 requirements; at most 64"), "{wrong}");
        let values = |count: usize| format!("a in ({})", vec!["v"; count].join(","));
        assert_eq!(values(2_045).len(), 4_096);
        assert!(of(values(2_045)).is_ok());
        let wrong = of(values(2_046)).unwrap_err();
        assert!(wrong.contains("bytes; at most 4096"), "{wrong}");
    }

    #[test]
    fn s17_what_is_no_selector_is_refused() {
        for text in [
            "a,",
            ",",
            "=x",
            "a b",
            "a in x",
            "a in (x",
            "a within (x)",
            "a=b c",
            "!",
            "a=)",
            "a=\u{e9}",
        ] {
            assert!(NodeSelector::parse(text).is_err(), "{text}");
        }
        let mut broken = service();
        broken.metadata.annotations = Some([(ANNOTATION.to_owned(), "a,b c".to_owned())].into());
        assert!(NodeSelector::of(&broken).unwrap_err().contains("\"b c\""));
        assert_eq!(
            NodeSelector::parse("b,a=1"),
            NodeSelector::parse(" a = 1, b")
        );
    }
}
