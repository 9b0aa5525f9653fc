//! Failures are in the answer's body (CORE-4, CORE-5, CORE-11, CORE-12, CORE-15).

use std::collections::BTreeMap;
use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};

use super::super::check::{Check, Need, Stop, Verdict, check, must};
use super::super::hooks::Hook;
use super::super::run::{Run, may_know};
use super::super::target::CANARY;
use super::tour::{self, Service, Told};

const FAIL: Need = Need::Hook(Hook::CloudFail);
/// Longer than every limit of a text.
const LONG: usize = 4_000;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/every-offered-rpc-is-served",
            ["CORE-5", "CORE-4"],
            "the provider answers every RPC of an offered service with gRPC status OK",
            offered
        ),
        check!(
            "core/what-is-not-offered-is-not-served",
            ["CORE-5"],
            "the provider does not serve an RPC without its capability block",
            not_offered
        ),
        check!(
            "core/a-throttled-cloud-is-throttled",
            ["CORE-4", "CORE-15"],
            "if the cloud throttles, an answer that needs the cloud is `failed` with THROTTLED, in the body",
            [FAIL],
            |run| cloud_fails(run, "THROTTLED", FailureCode::Throttled)
        ),
        check!(
            "core/refused-credentials-are-credentials",
            ["CORE-4", "CORE-15"],
            "if the cloud refuses the credentials, an answer that needs the cloud is `failed` with CREDENTIALS, in the body",
            [FAIL],
            |run| cloud_fails(run, "CREDENTIALS", FailureCode::Credentials)
        ),
        check!(
            "core/a-cloud-that-is-down-is-unavailable",
            ["CORE-4", "CORE-15"],
            "if the cloud is down, an answer that needs the cloud is `failed` with UNAVAILABLE, in the body",
            [FAIL],
            |run| cloud_fails(run, "UNAVAILABLE", FailureCode::Unavailable)
        ),
        check!(
            "core/a-missing-precondition-is-precondition",
            ["CORE-4", "CORE-15"],
            "if the cloud lacks a precondition of an object, Ensure and CreateRoutes are `failed` with PRECONDITION, in the body",
            [FAIL],
            precondition
        ),
        check!(
            "core/a-failing-cloud-heals",
            ["CORE-6", "CORE-15"],
            "when a cloud that failed works again, calls no longer fail because of it, without a restart and without Initialize",
            [FAIL],
            heals
        ),
        check!(
            "core/failures-keep-their-limits",
            ["CORE-11", "CORE-15"],
            "failures have a known code, and at most 1,024 bytes of message and of reason, also if a request has very long texts",
            limits
        ),
        check!(
            "core/retry-after-is-sensible",
            ["CORE-15"],
            "retry_after of a failure is not negative",
            [FAIL],
            retry_after
        ),
        check!(
            "core/secrets-do-not-cross",
            ["CORE-12"],
            "no answer holds a secret of the provider's environment or of suite.yaml",
            secrets
        ),
        check!(
            "core/secrets-do-not-cross-with-a-failure",
            ["CORE-12"],
            "while the cloud refuses the credentials, no answer holds a secret",
            [FAIL],
            secrets_in_failures
        ),
    ]
}

async fn offered(run: &Run) -> Verdict {
    let session = run.session().await?;
    tour::everything(run, &session)
        .await
        .iter()
        .try_for_each(|told| {
            let rule = match told.status().map(tonic::Status::code) {
                Some(tonic::Code::Unimplemented) => "CORE-5",
                _ => "CORE-4",
            };
            told.must(
                told.status().is_none(),
                rule,
                "an answer with gRPC status OK".into(),
            )
        })
}

async fn not_offered(run: &Run) -> Verdict {
    let capabilities = run.capabilities();
    let missing: Vec<_> = Service::ALL
        .into_iter()
        .filter(|of| !of.is_offered(&capabilities))
        .collect();
    let instances = capabilities.instances.as_ref();
    let load_balancers = capabilities.load_balancers.as_ref();
    let no_instances = instances.is_some_and(|of| !of.listing);
    let no_load_balancers = load_balancers.is_some_and(|of| !of.listing);
    if missing.is_empty() && !no_instances && !no_load_balancers {
        return Err(Stop::not_offered(
            "the provider offers all services and both listings",
        ));
    }
    let session = run.session().await?;
    let mut all = Vec::new();
    for service in missing {
        all.extend(tour::service(run, &session, service).await);
    }
    if no_instances {
        let request = pb::ListInstancesRequest::default();
        all.push(tour::listed(&session.list(request).await));
    }
    if no_load_balancers {
        let request = pb::ListLoadBalancersRequest::default();
        all.push(tour::listed(&session.list(request).await));
    }
    all.iter().try_for_each(|told| {
        let code = told.status().map(tonic::Status::code);
        told.must(
            code == Some(tonic::Code::Unimplemented) || told.failed,
            "CORE-5",
            "gRPC status UNIMPLEMENTED, or `failed`: no capability offers it".into(),
        )
    })
}

async fn failing(run: &Run, word: &str) -> Verdict<Vec<Told>> {
    tour::look_up_targets(run).await?;
    let session = run.session().await?;
    run.cloud_fail(word).await?;
    Ok(tour::everything(run, &session).await)
}

/// The codes of the failures of each RPC that may answer without the cloud.
async fn known_failures(run: &Run) -> Verdict<BTreeMap<&'static str, Vec<FailureCode>>> {
    tour::look_up_targets(run).await?;
    let session = run.session().await?;
    let offered = run.capabilities();
    let mut known = BTreeMap::new();
    for of in [Service::Zones, Service::Clusters, Service::Volumes] {
        if of.is_offered(&offered) {
            let told = tour::service(run, &session, of).await;
            let told = told.iter().filter(|told| may_know(told.rpc));
            known.extend(told.filter_map(|told| Some((told.rpc, codes(told)?))));
        }
    }
    Ok(known)
}

fn codes(told: &Told) -> Option<Vec<FailureCode>> {
    let failures = told.failures.as_ref().ok()?;
    Some(failures.iter().map(pb::Failure::code).collect())
}

async fn cloud_fails(run: &Run, word: &str, code: FailureCode) -> Verdict {
    let known = known_failures(run).await?;
    failing(run, word).await?.iter().try_for_each(|told| {
        // The tour also asks for what does not exist. A provider may know that without the cloud.
        let as_before = || known.get(told.rpc) == codes(told).as_ref();
        if may_know(told.rpc) && (!told.failed || told.status().is_none() && as_before()) {
            return Ok(());
        }
        told.must_fail("CORE-15", &[code])
    })
}

async fn precondition(run: &Run) -> Verdict {
    let told = failing(run, "PRECONDITION").await?;
    let made: Vec<_> = told
        .iter()
        .filter(|told| matches!(told.rpc, "EnsureLoadBalancer" | "CreateRoutes"))
        .collect();
    if made.is_empty() {
        return Err(Stop::not_offered(
            "the provider makes neither load balancers nor routes",
        ));
    }
    made.iter()
        .try_for_each(|told| told.must_fail("CORE-15", &[FailureCode::Precondition]))?;
    told.iter().try_for_each(|told| {
        told.must(
            told.status().is_none(),
            "CORE-4",
            "an answer with gRPC status OK".into(),
        )
    })
}

async fn heals(run: &Run) -> Verdict {
    tour::look_up_targets(run).await?;
    let session = run.session().await?;
    for word in ["UNAVAILABLE", "CREDENTIALS"] {
        run.cloud_fail(word).await?;
        tour::everything(run, &session).await;
        run.cloud_fail("NONE").await?;
        let codes = [
            FailureCode::Unavailable,
            FailureCode::Credentials,
            FailureCode::NotInitialized,
        ];
        tour::everything(run, &session)
            .await
            .iter()
            .try_for_each(|told| {
                let still = match &told.failures {
                    Ok(failures) => failures
                        .iter()
                        .any(|failure| codes.contains(&failure.code())),
                    Err(_) => true,
                };
                told.must(
                    !still,
                    "CORE-6",
                    format!("an answer other than {word}: the cloud works again"),
                )
            })?;
    }
    Ok(())
}

fn keeps_limits(told: &Told) -> Verdict {
    for failure in told.failures.iter().flatten() {
        let known =
            FailureCode::try_from(failure.code).is_ok_and(|code| code != FailureCode::Unspecified);
        told.must(
            known,
            "CORE-15",
            "a code that the contract knows, not UNSPECIFIED".into(),
        )?;
        let longest = failure.message.len().max(failure.reason.len());
        told.must(
            longest <= 1_024,
            "CORE-11",
            format!("at most 1,024 bytes of message and reason, not {longest}"),
        )?;
    }
    Ok(())
}

async fn limits(run: &Run) -> Verdict {
    let session = run.session().await?;
    let long = "x".repeat(LONG);
    let strangers = session.speaking_for(pb::ClusterRef {
        name: long.clone(),
        owner_id: format!("{}-{long}", run.cluster().owner_id),
    });
    for told in tour::everything(run, &strangers).await {
        keeps_limits(&told)?;
    }
    let offered = run.capabilities();
    if offered.clusters.is_some() {
        let request = pb::GetControlPlaneAddressRequest {
            cluster: None,
            cluster_name: long.clone(),
        };
        let asked = session.call(request).await;
        keeps_limits(&tour::unary(&asked))?;
    }
    if offered.volumes.is_some() {
        let mut request = tour::volume(run);
        if let Some(volume) = &mut request.volume {
            volume.name.clone_from(&long);
            for value in volume
                .source
                .values_mut()
                .filter(|value| !value.contains('.'))
            {
                value.clone_from(&long);
            }
        }
        keeps_limits(&tour::unary(&session.call(request).await))?;
    }
    if offered.load_balancers.is_some() {
        let mut request = tour::get_load_balancer(run);
        request.handle = Some(long.clone());
        keeps_limits(&tour::unary(&session.call(request).await))?;
    }
    Ok(())
}

async fn retry_after(run: &Run) -> Verdict {
    let mut stated = 0;
    for told in failing(run, "THROTTLED").await? {
        for failure in told.failures.iter().flatten() {
            stated += usize::from(failure.retry_after.is_some());
            let sensible = failure
                .retry_after
                .is_none_or(|wait| Duration::try_from(wait).is_ok());
            told.must(
                sensible,
                "CORE-15",
                "a retry_after that is a time to wait".into(),
            )?;
        }
    }
    if stated == 0 {
        return Err(Stop::not_offered("no failure has a retry_after"));
    }
    Ok(())
}

/// Words that must not appear: the secrets in suite.yaml, the secret that the suite puts into the
/// provider's environment, and values of the provider's environment variables. Such a value counts
/// if it has at least 8 bytes and the variable's name looks like that of a secret.
async fn secret_words(run: &Run) -> Verdict<Vec<String>> {
    let mut secrets = run.config().secrets.clone();
    if run.target().is_ours() {
        secrets.push(CANARY.to_owned());
    }
    if let Some(pid) = run.target().pid().await {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let variables = environment
            .split('\0')
            .filter_map(|line| line.split_once('='));
        secrets.extend(
            variables
                .filter(|(key, value)| {
                    let key = key.to_ascii_uppercase();
                    value.len() >= 8
                        && [
                            "SECRET",
                            "TOKEN",
                            "PASSWORD",
                            "PASSWD",
                            "ACCESS_KEY",
                            "API_KEY",
                            "CREDENTIAL",
                        ]
                        .iter()
                        .any(|word| key.contains(word))
                })
                .map(|(_, value)| value.to_owned()),
        );
    }
    secrets.retain(|secret| !secret.is_empty());
    if secrets.is_empty() {
        return Err(Stop::not_set_up(
            "no secret of the provider is known: name some in suite.yaml under `secrets`, or let the suite start it (--command)",
        ));
    }
    Ok(secrets)
}

fn none_of(secrets: &[String], sent: &str, whole: &str) -> Verdict {
    // This failure does not show the secret, because people pass reports around.
    must(
        !secrets.iter().any(|secret| whole.contains(secret.as_str())),
        "CORE-12",
        sent,
        "an answer without secrets",
        "an answer that holds a secret of the provider's environment or of suite.yaml",
    )
}

async fn secrets(run: &Run) -> Verdict {
    let secrets = secret_words(run).await?;
    let session = run.session().await?;
    let info = session.call(pb::GetProviderInfoRequest::default()).await;
    none_of(&secrets, &info.sent(), &format!("{:?}", info.came))?;
    let initialized = session.call(pb::InitializeRequest::default()).await;
    none_of(
        &secrets,
        &initialized.sent(),
        &format!("{:?}", initialized.came),
    )?;
    let probe = session.call(pb::ProbeRequest::default()).await;
    none_of(&secrets, &probe.sent(), &format!("{:?}", probe.came))?;
    for told in tour::everything(run, &session).await {
        none_of(&secrets, &told.sent, &told.whole)?;
    }
    Ok(())
}

async fn secrets_in_failures(run: &Run) -> Verdict {
    let secrets = secret_words(run).await?;
    for told in failing(run, "CREDENTIALS").await? {
        none_of(&secrets, &told.sent, &told.whole)?;
    }
    let session = run.connect().await?;
    let asked = session.call(pb::InitializeRequest::default()).await;
    none_of(&secrets, &asked.sent(), &format!("{:?}", asked.came))?;
    let probe = session.call(pb::ProbeRequest::default()).await;
    none_of(&secrets, &probe.sent(), &format!("{:?}", probe.came))
}
