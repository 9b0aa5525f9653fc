//! All checks, their selection and order, and the clean-up.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use futures::FutureExt;
use globset::{Glob, GlobSet, GlobSetBuilder};
use tokio::time::Instant;

use super::breaker::Breaker;
use super::check::{Check, Stop, Verdict};
use super::cleanup::{after_a_check, at_the_end};
use super::config::{Config, RouteMarks};
use super::hooks::Hooks;
use super::ledger::Ledger;
use super::report::{Entry, Outcome, Report};
use super::run::{Run, Shared};
use super::session::Session;
use super::target::{Provider, Target};

/// The limit for a check, to which `--soak` is added. A check that does not end in this time fails.
const CHECK: Duration = Duration::from_mins(3);
/// The limit for the first answer.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// All checks, in the order in which they run.
pub fn checks() -> Vec<Check> {
    let mut all = super::core::checks();
    all.extend(super::provider::checks());
    all.extend(super::instances::checks());
    all.extend(super::zones::checks());
    all.extend(super::load_balancers::checks());
    all.extend(super::routes::checks());
    all.extend(super::clusters::checks());
    all.extend(super::volumes::checks());
    all.extend(super::core::at_the_end());
    all
}

/// Which checks run.
#[derive(Debug, Clone)]
pub struct Selection {
    only: Option<GlobSet>,
    skip: GlobSet,
}

impl Selection {
    /// From globs of IDs, such as `instances/*`. An empty `only` selects all. An error names a glob
    /// that is invalid or matches no check.
    pub fn new(only: &[String], skip: &[String]) -> Result<Self, String> {
        let checks = checks();
        let set = |flag: &str, globs: &[String]| {
            let mut set = GlobSetBuilder::new();
            for text in globs {
                let glob = Glob::new(text).map_err(|error| format!("{flag} {text:?}: {error}"))?;
                let matcher = glob.compile_matcher();
                if !checks.iter().any(|check| matcher.is_match(check.id)) {
                    return Err(format!(
                        "{flag} {text:?} matches no check; `--list` prints their IDs, `*` stands for anything"
                    ));
                }
                set.add(glob);
            }
            set.build().map_err(|error| format!("{flag}: {error}"))
        };
        Ok(Self {
            only: if only.is_empty() {
                None
            } else {
                Some(set("--only", only)?)
            },
            skip: set("--skip", skip)?,
        })
    }

    /// Whether a check is selected.
    pub fn takes(&self, id: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.is_match(id)) && !self.skip.is_match(id)
    }
}

/// One run of the suite.
#[derive(Debug)]
pub struct Options {
    /// The provider to check.
    pub provider: Provider,
    /// suite.yaml.
    pub config: Config,
    /// Which checks run.
    pub selection: Selection,
    /// How long each check for growing memory or open files runs.
    pub soak: Duration,
}

/// Why the run could not begin, such as a provider that cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

/// Runs the suite until its end or until `interrupted` resolves. In both cases it then removes what
/// it created, as far as it can. Each entry is reported when its check ends.
pub async fn run(
    options: Options,
    interrupted: impl Future<Output = ()>,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Report, StartError> {
    let began = Instant::now();
    let mut interrupted = pin!(interrupted);
    let shared = tokio::select! {
        shared = begin(&options) => shared.map_err(StartError)?,
        () = &mut interrupted => {
            // No check ran, so there is nothing to clean up.
            return Ok(Report {
                provider: "the provider".into(),
                interrupted: true,
                took: began.elapsed(),
                ..Report::new(&pb::GetProviderInfoResponse::default())
            });
        }
    };
    let mut report = Report::new(&shared.info);
    let checks: Vec<Check> = checks()
        .into_iter()
        .filter(|check| options.selection.takes(check.id))
        .collect();
    let mut breaker = Breaker::default();
    for (number, check) in checks.iter().enumerate() {
        progress(Progress::Begins {
            id: check.id,
            number: number + 1,
            of: checks.len(),
        });
        let entry = tokio::select! {
            entry = one(&shared, check, &mut breaker) => entry,
            () = &mut interrupted => {
                report.interrupted = true;
                break;
            }
        };
        progress(Progress::Ended(&entry));
        report.entries.push(entry);
        // The clean-up runs even if the check failed half-way. The clean-up at the end tries again.
        tokio::select! {
            () = after_a_check(&shared) => {}
            () = &mut interrupted => {
                report.interrupted = true;
                break;
            }
        }
    }
    report.left = at_the_end(&shared).await;
    report.took = began.elapsed();
    Ok(report)
}

/// The progress of the suite.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A check begins.
    Begins {
        /// Its ID.
        id: &'a str,
        /// Its number.
        number: usize,
        /// The number of checks.
        of: usize,
    },
    /// A check has ended.
    Ended(&'a Entry),
}

async fn begin(options: &Options) -> Result<Arc<Shared>, String> {
    let target = Target::reach(&options.provider).await?;
    let random = uuid::Uuid::new_v4().simple().to_string();
    let run_id = format!("conformance-{}", &random[..8]);
    let ledger = Arc::new(Ledger::new(run_id.clone()));
    let cluster = pb::ClusterRef {
        name: run_id.clone(),
        owner_id: run_id,
    };
    let session = Session::dial(target.path(), cluster, Arc::clone(&ledger))
        .await
        .map_err(|error| format!("no process answers at {}: {error}", target.endpoint()))?;
    let request = pb::GetProviderInfoRequest {
        controller_version: env!("CARGO_PKG_VERSION").into(),
        contract_minor: pb::CONTRACT_MINOR,
    };
    let asked = session.call_within(request, HANDSHAKE).await;
    let info = asked.came.map_err(|status| {
        format!(
            "the process at {} is no provider of cloudprovider.v1alpha1: GetProviderInfo: {}",
            target.endpoint(),
            super::call::shown(&status)
        )
    })?;
    options.config.fits(&info.provider_id_prefixes)?;
    let hooks = Hooks::new(options.config.hooks.clone(), target.endpoint());
    let mut clears_unmarked = false;
    if options.config.route_marks == RouteMarks::None {
        clears_unmarked = avoids_foreign_routes(&session, &ledger).await;
        // Starts the process again if these calls ended it: the checks find out which call ends it.
        target.start().await?;
    }
    Ok(Arc::new(Shared {
        target,
        config: options.config.clone(),
        hooks,
        ledger,
        info,
        clears_unmarked,
        soak: options.soak,
        numbers: AtomicU64::new(0),
    }))
}

/// Keeps the run from the destinations of all routes that the cloud has. `false`: they are unknown,
/// because a call failed or the provider does not offer routes.
async fn avoids_foreign_routes(session: &Session, ledger: &Ledger) -> bool {
    let request = pb::InitializeRequest::default();
    let asked = session.call(request).await;
    if asked.success("PROV-2").is_err() {
        return false;
    }
    let request = pb::ListRoutesRequest::default();
    let Ok(routes) = session.list(request).await.items() else {
        return false;
    };
    for route in routes {
        ledger.avoid_cidr(&route.destination_cidr);
    }
    true
}

async fn one(shared: &Arc<Shared>, check: &Check, breaker: &mut Breaker) -> Entry {
    let began = Instant::now();
    let run = Run::new(Arc::clone(shared));
    let lack = run.lack(check.needs);
    let outcome = if let Some(why) = lack.or_else(|| breaker.refuses(check.id)) {
        Outcome::Skipped(why)
    } else {
        let patience = breaker.patience(check.id, CHECK) + shared.soak;
        let verdict = AssertUnwindSafe((check.run)(&run)).catch_unwind();
        // The calls of the check stay open until this future is dropped.
        let mut verdict = pin!(verdict);
        let verdict = match tokio::time::timeout(patience, verdict.as_mut()).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) => Err(broken(&*panic)),
            Err(_) => {
                breaker.note_endless(check.id, shared.ledger.open_for());
                Err(endless(check, patience))
            }
        };
        let mut verdict = verdict;
        // The suite starts the provider again for the next check, so the report names the end of
        // the process only here.
        if let Err(Stop::Failed(failed)) = &mut verdict
            && failed.came.starts_with("gRPC status")
            && let Some(how) = run.target().died().await
        {
            failed.came = format!("{}; the provider's process ended {how}", failed.came);
        }
        let silent = |verdict: &Verdict| verdict.as_ref().err().and_then(Stop::unanswered);
        // If Probe was not answered, it is not called again.
        let alive = match silent(&verdict) {
            Some("Probe") => Ok(()),
            _ => alive(&run).await,
        };
        if let Some(rpc) = silent(&alive).or(silent(&verdict)) {
            breaker.note(check.id, rpc);
        }
        let verdict = match verdict {
            Err(Stop::Warned(_)) if alive.is_err() => alive,
            verdict => verdict.and(alive).and_then(|()| run.passed()),
        };
        match verdict {
            Ok(()) => Outcome::Passed,
            Err(Stop::Failed(failed)) => Outcome::Failed(*failed),
            Err(Stop::Warned(failed)) => Outcome::Warned(*failed),
            Err(Stop::Skipped(skipped)) => Outcome::Skipped(skipped),
        }
    };
    Entry {
        id: check.id,
        rules: check.rules,
        title: check.title,
        outcome,
        took: began.elapsed(),
    }
}

/// After each check the provider must answer. If the suite started the provider and the process has
/// ended, the suite starts it again.
async fn alive(run: &Run) -> Verdict {
    run.target().revive().await?;
    let session = run.connect().await?;
    let asked = session.call(pb::ProbeRequest::default()).await;
    asked.must(asked.came.is_ok(), "PROV-4", "an answer after the check")
}

fn endless(check: &Check, patience: Duration) -> Stop {
    let mut stop = Stop::failed(
        check.rules.first().copied().unwrap_or_default(),
        "the whole check",
        "each call ends",
        format_args!("the check still ran after {patience:?}"),
    );
    if let Stop::Failed(failed) = &mut stop {
        failed.unanswered = Some("some call");
    }
    stop
}

fn broken(panic: &(dyn Any + Send)) -> Stop {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Stop::failed(
        "(the suite)",
        "the check",
        "it does not panic",
        text.unwrap_or("(no text)"),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_well_formed_and_every_check_says_what_it_shows() {
        let services = [
            "core",
            "provider",
            "instances",
            "zones",
            "load-balancers",
            "routes",
            "clusters",
            "volumes",
        ];
        let mut seen = BTreeSet::new();
        for check in checks() {
            assert!(seen.insert(check.id), "{} is there twice", check.id);
            let (service, name) = check.id.split_once('/').expect(check.id);
            assert!(services.contains(&service), "{}", check.id);
            assert!(
                !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_lowercase()
                        || byte.is_ascii_digit()
                        || byte == b'-'),
                "{}",
                check.id
            );
            assert!(
                !check.rules.is_empty() && !check.title.is_empty(),
                "{}",
                check.id
            );
        }
    }

    #[test]
    fn a_selection_takes_globs_and_refuses_what_matches_nothing() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = Selection::new(&[], &[]).unwrap();
        assert!(all.takes("core/anything"));
        let some = Selection::new(&words(&["provider/*"]), &words(&["provider/probe-*"])).unwrap();
        assert!(some.takes("provider/other"));
        assert!(!some.takes("provider/probe-x") && !some.takes("core/x"));
        for (only, word) in [("nothing/*", "matches no check"), ("[", "[")] {
            let error = Selection::new(&words(&[only]), &[]).unwrap_err();
            assert!(error.contains("--only") && error.contains(word), "{error}");
        }
    }
}
