//! Which claims of a provider count: classes and provider ID prefixes (▲S21). Pure.
//!
//! The operator's flags limit which claims count. Without a flag, only the claims that the provider
//! made first in its cloud scope count. The Lease remembers them, or without one the process. A
//! later claim is held until an operator accepts it, unless it is a prefix that begins with an
//! accepted one.

use std::collections::BTreeSet;

use cloud_provider_api::v1alpha1 as api;

use crate::args::ProviderEndpoint;

/// The entry in the list of classes that means Services without a class.
pub(super) const NO_CLASS: &str = "default";
/// Precedes the cloud scope in the stored text. The scope may contain spaces, so it comes last.
const OF_SCOPE: &str = " scope=";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Claims {
    classes: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl Claims {
    /// All claims of the provider.
    fn of(info: &api::GetProviderInfoResponse) -> Self {
        let offered = info.capabilities.as_ref();
        let balancers = offered.and_then(|offered| offered.load_balancers.as_ref());
        let mut classes: BTreeSet<String> = balancers
            .map(|balancers| balancers.classes.iter().cloned().collect())
            .unwrap_or_default();
        if balancers.is_some_and(|balancers| balancers.default_class) {
            classes.insert(NO_CLASS.to_owned());
        }
        Self {
            classes,
            prefixes: info.provider_id_prefixes.iter().cloned().collect(),
        }
    }

    /// Reads the text that the Lease remembers. `None` if it is for another cloud scope. An
    /// unreadable text has no claims: then all claims of the provider are new.
    fn remembered(text: &str, scope: &str) -> Option<Self> {
        match text.split_once(OF_SCOPE) {
            Some((_, other)) if other != scope => None,
            Some((lists, _)) => Some(Self::parse(lists)),
            None => Some(Self::parse(text)),
        }
    }

    fn parse(text: &str) -> Self {
        let list = |name: &str| {
            let lists = text.split_whitespace();
            let found = lists.filter_map(|list| list.strip_prefix(name)?.strip_prefix('='));
            found
                .flat_map(|list| list.split(','))
                .filter(|one| !one.is_empty())
                .map(str::to_owned)
                .collect()
        };
        Self {
            classes: list("classes"),
            prefixes: list("prefixes"),
        }
    }

    /// The text that the Lease remembers: `classes=A,B prefixes=C scope=S`.
    fn text_for(&self, scope: &str) -> String {
        format!("{}{OF_SCOPE}{scope}", self.text())
    }

    fn text(&self) -> String {
        let list = |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>().join(",");
        format!(
            "classes={} prefixes={}",
            list(&self.classes),
            list(&self.prefixes)
        )
    }

    fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.prefixes.is_empty()
    }

    fn and(&self, other: &Self) -> Self {
        Self {
            classes: &self.classes | &other.classes,
            prefixes: &self.prefixes | &other.prefixes,
        }
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            classes: &self.classes - &other.classes,
            prefixes: &self.prefixes - &other.prefixes,
        }
    }
}

/// A provider's claims, judged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counted {
    /// The provider's info, with the claims that count.
    pub(crate) info: api::GetProviderInfoResponse,
    /// Claims outside the operator's flags. Only other flags let them count.
    refused: Claims,
    /// Claims that the Lease does not remember. They wait for an operator.
    held: Claims,
    /// The text that the Lease has to remember now, if it remembers no claims of this cloud scope
    /// yet.
    pub(crate) to_record: Option<String>,
    /// The text that the Lease remembers once an operator has accepted the held claims.
    accepted: String,
}

/// The provider's info, with the claims that the operator's flags allow. Nothing else can
/// be judged before the cloud scope is known.
pub(crate) fn within_bounds(
    info: &api::GetProviderInfoResponse,
    endpoint: &ProviderEndpoint,
) -> api::GetProviderInfoResponse {
    judge(info, endpoint, None, "").info
}

/// Judges a provider's claims by the operator's flags, and by the text that the Lease remembers.
pub(crate) fn judge(
    info: &api::GetProviderInfoResponse,
    endpoint: &ProviderEndpoint,
    remembered: Option<&str>,
    scope: &str,
) -> Counted {
    let said = Claims::of(info);
    let remembered = remembered.and_then(|text| Claims::remembered(text, scope));
    let known = remembered.clone().unwrap_or_else(|| said.clone());
    let known_prefixes: Vec<String> = known.prefixes.iter().cloned().collect();
    let in_bounds = |one: &str, bounds: Option<&Vec<String>>| {
        bounds.is_none_or(|bounds| bounds.iter().any(|bound| bound == one))
    };
    let within = |one: &str, bounds: Option<&Vec<String>>| {
        bounds.is_none_or(|bounds| bounds.iter().any(|bound| one.starts_with(bound)))
    };
    let (classes, prefixes) = (
        endpoint.load_balancer_classes.as_ref(),
        endpoint.provider_id_prefixes.as_ref(),
    );
    let mut refused = said.clone();
    refused.classes.retain(|one| !in_bounds(one, classes));
    refused.prefixes.retain(|one| !within(one, prefixes));
    let mut held = said.without(&refused).without(&known);
    // A part of an accepted prefix is accepted too.
    held.prefixes
        .retain(|one| !within(one, Some(&known_prefixes)));
    // A flag says which claims are allowed, so these count at once.
    if classes.is_some() {
        held.classes.clear();
    }
    if prefixes.is_some() {
        held.prefixes.clear();
    }
    let out = refused.and(&held);
    // The accepted part of a prefix that does not count as a whole. Otherwise another spelling of
    // the same prefix would take all Nodes from the provider, and all targets from its load
    // balancers.
    let accepted = prefixes.unwrap_or(&known_prefixes);
    let is_part = |one: &&String| {
        let whole = |whole: &String| one.starts_with(whole);
        out.prefixes.iter().any(whole) && !said.prefixes.contains(*one)
    };
    let parts = accepted.iter().filter(is_part).cloned();
    let mut info = info.clone();
    info.provider_id_prefixes
        .retain(|one| !out.prefixes.contains(one));
    info.provider_id_prefixes.extend(parts);
    if let Some(offered) = &mut info.capabilities
        && let Some(balancers) = &mut offered.load_balancers
    {
        balancers.classes.retain(|one| !out.classes.contains(one));
        balancers.default_class &= !out.classes.contains(NO_CLASS);
    }
    Counted {
        info,
        refused,
        to_record: remembered.is_none().then(|| said.text_for(scope)),
        accepted: known.and(&held).text_for(scope),
        held,
    }
}

impl Counted {
    /// For the operator: which claims do not count, and what to do about them. Empty if all count.
    /// `command` is the beginning of a shell command. With `='…'` appended, it accepts the held
    /// claims. `command` is `None` without a Lease.
    pub(crate) fn complaint(&self, command: Option<&str>) -> String {
        let mut parts = Vec::new();
        if !self.refused.is_empty() {
            parts.push(format!(
                "the provider claims more than --load-balancer-classes and --provider-id-prefixes allow; the ccm does not serve: {}",
                self.refused.text()
            ));
        }
        if !self.held.is_empty() {
            let accept = command.map_or_else(
                || "restart the ccm".to_owned(),
                |command| format!("{command}='{}'", self.accepted),
            );
            parts.push(format!(
                "the provider claims more than before; the ccm does not serve it until you accept it: {}. To accept: {accept}",
                self.held.text()
            ));
        }
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(
        classes: &[&str],
        default_class: bool,
        prefixes: &[&str],
    ) -> api::GetProviderInfoResponse {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        api::GetProviderInfoResponse {
            provider_id_prefixes: owned(prefixes),
            capabilities: Some(api::Capabilities {
                load_balancers: Some(api::LoadBalancerCapability {
                    classes: owned(classes),
                    default_class,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn endpoint(classes: Option<&[&str]>, prefixes: Option<&[&str]>) -> ProviderEndpoint {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        ProviderEndpoint {
            name: "mock".to_owned(),
            socket: "/s".into(),
            peer_uid: None,
            accepted_cloud_scope: None,
            load_balancer_classes: classes.map(owned),
            provider_id_prefixes: prefixes.map(owned),
        }
    }

    #[test]
    fn s21_what_is_claimed_first_counts_and_is_remembered() {
        let said = info(&["a/b"], true, &["mock://"]);
        let counted = judge(&said, &endpoint(None, None), None, "account 1");
        assert_eq!(counted.info, said);
        assert_eq!(counted.complaint(Some("accept")), "");
        let text = counted.to_record.unwrap();
        assert_eq!(text, "classes=a/b,default prefixes=mock:// scope=account 1");
        let again = judge(&said, &endpoint(None, None), Some(&text), "account 1");
        assert_eq!((again.info, again.to_record), (said, None));
        // In the other scope these claims are the first ones.
        let other = info(&["c/d"], false, &["aws:///"]);
        let counted = judge(&other, &endpoint(None, None), Some(&text), "account 2");
        assert_eq!(counted.info, other);
        let text = counted.to_record.unwrap();
        assert_eq!(text, "classes=c/d prefixes=aws:/// scope=account 2");
    }

    #[test]
    fn s21_of_another_spelling_of_a_prefix_what_was_accepted_counts() {
        let counts = |said: &str, flag: Option<&[&str]>, before: Option<&str>| {
            let said = info(&[], true, &[said]);
            let counted = judge(&said, &endpoint(None, flag), before, "account 1");
            let complains = !counted.complaint(Some("accept")).is_empty();
            (counted.info.provider_id_prefixes.join(","), complains)
        };
        let before = Some("classes=default prefixes=aws:///");
        assert_eq!(counts("aws:///", None, before), ("aws:///".into(), false));
        // A part of what was accepted, more than that, and something else.
        assert_eq!(
            counts("aws:///eu", None, before),
            ("aws:///eu".into(), false)
        );
        assert_eq!(counts("aws://", None, before), ("aws:///".into(), true));
        assert_eq!(counts("gce://", None, before), (String::new(), true));
        let flag = Some(&["aws:///"][..]);
        assert_eq!(counts("aws://", flag, None), ("aws:///".into(), true));
        assert_eq!(counts("gce://", flag, None), (String::new(), true));
    }

    #[test]
    fn s21_what_is_new_is_held_until_it_is_accepted() {
        let before = "classes=a/b prefixes=mock://";
        let said = info(&["a/b", "other/nlb"], true, &["mock://", "aws:///"]);
        let counted = judge(&said, &endpoint(None, None), Some(before), "account 1");
        assert_eq!(counted.info, info(&["a/b"], false, &["mock://"]));
        let words = counted.complaint(Some("kubectl annotate KEY"));
        assert!(
            words.contains("classes=default,other/nlb prefixes=aws:///"),
            "{words}"
        );
        let (_, accepted) = words.split_once("kubectl annotate KEY='").unwrap();
        let accepted = accepted.trim_end_matches('\'');
        let counted = judge(&said, &endpoint(None, None), Some(accepted), "account 1");
        assert_eq!((counted.info, counted.to_record), (said, None));
        // An accepted claim stays accepted, also while the provider claims less.
        let counted = judge(
            &info(&[], false, &[]),
            &endpoint(None, None),
            Some(before),
            "account 1",
        );
        assert_eq!(counted.to_record, None);
    }

    #[test]
    fn s21_within_the_operators_bounds_it_counts_at_once_and_beyond_them_never() {
        let bounds = endpoint(Some(&["a/b", NO_CLASS]), Some(&["mock://"]));
        let said = info(&["a/b", "c/d"], true, &["mock://zone-1", "aws://"]);
        for remembered in [None, Some("classes= prefixes="), Some("garbage")] {
            let counted = judge(&said, &bounds, remembered, "account 1");
            assert_eq!(counted.info, info(&["a/b"], true, &["mock://zone-1"]));
            let words = counted.complaint(Some("accept"));
            assert!(words.contains("classes=c/d prefixes=aws://"), "{words}");
            assert!(words.contains("--load-balancer-classes"), "{words}");
            assert!(!words.contains("accept="), "{words}");
        }
    }
}
