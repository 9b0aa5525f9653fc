//! Checks a provider's answers to GetProviderInfo and Initialize. Pure.

use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;

use super::claims::NO_CLASS;
use super::limits::{self, LEAST_REQUEST_BYTES, NAME_LIMIT};

/// The most prefixes of provider IDs that a provider may claim.
const MOST_PREFIXES: usize = 16;
/// The most classes that a provider may claim. The Lease stores them, and by default the leader
/// writes the Lease every two seconds.
const MOST_CLASSES: usize = 64;

/// This controller's version.
pub(super) const CONTROLLER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the ccm can work with this provider. An error is a sentence for the operator.
pub(super) fn check_info(info: &api::GetProviderInfoResponse) -> Result<(), String> {
    let name = limits::shown(&info.provider_name);
    if info.min_controller_minor > api::CONTRACT_MINOR {
        return Err(format!(
            "provider {name:?} version {:?} needs a controller that speaks minor {} or higher of the contract v1alpha1; this ccm {CONTROLLER_VERSION} \
             speaks minor {}: upgrade the ccm, or run an older version of the provider",
            limits::shown(&info.provider_version),
            info.min_controller_minor,
            api::CONTRACT_MINOR,
        ));
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if info.provider_name.is_empty()
        || info.provider_name.len() > 63
        || !info.provider_name.bytes().all(plain)
    {
        return Err(format!(
            "provider_name {name:?} is not 1 to 63 lower-case letters, digits and dashes"
        ));
    }
    if info.boot_id.is_empty() || info.boot_id.len() > NAME_LIMIT {
        return Err(format!(
            "boot_id of provider {name:?} has {} bytes; 1 to {NAME_LIMIT} are allowed",
            info.boot_id.len()
        ));
    }
    check_claims(info, name)?;
    if let Some(bytes) = info.max_request_bytes
        && bytes < LEAST_REQUEST_BYTES
    {
        return Err(format!(
            "max_request_bytes of provider {name:?} is {bytes}; at least {LEAST_REQUEST_BYTES} are needed"
        ));
    }
    Ok(())
}

/// Whether the ccm can work with the provider's prefixes of provider IDs and classes of load
/// balancers.
fn check_claims(info: &api::GetProviderInfoResponse, name: &str) -> Result<(), String> {
    let prefixes = &info.provider_id_prefixes;
    let offers_instances = info
        .capabilities
        .as_ref()
        .is_some_and(|offered| offered.instances.is_some());
    if prefixes.len() > MOST_PREFIXES || (offers_instances && prefixes.is_empty()) {
        return Err(format!(
            "provider {name:?} has {} provider_id_prefixes; with instances 1 to {MOST_PREFIXES} are allowed",
            prefixes.len()
        ));
    }
    if let Some(prefix) = prefixes.iter().find(|prefix| !prefix.contains("://")) {
        return Err(format!(
            "one of the provider_id_prefixes of provider {name:?}, {:?}, has no \"://\": it would claim the Nodes of others (PROV-8)",
            limits::shown(prefix)
        ));
    }
    let balancers = info.capabilities.as_ref();
    let balancers = balancers.and_then(|offered| offered.load_balancers.as_ref());
    let classes = balancers.map_or(&[][..], |balancers| &balancers.classes);
    if classes.len() > MOST_CLASSES {
        return Err(format!(
            "provider {name:?} has {} classes of load balancers; at most {MOST_CLASSES} are allowed",
            classes.len()
        ));
    }
    if classes.iter().any(|class| class == NO_CLASS) {
        return Err(format!(
            "provider {name:?} has a class of load balancers with the name {NO_CLASS:?}, which stands for Services without a class; right would be a name with a prefix, such as example.com/lb"
        ));
    }
    // Prefixes and classes appear in a command that an operator is asked to run.
    let allowed = |char: char| char.is_ascii_alphanumeric() || "._:/@+-".contains(char);
    let strange =
        |text: &&String| text.is_empty() || text.len() > NAME_LIMIT || !text.chars().all(allowed);
    if let Some(claim) = prefixes.iter().chain(classes).find(strange) {
        return Err(format!(
            "a prefix of provider IDs or class of load balancers of provider {name:?}, {:?}, is not 1 to {NAME_LIMIT} letters, digits and . _ : / @ + -",
            limits::shown(claim)
        ));
    }
    Ok(())
}

/// Whether an answer of Initialize keeps to the contract. The scope appears in a command that an
/// operator is asked to run.
pub(super) fn check_initialized(initialized: &api::Initialized) -> Result<(), String> {
    let scope = &initialized.cloud_scope;
    if !(1..=NAME_LIMIT).contains(&scope.len()) {
        return Err(format!(
            "the cloud_scope that Initialize answered has {} bytes; 1 to {NAME_LIMIT} are allowed (PROV-9)",
            scope.len()
        ));
    }
    let allowed = |char: char| char.is_ascii_alphanumeric() || " ._:/,@=+-".contains(char);
    match scope.chars().find(|char| !allowed(*char)) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "the cloud_scope that Initialize answered, {:?}, has the character {wrong:?}; letters, digits, spaces and . _ : / , @ = + - are allowed (PROV-9)",
            limits::shown(scope)
        )),
    }
}

/// The longest duration of each kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    pub(crate) lookup: Duration,
    pub(super) list: Duration,
    pub(crate) load_balancer: Duration,
    pub(super) routes: Duration,
}

impl Deadlines {
    /// The contract's defaults, raised by the provider's hints up to `cap`. A hint never lowers a
    /// default.
    pub(super) fn raised(hints: Option<&api::DeadlineHints>, cap: Duration) -> Self {
        let none = api::DeadlineHints::default();
        let hints = hints.unwrap_or(&none);
        let raised = |default: u64, hint: &Option<prost_types::Duration>| {
            let hint = hint.as_ref().and_then(limits::duration).unwrap_or_default();
            Duration::from_secs(default).max(hint.min(cap))
        };
        Self {
            lookup: raised(60, &hints.lookup),
            list: raised(300, &hints.list),
            load_balancer: raised(300, &hints.load_balancer),
            routes: raised(120, &hints.routes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> api::GetProviderInfoResponse {
        api::GetProviderInfoResponse {
            provider_name: "mock".into(),
            provider_version: "1.2.3".into(),
            boot_id: "b".into(),
            provider_id_prefixes: vec!["mock://".into()],
            capabilities: Some(api::Capabilities {
                instances: Some(api::InstanceCapability::default()),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// Finding B3: an operator is asked to run a command that contains the scope.
    #[test]
    fn prov_9_a_scope_has_no_character_that_a_shell_obeys() {
        let check = |scope: &str| {
            check_initialized(&api::Initialized {
                cloud_scope: scope.to_owned(),
                ..Default::default()
            })
        };
        for good in ["a", "acct-1/eu_2 @x.y:z, a=b+c", &"x".repeat(253)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "a$(id)",
            "a`id`",
            "a'b",
            "a\"b",
            "a;b",
            "a\nb",
            "größe",
            "a\u{202e}b",
        ] {
            assert!(check(bad).unwrap_err().contains("PROV-9"), "{bad}");
        }
        assert!(check(&"x".repeat(254)).is_err());
    }

    #[test]
    fn a_newer_contract_is_no_reason_unless_it_says_so() {
        assert_eq!(check_info(&good()), Ok(()));
        let newer = api::GetProviderInfoResponse {
            contract_minor: 99,
            ..good()
        };
        assert_eq!(check_info(&newer), Ok(()));
        let demanding = api::GetProviderInfoResponse {
            contract_minor: 99,
            min_controller_minor: 98,
            ..good()
        };
        let message = check_info(&demanding).unwrap_err();
        for text in ["1.2.3", "98", CONTROLLER_VERSION, "upgrade the ccm"] {
            assert!(message.contains(text), "{message}");
        }
    }

    #[test]
    fn what_breaks_the_contract_is_refused() {
        type Change = fn(&mut api::GetProviderInfoResponse);
        let rows: [(&str, Change); 14] = [
            ("provider_name", |info| info.provider_name.clear()),
            ("provider_name", |info| info.provider_name = "Mock".into()),
            ("provider_name", |info| info.provider_name = "m".repeat(64)),
            ("boot_id", |info| info.boot_id.clear()),
            ("boot_id", |info| info.boot_id = "b".repeat(254)),
            ("prefixes", |info| info.provider_id_prefixes.clear()),
            ("prefixes", |info| {
                info.provider_id_prefixes = vec![String::new()];
            }),
            ("prefixes", |info| {
                info.provider_id_prefixes = vec!["p".repeat(254)];
            }),
            ("prefixes", |info| {
                info.provider_id_prefixes = (0..17).map(|n| format!("{n}://")).collect();
            }),
            ("PROV-8", |info| {
                info.provider_id_prefixes = vec!["aws:".into()];
            }),
            ("letters, digits", |info| {
                info.provider_id_prefixes = vec!["aws://$(reboot)".into()];
            }),
            ("letters, digits", |info| {
                let offered = info.capabilities.as_mut().unwrap();
                offered.load_balancers = Some(api::LoadBalancerCapability {
                    classes: vec!["a b".into()],
                    ..Default::default()
                });
            }),
            ("65 classes", |info| {
                let offered = info.capabilities.as_mut().unwrap();
                offered.load_balancers = Some(api::LoadBalancerCapability {
                    classes: (0..65).map(|n| format!("c{n}")).collect(),
                    ..Default::default()
                });
            }),
            ("max_request_bytes", |info| {
                info.max_request_bytes = Some(65_535);
            }),
        ];
        for (text, change) in rows {
            let mut info = good();
            change(&mut info);
            let message = check_info(&info).unwrap_err();
            assert!(message.contains(text), "{message}");
        }
        let mut without_instances = good();
        without_instances.capabilities = None;
        without_instances.provider_id_prefixes.clear();
        assert_eq!(check_info(&without_instances), Ok(()));
    }

    #[test]
    fn hints_raise_deadlines_up_to_the_cap_and_never_lower_them() {
        let hint = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let hints = api::DeadlineHints {
            lookup: hint(90),
            list: hint(10),
            load_balancer: hint(86_400),
            routes: hint(-5),
        };
        let raised = Deadlines::raised(Some(&hints), Duration::from_mins(15));
        let secs = |d: Duration| d.as_secs();
        assert_eq!(secs(raised.lookup), 90);
        assert_eq!(secs(raised.list), 300);
        assert_eq!(secs(raised.load_balancer), 900);
        assert_eq!(secs(raised.routes), 120);
    }
}
