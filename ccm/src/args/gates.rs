//! `--feature-gates`: the gates of a Go CCM, so that the ccm accepts its command line. Notices say
//! what holds here.

use super::{InvalidFlag, Notice, parse};

/// A gate of a Go CCM built on k8s.io/cloud-provider v0.36.
#[derive(Debug)]
pub(super) struct Gate {
    name: &'static str,
    /// Its default in a Go CCM.
    default: bool,
    /// It cannot have another value.
    locked: bool,
    /// The value that holds here, and why, if the gate is about something that exists here.
    here: Option<(bool, &'static str)>,
}

const fn gate(name: &'static str, default: bool) -> Gate {
    Gate {
        name,
        default,
        locked: false,
        here: None,
    }
}

const fn locked(name: &'static str) -> Gate {
    Gate {
        locked: true,
        ..gate(name, true)
    }
}

const fn here(name: &'static str, default: bool, holds: bool, why: &'static str) -> Gate {
    Gate {
        here: Some((holds, why)),
        ..gate(name, default)
    }
}

const LIBRARIES: &str = "this gate concerns Go libraries that the ccm does not use";

#[rustfmt::skip]
const GATES: &[Gate] = &[
    gate("APIResponseCompression", true),
    gate("APIServerIdentity", true),
    locked("APIServerTracing"),
    gate("APIServingWithRoutine", false),
    locked("AggregatedDiscoveryRemoveBetaType"),
    here("AllAlpha", false, false, "this gate changes no other gate here"),
    here("AllBeta", false, false, "this gate changes no other gate here"),
    here("AllowParsingUserUIDFromCertAuth", true, true, "the ccm always reads the UID in a client certificate"),
    gate("AllowUnsafeMalformedObjectDeletion", false),
    locked("AnonymousAuthConfigurableEndpoints"),
    locked("AuthorizeWithSelectors"),
    locked("BtreeWatchCache"),
    gate("CBORServingAndStorage", false),
    here("CloudControllerManagerWatchBasedRoutesReconciliation", false, true, "watches always drive routes"),
    here("CloudControllerManagerWebhook", false, true, "the ccm serves the admission webhooks that --webhooks names"),
    here("ComponentFlagz", true, false, "/configz shows the configuration"),
    here("ComponentStatusz", true, true, "the ccm always serves /statusz"),
    gate("ConcurrentWatchObjectDecode", false),
    locked("ConsistentListFromCache"),
    gate("ConstrainedImpersonation", true),
    here("ContextualLogging", true, true, "log lines name their object"),
    here("ControllerManagerReleaseLeaderElectionLockOnExit", false, true, "the ccm releases the Lease on SIGTERM, unless a call that changes the cloud has no answer"),
    gate("CoordinatedLeaderElection", false),
    locked("DeclarativeValidation"),
    gate("DeclarativeValidationBeta", true),
    gate("DeclarativeValidationTakeover", false),
    gate("DetectCacheInconsistency", true),
    gate("KMSv1", false),
    gate("ListFromCacheSnapshot", true),
    here("LoggingAlphaOptions", false, false, "the ccm neither buffers nor splits log lines"),
    here("LoggingBetaOptions", true, true, "--logging-format=json needs no gate"),
    gate("ManifestBasedAdmissionControlConfig", false),
    gate("MutatingAdmissionPolicy", true),
    gate("OpenAPIEnums", true),
    here("RemoteRequestHeaderUID", true, true, "--requestheader-uid-headers needs no gate"),
    locked("ResilientWatchCacheInitialization"),
    gate("RetryGenerateName", true),
    gate("SeparateCacheWatchRPC", false),
    gate("ShardedListAndWatch", false),
    gate("SizeBasedListCostEstimate", true),
    gate("StorageVersionAPI", false),
    gate("StorageVersionHash", true),
    locked("StreamingCollectionEncodingToJSON"),
    locked("StreamingCollectionEncodingToProtobuf"),
    locked("StructuredAuthenticationConfiguration"),
    gate("StructuredAuthenticationConfigurationEgressSelector", true),
    gate("StructuredAuthenticationConfigurationJWKSMetrics", true),
    gate("TokenRequestServiceAccountUIDValidation", true),
    gate("UnauthenticatedHTTP2DOSMitigation", true),
    gate("UnknownVersionInteroperabilityProxy", true),
    gate("WatchCacheInitializationPostStartHook", true),
    gate("WatchList", true),
];

const FLAG: &str = "--feature-gates";

/// A notice for each gate that was set to another value than the one that holds here. If the gate
/// concerns nothing here, its default counts. Errors go to `wrong`.
pub(super) fn answers(given: &[String], wrong: &mut Vec<InvalidFlag>) -> Vec<Notice> {
    let mut answers = Vec::new();
    for setting in given.iter().map(|setting| setting.trim()) {
        if setting.is_empty() {
            continue;
        }
        match answer(setting) {
            Ok(None) => {}
            Ok(Some(text)) => answers.push(Notice::new(FLAG, format!("{setting}: {text}"))),
            Err(expected) => wrong.push(InvalidFlag::new(FLAG, setting, expected)),
        }
    }
    answers
}

fn answer(setting: &str) -> Result<Option<&'static str>, String> {
    let Some((name, value)) = setting.split_once('=') else {
        return Err("GATE=true or GATE=false".to_owned());
    };
    let Some(gate) = GATES.iter().find(|gate| gate.name == name.trim()) else {
        let known: Vec<_> = GATES.iter().map(|gate| gate.name).collect();
        return Err(format!("a known gate: {}", known.join(", ")));
    };
    let on =
        parse::boolean(value.trim()).map_err(|_| format!("{}=true or {0}=false", gate.name))?;
    if gate.locked && on != gate.default {
        return Err(format!(
            "{}={}: the gate is locked",
            gate.name, gate.default
        ));
    }
    Ok(match gate.here {
        Some((holds, why)) => (on != holds).then_some(why),
        None => (on != gate.default).then_some(LIBRARIES),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_m5_gates_that_hold_here_are_silent_and_others_are_answered() {
        for (setting, word) in [
            (
                "CloudControllerManagerWatchBasedRoutesReconciliation=true",
                None,
            ),
            (
                "CloudControllerManagerWatchBasedRoutesReconciliation=false",
                Some("watches"),
            ),
            ("ControllerManagerReleaseLeaderElectionLockOnExit=1", None),
            ("CloudControllerManagerWebhook=true", None),
            ("CloudControllerManagerWebhook=F", Some("webhooks")),
            ("APIServerIdentity=true", None),
            ("APIServerIdentity=false", Some("Go libraries")),
            ("APIServerTracing=true", None),
            (" WatchList = true ", None),
        ] {
            let reported = answer(setting.trim()).unwrap();
            match word {
                None => assert_eq!(reported, None, "{setting}"),
                Some(word) => assert!(
                    reported.is_some_and(|text| text.contains(word)),
                    "{setting}: {reported:?}"
                ),
            }
        }
    }

    #[test]
    fn b_m5_unknown_and_locked_gates_are_errors() {
        for (setting, words) in [
            (
                "NoSuchGate=true",
                ["AllAlpha", "CloudControllerManagerWebhook", "WatchList"],
            ),
            ("WatchList", ["GATE=true", "GATE=false", ""]),
            ("WatchList=maybe", ["WatchList=true", "WatchList=false", ""]),
            (
                "APIServerTracing=false",
                ["APIServerTracing=true", "locked", ""],
            ),
        ] {
            let error = answer(setting).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{setting}: {error}");
            }
        }
        assert!(GATES.is_sorted_by_key(|gate| gate.name));
    }
}
