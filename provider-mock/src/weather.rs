//! The cloud's weather: faults of all of its operations, until it changes.

use std::time::Duration;

use provider_sdk::{Failure, FailureCode};
use serde::{Deserialize, Serialize};

/// The weather applies to every operation that reaches the cloud, reads and writes. Answers from a
/// provider's memory neither fail nor wait. But Probe says DEGRADED, instead of READY, while
/// operations fail with a code other than PRECONDITION.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Weather {
    /// Operations fail with this code.
    #[serde(with = "code")]
    pub fail: Option<FailureCode>,
    /// The delay before each operation, in milliseconds.
    pub slow_ms: u64,
}

impl Weather {
    /// The delay before each operation.
    pub(crate) fn delay(self) -> Duration {
        Duration::from_millis(self.slow_ms)
    }

    /// The failure of an operation, if any.
    pub(crate) fn failure(self) -> Option<Failure> {
        let code = self.fail?;
        let failure = Failure::new(
            code,
            format!("the cloud is set to answer {code} to every operation"),
        );
        Some(match code {
            FailureCode::Throttled => failure.retry_after(Duration::from_secs(1)),
            _ => failure,
        })
    }
}

/// Whether the cloud itself failed. PRECONDITION is an answer of a working cloud (PROV-16).
pub(crate) fn is_trouble(failure: &Failure) -> bool {
    failure.code() != FailureCode::Precondition
}

mod code {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use crate::fixture::failure_code;
    use provider_sdk::FailureCode;

    #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
    pub(super) fn serialize<S: Serializer>(
        code: &Option<FailureCode>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        code.map(FailureCode::as_str).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<FailureCode>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| failure_code(&text).map_err(de::Error::custom))
            .transpose()
    }
}
