//! The owner of a Node without a provider ID, if several providers are asked. Pure.

use cloud_provider_api::v1alpha1 as api;

use crate::provider::CallError;

/// The owner of a Node without a provider ID, according to the providers' answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim<'a> {
    /// This provider claims it.
    One(&'a str),
    /// Several providers claim it: record an event, and keep the taint.
    Several(Vec<&'a str>),
    /// All providers answered, and none claims it.
    Nobody,
    /// A call failed, or an answer has an unknown state: wait.
    Undecided,
}

/// The provider that claims a Node. PRESENT, RUNNING, STOPPED and PENDING claim it. A failure or an
/// unknown state leaves the owner undecided.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "for clusters with several providers")
)]
pub(crate) fn claim<'a>(answers: &[(&'a str, &Result<api::Instance, CallError>)]) -> Claim<'a> {
    use api::InstanceState as S;
    let mut claims = Vec::new();
    for (name, answer) in answers {
        let Ok(instance) = answer else {
            return Claim::Undecided;
        };
        match S::try_from(instance.state) {
            Ok(S::Present | S::Running | S::Stopped | S::Pending) => claims.push(*name),
            Ok(S::Absent | S::Unmanaged) => {}
            Ok(S::Unspecified) | Err(_) => return Claim::Undecided,
        }
    }
    match claims.as_slice() {
        [] => Claim::Nobody,
        [one] => Claim::One(one),
        _ => Claim::Several(claims),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::CallErrorCode;

    #[test]
    fn exactly_one_claim_wins_and_a_failure_decides_nothing() {
        use api::InstanceState as S;
        let answer = |state: S| {
            Ok(api::Instance {
                state: state.into(),
                ..Default::default()
            })
        };
        let failed = Err(CallError::new(CallErrorCode::Unavailable, "m"));
        let rows = [
            (answer(S::Present), answer(S::Absent), Claim::One("one")),
            (answer(S::Unmanaged), answer(S::Running), Claim::One("two")),
            (answer(S::Stopped), answer(S::Absent), Claim::One("one")),
            (answer(S::Pending), answer(S::Absent), Claim::One("one")),
            (
                answer(S::Pending),
                answer(S::Present),
                Claim::Several(vec!["one", "two"]),
            ),
            (answer(S::Absent), answer(S::Unmanaged), Claim::Nobody),
            (answer(S::Present), failed.clone(), Claim::Undecided),
            (failed, answer(S::Absent), Claim::Undecided),
            (answer(S::Unspecified), answer(S::Present), Claim::Undecided),
        ];
        for (one, two, expected) in rows {
            assert_eq!(claim(&[("one", &one), ("two", &two)]), expected);
        }
        assert_eq!(claim(&[]), Claim::Nobody);
    }
}
