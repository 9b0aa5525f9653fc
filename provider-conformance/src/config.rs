//! suite.yaml: facts about the cloud that the suite cannot know.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::hooks::Hook;

/// The content of suite.yaml. All of it is optional.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Instances in the cloud. If a check needs more, those of ListInstances replace them, if it is
    /// offered.
    pub instances: Vec<KnownInstance>,
    /// Volumes in the cloud.
    pub volumes: Vec<KnownVolume>,
    /// Clusters in the cloud.
    pub clusters: Vec<KnownCluster>,
    /// Annotations that this cloud requires for a load balancer.
    pub service_annotations: BTreeMap<String, String>,
    /// Annotations with which two Services share one load balancer. Empty if all Services share
    /// one.
    pub shared_load_balancer: Option<BTreeMap<String, String>>,
    /// Whether a load balancer of this cloud can be without targets.
    pub empty_target_sets: EmptyTargetSets,
    /// Whether this cloud can store the owner's mark on a route.
    pub route_marks: RouteMarks,
    /// The network for the destinations of the suite's IPv4 routes.
    pub route_cidr: RouteCidr,
    /// A well-formed provider ID of this cloud, for IDs without an instance. Each `#` becomes a
    /// digit.
    pub provider_id_pattern: Option<String>,
    /// Texts that no answer may contain: parts of the provider's credentials.
    pub secrets: Vec<String>,
    /// Shell commands that change or read the cloud directly.
    pub hooks: BTreeMap<Hook, String>,
}

/// The effect of an empty target set (LB-31).
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EmptyTargetSets {
    /// The load balancer then has no targets.
    #[default]
    Taken,
    /// The provider answers PRECONDITION, because this cloud has no load balancers without targets.
    Refused,
}

/// Whether a cloud can store a mark on a route (ROUTE-3, ROUTE-12).
#[derive(Debug, Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RouteMarks {
    /// Created routes have the owner's mark, and are OURS.
    #[default]
    Kept,
    /// Every route is UNMARKED.
    None,
}

/// An unused IPv4 network for the routes of a run. Each IPv4 route leads to a /24 of it.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct RouteCidr {
    first: u32,
    length: u8,
}

impl Default for RouteCidr {
    /// The shared address space of RFC 6598, which clusters seldom use.
    fn default() -> Self {
        Self {
            first: u32::from_be_bytes([100, 64, 0, 0]),
            length: 10,
        }
    }
}

impl TryFrom<String> for RouteCidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(address, length)| {
            let first: u32 = address.parse::<std::net::Ipv4Addr>().ok()?.into();
            let length: u8 = length.parse().ok()?;
            let whole =
                (1..=12).contains(&length) && first.trailing_zeros() >= 32 - u32::from(length);
            whole.then_some(Self { first, length })
        });
        parsed.ok_or(format!(
            "route_cidr: {text:?} is no IPv4 network of /12 or larger; use a free one, such as 172.16.0.0/12"
        ))
    }
}

impl std::fmt::Display for RouteCidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = std::net::Ipv4Addr::from(self.first);
        write!(f, "{first}/{}", self.length)
    }
}

impl RouteCidr {
    /// How many /24 networks it has.
    pub(crate) fn parts(self) -> u64 {
        1 << (24 - self.length)
    }

    /// The /24 network with this number. After the last network, the numbers go on with the first
    /// one again.
    pub(crate) fn part(self, number: u64) -> String {
        let within = u32::try_from(number % self.parts()).unwrap_or_default() << 8;
        format!("{}/24", std::net::Ipv4Addr::from(self.first | within))
    }
}

/// The fewest `#` of a pattern. With fewer, an invented ID is too likely to be that of a real
/// instance.
const FEWEST_DIGITS: usize = 6;
/// The longest pattern (CORE-11).
const LONGEST_PATTERN: usize = 1024;

/// An instance of the cloud.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct KnownInstance {
    /// The name of its Node.
    pub name: String,
    /// Its provider ID.
    #[serde(default)]
    pub provider_id: Option<String>,
    /// PRESENT, RUNNING or STOPPED, if it is known.
    #[serde(default)]
    pub state: Option<String>,
}

/// A volume of the cloud.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownVolume {
    /// The field of `spec` with the source.
    #[serde(default = "csi")]
    pub source_type: String,
    /// The fields of the source.
    pub source: BTreeMap<String, String>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A cluster of the cloud.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownCluster {
    /// Its name.
    pub name: String,
    /// The address of its control plane.
    #[serde(default)]
    pub address: Option<String>,
}

fn csi() -> String {
    "csi".into()
}

/// An error in suite.yaml.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ConfigError {
    place: String,
    what: String,
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            place: place.clone(),
            what: format!("the file cannot be read: {error}"),
        })?;
        Self::parse(&text, &place)
    }

    /// Parses a text. Errors name it `place`.
    pub fn parse(text: &str, place: &str) -> Result<Self, ConfigError> {
        let config: Option<Self> = serde_yaml::from_str(text).map_err(|error| {
            let at = error.location().map_or_else(
                || place.to_owned(),
                |at| format!("{place}:{}:{}", at.line(), at.column()),
            );
            let what = error.without_snippet().to_string();
            // The error's `place` has the position already.
            let what = what
                .split(" at line ")
                .next()
                .unwrap_or_default()
                .to_owned();
            ConfigError {
                place: at,
                what: nearest(&what)
                    .map_or(what.clone(), |key| format!("{what}; did you mean `{key}`?")),
            }
        })?;
        let config = config.unwrap_or_default();
        for instance in &config.instances {
            if let Some(state) = &instance.state
                && !["PRESENT", "RUNNING", "STOPPED"].contains(&state.as_str())
            {
                return Err(ConfigError {
                    place: place.to_owned(),
                    what: format!(
                        "instances: {}: state: {state:?} is not known; write PRESENT, RUNNING or STOPPED",
                        instance.name
                    ),
                });
            }
        }
        if let Some(pattern) = &config.provider_id_pattern {
            let digits = pattern.matches('#').count();
            if digits < FEWEST_DIGITS || pattern.len() > LONGEST_PATTERN {
                return Err(ConfigError {
                    place: place.to_owned(),
                    what: format!(
                        "provider_id_pattern: {pattern:?} has {digits} `#` and {} bytes; write a provider ID of this cloud of at most {LONGEST_PATTERN} bytes with at least {FEWEST_DIGITS} `#`, each of which becomes a digit",
                        pattern.len()
                    ),
                });
            }
        }
        Ok(config)
    }

    /// Checks that the pattern begins with one of the provider's prefixes.
    pub(super) fn fits(&self, prefixes: &[String]) -> Result<(), String> {
        match &self.provider_id_pattern {
            Some(pattern) if !prefixes.iter().any(|prefix| pattern.starts_with(prefix)) => {
                Err(format!(
                    "provider_id_pattern: {pattern:?} begins with none of the provider's prefixes {prefixes:?}"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// The known key that is most similar to the unknown one in serde's message.
fn nearest(sentence: &str) -> Option<&str> {
    let (unknown, known) = sentence.split_once(", expected ")?;
    let asked = unknown.strip_prefix("unknown ")?.split('`').nth(1)?;
    known
        .trim_start_matches("one of ")
        .split([' ', ',', '`'])
        .filter(|word| !word.is_empty() && *word != "or")
        .map(|known| (strsim::jaro_winkler(asked, known), known))
        .filter(|(alike, _)| *alike > 0.7)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_one() {
        for (text, words) in [
            (
                "instance: []\n",
                &["suite.yaml:1:", "`instance`", "did you mean `instances`"][..],
            ),
            (
                "hooks:\n  cloud-slows: x\n",
                &["suite.yaml:2:", "cloud-slows", "did you mean `cloud-slow`"][..],
            ),
            (
                "instances:\n- nam: x\n",
                &["suite.yaml:2:", "did you mean `name`"][..],
            ),
            (
                "instances:\n- {name: x, state: GONE}\n",
                &["x: state", "GONE", "RUNNING"][..],
            ),
            (
                "empty_target_sets: never\n",
                &["suite.yaml:1:", "never", "taken", "refused"][..],
            ),
            (
                "route_marks: tags\n",
                &["suite.yaml:1:", "tags", "kept", "none"][..],
            ),
            (
                "route_cidr: 10.0.0.0/16\n",
                &["route_cidr", "10.0.0.0/16", "/12 or larger"][..],
            ),
            (
                "route_cidr: 172.17.0.0/12\n",
                &["172.17.0.0/12", "172.16.0.0/12"][..],
            ),
            (
                "provider_id_pattern: x://#####\n",
                &["provider_id_pattern", "x://#####", "5 `#`", "at least 6"][..],
            ),
        ] {
            let error = Config::parse(text, "suite.yaml")
                .expect_err(text)
                .to_string();
            for word in words {
                assert!(error.contains(word), "{word:?} is not in: {error}");
            }
        }
    }

    #[test]
    fn a_pattern_of_provider_ids_begins_with_a_prefix_of_the_provider() {
        let config = Config::parse("provider_id_pattern: x://i-######\n", "suite.yaml").unwrap();
        assert_eq!(config.fits(&["y://".into(), "x://".into()]), Ok(()));
        let error = config.fits(&["y://".into()]).unwrap_err();
        assert!(error.contains("x://i-######") && error.contains("y://"));
        assert_eq!(Config::default().fits(&[]), Ok(()));
    }

    #[test]
    fn routes_lead_to_parts_of_the_network_that_suite_yaml_names() {
        let config = Config::parse("route_cidr: 172.16.0.0/12\n", "suite.yaml").unwrap();
        assert_eq!(config.route_cidr.to_string(), "172.16.0.0/12");
        let parts = [0, 1, 4095, 4096].map(|number| config.route_cidr.part(number));
        assert_eq!(
            parts,
            [
                "172.16.0.0/24",
                "172.16.1.0/24",
                "172.31.255.0/24",
                "172.16.0.0/24"
            ]
        );
        let usual = Config::default().route_cidr;
        assert_eq!(usual.part(16_383), "100.127.255.0/24");
        assert_eq!(usual.to_string(), "100.64.0.0/10");
    }

    #[test]
    fn every_hook_is_a_key_and_an_empty_file_is_no_error() {
        assert!(Config::parse("", "suite.yaml").unwrap().hooks.is_empty());
        let lines: Vec<_> = Hook::ALL
            .iter()
            .map(|hook| format!("  {}: x", hook.key()))
            .collect();
        let text = format!("hooks:\n{}\n", lines.join("\n"));
        let config = Config::parse(&text, "suite.yaml").unwrap();
        assert_eq!(config.hooks.keys().copied().collect::<Vec<_>>(), Hook::ALL);
    }
}
