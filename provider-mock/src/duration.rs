//! Durations as text: `50ms`, `2s`, `1m`, `1h`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration as text: a whole number and a unit, such as `50ms`, `2s`, `1m`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// Zero.
    pub const ZERO: Self = Self(Duration::ZERO);
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "{text:?} is not a duration; write a whole number and a unit, such as 50ms, 2s, 1m or 1h"
            )
        };
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let millis = match unit {
            "ms" => Some(number),
            "s" => number.checked_mul(1_000),
            "m" => number.checked_mul(60_000),
            "h" => number.checked_mul(3_600_000),
            "" if number == 0 => Some(0),
            _ => None,
        };
        millis
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(wrong)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            ms if ms > 0 && ms.is_multiple_of(3_600_000) => write!(f, "{}h", ms / 3_600_000),
            ms if ms > 0 && ms.is_multiple_of(60_000) => write!(f, "{}m", ms / 60_000),
            ms if ms > 0 && ms.is_multiple_of(1_000) => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_alike() {
        for (text, millis) in [
            ("0ms", 0),
            ("50ms", 50),
            ("2s", 2_000),
            ("1m", 60_000),
            ("3h", 10_800_000),
        ] {
            let duration: HumanDuration = text.parse().unwrap();
            assert_eq!(duration.0.as_millis(), millis);
            assert_eq!(duration.to_string(), text);
        }
        assert_eq!("0".parse(), Ok(HumanDuration::ZERO));
    }

    #[test]
    fn a_wrong_duration_says_what_would_be_right() {
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "2 s",
            "2d",
            "99999999999999999999s",
        ] {
            let error = text.parse::<HumanDuration>().unwrap_err();
            assert!(
                error.contains(&format!("{text:?}")) && error.contains("50ms"),
                "{error}"
            );
        }
    }
}
